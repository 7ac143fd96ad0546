"""Every recording of the released simulator comes out again, bit for bit."""

from __future__ import annotations

import pytest

from tests.support.recordings.released import CASES, COMMITTED, assert_equal, rerun


@pytest.mark.parametrize("case", CASES)
def test_a_run_equals_its_recording(case: str) -> None:
    assert_equal(*rerun(case))


@pytest.mark.parametrize("case", [case for case in CASES if "kv" in case or "_r8_" in case])
def test_so_does_a_run_that_takes_every_step(case: str) -> None:
    assert_equal(*rerun(case, stepwise=True))


def test_there_are_recordings_that_evict_retract_and_drain() -> None:
    cases = {path.stem for path in COMMITTED.glob("outcome_*.npz")}
    recorded = [rerun(case.removeprefix("outcome_"), folder=COMMITTED)[0] for case in cases]
    assert any(one["evicted_tokens"] > 0 for one in recorded)
    assert any(one["retracted"] > 0 for one in recorded)
    assert any(case.endswith("_sglang") for case in cases)
