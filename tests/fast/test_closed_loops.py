"""Benchmarks of closed loops as the simulator serves them, beside the formula that the parameters were fitted with."""

from __future__ import annotations

import numpy as np
import pytest

from prebleexp.commands.hardware_check import SERVED, sizes
from prebleexp.experiment import closed_loops
from prebleexp.experiment.closed_loops import simulated
from prebleexp.hardware import checked
from prebleexp.hardware.checked import TPOT, TTFT, Predicted
from prebleexp.hardware.equations import PER_CLIENT, step_s
from prebleexp.launch import configure
from prebleexp.sim.compiled import INTERPRETED

POINT = 0.01


def seen_of(every: int) -> Predicted:
    """Of InferenceX's benchmarks of vLLM each so many, by the parameters that ship."""
    shipped = checked.shipped_loops(sizes())
    chosen = np.flatnonzero((shipped.labels["engine"] == "vllm") & (shipped.labels["origin"] == "inferencex"))[::every]
    return checked.by_shipped(shipped.take(chosen))


def quantiles(errors: np.ndarray) -> np.ndarray:
    """Median and 90th percentile of what is known."""
    return np.quantile(errors[np.isfinite(errors)], (0.5, 0.9))


def test_clients_begin_at_once_and_wait_for_their_answers() -> None:
    drawn = closed_loops.draw(7, 900.0, 90.0, 0.8, 3)
    assert len(drawn) == 7 * PER_CLIENT
    assert drawn.prompt_tokens.min() >= 800
    assert drawn.prompt_tokens.max() <= 1000
    assert drawn.output_tokens.mean() == pytest.approx(90, rel=0.03)
    assert np.bincount(drawn.session).tolist() == [PER_CLIENT] * 7
    waiting = np.diff(drawn.after_offsets)
    assert (waiting == (drawn.turn > 0)).all()
    assert (drawn.after_ids == np.flatnonzero(waiting) - 1).all()
    assert len(set(drawn.segment_ids.tolist())) == len(drawn)  # nobody shares a prefix
    same = closed_loops.draw(2, 500.0, 40.0, 1.0, 0)
    assert set(same.prompt_tokens.tolist()) == {500}


def test_hardware_of_a_benchmark_is_what_its_formula_has() -> None:
    seen = seen_of(31)
    for row in range(len(seen.loops)):
        one = {name: float(values[row]) for name, values in seen.p.items()}
        made = closed_loops.hardware(seen.loops, row, sizes(), one)
        of = seen.loops.of.take([row])
        decode = made.kernels().decode_s(None, made.start(), 20, 40_000, 40_000, 1)
        assert decode == pytest.approx(float(step_s(of, one, 20.0, 20.0, 40_000.0, 0.0)[0]), rel=1e-9)


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="hundreds of thousands of steps take too long as plain Python")
def test_a_sample_is_as_far_off_by_the_simulator_as_by_the_formula() -> None:
    seen = seen_of(12)
    assert len(seen.loops) == 39
    times = simulated(configure.cells(SERVED)[0], seen.loops, seen.p, sizes())
    by_simulator, by_formula = (quantiles(checked.off(seen.loops, one, TPOT)) for one in (times, seen.times))
    assert np.abs(by_simulator - by_formula).max() <= POINT
    tpot, ttft = (one / other - 1 for one, other in zip(times, seen.times, strict=True))
    known = np.isfinite(seen.loops.ttft_s)
    assert np.abs(tpot).max() < 0.02
    assert abs(np.median(ttft[known])) < 0.02
    assert np.abs(ttft[known]).max() < 0.1


@pytest.mark.nightly
@pytest.mark.slow
def test_all_of_them_are_as_far_off_by_the_simulator_as_by_the_formula() -> None:
    """Each by a fit that left it out."""
    shipped = checked.shipped_loops(sizes())
    seen = checked.simulable(checked.predict(shipped, shipped), sizes())
    assert len(seen.loops) == 466
    times = simulated(configure.cells(SERVED)[0], seen.loops, seen.p, sizes())
    for metric in (TPOT, TTFT):
        by_simulator, by_formula = (quantiles(checked.off(seen.loops, one, metric)) for one in (times, seen.times))
        print(metric, by_simulator, by_formula)
        assert np.abs(by_simulator - by_formula).max() <= POINT
