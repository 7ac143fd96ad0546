"""Limits that look like milliseconds, where seconds are meant."""

from __future__ import annotations

from prebleexp.service.level import ServiceLevel

LONGEST = {
    "ttft_s": (60.0, "to a first token"),
    "tpot_s": (2.0, "per output token"),
    "latency_s": (3600.0, "to a last token"),
}
"""limits above which milliseconds are likelier, and what they are on"""


def doubts(level: ServiceLevel) -> list[str]:
    """What of its limits is improbable, with the way out."""
    return [
        f"{most:g} seconds {what} are improbable; if milliseconds are meant, say slo.{name}={meant}"
        for name, (longest, what) in LONGEST.items()
        for most, meant in _limits(level, name)
        if most > longest
    ]


def _limits(level: ServiceLevel, name: str) -> list[tuple[float, str]]:
    """Each limit, and how it is written in milliseconds."""
    limit = getattr(level, name)
    if isinstance(limit, float):
        return [(limit, f"{limit:g}ms")]
    return [(most, f"{{{share}: {most:g}ms}}") for share, most in limit or ()]
