"""GPUs with roles whose number changes, or that give back what waits: examples to check on paper.

A token takes 0.1 ms, computed or sent, so a prompt of 1,000 tokens 100 ms, and the 63 blocks of its KV 100.8 ms.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from prebleexp.autoscalers.by_role import ByRole
from prebleexp.autoscalers.hpa import HPA
from prebleexp.errors import InvalidInput
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.sim.history import Decision
from tests.support.by_hand.pools import SYNCHRONOUS, serve, split
from tests.support.by_hand.streams import own, stream

ONE_AT_A_TIME = replace(SYNCHRONOUS, max_num_seqs=1)


def test_as_many_gpus_for_outputs_as_are_wanted() -> None:
    """One request of a GPU is wanted. At 250 ms both wait for KV at GPU 1, and GPU 2 is started; the third comes there
    at 360 ms, and is through by 500 ms, when two for two GPUs are as it should be. The GPU for prompts stays."""
    rule = ByRole(decode=HPA(interval_s=0.25, target=1.0, window_s=0.0))
    three = stream([own(i, 1000) for i in range(3)], [0.0, 0.0, 0.26], [1000, 1000, 100])
    made = serve(three, split(), (1, 3), autoscaler=rule)
    assert made.decode_gpu.tolist() == [1, 1, 2]
    assert made.ttft_s * 1e3 == pytest.approx([301, 301, 200.9])
    assert made.latency_s * 1e3 == pytest.approx([500.8, 500.8, 210.8])
    assert made.gpu_on_s * 1e3 == pytest.approx([500.8, 500.8, 250.8, 0])
    assert made.history.decisions == (Decision(0.25, 2, 1, 0, 0, 1, 0), Decision(0.5, 2, 2, 0, 0, 0, 0))


def test_one_rule_counts_each_role_by_itself() -> None:
    """At 50 ms four prompts are at one GPU, and nobody waits for an output: of the former there is one more. At 400 ms
    all are computed, and it goes at 450."""
    four = stream([own(i, 1000) for i in range(4)], [0.0] * 4, [1] * 4)
    made = serve(four, split(), (3, 3), autoscaler=HPA(interval_s=0.05, target=1.0, window_s=0.0, burst=1))
    assert made.history.decisions[0] == Decision(0.05, 2 + 1, 1 + 1, 0, 0, 1, 0)
    assert made.gpu.tolist() == [0] * 4
    assert made.gpu_on_s[1] * 1e3 == pytest.approx(400)


def test_who_waits_for_kv_on_a_drained_gpu_goes_to_another_and_its_prompt_stays_computed() -> None:
    """The second prompt is computed at 300 ms, when GPU 2 is drained, and waits at GPU 1, where the first runs until
    500.8. GPU 2 is back at 320 ms; GPU 1 is drained at 350, and gives it back: it is read there until 450.8."""
    two = stream([own(0, 1000), own(1, 1000)], [0.0, 0.2], [3000, 1])
    happen = (Event(0.05, 2, "drain"), Event(0.32, 2, "up"), Event(0.35, 1, "drain"))
    for drain, gpu, first_ms, sent in (("requeue", 2, 250.9, [2, 2, 1]), ("finish", 1, 401.7, [2, 2, 0])):
        faults = Timeline(happen=happen, drain=drain)
        made = serve(two, split(), (1, 2), engine=ONE_AT_A_TIME, faults=faults)
        assert made.decode_gpu.tolist() == [1, gpu]
        assert made.ttft_s[1] * 1e3 == pytest.approx(first_ms)
        assert made.latency_s[0] * 1e3 == pytest.approx(500.8)
        assert made.gpu_requests.tolist() == sent
        assert made.prefilled_tokens.tolist() == [1000, 1000]
        assert made.losses.tolist() == [0, 0]


def test_a_prompt_that_waits_on_a_drained_gpu_is_computed_on_another() -> None:
    """The third waits behind the first until GPU 0 is drained at 50 ms, and behind the second from then on."""
    three = stream([own(i, 1000) for i in range(3)], [0.0] * 3, [1] * 3)
    faults = Timeline(happen=(Event(0.05, 0, "drain"),), drain="requeue")
    made = serve(three, split(), (2, 1), engine=ONE_AT_A_TIME, faults=faults)
    assert made.gpu.tolist() == [0, 1, 1]
    assert made.prefill_end_s * 1e3 == pytest.approx([100, 100, 200])


def test_rules_by_role_that_cannot_be() -> None:
    rules = ByRole(decode=HPA(), prefill=HPA(least=2))
    assert (rules.of_role("decode"), rules.of_role("both")) == (HPA(), None)
    with pytest.raises(InvalidInput, match=r"interval_s=2\.0, 15\.0 is not valid; it must be the same for all roles"):
        ByRole(decode=HPA(), prefill=HPA(interval_s=2.0))
    with pytest.raises(InvalidInput, match="by_role is not valid, since GPUs have no roles; take autoscaler=hpa"):
        rules.check(4)
    with pytest.raises(InvalidInput, match="wants 2 replicas for prefill at the beginning, and there can be 1"):
        rules.check(1, "prefill")
