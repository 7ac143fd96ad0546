"""A measurement as `vllm bench serve` would have seen it: times count from when requests were sent."""

from __future__ import annotations

import numpy as np

from prebleexp.live.measuring.measured import Measured
from prebleexp.sim.types import State
from prebleexp.vllm_bench.served import Served


def as_client(of: Measured) -> Served:
    """What `vllm bench serve` would have seen of the requests that were sent, so that its metrics can be computed;
    seconds."""
    sent = ~np.isnan(of.sent.sent_s)
    ok = (of.sent.state == State.FINISHED)[sent]
    start_s = of.sent.sent_s[sent]
    rows = np.flatnonzero(sent).tolist()
    nothing = np.zeros(0)
    ends_s = of.sent.last_s[sent]
    return Served(
        input_lens=np.where(of.sent.prompt >= 0, of.sent.prompt, of.run.workload.prompt_tokens)[sent].astype(np.int32),
        output_lens=np.where(ok, of.sent.output[sent], 0).astype(np.int64),
        start_s=start_s,
        waited_s=np.zeros(len(start_s)),
        ttft_s=np.where(ok, of.sent.first_s[sent] - start_s, 0.0),
        latency_s=np.where(ok, ends_s - start_s, 0.0),
        gaps_s=[of.sent.gaps_s[one] if fine else nothing for one, fine in zip(rows, ok.tolist(), strict=True)],
        ok=ok,
        errors=["" if fine else of.sent.error[one] or "cancelled" for one, fine in zip(rows, ok.tolist(), strict=True)],
        begun_s=0.0,
        duration_s=float(np.nanmax(np.where(ok, ends_s, np.nan), initial=0.0)),
        spread=0,
    )
