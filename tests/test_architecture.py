"""Imports point downwards only, and heavy libraries stay where they belong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "prebleexp"
LEVELS = {
    "errors": 0,
    "evaluated": 0,
    "machine_code": 0,
    "intervals": 0,
    "precision": 1,
    "sim": 1,
    "policies": 2,
    "workloads": 2,
    "hardware": 2,
    "lengths": 2,
    "overhead": 2,
    "metrics": 3,
    "comparison": 4,
    "experiment": 4,
    "launch": 5,
    "store": 5,
    "report": 5,
    "sql": 6,
    "bench": 6,
    "publish": 7,
    "compare": 7,
    "trace": 7,
    "calibrate": 7,
    "predict": 7,
    "__init__": 6,
    "__main__": 8,
}
HOMES = {
    "hydra": {"launch", "__main__"},
    "omegaconf": {"launch", "publish", "__main__"},
    "duckdb": {"store", "sql"},
    "seaborn": {"report"},
    "matplotlib": {"report"},
    "jinja2": {"report"},
    "vl_convert": {"report"},
    "numba": {"sim"},
}
FILES = sorted(PACKAGE.rglob("*.py"))


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found += whole if node.module == "prebleexp" else [node.module]
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_imports_point_downwards(file: Path) -> None:
    parts = file.relative_to(PACKAGE).parts
    part = parts[0].removesuffix(".py")
    for module in imports(file):
        root = module.split(".")[0]
        assert root not in HOMES or part in HOMES[root], f"{module} does not belong here"
        if root == "prebleexp":
            other = part_of(module)
            assert other == part or LEVELS[other] < LEVELS[part], f"{part} must not know {other}"


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_a_file_holds_one_idea(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 350
