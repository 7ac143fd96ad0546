"""What is shown of a worker to whoever watches: what it does, and its last step."""

from __future__ import annotations

from prebleexp.engines.dynamo_replay.records import Sim
from prebleexp.sim.compiled import compiled


@compiled
def show(sim: Sim, w: int) -> None:
    worker, live = sim.workers[w], sim.live[w]
    live.running, live.kv_free = worker.running, live.kv_tokens - worker.used * sim.rules.block_size


@compiled
def over(sim: Sim, w: int) -> None:
    """Show that a worker's step is over."""
    worker, server = sim.workers[w], sim.servers[w]
    server.begun_s, server.ends_s = worker.begun_ms / 1e3, sim.control.now / 1e3
    sim.totals[w].decode_steps += w >= sim.rules.prefills
    worker.busy = 0
