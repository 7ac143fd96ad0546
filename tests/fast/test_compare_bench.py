"""`compare-bench`: files of vLLM's and SGLang's tools, and why measured and simulated differ, where that is known."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.sglang_bench import compared as sglang
from prebleexp.vllm_bench import agreement, causes
from prebleexp.vllm_bench.causes import Side
from prebleexp.vllm_bench.compared import Row
from prebleexp.vllm_bench.known import Known
from tests.support.places import ROOT

TOOLS = ROOT / "tests" / "data" / "tools"
H100 = ("gpus=1", "hardware/gpu=h100", "hardware/model=llama_3_1_8b")
LOAD = (
    *("--num-prompts", "200", "--random-input-len", "1500", "--random-output-len", "40", "--random-range-ratio", "0.8"),
    *("--save-result", "--save-detailed", "--result-filename", "it.json"),
)


def compared(capsys: pytest.CaptureFixture[str], *serves: str) -> tuple[dict[str, Any], str]:
    capsys.readouterr()
    assert main(["compare-bench", "it.json", *H100, *serves, "output=json"]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "rate", "cause"),
    [
        ("seed=0", 4, None),
        ("hardware.parameters.a0=0.1", 4, "host"),
        ("hardware.parameters.e_c=0.2", 4, "prefill"),
        ("hardware.parameters.e_m=0.3", 4, "decode"),
        ("engine.max_num_seqs=6", 12, "queue"),
    ],
)
def test_the_cause_is_what_was_made_another(
    other: str,
    rate: int,
    cause: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is measured is a simulation in which one thing is another."""
    monkeypatch.chdir(tmp_path)
    assert main(["bench-serve", *H100, other, "--", "vllm", "bench", "serve", *LOAD, "--request-rate", str(rate)]) == 0
    found, err = compared(capsys)
    assert found["cause"] == cause
    total = sum(one["measured_ms"] for one in found["parts"].values())
    made = json.loads(Path("it.json").read_text())
    latency_s = np.mean([ttft + sum(itl) for ttft, itl in zip(made["ttfts"], made["itls"], strict=True)])
    assert total == pytest.approx(1000 * latency_s, rel=1e-9), "parts add up to the mean latency"
    assert "not said, and taken by default: policy=lor, engine=vllm" in err or other.startswith("engine")
    if cause is None:
        assert "they agree: a request takes" in err
        assert "calibrate" not in err
    elif cause == "queue":
        assert "look at the engine's budgets" in err
    else:
        assert f"the likely cause is {causes.CAUSES[cause]}, with" in err
        assert "prebleexp calibrate hardware data=. gpus=1 policy=lor engine=vllm hardware/gpu=h100" in err


def test_a_line_through_the_quickest_first_tokens_is_found() -> None:
    """30 ms and 20 µs a token, and for nine in ten a wait."""
    tokens = np.linspace(100, 4000, 400)
    wait = np.where(np.arange(400) % 5 == 0, 0.0, 0.2)
    side = Side(float((0.03 + 2e-5 * tokens + wait).mean()), 10, 0.01, 0.012, (tokens, 0.03 + 2e-5 * tokens + wait))
    same = Side(side.ttft_s, 10, 0.01, 0.012, side.of_each)
    host, prefill, queue, decode, stalls = causes.parts(side, same)
    assert host.measured == pytest.approx(30, rel=0.05)
    assert prefill.measured == pytest.approx(2e-2 * tokens.mean(), rel=0.05)
    assert queue.measured == pytest.approx(160, rel=0.05)
    assert (decode.measured, stalls.measured) == (pytest.approx(100), pytest.approx(20))


def test_prompts_of_one_length_do_not_tell_host_from_prefill() -> None:
    each = (np.full(50, 512.0), np.linspace(0.1, 0.2, 50))
    side = Side(0.15, 10, 0.01, 0.01, each)
    assert [one.name for one in causes.parts(side, side)] == ["host and prefill", "queue", "decode", "stalls"]


def test_files_without_details_tell_the_first_token_alone() -> None:
    fields = {"mean_ttft_ms": 80.0, "mean_tpot_ms": 12.0, "median_itl_ms": 10.0}
    side = causes.of_fields({**fields, "total_output_tokens": 1100, "completed": 100})
    assert side == Side(0.08, 10.0, 0.01, 0.012)
    assert causes.of_fields(fields) is None
    quick = causes.of_fields({**fields, "mean_ttft_ms": 20.0, "total_output_tokens": 1100, "completed": 100})
    assert side is not None
    assert quick is not None
    cause, sentence = causes.verdict(causes.parts(side, quick))
    assert cause == "first token"
    assert sentence == (
        "a request takes 200 ms measured, and 140 ms simulated; the likely cause is the first token, with 60 ms "
        "less in the simulation: the mean time to it is 80 ms measured, and 20 ms simulated"
    )


def test_whether_they_agree_is_said_of_every_time() -> None:
    """It named a cause, and no word said that p99 TTFT was 0.70 of what was measured."""
    of = {"mean_ttft_ms": (100.0, 94.8), "p99_ttft_ms": (400.0, 280.4), "mean_tpot_ms": (20.0, 19.2)}
    rows = [Row(name, *both) for name, both in {**of, "std_ttft_ms": (9.0, 1.0), "duration": (9.0, 5.0)}.items()]
    assert agreement.said(rows, Known()) == (
        "does it agree? No: of 3 times 2 are off by more than 5.0 %: p99_ttft_ms is 0.70, mean_ttft_ms is 0.95 of what "
        "was measured"
    )
    own = agreement.said([rows[0], rows[2]], Known(ttft=0.1, tpot=0.02))
    assert own == "does it agree? Yes: all 2 times are within 10.0 % and 5.0 % of what was measured"
    assert "mean_ttft_ms" in agreement.said([rows[0]], Known(ttft=0.1, is_own=False)), "errors of others excuse nothing"
    assert agreement.said(rows[3:], Known()) == ""


def test_both_agree_where_they_are_as_near_as_the_cost_model_is_known_to_be() -> None:
    """TTFT 0.88, TPOT 0.97: within the error that was measured, and of which no cause is named."""
    parts = causes.parts(Side(0.1, 10.0, 0.01, 0.01), Side(0.088, 10.0, 0.0097, 0.0097))
    cause, sentence = causes.verdict(parts, Known(ttft=0.159, tpot=0.077))
    assert cause is None
    assert sentence == (
        "they agree: a request takes 200 ms measured, and 185 ms simulated; TTFT is 0.88 of what was measured, within "
        "the known error (p90 15.9 %) and TPOT is 0.97 of what was measured, within the known error (p90 7.7 %)"
    )
    cause, sentence = causes.verdict(parts, Known(ttft=0.05, tpot=0.077))
    assert cause == "first token", "TPOT is as near as it can be"
    assert "TTFT is 0.88 of what was measured, beyond the known error (p90 5.0 %)" in sentence
    cause, sentence = causes.verdict(parts, Known())
    assert cause == "first token"
    assert "beyond 5 % and TPOT is 0.97 of what was measured, within 5 %; nothing says how well" in sentence
    cause, sentence = causes.verdict(parts, Known(0.5, 0.2, is_own=False))
    assert cause == "first token", "wide errors of other models excuse nothing"
    assert "beyond 5 % (p90 of other models 50.0 %)" in sentence


# ---------------------------------------------------------------- SGLang's files
def of_sglang(name: str) -> dict[str, Any]:
    text = gzip.decompress((TOOLS / f"sglang_{name}.jsonl.gz").read_bytes()).decode()
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("detailed", [True, False])
@pytest.mark.parametrize("name", ["clients", "poisson", "gsp"])
def test_files_of_sglang_are_read_as_the_benchmark_that_they_were(
    name: str, detailed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are of a server that streams words, so that it is no wonder that an H100 is slower."""
    monkeypatch.chdir(tmp_path)
    fields = of_sglang(name)
    kept = {key: value for key, value in fields.items() if detailed or not isinstance(value, list)}
    Path("it.json").write_text(json.dumps(kept))
    read = sglang.read("it.json")
    assert sglang.is_meant(read.fields)
    assert read.workload == ("sglang_bench" if not detailed and name != "gsp" else "vllm_bench")
    found, err = compared(capsys, "engine=sglang")
    assert found["fields"]["completed"] == {"measured": 12, "simulated": 12, "ratio": 1}
    assert {"mean_e2e_latency_ms", "median_ttft_ms", "p95_tpot_ms", "total_throughput"} <= set(found["fields"])
    if detailed:
        tokens = found["fields"]["total_input_tokens"]
        assert tokens["measured"] == tokens["simulated"]
    assert found["cause"] is not None
    if fields["max_concurrency"] and found["cause"] in causes.OF_COSTS:
        assert "calibrate hardware data=it.json gpu=h100 model=llama-3.1-8b engine=sglang" in err


# ---------------------------------------------------------------- aiperf's files
@pytest.mark.parametrize(("name", "served"), [("poisson", 12), ("warm", None)])
def test_records_of_aiperf_are_each_request_but_for_warm_ups(name: str, served: int | None) -> None:
    path = TOOLS / f"aiperf_{name}.jsonl.gz"
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    kept = [one for one in lines if one["metadata"]["benchmark_phase"] == "profiling"]
    assert served is None or len(lines) == len(kept) == served
    assert served or len(kept) < len(lines)
    read = sglang.read(str(path))
    assert read.fields["completed"] == len(kept)
    assert read.settings["workload.self_timed"]
    first = kept[0]["metrics"]
    assert read.fields["input_lens"][0] == first["input_sequence_length"]["value"]
    assert read.fields["ttfts"][0] == pytest.approx(first["time_to_first_token"]["value"] / 1e3)
    assert sum(read.fields["itls"][0]) == pytest.approx(first["decode_duration"]["value"] / 1e3)
    means = [one["metrics"]["inter_token_latency"]["value"] for one in kept]
    assert read.fields["mean_tpot_ms"] == pytest.approx(np.mean(means))
    latencies = [one["metrics"]["request_latency"]["value"] for one in kept]
    assert read.fields["p99_e2el_ms"] == pytest.approx(np.percentile(latencies, 99))
    assert causes.of_fields(read.fields) is not None


def test_a_summary_of_aiperf_is_read_as_means(tmp_path: Path) -> None:
    """As its documentation has it (docs/tutorials/working-with-profile-exports.md)."""
    summary: dict[str, Any] = {
        "request_count": {"unit": "requests", "avg": 200.0},
        "benchmark_duration": {"unit": "sec", "avg": 15.2},
        "request_latency": {"unit": "ms", "avg": 6550.4, "p50": 5799.9, "p99": 9381.6, "std": 1171.1},
        "time_to_first_token": {"unit": "ms", "avg": 1588.8, "p50": 787.5, "p95": 4051.4},
        "inter_token_latency": {"unit": "ms", "avg": 51.8},
        "total_isl": {"unit": "tokens", "avg": 110000.0},
        "output_sequence_length": {"unit": "tokens", "avg": 97.0},
        "error_request_count": {"unit": "requests", "avg": 3.0},
        "input_config": {"endpoint": {"model_names": ["openai/gpt-oss-20b"]}, "loadgen": {"concurrency": 100}},
    }
    path = tmp_path / "profile_export_aiperf.json"
    path.write_text(json.dumps(summary))
    read = sglang.read(str(path))
    asked = {"num_prompts": 200, "max_concurrency": 100, "random_input_len": 550, "random_output_len": 97}
    assert asked.items() <= {key.removeprefix("workload."): value for key, value in read.settings.items()}.items()
    assert read.fields["model_id"] == "openai/gpt-oss-20b"
    assert read.fields["median_ttft_ms"] == 787.5
    assert read.fields["request_throughput"] == pytest.approx(200 / 15.2)
    assert "3 requests that failed are left out" in read.says
    path.write_text(json.dumps({**summary, "input_config": {}}))
    with pytest.raises(InvalidInput, match=r"take profile_export\.jsonl beside it"):
        sglang.read(str(path))


def test_a_shared_prefix_is_named_where_prefill_is_less_than_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is measured is a simulation of prompts that share a prefix, which its file does not say."""
    monkeypatch.chdir(tmp_path)
    lengths = ("--prefix-repetition-prefix-len", "3000", "--prefix-repetition-suffix-len", "500")
    many = ("--prefix-repetition-num-prefixes", "2", "--prefix-repetition-output-len", "20", "--num-prompts", "60")
    saved = ("--save-result", "--save-detailed", "--result-filename", "it.json", "--request-rate", "4")
    line = ("vllm", "bench", "serve", "--dataset-name", "prefix_repetition", *lengths, *many, *saved)
    assert main(["bench-serve", *H100, "--", *line]) == 0
    found, err = compared(capsys)
    assert found["cause"] in causes.OF_PROMPTS
    assert "a prefix that the measured prompts share would do the same" in err
    assert "prebleexp bench-serve" in err
