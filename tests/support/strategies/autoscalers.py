"""Random autoscalers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from prebleexp.autoscalers.base import Rule
from prebleexp.autoscalers.dynamo_load import DynamoLoad
from prebleexp.autoscalers.hpa import HPA
from prebleexp.autoscalers.keda import KEDA
from prebleexp.autoscalers.knative import Knative

LOADS = st.sampled_from([("kv_use", 0.3), ("in_flight", 2.0), ("queued", 2.0)])


@st.composite
def autoscalers(draw: st.DrawFn, gpus: int) -> Rule:
    given: dict[str, Any] = {"interval_s": draw(st.sampled_from([0.05, 0.25, 1.0]) | st.floats(0.02, 1))}
    rule = draw(st.sampled_from([HPA, KEDA, Knative, DynamoLoad]))
    given["least"] = draw(st.integers(0 if rule.zero else 1, gpus))
    given["initial"] = draw(st.sampled_from([None]) | st.integers(given["least"], gpus))
    if rule is DynamoLoad:
        return DynamoLoad(queued_up=1e-8, queued_down=1e-9, kv_up=0.5, kv_down=0.2, **given)
    if rule is Knative:
        threshold = draw(st.sampled_from([0.5, 1.5, 2.0]))
        return Knative(target=2.0, stable_s=0.4, panic_s=draw(st.sampled_from([0.1, 0.4])), panic_threshold=threshold,
                       **given)  # fmt: skip
    given |= dict(zip(("load", "target"), draw(LOADS), strict=True))
    given |= {"window_s": draw(st.sampled_from([0.0, 0.3])), "burst": draw(st.integers(1, 3))}
    cools = {"cooldown_s": draw(st.sampled_from([0.0, 0.2, 2.0]))} if rule is KEDA else {}
    return rule(**given, **cools)
