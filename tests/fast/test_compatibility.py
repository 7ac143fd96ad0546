"""Which features are not modelled together: the table, what runs are told, and that it does not grow."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.experiment.together import features_of
from prebleexp.launch import configure
from prebleexp.sim import compatibility
from prebleexp.sim.compatibility import FEATURES, PROTOCOLS, REFUSED, WORDS
from prebleexp.sim.given import Given, check_together
from prebleexp.sim.pools import ALWAYS, UNCACHED

MOST = 4
"""refused pairs, each of `reserve_first`: this number may only fall"""
MOST_PARALLEL = 11
"""likewise, of ranks and stages"""
MOST_TRIPLES = 0


class Ideal:
    """An engine that can do everything."""

    loses = resumes = fetches = moves = parallel = True
    protocols = PROTOCOLS

    def check_roles(self, protocol: str = "") -> None: ...

    check_tiers = check_moves = check_stages = check_roles


def given(*features: str) -> Given:
    has = set(features)
    faulty = bool(has & {"faults", "resume", "requeue"})
    of = SimpleNamespace(context_length=1, ranks=1 + ("ranks" in has), stages=1 + ("stages" in has))
    values: dict[str, Any] = {name: True for name in ("migration", "autoscaler", "gateway", "replicas") if name in has}
    values |= {"engine": Ideal(), "gpus": 2, "timeline": [1] * faulty, "kinds": ((1, of),) * (1 + ("kinds" in has))}
    values["overhead"] = SimpleNamespace(mode="serial" if "serial" in has else "none")
    values["workload"] = SimpleNamespace(patience_s=np.array([1.0 if "patience" in has else math.nan]))
    if faulty:
        lost = {"resumes": "resume" in has, "requeues": "requeue" in has, "limit_s": math.inf}
        values["faults"] = SimpleNamespace(**lost, start_s=lambda _: 0.0)
    if has & {*PROTOCOLS, "decider"}:
        protocol = next((i for i, one in enumerate(PROTOCOLS) if one in has), 0)
        values["pools"] = SimpleNamespace(protocol=protocol, decider=UNCACHED if "decider" in has else ALWAYS)
    if has & {"tiers", "peers"}:
        values["tiers"] = SimpleNamespace(peers=True if "peers" in has else None)
    return Given(**{field.name: values.get(field.name) for field in dataclasses.fields(Given)})


def told(*features: str) -> str | None:
    try:
        check_together(given(*features))
    except InvalidInput as refused:
        return str(refused)
    return None


def test_a_run_is_told_what_the_table_says() -> None:
    """Of each pair, by what is checked before a run is simulated."""
    refused = {(one, other): refusal.sentence for one, other, refusal in compatibility.refused_pairs()}
    for pair in compatibility.pairs():
        assert told(*pair) == refused.get(pair), pair
    assert all(told(one) is None for one in FEATURES)


def test_the_number_of_refused_pairs_only_falls(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["composes", "output=json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["pairs"] == 150
    parallel = [pair for pair in printed["refused"] if {"ranks", "stages"} & {*pair[:2]}]
    assert len(printed["refused"]) - len(parallel) <= MOST
    assert all("reserve_first" in pair[:2] for pair in printed["refused"] if pair not in parallel)
    assert len(parallel) <= MOST_PARALLEL
    assert len(printed["refused_triples"]) <= MOST_TRIPLES
    assert all(cause in compatibility.CAUSES and sentence for _, _, cause, sentence in printed["refused"])


def test_a_triple_is_told_so() -> None:
    for one, other, third, refusal in compatibility.refused_triples():
        assert told(one, other, third) == refusal.sentence


def test_no_row_is_idle_and_all_features_have_words() -> None:
    used = {id(refusal) for *_, refusal in (*compatibility.refused_pairs(), *compatibility.refused_triples())}
    assert [one for one in REFUSED if id(one) not in used] == []
    assert [*WORDS] == [*FEATURES]


def test_people_read_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["composes"]) == 0
    assert "of 150 pairs are refused" in capsys.readouterr().out


def test_what_becomes_of_requests_is_no_feature_where_no_gpu_is_lost_or_drained() -> None:
    (cell,) = configure.cells(["gpus=2", "faults.on_loss=resume", "faults.drain=requeue"])
    assert [*features_of(cell)] == []
