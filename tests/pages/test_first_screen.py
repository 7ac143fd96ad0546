"""A page is understood at its top, and one finds the rest: in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from prebleexp.paper.findings import findings, overview
from prebleexp.report import page
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import figure
from tests.support.pages.chromium import evaluate, show, until
from tests.support.pages.sweep_rows import SWEEP, part_rows, rows
from tests.support.paper_rows import made_up

WHERE = """
const box = document.querySelector(arguments[0]).getBoundingClientRect();
return {top: box.top, bottom: box.bottom, left: box.left, right: box.right, height: box.height};
"""
CONTENTS = """
const box = document.querySelector('.contents').getBoundingClientRect();
const open = document.querySelector('.contents details').open;
const here = [...document.querySelectorAll('.contents a[aria-current]')].map((link) => link.hash);
return {top: box.top, bottom: box.bottom, open, here};
"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = findings(made_up(2.0))
    numbers = [figure("latency_against_rate", part_rows(), number=number, title=f"Figure {number}") for number in "12"]
    claims = page.Report(SWEEP, part_rows(), [overview(found, Drawings()), *numbers], findings=found)
    own = page.Report(SWEEP, rows(), [figure("latency_against_rate", rows(), SWEEP.axes)])
    return {"claims": page.write(folder / "claims", claims), "own": page.write(folder / "own", own)}


def test_the_first_screen_has_the_verdicts_a_sentence_and_a_figure(browser: Chrome, pages: dict[str, Path]) -> None:
    """It had six numbers and a paragraph on Student's t; the claims took three screens."""
    show(browser, pages["claims"], 1400, "light")
    assert evaluate(browser, WHERE, ".verdicts")["bottom"] < 500
    assert evaluate(browser, WHERE, "figure .panel svg")["bottom"] < 900
    words = "(word) => [word.textContent, getComputedStyle(word).color]"
    verdicts = evaluate(browser, f"return [...document.querySelectorAll('.verdicts td strong')].map({words})")
    assert len(verdicts) == 10
    colours = {word: {colour for other, colour in verdicts if other == word} for word, _ in verdicts}
    assert set(colours) == {"reproduced", "opposite"}, "the words say it without their colour"
    assert colours["reproduced"].isdisjoint(colours["opposite"])
    before = (
        "const all = document.body.innerText; return all.slice(0, all.indexOf('as released', all.indexOf('behind')));"
    )
    assert "Student" not in evaluate(browser, before)


def test_a_sweep_without_claims_starts_with_its_answer_and_its_figure(browser: Chrome, pages: dict[str, Path]) -> None:
    show(browser, pages["own"], 1400, "light")
    said = evaluate(browser, "return document.querySelector('.headline').textContent")
    assert re.fullmatch(r"lor is \d+ to \d+ % faster than round_robin and random\.", said)
    assert evaluate(browser, WHERE, "figure .panel svg")["bottom"] < 900


@pytest.mark.parametrize("name", ["claims", "own"])
def test_no_two_headings_are_the_same_words(browser: Chrome, pages: dict[str, Path], name: str) -> None:
    show(browser, pages[name], 1400, "light")
    heads = evaluate(browser, "return [...document.querySelectorAll('h1, h2, h3')].map((head) => head.textContent)")
    assert len(heads) > 5
    assert len(heads) == len(set(heads))


@pytest.mark.parametrize("name", ["claims", "own"])
def test_the_contents_stay_in_view_beside_a_wide_page(browser: Chrome, pages: dict[str, Path], name: str) -> None:
    show(browser, pages[name], 1400, "light")
    assert evaluate(browser, CONTENTS)["open"]
    assert evaluate(browser, CONTENTS)["here"] == ["#answer"]
    evaluate(browser, "document.getElementById('methods').scrollIntoView()")
    until(browser, "document.querySelector('.contents a[aria-current]').hash !== '#answer'")
    found = evaluate(browser, CONTENTS)
    assert found["top"] >= 0
    assert found["bottom"] <= 900
    links = evaluate(browser, "return [...document.querySelectorAll('.contents a')].map((link) => link.hash.slice(1))")
    heads = evaluate(browser, "return [...document.querySelectorAll('main h2[id]')].map((head) => head.id)")
    assert {head.removesuffix("-title") for head in heads} <= set(links), "every section is in it"


def test_on_a_phone_the_contents_are_a_line_that_opens_and_closes(browser: Chrome, pages: dict[str, Path]) -> None:
    show(browser, pages["claims"], 360, "light")
    evaluate(browser, "document.getElementById('methods').scrollIntoView()")
    until(browser, "document.querySelector('.contents').getBoundingClientRect().top < 60")
    found = evaluate(browser, CONTENTS)
    assert not found["open"]
    assert 0 <= found["top"] < found["bottom"] < 60
    evaluate(browser, "document.querySelector('.contents summary').click()")
    assert evaluate(browser, CONTENTS)["open"]
    evaluate(browser, "document.querySelector('.contents a[href=\"#findings\"]').click()")
    until(browser, "!document.querySelector('.contents details').open")
    until(browser, "(({top}) => top >= 0 && top < 200)(document.querySelector('#findings').getBoundingClientRect())")


@pytest.mark.parametrize("width", [1024, 1400, 1920])
def test_tables_are_as_wide_as_there_is_room_and_whole(browser: Chrome, pages: dict[str, Path], width: int) -> None:
    """The last column, which one may sort by, was cut off."""
    show(browser, pages["claims"], width, "light")
    evaluate(browser, "for (const one of document.querySelectorAll('details')) one.open = true")
    script = """
        return [...document.querySelectorAll('main .scroll:has(table)')].filter((one) => !one.closest('#explorer'))
          .map((one) => {
            const broken = [...one.querySelectorAll('tbody td')].filter((cell) => {
              const range = document.createRange();
              range.selectNodeContents(cell);
              return cell.textContent.length < 24 && range.getClientRects().length > 1;
            });
            return {over: one.scrollWidth - one.clientWidth, broken: broken.map((cell) => cell.textContent)};
          });
    """
    tables = evaluate(browser, script)
    assert len(tables) > 8
    assert [one["over"] for one in tables if one["over"] > 1] == []
    if width >= 1400:
        assert [one["broken"] for one in tables if one["broken"]] == [], "names were broken in every row"


def test_the_title_of_x_is_near_its_numbers(browser: Chrome, pages: dict[str, Path]) -> None:
    """There was a hole of 50 px."""
    show(browser, pages["own"], 1400, "light")
    script = """
        const panel = document.querySelector('.panel');
        const texts = [...panel.querySelectorAll('svg text')].map((text) => text.getBoundingClientRect().bottom);
        return panel.querySelector('.axis.x').getBoundingClientRect().top - Math.max(...texts);
    """
    assert 0 <= evaluate(browser, script) < 20


def test_a_glossary_is_closed_and_breaks_no_word(browser: Chrome, pages: dict[str, Path]) -> None:
    """It was more than a third of a page."""
    show(browser, pages["own"], 1400, "light")
    closed = evaluate(browser, WHERE, "section:has(> #methods)")["height"]
    assert closed < 200
    unfold = "for (const one of document.querySelectorAll('section:has(> #methods) details')) one.open = true"
    script = """
        return [...document.querySelectorAll('section:has(> #methods) dt')].filter((term) => {
          const range = document.createRange();
          return [...term.childNodes].filter((node) => node.nodeType === 3).some((node) => {
            range.selectNodeContents(node);
            return range.getClientRects().length > 1;
          });
        }).map((term) => term.textContent);
    """
    for width in (360, 1400):
        show(browser, pages["own"], width, "light")
        evaluate(browser, unfold)
        assert evaluate(browser, script) == []
