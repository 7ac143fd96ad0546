"""What holds of every run in which GPUs are lost."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.types import Outcome, State, Workload


def accounted(workload: Workload, made: Outcome, requeues: bool = False) -> None:
    """No request vanishes, none is served twice unless it is lost or given back, nothing is before its cause."""
    finished, routed = made.state == State.FINISHED, made.gpu >= 0
    lost = np.isin(made.state, (State.LOST, State.FAILED))
    assert (np.isfinite(made.finish_s) == finished).all()
    target = np.minimum(workload.output_tokens, workload.max_new_tokens)
    assert (made.output_seen <= target).all()
    assert (made.losses[lost] > 0).all()
    assert routed[finished | lost].all()
    assert routed.sum() <= made.gpu_requests.sum()
    assert requeues or made.gpu_requests.sum() <= routed.sum() + made.losses.sum()
    shown = np.isfinite(made.ttft_s)
    assert (made.ttft_s[shown] >= 0).all()
    assert (made.latency_s[finished] >= made.ttft_s[finished]).all()
    for seconds in (made.gpu_down_s, made.gpu_on_s):  # sums of parts of the run
        assert ((seconds >= 0) & (seconds <= made.end_s * (1 + 1e-9))).all()
