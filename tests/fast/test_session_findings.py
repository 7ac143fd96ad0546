"""What a session's id is worth and where reuse falls off a cliff: by hand, and in words."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from prebleexp.report import sessions
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import Figure, figure
from prebleexp.report.kinds import KINDS, LOAD, PREFIX, SESSION, kind_of
from prebleexp.report.measures import DRAWINGS
from prebleexp.report.ranking import ALL, with_distance, within
from prebleexp.report.summary import Row
from prebleexp.report.worth import against
from tests.support.places import ROOT

LATENCY = {
    "by session: sticky": (2.0, 1.0),
    "by session: hash": (3.0, 2.0),
    "by prefix: tree": (1.0, 2.0),
    "by load: LOR": (4.0, 4.0),
}
"""with the least memory, and with the most"""
HITS = {
    "by session: sticky": (0.3, 0.8, 0.9),
    "by session: hash": (0.2, 0.6, 0.6),
    "by prefix: tree": (0.4, 0.5, 0.5),
    "by load: LOR": (0.1, 0.1, 0.1),
}
SIZES = (100, 200, 400)


def rows(latency: dict[str, tuple[float, float]], noise: float = 0.01, seeds: int = 4) -> list[Row]:
    """Of two clusters of one kind, over the same requests."""
    return [
        {
            **{"part": "chats", "variant": "chats", "gpus": 8, "rps": 64, "line": line, "seed": seed},
            **{"hardware.kv_tokens": size, "norm_latency_mean_s": value * (1 + noise * (seed % 2)), "hit_ratio": 0.5},
            **{"requests_max_over_mean": 1.0, "ttft_mean_s": 1.0, "ttft_p99_s": 1.0},
            **{"n_finished": 10, "n_requests": 10},
        }
        for line, of in latency.items()
        for size, value in zip((100, 400), of, strict=True)
        for seed in range(seeds)
    ]


def drawn(latency: dict[str, tuple[float, float]]) -> Figure:
    return figure("sessions", rows(latency), how=DRAWINGS["sessions"], drawings=Drawings())


def test_the_best_of_a_kind_is_compared_with_the_best_of_another_over_all_clusters() -> None:
    """sticky is at √(2 · 1), tree at √(1 · 2), LOR at √(4 · 4)."""
    far = within(with_distance(rows(LATENCY)), ALL)
    by_prefix, by_load = (against(far, SESSION, other) for other in (PREFIX, LOAD))
    assert by_prefix is not None
    assert by_load is not None
    assert (by_prefix.one, by_prefix.other, by_load.other) == ("sticky", "tree", "LOR")
    assert by_prefix.mean == pytest.approx(0)
    assert not by_prefix.is_sure
    assert by_load.mean == pytest.approx(math.log(2**0.5 / 4))
    assert by_load.is_sure
    assert by_load.words == "65 % below that of LOR"
    assert against([row for row in far if kind_of(row["line"]) != PREFIX], SESSION, PREFIX) is None


@pytest.mark.parametrize(
    ("session", "says"),
    [
        ((2.0, 1.0), "Once prefixes are known, a session's id is worth nothing that can be seen: over all clusters"),
        ((4.0, 2.0), "Once prefixes are known, a session's id is worth nothing: over all clusters the latency of"),
        ((1.0, 0.5), "A session's id is worth something even where prefixes are known: over all clusters the latency"),
    ],
)
def test_the_page_begins_with_what_an_id_is_worth(session: tuple[float, float], says: str) -> None:
    """Over the same requests, so that what seeds differ by does not matter."""
    assert drawn({**LATENCY, "by session: sticky": session, "by session: hash": (9.0, 9.0)}).headline.startswith(says)


def test_who_names_no_kinds_gets_a_ranking() -> None:
    assert drawn({"one": (1.0, 1.0), "other": (2.0, 2.0)}).headline.startswith("Of 2 routers, one is the fastest")


def test_the_finding_says_where_an_id_gains_and_where_it_costs() -> None:
    worth, *others = sessions.findings(rows(LATENCY))
    assert [one.name for one in others] == ["cliff", "cluster-1"]
    assert worth.sentences[1:] == (
        "Where prefixes are not known it is worth something: its latency is 65 % below that of LOR, the best that "
        "looks at load alone.",
        "It gains in 1 of 2 places: chats, 400 tokens of KV (−50 %).",
        "It costs in 1: chats, 100 tokens of KV (+100 %).",
    )
    assert worth.effects.rows[1] == ("chats, 100 tokens of KV", "sticky", "tree", "LOR", "+100 %", "−50 %")


def reusing(hits: dict[str, tuple[float, ...]]) -> list[Row]:
    """On 4 and 16 GPUs, of which the mean counts."""
    return [
        {
            **{"part": "chats", "variant": "chats", "gpus": gpus, "line": line, "seed": seed},
            **{"hardware.kv_tokens": size, "hit_ratio": hit + shift, "n_finished": 1, "n_requests": 1},
        }
        for line, of in hits.items()
        for size, hit in zip(SIZES, of, strict=True)
        for gpus, shift in ((4, -0.02), (16, 0.02))
        for seed in range(2)
    ]


def test_reuse_falls_off_where_it_falls_most_for_the_router_that_finds_most() -> None:
    made = figure("reuse", reusing(HITS), how=DRAWINGS["reuse"], drawings=Drawings())
    assert made.headline == (
        "With chats, reuse falls off a cliff between 200 and 100 tokens of KV a GPU: the hit ratio goes from 0.80 to "
        "0.30 by session (sticky), 0.50 to 0.40 by prefix (tree) and 0.10 to 0.10 by load (LOR)."
    )
    flat = {line: (of[2] - 0.01, of[2], of[2]) for line, of in HITS.items()}
    made = figure("reuse", reusing(flat), how=DRAWINGS["reuse"], drawings=Drawings())
    assert "reuse falls off nowhere, not even between 200 and 100 tokens" in made.headline
    one_size = [row for row in reusing(HITS) if row["hardware.kv_tokens"] == 100]
    made = figure("reuse", one_size, how=DRAWINGS["reuse"], drawings=Drawings())
    assert made.headline == "All runs have the same memory, so there is no cliff to see."


@pytest.mark.parametrize("name", ["sessions", "sessions_trace", "capacity", "capacity_trace"])
def test_the_sweep_has_every_router_there_is(name: str) -> None:
    sweep = yaml.safe_load((ROOT / "sweeps" / f"{name}.yaml").read_text(encoding="utf-8"))["sweep"]
    every = {path.stem for path in Path(ROOT / "conf" / "policy").glob("*.yaml")}
    every -= {"e2_released", "replay"}  # of engine=released alone, and of a file
    by_session = {"sglang_manual", "sglang_consistent_hashing", "production_stack_session"}
    by_session |= {"vllm_consistent_hash", "vllm_sticky_least_loaded"}
    for part, of in sweep["parts"].items():
        routed = {line.removeprefix("policy=") for own in of["lines"].values() for line in own if "policy=" in line}
        assert routed == (every - by_session if part == "few_shot" else every)
        if sweep.get("findings") == "sessions":
            assert {kind_of(line) for line in of["lines"]} == {*KINDS}
