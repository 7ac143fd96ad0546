"""A sweep's page: complete, self-contained, the same bytes every time, and nothing in it is trusted."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.report import export, page
from prebleexp.report.draw import Line, Scales, spread
from prebleexp.report.figures import MOST_PANELS, figure
from prebleexp.report.palette import OF_POLICY, STYLES, styles
from prebleexp.report.summary import Row, layout
from prebleexp.report.wording import interval, line_name, number, percent, signed_range
from tests.support.counted import calls
from tests.support.pages.hostile import HOSTILE
from tests.support.pages.parsed import Page
from tests.support.pages.sweep_page import FIGURE, html, report
from tests.support.pages.sweep_rows import RATES, SWEEP, rows
from tests.support.places import ROOT


@pytest.fixture(scope="module")
def demo() -> str:
    return html(rows())


def test_a_drawing_per_gpu_count_and_a_table_row_per_configuration(demo: str) -> None:
    tags = [tag for tag, attributes in Page(demo).tags if tag == "td" or attributes.get("role") == "img"]
    assert tags.count("svg") == 4
    assert tags.count("td") == 4 * len(RATES) * 3 * 8  # 3 axes and 5 numbers
    for text in ("8 GPUs", "round_robin", "means over 10 seeds", SWEEP.command):
        assert text in demo


@pytest.mark.slow
def test_the_same_arguments_give_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from prebleexp.report import page; "
        "from prebleexp.report.figures import figure;"
        "from tests.support.pages.sweep_rows import SWEEP, rows;"
        "found = rows();"
        "drawn = [figure('latency_against_rate', found, SWEEP.axes)];"
        "page.write(Path(sys.argv[1]), page.Report(SWEEP, found, drawn))"
    )
    digests = {digest(page.write(tmp_path / "here", report(rows())).parent) for _ in range(2)}
    environment = os.environ | {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", code, tmp_path / "there"], check=True, cwd=ROOT, env=environment)
    digests.add(digest(tmp_path / "there"))
    assert len(digests) == 1


def digest(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    assert [path.name for path in files if path.parent == folder] == ["index.html", "report.json"]
    assert len(files) == 7
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def test_a_report_is_one_file_that_asks_for_no_other(demo: str, tmp_path: Path) -> None:
    parsed = Page(demo)
    assert not {"iframe", "object", "img"} & {tag for tag, _ in parsed.tags}
    links = [value for tag, attributes in parsed.tags for name, value in attributes.items() if name in ("src", "href")]
    files = {f"figures/{FIGURE}.{kind}" for kind in export.FORMATS}  # asked for by a click alone
    inside = {str(link) for link in links if str(link).startswith("#")}
    assert set(links) - inside == {"data:,"} | files  # an empty icon, so that none is asked for
    assert {link[1:] for link in inside} <= set(parsed.ids)
    page.write(tmp_path, report(rows(gpus=(1,), seeds=1)))
    assert {f"figures/{path.name}" for path in (tmp_path / "figures").iterdir()} == files
    assert not [name for tag, attributes in parsed.tags for name in attributes if name.startswith("on")]
    policy = next(a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy")
    scripts = re.findall(r"<script>(.*?)</script>", demo, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src " + " ".join(
        f"'sha256-{one}'" for one in hashes
    )
    named = [value for _, a in parsed.tags for name, value in a.items() if name == "xlink:href"]
    assert all(str(value).startswith("#") for value in named)
    page_itself = re.sub(r"<script.*?</script>", "", demo, flags=re.DOTALL)
    assert "@import" not in page_itself
    assert set(re.findall(r"url\((.)", page_itself)) <= {"#"}


def test_every_drawing_is_valid_xml_with_a_title_and_a_description(demo: str) -> None:
    drawings = re.findall(r"<svg [^>]*role=\"img\".*?</svg>", demo, re.DOTALL)
    assert len(drawings) == 4
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        title, description = root[0], root[1]
        assert root.attrib["aria-labelledby"] == f"{title.attrib['id']} {description.attrib['id']}"
        assert "normalised latency against request rate" in (title.text or "")
        assert re.search(r"^lor is \d+ to \d+ % faster than round_robin and random\.$", description.text or "")


def test_ids_are_unique_and_all_that_is_referred_to_exists(demo: str) -> None:
    parsed = Page(demo)
    assert len(parsed.ids) == len(set(parsed.ids))
    for _, attributes in parsed.tags:
        for name in ("aria-labelledby", "xlink:href"):
            for target in (attributes.get(name) or "").replace("#", "").split():
                assert target in parsed.ids
    drawings = "".join(re.findall(r"<svg.*?</svg>", demo, re.DOTALL))
    assert set(re.findall(r"url\(#([^)]*)\)", drawings)) <= set(parsed.ids)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.filterwarnings("error")
def test_a_hostile_name_is_shown_as_text_and_nothing_else(name: str) -> None:
    def tags(text: str) -> list[str]:
        failed: list[Row] = [{"policy": text, "gpus": 1, "rps": 2.0, "seed": 0, "error": text}]
        found = rows(gpus=(1,), rates=(2.0, 4.0), policies=("lor", text), seeds=2)
        about = replace(SWEEP, name=text, title=text, command=text, configuration=text, axes=("rps", "policy"))
        drawn = [figure(FIGURE, found, about.axes, title=text, command=text, number="1A")]
        whole = page.render(page.Report(about, found, drawn, failures=failed, provenance={text: text}))
        parsed = Page(whole)
        # the drawing of a long name has a legend, of a short one labels: the page around is compared
        nonlocal shown
        shown = parsed.text
        return [tag for tag, _ in parsed.tags if tag in ("h1", "script", "style", "img", "b", "td", "pre", "section")]

    shown = ""
    assert tags(name) == tags("harmless")
    tags(name)
    assert shown.count(name) >= 8  # title, heading, sweep, command, YAML, drawing, table, failure, provenance


def test_a_drawing_has_a_name_as_text_and_not_as_a_formula() -> None:
    for name in ("<b>&\"'", "$x^2$", "路由"):
        found = figure("latency_against_rate", rows((1,), (2.0, 4.0), ("lor", name), 2), ("rps", "policy"))
        texts = [element.text for element in ElementTree.fromstring(found.panels[0].svg).iter() if element.text]
        assert name in texts


def test_runs_without_a_value_are_gaps_in_the_drawing_and_dashes_in_the_table() -> None:
    without = {"norm_latency_mean_s": None, "ttft_p99_s": None, "hit_ratio": None, "n_finished": 0, "n_requests": 0}
    some = [row | without if row["rps"] == 8.0 else row for row in rows(gpus=(1,), policies=("lor",))]
    found = figure("latency_against_rate", some, SWEEP.axes)
    gap = next(row for row in found.table.rows if row[1] == "8")
    assert gap[3:] == ("–", "0 of 10", "–", "–", "–")
    shown = Page(html(some)).text.lower()
    assert "nan" not in shown.replace("provenance", "")


def test_where_no_run_has_a_value_the_page_says_so() -> None:
    nothing = [row | {"norm_latency_mean_s": None} for row in rows(gpus=(1,), seeds=2)]
    assert "No request of this sweep came far enough" in html(nothing)


def test_one_run_is_a_page_that_claims_no_interval() -> None:
    shown = html(rows((8,), (64.0,), ("lor",), 1))
    assert "One seed per point, so there is no confidence band." in shown
    assert "lor has an average normalised latency of" in shown
    assert "±" not in shown.split("<table>")[0]
    Page(shown)


def test_a_sweep_in_which_every_run_failed_has_a_page_that_lists_why() -> None:
    failures: list[Row] = [{"gpus": 13, "policy": "mine", "seed": 3, "error": "ValueError: 13 GPUs bring bad luck"}]
    shown = html([], failures)
    assert "No run of this sweep succeeded" in shown
    parsed = Page(shown)
    assert "13 GPUs bring bad luck" in parsed.text
    assert "runs failed" in parsed.text
    assert not [tag for tag, attributes in parsed.tags if attributes.get("role") == "img"]


def test_a_page_without_failures_does_not_speak_of_them(demo: str) -> None:
    assert "failed" not in Page(demo).text


def test_an_unknown_figure_is_refused_with_the_ones_that_exist() -> None:
    with pytest.raises(InvalidInput, match="latency_against_rate"):
        figure("latency_against_rat", rows(gpus=(1,)), SWEEP.axes)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"report folder .*file cannot be written"):
        page.write(tmp_path / "file", report([]))


def test_panels_beyond_the_limit_are_counted_and_kept_in_the_table() -> None:
    found = figure("latency_against_rate", rows(tuple(range(1, MOST_PANELS + 4)), (2.0, 4.0), ("lor",), 1), SWEEP.axes)
    assert len(found.panels) == MOST_PANELS
    assert found.left_out == 3
    assert len(found.table.rows) == 2 * (MOST_PANELS + 3)


def test_the_headline_says_when_a_lead_is_within_the_noise() -> None:
    tied = [row | {"norm_latency_mean_s": 1.0 + 0.1 * ((int(row["seed"] or 0) + (row["policy"] == "lor")) % 2)}
            for row in rows((1,), (2.0,), ("lor", "random"), 10)]  # fmt: skip
    assert "noise" in figure("latency_against_rate", tied, SWEEP.axes).headline
    clear = rows((1,), (2.0,), ("lor", "random"), 10)
    assert "noise" not in figure("latency_against_rate", clear, SWEEP.axes).headline


def test_a_line_alone_has_the_range_of_its_means_where_there_are_many_panels() -> None:
    of = rows((1, 2, 3, 4, 5), (2.0, 4.0), ("lor",), 4)
    found = [
        row | {"norm_latency_mean_s": float(row["gpus"] or 0) * (0.9 + 0.2 * (int(row["seed"] or 0) % 2))} for row in of
    ]
    says = "lor has an average normalised latency of 1.00 to 5.00 s/token."
    assert figure("latency_against_rate", found, SWEEP.axes).headline == says


@pytest.mark.parametrize(("axis", "value", "name"), [("gpus", 8, "8 GPUs"), ("rps", 1.0, "1 request/s"),
                                                     ("policy", "lor", "lor"), ("seed", 8, "8")])  # fmt: skip
def test_a_line_of_a_load_says_what_it_is_a_number_of(axis: str, value: Any, name: str) -> None:
    assert line_name(axis, value) == name


def test_what_was_swept_decides_what_lies_along_x_and_what_is_a_line() -> None:
    found = rows((1, 2), (2.0, 4.0), ("lor", "random"), 2)
    assert layout(found, SWEEP.axes).axes == ("gpus", "rps", "policy")
    assert layout(rows((1, 2), (2.0,), ("lor",), 2), ("gpus",)).x == "gpus"
    assert layout([], ()).x == "rps"


def test_lines_that_have_a_number_of_gpus_each_are_compared_with_one_another() -> None:
    """As clusters of the same cost; where a line is on several, each number of them has a panel."""
    axes = ("gpus", "rps", "variant", "line")
    many, few = ([row | {"variant": "cost", "line": line} for row in rows((gpus,), (2.0, 4.0), ("lor",), 1)]
                 for line, gpus in (("A100", 86), ("H100", 40)))  # fmt: skip
    assert layout([*many, *few], axes).panels == ()
    both = [row | {"variant": "cost", "line": "H100"} for row in rows((40, 86), (2.0, 4.0), ("lor",), 1)]
    assert layout([*many, *both], axes).panels == ("gpus",)


@example({"LOR"})
@given(st.sets(st.text(min_size=1) | st.sampled_from(sorted(OF_POLICY)), max_size=20))
def test_names_get_looks_that_differ_and_known_policies_keep_theirs(names: set[str]) -> None:
    looks = styles({*names, "lor"})
    assert looks["lor"] == STYLES[OF_POLICY["lor"]]
    if len(looks) <= len(STYLES):
        assert len({style.name for style in looks.values()}) == len(looks)
    assert styles(sorted({*names, "lor"}, reverse=True)) == looks


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_line_names_can_be_read_on_light_and_on_dark_paper(style: Any) -> None:
    for ink, paper in ((style.light, "#fdfcfa"), (style.dark, "#161614")):
        low, high = sorted((luminance(ink), luminance(paper)))
        assert (high + 0.05) / (low + 0.05) >= 4.5


@given(st.lists(st.floats(0, 3), min_size=1, max_size=8))
def test_labels_keep_their_distance_and_their_order(positions: list[float]) -> None:
    placed = spread(positions, 0.16, 0.0, 3.0)
    ordered = [placed[i] for i in sorted(range(len(positions)), key=lambda i: positions[i])]
    assert all(b - a >= 0.16 - 1e-9 for a, b in itertools.pairwise(ordered))
    assert min(placed) >= -1e-9
    assert max(placed) <= 3 + 1e-9


def test_labels_that_do_not_touch_stay_where_they_are() -> None:
    assert spread([2.0, 0.5, 1.0], 0.16, 0.0, 3.0) == pytest.approx([2.0, 0.5, 1.0])


def test_an_axis_is_logarithmic_where_the_values_span_more_than_a_decade() -> None:
    def scales(*means: float | None) -> Scales:
        points = tuple((2.0**i, mean, 0.01) for i, mean in enumerate(means))
        return Scales.of([Line("lor", STYLES[0], points)])

    assert scales(0.1, 1.0, 2.0).y_log
    assert not scales(0.5, 1.0, 2.0).y_log
    assert not scales(0.0, 1.0, 200.0).y_log
    assert scales(None, None).y_limits == (0, 1)
    assert scales(1.0, 1.0, 1.0, 1.0).x_log2


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (1, "1.00"), (0.012345, "0.0123"), (1234.5, "1,230"), (-0.5, "−0.500"), (3e-9, "3e-09")],
)
def test_numbers_have_three_significant_digits(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        ((0.5, None), "0.500"),
        ((0.12345, 0.0123), "0.123 ± 0.012"),
        ((1234.56, 78.9), "1,235 ± 79"),
        ((0.5, 0.0), "0.500 ± 0"),
    ],
)
def test_an_interval_has_the_digits_that_mean_something(value: Any, text: str) -> None:
    assert interval(value) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (-3.96, -1.77, "−4.0 to −1.8 %"),
        (-0.3, 25.4, "0 to +25 %"),
        (0.01, 0.12, "0.0 to +0.1 %"),
        (7.0, 7.01, "+7.0 %"),
    ],
)
def test_a_range_has_its_signs_and_zero_has_none(low: float, high: float, text: str) -> None:
    assert signed_range(low, high) == text


def test_a_share_that_is_not_all_is_never_shown_as_all() -> None:
    assert percent(0.99999) == "99.9 %"
    assert percent(1.0) == "100.0 %"
    assert percent(None) == "–"


def test_a_page_takes_few_calls_a_run() -> None:
    found = rows()
    html(found[:2])  # imports
    each = calls(lambda: html(found)) / len(found)
    print(f"{each:.0f} calls for each of {len(found)} runs")
    assert each < 1_600


def test_one_seed_is_one_seed() -> None:
    """It was "1 seeds"."""
    assert "<dt>seed</dt><dd>1</dd>" in page.render(report(rows(gpus=(1,), seeds=1)))
    assert "<dt>seeds</dt><dd>2</dd>" in page.render(report(rows(gpus=(1,), seeds=2)))


def test_a_page_of_a_search_says_how_many_runs_there_were_in_all() -> None:
    """The page had 21, and the terminal 45."""
    search = replace(report(rows(gpus=(1,), seeds=1)), sweep=replace(SWEEP, kind="plan"), in_all=45)
    text = page.render(search)
    assert "<dt>runs of the search</dt>" in text
    assert "<dt>runs in all</dt><dd>45</dd>" in text
    assert "runs in all" not in page.render(replace(search, in_all=0))
