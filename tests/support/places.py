"""Where the checkout lies, and what its conf/ has."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def names(group: str) -> list[str]:
    """Of a group's configurations."""
    return sorted(path.stem for path in (ROOT / "conf" / group).glob("*.yaml"))
