"""Sessions written down turn by turn, and the stream of requests that they make.

The prompt of a turn is what is kept of another request's context (its prompt and its answer), and new tokens. What is
kept of whom is the growth of a conversation: *accumulate* keeps all of the turn before, with what was generated of its
answer; *recorded* keeps so many tokens of the request that the recording says; *none* keeps nothing.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Workload

NOBODY = -1


@dataclass
class _Run:
    """Tokens that a request brings: its new ones, or its answer. Prompts that keep a part of them cut it there."""

    tokens: int
    cuts: list[int] = field(default_factory=list)


@dataclass
class _Request:
    session: int
    turn: int
    prompt: list[tuple[int, int]]
    """(run, how many of its tokens)"""
    answer: int
    """a run"""
    tokens: int
    output: int
    most: int
    after: tuple[int, ...]
    delay_s: float
    goes_on: bool


class Sessions:
    """Add sessions with `begin` and their requests with `request` or `accumulate`; `workload` is the stream.

    Raises InvalidInput where a request keeps more than there is, or comes after one that is not there.
    """

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._parents: list[int] = []
        self._turns: list[int] = []
        self._runs: list[_Run] = []
        self._requests: list[_Request] = []

    def begin(self, start_s: float = 0.0, parent: int = NOBODY) -> int:
        """A session that starts so many seconds after the run, or when requests of its parent say so."""
        self._starts.append(start_s if parent == NOBODY else self._starts[parent])
        self._parents.append(parent)
        self._turns.append(0)
        return len(self._starts) - 1

    def request(
        self,
        session: int,
        new: int,
        output: int,
        *,
        after: Sequence[int] = (),
        delay_s: float = 0.0,
        of: int = NOBODY,
        keep: int | None = None,
        max_new: int | None = None,
        goes_on: bool = False,
    ) -> int:
        """The next turn of a session: `keep` tokens of the context of request `of` (None: its prompt and all that it
        generates), and `new` ones; due `delay_s` after all of `after`, or with the session's start."""
        number = len(self._requests)
        for name, one in (*(("after", one) for one in after), ("of", of)):
            if not (0 <= one < number or (name == "of" and one == NOBODY)):
                raise InvalidInput(f"request {number}: {name}={one} is not valid; it must be a request before it")
        prompt = [] if of == NOBODY else self._kept(number, of, keep)
        tokens = sum(one[1] for one in prompt) + new
        if new > 0:
            prompt.append((self._run(new), new))
        most = output if max_new is None else max_new
        answer = self._run(0)  # as long as the most of it that anybody keeps
        turn = self._turns[session]
        self._turns[session] += 1
        self._requests.append(
            _Request(session, turn, prompt, answer, tokens, output, most, tuple(after), delay_s, goes_on)
        )
        return number

    def accumulate(self, turns: Iterable[tuple[float, int, int]], start_s: float = 0.0) -> list[int]:
        """A chat of turns (think, new, output): seconds from the answer before, new tokens of the prompt, and tokens of
        the answer. Each keeps all that went before. Returns its requests."""
        session, made = self.begin(start_s), list[int]()
        for think_s, new, output in turns:
            before = made[-1:]
            of = before[0] if before else NOBODY
            made.append(self.request(session, new, output, after=before, delay_s=think_s if before else 0.0, of=of))
        return made

    # ---------------------------------------------------------------- segments
    def _run(self, tokens: int) -> int:
        self._runs.append(_Run(tokens))
        return len(self._runs) - 1

    def _kept(self, number: int, of: int, keep: int | None) -> list[tuple[int, int]]:
        """The first `keep` tokens of a context."""
        source = self._requests[of]
        generated = min(source.output, source.most)
        rest = source.tokens + generated if keep is None else keep
        if not 0 <= rest <= source.tokens + max(generated, source.output):
            raise InvalidInput(
                f"request {number}: keep={rest} is not valid; the context of request {of} has "
                f"{source.tokens + source.output} tokens"
            )
        kept = []
        for run, tokens in source.prompt:
            if rest == 0:
                break
            kept.append((run, min(rest, tokens)))
            rest -= kept[-1][1]
        if rest > 0:
            answer = self._runs[source.answer]
            answer.tokens = max(answer.tokens, rest)
            kept.append((source.answer, rest))
        elif kept:
            self._cut(*kept[-1])
        return kept

    def _cut(self, run: int, tokens: int) -> None:
        one = self._runs[run]
        if tokens < one.tokens and tokens not in one.cuts:
            insort(one.cuts, tokens)

    def workload(self) -> Workload:
        """All requests, those of earlier sessions first.

        An answer is one segment, of as many tokens as anybody keeps of it. Where another prompt keeps fewer of its
        tokens, these are a segment of their own, and not found in the cache: the engines have one name for an answer.
        """
        requests = self._requests
        order = sorted(range(len(requests)), key=lambda i: self._starts[requests[i].session])
        row = {number: at for at, number in enumerate(order)}
        names = _Names(self._runs, {one.answer for one in requests})
        prompts = [names.of_prompt(requests[i].prompt) for i in order]
        inner = [requests[i] for i in order]
        return Workload(
            arrival_s=np.array([self._starts[one.session] for one in inner], np.float64),
            prompt_tokens=np.array([one.tokens for one in inner], np.int32),
            output_tokens=np.array([one.output for one in inner], np.int32),
            max_new_tokens=np.array([one.most for one in inner], np.int32),
            prefix_group=np.full(len(inner), -1, np.int32),
            segment_offsets=np.cumsum([0, *map(len, prompts)]),
            segment_ids=np.array([name for prompt in prompts for name, _ in prompt], np.int32),
            segment_tokens=np.array([tokens for prompt in prompts for _, tokens in prompt], np.int32),
            session=np.array([one.session for one in inner], np.int32),
            turn=np.array([one.turn for one in inner], np.int32),
            answer_segment=np.array([names.of((one.answer, 0)) for one in inner], np.int32),
            after_offsets=np.cumsum([0, *(len(one.after) for one in inner)]),
            after_ids=np.array([row[number] for one in inner for number in sorted(one.after)], np.int32),
            delay_s=np.array([one.delay_s for one in inner], np.float64),
            parent_session=np.array([self._parents[one.session] for one in inner], np.int32),
            goes_on=np.array([one.goes_on for one in inner], np.int32),
        )


class _Names:
    """Segment ids, in the order in which they come up."""

    def __init__(self, runs: list[_Run], answers: set[int]) -> None:
        self._runs, self._answers = runs, answers
        self._names: dict[tuple[int, int], int] = {}

    def of(self, piece: tuple[int, int]) -> int:
        """Of what begins so many tokens from a run's beginning; of a part of an answer: what ends there."""
        return self._names.setdefault(piece, len(self._names))

    def of_prompt(self, prompt: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """A prompt's segments, (segment id, tokens) each, from its runs, (number, tokens) each."""
        found = []
        for run, tokens in prompt:
            one = self._runs[run]
            if run in self._answers:
                found.append((self.of((run, tokens if tokens < one.tokens else 0)), tokens))
                continue
            ends = [*(cut for cut in one.cuts if cut < tokens), tokens]
            for start, end in zip([0, *ends], ends, strict=False):
                found.append((self.of((run, start)), end - start))
        return found
