"""The sentence of a figure: how large differences are, over the whole of x."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.report.figures import figure
from prebleexp.report.headline import ONE_SEED
from prebleexp.report.summary import Row
from tests.support.pages.sweep_rows import part_rows, rows

AXES = ("gpus", "rps", "policy")
RATES = (8.0, 16.0, 32.0, 64.0)
METRIC = "norm_latency_mean_s"


def made(
    levels: dict[str, Callable[[float], float]], *, gpus: tuple[int, ...] = (8,), seeds: int = 4, noise: float = 0.01
) -> list[Row]:
    """Latencies in ms a token, by policy and rate; seeds are common to all policies."""
    return [
        row | {METRIC: levels[str(row["policy"])](float(row["rps"] or 0)) / 1000 * (1 + noise * int(row["seed"] or 0))}
        for row in rows(gpus, RATES, tuple(levels), seeds)
    ]


def said(levels: dict[str, Callable[[float], float]], **how: int) -> str:
    return figure("latency_against_rate", made(levels, **how), AXES).headline  # type: ignore[arg-type]


def flat(level: float) -> Callable[[float], float]:
    return lambda rate: level


def test_a_line_that_is_better_at_first_and_worse_then_has_both_and_where_they_meet() -> None:
    """It was the largest rate alone that was judged, where the opposite of the rest may hold."""
    shape = {8.0: 62.0, 16.0: 80.0, 32.0: 93.0, 64.0: 120.0}
    assert said({"lor": flat(100), "e2": shape.__getitem__}) == (
        "e2 is 7 to 38 % faster than lor up to 32 requests/s, 20 % slower at 64 requests/s."
    )
    shape |= {32.0: 105.0}
    assert said({"lor": flat(100), "e2": shape.__getitem__}) == (
        "e2 is 20 to 38 % faster than lor up to 16 requests/s, then 5 to 20 % slower."
    )


def test_an_elevenfold_gap_is_never_noise() -> None:
    text = said({"random": flat(10), "LOR": flat(10.5), "PREBLE": lambda rate: 30 if rate < 32 else 110})
    assert text == "random is 4.8 % faster than LOR; PREBLE takes 3.0 to 11 × as long."
    assert "noise" not in text


def test_lines_that_are_equal_are_spoken_of_as_one() -> None:
    text = said({"random": flat(50), "lor": flat(20), "e2": flat(20)})
    assert text == "lor and e2 are fastest; random takes 2.5 × as long."
    assert said({"lor": flat(20), "e2": flat(20)}) == "lor and e2 are equal, or within the noise of each other."


def test_where_signs_are_mixed_it_counts_places_and_names_the_worst() -> None:
    def e2(rate: float) -> float:
        return {8.0: 80.0, 16.0: 130.0, 32.0: 70.0, 64.0: 60.0}[rate]

    assert said({"lor": flat(100), "e2": e2}) == (
        "e2 is faster than lor in 3 of 4 comparisons, by 20 to 40 %, and slower in 1, by 30 ± 1 % "
        "(most: 8 GPUs, 16 requests/s, than lor)."
    )


def test_one_line_has_its_levels_and_one_seed_no_certainty() -> None:
    assert said({"lor": lambda rate: rate * 10}, noise=0).startswith(  # type: ignore[arg-type]
        "lor has an average normalised latency of 80.0 ± 0 ms/token at 8 requests/s and 640 ± 0 ms/token at 64"
    )
    alone = said({"lor": flat(100), "e2": flat(90)}, seeds=1)
    assert alone == f"e2 is 10 % faster than lor. {ONE_SEED}"


def test_each_variant_has_its_sentence() -> None:
    text = figure("latency_against_rate", part_rows(10), number="1A").headline
    assert re.fullmatch(r"As released, LOR is [^.]*\. As described, LOR is [^.]*\.", text)


def test_of_a_quantity_that_is_better_higher_the_highest_is_the_best() -> None:
    found = [
        row | {"hit_ratio": 0.6 if row["policy"] == "e2" else 0.5} for row in made({"lor": flat(1), "e2": flat(1)})
    ]
    assert figure("hit_ratio", found, AXES).headline == "e2's hit ratio is 20 % higher than lor's."


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(50, 200), min_size=4, max_size=4), st.lists(st.floats(50, 200), min_size=4, max_size=4))
def test_every_number_of_a_sentence_lies_within_the_range_of_the_differences(
    ones: list[float], others: list[float]
) -> None:
    levels = [dict(zip(RATES, values, strict=True)) for values in (ones, others)]
    text = said({"lor": levels[0].__getitem__, "e2": levels[1].__getitem__}, noise=0)  # type: ignore[arg-type]
    sizes = [abs(a / b - 1) * 100 for a, b in zip(ones, others, strict=True)]
    sizes += [abs(b / a - 1) * 100 for a, b in zip(ones, others, strict=True)]
    for percent in re.findall(r"([\d.,]+) %", text):
        assert min(sizes) - 1 <= float(percent.replace(",", "")) <= max(sizes) + 1


@pytest.mark.parametrize("name", ["ttft_p99_s", "hit_ratio", "n_finished", "evicted_tokens", "told_rank_correlation"])
def test_any_metric_is_a_figure(name: str) -> None:
    found = [row | {name: 1.0 + (row["policy"] == "random")} for row in made({"lor": flat(1), "random": flat(2)})]
    drawn = figure(name, found, AXES)
    assert drawn.name == name
    assert len(drawn.panels) == 1
    assert len(set(drawn.data.columns)) == len(drawn.data.columns)
    assert all(word not in drawn.title for word in ("_", "requests requests"))
    assert ("lower is better" in drawn.y) != ("higher is better" in drawn.y)
