"""The page's data hold what the runs had, and its files too."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from prebleexp.metrics import METRICS
from prebleexp.report import draw, export, page
from prebleexp.report.drawings import Drawings
from prebleexp.report.explorer import columns, packed
from prebleexp.report.figures import Column, Table, figure
from prebleexp.report.meanings import meanings
from prebleexp.report.sheet import sheet
from tests.support.pages.hostile import HOSTILE
from tests.support.pages.sweep_page import FIGURE, report
from tests.support.pages.sweep_rows import SWEEP, part_rows, rows


def unpacked(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(text)))
    return found


def test_every_run_comes_back_from_the_columns() -> None:
    found = rows()
    data = unpacked(packed(found, SWEEP.axes))
    assert len(data["keys"]) == len(found)
    for dimension in data["dimensions"]:
        assert [dimension["values"][i] for i in dimension["index"]] == [row[dimension["name"]] for row in found]
    for measure in data["measures"]:
        values = [row[measure["name"]] for row in found]
        assert measure["values"] == pytest.approx(values, rel=1e-4)
    assert {one["name"] for one in data["dimensions"]} == {"gpus", "rps", "policy", "seed"}
    assert data["constants"] == {"duration_s": "30", "horizon": "drain", "workload": "react"}
    assert data["start"] == {
        "x": "rps", "y": "norm_latency_mean_s", "colour": "policy", "column": "gpus", "row": "", "parts": [],
    }  # fmt: skip


def test_it_starts_with_the_first_figure_of_a_sweep_of_parts() -> None:
    data = columns([row | {"part": "rates"} for row in part_rows()], (), "norm_latency_mean_s", ["rates"])
    start = data["start"]
    assert (start["x"], start["colour"], start["column"], start["row"]) == ("rps", "line", "gpus", "variant")


def test_names_and_gaps_survive() -> None:
    named = [{**row, "policy": name} for name, row in zip(HOSTILE.values(), rows(seeds=1), strict=False)]
    named[0]["norm_latency_mean_s"] = None
    data = unpacked(packed(named, SWEEP.axes))
    policy = next(one for one in data["dimensions"] if one["name"] == "policy")
    assert policy["values"] == list(HOSTILE.values())
    latency = next(one for one in data["measures"] if one["name"] == "norm_latency_mean_s")
    assert latency["values"][0] is None


def test_the_same_colour_for_the_same_policy_in_figures_and_explorer() -> None:
    data = columns(rows(), SWEEP.axes, "norm_latency_mean_s")
    policy = next(one for one in data["dimensions"] if one["name"] == "policy")
    looks = dict(zip(policy["values"], policy["looks"], strict=True))
    drawn = figure(FIGURE, rows(), SWEEP.axes).panels[0].svg
    assert len({look["colour"] for look in looks.values()}) == 3
    for look in looks.values():
        assert f"var({look['colour']}, #" in drawn


def test_ten_thousand_runs_are_a_small_page() -> None:
    found = rows(tuple(range(1, 26)), tuple(float(rate) for rate in range(1, 9)), ("a", "b", "c", "d", "e"), 10)
    assert len(found) == 10_000
    drawn = [figure(FIGURE, found, SWEEP.axes)]
    whole = page.render(page.Report(SWEEP, found, drawn))
    assert len(whole.encode()) < 4_000_000
    assert "more panels are not drawn" in whole


def test_a_long_table_is_cut_on_the_page_and_whole_in_its_file(tmp_path: Path) -> None:
    found = rows(tuple(range(1, 127)), tuple(float(rate) for rate in range(1, 9)), ("a",), 1)
    drawn = figure(FIGURE, found, SWEEP.axes)
    whole = page.render(page.Report(SWEEP, found, [drawn]))
    assert "The first 1000 of 1008 rows." in whole
    export.figures(tmp_path, [drawn])
    assert len((tmp_path / f"{FIGURE}.csv").read_text().splitlines()) == 1009


def test_files_of_a_figure_hold_its_numbers(tmp_path: Path) -> None:
    found = figure(FIGURE, rows(), SWEEP.axes, number="1A")
    export.figures(tmp_path, [found])
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".csv", ".pdf", ".png", ".svg", ".tex"]
    named = {path.suffix: path for path in tmp_path.iterdir()}
    lines = list(csv.DictReader(named[".csv"].read_text().splitlines()))
    assert len(lines) == len(found.table.rows)
    first = [row for row in rows() if (row["gpus"], row["rps"], row["policy"]) == (1, 2.0, "lor")]
    mean = math.fsum(float(row["norm_latency_mean_s"] or 0) for row in first) / 10
    assert float(lines[0]["norm_latency_mean_s"]) == mean, "all digits"
    assert named[".pdf"].read_bytes().startswith(b"%PDF")
    assert named[".png"].read_bytes().startswith(b"\x89PNG")
    picture = ElementTree.fromstring(named[".svg"].read_text())
    assert "var(" not in named[".svg"].read_text(), "colours for programs that know no variables"
    texts = [element.text for element in picture.iter() if element.text]
    assert {"4 GPUs", "Request rate (requests/s)", "lor"} <= set(texts)
    ids = [element.attrib["id"] for element in picture.iter() if "id" in element.attrib]
    assert len(ids) == len(set(ids))
    tex = named[".tex"].read_text()
    assert tex.count(r"\\") == len(found.table.rows) + 1
    assert r"100.0 \%" in tex


def test_latex_is_escaped() -> None:
    made = export.latex(Table((Column("a_b", False),), ((r"\input{x} 50 % & #1 ~ ^ $",),)), "100 %")
    assert r"\textbackslash{}input\{x\} 50 \% \& \#1 \textasciitilde{} \textasciicircum{} \$ \\" in made


def test_a_figure_with_a_legend_names_its_lines_in_the_picture() -> None:
    many = [row | {"line": f"{row['line']}_{'x' * 20}"} for row in part_rows()]
    found = figure(FIGURE, many, number="1A")
    assert found.legend
    picture = sheet(found)
    for entry in found.legend:
        assert f">{entry.name}</text>" in picture
        assert entry.style.outline in picture, "with the marker that the line has"


def test_all_numbers_are_in_the_report_s_json() -> None:
    found = json.loads(page.numbers(report(rows())))
    (drawn,) = found["figures"]
    assert drawn["columns"][:4] == ["gpus", "rps", "policy", "norm_latency_mean_s"]
    assert len(drawn["rows"]) == 4 * 8 * 3
    assert found["sweep"]["command"] == SWEEP.command
    assert found["provenance"]["Python"]


def test_only_what_has_changed_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawings = Drawings(tmp_path)
    first = figure(FIGURE, rows(), SWEEP.axes, drawings=drawings)
    assert drawings.drawn == 4
    again = Drawings(tmp_path)
    monkeypatch.setattr(draw, "drawn", None)
    assert figure(FIGURE, rows(), SWEEP.axes, drawings=again) == first
    assert again.drawn == 0
    monkeypatch.undo()
    changed = [row | {"norm_latency_mean_s": 0.03} if row["gpus"] == 4 else row for row in rows()]
    later = Drawings(tmp_path)
    made = figure(FIGURE, changed, SWEEP.axes, drawings=later)
    assert later.drawn == 1
    assert made.panels[0] == first.panels[0]
    later.prune()
    assert len(list(tmp_path.iterdir())) == 4


def test_pictures_that_have_not_changed_are_left_alone(tmp_path: Path) -> None:
    export.figures(tmp_path, [figure(FIGURE, rows(), SWEEP.axes)])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    export.figures(tmp_path, [figure(FIGURE, rows(), SWEEP.axes)])
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    (tmp_path / f"{FIGURE}.png").unlink()
    export.figures(tmp_path, [figure(FIGURE, rows(), SWEEP.axes)])
    assert (tmp_path / f"{FIGURE}.png").exists()


def test_every_metric_has_a_meaning() -> None:
    assert list(meanings()) == [*METRICS, "seconds"]
    assert len(set(meanings().values())) == len(METRICS) + 1


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_files_of_hostile_names_stay_in_their_folder(tmp_path: Path, name: str) -> None:
    found = figure(FIGURE, rows((1,), (2.0, 4.0), (name, "lor"), 2), ("rps", "policy"), number=f"../{name}/x")
    export.figures(tmp_path / "figures", [found])
    assert len(list((tmp_path / "figures").iterdir())) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["figures"]
    ElementTree.fromstring(next((tmp_path / "figures").glob("*.svg")).read_text())
