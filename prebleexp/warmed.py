"""What was there when runs began, in numbers and in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Declared = tuple[str, str, Callable[[Any], int | float | None], str, str, str]
Row = Mapping[str, Any]


def _unserved(begun: Any) -> int:
    return int(begun.requests - begun.finished)


def _imbalance(begun: Any) -> float | None:
    sent = begun.gpu_requests
    return float(sent.max() * len(sent) / sent.sum()) if sent.sum() else None


def _of(begun: Callable[[Any], int | float | None]) -> Callable[[Any], int | float | None]:
    return lambda run: None if run.made.begun is None else begun(run.made.begun)


def sentences(cells: Sequence[tuple[str, Sequence[Row]]]) -> list[str]:
    """One, if caches were warmed in any of these cells: by how many requests, and what they held then."""
    warm = [[row for row in rows if row.get("warm_requests") is not None] for _, rows in cells]
    rows = [row for of in warm for row in of]
    if not rows:
        return []
    where = f" in {sum(map(bool, warm)):,} of {len(cells):,} cells" if len(cells) > 1 else ""
    held = _range([f"{row['warm_kv_share']:.1%}" for row in rows])
    counts = _range([f"{row['warm_requests']:,}" for row in rows])
    said = (
        f"caches were warmed by {counts} {'request' if counts == '1' else 'requests'}{where}, which no metric counts: "
    )
    said += f"{held} of KV memory was in use at the start"
    shares = [f"{row['warm_max_over_mean']:.2f}" for row in rows if row.get("warm_max_over_mean") is not None]
    said += f", and routers had sent the busiest GPU {_range(shares)} times the mean of all" if shares else ""
    unserved = sum(int(row.get("warm_unserved") or 0) for row in rows)
    return [said + (f"; {unserved:,} of them {'was' if unserved == 1 else 'were'} not served" if unserved else "")]


def _range(of: Sequence[str]) -> str:
    """What all are, or the first and the last in order."""
    least, most = min(of, key=_value), max(of, key=_value)
    return least if least == most else f"{least} to {most}"


def _value(text: str) -> float:
    return float(text.replace(",", "").rstrip("%"))


_NONE = "Nothing where caches were empty (warm=none)."
METRICS: tuple[Declared, ...] = (
    ("warm_requests", "requests that warmed caches", _of(lambda begun: int(begun.requests)), "requests", "neither",
     f"Requests that were to be served before the run began (warm), which no other metric counts. {_NONE}"),
    ("warm_unserved", "… which were not served", _of(_unserved), "requests", "lower",
     f"How many of these did not finish: refused, or left behind. {_NONE}"),
    ("warm_kv_share", "KV in use at the start", _of(lambda begun: float(begun.kv_share)), "share", "neither",
     f"The share of the GPUs' KV memory that was in use when the run began, mean of those that were up. {_NONE}"),
    ("warm_max_over_mean", "requests before the start, busiest GPU over the mean", _of(_imbalance), "ratio", "lower",
     "Requests that routers had sent to the busiest GPU before the run began, over the mean of all. "
     f"{_NONE}"),
)  # fmt: skip
