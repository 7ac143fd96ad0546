"""Made-up rows for what the paper claims."""

from __future__ import annotations

from typing import Any

from prebleexp.paper.claims import claims
from prebleexp.report.summary import Row


def rows(line: str, latencies: list[float], **at: Any) -> list[Row]:
    return [
        {"line": line, "seed": seed, "norm_latency_mean_s": value, "n_requests": 10, "n_finished": 9, **at}
        for seed, value in enumerate(latencies)
    ]


def made_up(ratio: float) -> dict[str, list[Row]]:
    """Rows for every comparison of every claim: each `one` is `ratio` times its `other`, give or take a little."""
    parts: dict[str, dict[tuple[Any, ...], list[Row]]] = {}
    for claim in claims():
        for tests in (*claim.tests.values(), *claim.causes.values()):
            for one in tests:
                for side, level in ((one.other, 1.0), (one.one, ratio)):
                    place = parts.setdefault(side.part, {})
                    noise = [level * (1 + 0.001 * i) for i in range(4)]
                    place.setdefault((side.line, side.at), rows(side.line, noise, **dict(side.at)))
    return {part: [row for found in places.values() for row in found] for part, places in parts.items()}
