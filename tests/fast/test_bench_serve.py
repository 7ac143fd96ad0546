"""`bench-serve` and `compare-bench`: flags, rows, keys and numbers of `vllm bench serve` 0.32.0."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.experiment.runs import run
from prebleexp.launch import configure
from prebleexp.sglang_bench import flags as sglang
from prebleexp.sim.steps import Steps
from prebleexp.vllm_bench import compared, flags
from prebleexp.vllm_bench.result import Wanted, result
from prebleexp.vllm_bench.served import Served, served
from prebleexp.workloads.vllm_bench import VllmBench
from tests.support.places import ROOT

Run = Callable[..., tuple[int, str, str]]
TOOLS = ROOT / "tests" / "data" / "tools"
H100 = ("gpus=1", "hardware/gpu=h100", "hardware/model=llama_3_1_8b")
DATE = datetime(2026, 1, 2)
SMALL = ("--num-prompts", "12", "--random-input-len", "100", "--random-output-len", "13", "--random-range-ratio", "0.3")
NAMES = (ROOT / "tests" / "data" / "vllm_bench_flags.txt").read_text().split()
"""of vLLM 0.32.0, vllm/benchmarks/serve.py and datasets"""
ROWS = (
    *("Successful requests:", "Failed requests:", "Maximum request concurrency:", "Request rate configured (RPS):"),
    *("Benchmark duration (s):", "Total input tokens:", "Total generated tokens:", "Request throughput (req/s):"),
    *("Request goodput (req/s):", "Output token throughput (tok/s):", "Peak output token throughput (tok/s):"),
    *("Peak concurrent requests:", "Total token throughput (tok/s):"),
    *("-Time to First Token-", "Mean TTFT (ms):", "Median TTFT (ms):", "P50 TTFT (ms):", "P99.9 TTFT (ms):"),
    "-Time per Output Token (excl. 1st token)-",
    *("Mean TPOT (ms):", "Median TPOT (ms):", "P50 TPOT (ms):", "P99.9 TPOT (ms):"),
    *("-Inter-token Latency-", "Mean ITL (ms):", "Median ITL (ms):", "P50 ITL (ms):", "P99.9 ITL (ms):"),
    *("-End-to-end Latency-", "Mean E2EL (ms):", "Median E2EL (ms):", "P50 E2EL (ms):", "P99.9 E2EL (ms):"),
    *("-Client-side Queueing-", "Mean Client Queue Time (ms):", "Median Client Queue Time (ms):"),
    *("P50 Client Queue Time (ms):", "P99.9 Client Queue Time (ms):", "-Queue-inclusive End-to-end Latency-"),
    *("Mean E2EL incl. Client Queue (ms):", "Median E2EL incl. Client Queue (ms):"),
    *("P50 E2EL incl. Client Queue (ms):", "P99.9 E2EL incl. Client Queue (ms):"),
)


def real(name: str) -> dict[str, Any]:
    """What the tool wrote."""
    text = gzip.decompress((TOOLS / f"vllm_{name}.json.gz").read_bytes()).decode()
    found: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return found


# ---------------------------------------------------------------- flags
def test_every_flag_of_the_tool_is_known_once() -> None:
    kinds = (flags.OF_THE_LOAD, flags.OF_THE_RESULT, flags.NO_EFFECT, flags.NOT_SIMULATED)
    assert sorted(name for kind in kinds for name in kind) == sorted(NAMES)


def sample(name: str) -> list[str]:
    kind = flags.FLAGS[name]
    if "action" in kind:
        return []
    valid = {"backend": "vllm", "goodput": "ttft:5", "metadata": "a=b", "percentile-metrics": "itl"}
    return [valid.get(name, "7")]


@pytest.mark.parametrize("name", NAMES)
def test_a_flag_is_a_setting_or_of_the_result_or_is_named(name: str) -> None:
    found = flags.read(["vllm", "bench", "serve", f"--{name}", *sample(name)])
    named = f"--{name}" in " ".join(found.says).replace(",", "").split()
    assert named == (name in flags.NO_EFFECT or name in flags.NOT_SIMULATED)
    known = {f"workload.{one.name}" for one in fields(VllmBench)} | {"seed"}
    assert set(found.settings) <= known
    assert bool(found.settings) == (name in flags.OF_THE_LOAD)
    if name in flags.OF_THE_RESULT:
        plain = flags.read([])
        assert found != plain or name == "metric-percentiles"


def test_lengths_for_all_data_sets_go_before_those_of_one() -> None:
    line = ["--output-len", "5", "--random-output-len", "9", "--input-len=6", "--num_prompts", "3", "--seed", "4"]
    found = flags.read(line)
    of = {name.removeprefix("workload."): value for name, value in found.settings.items()}
    assert (of["random_output_len"], of["custom_output_len"], of["sharegpt_output_len"]) == (5, 5, 5)
    assert (of["random_input_len"], of["num_prompts"], of["seed"]) == (6, 3, 4)
    ratio = flags.read(["--random-range-ratio", '{"input": 0.5, "output": 0.25}'])
    assert ratio.settings == {"workload.random_range_ratio": {"input": 0.5, "output": 0.25}}
    assert flags.read(["--random-range-ratio=.5"]).settings == {"workload.random_range_ratio": 0.5}


@pytest.mark.parametrize(
    "line",
    [
        "VLLM_USE_V1=1 vllm bench serve --num-prompts 9",
        "docker run --rm --network host vllm/vllm-openai:latest bench serve --num-prompts 9",
        "kubectl exec deploy/vllm -- vllm bench serve --num-prompts 9",
        "docker exec -it sglang vllm bench serve --num_prompts=9",
        "python3 -m vllm.entrypoints.cli.main bench serve --num-prompts 9 --endpoint-type openai-chat",
        "vllm bench serve –num-prompts 9",
        "cd /x && vllm bench serve --num-prompts 9 && date",
        "$ nohup vllm bench serve --num-prompts 9 > log 2>&1 &",
        "source venv/bin/activate; vllm bench serve --model <model> --num-prompts 9; date",
        "vllm bench serve —num-prompts 9 --custom-skip-chat-template",
        "vllm bench serve —-num-prompts=9 --header a=b c=-1",
    ],
)
def test_a_line_is_read_as_it_was_pasted(line: str) -> None:
    words = line.split()
    assert not sglang.is_meant(words)
    assert flags.read(words).settings == {"workload.num_prompts": 9}


@pytest.mark.parametrize(
    "line",
    [
        "docker run --rm lmsysorg/sglang python3 -m sglang.bench_serving --num-prompt 9",
        "python3 /sgl-workspace/sglang/python/sglang/bench_serving.py –num-prompts 9",
        "python3 -m sglang.bench_serving --num-prompts 9 --gen-num-groups 64",
    ],
)
def test_so_is_one_of_sglang(line: str) -> None:
    words = line.split()
    assert sglang.is_meant(words)
    found = sglang.read(words).settings
    assert found["workload.num_prompts"] == 9
    assert found.get("workload.gsp_num_groups") == (64 if "gen" in line else None)


@pytest.mark.parametrize("words", [["bash", "-c"], ["docker", "exec", "x", "sh", "-lc"], []])
def test_a_line_within_quotes_is_read(words: list[str]) -> None:
    of_vllm = [*words, "vllm bench serve --num-prompts 9 | tee log"]
    found = flags.read(of_vllm)
    assert not sglang.is_meant(of_vllm)
    assert found.settings == {"workload.num_prompts": 9}
    assert found.says == ("no effect here: | tee log",)
    of_sglang = [*words, "python -m sglang.bench_serving --num-prompts 9"]
    assert sglang.is_meant(of_sglang)
    assert sglang.read(of_sglang).settings["workload.num_prompts"] == 9


@pytest.mark.parametrize("behind", ["| tee log", "> log 2>&1 &", "&& date", "; done", "# of the night", "2>>log"])
def test_what_a_shell_does_behind_the_line_is_named(behind: str) -> None:
    for tool, line in ((flags, "vllm bench serve --seed 9"), (sglang, "python -m sglang.bench_serving --seed 9")):
        pasted = tool.read([*line.split(), *behind.split()])
        assert pasted.settings["seed"] == 9
        assert pasted.says == (f"no effect here: {behind}",)


def test_the_script_asked_sharegpt_if_nothing_else_was_named() -> None:
    found = flags.read(["python3", "benchmarks/benchmark_serving.py", "--backend", "sglang", "--dataset", "x.json"])
    assert found.settings == {"workload.dataset_name": "sharegpt", "workload.dataset_path": "x.json"}
    named = flags.read(["benchmark_serving.py", "--dataset-name", "random", "--num-prompts", "9"])
    assert named.settings == {"workload.dataset_name": "random", "workload.num_prompts": 9}
    assert flags.read(["vllm", "bench", "serve", "--num-prompts", "9"]).settings == {"workload.num_prompts": 9}


def test_what_a_flag_meant_in_scripts_before_is_said() -> None:
    line = ["python3", "benchmark_serving.py", "--random-range-ratio", "0.8"]
    assert "drew from that share of the length to the length" in flags.read(line).says[0]
    assert not flags.read(["vllm", "bench", "serve", *line[2:]]).says


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "benchmark_serving.py --dataset-name sonnet --sonnet-input-len 5",
            "prefix_repetition has prompts with",
        ),
        ("vllm bench serve --max-concurency 4", "does not know '--max-concurency'; did you mean --max-concurrency?"),
        ("vllm bench serve --num-prompts many", "argument --num-prompts: invalid int value: 'many'"),
        ("vllm bench serve --goodput p50:3", "--goodput=p50 is not valid; it must be one of ttft, tpot, e2el"),
        ("vllm bench serve --goodput ttft=3", "--goodput 'ttft=3' is not valid; it must be KEY:VALUE"),
        ("vllm bench serve --metric-percentiles 50,101", "'101' is not valid; it must be a number from 0 to 100"),
        ("vllm bench serve --percentile-metrics tpop", "--percentile-metrics=tpop is not valid"),
        ("vllm bench serve --backend vllm-rerank", "nothing is generated there"),
        ("vllm bench serve --random-range-ratio x", "must be a number, or JSON"),
        ("vllm bench serve 7 --seed 7", "does not know '7'"),
        ("vllm bench serve --dataset-name hf", "workload.dataset_name=hf is not valid"),
    ],
)
def test_what_the_tool_does_not_know_is_refused(command: Run, line: str, said: str) -> None:
    code, out, err = command("bench-serve", *H100, "--", *line.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_the_load_is_not_set_twice(command: Run) -> None:
    code, _, err = command("bench-serve", "workload=react", "--", "--num-prompts", "3")
    assert (code, "the benchmark is the load" in err) == (2, True)
    code, _, err = command("bench-serve", "gpus=1,2", "--", "--num-prompts", "3")
    assert (code, "bench-serve is of one configuration: give one value at a time" in err) == (2, True)


# ---------------------------------------------------------------- numbers
def of_file(found: dict[str, Any]) -> Served:
    """What the tool's client saw."""
    starts = np.array(found["start_times"])
    return Served(
        input_lens=np.array(found["input_lens"], np.int32),
        output_lens=np.array(found["output_lens"]),
        start_s=starts,
        waited_s=np.array(found["queue_times"]),
        ttft_s=np.array(found["ttfts"]),
        latency_s=np.array(found["latencies"]),
        gaps_s=[np.array(one) for one in found["itls"]],
        ok=np.array([not one for one in found["errors"]]),
        errors=found["errors"],
        begun_s=float(starts.min()),
        duration_s=found["duration"],
        spread=0,
    )


def source_of(found: dict[str, Any]) -> VllmBench:
    names = ("request_rate", "burstiness", "max_concurrency", "num_prompts")
    ramp = ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")
    return VllmBench(**{name: found[name] for name in (*names, *ramp) if name in found})


@pytest.mark.parametrize(
    "name", ["append", "burst", "capped", "chat", "clients", "custom", "once", "poisson", "prefix"]
)
def test_of_what_the_tool_saw_the_numbers_are_what_it_wrote(name: str) -> None:
    found = real(name)
    made = result(of_file(found), source_of(found), Wanted(), DATE).fields
    for field, value in made.items():
        if field == "generated_texts":
            continue
        if isinstance(value, int | float):
            assert value == pytest.approx(found[field], rel=1e-12), field
        else:
            assert value == found[field], field
    assert list(made) == list(found)[list(found).index("duration") :]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("poisson", "--request-rate 15"),
        ("clients", "--max-concurrency 4"),
        ("capped", "--request-rate 15 --max-concurrency 2"),
        ("ramp", "--ramp-up-strategy linear --ramp-up-start-rps 5 --ramp-up-end-rps 30"),
        ("warm", "--request-rate 15 --num-warmups 3"),
    ],
)
def test_the_json_has_the_tools_keys_and_types(command: Run, name: str, line: str) -> None:
    save = ("--save-result", "--save-detailed", "--result-filename", "it.json", "--result-dir", "in")
    assert command("bench-serve", *H100, "--", "vllm", "bench", "serve", *SMALL, *line.split(), *save)[0] == 0
    made, theirs = json.loads(Path("in/it.json").read_text()), real(name)
    assert list(made) == list(theirs)
    for key, value in theirs.items():
        if key not in ("max_concurrency", "label"):
            assert type(made[key]) is type(value), key
    assert [len(one) for one in made["itls"]] == [one - 1 for one in made["output_lens"]]
    assert made["date"][8] == "-"
    if name == "ramp":
        assert [one["rps"] for one in made["rps_change_events"]] == [one["rps"] for one in theirs["rps_change_events"]]


def test_without_details_and_appended_as_the_tool_writes_it(command: Run) -> None:
    line = ("bench-serve", *H100, "--", *SMALL, "--append-result", "--result-filename", "it.json", "--metadata", "tp=1")
    assert command(*line)[0] == 0
    assert command(*line, "--label", "two")[0] == 0
    first, last = map(json.loads, Path("it.json").read_text().splitlines())
    assert (first["label"], last["label"], last["tp"], last["model_id"]) == (None, "two", "1", "llama-3.1-8b")
    details = {"input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors"}
    assert set(real("poisson")) - set(first) == details
    assert compared.read("it.json").fields["label"] == "two"
    assert command("bench-serve", *H100, "--", *SMALL, "--save-result", "--model", "a/b", "--request-rate", "9")[0] == 0
    assert len(list(Path.cwd().glob("openai-9.0qps-b-*-*.json"))) == 1


def test_output_prints_the_json_in_place_of_the_table(command: Run) -> None:
    code, out, err = command("bench-serve", *H100, "replications=3", "output=vllm_bench", "--", *SMALL)
    assert (code, json.loads(out)["completed"]) == (0, 12)
    assert "of 3 replications it is the first" in err
    code, _, err = command("bench-serve", *H100, "output=csv", "--", *SMALL)
    assert (code, "output=csv is not valid; it must be one of table, vllm_bench" in err) == (2, True)
    metadata = command("bench-serve", *H100, "output=vllm_bench", "--", *SMALL, "--metadata", "output=table")[1]
    assert json.loads(metadata)["output"] == "table"


def test_the_table_has_the_tools_rows(command: Run) -> None:
    metrics = "ttft,tpot,itl,e2el,client_queue_time,e2el_including_client_queue"
    asked = f"--max-concurrency 4 --request-rate 50 --metric-percentiles 50,99.9 --percentile-metrics {metrics}"
    code, out, err = command("bench-serve", *H100, "--", *SMALL, *asked.split(), "--goodput", "ttft:60", "--top-p", "1")
    lines = out.splitlines()
    assert (code, lines[0], lines[-1]) == (0, f"{' Serving Benchmark Result ':=^50}", "=" * 50)
    for line, row in zip(lines[1:-1], ROWS, strict=True):
        if row[0] == "-":
            assert line == f"{row.strip('-'):-^50}"
        else:
            assert line[:40].rstrip() == row
            assert float(line[41:]) >= 0
    assert "prebleexp: no effect here: --top-p\n" in err
    plain = command("bench-serve", *H100, "--", *SMALL, "--skip-tokenizer-init")[1]
    assert not {"token throughput", "generated", "TTFT"} & {one for one in ROWS if one in plain}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang", "preble"])
def test_times_are_those_of_the_run_and_gaps_those_of_its_steps(engine: str) -> None:
    asked = ["workload=vllm_bench", "workload.num_prompts=80", "workload.random_output_len=40"]
    asked += ["workload.random_range_ratio=.5", "workload.request_rate=40", "workload.max_concurrency=16"]
    cell = configure.cells(["gpus=2", *(H100[1:] if engine != "preble" else []), f"engine={engine}", *asked])[0]
    steps = Steps()
    made = run(cell, on_event=steps)
    seen = served(made, steps)
    assert isinstance(cell.workload, VllmBench)
    found = result(seen, cell.workload, Wanted(), DATE).fields
    assert found["mean_ttft_ms"] == pytest.approx(1000 * made.metrics["ttft_mean_s"], rel=1e-9)
    assert found["p99_ttft_ms"] == pytest.approx(1000 * made.metrics["ttft_p99_s"], rel=1e-9)
    assert found["mean_tpot_ms"] == pytest.approx(1000 * made.metrics["tpot_mean_s"], rel=1e-9)
    assert found["completed"] == made.metrics["n_finished"] == 80
    assert found["duration"] == made.outcome.finish_s.max()
    print(f"{engine}: tokens of {80 - seen.spread} of 80 requests are of known steps")
    assert seen.spread == 0
    for row, gaps in enumerate(seen.gaps_s):
        assert gaps.sum() == pytest.approx(seen.latency_s[row] - seen.ttft_s[row], abs=1e-6)
        assert (gaps > 0).all()
    ends = {round(end, 7) for end in steps.columns()["end_s"].tolist()}
    tokens = seen.start_s[0] + seen.ttft_s[0] + np.cumsum(seen.gaps_s[0])
    assert engine == "preble" or {round(one, 7) for one in tokens.tolist()} <= ends


def test_gaps_of_those_that_leave_the_batch_are_even_and_that_is_said(command: Run) -> None:
    line = ["--num-prompts", "40", "--random-input-len", "400", "--random-output-len", "400"]
    code, _, err = command("bench-serve", *H100, "hardware.kv_tokens=8000", "--", *line)
    assert code == 0
    assert "of 40 requests it is not known in which steps their tokens came" in err


# ---------------------------------------------------------------- of any run
@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "says"),
    [
        (("workload=react", "rps=6", "duration_s=5"), "request_rate is that at which requests came"),
        (("workload=chats", "workload.load=population", "workload.lanes=3", "duration_s=20"), "number of users, 3"),
        (("workload=vllm_bench", "workload.num_prompts=12", "workload.max_concurrency=2"), ""),
        (("workload=bench_log", f"workload.path={TOOLS / 'vllm_poisson.json.gz'}"), "request_rate is that"),
    ],
)
def test_any_run_can_be_written_as_the_tool_would(command: Run, load: tuple[str, ...], says: str) -> None:
    code, out, err = command(*H100, *load, "output=vllm_bench")
    made = json.loads(out)
    assert (code, list(made)) == (0, list(real("poisson")))
    metrics = json.loads(command(*H100, *load, "output=json")[1])[0]
    assert made["completed"] == made["num_prompts"] == metrics["n_finished"] == len(made["ttfts"])
    for theirs, ours in (
        ("mean_ttft_ms", "ttft_mean_s"),
        ("p99_ttft_ms", "ttft_p99_s"),
        ("mean_tpot_ms", "tpot_mean_s"),
    ):
        assert made[theirs] == pytest.approx(1000 * metrics[ours], rel=1e-9)
    assert says in err
    if says.startswith("request_rate"):
        assert made["request_rate"] == pytest.approx(metrics["offered_per_s"], rel=0.2)
    Path("it.json").write_text(out)
    assert command("compare-bench", "it.json", *H100)[0] == 0


def test_a_sweep_is_no_result_of_the_tool(command: Run) -> None:
    code, _, err = command("-m", "gpus=1,2", "output=vllm_bench", "report=none")
    assert (code, "output=vllm_bench is not valid for a sweep" in err) == (2, True)


# ---------------------------------------------------------------- measured and simulated
def test_what_is_written_is_read_as_the_benchmark_that_it_was(command: Run) -> None:
    line = (*SMALL, "--request-rate", "15", "--save-result", "--save-detailed", "--result-filename", "it.json")
    assert command("bench-serve", *H100, "--", *line)[0] == 0
    made = json.loads(Path("it.json").read_text())
    again = compared.read("it.json").settings
    asked = [f"{name}={value}" for name, value in again.items() if value is not None]
    for load in (
        ["workload=bench_log", "workload.path=it.json", "workload.load=recorded"],
        ["workload=vllm_bench", *asked],
    ):
        cell = configure.cells([*H100, *load])[0]
        drawn = cell.workload.draw(rps=1, duration_s=1, seed=0, output_length=cell.output_length)
        assert drawn.prompt_tokens.tolist() == made["input_lens"]
        assert drawn.output_tokens.tolist() == made["output_lens"]
        assert drawn.arrival_s == pytest.approx(np.array(made["start_times"]) - made["start_times"][0], abs=1e-9)
    code, out, err = command("compare-bench", "it.json", *H100, "output=json")
    assert code == 0
    ratios = {name: one["ratio"] for name, one in json.loads(out)["fields"].items() if one["measured"]}
    assert {"mean_ttft_ms", "p99_itl_ms", "std_tpot_ms", "duration", "max_concurrent_requests"} <= set(ratios)
    first = made["start_times"][0]  # the measuring client waited so long before it sent any
    ratios["duration"] += first / made["duration"]
    for name in ("mean_ttft_ms", "median_ttft_ms", "mean_tpot_ms", "mean_itl_ms", "duration"):
        assert ratios[name] == pytest.approx(1, abs=0.01), name
    assert "requests come when they came to the measuring client" in err


def test_a_measured_file_without_details_is_compared_by_its_means(command: Run) -> None:
    found = {key: value for key, value in real("clients").items() if not isinstance(value, list)}
    Path("it.json").write_text(json.dumps(found | {"request_goodput": 3.0, "failed": 2}))
    code, out, err = command("compare-bench", "it.json", *H100)
    table, _, parts = out.partition("\n\n")
    assert [line.split("  ")[0] for line in parts.splitlines()][1:] == [
        "the first token: host, prefill and queue",
        "decoding, by the usual gap between tokens",
        "gaps beyond the usual one, while others' prompts are computed",
        "latency",
    ]
    lines = [line.split() for line in table.splitlines()]
    assert (code, lines[0]) == (0, ["field", "measured", "simulated", "simulated", "/", "measured"])
    names = [line[0] for line in lines[1:]]
    assert names == [key for key in found if key in compared.OVER_ALL or key.endswith("_ms")]
    assert ["completed", "16", "16", "1"] in lines
    for said in ("the measured means", "request_rate=inf", "2 requests that failed", "request_goodput is left out"):
        assert said in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1]", "not the JSON of a result"),
        ('{"completed": 3}', "total_input_tokens=None is not valid"),
        (json.dumps(dict.fromkeys(compared.NEEDED, 0)), "nothing was served"),
    ],
)
def test_what_is_no_result_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "it.json"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=said):
        compared.read(str(path))


def test_the_recording_of_a_real_run_is_played_at_its_times() -> None:
    settings = compared.read(str(TOOLS / "vllm_capped.json.gz")).settings
    assert settings["workload.self_timed"] is True
    assert settings["workload.max_concurrency"] == 2
