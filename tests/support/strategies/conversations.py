"""Streams in which a request may be the next turn of one before, and random ones of them."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from prebleexp.sim.types import Workload
from tests.support.sessions import impatient, linked


class Segments:
    """Segments as they come to be."""

    def __init__(self) -> None:
        self.ids: dict[tuple[int, ...], int] = {}
        self.tokens: list[int] = []

    def new(self, tokens: int) -> int:
        self.tokens.append(tokens)
        return len(self.tokens) - 1

    def of(self, path: tuple[int, ...]) -> list[int]:
        """Every distinct path is a segment, of a length that depends on it."""
        for i in range(len(path)):
            if path[: i + 1] not in self.ids:
                self.ids[path[: i + 1]] = self.new(1 + 7 * len(self.tokens) % 40)
        return [self.ids[path[: i + 1]] for i in range(len(path))]


def workload_of(
    prompts: list[list[int]],
    segment_tokens: list[int],
    arrivals: list[float],
    outputs: list[int],
    most: list[int],
    answers: list[int],
    turns: list[int] | None = None,
) -> Workload:
    ids = np.concatenate(prompts)
    tokens = np.array(segment_tokens)[ids]
    return Workload(
        arrival_s=np.sort(np.array(arrivals)),
        prompt_tokens=np.array([sum(segment_tokens[one] for one in row) for row in prompts]),
        output_tokens=np.array(outputs),
        max_new_tokens=np.array(most),
        prefix_group=np.full(len(prompts), -1),
        segment_offsets=np.concatenate([[0], np.cumsum([len(row) for row in prompts])]),
        segment_ids=ids,
        segment_tokens=tokens,
        turn=None if turns is None else np.array(turns),
        answer_segment=np.array(answers),
    )


PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)
DEEP = st.lists(st.integers(0, 1), min_size=2, max_size=6).map(tuple)
ANSWERS = st.sampled_from(["anonymous", "named", "named", "longer", "turn"])
NOW_AND_THEN = st.one_of(st.floats(0, 3), st.integers(0, 6).map(lambda quarter: quarter / 4), st.floats(0, 90))
KINDS = st.sampled_from(  # path of a first prompt, output, at most, answer; arrival
    [
        (st.tuples(PATHS, st.integers(1, 70), st.sampled_from([1, 5, 30, 60]), ANSWERS), NOW_AND_THEN),
        (st.tuples(PATHS, st.integers(50, 70), st.sampled_from([59, 60]), ANSWERS), st.floats(0, 0.1)),
        (st.tuples(DEEP, st.integers(1, 12), st.sampled_from([5, 12, 30]), ANSWERS), st.floats(0, 0.5)),
        (st.tuples(DEEP, st.integers(1, 12), st.just(12), ANSWERS), st.integers(0, 12).map(lambda i: 7.5 * i)),
        (st.tuples(PATHS, st.integers(100, 400), st.sampled_from([100, 400]), ANSWERS), st.floats(0, 2)),
    ]
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    n, (requests, times) = draw(st.integers(1, 40)), draw(KINDS)
    drawn = draw(st.lists(requests, min_size=n, max_size=n))
    return conversations(drawn, draw(st.lists(times, min_size=n, max_size=n)))


def conversations(drawn: list[tuple[tuple[int, ...], int, int, str]], arrivals: list[float]) -> Workload:
    """Some requests are the next turn of one before: its prompt, its answer and a new segment."""
    segments = Segments()
    prompts: list[list[int]] = []
    answers, turns = [], []
    for i, (path, output, most, kind) in enumerate(drawn):
        before = [j for j in range(i) if answers[j] >= 0]
        if kind == "turn" and before:
            j = before[(output + most) % len(before)]
            prompts.append([*prompts[j], answers[j], segments.new(1 + output % 20)])
            turns.append(turns[j] + 1)
        else:
            prompts.append(segments.of(path))
            turns.append(0)
        same = [answers[j] for j in before if prompts[j] == prompts[i]]  # another answer with this name
        longer = (7 if output % 2 else -3) if kind == "longer" else 0
        name = same[0] if same and output % 2 else segments.new(max(1, min(output, most) + longer))
        answers.append(-1 if kind == "anonymous" else name)
    outputs, most = [one[1] for one in drawn], [one[2] for one in drawn]
    return workload_of(prompts, segments.tokens, arrivals, outputs, most, answers, turns)


STREAMS = st.one_of(workloads(), impatient(linked(workloads())), impatient(workloads()))
