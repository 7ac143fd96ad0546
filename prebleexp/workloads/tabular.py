"""Traces of rows, whose fields may have other names, and times another unit, than is usual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from prebleexp.checks import one_of
from prebleexp.errors import InvalidInput
from prebleexp.workloads import ended, prefixes
from prebleexp.workloads.clock import UNITS
from prebleexp.workloads.columns import Columns
from prebleexp.workloads.documents import rows_of
from prebleexp.workloads.records import flattened
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.rows import Rows


@dataclass(frozen=True)
class Tabular(Replayed):
    """A trace whose file has columns: times in some unit, and names of fields. Subclass it as `Replayed`."""

    time_unit: str | None = None
    """of times that are numbers: s, ms, us or ns; null: as names, sizes and the format say"""
    columns: Any = None
    """names of fields by what they stand for, as {arrival: ts, input: n_in}; null: the usual ones"""

    has_prefixes: ClassVar[bool] = False
    """whether it reads fields that name what prompts share, and ends of requests, as a log does"""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "columns", Columns.of(self.columns))
        if not self.has_prefixes and (roles := sorted({*prefixes.ROLES, *ended.ROLES} & {*self.columns})):
            raise InvalidInput(
                f"workload.columns.{roles[0]} is not valid with workload={self.name}; take workload=request_log"
            )
        if self.time_unit is not None:
            one_of("workload.time_unit", self.time_unit, tuple(UNITS))

    def rows(self) -> Rows:
        """Those of the file; where `columns` names a field that is within objects, as `usage.prompt_tokens`, each field
        has those that it is in before its name. Raises InvalidInput, naming the file, for what is not valid."""
        found = rows_of(self.path)
        return found if all(name in found for name in self.columns.values()) else flattened(found)
