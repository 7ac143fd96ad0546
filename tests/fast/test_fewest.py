"""The fewest replicas, where more do not always keep more: each answer is that of trying every number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.planning import gpus, load, recorded
from prebleexp.planning.answer import Verdict
from prebleexp.planning.trials import Question, Sample, Trial
from prebleexp.recommending import halving
from tests.support.sampled import examples

TARGET, STREAMS = 0.9, 4
ONE = Question(target=TARGET, strictest=TARGET, seeds=1, most_seeds=1, requests=1, most_requests=1)
SEVERAL = Question(target=TARGET, strictest=TARGET, seeds=STREAMS, most_seeds=STREAMS, requests=10_000)
MOST = 24
SHARES = st.lists(st.sampled_from([0.1, 0.7, 0.88, 0.89, 0.9, 0.91, 0.97, 1.0]), min_size=1, max_size=MOST)
"""by the number of replicas, from one on, in any order"""

Kept = Callable[[float, int], float]
"""of a number of replicas and a seed, the share"""


def solved(search, kept: Kept, half: float | None = None):  # type: ignore[no-untyped-def]
    """What a search returns, and all that it asked for."""
    asked: list[Trial] = []
    trials = next(search)
    while True:
        asked += trials
        shares = [kept(one.size, one.seed) for one in trials]
        ends = [None if half is None else (one - half, one + half) for one in shares]
        try:
            trials = search.send([Sample(one, 1000, None, end) for one, end in zip(shares, ends, strict=True)])
        except StopIteration as over:
            assert len(asked) == len({*asked}), "a run is asked for once"
            return over.value, asked


def by_number(shares: Sequence[float]) -> Kept:
    return lambda size, seed: shares[int(size) - 1]


def exhaustive(shares: Sequence[float], target: float = TARGET) -> int | None:
    return next((i for i, one in enumerate(shares, 1) if one >= target), None)


@settings(max_examples=examples(300), deadline=None)
@given(SHARES, st.integers(1, 2 * MOST), st.integers(1, 4))
def test_for_a_recording_it_is_what_trying_every_number_finds(shares: list[float], guess: int, each: int) -> None:
    found, asked = solved(recorded.fewest(ONE, guess, len(shares), each), by_number(shares), 0.015)
    best = exhaustive(shares)
    assert (found.size or None) == (best and best * each)
    if best is None:
        assert (found.verdict, found.every) == (Verdict.NEVER, len(shares) * each)
        return
    assert {*range(1, best + 1)} <= {trial.size for trial in asked}
    assert found.low == each * (exhaustive([one + 0.015 for one in shares]) or 0)
    assert found.high == (sure * each if (sure := exhaustive([one - 0.015 for one in shares])) else None)


@settings(max_examples=examples(300), deadline=None)
@given(SHARES, st.integers(1, 2 * MOST), st.lists(st.floats(-0.3, 0.3), min_size=STREAMS, max_size=STREAMS))
def test_over_streams_it_is_what_trying_every_number_finds(
    shares: list[float], guess: int, shifts: list[float]
) -> None:
    """Of the mean over seeds; each seed keeps more or less than another, all of them between nothing and everything."""

    def kept(size: float, seed: int) -> float:
        return min(1.0, max(0.0, shares[int(size) - 1] + shifts[seed]))

    means = [sum(kept(size, seed) for seed in range(STREAMS)) / STREAMS for size in range(1, len(shares) + 1)]
    found, _ = solved(gpus.fewest(SEVERAL, guess, len(shares)), kept)
    best = exhaustive(means, TARGET - 1e-12)
    if all(abs(mean - TARGET) > 1e-9 for mean in means):
        assert found.likely == best
        assert (found.verdict is Verdict.NEVER) == (best is None)


def test_one_replica_is_found_where_more_keep_less() -> None:
    """As of a log of conversations with a router that spreads them: one replica keeps .9675, each further one less."""
    found, asked = solved(recorded.fewest(ONE, 6, 2048, 2), lambda size, seed: 0.9675 - 0.008 * min(size - 1, 9), 0.01)
    low = Question(target=0.95, strictest=0.95, seeds=1, most_seeds=1, requests=1, most_requests=1)
    assert found.size == 2
    found, asked = solved(recorded.fewest(low, 6, 2048, 2), lambda size, seed: 0.9675 - 0.02 * min(size - 1, 3), 0.01)
    assert (found.verdict, found.size, found.alone.kept) == (Verdict.FOUND, 2, 0.9675)
    assert (found.low, found.high) == (2, 2)
    assert found.rise == pytest.approx(0.06), "it is said that more keep less"
    assert len(asked) <= gpus.EVERY + gpus.FAR + 2


def test_that_none_is_enough_is_said_of_numbers_that_were_tried() -> None:
    """Each up to a stated one, and beyond it in steps: a number that would do is found wherever it is below that."""
    for peak in range(1, gpus.EVERY + 1):
        found, _ = solved(recorded.fewest(ONE, 3, 4096, 1), lambda size, seed, at=peak: 0.95 if size == at else 0.5)
        assert found.size == peak
    for question, fewest in ((ONE, recorded.fewest), (SEVERAL, gpus.fewest)):
        found, asked = solved(fewest(question, 3, 4096, 2), lambda size, seed: 0.5)
        assert (found.verdict, found.size, found.every) == (Verdict.NEVER, None, 2 * gpus.EVERY)
        assert {*range(1, gpus.EVERY + 1), 4096} <= {trial.size for trial in asked}


def test_most_hopeless_numbers_take_one_run() -> None:
    """With 8 streams and a target of .9, a stream that keeps less than .2 leaves the other seven no chance."""
    question = Question(target=0.9, strictest=0.9, seeds=8, most_seeds=8, requests=10_000)
    found, asked = solved(gpus.fewest(question, 20), lambda size, seed: 0.1 if size < 20 else 0.95)
    assert found.size == 20
    below = [trial for trial in asked if trial.size < 14]
    assert len(below) == 13, "one of each, by which nothing is left to chance"
    found, asked = solved(gpus.fewest(question, 20), lambda size, seed: 0.85 if size < 20 else 0.95)
    assert len(asked) == 20 * 8 + 8 * (len({trial.size for trial in asked}) - 20)


@settings(max_examples=examples(300), deadline=None)
@given(SHARES, st.integers(0, MOST), st.integers(1, MOST), st.integers(1, 3))
def test_a_round_finds_what_has_one_peak(shares: list[float], peak: int, guess: int, least: int) -> None:
    """A recommendation's earlier rounds try one number fewer where the most fail, and go on for as long as it helps."""
    ordered = sorted({*shares})
    peak = min(peak, len(ordered))
    one_peak = [*ordered[:peak], *reversed(ordered[peak:])]
    least = min(least, len(one_peak))
    found, asked = solved(halving.fewest(ONE, guess, len(one_peak), least), by_number(one_peak))
    best = next((size for size in range(least, len(one_peak) + 1) if one_peak[size - 1] >= TARGET), None)
    assert (found.size is None) == (best is None)
    assert all(trial.size >= least for trial in asked)


@pytest.mark.parametrize("users", [False, True])
def test_a_load_that_idle_gpus_do_not_keep_may_be_kept_by_busier_ones(users: bool) -> None:
    """As where a prefix cache is warmer at a higher load: nothing is said of loads that were not tried."""
    question = Question(target=0.9, strictest=0.9, seeds=4, most_seeds=4, whole=users)
    found, _ = solved(load.largest(question, 32.0, 32.0), lambda size, seed: 0.95 if 50 < size < 90 else 0.5)
    assert found.verdict is Verdict.FOUND
    assert found.size == pytest.approx(90, rel=0.1)
