"""The names of Splitwise's routers: by what rule each chooses, and over which link KV goes."""

from __future__ import annotations

TOKENS_ALONE, QUEUE_ALONE, IN_TURN, BY_QUEUE, BY_TOKENS, BOTH = range(6)
_INFINIBAND, _ETHERNET = 200.0 * 2**30, 12.5 * 2**30
_OVERLAPPED = 10 * _INFINIBAND
"""bytes a second; where it goes beside the prompt's computation, as if the link were ten times as fast"""

SCHEDULERS = {
    "token_jsq": (TOKENS_ALONE, 0.0),
    "jsq": (QUEUE_ALONE, 0.0),
    "kv_round_robin": (IN_TURN, _INFINIBAND),
    "kv_round_robin_ethernet": (IN_TURN, _ETHERNET),
    "kv_jsq": (BY_QUEUE, _INFINIBAND),
    "kv_token_jsq": (BY_TOKENS, _OVERLAPPED),
    "overlap_kv_jsq": (BY_QUEUE, _OVERLAPPED),
    "overlap_kv_token_jsq": (BY_TOKENS, _OVERLAPPED),
    "mixed_pool": (BOTH, _INFINIBAND),
}
"""(rule, bytes a second)"""
ON_ONE_MACHINE = (TOKENS_ALONE, QUEUE_ALONE)
"""rules that need no pools"""
