"""A run's numbers are those that the released simulator gives by the same names, and nothing is left out of account."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.averages import statistics
from prebleexp.metrics import DECLARED, HIGHER, LOWER, METRICS, NEITHER, measure
from prebleexp.sim.history import NOTHING
from prebleexp.sim.types import OF_REQUESTS, Outcome, State
from tests.support.counted import calls
from tests.support.recordings.released import CASES, COMMITTED, load, rerun

# Its latencies and num_finished_requests have a test of their own: they leave out what ended after the horizon.
RELEASED = {
    "norm_latency_mean_s": "avg_norm_latency",
    "norm_latency_p50_s": "p50_norm_latency",
    "norm_latency_p90_s": "p90_norm_latency",
    "norm_latency_p99_s": "p99_norm_latency",
    "ttft_mean_s": "average_ttft",
    "ttft_p50_s": "p50_ttft",
    "ttft_p99_s": "p99_ttft",
    "ttft_p90_s": "p90_ttft",
    "tpot_mean_s": "average_topt",
    "tpot_p50_s": "p50_tpot",
    "tpot_p90_s": "p90_tpot",
    "tpot_p99_s": "p99_tpot",
    "n_requests": "n_requests",
    "n_finished": "n_success",
}
SEEN = [case for case in CASES if not case.endswith("_sglang")]


@pytest.mark.parametrize("case", SEEN)
def test_metrics_are_the_released_ones(case: str) -> None:
    recorded, made = rerun(case)
    released = json.loads(str(recorded["metrics"]))
    row = measure(load(case)[2], made)
    for ours, theirs in RELEASED.items():
        expected = None if np.isnan(released[theirs]) else pytest.approx(released[theirs], rel=1e-12)
        assert row[ours] == expected, ours


@pytest.mark.parametrize("case", SEEN)
def test_latencies_are_over_all_that_reported_the_released_over_what_finished_in_time(case: str) -> None:
    recorded, made = rerun(case)
    _, config, workload = load(case)
    released = json.loads(str(recorded["metrics"]))
    row = measure(workload, made)
    reported = made.latency_s[made.output_seen > 0]
    in_time = made.latency_s[made.finish_s <= config["duration"]]
    assert row["latency_mean_s"] == (pytest.approx(reported.mean(), rel=1e-12) if len(reported) else None)
    assert len(reported) == released["n_norm_latency"]
    assert len(in_time) == released["num_finished_requests"]
    assert len(in_time) <= int(row["n_finished"] or 0) <= len(reported)
    if len(in_time):
        assert released["average_request_latency"] == pytest.approx(in_time.mean(), rel=1e-12)
        for q in (50, 90, 99):
            assert released[f"p{q}_latency"] == pytest.approx(np.percentile(in_time, q), rel=1e-12)
            assert row[f"latency_p{q}_s"] == pytest.approx(np.percentile(reported, q), rel=1e-12)


@pytest.mark.slow
def test_every_request_and_token_is_counted_once() -> None:
    for case in SEEN:
        made, workload = rerun(case)[1], load(case)[2]
        row = measure(workload, made)
        assert row["n_unrouted"] == int((made.gpu < 0).sum())
        assert row["n_finished"] == int((~np.isnan(made.finish_s)).sum())
        assert int(made.gpu_requests.sum()) == len(workload) - int(row["n_unrouted"] or 0)
        assert float(row["output_tokens_per_s"] or 0) * made.end_s == pytest.approx(int(made.output_seen.sum()))
        assert float(row["requests_per_s"] or 0) * made.end_s == pytest.approx(row["n_finished"])
        assert 1 <= float(row["requests_max_over_mean"] or 0) <= len(made.gpu_requests)


def test_the_row_of_a_run() -> None:
    case = "round_robin_g4_r32_d30_o1x150_kv12000_s2333"
    made = rerun(case, folder=COMMITTED)[1]
    workload = load(case, COMMITTED)[2]
    row = measure(workload, made)
    assert tuple(row) == METRICS
    assert sum(int(row[f"n_{state.name.lower()}"] or 0) for state in State) == row["n_requests"] == len(workload)
    assert row["output_tokens_mean"] == 150
    assert row["output_tokens_variance"] == 0
    assert 0 < float(row["hit_ratio"] or 0) < 1
    computed = made.prefilled_tokens[made.prefilled_tokens + made.hit_tokens > 0]
    assert row["computed_tokens_mean"] == pytest.approx(computed.mean())
    assert row["computed_tokens_p99"] == pytest.approx(np.percentile(computed, 99))
    output = made.output_seen
    tpot = (made.latency_s - made.ttft_s)[output > 1] / (output[output > 1] - 1)
    for statistic, q in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99)):
        assert row[f"tpot_{statistic}_s"] == pytest.approx(np.percentile(tpot, q), rel=1e-12)
    json.dumps(row, allow_nan=False)


@given(st.lists(st.floats(0, 1e6) | st.just(np.nan), min_size=1, max_size=50))
def test_percentiles_are_those_of_numpy_bit_for_bit(values: list[float]) -> None:
    column = np.array(values)
    mean, *percentiles = statistics(column)
    seen = column[~np.isnan(column)]
    if not len(seen):
        assert (mean, *percentiles) == (None,) * 5
        return
    assert mean == pytest.approx(seen.mean(), rel=1e-12)
    assert percentiles == np.percentile(seen, [50, 90, 95, 99]).tolist()


def test_where_nothing_was_reported_there_is_no_number() -> None:
    made = rerun("lor_g4_r8_d30_o1x150_s2333", folder=COMMITTED)[1]
    workload = load("lor_g4_r8_d30_o1x150_s2333", COMMITTED)[2]
    for name in ("ttft_s", "latency_s", "finish_s"):
        getattr(made, name)[:] = np.nan
    made.output_seen[:] = 0
    row = measure(workload, made)
    assert {row[name] for name in METRICS if name.endswith("_s") and name[:3] in ("ttf", "tpo", "lat", "nor")} == {None}
    json.dumps(row, allow_nan=False)


def test_requests_are_measured_together() -> None:
    case = SEEN[-1]
    made, workload = rerun(case)[1], load(case)[2]
    measured = calls(lambda: measure(workload, made))
    print(f"{measured:,} calls for {len(workload)} requests")
    assert measured < 1_600


def test_every_metric_is_declared_whole() -> None:
    for one in DECLARED.values():
        assert one.meaning.endswith("."), one.name
        assert one.unit, one.name
        assert one.words, one.name
        assert one.better in (LOWER, HIGHER, NEITHER), one.name
    assert {name for name, one in DECLARED.items() if one.better == HIGHER} == {
        *("n_finished", "hit_ratio", "output_tokens_per_s", "requests_per_s", "told_rank_correlation"),
        *("host_hit_ratio", "disk_hit_ratio", "shared_hit_ratio", "peer_hit_ratio", "found_ratio"),
        *("slo_attainment", "slo_margin", "goodput_per_s", "goodput_per_gpu_s", "session_attainment", "availability"),
        *("after_loss_attainment", "after_loss_attainment_low", "after_loss_attainment_high"),
        *("after_loss_margin", "after_loss_margin_low", "after_loss_margin_high"),
        *("acceptance_length", "draft_acceptance"),
        *("slo_attainment_low", "slo_attainment_high", "slo_margin_low", "slo_margin_high"),
    }
    assert len({one.words for one in DECLARED.values()}) == len(DECLARED), "no two are called the same"
    assert DECLARED["norm_latency_mean_s"].words == "average normalised latency"
    states = [f"n_{state.name.lower()}" for state in State]
    assert sorted(states) == sorted(name for name in METRICS if name.startswith("n_") and name != "n_requests")


def test_what_comes_out_of_a_run_has_the_declared_columns_and_types() -> None:
    made = rerun("round_robin_g4_r32_d30_o1x150_kv12000_s2333", folder=COMMITTED)[1]
    hints = get_type_hints(Outcome)
    for field in fields(Outcome):
        column = getattr(made, field.name)
        if field.name in ("history", "begun"):
            assert column == (NOTHING if field.name == "history" else None)
            continue
        if field.name in OF_REQUESTS:
            assert len(column) == len(made)
        elif field.name.startswith("gaps_"):
            assert len(column) == len(made.gaps_priority)
        elif field.name != "end_s":
            assert len(column) == 4
        assert isinstance(column, float) if field.name == "end_s" else f"numpy.{column.dtype}" in str(hints[field.name])
