"""What an engine is: how a GPU batches the requests that are sent to it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from prebleexp.sim.types import Setup
from prebleexp.sources import Part


@dataclass(frozen=True)
class Engine(Part):
    """Subclass it and name the class in conf/engine/<name>.yaml.

    `compiles` names a module with functions that numba can compile; `self` is what `numbers` gives, `mine`
    what `start` returned, `world` a `prebleexp.sim.records.World`:

    - `submit(self, mine, world, request, now)`: a request has reached GPU `world.seen.requests[request].gpu`
    - `begin(self, mine, world, g, now) -> float`: choose what GPU g computes next; returns the seconds that it takes,
      or a negative number if there is nothing to do. Nobody hears of what it will bring before it has ended
    - `end(self, mine, world, g, now)`: that step is over. Tokens, finishes and what the cache keeps are told by
      `prebleexp.engines.serving`
    - `settle(self, mine, world, request, now)`: the run is over; what has an unfinished request reported?
    - `lacks_room(self, mine, world, g, now) -> int`: 1 if `with_more_room` must be called before anything else happens
    """

    compiles: ClassVar[str]

    def kernels(self) -> Any:
        """That module. Not imported before it is needed: it imports numba."""
        return importlib.import_module(self.compiles)

    def numbers(self) -> Any:
        """A NamedTuple of what compiled code reads of the fields."""
        raise NotImplementedError

    def start(self, setup: Setup) -> Any:
        """A NamedTuple of arrays: what the engines of all GPUs remember."""
        raise NotImplementedError

    def with_more_room(self, mine: Any, world: Any, g: int) -> Any:
        """The same with more room for GPU g."""
        raise NotImplementedError

    def refuses(self, setup: Setup) -> npt.NDArray[np.bool_]:
        """(n,) which requests can never be served, and are refused when they arrive."""
        return np.zeros(len(setup.workload), np.bool_)

    def own_loop(self) -> Any:
        """The function that serves a workload instead of the general loop, or None (see `engines.released`)."""
        return None
