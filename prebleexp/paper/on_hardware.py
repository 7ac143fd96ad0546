"""What the paper claims, asked of every kind of cluster of a sweep of routers: those claims that need no other runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prebleexp.paper.claims import AWARE, BASELINES, PLAIN, Claim, Comparison
from prebleexp.paper.effects import Side
from prebleexp.paper.findings import Judged, judged
from prebleexp.report.summary import Row

Parts = Mapping[str, Sequence[Row]]
"""the rows of a sweep, by part"""
FEW, SOME, MANY = 4, 8, 16
"""GPUs; the paper's numbers, of which the sweep has all"""
PUBLISHED = (-0.1431, -0.2889)
"""gain of knowing output lengths, at the lesser and the greater of two loads"""


def findings(parts: Parts, variants: Mapping[str, str]) -> list[Judged]:
    """One for each claim. `variants`: what the name of each part means."""
    return [judged(claim, parts, list(variants.values())) for claim in claims(parts, variants)]


def claims(parts: Parts, variants: Mapping[str, str]) -> tuple[Claim, ...]:
    """At the two highest of each part's loads, as the paper has it at 64 and 128 requests/s on 8 GPUs; of numbers of
    GPUs that a part lacks, nothing."""
    loses: dict[str, tuple[Comparison, ...]] = {}
    more_gpus: dict[str, tuple[Comparison, ...]] = {}
    lengths: dict[str, tuple[Comparison, ...]] = {}
    for part, variant in variants.items():
        loads = {gpus: _highest(parts.get(part, ()), gpus) for gpus in (FEW, SOME, MANY)}
        loses[variant] = tuple(
            _against(part, PLAIN, other, gpus, rps, 1)
            for gpus in (FEW, SOME)
            for rps in loads[gpus][-1:]
            for other in BASELINES
        )
        more_gpus[variant] = tuple(
            _against(part, PLAIN, other, MANY, rps, 1, 0.6) for rps in loads[MANY] for other in BASELINES
        )
        lengths[variant] = tuple(
            _against(part, AWARE, PLAIN, SOME, rps, -1, size) for rps, size in zip(loads[SOME], PUBLISHED, strict=False)
        )
    return (
        Claim(
            "loses",
            "At high request rates PREBLE is slower than simple routers",
            f"PREBLE loses to simple routers at high request rates: here the highest of {FEW} and of {SOME} GPUs.",
            "PREBLE's latency, relative to a simple router's",
            loses,
            {},
        ),
        Claim(
            "more-gpus",
            f"On {MANY} GPUs PREBLE takes 1.6 times as long",
            f"More GPUs make it worse: on {MANY} GPUs PREBLE's latency is 1.6 times that of the baselines, here at the "
            "two higher loads.",
            f"PREBLE's latency on {MANY} GPUs, relative to a simple router's",
            more_gpus,
            {},
        ),
        Claim(
            "lengths",
            "Knowing output lengths gains 14 % and 29 %",
            f"Knowing output lengths gains 14.31 % and 28.89 % on {SOME} GPUs, here at the two higher loads.",
            "What knowing output lengths changes",
            lengths,
            {},
        ),
    )


def _highest(rows: Sequence[Row], gpus: int) -> list[float]:
    """The two highest rates that so many GPUs have."""
    rates = {float(row["rps"] or 0) for row in rows if row["gpus"] == gpus}
    return sorted(rates)[-len(PUBLISHED) :]


def _against(
    part: str, one: str, other: str, gpus: int, rps: float, expected: int, published: float | None = None
) -> Comparison:
    at = (("gpus", gpus), ("rps", rps))
    place = f"{gpus} GPUs, {rps:g} requests/s"
    sides = (Side(part, one, at), Side(part, other, at))
    return Comparison(*sides, place, f"{one} against {other}", expected, published)
