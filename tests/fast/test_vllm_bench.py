"""What `vllm bench serve` sends: lengths, gaps, ramps, caps and warm-ups, and its clients against lanes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.experiment.closed_loops import draw as lanes
from prebleexp.experiment.runs import run, simulate_cell
from prebleexp.launch import configure
from prebleexp.sim.types import Workload
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.vllm_bench import VllmBench

UNASKED = OutputLength((7,), (1.0,))
H100 = ["gpus=1", "hardware/gpu=h100", "hardware/model=llama_3_1_8b"]


def drawn(**fields: object) -> Workload:
    return VllmBench(**fields).draw(rps=1, duration_s=1, seed=3, output_length=UNASKED)  # type: ignore[arg-type]


def test_what_nobody_says_is_as_the_tool_has_it() -> None:
    """In Python as in conf/."""
    (cell,) = configure.cells([*H100, "workload=vllm_bench"])
    assert cell.workload == VllmBench()
    assert VllmBench().num_prompts == 1000


def test_random_lengths_are_uniform_around_their_means() -> None:
    made = drawn(num_prompts=4000, random_range_ratio={"input": 0.5, "output": 0.25}, random_prefix_len=10)
    assert (made.prompt_tokens.min(), made.prompt_tokens.max()) == (522, 1546)
    assert (made.output_tokens.min(), made.output_tokens.max()) == (96, 160)
    assert set(made.segment_ids[::2]) == {0}


def test_prefixes_are_repeated_equally_often() -> None:
    made = drawn(dataset_name="prefix_repetition", num_prompts=105)
    assert np.bincount(made.prefix_group).tolist() == [10] * 10
    assert set(made.prompt_tokens) == {512}
    grouped = drawn(dataset_name="generated-shared-prefix", gsp_num_groups=3, gsp_prompts_per_group=5)
    assert np.bincount(grouped.prefix_group).tolist() == [5] * 3


@pytest.mark.parametrize(("burstiness", "cv"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5), ("inf", 0.0)])
def test_a_rate_is_met_exactly_with_gaps_of_the_burstiness(burstiness: float | str, cv: float) -> None:
    made = drawn(num_prompts=20_000, request_rate=8.0, burstiness=burstiness)
    assert made.arrival_s[-1] == pytest.approx(2500)
    gaps = np.diff(made.arrival_s)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=0.06)


@pytest.mark.parametrize("strategy", ["linear", "exponential"])
def test_a_ramp_begins_and_ends_at_its_rates(strategy: str) -> None:
    made = drawn(num_prompts=1001, ramp_up_strategy=strategy, ramp_up_start_rps=2, ramp_up_end_rps=32, burstiness="inf")
    rates = 1 / np.diff(made.arrival_s, prepend=0)
    middle = 17 if strategy == "linear" else 8
    assert rates[[0, 500, 1000]] == pytest.approx([2, middle, 32])


def test_a_cap_lets_the_next_go_when_any_has_ended_and_times_count_from_then() -> None:
    cell = configure.cells([*H100, "workload=vllm_bench", "workload.num_prompts=60", "workload.max_concurrency=4"])[0]
    capped = configure.cells([*H100, "workload=vllm_bench", "workload.num_prompts=60", "workload.max_concurrency=4",
                              "workload.request_rate=2", "workload.num_warmups=9"])[0]  # fmt: skip
    for one in (cell, capped):
        made = run(one)
        outcome, warm = made.outcome, one.workload.num_warmups  # type: ignore[attr-defined]
        begins, ends = outcome.due_s[warm:], np.sort(outcome.finish_s[warm:])
        start_s = outcome.finish_s[:warm].max() if warm else 0.0
        came = made.workload.arrival_s[warm:] + start_s
        expected = np.maximum(came, np.concatenate([np.zeros(4), ends[:-4]]))
        assert begins == pytest.approx(expected)
        sent = np.concatenate([begins, ends])
        under_way = np.cumsum(np.repeat([1, -1], 60)[np.lexsort((np.repeat([1, 0], 60), sent))])
        assert under_way.max() <= 4


def test_clients_without_think_time_are_littles_law_and_what_lanes_are() -> None:
    """N = X · R, and throughput and latency of hardware check's closed loops in the same cell."""
    n = 16
    cell = configure.cells([*H100, "workload=vllm_bench", "workload.num_prompts=1600", f"workload.max_concurrency={n}",
                            "workload.random_input_len=512", "workload.random_output_len=64"])[0]  # fmt: skip
    outcome = run(cell).outcome
    ends = np.sort(outcome.finish_s)
    begin_s, end_s = ends[10 * n - 1], ends[90 * n - 1]
    inside = (outcome.finish_s > begin_s) & (outcome.finish_s <= end_s)
    little = inside.sum() / (end_s - begin_s) * outcome.latency_s[inside].mean()
    print(f"N = {n}, X · R = {little:.5f}")
    assert little == pytest.approx(n, rel=0.001)
    loops = simulate_cell(cell, lanes(n, 512, 64, 1.0, 0))
    many = len(loops.latency_s)
    ours = simulate_cell(cell, drawn(num_prompts=many, max_concurrency=n, random_input_len=512, random_output_len=64))
    print(f"latency {ours.latency_s.mean():.5f} and {loops.latency_s.mean():.5f} s")
    assert ours.latency_s.mean() == pytest.approx(loops.latency_s.mean(), rel=0.001)
    assert ours.finish_s.max() == pytest.approx(loops.finish_s.max(), rel=0.001)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"dataset_name": "sharegpt"}, "needs workload.dataset_path=FILE; or take azure_conversations"),
        ({"request_rate": 0}, "workload.request_rate=0 is not valid; it must be a number > 0, or inf"),
        ({"random_range_ratio": 1.0}, "workload.random_range_ratio=1.0 is not valid"),
        ({"ramp_up_strategy": "linear"}, "workload.ramp_up_start_rps=None is not valid"),
        ({"max_concurrency": 0}, "workload.max_concurrency=0 is not valid"),
    ],
)
def test_what_is_no_benchmark_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        VllmBench(**fields)  # type: ignore[arg-type]


def test_files_have_the_lengths_and_times_that_they_say(tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"
    rows = [
        {"timestamp": 1000 * i, "input_length": 20 + i, "output_length": 3, "hash_ids": [1, 2 + i]} for i in range(3)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    timed = drawn(dataset_name="timed_trace", dataset_path=str(path), timed_trace_sec_multiplier=0.001)
    assert timed.arrival_s.tolist() == [0, 1, 2]
    assert timed.prompt_tokens.tolist() == [20, 21, 22]
    assert len(set(timed.segment_ids[::2])) == 1
    path.write_text("\n".join(json.dumps({"prompt": "a" * 40 * i, "output_tokens": i}) for i in (1, 2, 3)))
    fields = {"dataset_name": "custom", "dataset_path": str(path), "custom_output_len": -1, "disable_shuffle": True}
    assert drawn(**fields, num_prompts=2).prompt_tokens.tolist() == [10, 20]
    assert len(drawn(**fields, num_prompts=7)) == 7
    assert drawn(**fields, num_prompts=7, no_oversample=True).output_tokens.tolist() == [1, 2, 3]
    path.write_text(json.dumps([{"conversations": [{"value": "a" * 80}, {"value": "b" * 40}]}]))
    shared = drawn(dataset_name="sharegpt", dataset_path=str(path), num_prompts=2)
    assert (shared.prompt_tokens.tolist(), shared.output_tokens.tolist()) == ([20, 20], [10, 10])
    path.write_text("Timestamp,Model,Request tokens,Response tokens\n0,GPT-4,30,5\n1,ChatGPT,9,9\n2,GPT-4,8,0\n")
    burst = drawn(dataset_name="burstgpt", dataset_path=str(path), num_prompts=2)
    assert (burst.prompt_tokens.tolist(), burst.output_tokens.tolist()) == ([30, 30], [5, 5])
    path.write_text(json.dumps({"input_lens": [7, 8], "output_lens": [2, 3], "start_times": [5.0, 5.5]}))
    again = drawn(dataset_name="bench_log", dataset_path=str(path), self_timed=True)
    assert (again.prompt_tokens.tolist(), again.arrival_s.tolist()) == ([7, 8], [0, 0.5])
    azure = drawn(dataset_name="azure_conversations")
    assert (azure.prompt_tokens.max(), azure.output_tokens.min()) <= (1024, 2048)


def test_a_timed_trace_of_other_blocks_or_another_unit_is_not_played_in_silence(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.jsonl"
    row = {"input_length": 6000, "output_length": 9, "hash_ids": [*range(12)]}
    rows = [row | {"timestamp": 7000 * i} for i in range(9)]
    path.write_text("\n".join(map(json.dumps, rows)))
    of: dict[str, object] = {"dataset_name": "timed_trace", "dataset_path": str(path)}
    with pytest.raises(InvalidInput, match=r"size=16 is not valid; hash_ids would have 1,728 tokens of the 54,000 of"):
        drawn(**of)
    of["timed_trace_chunk_hash_size"] = 512
    assert drawn(**of).prompt_tokens.tolist() == [6000] * 9
    said = VllmBench(**of).understood  # type: ignore[arg-type]
    assert said is not None
    assert said.doubts == ("0.0001607 requests/s are improbable; timed_trace_sec_multiplier=0.001 reads milliseconds",)
    told = VllmBench(**of, timed_trace_sec_multiplier=0.001).understood  # type: ignore[arg-type]
    assert told is not None
    assert (told.doubts, "9 requests in 56 s" in told.line) == ((), True)
    path.write_text("\n".join(json.dumps(row | {"timestamp": 1.76e9 + i}) for i in range(9)))
    late = VllmBench(**of).understood  # type: ignore[arg-type]
    assert late is not None
    assert late.doubts[0].startswith("the first request comes after 1,760,000,000 s; times count from 0")
