"""What measurements leave open of step times: drawn by each seed, and in the interval."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.uncertain import IN_STEP, KERNELS, VERSION
from prebleexp.intervals import mean_interval, relative_difference
from prebleexp.launch import configure

GIVEN = {"engine": "vllm", "gpus": 2, "rps": 8, "duration_s": 5, "cache_dir": None}


def hardware(*words: str) -> Composed:
    (cell,) = configure.cells(["engine=vllm", "hardware.uncertainty=true", *words])
    assert isinstance(cell.hardware, Composed)
    return cell.hardware


def test_draws_are_about_what_is_simulated_without_as_far_as_is_said() -> None:
    one = hardware()
    assert one.evidence is not None
    drawn = [one.drawn(seed).parameters for seed in range(2000)]
    logs = {name: [math.log(getattr(p, name) / getattr(one.parameters, name)) for p in drawn] for name in VERSION}
    kv = [math.log(p.e_kv / one.parameters.e_kv) for p in drawn]  # type: ignore[union-attr]
    whole = one.evidence.p90 / 1.645
    for name, values in logs.items():
        spread = math.hypot(VERSION[name], whole if name in ("f", "v") else 0.0)
        assert abs(np.mean(values)) < 4 * spread / math.sqrt(2000)
        assert np.std(values) == pytest.approx(spread, rel=0.08)
    assert np.std(kv) == pytest.approx(math.hypot(KERNELS, whole), rel=0.08)
    assert drawn[7] == one.drawn(7).parameters
    assert np.std([math.log(p.in_step) for p in drawn]) == pytest.approx(IN_STEP, rel=0.08)  # type: ignore[union-attr]
    untouched = set(asdict(drawn[0])) - set(VERSION) - {"e_kv", "in_step"}
    assert all(getattr(drawn[0], name) == getattr(one.parameters, name) for name in untouched)


def test_ones_own_engine_is_of_one_version() -> None:
    """What was calibrated is as far off as it is of one's runs; another version is not feared."""
    shipped = hardware()
    assert shipped.evidence is not None
    own = replace(shipped, parameters=replace(shipped._fitted, f=0.9), evidence=replace(shipped.evidence, p90=0.1645))
    ratios = [own.drawn(seed)._fitted for seed in range(500)]
    assert {p.t_req for p in ratios} == {own._fitted.t_req}
    assert np.std([math.log(p.f / 0.9) for p in ratios]) == pytest.approx(0.1, rel=0.1)


def test_what_nothing_was_measured_of_is_known_least() -> None:
    def spread(*words: str) -> float:
        one = hardware(*words)
        return float(np.std([math.log(one.drawn(seed)._fitted.v / one._fitted.v) for seed in range(500)]))

    unlike = ("hardware/gpu=a40", "hardware/model=llama_3_1_8b")
    assert spread() < spread("hardware/gpu=h100", "hardware/model=mistral_nemo") < spread(*unlike)


def test_seeds_are_served_at_their_own_costs_and_routers_at_the_same() -> None:
    plain = [prebleexp.run(**GIVEN, seed=seed).metrics["tpot_mean_s"] for seed in (0, 1)]
    runs = [prebleexp.run(**GIVEN, seed=seed, **{"hardware.uncertainty": True}) for seed in (0, 1)]
    costs = [one.cell.hardware.drawn(one.cell.seed).start() for one in runs]
    assert costs[0].fixed != costs[1].fixed
    assert all(one.metrics["tpot_mean_s"] != tpot for one, tpot in zip(runs, plain, strict=True))
    (other,) = configure.cells(["policy=e2", "engine=vllm", "hardware.uncertainty=true"])
    assert other.hardware.drawn(0) == runs[0].cell.hardware.drawn(0)


def test_an_interval_is_of_one_draw() -> None:
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert mean_interval(values, of_one=True)[1] == pytest.approx(2.776445105 * math.sqrt(2.5 * (1 + 1 / 5)), abs=1e-6)
    ones, others = dict(enumerate(values)), dict.fromkeys(range(5), 2.0)
    mean, half = relative_difference(ones, others, of_one=True) or (0.0, None)
    assert mean == 0.5
    assert half == pytest.approx(2.776445105 * math.sqrt(2.5 * (1 + 1 / 5)) / 2, abs=1e-6)


@pytest.mark.slow
def test_terminal_tables_and_frames_have_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["engine=vllm", "gpus=2", "rps=8", "duration_s=5", "replications=4", "hardware.uncertainty=true"]
    assert main(["-m", "policy=lor,e2", *words, "sweep.name=u"]) == 0
    capsys.readouterr()
    swept = prebleexp.sweep("policy=lor,e2", *words)
    rows, means = swept.frame(), swept.frame("cell")
    values = rows[rows["policy"] == "lor"]["tpot_mean_s"].tolist()
    mean, half = mean_interval(values, of_one=True)
    assert len(values) == 4
    (cell,) = means[means["policy"] == "lor"].to_dict("records")
    assert (cell["tpot_mean_s"], cell["tpot_mean_s_half_width_95"]) == (mean, half)
    query = "select mean, half_width from results where sweep = 'u' and policy = 'lor' and metric = 'tpot_mean_s'"
    assert main(["sql", query, "output=json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["mean"], found["half_width"]) == (pytest.approx(mean, rel=1e-12), pytest.approx(half, rel=1e-12))
    assert main(["policy=lor", *words]) == 0
    printed = capsys.readouterr().out
    assert "± is of one draw, not of a mean" in printed
    (line,) = [one for one in printed.splitlines() if one.startswith("tpot_mean_s")]
    assert line.split()[2] == f"{half:.2g}"
    assert main(["compare", "sweep=u", "lor", "e2", "output=json"]) == 0
    (compared,) = json.loads(capsys.readouterr().out)["cells"]
    of = {name: rows[rows["policy"] == name].set_index("seed")["norm_latency_mean_s"] for name in ("lor", "e2")}
    _, half = mean_interval((of["e2"] - of["lor"]).tolist(), of_one=True)
    assert compared["half_width_95"] == pytest.approx(half / of["lor"].mean(), rel=1e-9)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["plan", "rps=4", "slo.ttft_s=1", "hardware.uncertainty=true"], "is not valid for a plan"),
        (["rps=4", "hardware.uncertainty=2"], "hardware.uncertainty=2 is not valid; it must be true or false"),
        (["rps=4", "cluster=two_kinds", "hardware.uncertainty=true"], "is not valid with cluster.groups"),
    ],
)
def test_where_it_has_no_meaning_it_is_refused(
    words: list[str], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["engine=vllm", *words] if words[0] != "plan" else [*words, "engine=vllm"]) == 2
    assert wrong in capsys.readouterr().err
