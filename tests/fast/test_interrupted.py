"""What an interrupted command says that it has computed and keeps."""

from __future__ import annotations

import pytest

from prebleexp.experiment.results import Result, distinct
from prebleexp.launch import configure
from prebleexp.launch.progress import Kept, Progress


def said(kept: Kept, runs: int, missing: int, done: int) -> str:
    """By a batch of so many runs of which some are missing, that is interrupted when so many are done."""
    progress = Progress(runs)

    def interrupted() -> None:
        with kept.batch(runs, progress, lambda *_: None) as planned:
            planned(runs, missing)
            progress.advance(done)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        interrupted()
    return str(stopped.value.args[0])


def finish(kept: Kept, runs: int, missing: int) -> None:
    with Progress(runs) as progress, kept.batch(runs, progress, lambda *_: None) as planned:
        planned(runs, missing)


def test_a_sweep_says_how_many_of_its_runs_are_done() -> None:
    assert said(Kept(False), 12, 9, 5) == "5 of 12 runs are done, and kept"


def test_a_search_says_what_all_of_it_has_computed() -> None:
    """A plan said "0 of 2 runs are done, and kept", of the two that it was about, where it had computed ten."""
    kept = Kept(True)
    assert said(kept, 4, 4, 0) == "0 runs were computed and are kept; the same command goes on from there"
    finish(kept, 12, 10)
    finish(kept, 3, 0)
    assert said(kept, 2, 2, 0).startswith("10 runs were computed and are kept")
    assert said(kept, 5, 2, 4).startswith("11 runs were computed"), "three of the five were there"
    later = Kept(False)
    finish(later, 3, 3)
    assert said(later, 3, 3, 1).startswith("4 runs were computed"), "of a sweep that adds replications"


def test_a_run_that_is_asked_for_again_was_computed() -> None:
    """A plan of a fresh cache said "21 runs: 16 computed, 5 from the cache"."""
    cell = configure.cells(["gpus=1", "rps=1"])[0]
    made, again, other = Result(cell, "a", {}), Result(cell, "a", {}, cached=True), Result(cell, "b", {}, cached=True)
    for order in ([made, again, other], [again, made, other]):
        assert [one.cached for one in distinct(order).values()] == [False, True]
