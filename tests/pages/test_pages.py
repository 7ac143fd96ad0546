"""Pages in use: the explorer draws what it says, tables sort, filter and copy, nothing is hard to reach for anybody."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome

from prebleexp.__main__ import main
from prebleexp.intervals import mean_interval
from prebleexp.predict.scores import PUBLISHED
from prebleexp.report import compare_page, frame, page, predictors_page
from prebleexp.report.compared import pair
from prebleexp.report.figures import figure
from prebleexp.workloads.instructions import PACKAGED
from tests.support.pages.checks import WHAT_STICKS_OUT, untroubled, violations
from tests.support.pages.chromium import evaluate, show, until
from tests.support.pages.explorer import TABLE, choose, explore
from tests.support.pages.hostile import HARM, HOSTILE
from tests.support.pages.sweep_page import FIGURE, report
from tests.support.pages.sweep_rows import SWEEP, rows
from tests.support.places import ROOT
from tests.support.sampled import sampled
from tests.support.sides import side

SCREENS = ((360, "light"), (360, "dark"), (1920, "light"), (1920, "dark"))
# of the chart's marks the accessible names, which say x, y, colour and panel
MARKS = """
const marks = [...document.querySelectorAll('#explorer .chart [aria-roledescription=point]')];
return marks.map((mark) => mark.getAttribute('aria-label'));
"""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return page.write(tmp_path_factory.mktemp("sweep"), report(rows()))


def test_the_explorer_draws_what_is_chosen(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1400, "light")
    explore(browser)
    assert len(evaluate(browser, MARKS)) == 4 * 8 * 3
    choose(browser, "y", "ttft_p99_s")
    choose(browser, "x", "gpus")
    choose(browser, "column", "rps")
    found = evaluate(browser, TABLE)
    assert len(found) == 4 * 8 * 3
    values = [
        float(row["ttft_p99_s"] or 0)
        for row in rows()
        if (row["gpus"], row["rps"], row["policy"]) == (2, 16.0, "round_robin")
    ]
    mean, half = mean_interval([1000 * value for value in values])  # the explorer says milliseconds
    assert half is not None
    line = next(row for row in found if row[:3] == ["2", "round_robin", "16"])
    assert float(line[3]) == pytest.approx(mean, rel=1e-3)
    low, high = (float(end) for end in line[4].split(" to "))
    assert (low, high) == pytest.approx((mean - half, mean + half), rel=1e-3)
    assert line[5] == "10"
    assert "x=gpus" in evaluate(browser, "return location.hash"), "an exploration can be linked to"
    untroubled(browser, sweep)


def test_the_explorer_filters_and_is_honest_about_what_it_pools(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1400, "dark")
    explore(browser)
    choose(browser, "column", "")
    note = evaluate(browser, "return document.querySelector('#explorer [role=status]').textContent")
    assert note.startswith("960 runs in 24 points. Points pool runs that differ in GPUs: ")
    assert {row[3] for row in evaluate(browser, TABLE)} == {"–"}
    script = """
        const filter = document.querySelector('#explorer .filters > [aria-label=GPUs]');
        for (const box of [...filter.querySelectorAll('input')].slice(1)) box.click();
    """
    evaluate(browser, script)
    status = "document.querySelector('#explorer [role=status]').textContent"
    until(browser, f"{status} === '240 runs in 24 points.'")
    choose(browser, "statistic", "runs")
    assert evaluate(browser, f"return {status}") == "240 runs in 240 points."
    evaluate(browser, "document.querySelector('#explorer .filters > [aria-label=GPUs] input').click()")
    until(browser, f"{status} === 'No run is left that has this.'")
    untroubled(browser, sweep)


def test_a_point_says_which_runs_it_stands_for(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1400, "light")
    explore(browser)
    script = """
        const mark = document.querySelector('#explorer .chart [aria-roledescription=point]');
        const box = mark.getBoundingClientRect();
        const at = {clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true};
        for (const kind of ['mousemove', 'mousedown', 'mouseup', 'click']) mark.dispatchEvent(new MouseEvent(kind, at));
    """
    evaluate(browser, "document.querySelector('#explorer .chart').scrollIntoView()")
    evaluate(browser, script)
    told = until(browser, "document.querySelector('#explorer .detail').textContent")
    assert "python -m prebleexp trace 1-2.0-" in told
    evaluate(browser, "document.querySelector('#explorer .detail').replaceChildren()")
    evaluate(browser, "document.querySelector('#explorer .listing td button').click()")
    assert "python -m prebleexp trace 1-2.0-" in until(
        browser, "document.querySelector('#explorer .detail').textContent"
    )
    assert "gpus=1 rps=2 policy=" in told


def test_a_link_brings_an_exploration_back(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1400, "light")
    browser.get("about:blank")  # else only the fragment would be another, and nothing would be loaded
    browser.get(f"{sweep.as_uri()}#x=gpus&y=hit_ratio&column=policy&statistic=median&rps=7")
    explore(browser)
    chosen = evaluate(browser, "return [...document.querySelectorAll('#explorer select')].map((e) => e.value)")
    assert chosen == ["gpus", "hit_ratio", "policy", "policy", "", "median", "shared"]
    assert len(evaluate(browser, TABLE)) == 4 * 3


def test_tables_sort_filter_and_copy(browser: Chrome, sweep: Path) -> None:
    show(browser, sweep, 1400, "light")
    column = """
        const table = document.querySelector('main .scroll table');
        const rows = [...table.tBodies[0].rows].filter((row) => !row.hidden);
        return rows.map((row) => row.cells[arguments[0]].textContent);
    """
    press = "document.querySelectorAll('main .scroll table th button')[arguments[0]].click()"
    before = evaluate(browser, column, 1)
    evaluate(browser, press, 1)
    assert evaluate(browser, column, 1) == sorted(before, key=float)
    evaluate(browser, press, 1)
    assert evaluate(browser, column, 1) == sorted(before, key=float, reverse=True)
    evaluate(browser, press, 1)
    assert evaluate(browser, column, 1) == before
    evaluate(browser, press, 3)
    latencies = [float(text.split(" ± ")[0].replace(",", "")) for text in evaluate(browser, column, 3)]
    assert latencies == sorted(latencies)
    script = """
        const input = document.querySelector('main .tools input');
        input.value = arguments[0];
        input.dispatchEvent(new Event('input'));
        return document.querySelector('main .tools [role=status]').textContent;
    """
    assert evaluate(browser, script, "8 lor") == "11 of 96 rows"
    assert evaluate(browser, script, "round_robin 4") == "11 of 96 rows"
    browser.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    find = "return [...document.querySelectorAll('main .tools button')].find((e) => e.textContent === 'Copy as CSV')"
    evaluate(browser, find).click()  # by the driver: a page that nobody has touched may not write to the clipboard
    until(browser, "[...document.querySelectorAll('main .tools button')].some((e) => e.textContent === 'Copied')")
    read = "navigator.clipboard.readText().then(arguments[0], (error) => arguments[0](String(error)))"
    lines = str(browser.execute_async_script(read)).splitlines()  # type: ignore[no-untyped-call]
    assert lines[0].startswith("gpus,rps,policy,")
    assert len(lines) == 12
    untroubled(browser, sweep)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    settings = [f"cache_dir={folder}/cache", f"reports_dir={folder}/reports"]
    assert main(["trace", "gpus=4", "rps=16", "policy=e2", "duration_s=5", *settings]) == 0
    return next((folder / "reports").glob("*/index.html"))


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    values = {gpus: [1.0 + gpus, 2.0, 3.0 + gpus] for gpus in (2, 4, 8)}
    slower = {gpus: [value * 1.2 for value in of_gpus] for gpus, of_gpus in values.items()}
    found = pair("a", side("a", values), "b", side("b", slower), "ttft_p99_s")
    whole = compare_page.render([found], "python -m prebleexp compare a b", "p99_ttft:+5%", ["at gpus=2"])
    return frame.write(tmp_path_factory.mktemp("comparison") / "index.html", whole)


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The evaluation that comes with the package, with a card that means harm."""
    numbers = json.loads(PACKAGED.with_name("evaluation.json").read_text())
    numbers["predictors"]["tfidf"]["card"]["licence"] = HARM
    whole = predictors_page.render(numbers, PUBLISHED, f"python -m prebleexp predict evaluate data={HARM}")
    return frame.write(tmp_path_factory.mktemp("predictors") / "index.html", whole)


@pytest.mark.parametrize(("width", "scheme"), sampled(SCREENS, 4))
@pytest.mark.parametrize("kind", ["sweep", "run", "comparison", "predictors"])
def test_every_page_is_whole_and_open_to_all(
    browser: Chrome, request: pytest.FixtureRequest, kind: str, width: int, scheme: str
) -> None:
    shown: Path = request.getfixturevalue(kind)
    show(browser, shown, width, scheme)
    if kind == "sweep":
        explore(browser)
    if kind == "predictors":
        until(browser, "document.body.textContent.includes(arguments[0])", HARM)
    else:
        until(browser, "document.querySelector('.chart svg')")
    if kind == "run":
        until(browser, "document.querySelectorAll('.chart svg').length >= 3")
    assert violations(browser) == []
    assert evaluate(browser, "return document.documentElement.scrollWidth") <= width
    assert evaluate(browser, WHAT_STICKS_OUT) == []
    untroubled(browser, shown)


def test_a_comparison_begins_with_the_answer(browser: Chrome, comparison: Path) -> None:
    show(browser, comparison, 1400, "light")
    until(browser, "document.querySelector('.chart svg')")
    first = evaluate(browser, "return document.querySelector('.headline').innerText")
    assert first == (
        "B (b) and A (a) cannot be told apart in p99 time to first token: B is 20.0 ± 26.6 % slower, on average over 3 "
        "configurations; one by one, all 3 are undecided, where the 95 % interval of the paired differences has zero "
        "in it. Lower is better."
    )
    drawn = evaluate(browser, "return document.querySelector('.chart').textContent")
    assert "undecided" in drawn
    assert "worse" not in drawn, "the legend has what there is"


def test_every_quantity_of_a_run_can_be_drawn(browser: Chrome, run: Path) -> None:
    show(browser, run, 1400, "light")
    until(browser, "document.getElementById('run').dataset.drawn === 'queue'")
    drawn = ("queue", "running", "outstanding", "kv_held", "kv_used", "tokens", "sent_back", "hit_ratio", "busy")
    for i, name in enumerate(drawn):
        script = """
            const select = document.querySelector('#run select');
            select.value = arguments[0];
            select.dispatchEvent(new Event('change'));
        """
        evaluate(browser, script, str(i))
        until(browser, "document.getElementById('run').dataset.drawn === arguments[0]", name)
    untroubled(browser, run)


def alone(policies: tuple[str, ...], **changed: Any) -> Callable[[], page.Report]:
    return lambda: report([row | changed for row in rows((2,), (4.0,), policies, 1)])


def failed() -> page.Report:
    failures: list[Any] = [{"gpus": 2, "policy": "lor", "seed": 0, "error": "ValueError: no"}]
    return page.Report(SWEEP, [], [figure(FIGURE, [], SWEEP.axes)], failures=failures)


def large() -> page.Report:
    return report(rows(tuple(range(1, 26)), tuple(float(rate) for rate in range(1, 9)), ("a", "b", "c", "d", "e"), 10))


UNUSUAL: dict[str, tuple[Callable[[], page.Report], str]] = {
    "empty": (lambda: report([]), "No run of this sweep succeeded, so there is nothing to compare."),
    "one cell": (alone(("lor",)), "lor has an average normalised latency of"),
    "all failed": (failed, "ValueError: no"),
    "missing metric": (alone(("lor", "random"), norm_latency_mean_s=None), "No request of this sweep came far enough"),
    "10,000 cells": (large, "10,000"),
}


LARGE = pytest.param("10,000 cells", marks=[pytest.mark.slow, pytest.mark.nightly])


@pytest.mark.parametrize("name", [*sampled([name for name in UNUSUAL if name != "10,000 cells"], 4), LARGE])
def test_an_unusual_sweep_has_a_sensible_page(browser: Chrome, tmp_path: Path, name: str) -> None:
    make, said = UNUSUAL[name]
    made = make()
    shown = page.write(tmp_path, made)
    show(browser, shown, 1400, "light")
    assert said in evaluate(browser, "return document.body.innerText")
    if made.rows:
        explore(browser)
    assert violations(browser) == []
    untroubled(browser, shown)


@pytest.mark.parametrize("name", sampled(HOSTILE.values(), 4))
def test_a_hostile_name_is_text_in_the_explorer_too(browser: Chrome, tmp_path: Path, name: str) -> None:
    found = rows((1, 2), (2.0, 4.0), ("lor", name), 2)
    drawn = [figure(FIGURE, found, SWEEP.axes, title=name, number="1A")]
    shown = page.write(tmp_path, page.Report(SWEEP, found, drawn))
    show(browser, shown, 1400, "light")
    evaluate(browser, "window.alert = () => { window.alerted = true; }")
    explore(browser)
    assert {row[1] for row in evaluate(browser, TABLE)} == {"lor", name}
    evaluate(browser, "document.querySelector('#explorer .chart').scrollIntoView()")
    hover = """
        const marks = [...document.querySelectorAll('#explorer .chart [aria-roledescription=point]')];
        const mark = marks.at(-1), box = mark.getBoundingClientRect();
        const at = {clientX: box.x + box.width / 2, clientY: box.y + box.height / 2, bubbles: true};
        for (const kind of ['mouseover', 'mousemove', 'click']) mark.dispatchEvent(new MouseEvent(kind, at));
    """
    evaluate(browser, hover)
    until(browser, "document.querySelector('#explorer .detail').textContent")
    assert not evaluate(browser, "return Boolean(window.alerted)")
    assert evaluate(browser, "return document.querySelectorAll('main img, #vg-tooltip-element img').length") == 0
    untroubled(browser, shown)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_pages_of_the_quickstart(browser: Chrome, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Its commands, and its pictures; and the README's."""
    folder = Path(pytestconfig.getoption("--pictures") or tmp_path)
    settings = [f"cache_dir={tmp_path}/cache", f"reports_dir={tmp_path}/reports"]
    first = ["policy=lor,e2", "gpus=8", "rps=64,128,256,512", "replications=10", "sweep.name=first"]
    assert " ".join(first) in (ROOT / "README.md").read_text(encoding="utf-8")
    assert main(["-m", *first, *settings]) == 0
    figure_of = tmp_path / "reports" / "first" / "figures" / f"{FIGURE}.png"
    (folder / "first.png").write_bytes(figure_of.read_bytes())
    assert main(["-m", "gpus=4,8", "rps=16,32,64", "policy=lor,e2", "replications=5", *settings]) == 0
    figure_of = tmp_path / "reports" / "sweep" / "figures" / f"{FIGURE}.png"
    (folder / "quickstart.png").write_bytes(figure_of.read_bytes())
    assert main(["trace", "gpus=8", "rps=64", "policy=e2", *settings]) == 0
    show(browser, next((tmp_path / "reports").glob("trace-*/index.html")), 1200, "light")
    until(browser, "document.querySelectorAll('.chart svg').length >= 3")
    (folder / "trace.png").write_bytes(base64.b64decode(browser.get_screenshot_as_base64()))
    assert main(["compare", "lor", "e2", "sweep=sweep", "fail_if=p99_ttft:+5%", *settings]) == 0


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of the paper, in full."""
    folder = tmp_path_factory.mktemp("paper")
    settings = [f"cache_dir={folder}/cache", f"reports_dir={folder}/reports", "output=csv"]
    assert main(["+sweeps=paper", *settings]) == 0
    return folder / "reports" / "paper" / "index.html"


@pytest.mark.nightly
@pytest.mark.slow
def test_the_report_of_the_paper_is_small_and_drawn_once(paper: Path) -> None:
    """Only what has changed is drawn again."""
    figures = sorted((paper.parent / "figures").glob("*.png"))
    drawn = [one.stat().st_mtime_ns for one in figures]
    folder = paper.parents[2]
    again = ["+sweeps=paper", f"cache_dir={folder}/cache", f"reports_dir={folder}/reports", "output=csv"]
    assert main(again) == 0
    assert [one.stat().st_mtime_ns for one in figures] == drawn
    print(f"{len(figures)} figures; {paper.stat().st_size / 1e6:.1f} MB")
    assert paper.stat().st_size < 4_000_000


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_report_of_the_paper_is_used(
    browser: Chrome, paper: Path, width: int, scheme: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    show(browser, paper, width, scheme)
    script = """
        const table = [...document.querySelectorAll('.numbers')].find((one) => one.textContent.includes('rps'));
        table.open = true;
        const input = table.querySelector('.tools input');
        input.value = '8 PREBLE';
        input.dispatchEvent(new Event('input'));
        return input.parentElement.querySelector('[role=status]').textContent;
    """
    assert evaluate(browser, script).endswith(" of 320 rows")
    explore(browser)
    choose(browser, "y", "hit_ratio")
    assert len(evaluate(browser, MARKS)) == 320
    assert violations(browser) == []
    assert evaluate(browser, "return document.documentElement.scrollWidth") <= width
    untroubled(browser, paper)
    folder = Path(pytestconfig.getoption("--pictures") or tmp_path)
    (folder / "fig1a.png").write_bytes((paper.parent / "figures" / f"{FIGURE}-1A.png").read_bytes())
    for name, target in (("findings", "answer"), ("explorer", "explorer")):
        evaluate(browser, "document.getElementById(arguments[0]).scrollIntoView()", target)
        time.sleep(0.3)
        picture = base64.b64decode(browser.get_screenshot_as_base64())
        (folder / f"{name}-{width}-{scheme}.png").write_bytes(picture)
        assert len(picture) > 10_000
