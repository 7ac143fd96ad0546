"""What the paper claims, as comparisons between lines of the sweep `paper`, and what may be behind it.

A cause is examined by switching it off (or on) alone; see sweeps/ablations.yaml for the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prebleexp.paper.effects import Side

PLAIN, AWARE = "PREBLE", "length-aware PREBLE"
"""the lines whose difference is the gain of knowing output lengths"""
VARIANTS = {"released": "as released", "described": "as described"}
"""of the sweep `paper`: how the name of a part ends, and what that means"""
BASELINES = ("LOR", "round robin", "random")


@dataclass(frozen=True)
class Comparison:
    """`one` against `other` in a variant; `expected` is the sign that the claim says, `published` a relative number."""

    one: Side
    other: Side
    where: str
    what: str
    expected: int = 0
    published: float | None = None


@dataclass(frozen=True)
class Claim:
    """`text` is what the paper says, `short` that in a few words, `subject` what the effects are of, in a
    sentence about them."""

    name: str
    short: str
    text: str
    subject: str
    tests: dict[str, tuple[Comparison, ...]]
    """by variant"""
    causes: dict[str, tuple[Comparison, ...]]
    """likewise: what a suspected cause, switched alone, does"""


def claims(variants: Mapping[str, str] = VARIANTS) -> tuple[Claim, ...]:
    """Of parts whose names end so, which mean that."""
    return tuple(make(variants) for make in (_loses, _more_gpus, _overhead, _variance, _lengths))


def _at(gpus: int, rps: int) -> tuple[tuple[str, int], ...]:
    return (("gpus", gpus), ("rps", rps))


def _place(gpus: int, rps: int) -> str:
    return f"{gpus} GPUs, {rps} requests/s"


def _rates(
    part: str, one: str, other: str, gpus: int, rps: int, expected: int, published: float | None = None
) -> Comparison:
    at = _at(gpus, rps)
    return Comparison(
        Side(part, one, at), Side(part, other, at), _place(gpus, rps), f"{one} against {other}", expected, published
    )


def _each(
    variants: Mapping[str, str], make: Callable[[str], Iterable[Comparison]]
) -> dict[str, tuple[Comparison, ...]]:
    return {variant: tuple(make(name)) for name, variant in variants.items()}


def _loses(variants: Mapping[str, str]) -> Claim:
    places = [(8, 32, name) for name in BASELINES] + [(8, 128, "random")] + [(4, 128, name) for name in BASELINES]
    return Claim(
        "loses",
        "At high request rates PREBLE is slower than simple routers",
        "PREBLE loses to simple routers at high request rates: on 8 GPUs it is behind all of them at 32 requests/s and "
        "behind random at 128, on 4 GPUs behind at 128.",
        "PREBLE's latency, relative to a simple router's",
        _each(variants, lambda name: [_rates(f"rates_{name}", PLAIN, other, g, r, 1) for g, r, other in places]),
        {
            "as described": tuple(
                _rates("ablations_described", f"{PLAIN}, {switch}", PLAIN, 8, rps, 0)
                for switch in ("not rebalanced", "window of 20 s")
                for rps in (64, 128)
            )
        },
    )


def _more_gpus(variants: Mapping[str, str]) -> Claim:
    places = [(16, rps, name) for rps in (64, 128) for name in BASELINES]
    return Claim(
        "more-gpus",
        "On 16 GPUs PREBLE takes 1.6 times as long",
        "More GPUs make it worse: on 16 GPUs PREBLE's latency is 1.6 times that of the baselines at 64 and 128 "
        "requests/s.",
        "PREBLE's latency on 16 GPUs, relative to a simple router's",
        _each(variants, lambda name: [_rates(f"rates_{name}", PLAIN, other, g, r, 1, 0.6) for g, r, other in places]),
        {
            "as described": tuple(
                _rates("ablations_described", f"{PLAIN}, not rebalanced", PLAIN, 16, rps, 0) for rps in (64, 128)
            )
        },
    )


def _overhead(variants: Mapping[str, str]) -> Claim:
    def charged(name: str, line: str) -> list[Comparison]:
        part = f"ablations_{name}"
        return [_rates(part, f"{line}, overhead charged", line, 16, r, 1, 0.6) for r in (64, 128)]

    return Claim(
        "overhead",
        "The cause is the time that decisions take",
        "Scheduling overhead is why PREBLE takes 1.6 times as long on 16 GPUs: its decisions take 0.6 to 2.5 ms, "
        "a simple router's 0.2 to 0.5 ms.",
        "What it changes that PREBLE's decisions take as long as the paper says, and not no time",
        _each(variants, lambda name: charged(name, PLAIN)),
        _each(variants, lambda name: charged(name, "LOR")),
    )


def _variance(variants: Mapping[str, str]) -> Claim:
    mixes = {"released": ("released", "constant")}
    usual = ("two_point", "constant")

    def of(name: str, line: str, expected: int) -> list[Comparison]:
        one, other = (
            Side(f"variance_{name}", line, (*_at(8, 64), ("output_length", length)))
            for length in mixes.get(name, usual)
        )
        return [
            Comparison(one, other, _place(8, 64), f"{line}, lengths of high variance against 150 for all", expected)
        ]

    return Claim(
        "variance",
        "Output lengths that vary hurt PREBLE",
        "Variance of output lengths hurts PREBLE.",
        "What it changes that lengths are drawn from the mix of highest variance, and are not all 150",
        _each(variants, lambda name: of(name, PLAIN, 1)),
        _each(variants, lambda name: of(name, "LOR", 0)),
    )


def _lengths(variants: Mapping[str, str]) -> Claim:
    published = {64: -0.1431, 128: -0.2889}

    def gain(part: str, suffix: str, expected: int = 0) -> list[Comparison]:
        return [
            _rates(
                part, f"{AWARE}{suffix}", f"{PLAIN}{suffix.removesuffix(', oracle heard')}", 8, rps, expected, number
            )
            for rps, number in published.items()
        ]

    return Claim(
        "lengths",
        "Knowing output lengths gains 14 % and 29 %",
        "Knowing output lengths gains 14.31 % at 64 and 28.89 % at 128 requests/s on 8 GPUs.",
        "What knowing output lengths changes",
        _each(variants, lambda name: gain(f"lengths_{name}", "", -1)),
        {
            "as released": (
                *gain("ablations_released", ", oracle heard"),
                *gain("ablations_released", ", real outputs"),
                *gain("ablations_released", ", real outputs, oracle heard"),
            ),
            "as described": (
                *gain("ablations_described", ", not rebalanced"),
                *gain("ablations_described", ", all output in load"),
            ),
        },
    )
