"""Files that load generators wrote (`tests/make_tool_files.py`), read as they are: lengths and times are those that the
server saw, and that the tool printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Workload
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.request_log import RequestLog

FOLDER = Path(__file__).parents[1] / "data" / "tools"
MADE: dict[str, dict[str, Any]] = json.loads((FOLDER / "made.json").read_text())
OUTPUT = OutputLength((1,), (1.0,))
SEEN_LATE_S = 0.02
"""by the server, after the tool sent it, beyond the first one's"""


def source(name: str) -> Replayed:
    kind = BenchLog if name.startswith(("vllm", "sglang")) else RequestLog
    return kind(str(FOLDER / MADE[name]["file"]), load="recorded")


def drawn(name: str) -> Workload:
    return source(name).draw(rps=1, duration_s=1, seed=0, output_length=OUTPUT)


def said(name: str) -> dict[str, str]:
    return dict(source(name).understood.facts)


def test_there_are_forty_of_five_tools() -> None:
    assert len(MADE) >= 40
    assert {one["tool"].split()[0] for one in MADE.values()} == {
        "vLLM",
        "SGLang",
        "aiperf",
        "guidellm",
        "inference-perf",
    }
    assert {one["file"] for one in MADE.values()} == {path.name for path in FOLDER.glob("*.gz")}


@pytest.mark.parametrize("name", MADE)
def test_lengths_are_those_that_the_server_saw_and_the_tool_printed(name: str) -> None:
    made, stream = MADE[name], drawn(name)
    n = len(stream.arrival_s)
    served = made["served"][-n:]  # before the last run stand warm-ups, tries, and earlier runs
    assert sorted(stream.output_tokens.tolist()) == sorted(output for _, _, output in served)
    if not name.startswith("sglang"):  # whose random tokens are others when they are read again
        assert sorted(stream.prompt_tokens.tolist()) == sorted(prompt for _, prompt, _ in served)
    found = {
        "requests": n,
        "input_tokens": stream.prompt_tokens.sum(),
        "output_tokens": stream.output_tokens.sum(),
        "mean_input": round(float(stream.prompt_tokens.mean()), 2),
        "mean_output": round(float(stream.output_tokens.mean()), 2),
    }
    printed = dict(made["printed"])
    if name == "sglang_native":  # prints what it asked for; its file has what the server counted
        printed["input_tokens"] = sum(prompt for _, prompt, _ in served)
    assert {key: found[key] for key in printed} == printed


@pytest.mark.parametrize("name", [name for name in MADE if not name.startswith("sglang")])
def test_times_are_those_at_which_the_server_saw_requests(name: str) -> None:
    stream = drawn(name)
    seen = np.array([when for when, _, _ in MADE[name]["served"][-len(stream.arrival_s) :]])
    np.testing.assert_allclose(np.sort(stream.arrival_s), seen - seen[0], atol=SEEN_LATE_S)


@pytest.mark.parametrize("name", [name for name in MADE if name.startswith("sglang")])
def test_what_sglang_does_not_write_is_said(name: str) -> None:
    time = said(name)["time"]
    assert time.endswith("(there are no starts)") or "4 clients" in time


def test_runs_that_are_not_taken_are_said_to_be_left_out() -> None:
    assert "1 other run of the file" in said("vllm_append")["left out"]
    assert "1 other run of the file" in said("sglang_twice")["left out"]
    assert "12 of 24 rows, of other benchmarks of the file" in said("guidellm_several")["left out"]
    assert "3 of 15 rows, of the warm-up" in said("aiperf_warm")["left out"]


def test_another_benchmark_of_a_file_can_be_taken() -> None:
    for name, kind in (("guidellm_several", RequestLog), ("vllm_append", BenchLog), ("sglang_twice", BenchLog)):
        path = str(FOLDER / MADE[name]["file"])
        first, last, plain = (kind(path, load="recorded", benchmark=one) for one in (1, 2, None))
        assert plain.whole.start_s.tolist() == last.whole.start_s.tolist() != first.whole.start_s.tolist()
        served = MADE[name]["served"]
        assert len(first.whole) + len(last.whole) <= len(served)
        three = kind(path, load="recorded", benchmark=3)
        with pytest.raises(InvalidInput, match=r"workload\.benchmark=3 is not valid; the file has 2, from 1 on"):
            _ = three.whole
    alone = BenchLog(str(FOLDER / MADE["vllm_once"]["file"]), load="recorded", benchmark=2)
    with pytest.raises(InvalidInput, match="the file has 1"):
        _ = alone.whole


@pytest.mark.parametrize("name", ["aiperf_turns", "guidellm_turns"])
def test_four_sessions_have_three_turns(name: str) -> None:
    stream = drawn(name)
    assert np.bincount(stream.session).tolist() == [3] * 4
    assert all(sorted(stream.turn[stream.session == one].tolist()) == [0, 1, 2] for one in range(4))


@pytest.mark.parametrize("name", ["inference_perf_stages", "inference_perf_chat"])
def test_prompts_share_the_text_that_they_begin_with(name: str) -> None:
    """Two groups of 40 tokens, in front of 20 of a request's own."""
    stream = drawn(name)
    first = stream.segment_ids[stream.segment_offsets[:-1]]
    assert len(set(first.tolist())) == 2
    assert stream.segment_tokens[stream.segment_offsets[:-1]] == pytest.approx(40, abs=8)
