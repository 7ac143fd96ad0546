"""What holds of every page in a browser."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from selenium.webdriver import Chrome

from tests.support import patience
from tests.support.pages.chromium import complaints, evaluate, requested, show

WHAT_STICKS_OUT = """
const width = document.documentElement.clientWidth;
const scrolls = (e) => ['auto', 'scroll'].includes(getComputedStyle(e).overflowX);
const inScroller = (e) => e.parentElement && (scrolls(e.parentElement) || inScroller(e.parentElement));
return [...document.body.querySelectorAll('*')]
  .filter((e) => !inScroller(e) && !e.closest('defs, clipPath'))
  .map((e) => [e, e.getBoundingClientRect()])
  .filter(([e, box]) => box.width && (box.right > width + 0.5 || box.left < -0.5))
  .map(([e, box]) => `${e.tagName} ${e.id || e.textContent.slice(0, 40)}: ${box.left} to ${box.right} of ${width}`);
"""
AXE = """
const alike = [['tbody tr:nth-child(n+12)'], ['.chart svg g g g g:nth-child(n+12)']];
axe.run({exclude: alike}, {resultTypes: ['violations']}).then((found) => arguments[0](found.violations));
"""


def violations(browser: Chrome) -> list[str]:
    """What axe-core finds that is serious, or worse. Of many rows that are alike it looks at some: a page of a thousand
    would take minutes."""
    source = files("selenium_axe_python").joinpath("axe-core", "axe.min.js")
    evaluate(browser, source.read_text(encoding="utf-8"))
    browser.set_script_timeout(patience.PATIENCE_S)
    found = browser.execute_async_script(AXE)  # type: ignore[no-untyped-call]
    return [
        f"{one['id']}: {one['help']} {[node['html'][:120] for node in one['nodes'][:3]]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


def untroubled(browser: Chrome, shown: Path) -> None:
    assert complaints(browser) == []
    assert [url for url in requested(browser) if not url.startswith("data:")] == [shown.as_uri()]


def fits_and_everyone_can_read_it(browser: Chrome, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width, scheme)
    assert evaluate(browser, WHAT_STICKS_OUT) == []
    assert violations(browser) == []
    untroubled(browser, page)


def answer_on_top(browser: Chrome, page: Path) -> None:
    """The headline, its figure, what is beside it, the caveats, facts and numbers, in this order."""
    show(browser, page, 1400, "light")
    tops = "return arguments[0].map((one) => document.querySelector(one).getBoundingClientRect().top)"
    order = evaluate(browser, tops, [".headline", "figure .panel svg", ".aside", ".caveats", ".facts", "#numbers"])
    assert order == sorted(order)
    assert order[1] < 400, "the figure is on the first screen"
