"""Features that are there at once, as a list of sets: each with the bytes of the layered oracle on a small stream.

All that is here runs in processes that compile nothing, since every set would be compiled for seconds.
"""

from __future__ import annotations

import json

import pytest

from prebleexp.sim import compatibility
from prebleexp.sim.compatibility import FEATURES
from tests.support.interpreted import said
from tests.support.strategies import feature_sets

pytestmark = pytest.mark.slow

SEED = 1
AT_ONCE = 50
ALL = {
    "pairs": feature_sets.pairs(),
    "triples": feature_sets.sampled(3, 300, SEED),
    "quadruples": feature_sets.sampled(4, 100, SEED),
}
SOME = (
    "decider+pull+ranks+serial",
    "kinds+peers+pull+tiers",
    "gateway+kinds+reserve_first+serial",
    "autoscaler+patience+reserve_first+serial",
    "faults+push_at_end+resume+tiers",
    "gateway+push_at_end+ranks+tiers",
    "pull+ranks+replicas+tiers",
    "autoscaler+migration+tiers",
    "autoscaler+peers+pull+requeue",
    "faults+stages",
    "patience+ranks+stages",
    "resume+tiers",
    "kinds+push_at_end+ranks+tiers",
    "gateway+migration+requeue",
)
"""of all features, each quick"""
PARTS = [(kind, first) for kind, sets in ALL.items() for first in range(0, len(sets), AT_ONCE)]
SCRIPT = "import runpy; runpy.run_module('tests.support.together', run_name='__main__', alter_sys=True)"


def agree(kind: str, names: list[str]) -> None:
    rows = [json.loads(line) for line in said(SCRIPT, str(SEED), *names).splitlines()]
    assert [row["set"] for row in rows] == names
    fail = [row for row in rows if "fails" in row]
    tries = sum(row["tries"] for row in rows)
    print(f"{kind}: {len(rows)} tried with {tries} streams, {len(rows) - len(fail)} equal, 0 without an oracle")
    assert not fail, "\n".join(f"{row['set']}, stream {row['tries']}: {row['fails']}" for row in fail)


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "first"), PARTS)
def test_sets_of_features_give_the_bytes_of_the_oracle(kind: str, first: int) -> None:
    agree(kind, ["+".join(sorted(one)) for one in ALL[kind][first : first + AT_ONCE]])


def test_some_sets_of_features_give_the_bytes_of_the_oracle() -> None:
    assert {one for some in SOME for one in some.split("+")} == {*FEATURES}
    agree("some", list(SOME))


def test_all_pairs_but_those_that_are_refused_are_among_them() -> None:
    """A pair has a run, or a refusal, or no engine that can do both."""
    tried, none = {*ALL["pairs"]}, {*feature_sets.NO_ENGINE}
    refused = {frozenset(row[:2]) for row in compatibility.refused_pairs()}
    assert {frozenset(pair) for pair in compatibility.pairs()} == tried | none | refused
    assert not tried & (none | refused)
    assert not none & refused
    print(f"{len(tried)} pairs tried, {len(refused)} refused, {len(none)} that no engine can do")
    assert [len({*ALL[kind]}) for kind in ("triples", "quadruples")] == [300, 100]
