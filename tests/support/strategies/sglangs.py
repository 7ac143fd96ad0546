"""Random schedulers of `engine=sglang`."""

from __future__ import annotations

from hypothesis import strategies as st

from prebleexp.engines.sglang.engine import SGLang

SGLANGS = st.builds(
    SGLang,
    chunked_prefill_size=st.sampled_from([16, 64, 200]),
    max_running_requests=st.sampled_from([3, 64]),
    schedule_policy=st.sampled_from(["fcfs", "lpm"]),
    disable_overlap_schedule=st.booleans(),
    skip_finishing_decode=st.booleans(),
    num_reserved_decode_tokens=st.sampled_from([1, 20, 100]),
)
