"""Verdicts and sentences follow from the rows, whatever they say."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.intervals import mean_interval
from prebleexp.paper import on_hardware
from prebleexp.paper.claims import BASELINES, VARIANTS
from prebleexp.paper.effects import Effect, Side, Verdict, effect, overall
from prebleexp.paper.figures import DRAWINGS, gains, with_variance
from prebleexp.paper.findings import answer, findings, signed
from prebleexp.report.summary import Row
from tests.support.paper_rows import made_up, rows

PLAIN, AWARE = Side("p", "PREBLE"), Side("p", "length-aware PREBLE")


def compare(ones: list[float], others: list[float], **rest: Any) -> Effect | None:
    parts = {"p": rows(AWARE.line, ones) + rows(PLAIN.line, others)}
    return effect(parts, AWARE, PLAIN, where="here", what="one against other", **rest)


def test_an_effect_is_the_mean_of_paired_differences_over_the_others_mean() -> None:
    """Differences −0.2, −0.4, −0.6 against a mean of 2: −20 % and t(2) · s / √3 / 2."""
    found = compare([0.8, 1.6, 2.4], [1.0, 2.0, 3.0])
    assert found is not None
    assert found.relative == pytest.approx(-0.2)
    half = mean_interval([-0.2, -0.4, -0.6])[1]
    assert half is not None
    assert found.half_width == pytest.approx(half / 2)
    assert (found.seeds, found.finished) == (3, 0.9)
    assert signed(found) == f"−20.0 ± {half / 2 * 100:.1f} %"


def test_only_common_seeds_count_and_none_are_no_effect() -> None:
    parts = {"p": rows(AWARE.line, [1.0]) + [{**row, "seed": 7} for row in rows(PLAIN.line, [1.0])]}
    assert effect(parts, AWARE, PLAIN, where="", what="") is None
    assert effect({}, AWARE, PLAIN, where="", what="") is None


@pytest.mark.parametrize(
    ("ones", "rest", "verdict"),
    [
        ([0.70, 0.71, 0.69], {"expected": -1, "published": -0.3}, Verdict.REPRODUCED),
        ([0.70, 0.71, 0.69], {"expected": -1}, Verdict.REPRODUCED),
        ([0.90, 0.91, 0.89], {"expected": -1, "published": -0.3}, Verdict.SMALLER),
        ([1.30, 1.31, 1.29], {"expected": -1, "published": -0.3}, Verdict.OPPOSITE),
        ([0.80, 1.20, 1.00], {"expected": -1}, Verdict.NONE),
        ([0.80], {"expected": -1}, Verdict.NOT_MEASURED),
    ],
)
def test_a_verdict_for_every_case(ones: list[float], rest: dict[str, Any], verdict: Verdict) -> None:
    found = compare(ones, [1.0] * len(ones), **rest)
    assert found is not None
    assert found.verdict is verdict
    assert overall([found]) is verdict


@given(st.lists(st.floats(0.5, 2), min_size=3, max_size=8), st.sampled_from([-1, 1]))
def test_exchanging_the_sides_turns_the_verdict_around(ones: list[float], sign: int) -> None:
    found, turned = compare(ones, [1.0] * len(ones), expected=sign), compare([1.0] * len(ones), ones, expected=-sign)
    assert found is not None
    assert turned is not None
    assert found.verdict is turned.verdict


def test_opposite_effects_get_opposite_verdicts_and_sentences() -> None:
    lower, higher = findings(made_up(0.5)), findings(made_up(2.0))
    verdicts = [{one.name: {verdict for _, verdict in one.verdicts} for one in found} for found in (lower, higher)]
    assert verdicts[0]["lengths"] == verdicts[1]["loses"] == verdicts[1]["overhead"] == {Verdict.REPRODUCED}
    assert verdicts[1]["lengths"] == verdicts[0]["loses"] == verdicts[0]["variance"] == {Verdict.OPPOSITE}
    for less, more in zip(lower, higher, strict=True):
        assert less.sentences != more.sentences
        assert any("−50.0" in sentence for sentence in less.sentences)
        assert any("+100.0" in sentence for sentence in more.sentences)


def test_columns_of_numbers_are_those_whose_cells_are() -> None:
    for one in findings(made_up(0.5)):
        for column, *cells in zip(one.effects.columns, *one.effects.rows, strict=True):
            assert column.numeric == all(re.fullmatch(r"–|[+−]?[\d.]+( ± [\d.]+)?( %)?", cell) for cell in cells), (
                column
            )


def test_without_rows_nothing_is_measured() -> None:
    for found in findings({}):
        assert {verdict for _, verdict in found.verdicts} == {Verdict.NOT_MEASURED}
        assert found.sentences == tuple(f"{variant.capitalize()}: not measured." for variant in VARIANTS.values())


def on_one_gpu(ratio: float) -> list[Row]:
    """Simple routers that take 1, PREBLE `ratio` times that, and half of it where it knows lengths."""
    levels = {**dict.fromkeys(BASELINES, 1.0), "PREBLE": ratio, "length-aware PREBLE": ratio / 2}
    places = [(gpus, load * gpus) for gpus in (4, 8, 16) for load in (1, 2, 3)]
    return [
        row
        for line, level in levels.items()
        for gpus, rps in places
        for row in rows(line, [level, 1.001 * level], gpus=gpus, rps=rps)
    ]


def test_claims_are_asked_of_every_kind_of_hardware() -> None:
    variants = {"old": "Old", "new": "New", "none": "None"}
    found = on_hardware.findings({"old": on_one_gpu(2.0), "new": on_one_gpu(0.5)}, variants)
    verdicts = {one.name: dict(one.verdicts) for one in found}
    assert verdicts["loses"] == verdicts["more-gpus"] | {"New": Verdict.OPPOSITE}
    assert verdicts["loses"]["Old"] is Verdict.REPRODUCED
    assert verdicts["lengths"] == {"Old": Verdict.REPRODUCED, "New": Verdict.REPRODUCED, "None": Verdict.NOT_MEASURED}
    where = {one.where for finding in found for variant, one in finding.tested if variant == "Old"}
    assert where == {f"{place} requests/s" for place in ("4 GPUs, 12", "8 GPUs, 24", "8 GPUs, 16")} | {
        f"16 GPUs, {rps} requests/s" for rps in (32, 48)
    }
    assert "They differ on all of them." in answer(found).sentence


def test_gains_pair_runs_of_one_request_stream() -> None:
    found = gains(
        rows("PREBLE", [1.0, 2.0], gpus=8, rps=64, variant="v")
        + rows("length-aware PREBLE", [0.9], gpus=8, rps=64, variant="v")
    )
    assert [(row["gain"], row["seed"], row["line"]) for row in found] == [(pytest.approx(-10), 0, "64 requests/s")]


def test_the_variance_is_that_of_the_lengths_that_were_asked_for() -> None:
    given = [
        {"output_length": "constant", "output_length.lengths": "[150]", "output_length.probabilities": "[1.0]"},
        {
            "output_length": "two_point",
            "output_length.lengths": "[1, 300]",
            "output_length.probabilities": "[0.5, 0.5]",
        },
        {"output_length": "released", "output_length.lengths": "[1]", "output_length.probabilities": "[1.0]"},
        {"output_length": "mine"},
    ]
    assert [row["output_length_variance"] for row in with_variance(given)] == [0, 149.5**2, 149.5**2, None]


PANELS = {
    "regret_against_quality": 1,
    "frontier": 1,
    "ranking": 1,
    "tuning": 1,
    "sessions": 1,
    "together": 1,
    "reuse": 2,
    "worth_of_lengths": 2,
    "gain_against_gpus": 2,
}
PANELS |= {"survival": 0}  # no GPU is lost here


@pytest.mark.slow
def test_every_figure_draws_a_sweep_of_two_variants() -> None:
    from prebleexp.report.figures import figure
    from tests.support.pages.sweep_rows import part_rows

    extra = {"ttft_mean_s": 0.1, "overhead_mean_s": 1e-3, "output_length": "two_point"}
    lengths = {"output_length.lengths": "[1, 300]", "output_length.probabilities": "[0.5, 0.5]"}
    found = [{**row, **extra, **lengths} for row in part_rows()]
    told = {"PREBLE": "oracle", "LOR": "mean", "PREBLE, switched": "max"}
    found = [
        {**row, "lengths": told.get(str(row["line"])), "policy": "e2"}
        for row in found + [{**row, "line": "PREBLE, switched"} for row in found if row["line"] == "LOR"]
    ]
    for name in DRAWINGS:
        drawn = figure(name, found, how=DRAWINGS[name], number="9", command="python")
        assert drawn.paired == (
            name not in ("frontier", "regret_against_quality", "ranking", "survival", "together", "tuning", "sessions")
        )
        assert len(drawn.panels) == PANELS.get(name, 6)
        assert all("<svg" in panel.svg for panel in drawn.panels)
