"""What a key knows of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prebleexp.cluster.groups import TIERS, Cluster
from prebleexp.experiment import counting


def identity(cluster: Cluster, of: Callable[[Any], dict[str, object]]) -> object:
    """Groups, or with roles, tiers or migration a mapping of all there is. `of` says what stands for a spec."""
    groups: list[dict[str, object]] = [
        {"gpus": one.gpus, "hardware": of(one.hardware)}
        | ({} if one.role is None else {"role": one.role})
        | ({} if one.engine is None else {"engine": of(one.engine)})
        | counting.apart(one.gpus, one.replicas)
        for one in cluster.groups
    ]
    found: dict[str, object] = {}
    if cluster.has_tiers:
        tiers = {name: getattr(cluster, name) for name in TIERS}
        found |= {name: of(one) for name, one in tiers.items() if one.there}
        found |= {"offload_prompt_only": cluster.offload_prompt_only} if cluster.stores else {}
    if cluster.has_roles:
        found |= {"link": of(cluster.link), "protocol": cluster.protocol, "decider": cluster.decider}
        found |= {} if cluster.decode_policy is None else {"decode_policy": of(cluster.decode_policy)}
        found |= {"decider_tokens": cluster.decider_tokens} if cluster.decider == "uncached_tokens" else {}
    if cluster.migrates:
        link = {name: one for name, one in of(cluster.link).items() if name != "send"}  # of prompts
        found |= {"link": found.get("link", link), "migration": of(cluster.migration)}
    return {"groups": groups, **found} if found else groups
