"""Logs of requests to models, as gateways, servers, tracers, benchmarks and simulators write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from prebleexp.checks import is_integer, is_number, one_of, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Ints, Longs
from prebleexp.workloads import asked_adapters, hashes, inferred, nested, said, usage
from prebleexp.workloads.accumulated import CURE, GROWTH, Accumulated, accumulated
from prebleexp.workloads.blocks import Prompts, begun, joined, private
from prebleexp.workloads.clock import SUFFIXES, Clock, clock, in_order, moments, unit_of
from prebleexp.workloads.columns import Columns, found, named, plain, set_column
from prebleexp.workloads.documents import rows_of
from prebleexp.workloads.failed import served
from prebleexp.workloads.records import flattened
from prebleexp.workloads.repeated import own_requests
from prebleexp.workloads.rows import MOST, Rows
from prebleexp.workloads.tabular import Tabular
from prebleexp.workloads.trace import Reading, Trace, alone, told

STEMS = (
    *("arrival_time", "arrived_at", "arrival_timestamp", "arrival", "request_arrival_time", "queued_time", "queued_at"),
    *("request_start", "request_start_time", "start_time", "started_at", "start_timestamp", "start", "sent_at"),
    *("send_time", "request_timestamp", "timestamp", "ts", "time", "created", "created_at", "request_created_at"),
    "create_time",
    *("datetime", "date", "event_time", "time_iso8601", "time_local"),
)
TIMES = tuple(
    f"{stem}{end}" for stem in STEMS for end in ("", *(f"_{one}" for ends in SUFFIXES.values() for one in ends))
)
SESSIONS = (
    *("session_id", "conversation_id", "conversation.id", "session.id", "chat_id", "thread_id", "x_correlation_id"),
    "session",
)
TURNS = ("turn_index", "turn", "round_index", "turn_id")
TOKENS = ("input_tok_ids", "prompt_token_ids", "input_token_ids", "input_ids", "token_ids")
CHOICES = "choices"
RAW = "start_perf_ns"
"""which only records of aiperf have that are what went over the wire"""
LENGTHS = ("input_lens", "output_lens")
"""of all requests of a benchmark, in its result"""
LOG = "a log with session ids, messages or hash_ids says what they share"
"""what cures one that says nothing"""
USUAL = 4.0
"""characters a token, if the log says nothing of tokens"""


class _Asked(NamedTuple):
    """What n requests asked for, in order."""

    prompts: Prompts
    says: str
    """of what their lengths are"""
    prefix: str
    """and what they share"""
    session: Ints
    turn: Ints
    sessions: str
    public: npt.NDArray[np.bool_] | None = None
    characters_per_token: float = USUAL
    block_tokens: int = 1
    answer: Ints | None = None
    cure: str = ""


@dataclass(frozen=True)
class RequestLog(Tabular):
    """A row a request, in any order: when it came, what was asked, and how long the answer was, under the names that
    OpenAI, Anthropic, Gemini, gateways, OpenTelemetry, servers, benchmarks and simulators have for that, in whatever
    objects; or under those of `columns`.

    Cached tokens count, whether a provider has them among a prompt's or beside. Requests that failed are left out.
    Of messages each is a segment, tools and system first: prompts share their equal first ones, and 64 letters or more
    with which the next one begins; so do texts that are no messages. A request has as many
    tokens as its own count says; without one, its characters / c, where c is `characters_per_token`, or what the log's
    counts say over all of it, or 4. Without messages, prompts share what they begin with of their tokens' ids, if these
    are there, or of hashes of their blocks, or nothing; hashes that `columns` names, or whose `block_tokens` are said,
    come before both. Sessions are those of session_id or conversation_id; without them, a request is the next turn
    of the latest one whose messages it begins with. Messages of more than 60 requests are everybody's. An answer of 0
    tokens counts as 1.
    """

    characters_per_token: float | None = None
    """of messages; null: as the log says, else 4"""
    benchmark: int | None = None
    """which, from 1 on, of a file of several benchmarks, as guidellm's; null: the last"""
    block_tokens: int | None = None
    """that a hash stands for; null: as the numbers of hashes tell, if one power of two alone fits"""
    growth: str = "none"
    """of prompts of which only lengths are known: none: they share nothing; accumulate: a turn begins with the prompt
    and the answer before it, if it is as long as both, else with that prompt, if it is as long as that"""

    name: ClassVar[str] = "request_log"
    where: ClassVar[str] = "a log with a row a request, of JSON lines, CSV or Parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = self.characters_per_token is None or (
            is_number(self.characters_per_token) and self.characters_per_token > 0
        )
        require(valid, "workload.characters_per_token", self.characters_per_token, "null or a number > 0")
        one_of("workload.growth", self.growth, GROWTH)
        valid = self.block_tokens is None or is_integer(self.block_tokens, 1, MOST)
        require(valid, "workload.block_tokens", self.block_tokens, f"null or an integer from 1 to {MOST}")
        valid = self.benchmark is None or is_integer(self.benchmark, 1)
        require(valid, "workload.benchmark", self.benchmark, "null or an integer > 0")

    def read(self) -> Trace:
        every = flattened(rows_of(self.path), self.benchmark)
        if nested.is_nested(every):
            return nested.read(every, self)
        if RAW in every and found(every, usage.OUTPUTS) is None:
            raise InvalidInput(
                f"{self.path}: these are aiperf's raw records, which have no lengths; take profile_export.jsonl, which "
                "it writes with --export-level records"
            )
        if {*LENGTHS} <= {*every.names} and all(isinstance(every.values(name)[0], list) for name in LENGTHS):
            raise InvalidInput(
                f"{self.path}: it is a benchmark's result, with lists of lengths; take workload=bench_log"
            )
        kept = served(every, self.columns)
        if not len(kept.rows):
            raise InvalidInput(f"{self.path}: there are no requests that were served: {'; '.join(kept.left_out)}")
        rows, left_out = every.taken(kept.rows), list(kept.left_out)
        counts = usage.counts(rows, self.columns)
        own = own_requests(rows, (counts.inputs >= 0) | (counts.outputs >= 0), counts.inputs)
        if own.left_out:
            left_out += own.left_out
            rows = rows.taken(own.rows)
            counts = usage.counts(rows, self.columns)
        when = self._clock(rows)
        order, times = in_order(when.seconds)
        rows = rows.taken(order)
        counts = counts._replace(inputs=counts.inputs[order], outputs=counts.outputs[order])
        doubts = [*when.doubts, *counts.doubts, *own.doubts]
        asked = self._asked(rows, counts, doubts)
        adapter, adapters = asked_adapters.asked(rows, self.columns)
        doubts += asked_adapters.unread(rows, self.columns)
        outputs, output_says = _outputs(rows, counts, asked.characters_per_token)
        if nothing := int((outputs == 0).sum()):
            output_says += f", 0 in {nothing:,} of {len(rows):,} rows, taken as 1"
        reading = Reading(
            time=when.says,
            prompt=asked.says,
            output=output_says,
            cached=counts.cached_says,
            found_share=counts.found_share,
            prefix=asked.prefix,
            sessions=asked.sessions,
            adapters=adapters,
            left_out=tuple(left_out),
            doubts=tuple(doubts),
            block_tokens=asked.block_tokens,
            cure=asked.cure,
        )
        of = (times, np.maximum(outputs, 1), asked.prompts, asked.session, asked.turn, asked.public)
        return Trace(*of, answer=asked.answer, adapter=adapter, reading=reading)

    def _clock(self, rows: Rows) -> Clock:
        name = named(rows, self.columns, "arrival", TIMES)
        return moments(rows, name) or clock(rows, name, self.time_unit, "s", told=unit_of(plain(name)))

    def _asked(self, rows: Rows, counts: usage.Counts, doubts: list[str]) -> _Asked:
        by_hashes = hashes.are_asked_for(self.columns, self.block_tokens)
        field = None if by_hashes or set_column(rows, self.columns, "input") else said.field_of(rows)
        name, own = _sessions(rows, self.columns)
        if field is None:
            session, turn = own or alone(len(rows))
            ids = None if by_hashes else found(rows, TOKENS) or said.ids_of(rows)
            given = counts.inputs
            if ids is not None and (given < 0).all():
                given = np.diff(rows.lists(ids, "a list of integers")[0])
                counts = counts._replace(input_says=f"elements of {ids}")
            inputs = usage.demand(rows, given, "input", usage.INPUTS, 1)
            of = name or "every request is one of its own"
            if ids is None:
                blocks = hashes.read(rows, self.columns, self.block_tokens, inputs, counts.input_says)
                doubts += [blocks.doubt] if blocks.doubt else []
                if blocks.prompts is not None:
                    self.refuse_growth(blocks.says)
                    if own is None:
                        parents = inferred.parents(blocks.prompts, blocks.block, inputs, np.maximum(counts.outputs, 0))
                        (session, turn), of = inferred.chains(parents), "read off the hashes"
                    prompts, _ = joined(blocks.prompts)
                    of_them = (prompts, counts.input_says, blocks.says, session, turn, of)
                    return _Asked(*of_them, inferred.public(prompts), block_tokens=blocks.block)
                if self.growth == "accumulate":
                    if own is None:
                        raise InvalidInput(
                            f"{rows.path}: workload.growth=accumulate is not valid; there are no sessions: say which "
                            "field names them, with workload.columns={session: …}"
                        )
                    prompts, answer, says = self.accumulated(inputs, counts.outputs, session, turn)
                    return _Asked(prompts, counts.input_says, says, session, turn, of, answer=answer)
                cure = LOG if own is None else CURE
                of_them = (private(inputs), counts.input_says, "prompts share nothing", session, turn, of)
                return _Asked(*of_them, cure=cure)
            self.refuse_growth(ids)
            prompts, short = begun(rows, ids, inputs)
            if short:
                doubts.append(f"{ids} is shorter than the prompt in {short:,} rows: it is taken for its beginning")
            return _Asked(prompts, counts.input_says, ids, session, turn, of, inferred.public(prompts))
        self.refuse_growth(field)
        every = said.all_said(rows, field)
        c = self._characters_per_token(counts.inputs, said.lengths(every))
        given = counts.inputs if self.characters_per_token is None else np.full(len(rows), -1)
        if (given == 0).any():
            raise rows.wrong(int(np.argmax(given == 0)), f"{counts.input_says}=0 is not valid; it must be at least 1")
        prompts = said.segments(every, given, c)
        session, turn = own or inferred.chains(inferred.continuing(prompts))
        has = int((given >= 0).sum())
        says = f"{counts.input_says}, of {field}" if has == len(rows) else f"{field}, {c:.3g} characters a token"
        if 0 < has < len(rows):
            says = f"{counts.input_says} in {has:,} of {len(rows):,} rows, else {field} with {c:.3g} characters a token"
        elif not has and self.characters_per_token is None:
            doubts.append(f"nothing says how many tokens {field} has: {c:g} characters are taken for one")
        if off := _off(prompts, given):
            doubts.append(
                f"the counts of {off:,} rows cannot be, since shorter prompts, with which they begin, have more"
            )
        prompts, _ = joined(prompts)
        of = name or f"read off {field}"
        return _Asked(prompts, says, field, session, turn, of, inferred.public(prompts), c)

    def accumulated(self, inputs: Longs, outputs: Longs, session: Ints, turn: Ints) -> Accumulated:
        """Prompts of these lengths that grow, behind answers of (n,) `outputs` tokens, none counted as 1."""
        most = MOST if self.max_new_tokens is None else self.max_new_tokens
        return accumulated(inputs, np.clip(outputs, 1, most), session, turn)

    def refuse_growth(self, told: str) -> None:
        """Raises InvalidInput if prompts are to grow, though the file says what they share."""
        if self.growth != "none":
            raise InvalidInput(
                f"{self.path}: workload.growth={self.growth} is not valid; {told} says what prompts share: leave it out"
            )

    def _characters_per_token(self, inputs: Longs, letters: Longs) -> float:
        if self.characters_per_token is not None:
            return self.characters_per_token
        counted = inputs > 0
        return max(1.0, float(letters[counted].sum())) / float(inputs[counted].sum()) if counted.any() else USUAL


def _outputs(rows: Rows, counts: usage.Counts, characters_per_token: float) -> tuple[Longs, str]:
    field = found(rows, (CHOICES,))
    if (counts.outputs >= 0).any() or field is None:
        return usage.demand(rows, counts.outputs, "output", usage.OUTPUTS, 0), counts.output_says
    outputs = np.zeros(len(rows), np.int64)
    for row, choices in enumerate(rows.values(field)):
        try:
            outputs[row] = round(sum(len(_text(one)) for one in choices) / characters_per_token)
        except (TypeError, KeyError, AttributeError):
            raise rows.wrong(row, f"{field} is not valid; it must be a list of objects with message or text") from None
    return outputs, f"{field}, {characters_per_token:.3g} characters a token"


def _text(choice: Mapping[str, Any]) -> str:
    return choice["text"] if "text" in choice else choice["message"].get("content") or ""


def _off(prompts: Prompts, counts: Longs) -> int:
    """Of how many the tokens are not those of their own count, by more than a twentieth."""
    made = np.add.reduceat(prompts.tokens, prompts.offsets[:-1])
    return int(((counts >= 0) & (np.abs(made - counts) * 20 > counts)).sum())


def _sessions(rows: Rows, columns: Columns) -> tuple[str | None, tuple[Ints, Ints] | None]:
    """Those that are told, if they are: by which field, and sessions and turns. A turn that is not after the one before
    it begins another session."""
    name = set_column(rows, columns, "session") or found(rows, SESSIONS)
    if name is None:
        return None, None
    codes = rows.codes(name)
    turn = found(rows, TURNS)
    if turn is not None:
        last: dict[int, tuple[int, int]] = {}
        codes = codes.copy()
        fresh = int(codes.max(initial=-1)) + 1
        for row, (code, number) in enumerate(zip(codes.tolist(), rows.counts(turn).tolist(), strict=True)):
            now, before = last.get(code, (code, -1))
            if number >= 0 and number <= before and code >= 0:
                now, fresh = fresh, fresh + 1
            last[code] = (now, number)
            codes[row] = now if code >= 0 else code
    return name, told(codes)
