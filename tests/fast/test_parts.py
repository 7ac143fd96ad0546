"""Sweeps of several parts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from prebleexp.errors import InvalidInput
from prebleexp.launch.parts import Place, choices, figures_of, jobs, parts_of
from prebleexp.paper.figures import DRAWINGS
from tests.support.places import ROOT

CHOICES = partial(choices, parser=OverridesParser.create())
SWEEP: dict[str, Any] = {
    "parts": {
        "rates": {
            "variant": "as released",
            "overrides": ["+variant=released", "duration_s=5"],
            "params": {"gpus": "2,4", "rps": 8},
            "lines": {"A": ["policy=lor"], "B": ["policy=e2", "lengths=mean"]},
        }
    },
    "figures": {"1A": {"draw": "latency_against_rate", "parts": ["rates"]}, "1B": None},
}


def test_a_job_for_every_line_and_value() -> None:
    found = jobs(parts_of(SWEEP), ["replications=3"], CHOICES)
    shared = ["replications=3", "+variant=released", "duration_s=5"]
    assert found == [
        (Place("rates", "as released", "A"), [*shared, "policy=lor", "gpus=2", "rps=8"]),
        (Place("rates", "as released", "A"), [*shared, "policy=lor", "gpus=4", "rps=8"]),
        (Place("rates", "as released", "B"), [*shared, "policy=e2", "lengths=mean", "gpus=2", "rps=8"]),
        (Place("rates", "as released", "B"), [*shared, "policy=e2", "lengths=mean", "gpus=4", "rps=8"]),
    ]


def test_what_the_command_line_says_replaces_what_a_part_says() -> None:
    found = jobs(parts_of(SWEEP), ["gpus=8", "duration_s=1", "rps=1,2"], CHOICES)
    assert [one for _, one in found][:2] == [
        ["gpus=8", "duration_s=1", f"rps={rps}", "+variant=released", "policy=lor"] for rps in (1, 2)
    ]
    assert len(found) == 4


def test_lines_cannot_be_replaced() -> None:
    with pytest.raises(InvalidInput, match="lengths cannot be set: the lines of part rates differ in it"):
        jobs(parts_of(SWEEP), ["lengths=oracle"], CHOICES)


def test_a_figure_that_was_taken_out_is_not_there() -> None:
    assert [figure.number for figure in figures_of(SWEEP)] == ["1A"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"parts": {"rates": {"params": {"gpus": 1}}}}, "sweep.parts.rates has no lines"),
        ({"parts": {"rates": {"lines": {"A": []}}}}, "sweep.parts.rates has no params"),
        ({"parts": {"rates": {"colour": 1}}}, "unknown field of sweep.parts.rates 'colour'"),
        ({"parts": []}, "sweep.parts=[] is not valid; it must be a mapping"),
        (
            {"parts": {"a": {"params": {"gpus": 1}, "lines": {"A": "policy=lor"}}}},
            "sweep.parts.a.lines.A=policy=lor",
        ),
        ({"figures": {"1": {"draw": "x", "parts": []}}}, "sweep.figures.1 has no parts"),
        ({"figures": {"1": {"draw": "x", "parts": ["b"]}}}, "unknown part in sweep.figures.1: 'b'; valid: rates"),
    ],
)
def test_what_is_not_a_sweep_is_refused_in_one_line(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        figures_of({**SWEEP, **change})
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("path", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_sweep_of_the_package_names_itself_and_figures_that_exist(path: Path) -> None:
    sweep = yaml.safe_load(path.read_text(encoding="utf-8"))["sweep"]
    assert sweep["name"] == path.stem
    for figure in filter(None, sweep.get("figures", {}).values()):
        assert figure["draw"] in DRAWINGS
        assert (ROOT / "sweeps" / f"{figure['sweep']}.yaml").exists()
