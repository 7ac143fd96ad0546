"""What caches, routers and whatever else remembers something hold when a run begins: what requests left that were
served before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prebleexp.sim.types import Workload
from prebleexp.sim.warmth import Before
from prebleexp.sources import Part


@dataclass(frozen=True)
class Warm(Part):
    """Nothing is served before a run: caches are empty, and routers know of nothing.

    Subclass it as a frozen dataclass that gives `before`; conf/warm/<name>.yaml names the class. One that reads files
    has a method `identity()` too, as a workload has.
    """

    changes_nothing: ClassVar[bool] = True

    @property
    def takes_s(self) -> float:
        """Seconds of the stream that are not the run's own: it is drawn so much longer."""
        return 0.0

    def rest(self, stream: Workload) -> Workload:
        """Of a stream what the run serves."""
        return stream

    def before(self, stream: Workload) -> Before:
        """What is served before it. Raises InvalidInput, naming the file and the row, for what it cannot be."""
        raise NotImplementedError


COLD = Warm()
