"""Hardware composed of a GPU, a model, an engine and a precision: its equations, its laws, its memory, and how it is
chosen."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.commands.hardware_check import sizes
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import key
from prebleexp.hardware import composed, composed_step
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import Model
from prebleexp.hardware.parameters import MEASURED, Parameters, parameters_for
from prebleexp.hardware.parameters import shipped as shipped_parameters
from prebleexp.hardware.touched import FILE, sizes_csv
from prebleexp.hardware.transfers import paths
from prebleexp.launch import configure
from prebleexp.sim.compiled import INTERPRETED, compiled
from prebleexp.testing import check_cost
from tests.support.places import ROOT

FOLDER = ROOT / "conf" / "hardware"


def cell(*overrides: str) -> Cell:
    return configure.cells(["hardware=composed", *overrides])[0]


def hardware(*overrides: str) -> Composed:
    made = cell(*overrides).hardware
    assert isinstance(made, Composed)
    return made


def options(group: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / group).glob("*.yaml"))


def base(kind: str) -> Composed:
    """A plain one, or one with experts, or with latent attention."""
    lines = {
        "dense": ["hardware/model=llama_3_1_70b", "hardware/gpu=h100", "hardware.tensor_parallel=4"],
        "experts": ["hardware/model=gpt_oss_120b", "hardware/gpu=h200"],
        "latent": ["hardware/model=deepseek_r1", "hardware/gpu=b200", "hardware.tensor_parallel=8"],
    }[kind]
    return hardware(*lines, "engine=vllm", f"hardware.precision={'fp8' if kind == 'latent' else 'bf16'}")


KINDS = ("dense", "experts", "latent")


# ---------------------------------------------------------------- the equations
def equation_s(of: Composed, tokens: int, sequences: int, context: int, pairs: float) -> float:
    """The step of spec hardware.md, term by term."""
    gpu, m, g, p = of.gpu, of.model, of.tensor_parallel, of.parameters
    assert p is not None
    width = {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5625, "int4": 0.53}
    peak = {"bf16": gpu.bf16_tflops, "int4": gpu.bf16_tflops, "fp8": gpu.fp8_tflops, "fp4": gpu.fp4_tflops}
    f16, flops, bandwidth = gpu.bf16_tflops * 1e12, peak[of.precision] * 1e12, gpu.hbm_gb_s * 1e9
    x_flops = {"fp8": 0.55, "fp4": 0.5}.get(of.precision, 1.0) * flops
    if m.expert_precision:
        x_flops = 0.55 * gpu.fp8_tflops * 1e12 if gpu.fp4_tflops else f16
    x_bytes = width[m.expert_precision or of.precision]
    one = (3 if m.gated else 2) * m.hidden * m.ffn
    attention = m.hidden * (m.heads + 2 * m.kv_heads) * m.head_dim + m.heads * m.head_dim * m.hidden
    kept, pair, shared = 2 * m.kv_heads * m.head_dim, 4 * m.heads * m.head_dim, min(g, m.kv_heads)
    if m.mla_latent:
        attention = m.hidden * m.mla_q_rank + m.mla_q_rank * m.heads * m.head_dim + m.hidden * m.mla_latent
        attention += 512 * m.heads * 256 + m.heads * 128 * m.hidden
        kept, pair, shared = m.mla_latent, 2 * m.heads * (192 + 128), 1
    ffn = m.shared * one + m.hidden * m.experts if m.experts else one
    sparse = m.layers - m.dense_layers
    p_linear = m.layers * attention + sparse * ffn + m.dense_layers * 3 * m.hidden * m.dense_ffn
    rest = sharp(2 * tokens * p_linear / (g * flops * p.e_c), p_linear * width[of.precision] / (g * bandwidth * p.e_m))
    if m.experts:
        touched = m.experts * (1 - (1 - m.active / m.experts) ** tokens)
        rest += math.hypot(
            2 * tokens * sparse * m.active * one / (g * x_flops * p.e_xc),
            sparse * touched * one * x_bytes / (g * bandwidth * p.e_xm),
        )
    head = m.vocab * m.hidden
    rest += sharp(2 * sequences * head / (g * f16 * p.e_c), 2 * head / (g * bandwidth * p.e_m))
    read = context * (1 - m.window_share) + min(context, m.window * sequences) * m.window_share
    kv_bytes = {"bf16": 2, "fp8": 1}[str(of.kv_precision)]
    known = {precision: share for precision, share, _ in gpu.attention}
    reached = known.get(str(of.kv_precision), 0.85) * p.e_kv
    rest += m.layers * pair * pairs * (1 - m.window_share) / (g * f16 * p.e_p)
    if g > 1:
        us, rate = next((us, rate) for count, us, rate in gpu.all_reduce if count == g)
        rest += 2 * m.layers * (us / 1e6 + 4 * tokens * m.hidden * (g - 1) / (g * rate * 1e9))
    rest += 24 * m.layers * tokens * m.hidden / bandwidth + p.t_req * sequences
    fixed = p.t_step + m.layers * p.t_layer + (sparse * p.t_moe if m.experts else 0)
    return p.f * fixed + p.v * rest + m.layers * kept * kv_bytes * read / (shared * bandwidth * reached)


def sharp(one: float, other: float) -> float:
    return float((one**4 + other**4) ** 0.25)


def combinations() -> list[Composed]:
    """Of every model and every GPU on which it fits the smallest group, under the parameters of some engine."""
    models, gpus = ([load(group, one) for one in options(group)] for group in ("model", "gpu"))
    found = []
    for model, gpu in product(models, gpus):
        for precision, count in product(Gpu(**gpu).precisions, (1, 2, 4, 8)):
            try:
                one = Composed(gpu, model, "vllm", count, precision)
            except InvalidInput:
                continue
            found.append(one)
            break
    return found


def load(group: str, option: str) -> dict[str, Any]:
    import yaml

    given: dict[str, Any] = yaml.safe_load((FOLDER / group / f"{option}.yaml").read_text(encoding="utf-8"))
    return given


def test_a_step_is_what_the_equations_say() -> None:
    rng = np.random.default_rng(0)
    made = combinations()
    assert len(made) > 60
    assert {one.model.name for one in made} >= {"deepseek-r1", "gpt-oss-120b", "bloom-176b"}
    for one in made:
        cost = one.start()
        for _ in range(20):
            prefills, running = int(rng.integers(0, 4)), int(rng.integers(0, 500))
            cached, new = (int(x) for x in (rng.integers(0, 50_000), rng.integers(1, 9000)))
            new *= prefills > 0
            if running + new == 0:
                continue
            context = running * int(rng.integers(1, 20_000))
            ms = composed_step.request_ms(None, cost, new, cached + new)
            seconds = composed_step.step_s(None, cost, prefills, new, cached + new, running, context, context, ms)
            expected = equation_s(one, running + new, running + prefills, context, new * (cached + new / 2))
            assert seconds == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_decoding_add_up(kind: str) -> None:
    cost = base(kind).start()
    one_by_one = sum(composed_step.decode_s(None, cost, 8, 900 + 8 * i, 600 + 8 * i, 1) for i in range(50))
    assert composed_step.decode_s(None, cost, 8, 900, 600, 50) == one_by_one
    one = composed_step.step_s(None, cost, 0, 0, 0, 8, 900, 600, 0.0)
    assert composed_step.decode_s(None, cost, 8, 900, 600, 1) == one


def test_of_a_shared_prefix_that_is_reached_one_time_memory_gives_one_copy() -> None:
    """187 requests of 8,084 tokens on two H100 of Qwen3-32B: 132 multiprocessors with a head of four each read 33 of
    them at a time."""
    lines = ("hardware/gpu=h100", "hardware/model=qwen3_32b", "hardware.tensor_parallel=2", "engine=vllm")
    cost = hardware(*lines).start()
    assert cost.at_once == 33
    running, length = 187, 8084

    def read_s(unique: int) -> float:
        step = composed_step.step_s(None, cost, 0, 0, 0, running, running * length, unique, 0.0)
        return step - composed_step.step_s(None, cost, 0, 0, 0, running, 0, 0, 0.0)

    apart, alike = read_s(running * length), read_s(length)
    assert apart == pytest.approx(cost.context * running * length)
    times = running / 33  # each time that 33 are read, one of them loads it, if all share it
    assert alike == pytest.approx(length * (cost.context * times + cost.again * (running - times)), rel=1e-6)
    found = [read_s(int(unique)) for unique in np.linspace(1, running * length, 50)]
    assert found == sorted(found)
    assert read_s(running * length - 1) == pytest.approx(apart, rel=1e-5)
    few = composed_step.step_s(None, cost, 0, 0, 0, 33, 33 * length, length, 0.0)  # all are read at one time
    few -= composed_step.step_s(None, cost, 0, 0, 0, 33, 0, 0, 0.0)
    assert few == pytest.approx(length * (cost.context + 32 * cost.again), rel=1e-6)


def test_no_kv_is_read_faster_than_memory_but_what_a_cache_holds() -> None:
    for one in combinations():
        cost, gpu = one.start(), one.gpu
        share = one.model.kv_share(one.tensor_parallel)
        far = 1 - one.model.window_share
        assert cost.context >= one.kv_bytes * far / (share * gpu.hbm_gb_s * 1e9)
        assert cost.again <= cost.context


# ---------------------------------------------------------------- the laws
@compiled
def broken_laws(cost: Any, drawn: Any, most: Any) -> int:
    """How many of these steps are not positive, or cost less, or much more, with one more of something.

    `most`: what one more of each may add."""
    broken = 0
    more = np.zeros(6, np.int64)
    for row in range(len(drawn)):
        base_s = seconds_of(cost, drawn[row], more)
        broken += not base_s > 0
        for which in range(6):
            more[which] = 1
            added = seconds_of(cost, drawn[row], more) - base_s
            more[which] = 0
            # what requests share is loaded by each of those that are not read at one time
            loaded = 0.0
            if which == 3:
                loaded = cost.context * drawn[row, 4] / drawn[row, 3]
            elif which == 5:
                loaded = cost.context * max(1.0, drawn[row, 3] / cost.at_once)
            broken += not -1e-15 <= added <= most[which] + loaded + 1e-12
    return broken


@compiled
def seconds_of(cost: Any, row: Any, more: Any) -> float:
    """(prefills, new, cached, running, context, unique) and so much more of each."""
    prefills, new, cached = row[0] + more[0], row[1] + more[1], row[2] + more[2]
    ms = composed_step.request_ms(None, cost, new, cached + new)
    return composed_step.step_s(
        None, cost, prefills, new, cached + new, row[3] + more[3], row[4] + more[4], row[5] + more[5], ms
    )


@pytest.mark.slow
@pytest.mark.skipif(INTERPRETED, reason="a million steps take too long as plain Python")
def test_a_step_is_positive_continuous_and_never_less_for_more() -> None:
    """In 1,100,000 random comparisons."""
    rng = np.random.default_rng(1)
    checked = 0
    made = combinations()
    for one in made:
        cost = one.start()
        n = 1_100_000 // (6 * len(made)) + 1
        drawn = np.exp(rng.uniform(0, np.log([8, 16_000, 100_000, 1000, 4_000_000, 4_000_000]), (n, 6))).astype(int)
        token = cost.token + cost.linear_compute + cost.expert_compute
        token -= cost.expert_memory * cost.experts * (cost.log_missed if cost.experts else 0.0)
        sequence = cost.sequence + cost.head_compute + cost.near * cost.window
        pairs = cost.pair_ms / 1e3 * 130_000
        most = np.array([sequence, token + pairs, pairs, token + sequence, cost.context + cost.near, 0.0])
        assert broken_laws(cost, drawn, most) == 0, one.title
        checked += drawn.size
    assert checked > 1_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_it_keeps_the_contract(kind: str) -> None:
    check_cost(base(kind))


# ---------------------------------------------------------------- memory
def test_kv_is_what_engines_reported() -> None:
    """Within 2 % of the eight that logged it."""
    with (MEASURED / "kv_capacity.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    for row in rows:
        model = load("model", row["model"].replace("-", "_").replace(".", "_"))
        made = Composed(load("gpu", row["gpu"]), model, None, int(row["tp"]), row["weights"])
        assert made.kv_tokens == pytest.approx(int(row["kv_tokens"]), rel=0.02)


def test_kv_bytes_of_a_token_are_those_of_its_attention() -> None:
    expected = {"llama_3_1_8b": 131_072, "llama_3_1_70b": 327_680, "qwen3_32b": 262_144, "deepseek_r1": 70_272}
    for name, size in (expected | {"qwen3_235b": 192_512, "gpt_oss_120b": 73_728}).items():
        assert Model(**load("model", name)).kv_elements * 2 == size
    latent = [base("latent"), dataclasses.replace(base("latent"), tensor_parallel=4, kv_tokens=None)]
    assert {one.model.kv_share(one.tensor_parallel) for one in latent} == {1}  # every GPU has all of it
    heads = Model(**load("model", "qwen3_235b"))
    assert [heads.kv_share(gpus) for gpus in (1, 2, 4, 8)] == [1, 2, 4, 4]


def test_less_of_the_memory_is_less_kv() -> None:
    half = hardware("hardware.utilisation=0.6")
    assert 0 < half.kv_tokens < hardware().kv_tokens
    assert hardware("hardware.kv_precision=bf16").kv_tokens == pytest.approx(hardware().kv_tokens / 2, abs=1)
    assert hardware("hardware.kv_tokens=5000").kv_tokens == 5000
    assert hardware("hardware.kv_tokens=5000").context_length == 5000
    assert hardware("hardware.context_length=4096").context_length == 4096


def test_moving_kv_takes_what_was_measured() -> None:
    """A prompt of 8,192 tokens of Llama-3.1-70B in BF16, on one H100."""
    size = 8192 * 327_680
    found = {name: way.seconds(size) * 1e3 for name, way in paths(Gpu(**load("gpu", "h100"))).items()}
    assert found["nvlink"] == pytest.approx(7.5, rel=0.01)
    assert found["network"] == pytest.approx(75, rel=0.01)
    assert found["pcie"] == pytest.approx(54, rel=0.04)
    assert list(paths(Gpu(**load("gpu", "l40s")))) == ["network", "pcie", "nvme"]


# ---------------------------------------------------------------- how it is chosen
def test_gpu_and_model_are_groups_within_a_group() -> None:
    one = hardware("hardware/gpu=b200", "hardware/model=llama_3_1_70b", "hardware.tensor_parallel=2", "engine=vllm")
    assert (one.gpu_name, one.model.name, one.tensor_parallel, one.engine) == ("b200", "llama-3.1-70b", 2, "vllm")
    assert hardware("hardware.gpu.hbm_gb_s=9999").gpu.hbm_gb_s == 9999
    assert one.title == "llama-3.1-70b in bf16 on 2 b200, vllm"


@pytest.mark.parametrize(("engine", "project"), [("vllm", "vllm"), ("sglang", "sglang"), ("preble", "any")])
def test_whose_overheads_they_are_follows_the_engine(engine: str, project: str) -> None:
    one = hardware(f"engine={engine}", "hardware/gpu=h200", "hardware.precision=fp8", "hardware/model=llama_3_1_70b")
    assert one.engine == project
    shipped = parameters_for("h200", project, "llama-3.1-70b", "fp8", tp=1)
    assert (one.parameters, one.evidence) == shipped
    assert hardware(f"engine={engine}", "hardware.engine=trtllm").engine == "trtllm"


def test_the_key_knows_every_number() -> None:
    first = cell("engine=vllm")
    assert key(first) == key(cell("engine=vllm", "hardware.engine=vllm"))
    identity = first.identity()["hardware"]
    assert isinstance(identity, dict)
    assert identity["gpu"]["hbm_gb_s"] == 4800
    assert identity["parameters"] == dataclasses.asdict(first.hardware.parameters)  # type: ignore[attr-defined]
    others = ["hardware.engine=any", "hardware/gpu=b200", "hardware.gpu.hbm_gb_s=4801", "hardware.model.layers=37"]
    others += ["hardware.tensor_parallel=2", "hardware.utilisation=0.8", "hardware.kv_precision=bf16"]
    keys = {key(cell("engine=vllm", one)) for one in others}
    assert len(keys | {key(first)}) == 1 + len(others)


def test_tables_show_what_it_is_composed_of() -> None:
    row = cell("engine=vllm").columns()
    assert (row["hardware"], row["hardware.gpu"], row["hardware.model"]) == ("composed", "h200", "gpt-oss-120b")
    assert row["hardware.gpu.hbm_gb_s"] == 4800
    assert row["hardware.support"]
    assert "theory only" in hardware("hardware/gpu=l40s", "hardware/model=llama_3_1_8b", "engine=vllm").support
    assert "own engine" in configure.cells(["hardware=a6000_mistral_7b"])[0].columns()["hardware.support"]


def test_a_number_that_is_changed_is_theory() -> None:
    """Unless no step's time depends on it, or it is that of a GPU of one's own."""
    shipped = hardware("engine=vllm").support
    assert shipped.startswith("TPOT measured against")
    for line, says in {
        "hardware.gpu.hbm_gb_s=9600": "hardware.gpu.hbm_gb_s is 9600, and 4800 in h200",
        "hardware.model.layers=48": "hardware.model.layers is 48, and 36 in gpt-oss-120b",
        "hardware.gpu.all_reduce=[[2,9,99]]": "hardware.gpu.all_reduce is [[2, 9.0, 99.0]], and",
    }.items():
        assert hardware("engine=vllm", line).support.startswith(f"theory only: {says}")
    assert hardware("engine=vllm", "hardware.gpu.hbm_gb_s=4800").support == shipped
    assert hardware("engine=vllm", "hardware.gpu.memory_gb=120").support == shipped
    assert "nothing like it" in hardware("engine=vllm", "hardware.gpu.name=mine", "hardware.gpu.hbm_gb_s=9600").support


def test_numbers_that_ship_are_those_that_were_fitted_with() -> None:
    known = sizes()
    text = sizes_csv([*known.gpus.values(), *known.models.values()])
    assert text == (MEASURED / FILE).read_text(encoding="utf-8"), "python docs/hardware.py fits parameters again"


@pytest.mark.slow
def test_an_engine_without_a_frontend_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["gpus=1", "rps=2", "duration_s=2", "workers=1"]
    lines = {}
    for engine in ("released", "vllm"):
        assert main([f"engine={engine}", *short]) == 0
        lines[engine] = [line for line in capsys.readouterr().err.splitlines() if "leaves out" in line]
    (said,) = lines["released"]
    assert said.startswith(
        "prebleexp: engine=released leaves out the time before its queue that gpt-oss-120b in bf16 with experts in fp4"
    )
    assert lines["vllm"] == []
    assert main(["engine=released", "hardware=a6000_mistral_7b", *short]) == 0
    assert "leaves out" not in capsys.readouterr().err


WRONG = {
    "hardware/gpu=h300": "unknown hardware/gpu 'h300'; valid: a100, a40, b200",
    "hardware/gpu=a100 hardware/model=llama_3_1_8b hardware.precision=fp4": "one of bf16, int4 on a100",
    "hardware.tensor_parallel=3": "hardware.tensor_parallel=3 is not valid; it must be one of 1, 2, 4, 8",
    "hardware/gpu=a40 hardware/model=llama_3_1_8b hardware.tensor_parallel=2": "it must be 1 for llama-3.1-8b on a40",
    "hardware/gpu=h100 hardware/model=llama_3_1_70b": "on h100 these fit: tensor_parallel=2 precision=bf16",
    "hardware/gpu=a40 hardware/model=kimi_k2_5": "it fits on no number of a40",
    "hardware.engine=tgi": "hardware.engine=tgi is not valid; it must be one of vllm, sglang",
    "hardware.gpu=h100": "as hardware/gpu=h100",
    "hardware.kv_precision=fp4": "hardware.kv_precision=fp4 is not valid; it must be one of bf16, fp8",
    "hardware.utilisation=1.5": "hardware.utilisation=1.5 is not valid",
    "hardware.gpu.hbm_gb_s=-1": "hardware.gpu.hbm_gb_s=-1 is not valid",
    "hardware.model.layers=0": "hardware.model.layers=0 is not valid",
    "+hardware.gpu.speed=3": "unknown key 'hardware.gpu.speed'",
    "hardware.parameters.e_kv=0": "hardware.parameters.e_kv=0 is not valid; it must be a number > 0, or null",
    "hardware.parameters.f=-1": "hardware.parameters.f=-1 is not valid; it must be a number >= 0, or null",
    "hardware=a6000_mistral_7b hardware/gpu=h100": "has no hardware/gpu; choose hardware=composed with it",
}


@pytest.mark.slow
@pytest.mark.parametrize("line", WRONG)
def test_what_does_not_exist_is_said_in_a_line_with_what_does(line: str) -> None:
    words = line.split()
    given = words if words[0].startswith("hardware=") else ["hardware=composed", *words]
    with pytest.raises(InvalidInput) as error:
        configure.cells(given)
    assert WRONG[line] in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_gpu_of_ones_own_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "conf" / "hardware" / "gpu"
    folder.mkdir(parents=True)
    text = (FOLDER / "gpu" / "h200.yaml").read_text(encoding="utf-8")
    (folder / "mine.yaml").write_text(text.replace("name: h200", "name: mine").replace("4800", "9600"))
    monkeypatch.chdir(tmp_path)
    given = {"hardware": "composed", "engine": "vllm", "rps": 4, "duration_s": 2, "gpus": 1}
    swept = prebleexp.sweep(**given, **{"hardware/gpu": ["h200", "mine"]})
    assert swept.axes == ("hardware.gpu",)
    rows = swept.frame()
    assert list(rows["hardware.gpu"]) == ["h200", "mine"]
    assert rows["tpot_mean_s"][1] < rows["tpot_mean_s"][0]
    assert "theory only" in rows["hardware.support"][1]


def test_parameters_of_ones_own_say_so() -> None:
    shipped = hardware("engine=vllm").parameters
    assert shipped is not None
    slower = dataclasses.replace(shipped, f=2 * shipped.f)
    given = [f"hardware.parameters.{name}={value}" for name, value in dataclasses.asdict(slower).items()]
    one = hardware("engine=vllm", *given)
    assert one.parameters == slower
    assert one.start().fixed == pytest.approx(2 * hardware("engine=vllm").start().fixed)
    assert "your own" in one.support
    told = "{level: measured, against: my runs, n: 8, median: 0.02, p90: 0.05}"
    again = hardware("engine=vllm", *given, f"hardware.evidence={told.replace(': ', ':')}")
    assert again.support == "TPOT measured against 8 closed loops (my runs): median 2.0 %, p90 5.0 %"
    first = f"{told[:-1]}, ttft_n: 6, ttft_median: 0.1, ttft_p90: 0.2}}".replace(": ", ":")
    again = hardware("engine=vllm", *given, f"hardware.evidence={first}")
    assert again.support.endswith("median 2.0 %, p90 5.0 %; TTFT in 6: median 10.0 %, p90 20.0 %")


def test_one_parameter_of_ones_own_leaves_the_others_as_they_ship() -> None:
    shipped = hardware("engine=vllm").parameters
    assert isinstance(shipped, Parameters)
    one = hardware("engine=vllm", "hardware.parameters.e_kv=0.5")
    assert one.parameters == dataclasses.replace(shipped, e_kv=0.5)
    assert one.support == f"theory only: hardware.parameters.e_kv is 0.5, and {shipped.e_kv} as fitted"
    same = hardware("engine=vllm", f"hardware.parameters.e_kv={shipped.e_kv}")
    assert (same.parameters, same.support) == (shipped, hardware("engine=vllm").support)
    unserved = hardware("hardware.parameters.f=3", "hardware.engine=null")
    assert unserved.served_by("sglang").parameters.f == 3  # type: ignore[attr-defined]
    assert unserved.start().fixed > hardware("hardware.engine=null").start().fixed


def test_what_was_measured_is_offered_and_within_the_peaks() -> None:
    """H100 with SGLang was refused for an efficiency above 1, which an older fit had found."""
    one = hardware("hardware/gpu=h100", "hardware/model=qwen3_32b", "hardware.tensor_parallel=2", "engine=sglang")
    assert isinstance(one.parameters, Parameters)
    against = "serving runs of sglang 0.5.1.post1 on h100, of one source"
    assert one.support.startswith(f"TPOT measured against 38 closed loops ({against})")
    for of_version in shipped_parameters().values():
        assert all(max(of.e_c, of.e_m, of.e_xc, of.e_p) < 1 for of in of_version.values())
        assert all(of.e_m / of.v <= 0.921 and of.e_c / of.v <= 1.001 for of in of_version.values()), "v is of both"


# ---------------------------------------------------------------- beside the GPU
def test_a_request_passes_the_frontend_before_it_is_queued() -> None:
    """The first token comes that much later; and nothing else changes for a request that is alone."""
    one = cell("engine=vllm", "gpus=1", "rps=1", "duration_s=2")
    parameters = dataclasses.asdict(hardware("engine=vllm").parameters)  # type: ignore[arg-type]
    made = []
    for a0, a1 in ((0.0, 0.0), (0.25, 1e-4)):
        own = dataclasses.replace(one.hardware, parameters=Parameters(**parameters | {"a0": a0, "a1": a1}))
        made.append(runs.run(dataclasses.replace(one, hardware=own)))
    before, after = made
    late = 0.25 + 1e-4 * before.workload.prompt_tokens[0]
    for name in ("ttft_s", "latency_s"):
        assert getattr(after.outcome, name)[0] == pytest.approx(getattr(before.outcome, name)[0] + late)


# ---------------------------------------------------------------- the command
def test_the_command_lists_what_there_is_with_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hardware"]) == 0
    listed = capsys.readouterr().out
    for name in (*options("gpu"), *options("model"), "a6000_mistral_7b"):
        assert name in listed
    assert main(["hardware", "output=json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["gpu"], row["engine"], row["model"]) for row in rows} >= {("h200", "vllm", "gpt-oss-120b")}


@pytest.mark.slow
def test_the_command_explains_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["gpu=h100", "model=llama_3_1_70b", "tensor_parallel=4", "precision=fp8"]
    fields = [f"hardware.{one}" for one in asked[2:]]
    one = hardware("hardware/gpu=h100", "hardware/model=llama_3_1_70b", "engine=vllm", *fields)
    assert main(["hardware", *asked, "output=json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    cost = one.start()
    for row in steps:
        n, tokens = row["requests"], row["tokens of each"]
        if row["step"] == "decode":
            seconds = composed_step.decode_s(None, cost, n, n * tokens, n * tokens, 1)
        else:
            assert (row["step"], n) == ("prefill", 1)
            ms = composed_step.request_ms(None, cost, tokens, tokens)
            seconds = composed_step.step_s(None, cost, 1, tokens, tokens, 0, 0, 0, ms)
        assert row["ms"] == pytest.approx(1e3 * seconds)
    assert main(["hardware", *asked, f"to={tmp_path / 'roof.svg'}"]) == 0
    said = capsys.readouterr().out
    assert f"{one.kv_tokens:,} tokens of KV in FP8, " in said
    assert "Weights in FP8; KV cache in FP8; an engine left to itself keeps the cache in BF16" in " ".join(said.split())
    assert one.support in said
    assert "all-reduces among 4 h100" in said
    assert "at peak FLOP/s" in (tmp_path / "roof.svg").read_text(encoding="utf-8")


def test_what_has_just_as_many_tokens_as_are_asked_for_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["hardware=composed", "hardware/gpu=h100", "hardware/model=llama_3_1_70b", "hardware.tensor_parallel=2"]
    two = configure.cells(words)[0].hardware
    assert isinstance(two, Composed)

    def tokens(tensor_parallel: int) -> int:
        return dataclasses.replace(two, tensor_parallel=tensor_parallel, kv_tokens=None).kv_tokens

    for least, fits in ((two.kv_tokens, 2), (two.kv_tokens + 1, 4)):
        monkeypatch.setattr(composed, "LEAST_TOKENS", least)
        assert tokens(fits) >= least
        for fewer in {1, fits // 2}:
            with pytest.raises(InvalidInput, match=rf"these fit: tensor_parallel={fits} precision=bf16"):
                tokens(fewer)


def test_the_command_says_what_would_fit(capsys: pytest.CaptureFixture[str]) -> None:
    for asked, says in (
        ("gpu=h100 model=llama_3_1_70b", "these fit: tensor_parallel=2"),
        ("gpu=h300", "unknown hardware/gpu 'h300'"),
        ("gpu=h200 to=roof.jpg", "unknown kind of file '.jpg'"),
    ):
        assert main(["hardware", *asked.split()]) == 2
        assert says in capsys.readouterr().err


def test_several_are_explained_one_after_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    """gpu=h100,h200 was refused, though a plan takes it."""
    assert main(["hardware", "gpu=h100,h200", "model=gpt_oss_120b"]) == 0
    said = capsys.readouterr().out
    assert [said.count(f"gpt-oss-120b in bf16 with experts in fp4 on {gpu}, vllm: ") for gpu in ("h100", "h200")] == [
        1,
        1,
    ]
    assert main(["hardware", "gpu=h100,h200", "model=gpt_oss_120b", "output=json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["gpu"] for row in rows} == {"h100", "h200"}
    assert "model" not in rows[0], "what is the same in all is not repeated"
    assert main(["hardware", "gpu=h100,h200", "model=gpt_oss_120b", "to=roofline.svg"]) == 2
    assert "is a picture of one, and these are 2" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["gpu=h100,nix", "model=llama_3_1_8b,nix", "gpu=h100 tensor_parallel=1,3"])
def test_what_is_wrong_of_several_is_said_before_the_first_is_explained(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """gpu=h100,nix explained H100 on standard output, and ended with an error."""
    assert main(["hardware", *wrong.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("prebleexp: ")
