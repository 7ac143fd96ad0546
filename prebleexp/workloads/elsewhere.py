"""Doubts about rows of a log whose requests others answered: servers of other models or kinds, or a gateway's cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from prebleexp.workloads.columns import matching
from prebleexp.workloads.rows import NOTHING, Rows

MODELS = ("request_model", "model", "model_name", "model_id")
CACHES = ("cache_hit", "cached", "from_cache", "cache_status")
ANSWERED = ("true", "hit")
CALLS = ("call_type", "operation", "operation.name", "operation_name", "endpoint", "path", "url", "request_type")
OTHERS = ("embed", "rerank", "moderation", "transcription", "speech", "image")
"""in the names of calls that generate no text"""
SHOWN = 3


def models(rows: Rows) -> tuple[str, ...]:
    """Those that requests ask for, the one that most ask for first; none where no field says it."""
    return tuple(one for one, _ in Counter(_first(rows, MODELS)[1]).most_common())


def answered_elsewhere(rows: Rows) -> Iterator[str]:
    """In words."""
    name, values = _first(rows, MODELS)
    of = Counter(values)
    if len(of) > 1:
        shown = ", ".join(f"{one} {count:,}" for one, count in of.most_common(SHOWN))
        more = f" and {len(of) - SHOWN} more" if len(of) > SHOWN else ""
        yield (
            f"{name} has {len(of)} models ({shown}{more}), and all requests are taken for those of one: "
            f"'workload.only={{{name}: {of.most_common(1)[0][0]}}}' leaves the others out"
        )
    name, values = _first(rows, CALLS)
    others = [one for one in values if any(kind in one.lower() for kind in OTHERS)]
    if others:
        yield (
            f"{name} says of {len(others):,} of {len(rows):,} rows that they are {others[0]} and the like, which "
            "generate no text; leave them out of the file"
        )
    name, values = _first(rows, CACHES)
    answered = sum(one.lower() in ANSWERED for one in values)
    if answered:
        yield (
            f"{name} says of {answered:,} of {len(rows):,} rows that a cache had it: if that is one of whole answers, "
            "leave these out, as no GPU served them"
        )


def _first(rows: Rows, aliases: Sequence[str]) -> tuple[str, list[str]]:
    """The first field of these names, and what its rows say, as text."""
    for alias in aliases:
        for name in matching(rows, alias)[:1]:
            values = [value for value in rows.optional(name) if value not in NOTHING]
            if all(isinstance(value, str | bool) for value in values):
                return name, [str(value) for value in values]
    return "", []
