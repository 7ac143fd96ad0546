"""A report in a real browser, opened from disk: nothing is fetched, nothing fails, nothing is cut off."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from selenium.webdriver import Chrome

from prebleexp.paper.findings import findings
from prebleexp.report import page
from prebleexp.report.figures import figure
from tests.pages.conftest import browser as fixture
from tests.support.pages.checks import WHAT_STICKS_OUT
from tests.support.pages.chromium import complaints, requested, show
from tests.support.pages.sweep_rows import SWEEP, part_rows, rows
from tests.support.patience import until
from tests.support.sampled import sampled

DRAWINGS = """
return [...document.querySelectorAll('svg[role=img]')].map((svg) => {
  const box = svg.getBoundingClientRect();
  const line = svg.querySelector('[id*=line2d] path');
  return {
    width: box.width, height: box.height, label: svg.querySelector('title').textContent,
    description: svg.querySelector('desc').textContent, texts: svg.querySelectorAll('text').length,
    visible: svg.checkVisibility({opacityProperty: true, visibilityProperty: true}),
    paints: line !== null && getComputedStyle(line).stroke !== 'none',
  };
});
"""
PAPER = "return getComputedStyle(document.body).backgroundColor"
TOUCHING_NAMES = """
const touch = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
return [...document.querySelectorAll('svg[role=img]')].flatMap((svg) => {
  const texts = [...svg.querySelectorAll('text')].map((e) => [e.textContent, e.getBoundingClientRect()]);
  return texts.flatMap(([a, first], i) => texts.slice(i + 1).filter(([, box]) => touch(first, box))
    .map(([b]) => `${a} and ${b}`));
});
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sweep as in the paper, and one with everything that is hard to lay out."""
    folder = tmp_path_factory.mktemp("reports")
    long = "a_policy_with_a_very_long_name_" * 8
    hard = rows((1, 3), (2.0, 4.0, 8.0), ("lor", "<script>alert('x')</script>", "路由 🚀", long), 3)
    hard = [row | {"norm_latency_mean_s": None} if row["gpus"] == 3 and row["rps"] == 4.0 else row for row in hard]
    failures = [{"gpus": 1, "policy": long, "seed": 0, "error": "ValueError: " + "x" * 400}]
    about = page.Sweep("<i>", long, f"prebleexp -m policy={long}", "x: " + "y" * 500, SWEEP.axes)
    numbers = [figure("latency_against_rate", part_rows(), number=number, command="a" * 200) for number in ("1A", "2")]
    paper = page.Report(
        SWEEP, rows(), numbers, findings=findings({"rates_released": part_rows()}), provenance={"host": "a" * 80}
    )
    return {
        "paper": page.write(folder / "paper", paper),
        "hard": page.write(
            folder / "hard <&> %41 é",
            page.Report(about, hard, [figure("latency_against_rate", hard, SWEEP.axes)], failures=failures),
        ),
    }


@pytest.mark.parametrize("scheme", sampled(["light", "dark"], 2))
@pytest.mark.parametrize("width", sampled([360, 1920], 2))
@pytest.mark.parametrize("name", ["paper", "hard"])
def test_a_report_opens_from_disk_whole_and_without_network(
    browser: Chrome, reports: dict[str, Path], name: str, width: int, scheme: str
) -> None:
    show(browser, reports[name], width, scheme)

    assert complaints(browser) == []
    urls = requested(browser)
    assert reports[name].as_uri() in urls, "the log of requests works"
    assert {urlsplit(url).scheme for url in urls} <= {"file", "data"}
    assert [url for url in urls if url.startswith("file:")] == [reports[name].as_uri()]

    drawings: list[dict[str, Any]] = browser.execute_script(DRAWINGS)  # type: ignore[no-untyped-call]
    assert len(drawings) == (12 if name == "paper" else 2)
    for drawing in drawings:
        assert drawing["visible"]
        assert drawing["paints"]
        assert drawing["width"] > 300
        assert drawing["height"] > 200
        assert drawing["texts"] > 5
        assert "normalised latency against request rate" in drawing["label"]
        assert drawing["description"]

    assert browser.execute_script("return document.documentElement.scrollWidth") <= width  # type: ignore[no-untyped-call]
    assert browser.execute_script(WHAT_STICKS_OUT) == []  # type: ignore[no-untyped-call]
    assert browser.execute_script(TOUCHING_NAMES) == []  # type: ignore[no-untyped-call]
    red = int(browser.execute_script(PAPER).split("(")[1].split(",")[0])  # type: ignore[no-untyped-call]
    assert red > 240 if scheme == "light" else red < 40


def test_a_drawing_is_an_image_with_a_name_for_a_screen_reader(browser: Chrome, reports: dict[str, Path]) -> None:
    show(browser, reports["paper"], 1920, "light")

    def named() -> list[str]:
        nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [node["name"]["value"] for node in nodes if node.get("role", {}).get("value") in ("image", "img")]

    names = until(named)  # the tree is made after the page is shown
    assert len([name for name in names if "normalised latency against request rate" in name]) == 12
    assert any(re.search(r"LOR is \d+ to \d+ % faster than", name) for name in names)


def test_without_a_browser_these_tests_fail_in_ci_and_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="install chromium and chromedriver"):
        next(fixture.__wrapped__(None))  # type: ignore[attr-defined]
