"""The explorer in the hand: its legend, filters, units, files and axes, on a phone and for a keyboard."""

from __future__ import annotations

import csv
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys

from prebleexp.intervals import mean_interval
from prebleexp.report import page
from prebleexp.report.explorer import columns
from prebleexp.report.figures import figure
from prebleexp.report.palette import styles
from tests.support import patience
from tests.support.pages.checks import WHAT_STICKS_OUT, untroubled, violations
from tests.support.pages.chromium import evaluate, show, until
from tests.support.pages.explorer import TABLE, choose, explore
from tests.support.pages.sweep_page import FIGURE, report
from tests.support.pages.sweep_rows import POLICIES, SWEEP, part_rows, rows
from tests.support.sampled import sampled

STATUS = "document.querySelector('#explorer [role=status]').textContent"
LEGEND = """
return [...document.querySelectorAll('#explorer .legend button')]
  .map((button) => [button.textContent, button.getAttribute('aria-pressed') === 'true']);
"""
FILTER = "document.querySelector(`#explorer .filters [popover][aria-label='${arguments[0]}']`)"
PANELS = """
const panels = [...document.querySelectorAll('#explorer .chart .mark-group.cell > g > path.background')];
return panels.map((panel) => panel.getBoundingClientRect()).map((box) => [box.left, box.right, box.top]);
"""
TICKS = """
const axes = [...document.querySelectorAll('#explorer .chart [aria-label^="Y-axis"]')];
return axes.map((axis) => [...axis.querySelectorAll('text')].map((e) => e.textContent).filter(Boolean).join(' '));
"""
SIDE = 2
"""GPUs of the panel that is looked at closely"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page.write(tmp_path_factory.mktemp("sweep"), report(rows()))


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two parts, with fields of a class to filter by."""
    found = [row | {"part": part, "policy.window_s": 20 * n}
             for n, part in enumerate(("one", "other")) for row in part_rows()]  # fmt: skip
    drawn = figure(FIGURE, [row for row in found if row["part"] == "one"], number="1A")
    return page.write(tmp_path_factory.mktemp("parts"), page.Report(SWEEP, found, [drawn], parts=("one",)))


def mean_of(gpus: int, rps: float, policy: str, metric: str) -> tuple[float, float]:
    found = [row[metric] for row in rows() if (row["gpus"], row["rps"], row["policy"]) == (gpus, rps, policy)]
    mean, half = mean_interval([float(value or 0) for value in found])
    assert half is not None
    return mean, half


def press(browser: Chrome, selector: str, text: str, *, shift: bool = False) -> None:
    """Click a button, by what is written on it or said of it, and wait until the chart is drawn again."""
    before = evaluate(browser, "return document.getElementById('explorer').dataset.drawn")
    script = """
        const buttons = [...document.querySelectorAll(`#explorer ${arguments[0]}`)];
        const button = buttons.find((e) => (e.ariaLabel || e.textContent) === arguments[1]);
        button.dispatchEvent(new MouseEvent('click', {shiftKey: arguments[2], bubbles: true}));
    """
    evaluate(browser, script, selector, text, shift)
    until(browser, "document.getElementById('explorer').dataset.drawn !== arguments[0]", before)


def opened(browser: Chrome, label: str) -> None:
    evaluate(browser, f"[...document.querySelectorAll('#explorer .filters > button')].find((e) => "
             f"e.textContent.startsWith('{label}')).click()")  # fmt: skip
    until(browser, f"{FILTER}.matches(':popover-open')", label)


def lines(browser: Chrome) -> set[str]:
    return {row[1] for row in evaluate(browser, TABLE)}


def test_a_name_in_the_legend_is_shown_alone_and_again_all(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1200, "light")
    explore(browser)
    assert evaluate(browser, LEGEND) == [[name, True] for name in POLICIES]
    press(browser, ".legend button", "random")
    assert lines(browser) == {"random"}
    assert evaluate(browser, LEGEND) == [["lor", False], ["round_robin", False], ["random", True]]
    assert evaluate(browser, f"return {STATUS}") == "320 runs in 32 points."
    press(browser, ".legend button", "random")
    assert lines(browser) == set(POLICIES)
    press(browser, ".legend button", "random", shift=True)
    assert lines(browser) == {"lor", "round_robin"}
    press(browser, ".legend button", "lor")
    press(browser, ".legend button", "random", shift=True)
    assert lines(browser) == {"lor", "random"}
    press(browser, ".legend button", "round_robin", shift=True)
    assert lines(browser) == set(POLICIES)
    assert "lines" not in evaluate(browser, "return location.hash")
    choose(browser, "colour", "gpus")
    press(browser, ".legend button", "8")
    choose(browser, "colour", "policy")
    assert all(on for _, on in evaluate(browser, LEGEND)), "another legend begins anew"
    press(browser, ".legend button", "lor", shift=True)
    untroubled(browser, sweep)
    browser.refresh()
    explore(browser)
    assert lines(browser) == {"random", "round_robin"}, "the address holds it"


def test_the_legend_is_for_the_keyboard_too(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1200, "light")
    explore(browser)
    evaluate(browser, "document.querySelectorAll('#explorer .legend button')[1].focus()")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    until(browser, f"{STATUS} === '320 runs in 32 points.'")
    assert evaluate(browser, "return document.activeElement.textContent") == "round_robin", "focus stays"
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    until(browser, f"{STATUS} === '960 runs in 96 points.'")
    ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.ENTER).key_up(Keys.SHIFT).perform()
    until(browser, f"{STATUS} === '640 runs in 64 points.'")


def test_filters_have_all_none_and_only(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1200, "dark")
    explore(browser)
    press(browser, ".filters button", "only 3")
    assert evaluate(browser, f"return {STATUS}") == "96 runs in 96 points."
    said = "return [...document.querySelectorAll('#explorer .filters > button')].map((e) => e.textContent)"
    assert evaluate(browser, said) == ["GPUs: all", "Request rate (requests/s): all", "policy: all", "seed: 3"]
    press(browser, ".filters button", "none of seed")
    assert evaluate(browser, f"return {STATUS}") == "No run is left that has this."
    press(browser, ".filters button", "all of seed")
    assert evaluate(browser, f"return {STATUS}") == "960 runs in 96 points."
    press(browser, ".filters button", "only 3")
    untroubled(browser, sweep)
    browser.refresh()
    explore(browser)
    assert evaluate(browser, f"return {STATUS}") == "96 runs in 96 points.", "the address holds it"


@pytest.mark.parametrize(("width", "scheme"), sampled([(360, "dark"), (1200, "light"), (1920, "dark")], 2))
def test_a_filter_opens_over_the_chart(browser: Chrome, sweep: Path, width: int, scheme: str) -> None:
    show(browser, sweep, width, scheme)
    explore(browser)
    evaluate(browser, "document.querySelector('#explorer .controls').open = true")
    top = "return document.querySelector('#explorer .chart').getBoundingClientRect().top"
    time.sleep(0.3)
    before = evaluate(browser, top)
    opened(browser, "seed")
    assert evaluate(browser, top) == before, "the chart is not pushed down"
    left, right, above, wide = evaluate(
        browser,
        f"const box = {FILTER}.getBoundingClientRect(); return [box.left, box.right, box.top, box.width]",
        "seed",
    )
    assert 0 <= left < right <= width
    assert wide >= 300
    button = evaluate(
        browser,
        "const at = [...document.querySelectorAll('#explorer .filters > button')].at(-1); "
        "return at.getBoundingClientRect().bottom",
    )
    assert 0 <= above - button < 10
    assert violations(browser) == []
    assert evaluate(browser, "return document.documentElement.scrollWidth") <= width
    assert evaluate(browser, WHAT_STICKS_OUT) == []
    untroubled(browser, sweep)


def test_a_filter_is_used_by_keyboard_and_told_to_a_screen_reader(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1200, "light")
    explore(browser)
    evaluate(browser, "document.querySelectorAll('#explorer .filters > button')[2].focus()")
    keys = ActionChains(browser)
    keys.send_keys(Keys.ENTER).perform()
    until(browser, f"{FILTER}.matches(':popover-open')", "policy")
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    told = {(node["role"]["value"], node["name"]["value"]): node for node in nodes if node.get("name")}
    (button,) = [node for (role, name), node in told.items() if role == "button" and name.startswith("policy: all")]
    assert {"name": "expanded", "value": {"type": "booleanOrUndefined", "value": True}} in button["properties"]
    assert ("group", "policy") in told
    assert {("checkbox", "lor"), ("button", "only lor"), ("button", "none of policy")} <= told.keys()
    for _ in range(3):  # all, none, the first box
        ActionChains(browser).send_keys(Keys.TAB).perform()
    ActionChains(browser).send_keys(Keys.SPACE).perform()
    until(browser, f"{STATUS} === '640 runs in 64 points.'")
    ActionChains(browser).send_keys(Keys.ESCAPE).perform()
    until(browser, f"!{FILTER}.matches(':popover-open')", "policy")
    assert evaluate(browser, "return document.activeElement.textContent") == "policy: round_robin, random"


def test_fields_are_filtered_in_a_window_of_their_own(browser: Chrome, parts: Path) -> None:
    show(browser, parts, 1200, "light")
    explore(browser)
    assert evaluate(browser, f"return {STATUS}") == "162 runs in 54 points."
    press(browser, ".filters button", "all of part")
    assert evaluate(browser, f"return {STATUS}").startswith("324 runs in 54 points. Points pool runs that differ in ")
    seen = "return [...document.querySelectorAll('#explorer [popover]')].filter((e) => e.checkVisibility()).length"
    assert evaluate(browser, seen) == 0
    evaluate(browser, "document.querySelector('#explorer .controls > .filters').lastElementChild.showPopover()")
    assert evaluate(browser, seen) == 1
    opened(browser, "policy.window_s")
    assert evaluate(browser, seen) == 2
    press(browser, ".filters button", "only 20")
    assert evaluate(browser, f"return {STATUS}") == "162 runs in 54 points."
    last = "return document.querySelector('#explorer .filters').lastElementChild.previousElementSibling.textContent"
    assert evaluate(browser, last) == "more filters: 1"
    untroubled(browser, parts)


def test_axes_and_the_list_of_metrics_have_units(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1200, "light")
    explore(browser)
    choices = (
        "return [...document.querySelector('#explorer select[name=y]').options].map((e) => [e.value, e.textContent])"
    )
    listed = dict(evaluate(browser, choices))
    assert listed["norm_latency_mean_s"] == "Average normalised latency (ms/token)"
    assert listed["ttft_p99_s"] == "P99 time to first token (ms)"
    assert listed["hit_ratio"] == "Hit ratio (share)"
    titles = "return [...document.querySelectorAll('#explorer .axis')].map((e) => e.textContent)"
    lower = ["Average normalised latency (ms/token, lower is better)", "Request rate (requests/s)"]
    assert evaluate(browser, titles) == lower
    inside = "return document.querySelector('#explorer .chart').textContent.includes('latency')"
    assert not evaluate(browser, inside), "there is one title for all panels"
    found = next(row for row in evaluate(browser, TABLE) if row[:3] == ["64", "lor", str(SIDE)])
    mean, half = mean_of(SIDE, 64.0, "lor", "norm_latency_mean_s")
    assert float(found[3]) == pytest.approx(1000 * mean, rel=1e-3)
    assert [float(end) for end in found[4].split(" to ")] == pytest.approx(
        [1000 * (mean - half), 1000 * (mean + half)], rel=1e-3
    )
    meaning = evaluate(browser, "return document.querySelector('#explorer .meaning').textContent")
    assert "norm_latency_mean_s: Mean over the requests that have one, in seconds per token" in meaning
    choose(browser, "y", "hit_ratio")
    assert evaluate(browser, titles)[0] == "Hit ratio (share, higher is better)"
    choose(browser, "y", "n_requests")
    assert evaluate(browser, titles)[0] == "Requests"
    choose(browser, "y", "n_finished")
    assert evaluate(browser, titles)[0] == "Finished requests (higher is better)"


@pytest.mark.parametrize(("factor", "unit", "scale"), [(1.0, "ms", 1000), (100.0, "s", 1)])
def test_times_are_in_the_unit_that_suits_them(factor: float, unit: str, scale: int) -> None:
    found = [row | {"ttft_p99_s": factor * float(row["ttft_p99_s"] or 0)} for row in rows()]
    measures = {one["name"]: one for one in columns(found, SWEEP.axes, "norm_latency_mean_s")["measures"]}
    ttft = measures["ttft_p99_s"]
    assert (ttft["label"], ttft["scale"]) == (f"P99 time to first token ({unit})", scale)
    assert ttft["values"] == pytest.approx([row["ttft_p99_s"] for row in found], rel=1e-4), "seconds as they were"
    assert measures["n_requests"]["scale"] == measures["hit_ratio"]["scale"] == 1


def downloaded(browser: Chrome, folder: Path, kind: str) -> str:
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    evaluate(browser, "[...document.querySelectorAll('#explorer .downloads button')]"
             f".find((e) => e.textContent === '{kind}').click()")  # fmt: skip

    def whole() -> str:
        return "".join(one.read_bytes().decode(errors="replace") for one in folder.glob(f"*.{kind.lower()}"))

    return patience.until(whole, lambda: f"a {kind}; there are {list(folder.iterdir())}")


def test_what_is_shown_comes_as_a_file(browser: Chrome, sweep: Path, tmp_path: Path) -> None:
    show(browser, sweep, 1200, "dark")
    explore(browser)
    press(browser, ".legend button", "lor")
    press(browser, ".filters button", "only 64")
    found = list(csv.DictReader(downloaded(browser, tmp_path, "CSV").splitlines()))
    assert list(found[0]) == ["gpus", "policy", "rps", "norm_latency_mean_s", "low_95", "high_95", "runs", "first_run"]
    assert [(row["gpus"], row["rps"], row["policy"]) for row in found] == [(n, "64", "lor") for n in "1248"]
    for row in found:
        mean, half = mean_of(int(row["gpus"]), 64.0, "lor", "norm_latency_mean_s")
        ends = [float(row[name]) for name in ("norm_latency_mean_s", "low_95", "high_95")]
        assert ends == pytest.approx([mean, mean - half, mean + half], rel=1e-4), "in the seconds of its name"
        assert row["runs"] == "10"
    picture = downloaded(browser, tmp_path, "SVG")
    for text in (
        "Average normalised latency (ms/token, lower is better)",
        "Request rate (requests/s)",
        "lor",
        "8 GPUs",
    ):
        assert f">{text}</text>" in picture, "a picture says what it shows"
    assert "round_robin" not in picture
    assert downloaded(browser, tmp_path, "PNG")[1:4] == "PNG"
    choose(browser, "statistic", "runs")
    for file in tmp_path.iterdir():
        file.unlink()
    found = list(csv.DictReader(downloaded(browser, tmp_path, "CSV").splitlines()))
    assert len(found) == 40
    assert {row["seed"] for row in found} == {str(seed) for seed in range(10)}
    untroubled(browser, sweep)


def test_panels_may_have_y_axes_of_their_own(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1200, "light")
    explore(browser)
    shared = evaluate(browser, TICKS)
    assert len(shared) == 4
    assert len(set(shared)) == 1
    choose(browser, "axes", "free")
    assert len(set(evaluate(browser, TICKS))) == 4
    browser.refresh()
    explore(browser)
    assert len(set(evaluate(browser, TICKS))) == 4, "the address holds it"


def test_names_along_x_have_their_lines_beside_each_other(browser: Chrome, parts: Path) -> None:
    show(browser, parts, 1200, "light")
    explore(browser)
    for name, value in (("x", "variant"), ("column", "gpus"), ("row", "rps")):
        choose(browser, name, value)
    script = """
        const marks = [...document.querySelectorAll('#explorer .chart [aria-roledescription=point]')];
        return marks.map((mark) => Math.round(mark.getBoundingClientRect().left));
    """
    lefts = evaluate(browser, script)
    assert len(lefts) == 3 * 3 * 2 * 3
    assert len(set(lefts)) == 3 * 2 * 3, "panels of a row, names, lines"


def test_the_address_is_left_alone_until_something_is_chosen(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1200, "light")
    evaluate(browser, "location.hash = 'methods'")
    explore(browser)
    assert evaluate(browser, "return location.hash") == "#methods"
    browser.get("about:blank")
    browser.get(f"{sweep.as_uri()}#y=hit_ratio&lines=2")
    until(browser, "document.getElementById('explorer').dataset.drawn")
    assert abs(evaluate(browser, "return document.getElementById('explorer').getBoundingClientRect().top")) < 60
    assert lines(browser) == {"random"}, "a link to a view opens there"


@pytest.mark.parametrize("scheme", sampled(["light", "dark"], 2))
def test_a_phone_shows_the_chart_first_and_all_of_it(browser: Chrome, parts: Path, scheme: str) -> None:
    show(browser, parts, 360, scheme)
    explore(browser)
    assert not evaluate(browser, "return document.querySelector('#explorer .controls').open")
    start, chart = evaluate(
        browser,
        "return ['#explorer', '#explorer .chart'].map((e) => document.querySelector(e).getBoundingClientRect().top)",
    )
    assert chart - start < 420, "it begins on the first screen"
    panels = evaluate(browser, PANELS)
    assert len(panels) == 6
    assert len({left for left, _, _ in panels}) == 1, "beneath each other"
    assert len({top for _, _, top in panels}) == 6
    assert all(left > 16 and right <= 344 for left, right, _ in panels)
    fits = "const e = document.querySelector('#explorer .chart'); return e.scrollWidth <= e.clientWidth"
    assert evaluate(browser, fits), "nothing is cut off"
    evaluate(browser, "document.querySelector('#explorer .controls summary').click()")
    boxes = evaluate(browser, "return [...document.querySelectorAll('#explorer select')].map((e) => e.offsetWidth)")
    assert len(boxes) == 7
    assert all(width > 100 for width in boxes)
    assert evaluate(browser, "return document.documentElement.scrollWidth") <= 360
    assert evaluate(browser, WHAT_STICKS_OUT) == []


@pytest.mark.parametrize("width", sampled([768, 1200, 1600, 1920], 4))
def test_panels_fill_the_width_and_no_more(browser: Chrome, sweep: Path, parts: Path, width: int) -> None:
    for shown in (sweep, parts):
        show(browser, shown, width, "light")
        explore(browser)
        room, whole, drawn = evaluate(
            browser,
            "const e = document.querySelector('#explorer .chart'); "
            "return [e.clientWidth, e.scrollWidth, e.querySelector('svg').getBoundingClientRect().width]",
        )
        assert whole <= room
        assert drawn > 0.9 * room


def test_lines_have_the_colour_and_the_marker_of_the_figures(browser: Chrome, sweep: Path) -> None:
    """The outline of a mark in the explorer is that of the figure, but for its size."""
    drawn = figure(FIGURE, rows(), SWEEP.axes).panels[0].svg
    for style in styles(POLICIES).values():
        used = set(re.findall(rf'<use xlink:href="#([^"]*)"[^>]*fill: var\(--{style.name},', drawn))
        shapes = [re.findall(rf'<path id="{name}" d="([^"]*)"', drawn)[0] for name in used]
        assert any(alike(numbers(shape), numbers(style.outline)) for shape in shapes), style.marker
    show(browser, sweep, 1200, "light")
    explore(browser)
    script = """
        const marks = [...document.querySelectorAll('#explorer .chart [aria-roledescription=point]')];
        return marks.slice(0, 96).map((e) => [e.getAttribute('fill'), e.getAttribute('d')]);
    """
    marks = evaluate(browser, script)
    for style in styles(POLICIES).values():
        own = [shape for colour, shape in marks if colour == style.light]
        assert len(own) == 32
        assert all(alike(numbers(shape), numbers(style.outline)) for shape in own)
    swatches = evaluate(browser, "return [...document.querySelectorAll('#explorer .legend path:last-child')]"
                        ".map((e) => [e.getAttribute('d'), getComputedStyle(e).fill])")  # fmt: skip
    for (shape, colour), style in zip(swatches, (styles(POLICIES)[name] for name in POLICIES), strict=True):
        assert shape == style.outline
        assert [int(part) for part in re.findall(r"\d+", colour)] == list(bytes.fromhex(style.light[1:]))


def numbers(path: str) -> list[float]:
    return [float(one) for one in re.findall(r"-?\d*\.?\d+(?:e-?\d+)?", path)]


def alike(path: list[float], other: list[float]) -> bool:
    """Whether a path is the other one at another size."""
    size = max(map(abs, path)) / max(map(abs, other))
    return len(path) == len(other) and all(
        math.isclose(a, b * size, abs_tol=0.01 * size) for a, b in zip(path, other, strict=True)
    )


def test_the_first_figure_and_the_explorer_agree_whatever_else_a_sweep_has() -> None:
    names = [f"mine, variant {i}" for i in range(12)]
    found: list[Any] = [
        row | {"line": name, "part": "one" if i < 4 else "other"}
        for i, name in enumerate(names)
        for row in rows((4,), (8.0, 16.0), ("lor",), 2)
    ]
    line = next(
        one for one in columns(found, (), "norm_latency_mean_s", ["one"])["dimensions"] if one["name"] == "line"
    )
    looks = dict(zip(line["values"], line["looks"], strict=True))
    for name, style in styles(names[:4]).items():
        assert (looks[name]["colour"], looks[name]["outline"]) == (f"--{style.name}", style.outline)
    assert len({(look["colour"], look["dashed"]) for look in looks.values()}) == 12, "no two look the same"
