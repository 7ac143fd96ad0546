"""Ten thousand random clusters to which anything happens: no crash, no hang, every request accounted for."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from prebleexp.engines.continuous import Continuous
from prebleexp.errors import NeverEnds
from prebleexp.lengths.known import Max
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.accounted import accounted
from tests.support.sessions import in_order
from tests.support.strategies.chaos import chaos

pytestmark = pytest.mark.slow

CLUSTERS, AT_ONCE, IN_CI = 10_000, 100, 1_000
LATER, NIGHTLY = range(IN_CI, CLUSTERS, AT_ONCE), pytest.mark.nightly
ENDED = [State.FINISHED, State.REFUSED, State.EXPIRED, State.CANCELLED, State.FAILED, State.NOT_DUE]


@pytest.mark.parametrize("first", [*range(0, IN_CI, AT_ONCE), *(pytest.param(one, marks=NIGHTLY) for one in LATER)])
def test_every_request_of_random_clusters_is_accounted_for(first: int) -> None:
    for number in range(first, first + AT_ONCE):
        happens(number)


@cache
def happens(number: int) -> tuple[Any, Any]:
    """How many requests ended in each state, and which kinds of things happened."""
    workload, cluster = chaos(number)
    try:
        made = simulate(workload, lengths=Max(), **cluster)
        holds(workload, made, cluster)
    except NeverEnds:  # its GPUs come and go too fast: one of 10,000
        return np.zeros(len(State), np.int64), np.zeros(10, np.int64)
    except Exception as error:
        raise AssertionError(f"tests.support.strategies.chaos.chaos({number})") from error
    loaded = made.host_tokens.any() or made.disk_tokens.any() or made.shared_tokens.any()
    kinds = [
        "pools" in cluster,
        made.losses.any(),
        len(workload.after_ids) > 0,
        loaded,
        made.peer_tokens.any(),
        made.refused_by.any(),
        made.retries.any(),
        "replicas" in cluster,
        made.moves.any(),
        made.stopped_s.any(),
    ]
    return np.bincount(made.state, minlength=len(State)), np.array(kinds, np.int64)


def holds(workload: Workload, made: Outcome, cluster: dict[str, Any]) -> None:
    split, faults = "pools" in cluster, cluster.get("faults")
    if not split:
        accounted(workload, made, faults is not None and faults.requeues)
    if faults is None or not (faults.happen or "autoscaler" in cluster):
        assert not made.losses.any()
        in_order(workload, made)
        if cluster["horizon"] == "drain":
            assert np.isin(made.state, ENDED).all()
    finished = made.state == State.FINISHED
    assert (np.isfinite(made.finish_s) == finished).all()
    assert (made.output_seen[finished] == np.minimum(workload.output_tokens, workload.max_new_tokens)[finished]).all()
    served = finished & (made.decode_gpu != made.gpu)
    first = served & (made.losses == 0)  # else its first token was shown before its prompt was computed again
    assert (made.prefill_end_s[first] <= made.ttft_s[first]).all()
    assert split or not served.any()
    shown = int((made.output_seen - 1).clip(0).sum())
    assert made.gaps_counts.sum() >= shown
    sent_once = made.gpu_requests.sum() == (made.gpu >= 0).sum()
    anew = isinstance(cluster["engine"], Continuous) or not sent_once or bool(made.losses.any())
    if not anew:  # else tokens may come again, and so do their gaps; Continuous begins anew whom it retracts
        assert made.gaps_counts.sum() == shown
        assert made.gaps_sum_s.sum() == pytest.approx(np.nansum(made.latency_s - made.ttft_s))
    found = made.hit_tokens + made.host_tokens + made.disk_tokens + made.shared_tokens + made.peer_tokens
    assert (found + made.prefilled_tokens >= workload.prompt_tokens)[finished].all()


def test_much_happens() -> None:
    """Else nothing would be shown by what holds."""
    numbers = (*range(700), 903)  # which ends while KV is held
    states, kinds = (np.sum(rows, axis=0) for rows in zip(*map(happens, numbers), strict=True))
    missing = {state.name for state in State if not states[state]}
    assert missing <= {"FAILED"}, missing  # which is rare: tests/fast/test_peers.py has it
    assert (kinds > 10).all(), kinds
