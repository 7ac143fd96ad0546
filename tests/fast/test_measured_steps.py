"""Whole steps as `hardware measure` writes them: compared, and fitted to."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import yaml

from prebleexp.__main__ import main
from prebleexp.commands.hardware_check import sizes
from prebleexp.errors import InvalidInput
from prebleexp.hardware import own_runs, steps
from prebleexp.hardware.equations import coefficients, step_s
from prebleexp.hardware.parameters import ANY, NAMES, shipped, shipped_for
from prebleexp.launch import configure

Capture = pytest.CaptureFixture[str]
TRUE = {"f": 0.3, "e_c": 0.6, "e_kv": 0.7, "e_p": 0.45, "t_req": 8e-6}
"""of this engine; otherwise it is as what fits all best"""


def values(**changed: float) -> dict[str, float]:
    pooled = shipped()[ANY]["any", "any"]
    return {name: getattr(pooled, name) for name in NAMES} | changed


def row(what: str, new: int, sequences: int, context: int, pairs: float, **changed: str) -> dict[str, str]:
    """A step of Llama-3.1-8B on one H100 that takes what the equations say."""
    known = sizes()
    of = coefficients(known.gpus["h100"], known.models["llama-3.1-8b"], 1, "bf16", "bf16", "bf16")
    us = 1e6 * float(step_s(of, values(**TRUE), float(new), float(sequences), float(context), pairs))
    size = {"gpu": "h100", "engine": "torch", "version": "2.9", "model": "llama-3.1-8b", "weights": "bf16", "tp": "1"}
    step = {"what": what, "new": new, "sequences": sequences, "context": context, "pairs": pairs, "us": us}
    return size | {name: str(value) for name, value in step.items()} | {"repeats": "9"} | changed


def rows() -> list[dict[str, str]]:
    """As `hardware measure` has them, and a few with both."""
    made = [row("linear", 64, 0, 0, 0.0), row("attention", 4, 4, 4096, 0.0)]
    for new in (16, 128, 512, 2048, 8192):
        made += [row("prefill", new, 1, 0, new * (cached + new / 2)) for cached in (0, new)]
    for batch in (1, 8, 64, 256):
        made += [row("decode", batch, batch, batch * context, 0.0) for context in (128, 2048, 8192)]
    return [*made, *(row("mixed", 8 + new, 9, 8 * 3000, new * new / 2) for new in (256, 1024))]


def write(path: Path, made: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(made[0]))
        writer.writeheader()
        writer.writerows(made)
    return path


def test_steps_are_compared_by_kind(tmp_path: Path, capsys: Capture) -> None:
    given = rows()
    assert main(["hardware", "check", f"data={write(tmp_path / 'measured.csv', given)}", "output=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    counts = {(one["metric"], one["gpu"]): one["n"] for one in found}
    assert counts["step", "all"] == 24
    assert [counts[f"{kind}_step", "h100"] for kind in ("prefill", "decode", "mixed")] == [10, 12, 2]
    pooled: Mapping[str, float] = values()
    of = coefficients(sizes().gpus["h100"], sizes().models["llama-3.1-8b"], 1, "bf16", "bf16", "bf16")
    errors = []
    for one in given:
        if one["what"] == "decode":
            new, context = float(one["new"]), float(one["context"])
            errors.append(abs(float(step_s(of, pooled, new, new, context, 0.0)) * 1e6 / float(one["us"]) - 1))
    decode = next(one for one in found if one["metric"] == "decode_step" and one["gpu"] == "h100")
    assert decode["median_error"] == pytest.approx(np.median(errors), rel=1e-9)
    assert decode["p90_error"] == pytest.approx(np.quantile(errors, 0.9), rel=1e-9)


def test_parameters_that_made_the_steps_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "measured.csv", rows())
    assert main(["calibrate", "hardware", "data=measured.csv"]) == 0
    said = capsys.readouterr().out
    assert "24 whole steps of llama-3.1-8b in bf16 on 1 h100" in said
    written = yaml.safe_load((tmp_path / "conf/hardware/h100_llama_3_1_8b_bf16_tp1_any.yaml").read_text())
    assert written["evidence"]["level"] == "steps measured"
    assert written["evidence"]["p90"] < 0.02
    found = written["parameters"]
    assert found["f"] == pytest.approx(TRUE["f"], rel=0.2)
    assert found["e_kv"] == pytest.approx(TRUE["e_kv"], rel=0.05)
    for name in ("e_c", "e_m", "e_p"):  # what is common to them may be in v
        assert found[name] / found["v"] == pytest.approx(values(**TRUE)[name] / values()["v"], rel=0.05)
    assert found["a0"] == pytest.approx(values()["a0"], rel=1e-3)
    one = configure.cells(["hardware=h100_llama_3_1_8b_bf16_tp1_any", "engine=vllm"])[0].hardware
    assert one.support.startswith("step times measured against 24 whole steps")
    of = coefficients(one.gpu, one.model, 1, "bf16", "bf16", "bf16")  # type: ignore[attr-defined]
    seconds = one.kernels().decode_s(None, one.start(), 30, 90_000, 90_000, 1)
    assert seconds == pytest.approx(float(step_s(of, values(**TRUE), 30.0, 30.0, 90_000.0, 0.0)), rel=0.02)


def test_an_engine_lends_what_no_step_says(tmp_path: Path) -> None:
    """What its requests take beside the GPU, of the newest version."""
    of = {"model": "llama-3.1-70b", "weights": "fp8", "tp": "2", "version": ""}
    given = steps.read(write(tmp_path / "measured.csv", [one | of for one in rows()]), sizes())
    lent = own_runs.calibrate_steps(given.of_engine("vllm")).parameters
    ships = shipped_for(("h100", "vllm", "llama-3.1-70b", "fp8"), "", "2")
    assert (lent.a0, lent.a1) == (pytest.approx(ships.a0), pytest.approx(ships.a1))
    assert lent.a0 != pytest.approx(values()["a0"])


def test_what_is_no_step_is_said_in_a_line(tmp_path: Path, capsys: Capture) -> None:
    def said(command: str, *made: dict[str, str]) -> str:
        file = write(tmp_path / "measured.csv", list(made))
        assert main([*command.split(), f"data={file}"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    good = rows()
    assert "row 2: unknown what 'layer'" in said("hardware check", row("layer", 8, 1, 0, 0.0))
    assert "row 2: us=-1 is not valid" in said("hardware check", good[5] | {"us": "-1"})
    assert "row 2: new=0 is not valid" in said("calibrate hardware", good[5] | {"new": "0"})
    assert "row 2: unknown gpu 'h101'" in said("hardware check", good[5] | {"gpu": "h101"})
    assert "has no whole step" in said("hardware check", *good[:2])
    assert "3 whole steps are too few" in said("calibrate hardware", *good[5:8])
    mixed = [*good, row("decode", 1, 1, 100, 0.0, tp="2")]
    assert "several configurations: tp is 1, 2" in said("calibrate hardware", *mixed)
    with pytest.raises(InvalidInput, match="has no column new"):
        steps.read(
            write(tmp_path / "few.csv", [{name: one for name, one in good[3].items() if name != "new"}]), sizes()
        )
