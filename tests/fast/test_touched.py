"""`python -m tests.touched` and tests/README.md say what to run for a file of the package."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import touched
from tests.imports import PACKAGE, TESTS, distances, modules, nearest, needing
from tests.support.places import ROOT

README = (TESTS / "README.md").read_text(encoding="utf-8")
ROOMS = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", README.partition("## What tests share")[0], re.MULTILINE)[1:])


def named(row: str) -> list[Path]:
    places = [(folder or "fast", name) for folder, name in re.findall(r"(?:(\w+)/)?(\w+)", row)]
    return [TESTS / folder / f"test_{name}.py" for folder, name in places]


def test_the_readme_names_every_test_and_no_other() -> None:
    rows = [row for room, row in ROOMS.items() if room != "---"]
    assert {one for row in rows for one in named(row)} == set(modules())


def test_the_readme_names_every_room() -> None:
    said = " ".join(ROOMS)
    rooms = {one.name for one in PACKAGE.iterdir() if (one / "__init__.py").is_file()}
    assert [one for one in sorted(rooms) if f"`{one}/" not in said] == []


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "first"),
    [
        ("prebleexp/sim/links.py", ["test_links.py"]),
        ("prebleexp/store.py", ["test_store.py", "test_indexing.py"]),
        ("prebleexp/machine_code.py", ["test_machine_code.py"]),
        ("prebleexp/policies/prefix_index.py", ["test_prefix_index.py"]),
        ("prebleexp/gateway/base.py", ["test_gateway.py"]),
        ("tests/fast/test_cell.py", ["test_cell.py"]),
    ],
)
def test_the_nearest_come_first(file: str, first: Sequence[str]) -> None:
    found = [one.name for one in nearest([ROOT / file])]
    assert set(first) <= set(found[:5])
    assert found[0] in first


@pytest.mark.thorough
def test_a_yaml_is_needed_by_who_names_it_and_by_who_needs_its_class() -> None:
    assert distances(ROOT / "conf" / "policy" / "e2.yaml")[TESTS / "fast" / "test_cli.py"] == 0


@pytest.mark.thorough
def test_every_file_of_the_package_is_reached_by_a_test() -> None:
    files = [one for one in PACKAGE.rglob("*.py") if one.name not in ("__init__.py", "__main__.py")]
    assert [str(one) for one in files if one not in needing()] == []


def test_pages_are_tested_where_their_text_is_another() -> None:
    assert touched.PAGES in touched.chosen([ROOT / "docs" / "core.md"])
    assert touched.PAGES not in touched.chosen([])


def test_a_file_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert touched.main(["prebleexp/nothing.py"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
