"""Step times against measurements: the equations by hand, the fit, its errors, one's own runs, and bad files."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import math
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml

from prebleexp.__main__ import main
from prebleexp.commands.hardware_check import sizes
from prebleexp.errors import InvalidInput
from prebleexp.hardware import checked, fitting, measurements, own_runs
from prebleexp.hardware.equations import closed_loop_s, coefficients, step_s
from prebleexp.hardware.fitting import CONFIGURATION, POOLED, PRIOR
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.measurements import ClosedLoops
from prebleexp.hardware.model import Model
from prebleexp.hardware.parameters import ANY, MEASURED, NAMES, Parameters, parameters_for, shipped
from prebleexp.launch import configure

PLAIN = Parameters(
    e_c=0.5, e_m=0.5, e_xc=0.5, e_xm=0.5, t_layer=1e-4, t_moe=0.0, t_step=1e-3, t_req=1e-5,
    a0=0.02, a1=1e-6, f=1.0, v=1.0,
)  # fmt: skip
TINY = Model(
    name="tiny", layers=10, hidden=1000, heads=10, kv_heads=2, head_dim=100, ffn=2000, vocab=5000, context_length=9999
)
ROUND = Gpu(
    name="round", bf16_tflops=100.0, fp8_tflops=200.0, fp4_tflops=0.0, hbm_gb_s=1000.0, memory_gb=80.0,
    all_reduce=((2, 5.0, 100.0),),
)  # fmt: skip


def values(p: Parameters) -> dict[str, float]:
    return {name: getattr(p, name) for name in NAMES}


@cache
def loops() -> ClosedLoops:
    return checked.shipped_loops(sizes())


# ---------------------------------------------------------------- the equations
def test_a_step_is_what_one_works_out_by_hand() -> None:
    """Four requests decode with 1,000 tokens of context each. A layer has 2.4e6 weights of attention and 6e6 of FFN."""
    of = coefficients(ROUND, TINY, 1, "bf16", "bf16", "bf16")
    weights = 10 * (2.4e6 + 6e6)
    linear = ((2 * 4 * weights / 50e12) ** 4 + (2 * weights / 500e9) ** 4) ** 0.25
    head = ((2 * 4 * 5e6 / 50e12) ** 4 + (2 * 5e6 / 500e9) ** 4) ** 0.25
    context = 4000 * (10 * 2 * 2 * 100 * 2) / 850e9  # of a GPU whose kernels were not measured
    elementwise = 24 * 10 * 4 * 1000 / 1000e9
    hand = 1e-3 + 10 * 1e-4 + linear + head + context + elementwise + 4 * 1e-5
    assert step_s(of, values(PLAIN), 4.0, 4.0, 4000.0, 0.0) == pytest.approx(hand, rel=1e-12)
    prefill = step_s(of, values(PLAIN), 4.0, 4.0, 4000.0, 5000.0) - hand
    assert prefill == pytest.approx(5000 * 10 * 4 * 10 * 100 / 60e12, rel=1e-6)
    both = coefficients(ROUND, TINY, 2, "bf16", "bf16", "bf16")
    assert both.latency == pytest.approx(2 * 10 * 5e-6)
    assert both.token - of.token == pytest.approx(2 * 10 * 4 * 1000 / 2 / 100e9)


def test_it_is_the_step_that_the_simulator_takes() -> None:
    line = ["hardware=composed", "hardware/gpu=b200", "hardware/model=deepseek_r1", "engine=sglang"]
    one = configure.cells([*line, "hardware.tensor_parallel=8", "hardware.precision=fp8"])[0].hardware
    of = coefficients(one.gpu, one.model, 8, "fp8", "fp8", one.kv_precision)
    for running, context in ((1, 100), (64, 200_000)):
        seconds = one.kernels().decode_s(None, one.start(), running, context, context, 1)
        assert seconds == pytest.approx(step_s(of, values(one.parameters), running, running, context, 0.0), rel=1e-9)


def test_a_closed_loop_of_one_client_alternates_prefill_and_decode() -> None:
    of = coefficients(ROUND, TINY, 1, "bf16", "bf16", "bf16")
    one, prompt, output, shortest = (np.array([x]) for x in (1.0, 500.0, 400.0, 0.8))
    tpot, ttft = closed_loop_s(of, values(PLAIN), one, prompt, output, shortest)
    decode = step_s(of, values(PLAIN), 1.0, 1.0, 700.0, 0.0)
    assert tpot[0] == pytest.approx(decode, rel=0.01)
    prefill = step_s(of, values(PLAIN), 500.0, 1.0, 0.0, 125_000.0)
    assert 0.02 + 500e-6 + prefill < ttft[0] < 0.02 + 500e-6 + 1.1 * prefill + decode
    more = closed_loop_s(of, values(PLAIN), 8 * one, prompt, output, shortest)
    assert more[0][0] > tpot[0]
    assert more[1][0] > ttft[0]


# ---------------------------------------------------------------- the fit
def test_it_finds_the_parameters_that_made_the_data() -> None:
    few = loops().take(np.arange(0, len(loops()), 4))
    true = Parameters(**{**values(PRIOR), "t_layer": 55e-6, "e_m": 0.7, "a0": 0.05})
    tpot, ttft = few.predict(values(true))
    made = ClosedLoops(**{**vars(few), "tpot_s": tpot, "ttft_s": ttft})
    found = fitting.fit(made, POOLED)
    errors = np.abs(found.predict(made)[0] / tpot - 1)
    assert np.median(errors) < 0.002
    assert found.at().t_layer == pytest.approx(55e-6, rel=0.05)
    assert found.at().e_m == pytest.approx(0.7, rel=0.05)


def test_prompts_that_an_engine_gathers_for_twenty_steps_wait_for_nearly_twenty() -> None:
    """TensorRT-LLM did so where 1,024 tokens were answered by 1,024 (batch_wait_timeout_iters: 20), not where they were
    by 8,192; else the same runs. 17.4 steps in the median of 27."""
    of = loops()
    rows = {
        (*key, clients): (ttft, tpot)
        for *key, clients, ttft, tpot in zip(
            *(of.labels[name].tolist() for name in ("gpu", "engine", "model", "precision", "tp")),
            np.round(of.prompt).tolist(), np.round(of.output).tolist(), of.held.tolist(), of.clients.tolist(),
            of.ttft_s.tolist(), of.tpot_s.tolist(), strict=True,
        )
    }  # fmt: skip
    waited = []
    for (*key, prompt, output, held, clients), (ttft, tpot) in rows.items():
        freely = rows.get((*key, prompt, 7373, 0.0, clients)) or rows.get((*key, prompt, 7372, 0.0, clients))
        if held == 20 and output < 1000 and freely:
            waited.append((ttft - freely[0]) / tpot)
    waited = [one for one in waited if math.isfinite(one)]
    assert len(waited) == 27
    assert 17 < np.median(waited) < 20
    assert np.quantile(waited, 0.1) > 14


def test_first_tokens_that_are_like_no_other_models_are_not_fitted_for_those() -> None:
    few = loops().take(np.arange(0, len(loops()), 4))
    late = np.where(few.labels["model"] == "deepseek-r1", 10 * few.ttft_s, few.ttft_s)
    same, other = (fitting.fit(one, POOLED).at() for one in (few, dataclasses.replace(few, ttft_s=late)))
    assert same == other
    assert fitting.fit(few, dataclasses.replace(POOLED, apart=())).at().a0 > 1.2 * same.a0


def test_late_first_tokens_of_one_model_are_not_those_of_its_gpu_and_engine() -> None:
    """Of SGLang on an H200 only DeepSeek-R1's first tokens are known; of Llama-3.1-8B there, TPOT alone."""
    deepseek, llama = (shipped()["h200", "sglang", *of]["any", "any"] for of in _SGLANG)
    assert llama.a0 < 0.045 < 3 * llama.a0 < deepseek.a0


_SGLANG = (("deepseek-r1", "fp8"), ("llama-3.1-8b", "fp8"))


def test_what_was_never_measured_has_its_engines_experts_and_all_else_as_any() -> None:
    pooled = values(shipped()[ANY]["any", "any"])
    for engine in ("sglang", "trtllm", "vllm"):
        own = values(shipped()["any", engine, "any", "any"]["any", "any"])
        assert {name for name in NAMES if own[name] != pooled[name]} == {"e_xc", "e_xm", "t_moe"}


def test_clients_that_began_together_wait_longer_the_more_alike_their_answers_are() -> None:
    of = coefficients(ROUND, TINY, 1, "bf16", "bf16", "bf16")
    clients, prompt, output = (np.full(3, x) for x in (16.0, 500.0, 400.0))
    tpot, ttft = closed_loop_s(of, values(PLAIN), clients, prompt, output, np.array([0.1, 0.8, 1.0]))
    assert tpot[0] == tpot[1] == tpot[2]
    assert ttft[0] < ttft[1] < ttft[2]


def test_parameters_are_physical() -> None:
    for rows in shipped().values():
        for one in rows.values():
            assert all(value > 0 for value in values(one).values())
            assert max(one.e_c, one.e_m, one.e_xc, one.e_p) < 1
            assert max(one.e_xm, one.e_kv) < 1.2  # of 1: experts touched, and the cache's precision, are assumed


def test_a_folders_sizes_leave_what_kernels_of_a_known_gpu_reach(tmp_path: Path) -> None:
    """A gpus.csv beside measurements took 12 % more or less off what an H200 reads in FP8."""
    heads = "gpu,bf16_tflops,hbm_gb_s,hbm_gb_usable"
    (tmp_path / "gpus.csv").write_text(f"{heads}\nh200,989,4800,150.1\nh300,2000,8000,200\n")
    known, given = sizes().gpus["h200"], sizes().with_tables_of(tmp_path).gpus
    assert (given["h200"].attention, given["h200"].sms) == (known.attention, known.sms)
    assert given["h300"].attention == ()


def test_no_shipped_parameters_read_kv_faster_than_memory() -> None:
    gpus = sizes().gpus
    for (name, _, _, _), rows in shipped().items():
        of = [gpus[name]] if name != "any" else list(gpus.values())
        for one, gpu, kv in product(rows.values(), of, ("bf16", "fp8")):
            assert gpu.reading(kv)[0] * one.e_kv < gpu.hbm_gb_s * 1e9


def test_an_unmeasured_version_or_group_has_what_is_common() -> None:
    key = ("h200", "vllm", "minimax-m2.5", "fp8")
    newest, support = parameters_for(*key, moe=True)
    assert newest == shipped()[key]["0.18.0", "any"]
    assert parameters_for(*key, version="9.9", tp=3)[0] == shipped()[key]["any", "any"]
    assert parameters_for(*key, version="0.16.0", tp=4)[0] == shipped()[key]["0.16.0", "4"]
    assert (support.level, support.n) == ("measured", 24)
    assert support.against == "serving runs of vllm 0.16.0 0.18.0 on h200, of one source"
    unseen = parameters_for("h200", "vllm", "qwen3-235b", "fp8", moe=True)
    assert unseen[0] == shipped()["any", "vllm", "any", "any"]["any", "any"]
    assert parameters_for("h200", "any", "qwen3-235b", "fp8", moe=True)[0] == shipped()[ANY]["any", "any"]
    assert unseen[1].level == "unseen model"
    assert parameters_for("a100", "vllm", "qwen3-32b", "bf16")[1].level == "kernels only"
    assert parameters_for("a100", "vllm", "qwen3-235b", "bf16", moe=True)[1].level == "theory"


def test_a_request_takes_what_the_newest_version_on_its_gpu_takes() -> None:
    """Qwen3-32B was served by vLLM 0.12.0, others by 0.18.0: on an H100 a request adds half as much to a step there."""
    of = shipped()["h100", "vllm", "qwen3-32b", "bf16"]
    old, new = of["0.12.0", "2"], of["0.18.0", "2"]
    assert new == dataclasses.replace(old, t_req=new.t_req)
    assert 0.4 < new.t_req / old.t_req < 0.8
    taken, support = parameters_for("h100", "vllm", "qwen3-32b", "bf16", tp=2)
    assert taken == new
    assert support.against == "serving runs of vllm 0.12.0 on h100, of one source, with 0.18.0's time per request"


@pytest.mark.slow
def test_shipped_parameters_are_what_the_fit_gives() -> None:
    """To what linear algebra differs by from machine to machine: predictions, since parameters are weakly known."""
    text = (MEASURED / "parameters.csv").read_text(encoding="utf-8")
    kept, made = (list(csv.DictReader(one.splitlines())) for one in (text, checked.parameters_csv(loops())))
    labels = (*CONFIGURATION, "version", "tp")
    assert [[row[name] for name in labels] for row in kept] == [[row[name] for name in labels] for row in made]
    for old, new in zip(kept, made, strict=True):
        assert [float(old[name]) for name in NAMES] == pytest.approx([float(new[name]) for name in NAMES], rel=0.02)


# ---------------------------------------------------------------- errors
@pytest.mark.slow
def test_the_table_of_errors_keeps_its_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware", "check", "output=json"]) == 0
    rows = json.loads(capsys.readouterr().out)

    def error(metric: str, **labels: str) -> tuple[float, float]:
        wanted = {"gpu": "*", "engine": "*", "model": "*", "precision": "*", "origin": "*", **labels}
        one = [row for row in rows if row["metric"] == metric and all(row[name] == wanted[name] for name in wanted)]
        assert len(one) == 1
        return one[0]["median_error"], one[0]["p90_error"]

    everything = dict.fromkeys(CONFIGURATION, "all")
    kernels = {"decode_attention", "decode_attention_over_400_mb", "prefill_attention", "mixed_attention"}
    assert {row["metric"] for row in rows if row["gpu"] == "all"} == {"tpot", "ttft", "kv_tokens"} | kernels
    assert sum(row["gpu"] == "all" for row in rows) == 7
    for row in rows:
        if row["metric"] in kernels - {"decode_attention_over_400_mb"}:
            assert (row["median_error"] <= 0.08, row["p90_error"] <= 0.25) == (True, True), row
    assert np.all(np.array(error("tpot", **everything)) <= (0.04, 0.12))
    assert np.all(np.array(error("tpot", engine="vllm", origin="inferencex")) <= (0.04, 0.09))
    assert np.all(np.array(error("ttft", engine="vllm", origin="inferencex")) <= (0.08, 0.24))
    assert np.all(np.array(error("ttft", **everything)) <= (0.08, 0.27))
    assert np.all(np.array(error("ttft", model="unseen")) <= (0.21, 0.57))
    assert np.all(np.array(error("tpot", model="unseen")) <= (0.11, 0.34))
    assert np.all(np.array(error("kv_tokens", **everything)) <= (0.01, 0.02))


def test_rows_that_do_not_ship_are_predicted_by_what_ships(tmp_path: Path) -> None:
    write(tmp_path / "closed_loop.csv", [row(concurrency="8"), row(concurrency="128", model="new")])
    (tmp_path / "models.csv").write_text(
        "model,layers,hidden,heads,kv_heads,head_dim,ffn,vocab\nnew,40,5120,40,8,128,13824,32000\n"
    )
    found = measurements.closed_loops(tmp_path / "closed_loop.csv", sizes().with_tables_of(tmp_path))
    predicted = checked.predict(found, loops())
    assert predicted.measured.tolist() == [True, False]
    rows = checked.table(predicted, checked.predict_unseen(found, loops()))
    assert [one["n"] for one in rows if one["gpu"] == "all"] == [2, 1]
    assert [one["n"] for one in rows if one["model"] == "unseen" and one["gpu"] == "*"] == [1]


def test_a_row_that_ships_is_left_out() -> None:
    """Its prediction does not change with what was measured, however far off that is."""
    one = loops().take(np.arange(0, len(loops()), 12))
    chosen = one.take(np.arange(3))
    twice = ClosedLoops(**{**vars(one), "tpot_s": np.where(np.arange(len(one)) < 3, 100.0, one.tpot_s)})
    first, second = (checked.predict_unseen(chosen, given).times[0] for given in (one, twice))
    assert first == pytest.approx(second)


# ---------------------------------------------------------------- one's own runs
def row(**changed: str) -> dict[str, str]:
    plain = {"gpu": "h200", "engine": "vllm", "model": "llama-3.1-70b", "weights": "fp8", "tp": "2", "isl": "1000"}
    return {**plain, "osl": "500", "concurrency": "4", "ttft_ms": "120", "tpot_ms": "15", **changed}


def write(path: Path, rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


SLOW = Parameters(**{**values(PRIOR), "f": 2.0, "v": 1.4})


def own_rows() -> list[dict[str, str]]:
    """Eight, of an engine that is twice as slow in what is fixed."""
    given = [row(concurrency=str(n), isl=str(length)) for n in (1, 4, 16, 32) for length in (500, 4000)]
    of = measurements.loops_of([("here", one) for one in given], sizes())
    tpot, ttft = of.predict(values(SLOW))
    return [
        {**one, "tpot_ms": f"{1e3 * a:.4f}", "ttft_ms": f"{1e3 * b:.4f}"}
        for one, a, b in zip(given, tpot, ttft, strict=True)
    ]


@pytest.mark.slow
def test_calibrated_runs_are_an_option_of_hardware(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my_runs.csv", own_rows())
    assert main(["calibrate", "hardware", "data=my_runs.csv"]) == 0
    said = capsys.readouterr().out.splitlines()
    file = tmp_path / "conf" / "hardware" / "h200_llama_3_1_70b_fp8_tp2_vllm.yaml"
    assert said[-1] == str(file.relative_to(tmp_path))
    written = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert written["evidence"]["n"] == 8
    assert written["evidence"]["median"] < 0.03
    one = configure.cells([f"hardware={file.stem}", "engine=vllm"])[0].hardware
    seconds = one.kernels().decode_s(None, one.start(), 16, 16_000, 16_000, 1)
    of = coefficients(one.gpu, one.model, 2, "fp8", "fp8", "fp8")
    assert seconds == pytest.approx(step_s(of, values(SLOW), 16, 16, 16_000, 0.0), rel=0.05)
    assert main(["calibrate", "hardware", "data=my_runs.csv"]) == 2
    assert "exists" in capsys.readouterr().err


def test_what_was_calibrated_is_a_document_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my_runs.csv", own_rows())
    assert main(["calibrate", "hardware", "data=my_runs.csv", "output=json"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["of"] == "8 runs of llama-3.1-70b in fp8 on 2 h200"
    assert found["file"] == "conf/hardware/h200_llama_3_1_70b_fp8_tp2_vllm.yaml"
    assert [one["name"] for one in found["stages"]] == [f"run {i}" for i in range(1, 9)]
    assert all(one["after"] < one["before"] for one in found["stages"])
    assert "the largest error is" in printed.err
    assert "none of 8 is farther off than before" in printed.err
    assert "TPOT by what ships" in printed.err


@pytest.mark.slow
def test_who_calibrated_sglang_is_told_to_simulate_sglang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my_runs.csv", [{**one, "engine": "sglang"} for one in own_rows()])
    assert main(["calibrate", "hardware", "data=my_runs.csv"]) == 0
    hint = capsys.readouterr().err.splitlines()[-1]
    assert hint == "use it: python -m prebleexp hardware=h200_llama_3_1_70b_fp8_tp2_sglang engine=sglang"
    assert configure.cells(hint.removeprefix("use it: python -m prebleexp ").split())


def test_results_of_bench_serving_are_the_same_runs(tmp_path: Path) -> None:
    known = {"gpu": "h200", "engine": "vllm", "model": "llama-3.1-70b", "weights": "fp8", "tp": "2"}
    results = [
        {
            "max_concurrency": int(one["concurrency"]),
            "completed": 40,
            "num_prompts": 40,
            "total_input_tokens": 40 * int(one["isl"]),
            "total_output_tokens": 40 * int(one["osl"]),
            "mean_ttft_ms": float(one["ttft_ms"]),
            "mean_tpot_ms": float(one["tpot_ms"]),
        }
        for one in own_rows()
    ]
    (tmp_path / "all.jsonl").write_text("\n".join(map(json.dumps, results)))
    found = measurements.loops_of(own_runs.read(tmp_path / "all.jsonl", known), sizes())
    table = measurements.loops_of([("here", one) for one in own_rows()], sizes())
    for name in ("clients", "prompt", "output", "tpot_s", "ttft_s"):
        assert getattr(found, name) == pytest.approx(getattr(table, name))
    results[0]["max_concurrency"] = None
    (tmp_path / "one.json").write_text(json.dumps(results[0]))
    with pytest.raises(InvalidInput, match=r"one.json, result 1: max_concurrency is missing"):
        own_runs.read(tmp_path / "one.json", known)
    with pytest.raises(InvalidInput, match=r"result 1: it does not say gpu; set gpu="):
        own_runs.read(tmp_path / "all.jsonl", {})


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"request_rate": 0.5, "request_throughput": 0.49}, "request_rate=0.5 under max_concurrency=256 is no fixed"),
        ({"request_rate": 0.5}, "request_rate=0.5 under max_concurrency=256 is no fixed number of clients"),
        ({"request_rate": "inf", "concurrency": 9.5}, "max_concurrency=256 is not the number of clients, as 9.5 req"),
        ({"request_throughput": 2.0, "mean_e2el_ms": 4000.0}, "max_concurrency=256 is not the number of clients, as 8"),
    ],
)
def test_a_cap_that_is_not_the_number_of_clients_is_refused(other: dict[str, object], why: str, tmp_path: Path) -> None:
    known = {"gpu": "h200", "engine": "vllm", "model": "llama-3.1-70b", "weights": "fp8", "tp": "2"}
    result = {"max_concurrency": 256, "completed": 300, "total_input_tokens": 300, "total_output_tokens": 300}
    result |= {"mean_ttft_ms": 30, "mean_tpot_ms": 7}
    (tmp_path / "one.json").write_text(json.dumps(result | other))
    with pytest.raises(InvalidInput, match=why):
        own_runs.read(tmp_path / "one.json", known)
    held_back = {"request_rate": 40.0, "request_throughput": 20.0, "concurrency": 250.0}
    (tmp_path / "one.json").write_text(json.dumps(result | held_back))
    assert own_runs.read(tmp_path / "one.json", known)[0][1]["concurrency"] == "256"


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "served"), [("sglang", "sglang"), ("vllm", "vllm"), ("trtllm", "vllm")])
def test_what_was_fitted_is_to_be_used_with_its_own_engine(
    engine: str, served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my_runs.csv", [one | {"engine": engine} for one in own_rows()])
    assert main(["calibrate", "hardware", "data=my_runs.csv"]) == 0
    assert f"engine={served}" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.nightly
@pytest.mark.slow
def test_eight_runs_bring_an_unknown_configuration_to_six_percent() -> None:
    """Each measured configuration of 16 rows and more is taken out of the tables, and eight of its rows are given."""
    every, keys, medians = loops(), loops().keys(CONFIGURATION), []
    for key in fitting.labels_of(every, CONFIGURATION):
        own = np.array([each == key for each in keys])
        if own.sum() >= 16:
            base = fitting.fit(every.take(~own), POOLED).at()
            of = every.take(own)
            order = np.lexsort((of.labels["tp"].astype(int), of.output, of.prompt, of.clients))
            given = order[np.round(np.linspace(0, len(of) - 1, 8)).astype(int)]
            others = of.take(np.setdiff1d(np.arange(len(of)), given))
            tpot, _ = fitting.fit(of.take(given), own_runs.OWN, base).predict(others)
            before, _ = others.predict(values(base))
            medians.append([float(np.median(np.abs(one / others.tpot_s - 1))) for one in (before, tpot)])
    before, after = np.median(medians, axis=0)
    print(f"{len(medians)} configurations: {before:.1%} before, {after:.1%} after")
    assert len(medians) > 20
    assert after <= 0.06 < before


# ---------------------------------------------------------------- what is not valid
def test_bad_files_are_said_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def check(*rows: dict[str, str]) -> str:
        write(tmp_path / "closed_loop.csv", list(rows))
        assert main(["hardware", "check", f"data={tmp_path}"]) == 2
        said = capsys.readouterr().err.strip()
        assert "\n" not in said
        return said

    lacking = row()
    del lacking["tpot_ms"]
    assert "has no column tpot_ms" in check(lacking)
    assert "row 3: tpot_ms=none is not valid" in check(row(), row(tpot_ms="none"))
    assert "row 2: unknown model 'llama-4'" in check(row(model="llama-4"))
    assert "row 2: unknown gpu 'h300'" in check(row(gpu="h300"))
    assert "row 2: unknown weights 'fp5'" in check(row(weights="fp5"))
    assert "row 2: tp=3 is not valid" in check(row(tp="3"))
    assert "row 2: concurrency=-1 is not valid" in check(row(concurrency="-1"))
    assert "row 2: held_steps=-1 is not valid" in check(row(held_steps="-1"))
    (tmp_path / "closed_loop.csv").write_text("gpu,engine\nh100\n")
    assert main(["hardware", "check", f"data={tmp_path}"]) == 2
    (tmp_path / "closed_loop.csv").unlink()
    assert main(["hardware", "check", f"data={tmp_path}"]) == 2
    assert "there is nothing to check" in capsys.readouterr().err
    (tmp_path / "closed_loop.csv.gz").write_bytes(gzip.compress(b"gpu")[:-4])
    assert main(["hardware", "check", f"data={tmp_path}"]) == 2
    assert main(["hardware", "check", f"data={tmp_path / 'none'}"]) == 2
    assert main(["calibrate", "hardware"]) == 2


def test_runs_of_several_configurations_are_not_fitted_together() -> None:
    mixed = measurements.loops_of([("here", row(tp=tp)) for tp in ("1", "2", "2", "2")], sizes())
    with pytest.raises(InvalidInput, match=r"several configurations: tp is 1, 2"):
        own_runs.calibrate(mixed)
    with pytest.raises(InvalidInput, match="too few"):
        own_runs.calibrate(mixed.take(np.arange(2)))
