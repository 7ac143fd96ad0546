"""The list of reports, which folder a report goes to, and `open`."""

from __future__ import annotations

import json
import os
import re
import webbrowser
from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.launch.naming import named
from prebleexp.report import frame, listing
from prebleexp.report.listing import About
from tests.support.pages.checks import WHAT_STICKS_OUT, violations
from tests.support.pages.chromium import complaints, evaluate, requested, show
from tests.support.pages.hostile import HARM
from tests.support.pages.parsed import Page
from tests.support.said import after_first_words

TINY = ("gpus=2", "rps=4", "duration_s=2", "output=csv")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """In an empty folder: exit code, standard output, standard error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(arguments))
        out, err = capsys.readouterr()
        return code, out, after_first_words(err)

    return run


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was opened in the browser."""
    found: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: found.append(address) or True)
    return found


def a_report(reports: Path, name: str, made: float, about: About | None = None) -> Path:
    folder = reports / name
    page = frame.write(folder / "index.html", "<!doctype html>")
    os.utime(page, (made, made))
    if about is not None:
        listing.add(folder, about)
    return page


def text_of(reports: Path) -> str:
    return Page((reports / "index.html").read_text(encoding="utf-8")).text


NAMES = {
    "+sweeps=fig1a": None,
    "+sweeps=fig1a workers=1 report=none cache_dir=/x hydra.verbose=true retry=all": None,
    "+sweeps=fig1a replications=3": "fig1a-replications-3",
    "replications=3 gpus=4,8 +sweeps=fig1a": "fig1a-gpus-4-8-replications-3",
    "+sweeps=fig1a gpus=4,8 replications=3": "fig1a-gpus-4-8-replications-3",
    "+sweeps=fig1a rps=0.5 engine.x=1e-5 +variant=released": "fig1a-engine.x-1e-5-rps-0.5-variant-released",
    "+sweeps=fig1a replications=3 sweep.name=mine": None,
    "+sweeps=fig1a workload.path=../../etc/passwd": "fig1a-workload.path-..-..-etc-passwd",
    "gpus=4 rps=1": None,
}


@pytest.mark.parametrize("line", NAMES)
def test_a_sweep_with_other_settings_has_a_name_that_says_so(line: str) -> None:
    words = line.split()
    assert named(words) == words + ([f"sweep.name={NAMES[line]}"] if NAMES[line] else [])


def test_a_long_name_is_cut_and_still_its_own() -> None:
    found = [named(["+sweeps=fig1a", f"rps={','.join(map(str, range(90 + i)))}"])[-1] for i in range(2)]
    assert len(set(found)) == 2
    assert all(len(one.partition("=")[2]) <= 80 for one in found)


def test_a_quick_look_takes_the_place_of_no_whole_sweep(command: Command) -> None:
    """Finding 8: `+sweeps=fig1a replications=3` after the full one."""
    Path("sweeps").mkdir()
    text = "# @package _global_\nreplications: 2\nsweep: {name: mine, title: Mine}\nhydra: {mode: MULTIRUN}\n"
    Path("sweeps/mine.yaml").write_text(text)
    full = ("+sweeps=mine", *TINY, "sweep.name=mine")
    assert command(*full)[0] == 0
    before = Path("reports/mine/index.html").read_bytes()
    quick = ("+sweeps=mine", *TINY, "replications=1")
    name = "mine-duration_s-2-gpus-2-replications-1-rps-4"
    code, _, said = command(*quick)
    assert (code, said.splitlines()[-1]) == (0, f"reports/{name}/index.html")
    assert Path("reports/mine/index.html").read_bytes() == before
    page = Page(Path(f"reports/{name}/index.html").read_text()).text
    assert f"python -m prebleexp {' '.join(quick)}" in page
    shown = text_of(Path("reports"))
    assert shown.index(name) < shown.index("sweep of 2 runs") < shown.index(f"prebleexp {' '.join(full)}")
    for line in (full, quick):
        assert f"python -m prebleexp {' '.join(line)}" in shown


PARTS = """# @package _global_
replications: 2
sweep:
  name: %s
  parts:
    only: {params: {rps: "4,8"}, lines: {LOR: [policy=lor], random: [policy=random]}}
  figures:
    1: {draw: latency_against_rate, title: One, parts: [only], sweep: one}
hydra: {mode: MULTIRUN}
"""


def test_a_figure_says_the_command_that_made_it(command: Command) -> None:
    """Also in the page of a sweep of several figures, with another number of seeds."""
    Path("sweeps").mkdir()
    for name in ("one", "all"):
        Path(f"sweeps/{name}.yaml").write_text(PARTS % name)
    few = ("gpus=2", "duration_s=2")
    for words, own in (
        (("+sweeps=one", *few), ("+sweeps=one", *few)),
        (("+sweeps=all", *few), ("+sweeps=one", "replications=2", *few)),
        (("+sweeps=all", *few, "replications=1"), ("+sweeps=one", *few, "replications=1")),
    ):
        page = Path(command(*words)[2].splitlines()[-1]).read_text()
        commands = re.findall(r"<code>(python[^<]*)</code>", page)
        assert set(commands) == {f"python -m prebleexp {' '.join(line)}" for line in (words, own)}


def test_what_another_report_takes_the_place_of_is_said(command: Command) -> None:
    first = ("-m", *TINY, "policy=lor,random")
    assert "takes the place" not in command(*first)[2]
    assert "takes the place" not in command(*first, "workers=1")[2], "the same runs"
    _, _, said = command("-m", *TINY, "policy=lor", "seed=3,4,5")
    replaced = (
        f"prebleexp: this takes the place of the report of a sweep of 2 runs: python -m prebleexp {' '.join(first)}"
    )
    assert f"{replaced} workers=1\n" in said
    assert said.count("takes the place") == 1


def test_every_kind_of_report_is_listed(command: Command) -> None:
    command("-m", *TINY, "policy=lor,random", "sweep.title=Two policies")
    command("compare", "lor", "random", "output=csv")
    command("trace", *TINY)
    shown = text_of(Path("reports"))
    assert "3 reports, the newest first." in shown
    order = [shown.index(text) for text in ("trace of one run", "comparison", "sweep of 2 runs")]
    assert order == sorted(order)
    assert "random against lor" in shown
    assert "B (random) " in shown
    about = json.loads(Path("reports/sweep/about.json").read_text())
    assert about["title"] == "Two policies"
    assert about["sentence"] in shown


def test_the_list_is_newest_first_and_knows_pages_of_before(tmp_path: Path) -> None:
    a_report(tmp_path, "old", 86400)
    a_report(tmp_path, "new", 86400 * 365.25 * 50, About("The newer one", "sweep of 5 runs"))
    a_report(tmp_path, "odd", 86400 * 2)
    (tmp_path / "odd" / "about.json").write_text('{"title": 3}')
    (tmp_path / "empty").mkdir()
    listing.write(tmp_path)
    assert [one.name for one in listing.listed(tmp_path)] == ["new", "odd", "old"]
    shown = text_of(tmp_path)
    assert "1970-01-02 00:00 UTC" in shown
    assert shown.index("The newer one") < shown.index("odd · report") < shown.index("old · report")


def test_a_list_that_cannot_be_written_costs_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "index.html").mkdir()
    a_report(tmp_path, "new", 0, About("New", "report"))
    said = capsys.readouterr().err
    assert said.startswith("prebleexp: the list of reports stays as it is: ")
    assert said.count("\n") == 1


def test_what_others_wrote_is_shown_as_text_and_the_page_is_in_order(browser: Chrome, tmp_path: Path) -> None:
    name = "<b>&'\" %2e#?"
    a_report(tmp_path, name, 0, About(HARM, HARM, HARM, HARM, HARM))
    a_report(
        tmp_path, "tame", 0, About("A sweep of some length", "sweep of 3,200 runs", "python -m prebleexp " * 12, "One.")
    )
    for width, theme in ((360, "dark"), (1920, "light")):
        show(browser, tmp_path / "index.html", width, theme)
        assert evaluate(browser, "return document.title") == "Reports · prebleexp"
        assert evaluate(browser, "return document.querySelectorAll('main script, main img, main b').length") == 0
        assert evaluate(browser, WHAT_STICKS_OUT) == []
        assert violations(browser) == []
        links = evaluate(browser, "return [...document.querySelectorAll('main a')].map((one) => one.href)")
        assert sorted(links) == sorted((tmp_path / one / "index.html").as_uri() for one in (name, "tame"))
        assert complaints(browser) == []
        fetched = [url for url in requested(browser) if url.startswith(("http", "file"))]
        assert fetched == [(tmp_path / "index.html").as_uri()]


def test_open_shows_a_report_or_the_list(tmp_path: Path, command: Command, opened: list[str]) -> None:
    reports = tmp_path / "reports"
    page = a_report(reports, "first", 0)
    for words, shown in ((["open", "first"], page), (["open"], reports / "index.html")):
        assert command(*words) == (0, f"{shown.as_uri()}\n", "")
        assert opened.pop() == shown.as_uri()
    assert "first" in text_of(reports), "a list that was not there is made"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fisrt"], "unknown report 'fisrt'; valid: first. Did you mean 'first'?"),
        (["../secret"], "unknown report '../secret'; valid: first."),
        (["first", "first"], "open takes the name of one report, not 2: first first"),
        (["reports_dir=none"], "there is no report in none; a sweep makes one"),
        (["colour=red"], "unknown setting 'colour'; valid: reports_dir."),
    ],
)
def test_open_refuses_what_is_no_report(
    tmp_path: Path, command: Command, opened: list[str], words: list[str], says: str
) -> None:
    a_report(tmp_path / "reports", "first", 0)
    a_report(tmp_path, "secret", 0)
    assert command("open", *words) == (2, "", f"prebleexp: {says}\n")
    assert opened == []


def test_open_without_a_browser_prints_the_address(
    tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(address: str) -> bool:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "open", refuse)
    page = a_report(tmp_path / "reports", "first", 0)
    assert command("open", "first") == (0, f"{page.as_uri()}\n", "")


def test_open_in_a_folder_that_cannot_be_written(
    tmp_path: Path, command: Command, opened: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(reports: Path) -> Path:
        raise InvalidInput("report folder reports cannot be written: Read-only file system")

    a_report(tmp_path / "reports", "first", 0)
    monkeypatch.setattr(listing, "write", refuse)
    assert command("open")[0] == 2
    (tmp_path / "reports" / "index.html").touch()
    assert command("open") == (0, f"{(tmp_path / 'reports' / 'index.html').as_uri()}\n", "")
