"""What a table of measurements is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
LESS, MORE = "less", "more"
"""what of a column is better"""


@dataclass(frozen=True)
class Table:
    """`rows` measures. What it takes are the settings of its command: `policies` and `path`, if it has them; and `root`
    where the table is of whole commands."""

    rows: Callable[..., list[Row]]
    better: Mapping[str, str]
    """of each column that is measured, `LESS` or `MORE`; the others say what a row is of"""
    before: Mapping[str, str] = field(default_factory=dict)
    """what a column is in all rows of a checkout whose table does not have it yet"""
    of_commands: bool = False
    """commands are run from outside, so that of any checkout, `root`, they can be; else what runs it is measured"""
