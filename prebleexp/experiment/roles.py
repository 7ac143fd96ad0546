"""What clusters go with whose groups compute prompts or make outputs alone."""

from __future__ import annotations

from dataclasses import replace

from prebleexp.checks import require
from prebleexp.cluster.groups import Cluster
from prebleexp.engines.base import Engine
from prebleexp.errors import InvalidInput


def completed(cluster: Cluster, engine: Engine, name: str) -> Cluster:
    """With the protocol of the engine, which is called so, and what goes with it, where nothing is said. Raises
    InvalidInput for what the engine has not."""
    known = engine.protocols
    if not known:
        others = "take engine=vllm or engine=sglang, or groups without roles"
        raise InvalidInput(f"engine={name} takes no groups with roles; {others}")
    protocol = cluster.protocol or known[0]
    require(protocol in known, "cluster.protocol", protocol, f"{' or '.join(known)} with engine={name}")
    send = cluster.link.send or ("chunks" if protocol == "reserve_first" else "end")
    if protocol != "reserve_first":
        valid = f"end with cluster.protocol={protocol}, which asks for KV when the prompt is computed"
        require(send == "end", "cluster.link.send", send, valid)
    for group in cluster.groups:
        own = group.engine or engine
        if type(own) is not type(engine):
            theirs = type(own).__name__
            raise InvalidInput(f"cluster.groups: engine={theirs} is not valid; it must be {name}, as all have")
        sizes = [getattr(one, "block_size", None) for one in (own, engine)]
        require(sizes[0] == sizes[1], "cluster.groups: engine.block_size", sizes[0], f"{sizes[1]}, as all have")
        own.check_roles(protocol)
    return replace(cluster, protocol=protocol, link=replace(cluster.link, send=send))
