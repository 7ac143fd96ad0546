"""What a page says of a claim that a sweep examines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prebleexp.report.figures import Table


@dataclass(frozen=True)
class Finding:
    """`short` is the claim in a few words; `numbers` are for programs."""

    name: str
    short: str
    claim: str
    sentences: tuple[str, ...]
    effects: Table
    causes: Table
    """suspected ones, switched alone"""
    numbers: Mapping[str, Any]
