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
        f"slo.{name}={most:g} is {most:g} seconds {what}; if milliseconds are meant, say slo.{name}={most:g}ms"
        for name, (longest, what) in LONGEST.items()
        for most in _limits(level, name)
        if most > longest
    ]


def _limits(level: ServiceLevel, name: str) -> list[float]:
    limit = getattr(level, name)
    return [limit] if isinstance(limit, float) else [most for _, most in limit or ()]
