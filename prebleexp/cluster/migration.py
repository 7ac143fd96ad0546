"""When requests are moved from one GPU to another (spec: clusters.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass

from prebleexp.checks import integer, is_number, one_of, positive, require
from prebleexp.sources import Part

CHOOSES = ("shortest_running", "first_waiting", "first_waiting_or_shortest_running")
"""in the order of `prebleexp.sim.moves`"""


@dataclass(frozen=True)
class Migration(Part):
    """As Llumnix does it: every while those GPUs whose freeness is below a threshold are paired with those above it,
    the least free with the most free, and of each pair a request is moved. Freeness is the blocks of KV memory that are
    free, less those that waiting requests lack, for each request that runs or waits. The defaults are Llumnix's.

    Raises InvalidInput for other values.
    """

    interval_ms: float | None = None
    """between two times at which GPUs are paired; null: no requests are moved"""
    below_freeness: float = 3.0
    """blocks a request, of a GPU that is to have less to do"""
    chooses: str = "shortest_running"
    """which request is moved: the shortest that runs, the first that waits, or that one where there is one"""
    last_stage_blocks: int = 16
    """a request stops for the last stage when no more blocks of it are left to be copied"""
    max_stages: int = 3
    """if that is not the last of these stages at the latest, it stays where it is"""

    def __post_init__(self) -> None:
        if self.interval_ms is not None:
            positive("cluster.migration.interval_ms", self.interval_ms, "null or a number of milliseconds > 0")
        valid = is_number(self.below_freeness)
        require(valid, "cluster.migration.below_freeness", self.below_freeness, "a number of blocks")
        one_of("cluster.migration.chooses", self.chooses, CHOOSES)
        integer("cluster.migration.last_stage_blocks", self.last_stage_blocks, 1, 2**31 - 1)
        integer("cluster.migration.max_stages", self.max_stages, 1, 2**31 - 1)
