"""What knowing lengths wins: by hand, of made-up rows."""

from __future__ import annotations

import pytest

from prebleexp.paper.figures import DRAWINGS
from prebleexp.paper.lengths import CHANGE, with_change
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import figure
from prebleexp.report.summary import Row

LATENCY = {("max", 1): 1.0, ("oracle", 1): 0.8, ("max", 2): 2.0, ("oracle", 2): 1.9, ("noisy", 1): 1.1}


def rows(policy: str = "e2", reads: bool = True) -> list[Row]:
    """Of two loads, one of which no run with noise has."""
    return [
        {
            **{"variant": "v", "policy": policy, "gpus": 8, "rps": rps, "seed": seed, "line": told, "lengths": told},
            **{"n_finished": 9, "n_requests": 10},
            "norm_latency_mean_s": (value if reads else 1.0) * (1 + seed),
        }
        for (told, rps), value in LATENCY.items()
        for seed in range(2)
    ]


def test_the_change_is_the_mean_of_all_loads_against_the_greatest_length() -> None:
    found = with_change(rows())
    assert [(row["line"], row["seed"]) for row in found] == [("oracle", 0), ("oracle", 1)]
    assert [row[CHANGE.metric] for row in found] == pytest.approx([(-20 - 5) / 2] * 2)
    assert [row["n_requests"] for row in found] == [20, 20]


def test_the_sentence_says_who_wins_and_who_does_not_read_lengths() -> None:
    how = DRAWINGS["worth_of_lengths"]
    made = figure("worth_of_lengths", [*rows(), *rows("lmetric", False)], how=how, drawings=Drawings())
    assert "To know output lengths changes latency by e2 −12 % (v)" in made.headline
    assert "lmetric does not read them" in made.headline
