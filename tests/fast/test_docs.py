"""The documentation is what the code says, builds without a warning, and names nothing that does not exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.sim import events
from tests.support.places import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


def script(name: str) -> Any:
    """A script of the docs, as a module."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SENTENCES = script("sentences")


def generated() -> dict[str, str]:
    return {name: make() for name, make in script("generate").PAGES.items()}


def test_generated_pages_are_up_to_date() -> None:
    for name, text in generated().items():
        assert (DOCS / name).read_text(encoding="utf-8") == text, "run: python docs/generate.py"


@pytest.mark.slow
def test_every_field_of_the_reference_is_explained() -> None:
    rows = re.findall(r"^\| `([a-z_]+\.[a-z_]+)` \| .* \| (.*) \|$", generated()["configuration.md"], re.MULTILINE)
    assert len(rows) >= 60
    assert [name for name, meaning in rows if not meaning] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_speaks_of_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:tests|prebleexp|conf|docs|sweeps)/[\w/.]+\.\w+)`", text))
    linked = set(re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", text))
    shown = ("power_of_two", "zipped")  # files that a page tells its reader to write
    assert [name for name in named if not (ROOT / name).exists() and Path(name).stem not in shown] == []
    assert [name for name in linked if not (page.parent / name).exists()] == []


@pytest.mark.parametrize("page", SENTENCES.pages(), ids=lambda page: page.name)
def test_sentences_of_a_page_are_short(page: Path) -> None:
    """At most 20 words in the median, 32 in nine of ten.

    A sentence ends with a full stop, ! or ? before a capital, a digit, code, or an opening bracket or quotation mark.
    It ends with its paragraph, item or cell, too. A span of code or a formula is one word. What has fewer than four
    words is a label.
    """
    found = SENTENCES.lengths(page)
    if found:
        median, p90 = np.percentile(found, (50, 90))
        assert (median <= SENTENCES.MEDIAN, p90 <= SENTENCES.P90) == (True, True), "python docs/sentences.py long"


def test_what_a_sentence_is() -> None:
    text = """# A heading is none of them

It has `code of some words`, e.g. $a + b$, and [a link](https://an.address/of.more words). Is it 3.5 s long?
"Yes" it is, at two
lines.

- An item without a stop
- (One in brackets.) And another one, here.

| a label | a cell of five words |
| --- | --- |

    python -m prebleexp is a command, and no sentence.
"""
    assert SENTENCES.sentences(text) == [
        "It has x, e.g x, and a link.",
        "Is it 3.5 s long?",
        '"Yes" it is, at two lines.',
        "An item without a stop",
        "And another one, here.",
        "a cell of five words",
    ]
    assert [SENTENCES.words(one) for one in SENTENCES.sentences(text)] == [8, 5, 6, 5, 4, 5]


def test_the_core_says_events_in_their_order() -> None:
    text = (DOCS / "core.md").read_text(encoding="utf-8")
    kinds = re.findall(r"^\| ([A-Z]+) \|", text, re.MULTILINE)
    assert [getattr(events, kind) for kind in kinds] == list(range(10))


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Power of two choices" in (tmp_path / "policy" / "index.html").read_text(encoding="utf-8")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "fonts.googleapis" not in page, "nothing is fetched"
