"""docs/policies.md says of every policy what it does, when it wins and when it loses."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.support.places import ROOT, names

PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")


def test_every_policy_is_on_the_page_of_routers() -> None:
    said = {name for line in PAGE.splitlines() if line.startswith("- **") for name in re.findall(r"`(\w+)`", line)}
    assert set(names("policy")) <= said


def parts_of(sweep: str) -> dict[str, Any]:
    text = (ROOT / "sweeps" / f"{sweep}.yaml").read_text(encoding="utf-8")
    parts: dict[str, Any] = yaml.safe_load(text)["sweep"]["parts"]
    return parts


@pytest.mark.parametrize("sweep", ["routers", "sessions", "faults"])
def test_the_numbers_are_of_all_lines_of_the_sweep(sweep: str) -> None:
    _, _, behind = PAGE.partition(f"<!-- {sweep} by docs/routers.py -->")
    rows = re.findall(r"^\| [\d–]+\. (.+?) \|", behind.partition("<!-- until here -->")[0], re.MULTILINE)
    for part in parts_of(sweep).values():
        assert sorted(part["lines"]) == sorted(rows)


@pytest.mark.parametrize("sweep", ["routers", "sessions"])
def test_a_sweep_and_that_of_traces_have_the_same_lines(sweep: str) -> None:
    each = [part["lines"] for name in (sweep, f"{sweep}_trace") for part in parts_of(name).values()]
    assert all(lines == each[0] for lines in each)


def test_routers_lose_gpus_in_the_same_settings_as_they_are_ranked() -> None:
    assert parts_of("faults")["late_again"]["lines"] == parts_of("routers")["vllm"]["lines"]
