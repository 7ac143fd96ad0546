"""What is drawn can be read: names at the lines, units that suit, one plot for comparisons of many."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure as Canvas

from prebleexp.paper.figures import DRAWINGS
from prebleexp.paper.findings import answer, findings, overview
from prebleexp.paper.quality import ALL_LOADS
from prebleexp.predict.scores import PUBLISHED
from prebleexp.report import dots, draw, predictors_page, stream
from prebleexp.report.dots import Dot, DotRow
from prebleexp.report.draw import Line, Scales, labels_fit
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import Figure, figure
from prebleexp.report.palette import STYLES
from prebleexp.report.summary import Row
from prebleexp.report.wording import tick
from prebleexp.workloads.instructions import PACKAGED
from tests.support.pages.sweep_rows import part_rows, rows
from tests.support.paper_rows import made_up

AXES = ("gpus", "rps", "policy")
REGRET = DRAWINGS["regret_against_quality"]
LOOK = {"name": "n", "title": "t", "description": "d"}


def words(svg: str) -> list[str]:
    return [
        element.text.strip() for element in ElementTree.fromstring(svg).iter() if element.text and element.text.strip()
    ]


def test_lines_of_the_paper_carry_their_names_in_every_panel() -> None:
    """There was a legend above eight panels, gone after two rows, as soon as a name had more than 14 letters."""
    names = {"LOR": 1.0, "PREBLE": 1.2, "length-aware PREBLE": 1.3}
    found = figure("latency_against_rate", part_rows(), number="1A")
    assert found.legend == ()
    for panel in found.panels:
        shown = " ".join(words(panel.svg))
        assert all(word in shown for name in names for word in name.split())
    assert labels_fit(["random", "round robin", "LOR", "PREBLE = length-aware PREBLE", "least tokens, lengths known"])
    assert not labels_fit(["x" * 40])


def test_lines_that_are_equal_are_drawn_once_and_said_to_be() -> None:
    """One lay below the other: PREBLE was not to be seen below length-aware PREBLE."""
    found = [
        row | {"norm_latency_mean_s": 0.02 * float(row["rps"] or 0)} if row["policy"] != "random" else row
        for row in rows((8,), (2.0, 4.0, 8.0), seeds=3)
    ]
    (panel,) = figure("latency_against_rate", found, AXES).panels
    shown = words(panel.svg)
    assert {"lor =", "round_robin"} <= set(shown)
    assert len(re.findall(r'id="[^"]*FillBetween[^"]*"', panel.svg)) == 2


@pytest.mark.parametrize(("level", "unit"), [(0.0005, "ms/token"), (0.05, "ms/token"), (2.0, "s/token")])
def test_times_are_in_milliseconds_where_they_are_small(level: float, unit: str) -> None:
    """Ticks said 0.000500."""
    found = [row | {"norm_latency_mean_s": level * float(row["rps"] or 0) / 4} for row in rows((8,), (2.0, 4.0, 8.0))]
    drawn = figure("latency_against_rate", found, AXES)
    assert f"({unit}, lower is better)" in drawn.y
    assert f"normalised latency, {unit}" in [column.name for column in drawn.table.columns]
    assert drawn.data.rows[0][3] == pytest.approx(level / 2), "files have the metric's own unit"
    scale = 1000 if unit.startswith("ms") else 1
    assert float(drawn.table.rows[0][3].split(" ")[0]) == pytest.approx(scale * level / 2)
    ticks = [text for text in words(drawn.panels[0].svg) if re.fullmatch(r"[−\d.,]+", text)]
    assert len(ticks) > 5
    assert not [text for text in ticks if len(text) > 4], "0.5, and not 0.000500"


@pytest.mark.parametrize(
    ("value", "text"), [(0.05, "0.05"), (5.0, "5"), (22350.25, "22,350"), (-0.5, "−0.5"), (0, "0"), (1e-7, "1e-07")]
)
def test_a_tick_has_no_digit_that_says_nothing(value: float, text: str) -> None:
    assert tick(value) == text


def test_a_band_that_reaches_below_zero_is_as_long_downwards_as_upwards_on_a_log_axis() -> None:
    """It filled the panel down to its floor, and the lines were lost in it."""
    calm = Line("lor", STYLES[0], ((1.0, 10.0, 1.0), (2.0, 200.0, 20.0)))
    loud = Line("e2", STYLES[1], ((1.0, 10.0, 15.0), (2.0, 200.0, 300.0)))
    scales = Scales.of([calm, loud])
    assert scales.y_log
    assert scales.y_limits[0] > 5, "the axis is for the lines"
    assert scales.y_limits[1] < 350, "it was for the band, which ends at 500"
    assert draw.band(10.0, 15.0, log=True) == pytest.approx((4.0, 25.0)), "2.5 times as much, and as little"
    assert draw.band(10.0, 1.0, log=True) == pytest.approx((9.0, 11.0), rel=0.02)
    assert draw.band(10.0, 15.0, log=False) == (-5.0, 25.0)


def test_an_axis_that_is_not_logarithmic_has_five_spaces_at_most() -> None:
    scales = Scales((), False, (0.0, 1.0), False, (0.0, 7.0))
    axes = Canvas().add_subplot()
    draw._scale(axes, scales)
    assert 3 <= sum(0 <= y <= 7 for y in axes.get_yticks()) <= 6


def test_the_picture_of_a_stream_has_no_frame() -> None:
    axes = Canvas().add_subplot()
    stream._labelled(axes, "GPUs", "requests")
    assert [name for name, spine in axes.spines.items() if spine.get_visible()] == ["bottom"]


def test_every_marker_has_its_outline_in_legends() -> None:
    assert len({style.outline for style in STYLES}) == len({style.marker for style in STYLES}) == len(STYLES)


def test_two_variants_side_by_side_have_the_same_axis_and_other_rows_their_own() -> None:
    """On 16 and 32 GPUs a scale for all wasted most of a panel."""
    found = [row | {"norm_latency_mean_s": float(row["norm_latency_mean_s"] or 0) / int(row["gpus"] or 1) ** 2}
             for row in part_rows()]  # fmt: skip
    panels = figure("latency_against_rate", found, number="1A").panels
    ticks = [[text for text in words(panel.svg) if re.fullmatch(r"[\d.,]+", text)][3:] for panel in panels]
    assert [panel.title.split(",")[0] for panel in panels][:2] == ["4 GPUs", "4 GPUs"]
    assert ticks[0] == ticks[1]
    assert ticks[0] != ticks[4]


# ---------------------------------------------------------------- dots
def test_dots_that_are_far_out_do_not_set_the_axis() -> None:
    """One predictor at +45 % made smudges of seventeen others."""
    near = [DotRow(f"p{i}", (Dot(0.1 * i, 0.1, STYLES[0]),)) for i in range(17)]
    low, high = dots.limits([*near, DotRow("noise", (Dot(45.0, 3.0, STYLES[0]),))])
    assert low < 0 < 1.6 < high < 10
    svg = dots.panel([*near, DotRow("noise", (Dot(45.0, 3.0, STYLES[0]),))], (low, high), dots.ALONE_IN, **LOOK)
    assert "+45 →" in words(svg)
    assert dots.limits([]) == (-1, 1)
    low, high = dots.limits(near)
    assert high > 1.7, "where none is far out, all intervals are whole"


def predictions() -> list[Row]:
    """A policy that is told in five ways, at two loads; latencies relative to the oracle's are as the names say."""
    kinds: dict[str, tuple[float, dict[str, Any]]] = {
        "oracle": (1.0, {"lengths": "oracle"}),
        "tree": (1.002, {"lengths": "predicted", "lengths.predictor": "tree"}),
        "net": (0.97, {"lengths": "predicted", "lengths.predictor": "net"}),
        "net, charged": (0.99, {"lengths": "predicted", "lengths.predictor": "net", "overhead.prediction_s": 0.017}),
        "noise 2": (1.3, {"lengths": "noisy", "lengths.sigma": 2}),
    }
    return [
        {
            "part": "p", "policy": policy, "gpus": 8, "rps": rps, "seed": seed, "line": line,
            "norm_latency_mean_s": (level if policy == "least_work" or line == "noise 2" else 1.0) * (1 + seed / 10),
            "told_rank_correlation": 0.9, "n_requests": 10, "n_finished": 10, **more,
        }
        for policy in ("e2", "least_work") for rps in (32, 64) for seed in range(3)
        for line, (level, more) in kinds.items()
    ]  # fmt: skip


def test_the_prediction_page_is_answered_in_a_sentence_a_table_of_words_and_one_plot() -> None:
    found = figure("regret", predictions(), how=REGRET, number="Q1")
    assert found.headline == (
        "With any trained predictor, latency is within 0.0 % of the oracle's (e2) and −3.0 to +0.2 % (least_work); "
        "waiting 17 ms for net costs 2.0 %; the worst that was tried is noise 2 with e2: +30 %."
    )
    assert found.answer.columns == ("e2", "least_work")
    told = {row: [(cell.word, cell.tone.value) for cell in cells] for row, cells in found.answer.rows}
    assert told["Told a trained predictor"] == [("as good", "good"), ("as good", "good")]
    assert told["Told the truth with noise"] == [("worse", "bad"), ("worse", "bad")]
    assert [panel.title for panel in found.panels] == [ALL_LOADS]
    assert [entry.name for entry in found.legend] == ["e2", "least_work"]
    shown = words(found.panels[0].svg)
    assert "net (0.90)" in shown
    assert not [name for name in shown if name.startswith("oracle")]
    loads = {row[0] for row in found.table.rows}
    assert loads == {ALL_LOADS, "8 GPUs, 32 requests/s", "8 GPUs, 64 requests/s"}


def test_without_an_oracle_it_says_what_is_missing() -> None:
    told = [row for row in predictions() if row["line"] != "oracle"]
    assert figure("regret", told, how=REGRET).headline.startswith("No run that was told the truth")


def test_causes_are_differences_from_the_line_that_they_are_switched_on() -> None:
    one, other = [
        [row | {"line": line, "norm_latency_mean_s": level} for row in part_rows() if row["line"] == "LOR"]
        for line, level in (("LOR", 1.0), ("LOR, charged", 1.5))
    ]
    found = figure("change_by_switch", [*one, *other], number="A", how=DRAWINGS["change_by_switch"])
    assert {row[found.data.columns.index("line")] for row in found.table.rows} == {"LOR, charged"}
    changes = [row[found.data.columns.index("change")] for row in found.data.rows]
    assert changes == pytest.approx([50.0] * len(changes))
    assert all("LOR, charged" in words(panel.svg) for panel in found.panels)


def test_a_predictor_that_can_be_believed_is_on_a_straight_diagonal() -> None:
    """x was logarithmic, where a straight line between two points is not where both are equal."""
    numbers = json.loads(PACKAGED.with_name("evaluation.json").read_text())
    shown = predictors_page.render(numbers, PUBLISHED, "command")
    drawing = re.search(r'<svg [^>]*aria-labelledby="Calibration-title.*?</svg>', shown, re.DOTALL)
    assert drawing is not None
    ticks = [text for text in words(drawing[0]) if re.fullmatch(r"[\d.]+", text)]
    assert ticks == ["0", "0.2", "0.4", "0.6", "0.8", "1"] * 2


# ---------------------------------------------------------------- claims
def test_the_verdicts_are_words_with_the_size_of_the_effects() -> None:
    found = findings(made_up(2.0))
    said = answer(found)
    assert said.columns == ("as released", "as described")
    assert [claim for claim, _ in said.rows] == [finding.short for finding in found]
    assert len({claim for claim, _ in said.rows}) == 5
    first = said.rows[0][1][0]
    assert (first.word, first.tone.value, first.numbers) == ("reproduced", "good", "+100 %")
    assert said.sentence.startswith("Of the paper's 5 claims, as released and as described: 4 reproduced")
    assert answer(findings(made_up(0.5))).sentence != said.sentence


def test_one_plot_has_the_effects_behind_all_verdicts_and_what_was_published() -> None:
    found = findings(made_up(2.0))
    drawn: Figure = overview(found, Drawings())
    assert [panel.title for panel in drawn.panels] == ["as released", "as described"]
    assert len(drawn.data.rows) == sum(len(finding.tested) for finding in found)
    assert [row[4] for row in drawn.data.rows] == pytest.approx([1.0] * len(drawn.data.rows))
    assert [entry.name for entry in drawn.legend][1] == "what the paper has"
