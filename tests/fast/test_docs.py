"""The documentation is what the code says, builds without a warning, and names nothing that does not exist."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


def generated() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {name: make() for name, make in module.PAGES.items()}


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
    assert [name for name in named if not (ROOT / name).exists() and "power_of_two" not in name] == []
    assert [name for name in linked if not (page.parent / name).exists()] == []


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
