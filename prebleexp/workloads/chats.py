"""Made-up chats, or agents: sessions whose turns keep all that was said, in a closed loop."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import numpy as np

from prebleexp.checks import integer, is_number, one_of, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Longs, Workload
from prebleexp.workloads import plays
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.few_shot import LONGEST, MOST, MOST_REQUESTS, random
from prebleexp.workloads.growth import NOBODY, grown, headed
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.rescale import Choice
from prebleexp.workloads.streams import workload_of
from prebleexp.workloads.trace import Links, Trace

STARTS, TURNS, APPS, NEW, THINKING, ANSWERS = range(20, 26)
"""random streams"""
LOADS = ("poisson", "population")
CORPUS = 20_000
"""requests of the sessions that lanes play; who plays one again has private tokens of his own"""


@dataclass(frozen=True)
class Chats(WorkloadSource):
    """A session begins with the system prompt of its app. Each turn keeps the prompt and the answer before it, adds new
    tokens, and is due some time after that answer. A session is over before a prompt would be longer than `longest`.

    Numbers of turns are geometric, new tokens and think times exponential. rps · duration_s requests are of sessions
    that start at random within `duration_s`, and later turns come later than that: take a `duration_s` that is long
    against a session. At a greater rate there are those of a lesser one, and more. With load=population it is `lanes`
    users instead, each of whom plays one session after the other, whatever rps is.

    Raises InvalidInput for fields that are not valid, and more than 100 million requests.
    """

    nested: ClassVar[bool] = True

    apps: int = 4
    """of which each session is one, at random"""
    system_tokens: int = 1000
    """that all sessions of an app begin with"""
    first_tokens: int = 200
    """that the first turn adds, on average"""
    new_tokens: int = 200
    """that a later one adds, on average"""
    turns: float = 6.0
    """of a session, on average"""
    think_s: float = 10.0
    """from an answer to the next turn, on average"""
    longest: int = 32_000
    """tokens of a prompt"""
    max_new_tokens: int = 300
    """where generation ends at the latest, and all that lengths=max knows"""
    load: str = "poisson"
    """poisson: sessions start at random; population: so many are there at a time"""
    lanes: int = 64
    """of load=population"""
    between_s: float = 0.0
    """population: from the end of a session to the lane's next"""

    def __post_init__(self) -> None:
        for name in ("apps", "system_tokens", "first_tokens", "new_tokens", "max_new_tokens"):
            integer(f"workload.{name}", getattr(self, name), 1, MOST)
        integer("workload.longest", self.longest, self.system_tokens + 1, LONGEST)
        valid = is_number(self.turns) and 1 <= self.turns <= MOST
        require(valid, "workload.turns", self.turns, f"a number from 1 to {MOST}")
        valid = is_number(self.think_s) and self.think_s >= 0
        require(valid, "workload.think_s", self.think_s, "a number of seconds >= 0")
        one_of("workload.load", self.load, LOADS)
        plays.check(self.lanes, self.between_s)

    @property
    def users(self) -> int | None:
        return self.lanes if self.load == "population" else None

    def with_users(self, users: int) -> Self:
        return replace(self, lanes=users)

    @property
    def retimed_by(self) -> tuple[str, ...]:
        return ("arrivals", "profile") if self.users is None else ()

    @property
    def in_sessions(self) -> bool:
        return True

    @property
    def obeys(self) -> tuple[str, ...]:
        rate = ("rps",) if self.users is None else ()
        return (*rate, "duration_s", "seed", "output_length")

    def identity(self) -> dict[str, object]:
        """What only a population has does not matter to others."""
        without = {"lanes", "between_s"} if self.users is None else set()
        return {one.name: getattr(self, one.name) for one in fields(self) if one.name not in without}

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        if self.users is not None:
            corpus = self._trace(CORPUS, 0.0, seed, output_length)
            chosen = plays.population(corpus, self.lanes, self.between_s, duration_s, seed)
            return workload_of(corpus, chosen, self.max_new_tokens, closed=True)
        if not rps * duration_s <= MOST_REQUESTS:
            raise InvalidInput(
                f"rps={rps} for duration_s={duration_s} is not valid; that must be at most {MOST_REQUESTS:,} requests"
            )
        trace = self._trace(max(1, round(rps * duration_s)), duration_s, seed, output_length)
        order = np.argsort(trace.start_s, kind="stable")
        chosen = Choice(order, np.zeros(len(trace), np.int64), trace.start_s[order])
        return workload_of(trace, chosen, self.max_new_tokens, closed=True)

    def _trace(self, n: int, duration_s: float, seed: int, output_length: OutputLength) -> Trace:
        """So many requests, of sessions that start within that time."""
        output = output_length.draw(n, random(seed, ANSWERS)).astype(np.int64)
        answer = np.minimum(output, self.max_new_tokens)
        turn, prompt = self._conversations(answer, seed)
        first = turn == 0
        session = np.cumsum(first) - 1
        later = np.flatnonzero(~first)
        of, keep = np.full(n, NOBODY), np.zeros(n, np.int64)
        of[later], keep[later] = later - 1, prompt[later - 1] + answer[later - 1]
        app = random(seed, APPS).integers(self.apps, size=n)[session]
        prompts, answers, public = headed(*grown(of, keep, prompt, answer), app, np.full(n, self.system_tokens))
        starts_s = random(seed, STARTS).random(session[-1] + 1) * duration_s
        thinks_s = random(seed, THINKING).exponential(self.think_s, n)
        return Trace(
            start_s=starts_s[session],
            output_tokens=output,
            prompts=prompts,
            session=session.astype(np.int32),
            turn=turn.astype(np.int32),
            public=public,
            links=Links(later, later - 1, np.where(first, 0.0, thinks_s)),
            answer=answers,
        )

    def _conversations(self, answer: Longs, seed: int) -> tuple[Longs, Longs]:
        """(n,) each request's turn, and tokens of its prompt, one session after the other."""
        n = len(answer)
        sizes = random(seed, NEW).standard_exponential(n)
        firsts = np.maximum(np.rint(self.first_tokens * sizes), 1)
        laters = np.maximum(np.rint(self.new_tokens * sizes), 1)
        lasting = random(seed, TURNS).geometric(1 / self.turns, n).tolist()  # more than there are sessions
        turn, prompt = np.zeros(n, np.int64), np.zeros(n, np.int64)
        session, at, tokens = -1, 0, 0
        for i, (first, later) in enumerate(zip(firsts.tolist(), laters.tolist(), strict=True)):
            at, tokens = at + 1, tokens + int(later)
            if session < 0 or at == lasting[session] or tokens > self.longest:
                session, at, tokens = session + 1, 0, min(self.system_tokens + int(first), self.longest)
            turn[i], prompt[i] = at, tokens
            tokens += int(answer[i])
        return turn, prompt
