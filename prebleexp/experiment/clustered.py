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
    if cluster.has_tiers:
        tiers = {name: getattr(cluster, name) for name in TIERS}
        stored = {"offload_prompt_only": cluster.offload_prompt_only} if cluster.stores else {}
        return {"groups": groups, **{name: of(one) for name, one in tiers.items() if one.there}, **stored}
    if cluster.migrates:
        link = {name: one for name, one in of(cluster.link).items() if name != "send"}  # of prompts
        return {"groups": groups, "link": link, "migration": of(cluster.migration)}
    if not cluster.has_roles:
        return groups
    second = cluster.decode_policy
    policy: dict[str, object] = {} if second is None else {"decode_policy": of(second)}
    link = {"link": of(cluster.link), "protocol": cluster.protocol, "decider": cluster.decider}
    asks = cluster.decider == "uncached_tokens"
    policy |= {"decider_tokens": cluster.decider_tokens} if asks else {}
    return {"groups": groups, **link, **policy}
