"""How a page's explorer is used."""

from __future__ import annotations

from selenium.webdriver import Chrome

from tests.support.pages.chromium import evaluate, until

TABLE = """
const rows = [...document.querySelectorAll('#explorer .listing tbody tr')];
return rows.map((row) => [...row.cells].map((cell) => cell.textContent));
"""


def explore(browser: Chrome) -> None:
    evaluate(browser, "document.getElementById('explorer').scrollIntoView()")
    until(browser, "document.getElementById('explorer').dataset.drawn")


def choose(browser: Chrome, name: str, value: str) -> None:
    before = evaluate(browser, "return document.getElementById('explorer').dataset.drawn")
    script = """
        const select = document.querySelector(`#explorer select[name=${arguments[0]}]`);
        select.value = arguments[1];
        select.dispatchEvent(new Event('change'));
        return select.value;
    """
    assert evaluate(browser, script, name, value) == value
    until(browser, "document.getElementById('explorer').dataset.drawn !== arguments[0]", before)
