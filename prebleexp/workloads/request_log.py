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
from prebleexp.workloads import asked_adapters, hashes, inferred, nested, prefixes, said, session_fields, summed, usage
from prebleexp.workloads.accumulated import CURE, GROWTH, Accumulated, accumulated
from prebleexp.workloads.blocks import Prompts, begun, joined, private
from prebleexp.workloads.came import TIMES, came
from prebleexp.workloads.clock import Clock, in_order
from prebleexp.workloads.columns import found, set_column
from prebleexp.workloads.documents import rows_of, without_headers
from prebleexp.workloads.elsewhere import models
from prebleexp.workloads.failed import served
from prebleexp.workloads.growth import NOBODY, headed
from prebleexp.workloads.lasted import lasted
from prebleexp.workloads.only import Only, taken
from prebleexp.workloads.records import flattened
from prebleexp.workloads.repeated import own_requests
from prebleexp.workloads.rows import MOST, Rows
from prebleexp.workloads.tabular import Tabular
from prebleexp.workloads.trace import Reading, Trace, alone

TOKENS = ("input_tok_ids", "prompt_token_ids", "input_token_ids", "input_ids", "token_ids")
CHOICES = "choices"
RAW = "start_perf_ns"
"""which only records of aiperf have that are what went over the wire"""
MOONCAKES = ("timestamp", "input_length", "output_length", "hash_ids")
"""fields of a row"""
LENGTHS = ("input_lens", "output_lens")
"""of all requests of a benchmark, in its result"""
LOG = "a log with session ids, messages or hash_ids says what they share"
"""what cures one that says nothing"""
CONVERSATIONS = ("conversations", "conversation")
"""of ShareGPT's and LMSYS's files"""
RESULT = ("completed", "duration", "request_throughput", "total_input_tokens")
"""fields of one"""
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
    come before both. So does a field that `columns` names for the `prefix`: prompts with the same one share their
    first `prefix_tokens` tokens, and else what `growth` says. Sessions are those of session_id or conversation_id,
    or of such a header (x-session-id); without them, a request is the next turn of the latest one whose messages it
    begins with. Messages of more than 60 requests are everybody's. An answer of 0 tokens counts as 1.
    """

    characters_per_token: float | None = None
    """of messages; null: as the log says, else 4"""
    benchmark: int | None = None
    """which, from 1 on, of a file of several benchmarks, as guidellm's; null: the last"""
    block_tokens: int | None = None
    """that a hash stands for; null: as the numbers of hashes tell, if one power of two alone fits"""
    prefix_tokens: int | None = None
    """of the system prompt, or another prefix, that requests share which have the same in the field that `columns` has
    for `prefix`; null: as the field for `prefix_tokens` says"""
    growth: str = "none"
    """of prompts of which only lengths are known: none: they share nothing; accumulate: a turn begins with the prompt
    and the answer before it, if it is as long as both, else with that prompt, if it is as long as that"""
    only: Any = None
    """fields, and the values that rows must have to count, as {model: llama-3.1-70b} of a gateway's; null: all do"""

    name: ClassVar[str] = "request_log"
    where: ClassVar[str] = "a log with a row a request, of JSON lines, CSV or Parquet"
    has_prefixes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "only", Only.of(self.only))
        valid = self.characters_per_token is None or (
            is_number(self.characters_per_token) and self.characters_per_token > 0
        )
        require(valid, "workload.characters_per_token", self.characters_per_token, "null or a number > 0")
        one_of("workload.growth", self.growth, GROWTH)
        valid = self.block_tokens is None or is_integer(self.block_tokens, 1, MOST)
        require(valid, "workload.block_tokens", self.block_tokens, f"null or an integer from 1 to {MOST}")
        valid = self.prefix_tokens is None or is_integer(self.prefix_tokens, 1, MOST)
        require(valid, "workload.prefix_tokens", self.prefix_tokens, f"null or an integer from 1 to {MOST}")
        if self._has_prefixes and hashes.are_asked_for(self.columns, self.block_tokens):
            raise InvalidInput(
                f"{prefixes.ASKED} are not valid with hashes or workload.block_tokens, which say what prompts share, "
                "too: leave one of the two out"
            )
        valid = self.benchmark is None or is_integer(self.benchmark, 1)
        require(valid, "workload.benchmark", self.benchmark, "null or an integer > 0")

    def read(self) -> Trace:
        file, headers = without_headers(rows_of(self.path))
        every = flattened(file, self.benchmark)
        if nested.is_nested(every):
            if self._has_prefixes:
                raise InvalidInput(f"{self.path}: {prefixes.ASKED} are not valid of rows that are sessions")
            if self.only:
                raise InvalidInput(f"{self.path}: workload.only is not valid of rows that are sessions")
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
        if {*RESULT} <= {*every.names}:
            raise InvalidInput(
                f"{self.path}: it is a benchmark's result without its requests; write it with --save-detailed (vLLM) "
                "or --output-details (SGLang), and take workload=bench_log"
            )
        if {*every.names} & {*CONVERSATIONS} and found(every, TIMES) is None and "arrival" not in self.columns:
            raise InvalidInput(
                f"{self.path}: it is a data set of conversations, without times; take workload=vllm_bench "
                "workload.dataset_name=sharegpt workload.dataset_path=FILE, which asks them at a rate"
            )
        every, others = taken(every, self.only)
        kept = served(every, self.columns)
        if not len(kept.rows):
            raise InvalidInput(f"{self.path}: there are no requests that were served: {'; '.join(kept.left_out)}")
        rows, left_out = every.taken(kept.rows), [*others, *kept.left_out]
        left_out += (
            [f"{headers:,} line{' that says' if headers == 1 else 's that say'} the header again"] if headers else []
        )
        counts = usage.counts(rows, self.columns)
        own = own_requests(rows, (counts.inputs >= 0) | (counts.outputs >= 0), counts.inputs, counts.outputs)
        every = rows
        if own.left_out:
            left_out += own.left_out
            rows = rows.taken(own.rows)
            counts = usage.counts(rows, self.columns)
        when = came(rows, every, own, self.columns, self.time_unit, counts.outputs)
        order, times = in_order(when.seconds)
        rows = rows.taken(order)
        counts = counts._replace(inputs=counts.inputs[order], outputs=counts.outputs[order])
        doubts = [*when.doubts, *counts.doubts, *own.doubts, *_of_other_forms(rows, when)]
        asked = self._asked(rows, counts, doubts)
        doubts += summed.doubts(rows, counts.inputs, counts.outputs, asked.session)
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
            models=models(rows),
            adapters=adapters,
            left_out=tuple(left_out),
            doubts=tuple(doubts),
            block_tokens=asked.block_tokens,
            times=lasted(rows, self.columns, counts.outputs, times, asked.session, asked.turn),
            cure=asked.cure,
        )
        of = (times, np.maximum(outputs, 1), asked.prompts, asked.session, asked.turn, asked.public)
        return Trace(*of, answer=asked.answer, adapter=adapter, reading=reading)

    @property
    def _has_prefixes(self) -> bool:
        return prefixes.are_asked_for(self.columns, self.prefix_tokens)

    def _asked(self, rows: Rows, counts: usage.Counts, doubts: list[str]) -> _Asked:
        by_hashes = hashes.are_asked_for(self.columns, self.block_tokens)
        by_lengths = by_hashes or self._has_prefixes or set_column(rows, self.columns, "input")
        field = None if by_lengths else said.field_of(rows, bool((counts.inputs >= 0).any()))
        name, own = session_fields.read(rows, self.columns)
        told = None if field is None else self._said(rows, field, counts, doubts)
        if field is None or told is None:
            session, turn = own or alone(len(rows))
            ids = None if by_hashes or self._has_prefixes else found(rows, TOKENS) or said.ids_of(rows)
            given = counts.inputs
            if ids is not None and (given < 0).all():
                given = np.diff(rows.lists(ids, "a list of integers")[0])
                counts = counts._replace(input_says=f"elements of {ids}")
            inputs = usage.demand(rows, given, "input", usage.INPUTS, 1)
            of = name or "every request is one of its own"
            prefix = prefixes.read(rows, self.columns, self.prefix_tokens, inputs)
            if ids is None and prefix is None:
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
            if ids is None:
                if self.growth == "accumulate":
                    if own is None:
                        raise InvalidInput(
                            f"{rows.path}: workload.growth=accumulate is not valid; there are no sessions: say which "
                            "field names them, with workload.columns={session: …}"
                        )
                    chain = session if prefix is None else prefix.chains(session)
                    grown = self.accumulated(inputs, counts.outputs, chain, turn)
                    cure = prefixes.CURE if prefix is None else ""
                elif prefix is not None:
                    grown = Accumulated(private(inputs), np.full(len(rows), NOBODY, np.int32), "")
                    cure = LOG if own is None else CURE
                else:
                    cure = LOG if own is None else CURE
                    of_them = (private(inputs), counts.input_says, "prompts share nothing", session, turn, of)
                    return _Asked(*of_them, cure=f"{cure}, and {prefixes.CURE}")
                public = None
                prompts, answer, says = grown
                if prefix is not None:
                    doubts += [prefix.doubt] if prefix.doubt else []
                    prompts, answer, public = headed(prompts, answer, prefix.group, prefix.tokens)
                    says = f"{prefix.says}; beside them, {says}" if says else prefix.says
                return _Asked(prompts, counts.input_says, says, session, turn, of, public, answer=answer, cure=cure)
            self.refuse_growth(ids)
            prompts, short = begun(rows, ids, inputs)
            if short:
                doubts.append(f"{ids} is shorter than the prompt in {short:,} rows: it is taken for its beginning")
            return _Asked(prompts, counts.input_says, ids, session, turn, of, inferred.public(prompts))
        self.refuse_growth(field)
        prompts, given, c = told
        session, turn = own or inferred.chains(inferred.continuing(prompts))
        has = int((given >= 0).sum())
        says = f"{counts.input_says}, of {field}" if has == len(rows) else f"{field}, {c:.3g} characters a token"
        if 0 < has < len(rows):
            says = f"{counts.input_says} in {has:,} of {len(rows):,} rows, else {field} with {c:.3g} characters a token"
        elif not has and self.characters_per_token is None:
            doubts.append(f"nothing says how many tokens {field} has: {c:g} characters are taken for one")
        prompts, _ = joined(prompts)
        of = name or f"read off {field}"
        return _Asked(prompts, says, field, session, turn, of, inferred.public(prompts), c)

    def _said(
        self, rows: Rows, field: str, counts: usage.Counts, doubts: list[str]
    ) -> tuple[Prompts, Longs, float] | None:
        """Prompts of what was said, their own counts, and characters a token; None where most counts are of something
        else, as of texts that were blotted out."""
        counted = counts.inputs >= 0
        every = said.all_said(rows, field, counted)
        c = self._characters_per_token(counts.inputs, said.lengths(every))
        given = counts.inputs if self.characters_per_token is None else np.full(len(rows), -1)
        if (given == 0).any():
            raise rows.wrong(int(np.argmax(given == 0)), f"{counts.input_says}=0 is not valid; it must be at least 1")
        if without := sum(role == said.UNKEPT for ((role, _), *_) in every):
            doubts.append(f"{field} has nothing in {without:,} of {len(rows):,} rows, and these share nothing")
        prompts = said.segments(every, given, c)
        off = _off(prompts, given)
        if 2 * off > len(rows):
            doubts.append(
                f"{field} is not what was counted in {off:,} of {len(rows):,} rows, as if its texts were blotted out, "
                "and is not used"
            )
            return None
        if off:
            doubts.append(
                f"the counts of {off:,} rows cannot be, since shorter prompts, with which they begin, have more"
            )
        return prompts, given, c

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


def _of_other_forms(rows: Rows, when: Clock) -> list[str]:
    """A doubt about times of a trace in Mooncake's form, which has them in milliseconds."""
    if not {*MOONCAKES} <= {*rows.names} or "chat_id" in rows.names or "assumed" not in when.says:
        return []
    return ["it looks like a trace of Mooncake, whose times are in milliseconds: workload=mooncake reads it so"]


def _text(choice: Mapping[str, Any]) -> str:
    return choice["text"] if "text" in choice else choice["message"].get("content") or ""


def _off(prompts: Prompts, counts: Longs) -> int:
    """Of how many the tokens are not those of their own count, by more than a twentieth."""
    made = np.add.reduceat(prompts.tokens, prompts.offsets[:-1])
    return int(((counts >= 0) & (np.abs(made - counts) * 20 > counts)).sum())
