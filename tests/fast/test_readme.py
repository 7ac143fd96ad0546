"""The README is short, and speaks of what is there."""

from __future__ import annotations

import re

from tests.support.places import ROOT

TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
CODE = re.compile(r"```.*?```|^    .*?$|^\|.*?$", re.DOTALL | re.MULTILINE)


def test_it_fits_on_two_screens() -> None:
    lines = TEXT.splitlines()
    assert len(lines) <= 80
    assert [line for line in CODE.sub("", TEXT).splitlines() if len(line) > 120] == []
    assert len([line for line in lines if "python3 -m venv" in line]) == 2, "two commands to set it up"


def test_every_file_it_speaks_of_exists() -> None:
    for name in re.findall(r"\]\(([^)]+)\)", TEXT):
        assert (ROOT / name).is_file(), name
