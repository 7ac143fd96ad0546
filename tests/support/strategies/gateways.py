"""Random gateways, and streams whose requests have clients, priorities and promises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from prebleexp.gateway.base import BUDGETS, ORDERS, Gateway
from prebleexp.sim.types import Workload

GATEWAYS = st.builds(
    Gateway,
    order=st.sampled_from(ORDERS),
    client=st.sampled_from(["client", "client", "prefix_group"]),
    input_weight=st.sampled_from([1.0, 0.0, 0.3]),
    cached_weight=st.sampled_from([None, 0.0, 0.2]),
    output_weight=st.sampled_from([2.0, 1.0, 0.7]),
    quantum=st.sampled_from([7.5, 60.0, 10_000.0]),
    max_in_flight=st.sampled_from([None, 1, 1, 2, 3, 8]),
    limit=st.sampled_from([None, None, 1, 4, 12]),
    queue_limit=st.sampled_from([None, None, 1, 3, 8]),
    ttl_queue_s=st.sampled_from([None, None, 0.01, 0.25, 1.0, 10.0]),
    bucket_tokens=st.sampled_from([None, None, 60, 300]),
    refill_tokens_s=st.sampled_from([7.3, 100.0]),
    shed=st.sampled_from([False, True]),
    saturated_queue=st.sampled_from([1.0, 2.0, 5.0]),
    saturated_kv=st.sampled_from([0.1, 0.8]),
    slo_ttft_s=st.sampled_from([None, None, 0.02, 0.1, 1.0]),
    retries=st.sampled_from([0, 0, 1, 2, 5]),
    retry_initial_s=st.sampled_from([0.01, 0.5]),
    retry_max_s=st.sampled_from([0.5, 2.0]),
    retry_budget=st.sampled_from(BUDGETS),
    budget_ratio=st.sampled_from([0.1, 0.2, 0.5]),
    budget_least=st.sampled_from([0.0, 1.0, 3.0]),
    budget_window_s=st.sampled_from([0.5, 3.0]),
    budget_tokens=st.sampled_from([2.0, 4.5]),
)


@st.composite
def of_clients(draw: st.DrawFn, streams: st.SearchStrategy[Workload]) -> Workload:
    workload = draw(streams)
    n = len(workload)
    drawn = draw(
        st.lists(
            st.tuples(st.integers(-1, 3), st.integers(-1, 2), st.sampled_from([np.nan, 0.1, 0.5, 2.0])),
            min_size=n,
            max_size=n,
        )
    )
    client, priority, slo = (np.array(column) for column in zip(*drawn, strict=True))
    return replace(workload, client=client, priority=priority, slo_ttft_s=slo)
