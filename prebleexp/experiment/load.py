"""What comes to a cluster, in words."""

from __future__ import annotations

from typing import NamedTuple


class Load(NamedTuple):
    """Of a run."""

    rps: float | None
    """requests a second; None: it is users, or it has no rate"""
    users: int | None
    duration_s: float
    says: str | None = None
    """in words, where these are others"""

    @property
    def words(self) -> str:
        """As "at 3 requests/s for 30 s"."""
        if self.says is not None:
            return self.says
        for_s = f"for {_number(self.duration_s)} s"
        if self.users is not None:
            return f"with {self.users:,} user{'' if self.users == 1 else 's'} {for_s}"
        return "as recorded" if self.rps is None else f"at {_number(self.rps)} requests/s {for_s}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() or value >= 10_000 else f"{value:.4g}"
