"""What KV goes over where prompts and outputs have GPUs of their own (spec: clusters.md, section 2)."""

from __future__ import annotations

from dataclasses import dataclass

from prebleexp.checks import is_number, one_of, positive, require
from prebleexp.sources import Part

SHARING = ("infinite", "fifo", "fair")
"""in the order of `prebleexp.sim.links`"""
SEND = ("end", "layers", "chunks")
"""in the order of `prebleexp.sim.pools`"""


@dataclass(frozen=True)
class Link(Part):
    """Each GPU, or group of GPUs that serves one copy of the model, sends at one rate and receives at the same. The
    defaults are what two H100 nodes were measured to reach with one 400 Gb/s adapter a GPU (`hardware.transfers`).

    Raises InvalidInput for other values.
    """

    sharing: str = "fair"
    """fair: max-min over all that send and receive; fifo: one transfer at a time, in order of request; infinite: each
    as if it were alone"""
    gb_s: float = 36.0
    """that a GPU sends, and receives, at most"""
    latency_us: float = 20.0
    """of each transfer, before its bytes move, or, if it is sent in parts, behind them"""
    send: str | None = None
    """with cluster.protocol=reserve_first, when a prompt's KV is sent. end: when all of it is computed; layers: each
    layer of a step's tokens as soon as that is; chunks: each chunk, behind its step. null: chunks; with other
    protocols end, since KV is not asked for before"""

    def __post_init__(self) -> None:
        one_of("cluster.link.sharing", self.sharing, SHARING)
        if self.send is not None:
            one_of("cluster.link.send", self.send, SEND)
        positive("cluster.link.gb_s", self.gb_s, "a number of GB/s > 0")
        valid = is_number(self.latency_us) and self.latency_us >= 0
        require(valid, "cluster.link.latency_us", self.latency_us, "a number of microseconds >= 0")
