"""What features of a cluster are worth, alone and together."""

from __future__ import annotations

import math

import pytest

from prebleexp.report.feature_sets import Sets, sentence
from prebleexp.report.measures import DRAWINGS
from prebleexp.report.summary import Row
from prebleexp.report.together import findings

LATENCY = {"nothing": 1.0, "pools": 2.0, "tiers": 0.5, "loss": 1.1, "pools + tiers": 0.8, "pools + loss": 2.6}
LATENCY |= {"tiers + loss": 0.55, "pools + tiers + loss": 1.21}
NOISE = {1: 1.0, 2: 1.5, 3: 1.25}
"""a seed's streams are slower for all; between sets they differ little"""


def rows(latency: dict[str, float], seeds: int = 3) -> list[Row]:
    return [
        {"part": "chats", "variant": "chats", "line": line, "seed": seed, "gpus": 8, "rps": 32}
        | {"norm_latency_mean_s": of * NOISE[seed] * (1 + 0.01 * ((place * seed) % 3 - 1))}
        for place, (line, of) in enumerate(latency.items())
        for seed in range(1, seeds + 1)
    ]


def test_a_set_is_worth_its_latency_over_that_of_nothing_and_beside_the_product_of_its_own() -> None:
    (finding,) = findings(rows(LATENCY))
    sets = finding.numbers["sets"]
    for names, worth, beside in (
        ("pools", 2.0, None),
        ("tiers + pools", 0.8, 0.8 / (2.0 * 0.5)),
        ("loss + pools", 2.6, 2.6 / (2.0 * 1.1)),
        ("tiers + loss", 0.55, 1.0),
        ("tiers + loss + pools", 1.21, 1.21 / (2.0 * 0.5 * 1.1)),
    ):
        assert math.exp(sets[names]["worth"][0]) == pytest.approx(worth, rel=0.02)
        if beside is not None:
            assert math.exp(sets[names]["beside"][0]) == pytest.approx(beside, rel=0.02)
    assert finding.sentences == (
        "Latency changes by −49 ± 1 % with tiers, +10 % with loss and +102 ± 5 % with pools; by +22 ± 3 % with all of "
        "it, where the product of these is +12 %. Loss and pools (+18 ± 3 % beside the product) hurt each other; tiers "
        "and pools (−21 ± 2 % beside the product) help each other.",
    )
    assert len(finding.effects.rows) == len(LATENCY) - 1


def test_of_one_seed_nothing_is_sure() -> None:
    (finding,) = findings(rows(LATENCY, seeds=1))
    assert finding.sentences[0].endswith("No two of them surely help or hurt each other.")


def test_without_a_set_of_nothing_lines_are_ranked() -> None:
    drawing, without = DRAWINGS["together"], {line: of for line, of in LATENCY.items() if line != "nothing"}
    for latency, said in ((LATENCY, "Latency changes by "), (without, "Of 7 routers, tiers is the fastest")):
        from prebleexp.report.figures import figure

        drawn = figure("together", rows(latency), how=drawing, number="1", command="python")
        assert drawn.headline.startswith(said)


def test_what_was_not_measured_is_left_out() -> None:
    (finding,) = findings(rows({line: of for line, of in LATENCY.items() if line in ("nothing", "pools", "loss")}))
    assert finding.sentences[0].startswith("Latency changes by +11 ± 3 % with loss and +102 ± 5 % with pools. No two")
    assert Sets([]).worth(["pools"]) is None
    assert sentence(Sets([])) == "No feature was measured alone."
