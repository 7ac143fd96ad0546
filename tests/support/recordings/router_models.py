"""The policies that recordings of routers are of, and when what was drawn counts as unlikely."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prebleexp.policies.aibrix.least_request import AIBrixLeastRequest
from prebleexp.policies.aibrix.prefix_cache import PrefixCache
from prebleexp.policies.base import Policy
from prebleexp.policies.kubeai.chwbl import KubeAICHWBL
from prebleexp.policies.kubeai.least_load import KubeAILeastLoad
from prebleexp.policies.production_stack.prefixaware import PrefixAware
from prebleexp.policies.production_stack.session import ProductionStackSession
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.policies.sglang.cache_aware import SGLangCacheAware
from prebleexp.policies.sglang.consistent_hashing import SGLangConsistentHashing
from prebleexp.policies.sglang.manual import SGLangManual
from prebleexp.policies.sglang.power_of_two import SGLangPowerOfTwo
from prebleexp.policies.vllm.cache_aware import VLLMCacheAware
from prebleexp.policies.vllm.consistent_hash import VLLMConsistentHash
from prebleexp.policies.vllm.dplb import VLLMDataParallel
from prebleexp.policies.vllm.power_of_two import VLLMPowerOfTwo
from prebleexp.policies.vllm.sticky_least_loaded import VLLMStickyLeastLoaded

MODELS: dict[str, Callable[[dict[str, Any]], Policy]] = {
    "round_robin": lambda settings: RoundRobin(),
    "cache_aware": lambda settings: SGLangCacheAware(**settings, characters_per_token=1),
    "cache_aware_tokens": lambda settings: VLLMCacheAware(**settings),
    "power_of_two": lambda settings: SGLangPowerOfTwo() if settings["reported"] else VLLMPowerOfTwo(),
    "manual": lambda settings: SGLangManual(**settings),
    "consistent_hashing": lambda settings: SGLangConsistentHashing(**settings),
    "consistent_hash_furc": lambda settings: VLLMConsistentHash(**settings),
    "sticky_least_loaded": lambda settings: VLLMStickyLeastLoaded(**settings),
    "vllm_dplb_old": lambda settings: VLLMDataParallel("old", **settings),
    "vllm_dplb_new": lambda settings: VLLMDataParallel("new", **settings),
    "session": lambda settings: ProductionStackSession(settings["window_s"]),
    "bounded_load_ring": lambda settings: chwbl(**settings),
    "least_load": lambda settings: AIBrixLeastRequest(**settings),
    "kubeai_least_load": lambda settings: KubeAILeastLoad(**settings),
    "prefixaware": lambda settings: PrefixAware(
        characters_per_token=1,
        prefix_min_match_length=settings["prefix_min_match_length"],
        request_stats_window=settings.get("window_s", 60.0),
    ),
    "aibrix_prefix_cache": lambda settings: PrefixCache(
        characters_per_token=1,
        imbalance_abs_count=settings["imbalance"],
        standard_deviation_factor=settings["deviations"],
    ),
}
"""how to make the policy that a recording is of, from `settings_of` the recording"""


def chwbl(kind: type[KubeAICHWBL] = KubeAICHWBL, *, prefix_chars: int, **settings: Any) -> KubeAICHWBL:
    return kind(prefix_char_length=prefix_chars, characters_per_token=1, **settings)


BYTES = ("aibrix_prefix_cache",)
"""models that count the bytes of a text instead of its characters"""
UNLIKELY = 4.5
"""standard deviations"""


def settings_of(recording: dict[str, Any]) -> dict[str, Any]:
    """The router's own, and how often it evicts where it did."""
    period = {key: recording[key] for key in ("eviction_interval_secs",) if key in recording}
    return {**recording["settings"], **period}


def model_of(recording: dict[str, Any]) -> str:
    """The reference has one for both routers to the least load, and leaves their draws alone."""
    router = recording["router"]
    return "kubeai_least_load" if "kubeai" in router["project"] and router["model"] == "least_load" else router["model"]
