"""`bench-serve -- python -m sglang.bench_serving …`: flags, lengths, rows, keys and numbers of SGLang 0.5.23."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.sglang_bench import flags
from prebleexp.sglang_bench.result import result
from prebleexp.sim.types import Workload
from prebleexp.vllm_bench.served import Served
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.sglang_bench import SglangBench
from tests.support.places import ROOT

Run = Callable[..., tuple[int, str, str]]
TOOLS = ROOT / "tests" / "data" / "tools"
H100 = ("gpus=1", "hardware/gpu=h100", "hardware/model=llama_3_1_8b")
NAMES = (ROOT / "tests" / "data" / "sglang_bench_flags.txt").read_text().split()
"""of SGLang 0.5.23, sglang/benchmark/serving.py"""
TOOL = ("python", "-m", "sglang.bench_serving")
SMALL = (
    "--dataset-name",
    "random-ids",
    "--num-prompts",
    "12",
    "--random-input-len",
    "100",
    "--random-output-len",
    "13",
)
ROWS = (
    *("Backend:", "Traffic request rate:", "Max request concurrency:", "Successful requests:"),
    *("Benchmark duration (s):", "Total input tokens:", "Total input text tokens:", "Total generated tokens:"),
    *("Total generated tokens (retokenized):", "Request throughput (req/s):", "Input token throughput (tok/s):"),
    *("Output token throughput (tok/s):", "Peak output token throughput (tok/s):", "Peak concurrent requests:"),
    *("Total token throughput (tok/s):", "Concurrency:", "-Goodput-", "SLOs (ms):", "Request goodput (req/s):"),
    *("SLO attainment (%):", "TTFT SLO attainment (%):", "-End-to-End Latency-"),
    *(f"{one} E2E Latency (ms):" for one in ("Mean", "Median", "P90", "P95", "P99")),
    *("-Time to First Token-", *(f"{one} TTFT (ms):" for one in ("Mean", "Median", "P90", "P95", "P99"))),
    "-Time per Output Token (excl. 1st token)-",
    *(f"{one} TPOT (ms):" for one in ("Mean", "Median", "P90", "P95", "P99")),
    *("-Inter-Token Latency-", *(f"{one} ITL (ms):" for one in ("Mean", "Median", "P90", "P95", "P99", "Max"))),
)


def real(name: str) -> dict[str, Any]:
    """What the tool wrote."""
    text = gzip.decompress((TOOLS / f"sglang_{name}.jsonl.gz").read_bytes()).decode()
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found


def drawn(**settings: Any) -> Workload:
    source = SglangBench(warmup_requests=0, **settings)
    return source.draw(rps=1, duration_s=1, seed=1, output_length=OutputLength((7,), (1.0,)))


# ---------------------------------------------------------------- flags
def test_every_flag_of_the_tool_is_known_once() -> None:
    kinds = (flags.OF_THE_LOAD, flags.OF_THE_RESULT, flags.NO_EFFECT, flags.NOT_SIMULATED, flags.REFUSED)
    assert sorted(name for kind in kinds for name in kind) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_is_a_setting_or_of_the_result_or_is_named_or_refused(name: str) -> None:
    valid = {"backend": "vllm", "goodput": "ttft:5", "dataset-name": "random"}
    value = [] if "action" in flags.FLAGS[name] else [valid.get(name, "7")]
    line = [*TOOL, f"--{name}", *value]
    if name in flags.REFUSED:
        with pytest.raises(InvalidInput, match=f"--{name} is not valid here; workload="):
            flags.read(line)
        return
    found, plain = flags.read(line), flags.read(TOOL)
    named = f"--{name}" in " ".join(found.says).replace(",", "").split()
    assert named == (name in flags.NO_EFFECT or name in flags.NOT_SIMULATED)
    assert set(found.settings) <= {f"workload.{one.name}" for one in fields(SglangBench)} | {"seed"}
    assert (found.settings != plain.settings) == (name in flags.OF_THE_LOAD)
    assert found != plain


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python -m sglang.bench_serving --max-concurency 4", "did you mean --max-concurrency?"),
        ("python -m sglang.bench_serving --num-prompts many", "argument --num-prompts: invalid int value: 'many'"),
        ("python -m sglang.bench_serving --seed 7", "dataset_name=sharegpt needs workload.dataset_path=FILE; or take"),
        ("python -m sglang.bench_serving --dataset-name mooncake", "workload=mooncake plays such a trace"),
        ("python -m sglang.bench_serving --dataset-name image", "workload.dataset_name=image is not valid"),
        ("python -m sglang.bench_serving --backend sglang-embedding", "--backend=sglang-embedding is not valid"),
        ("python -m sglang.launch_server --seed 7", "bench-serve does not know 'sglang.launch_server'"),
    ],
)
def test_what_is_not_known_is_refused(command: Run, line: str, said: str) -> None:
    code, out, err = command("bench-serve", *H100, "--", *line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


# ---------------------------------------------------------------- the load
def test_lengths_are_uniform_from_a_share_of_the_most() -> None:
    made = drawn(num_prompts=4000, random_input_len=100, random_output_len=11, random_range_ratio=0.3)
    assert (made.prompt_tokens.min(), made.prompt_tokens.max()) == (30, 100)
    assert (made.output_tokens.min(), made.output_tokens.max()) == (3, 11)
    assert made.prompt_tokens.mean() == pytest.approx(65, abs=2)
    whole = drawn(num_prompts=50, random_input_len=100, random_output_len=11, random_range_ratio=1.0)
    assert set(whole.prompt_tokens.tolist()) == {100}


def test_the_first_comes_at_once_and_the_others_behind_exponential_gaps() -> None:
    gaps = np.diff(drawn(num_prompts=5000, request_rate=20.0).arrival_s)
    assert drawn(num_prompts=5, request_rate=20.0).arrival_s[0] == 0
    assert gaps.mean() == pytest.approx(1 / 20, rel=0.05)
    assert gaps.std() == pytest.approx(1 / 20, rel=0.05)


def test_groups_share_their_system_prompts() -> None:
    gsp: dict[str, Any] = {"dataset_name": "generated-shared-prefix", "gsp_num_groups": 5, "gsp_prompts_per_group": 40}
    made = drawn(**gsp, gsp_system_prompt_len=60, gsp_question_len=20, gsp_output_len=9)
    assert np.bincount(made.prefix_group).tolist() == [40] * 5
    assert set(made.prompt_tokens.tolist()) == {80}
    assert set(made.segment_tokens[made.segment_ids < 5].tolist()) == {60}
    assert (np.diff(made.prefix_group) < 0).any()
    assert drawn(**gsp, gsp_ordered=True).prefix_group.tolist() == np.repeat(np.arange(5), 40).tolist()
    hot = np.bincount(drawn(**gsp, gsp_group_distribution="zipf", gsp_zipf_alpha=2.0).prefix_group)
    assert hot[0] / hot.sum() == pytest.approx(1 / sum(1 / k**2 for k in range(1, 6)), abs=0.1)
    several = drawn(**gsp, gsp_range_ratio=0.5)
    each = {group: several.segment_tokens[several.segment_ids == group] for group in range(5)}
    assert all(len(set(one.tolist())) == 1 for one in each.values()), "a system prompt has one length"


def test_conversations_of_files_are_counted_in_letters(tmp_path: Path) -> None:
    turns = [{"conversations": [{"value": "q" * 4 * n}, {"value": "a" * 40}]} for n in (1, 10, 50)]
    (tmp_path / "it.json").write_text(json.dumps(turns))
    made = drawn(dataset_name="sharegpt", dataset_path=str(tmp_path / "it.json"))
    assert sorted(made.prompt_tokens.tolist()) == [10, 50], "one token is too few for the tool"
    lines = [{"conversation": [{"content": "q" * 80}, {"content": "a" * 40}]}, {"conversation": []}]
    (tmp_path / "it.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines) + "no JSON\n")
    custom = drawn(dataset_name="custom", dataset_path=str(tmp_path / "it.jsonl"), sharegpt_output_len=7)
    assert (custom.prompt_tokens.tolist(), custom.output_tokens.tolist()) == ([20], [7])


def test_warm_ups_are_short_and_leave_no_trace_if_caches_are_emptied() -> None:
    asked = {"num_prompts": 5, "random_output_len": 100, "random_range_ratio": 1.0, "max_concurrency": 2}
    length = OutputLength((7,), (1.0,))
    warm = SglangBench(warmup_requests=3, **asked).draw(rps=1, duration_s=1, seed=1, output_length=length)
    assert warm.output_tokens.tolist() == [32] * 3 + [100] * 5
    assert len(set(warm.segment_ids[:4].tolist())) == 1
    flushed = SglangBench(warmup_requests=3, flush_cache=True, **asked)
    assert len(flushed.draw(rps=1, duration_s=1, seed=1, output_length=length).output_tokens) == 5


# ---------------------------------------------------------------- the result
@pytest.mark.parametrize("name", ["chat", "clients", "gsp", "poisson", "twice", "vllm", "warm"])
def test_of_what_the_tool_saw_the_numbers_are_what_it_wrote(name: str) -> None:
    """Its file does not say when requests were sent: the peaks, which follow, are not compared. Nor does it say when
    their answers were over, which is some tenths of a millisecond after the last token. (With its backend `sglang`
    lengths in details are the server's, and sums are not.)"""
    found = real(name)
    gaps = [np.array(one) for one in found["itls"]]
    ttft = np.array(found["ttfts"])
    seen = Served(
        input_lens=np.array(found["input_lens"], np.int32),
        output_lens=np.array(found["output_lens"]),
        start_s=np.zeros(len(ttft)),
        waited_s=np.zeros(len(ttft)),
        ttft_s=ttft,
        latency_s=ttft + [one.sum() for one in gaps],
        gaps_s=gaps,
        ok=np.array([not one for one in found["errors"]]),
        errors=found["errors"],
        begun_s=0.0,
        duration_s=found["duration"],
        spread=0,
    )
    rate = found["request_rate"]
    asked = {one: found[one] for one in ("dataset_name", "random_input_len", "random_output_len", "random_range_ratio")}
    source = SglangBench(request_rate=rate, max_concurrency=found["max_concurrency"], **asked)
    made = result(seen, source, flags.read([*TOOL, "--backend", found["backend"]])).fields
    assert list(made) == list(found)
    for field, value in made.items():
        if field in ("generated_texts", "server_info", "max_output_tokens_per_s", "max_concurrent_requests"):
            continue
        if isinstance(value, int | float):
            follows = any(one in field for one in ("e2e", "tpot", "concurrency"))
            assert value == pytest.approx(found[field], rel=1e-2 if follows else 1e-12, abs=0.1 if follows else 0), (
                field
            )
        else:
            assert value == found[field], field


@pytest.mark.slow
def test_the_json_has_the_tools_keys_and_types_and_lines_are_appended(command: Run) -> None:
    line = (*TOOL, *SMALL, "--request-rate", "15", "--output-file", "it.jsonl", "--output-details", "--tag", "one")
    for _ in range(2):
        code, _, err = command("bench-serve", *H100, "--", *line)
        assert code == 0
        assert "a line is written to it.jsonl" in err
    made, theirs = json.loads(Path("it.jsonl").read_text().splitlines()[1]), real("poisson")
    assert list(made) == list(theirs)
    for key, value in theirs.items():
        if key not in ("tag", "server_info"):
            assert type(made[key]) is type(value), key
    assert [len(one) for one in made["itls"]] == [one - 1 for one in made["output_lens"]]
    short = json.loads(command("bench-serve", *H100, "output=vllm_bench", "--", *TOOL, *SMALL)[1])
    assert set(made) - set(short) == {"input_lens", "output_lens", "ttfts", "itls", "generated_texts", "errors"}


def test_the_table_has_the_tools_rows(command: Run) -> None:
    asked = (*SMALL, "--max-concurrency", "4", "--goodput", "ttft:60", "--top-p", "1", "--lora-name", "a")
    code, out, err = command("bench-serve", *H100, "engine=sglang", "--", *TOOL, *asked)
    lines = out.splitlines()
    assert (code, lines[0], lines[-1]) == (0, f"{' Serving Benchmark Result ':=^50}", "=" * 50)
    for line, row in zip(lines[1:-1], ROWS, strict=True):
        assert line == f"{row.strip('-'):-^50}" if row[0] == "-" else line[:40].rstrip() == row
    assert "prebleexp: no effect here: --top-p\n" in err
    assert "prebleexp: not simulated, and left out: --lora-name\n" in err
