"""`compare-bench`: files of vLLM's and SGLang's tools, and why measured and simulated differ, where that is known."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.commands import taken
from prebleexp.errors import InvalidInput
from prebleexp.hardware import uncertain
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.parameters import Support
from prebleexp.launch import configure
from prebleexp.sglang_bench import compared as sglang
from prebleexp.vllm_bench import agreement, causes
from prebleexp.vllm_bench.causes import Side
from prebleexp.vllm_bench.compared import Row
from prebleexp.vllm_bench.compared import rows as rows_of
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
    assert "hardware.precision=bf16, hardware.kv_precision=bf16, hardware.tensor_parallel=1" in err
    if cause is None:
        assert "they agree: a request takes" in err
        assert "calibrate" not in err
    elif cause == "queue":
        assert "look at the engine's budgets" in err
    else:
        assert f"the likely cause is {causes.CAUSES[cause]}, with" in err
        assert "from a folder of 3 such files or more, each at another request rate: " in err
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


def test_means_are_judged_each_by_its_bar_and_nothing_else_is() -> None:
    """Of 24 times 21 were off: medians twice, and percentiles by the error of means; and "Yes" stood beside "No"."""
    of = {"mean_ttft_ms": (100.0, 94.8), "p99_ttft_ms": (400.0, 280.4), "mean_tpot_ms": (20.0, 19.2)}
    rows = [Row(name, one, (two,)) for name, (one, two) in {**of, "duration": (9.0, 5.0)}.items()]
    known = Known(ttft=0.1, tpot=0.02)
    answer, rest = agreement.said(agreement.of_rows(rows, known), known)
    assert answer == (
        "does it agree? Yes: mean TTFT is 0.95 of what was measured, within 10.0 %; mean TPOT is 0.96 of what was "
        "measured, within 5.0 %; the bar is the known error of step times (p90) of this very combination, 5 % at least"
    )
    assert "shown and not judged: known errors are of means" in rest
    tight = Known(ttft=0.05, tpot=0.1)
    assert agreement.said(agreement.of_rows(rows, tight), tight)[0].startswith(
        "does it agree? No: mean TTFT is 0.95 of "
    )
    assert agreement.said(agreement.of_rows(rows[3:], known), known) == []


def test_the_bar_is_no_stricter_where_less_is_known() -> None:
    """A model that was not measured was held to 5 %, though others' p90 is 45.1 % (TTFT) and 15.7 % (TPOT)."""
    rows = [Row("mean_ttft_ms", 100.0, (65.0,)), Row("mean_tpot_ms", 20.0, (18.0,))]
    support = Support("unseen model", "other models", 139, 0.063, 0.157, ttft_n=63, ttft_median=0.193, ttft_p90=0.451)
    known = Known.of_support(support)
    times = agreement.of_rows(rows, known)
    assert agreement.said(times, known)[0] == (
        "does it agree? As far as step times are known here, yes: mean TTFT is 0.65 of what was measured, within "
        "45.1 %; mean TPOT is 0.90 of what was measured, within 15.7 %; the bar is the known error of step times (p90) "
        "of other models on this GPU, each left out, as this one was not measured"
    )
    assert all(one.needs_cause for one in times), "wide errors of other models excuse nothing"
    beyond = agreement.of_rows([Row("mean_ttft_ms", 100.0, (40.0,))], known)
    assert agreement.said(beyond, known)[0].startswith(
        "does it agree? No: mean TTFT is 0.40 of what was measured, beyond"
    )
    nothing = Known.of_support(None)
    assert agreement.said(agreement.of_rows(rows, nothing), nothing) == [
        "does it agree? Nobody can say: mean TTFT is 0.65 of what was measured, and nothing says how well it is known "
        "here; mean TPOT is 0.90 of what was measured, and nothing says how well it is known here"
    ]


def test_an_error_that_was_not_measured_is_the_one_that_a_plan_takes() -> None:
    """A plan said 41 % of an A100, and this that nothing says how well it is known."""
    hardware = configure.cells(["hardware/gpu=a100", "hardware/model=llama_3_1_8b"])[0].hardware
    assert isinstance(hardware, Composed)
    known = Known.of_support(hardware.evidence)
    assert known == Known(None, hardware.off, False, uncertain.OF_OTHERS)
    times = agreement.of_rows([Row("mean_tpot_ms", 20.0, (18.0,))], known)
    assert agreement.said(times, known)[0] == (
        "does it agree? As far as step times are known here, yes: mean TPOT is 0.90 of what was measured, within "
        "41.3 %; the bar is the known error of step times (p90) of other models, each left out of the fit, as none was "
        "measured here"
    )


def test_seeds_that_lie_on_both_sides_of_the_bar_do_not_tell() -> None:
    known = Known(ttft=0.1)
    times = agreement.of_rows([Row("mean_ttft_ms", 100.0, (88.0, 93.0, 90.0))], known)
    assert agreement.said(times, known)[0].startswith(
        "does it agree? The seeds do not tell: mean TTFT is 0.90 ± 0.06 of what was measured, which may be within or "
        "beyond 10.0 %"
    )


def test_a_median_is_compared_once() -> None:
    """vLLM writes it as p50, too."""
    measured = {"median_ttft_ms": 3.0, "p50_ttft_ms": 3.0, "p50_itl_ms": 2.0}
    found = rows_of(measured, [measured, {**measured, "median_ttft_ms": 5.0}])
    assert [(one.field, one.simulated) for one in found] == [("median_ttft_ms", 4.0), ("p50_itl_ms", 2.0)]


def test_a_cause_is_looked_for_beyond_the_known_error_of_the_combination() -> None:
    """TTFT 0.88, TPOT 0.97: within the error that was measured, and of which no cause is named."""
    parts = causes.parts(Side(0.1, 10.0, 0.01, 0.01), Side(0.088, 10.0, 0.0097, 0.0097))
    rows = [Row("mean_ttft_ms", 100.0, (88.0,)), Row("mean_tpot_ms", 10.0, (9.7,))]

    def verdict(known: Known) -> tuple[str | None, str]:
        return causes.verdict(parts, agreement.of_rows(rows, known))

    agree = (None, "they agree: a request takes 200 ms measured, and 185 ms simulated")
    assert verdict(Known(ttft=0.159, tpot=0.077)) == agree
    assert verdict(Known(ttft=0.05, tpot=0.077))[0] == "first token", "TPOT is as near as it can be"
    assert verdict(Known())[0] == "first token"
    assert verdict(Known(0.5, 0.2, is_own=False))[0] == "first token", "wide errors of other models excuse nothing"
    cause, sentence = causes.verdict(causes.parts(Side(3.3, 1, 0.01, 0.01), Side(2.99, 1, 0.01, 0.01)))
    assert cause == "first token"
    assert sentence.startswith("a request takes 3.31 s measured, and 3.00 s simulated;"), "of as many digits"


def test_all_that_was_taken_by_default_is_said() -> None:
    """A server's FP8 weights were simulated in BF16, and no word said so."""
    chosen = ["gpus=2", "hardware/gpu=h100", "hardware/model=llama_3_1_70b", "hardware.tensor_parallel=2"]
    said = taken.by_default(configure.cells(chosen)[0], chosen)
    assert said == [
        "not said, and taken by default: policy=lor, engine=vllm, hardware.precision=bf16, hardware.kv_precision=bf16",
        "weights can be in bf16, fp8, int4 on h100; llama-3.1-70b was measured on h100 in fp8: say what your servers "
        "have",
    ]
    oss = ["gpus=1", "policy=lor", "engine=vllm", "hardware/gpu=h100", "hardware/model=gpt_oss_120b"]
    words, formats, kv = taken.by_default(configure.cells(oss)[0], oss)
    assert words.endswith("hardware.precision=bf16, hardware.kv_precision=fp8, hardware.tensor_parallel=1")
    assert "gpt-oss-120b was measured on h100 in bf16" in formats
    assert "an engine left to itself keeps the cache in BF16" in kv
    every = [*oss, "hardware.precision=bf16", "hardware.kv_precision=bf16", "hardware.tensor_parallel=1"]
    assert taken.by_default(configure.cells(every)[0], every) == []


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
        assert "from 4 such files or more that differ in clients and lengths, best about 8: " in err
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
