"""Sessions of coding agents, with what they thought, their sub-agents, and how their prompts grew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, is_number, one_of, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Longs
from prebleexp.workloads import weka
from prebleexp.workloads.documents import rows_of
from prebleexp.workloads.growth import NOBODY, grown, headed
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.rows import MOST, Records
from prebleexp.workloads.trace import Links, Reading, Trace

PUBLIC = ("none", "tools", "tools_system")
GROWTH = ("recorded", "accumulate", "none")
FIELDS = ("t", "think", "in", "out", "from", "keep", "api", "user")
HEADS = ("tool", "system")


class Request(NamedTuple):
    """Of a trace; other requests are numbers in the whole of it."""

    start_s: float
    """from the start of its family"""
    output: int
    prompt: int
    of: int
    """whose prompt it shares most with; −1: none"""
    keep: int
    """tokens of that"""
    session: int
    turn: int
    parent: int
    tool: int
    system: int
    after: tuple[int, ...]
    delay_s: float


class Turn(NamedTuple):
    """As a session has it; other turns are numbers in that."""

    start_s: float
    think_s: float
    prompt: int
    output: int
    of: int
    keep: int
    api_s: float


@dataclass(frozen=True)
class Agents(Replayed):
    """Traces of real coding agents (kv-cache-tester's, known as Weka's): as published, one JSON object {requests, …} a
    session, or compact, {turns: [[t, think, in, out, from, keep, api, user], …], agents, tool, system}; one a line.

    A turn is due its think time after the answer before it. Sub-agents are sessions of their own: each starts so long
    after the answer that called it; who waits for a group of them is due after the last of them. Recorded starts have
    no common clock, so sessions start at random (load=poisson) or are played by lanes (population); mode=open sends
    turns when they were recorded, from the session's start on. An output of 0 tokens counts as 1.

    Source: callanjfox/kv-cache-tester, traces/.
    """

    load: str | None = "poisson"
    mode: str | None = "closed"
    growth: str = "recorded"
    """recorded: a prompt has exactly the recorded tokens of an earlier one, then new ones; accumulate: all of the one
    before, what was generated then, and new ones, where it is long enough for that; none: prompts share nothing"""
    public_prefix: str = "none"
    """none: sessions share nothing; tools: those with equally long tools share them; tools_system: those with equally
    long tools and system prompts share both"""
    longest: int | None = None
    """only sessions whose prompts, and sub-agents' prompts, have at most so many tokens; null: all"""

    name: ClassVar[str] = "agents"
    where: ClassVar[str] = "sessions from https://github.com/callanjfox/kv-cache-tester"
    loads: ClassVar[tuple[str, ...]] = ("poisson", "population")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("workload.growth", self.growth, GROWTH)
        one_of("workload.public_prefix", self.public_prefix, PUBLIC)
        valid = self.longest is None or is_integer(self.longest, 1, MOST)
        require(valid, "workload.longest", self.longest, f"null or an integer from 1 to {MOST}")

    def read(self) -> Trace:
        rows = rows_of(self.path)
        if not isinstance(rows, Records):
            raise InvalidInput(f"{self.path}: not JSON lines")
        found: list[Request] = []
        clocks: Counter[str] = Counter()
        for row, record in enumerate(rows.records):
            compact = weka.compact(rows, row, record) if "requests" in record else record
            clocks.update(
                one["clock"] for one in compact.get("agents") or () if isinstance(one, dict) and "clock" in one
            )
            made = _family(rows, row, compact, len(found), 1 + max((one.session for one in found), default=-1))
            if self.longest is None or max(one.prompt for one in made) <= self.longest:
                found += made
        if not found:
            raise InvalidInput(f"{self.path}: there are no sessions whose prompts have at most {self.longest} tokens")
        return self._trace(found, clocks)

    def _trace(self, found: list[Request], clocks: Mapping[str, int]) -> Trace:
        def column(name: str) -> Longs:
            return np.array([getattr(one, name) for one in found], np.int64)

        output, tool, turn = column("output"), column("tool"), column("turn")
        most = output if self.max_new_tokens is None else np.minimum(output, self.max_new_tokens)
        of, keep, prompt = column("of"), column("keep"), column("prompt")
        if self.growth == "none":
            of, keep = np.full_like(of, NOBODY), np.zeros_like(keep)
        elif self.growth == "accumulate":
            context = prompt[of] + most[of]
            keep = np.where((of >= 0) & (turn == turn[of] + 1) & (prompt >= context), context, keep)
        prompts, answer = grown(of, keep, prompt, most)
        public = None
        if self.public_prefix == "tools":
            prompts, answer, public = headed(prompts, answer, tool, tool)
        elif self.public_prefix == "tools_system":
            system = column("system")
            prompts, answer, public = headed(prompts, answer, tool * (MOST + 1) + system, tool + system)
        later = np.repeat(np.arange(len(found)), [len(one.after) for one in found])
        before = np.array([one for each in found for one in each.after], np.int64)
        return Trace(
            start_s=np.array([one.start_s for one in found]),
            output_tokens=output,
            prompts=prompts,
            session=column("session").astype(np.int32),
            turn=turn.astype(np.int32),
            public=public,
            links=Links(later, before, np.array([one.delay_s for one in found])),
            parent=column("parent").astype(np.int32),
            answer=answer,
            reading=_reading(clocks, self.growth),
            clocked=False,
        )


def _reading(clocks: Mapping[str, int], growth: str) -> Reading:
    """`clocks`: how many sub-agents there are by whose clock their requests have."""
    of = ", ".join(f"{clock} clock in {count:,} sub-agents" for clock, count in sorted(clocks.items()))
    doubts = ("some sub-agents are on their session's clock and others on their own; what they have is taken",)
    return Reading(
        time=f"t, seconds from each session's start{f'; {of}' if of else ''}; turns come after answers",
        prompt="in",
        output="out",
        prefix=f"hash_ids, or keep (growth={growth})",
        sessions="a row each, sub-agents their own",
        doubts=doubts if len(clocks) > 1 else (),
        cure="workload.growth=recorded has what they kept of earlier prompts",
    )


def _family(rows: Records, row: int, record: Mapping[str, Any], at: int, session: int) -> list[Request]:
    """A session and its sub-agents, whose requests stand behind the turn that called them; `at` requests and `session`
    sessions stand before it."""
    agents = record.get("agents", [])
    if not isinstance(agents, list) or not all(isinstance(one, dict) for one in agents):
        raise rows.wrong(row, "agents is not valid; it must be a list of objects")
    sizes = [_tokens(rows, row, name, record) for name in HEADS]
    made: list[Request] = []
    mine: list[int] = []
    children = session
    waited: list[tuple[int, float]] = []
    """for: the last requests of the agents called by the turn before, and the delay from the last of their ends"""
    for number, turn in enumerate(_turns(rows, row, "turns", record.get("turns"), own=True)):
        after = tuple(last for last, _ in waited) or tuple(mine[-1:])
        delay_s = waited[0][1] if waited else turn.think_s if number else 0.0
        mine.append(at + len(made))
        made.append(_request(turn, turn.start_s, mine, session, NOBODY, sizes, after, delay_s))
        waited = []
        for agent in (one for one in agents if one.get("after") == number):
            children += 1
            begin_s = _seconds(rows, row, "agents.start", agent.get("start"))
            theirs: list[int] = []
            heads = [_tokens(rows, row, name, agent) for name in HEADS]
            start_s = turn.start_s + max(turn.api_s, 0.0)
            for inner in _turns(rows, row, "agents.turns", agent.get("turns"), own=False):
                wait_s = inner.think_s if theirs else begin_s
                before = (theirs or mine)[-1]
                theirs.append(at + len(made))
                start_s += wait_s
                made.append(_request(inner, start_s, theirs, children, session, heads, (before,), wait_s))
                start_s += max(inner.api_s, 0.0)
            if agent.get("join") is not None:
                waited.append((theirs[-1], _seconds(rows, row, "agents.join", agent["join"])))
    return made


def _request(
    turn: Turn,
    start_s: float,
    own: list[int],
    session: int,
    parent: int,
    heads: list[int],
    after: tuple[int, ...],
    delay_s: float,
) -> Request:
    of = own[turn.of] if turn.of >= 0 else NOBODY
    number = len(own) - 1
    output = max(turn.output, 1)
    return Request(
        start_s, output, turn.prompt, of, turn.keep, session, number, parent, heads[0], heads[1], after, delay_s
    )


def _turns(rows: Records, row: int, name: str, given: Any, *, own: bool) -> list[Turn]:
    """Checked: numbers in range, prompts that keep of earlier ones what these have. Those of sub-agents have no start
    and do not say who typed."""
    fields = FIELDS if own else FIELDS[1:-1]
    if not (isinstance(given, list) and given):
        raise rows.wrong(row, f"{name} is not valid; it must be a list of [{', '.join(fields)}]")
    found: list[Turn] = []
    for number, one in enumerate(given):
        if not (isinstance(one, list) and len(one) == len(fields)):
            raise rows.wrong(row, f"{name}[{number}] is not valid; it must be [{', '.join(fields)}]")
        turn = Turn(*one[:-1]) if own else Turn(0.0, *one)
        for what, value in (("t", turn.start_s), ("think", turn.think_s)):
            if not (is_number(value) and value >= 0):
                raise rows.wrong(row, f"{name}[{number}]: {what}={value!r} is not valid; it must be a number >= 0")
        if not is_number(turn.api_s):
            raise rows.wrong(
                row, f"{name}[{number}]: api={turn.api_s!r} is not valid; it must be a number, −1: unknown"
            )
        for what, value, least, most in (
            ("in", turn.prompt, 1, MOST),
            ("out", turn.output, 0, MOST),
            ("from", turn.of, NOBODY, number - 1),
        ):
            if not is_integer(value, least, most):
                valid = f"an integer from {least} to {most}"
                raise rows.wrong(row, f"{name}[{number}]: {what}={value!r} is not valid; it must be {valid}")
        there = min(turn.prompt, found[turn.of].prompt) if turn.of >= 0 else 0
        if not is_integer(turn.keep, 0, there):
            valid = f"an integer from 0 to {there}, what both prompts have"
            raise rows.wrong(row, f"{name}[{number}]: keep={turn.keep!r} is not valid; it must be {valid}")
        found.append(turn)
    return found


def _tokens(rows: Records, row: int, name: str, of: Mapping[str, Any]) -> int:
    value = of.get(name, 0)
    if not is_integer(value, 0, MOST):
        raise rows.wrong(row, f"{name}={value!r} is not valid; it must be an integer from 0 to {MOST}")
    return value


def _seconds(rows: Records, row: int, name: str, value: Any) -> float:
    if not (is_number(value) and value >= 0):
        raise rows.wrong(row, f"{name}={value!r} is not valid; it must be a number of seconds >= 0")
    return float(value)
