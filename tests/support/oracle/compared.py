"""The core against the second simulator: the same bytes, and policies that see and hear the same.""" ""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis.errors import UnsatisfiedAssumption

from prebleexp.errors import NeverEnds
from prebleexp.lengths.known import Max
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.ends import Ends
from tests.support.oracle import core
from tests.support.outcomes import assert_of_oracle
from tests.support.policies.looker import HEARD
from tests.support.policies.watcher import (
    FINISHED,
    FIRST_TOKEN,
    KEPT,
    KIND,
    NOW,
    OF_GPU,
    REQUEST,
    ROUTE,
    ROWS,
    SEEN,
    SENT,
    STORED,
    TOKENS,
)

PAUSES = 100_000
"""of a run: where an autoscaler looks often, and requests wait for long, some thousand"""


def agree(workload: Workload, cluster: dict[str, Any], by: Callable[..., Outcome] = core.simulate) -> Outcome:
    """And whatever the core's policy heard and saw, the oracle's did."""
    KEPT.clear()
    made = ending(workload, cluster, by)
    heard = [one.rows[: one.used[0]] for one in KEPT]
    KEPT.clear()
    expected = by(workload, **cluster)
    for ours, theirs in zip(heard, [one.rows[: one.used[0]] for one in KEPT], strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg="what the policy heard", strict=True)
        once = made.gpu_requests.sum() == (made.gpu >= 0).sum()  # nobody was given back
        if once and not made.losses.any():  # who is lost is heard of more than once
            causal(workload, made, ours)
    assert_of_oracle(made, expected)
    return made


def ending(workload: Workload, given: dict[str, Any], oracle: Callable[..., Outcome]) -> Outcome:
    """What becomes of it. Of what never ends the oracle says so at the same time; there is nothing else to compare."""
    try:
        return simulate(workload, lengths=Max(), on_pause=Ends("core", PAUSES), **given)
    except NeverEnds as error:
        said = str(error)
    with pytest.raises(NeverEnds) as expected:
        oracle(workload, **given)
    assert f" to {expected.value} s " in said
    raise UnsatisfiedAssumption


def causal(workload: Workload, made: Outcome, rows: Any) -> None:
    """Nothing is heard or seen before it happened, and nothing that can be told is missing."""
    kind, request, now = rows[:, KIND].astype(int), rows[:, REQUEST].astype(int), rows[:, NOW]
    since, gave_up = now - made.due_s[request], (made.state == State.CANCELLED) & (made.gpu >= 0)
    for notice, when, happened in (
        (FIRST_TOKEN, made.ttft_s[request], since),
        (FINISHED, made.finish_s[request], now),
    ):
        told = kind == notice
        served = told & ~gave_up[request]
        assert (happened[served] == when[served]).all()
        assert len(set(request[told])) == told.sum()
    stored = kind == STORED
    assert ((since[stored] >= made.ttft_s[request[stored]]) | gave_up[request[stored]]).all()
    came = {FIRST_TOKEN: np.isfinite(made.ttft_s), FINISHED: (made.state == State.FINISHED) | gave_up}
    if len(rows) < ROWS:
        for notice, had in came.items():
            assert set(request[kind == notice]) == set(np.flatnonzero(had))
        length = workload.prompt_tokens + made.output_seen - 1
        whole = stored & (now == made.finish_s[request]) & (rows[:, TOKENS] == length[request])
        assert set(request[whole]) == set(np.flatnonzero(made.state == State.FINISHED))
    ends = np.where(kind == FINISHED, made.gpu[request], -1)
    for g in range(len(made.gpu_requests)):
        sent, outstanding = rows[:, SENT + OF_GPU * g + 2], rows[:, SENT + OF_GPU * g]
        assert (sent - outstanding == np.cumsum(ends == g)).all()
        here = np.flatnonzero((made.gpu == g) & np.isfinite(made.ttft_s))
        begun = (now[:, None] - made.due_s[here] >= made.ttft_s[here]).sum(axis=1)
        assert (rows[:, SEEN + OF_GPU * g + 1] <= begun).all()
    assert (now[kind == ROUTE] >= made.due_s[request[kind == ROUTE]]).all()


def same(workload: Workload, given: dict[str, Any], oracle: Callable[..., Outcome]) -> Outcome:
    """What becomes of it, which the oracle says too, and whatever policies hear."""
    HEARD.clear()
    made = ending(workload, given, oracle)
    heard = list(HEARD)
    HEARD.clear()
    expected = oracle(workload, **given)
    assert_of_oracle(made, expected)
    for ours, theirs in zip(heard, HEARD[-len(heard) :] if heard else [], strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg="what a policy heard")
    return made
