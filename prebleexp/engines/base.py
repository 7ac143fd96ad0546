"""What an engine is: how a GPU batches the requests that are sent to it."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import ONE_TABLE, Floats, Layers, Longs, Setup, Steps, Tables, Workload
from prebleexp.sources import Part

if TYPE_CHECKING:
    from prebleexp.sim.comer import Coming


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
    - `decode(self, mine, world, g, now) -> float`, never needed: `end` and `begin` in one call, where nothing but
      tokens comes of the step in hand, no router is to hear of its end, and the next is like it; returns the next one's
      seconds. Negative: it is not so, and nothing is done
    - `cancel(self, mine, world, request, now) -> int`, needed only where requests give up: a request without its first
      token, which `submit` was told of, leaves its queue, or what is part-way; what is computed of it stays cached.
      0: it is in the step in hand. Then it is asked again when that is over, before `end`
    - `pull(self, mine, world, request, now) -> int`, `arrive(self, mine, world, request, now)` and
      `let_go(self, mine, world, leg, now)`, needed only where prompts have GPUs of their own: a waiting request's KV is
      asked for by `prebleexp.sim.pulling.read` (1), or there is no room for it (0), called by the engine; it is there;
      and, where the prompt was computed, it was read, so that nobody needs it there any more: should the request
      be lost since, it comes there as if for the first time
    - `push(self, mine, world, request, now) -> int`, in place of `pull` with protocol push_at_end: a prompt is
      computed, and its first token is known; called by the engine, now and whenever it has asked to be told of the
      request again. It says 1
    - `reserve(self, mine, world, g, now)`, with reserve_first: who gets room before a step where outputs are made,
      which `prebleexp.sim.pulling.reserve` is told; called by the engine, who tells `computes` and `computed` there
      what is computed of prompts. If GPUs may be lost, it needs `cancel`
    - `fetch(self, mine, world, request, now) -> int`, `offload(self, mine, world, g, now)`,
      `landed(self, mine, world, subject, now)`, `heard(self, mine, world, subject, now)` and
      `part(self, mine, world, request, now)`, needed only where tiers stand behind the caches: what of a waiting
      request is loaded; what of a step is stored, and what may be sent of it, both called by the engine; one of these
      transfers is over; the GPU hears of those that are, and a request is about to give its blocks back, again called
      by the engine. Where GPUs lend each other
      what they have, also `has`, `lend`, `take_back` and `do_without`
    - `fail(self, mine, world, request, now)`, called by the engine, where a GPU may be lost whose KV a request waits
      for: it ends with an error
    - `move(self, mine, world, g, now)`, `copied(self, mine, world, g, now)`, `stop(self, mine, world, g, now)` and
      `abandon(self, mine, world, g, now)`, needed only where requests are moved: begin to move one from GPU g to
      `world.moves.gpus[g].target`, if there is one; a stage of it has come; it leaves the batch, called by the engine;
      one of the two GPUs is lost. The GPU to which it goes has `spares`, `set_aside`, `set_free` and `take_in`. See
      `prebleexp.sim.moves`
    - `lacks_room(self, mine, world, g, now) -> int`: 1 if `with_more_room` must be called before anything else happens
    """

    compiles: ClassVar[str]
    brings: ClassVar[Mapping[str, str]] = {}
    """groups of a configuration that it has its own of, such as policy, and the default of each: what stands there does
    not matter, and nobody may choose another"""
    project: ClassVar[str] = ""
    """the serving engine that it is, such as vllm, by which hardware chooses what a step costs beside the GPU's time;
    empty: none of those"""

    gpus_per_replica: ClassVar[int] = 1
    """GPUs of one of its machines, if it brings the hardware"""

    has_frontend: ClassVar[bool] = True
    """whether requests pass a frontend before its queue, and take the time that hardware has for that"""

    loses: ClassVar[bool] = False
    """whether it has `lose` and `give_back`, without which its GPUs can have no faults"""

    resumes: ClassVar[bool] = False
    """whether requests that it lost can go on behind the tokens that were shown, which are as of their prompt then"""

    protocols: ClassVar[tuple[str, ...]] = ()
    """how KV may go from GPUs for prompts to those for outputs, the usual one first: pull, reserve_first, push_at_end.
    It has `arrive`, `let_go`, and `pull`, `reserve` or `push`"""

    fetches: ClassVar[bool] = False
    """whether it has `fetch`, `offload` and so on, without which no tiers stand behind its caches"""

    adapts: ClassVar[bool] = False
    """whether it computes requests with LoRA adapters"""

    parallel: ClassVar[bool] = False
    """whether its GPUs can be ranks that step together, or pipelines of several stages"""

    moves: ClassVar[bool] = False
    """whether it has `move`, `copied`, `stop` and `abandon`, without which no requests are moved between its GPUs"""

    @property
    def draws(self) -> bool:
        """Whether it draws anything, so that another seed can make another run."""
        return False

    @property
    def own(self) -> Mapping[str, str]:
        """What it is called that it brings, by group."""
        return {}

    @property
    def support(self) -> str:
        """How far its step times can be believed, in a line, if it brings the hardware."""
        return ""

    @property
    def host_step_s(self) -> float:
        """Seconds of the host in every step, during which the GPU waits."""
        return 0.0

    def steps(self, setup: Setup) -> Steps:
        """What routers are told of how a GPU makes its steps."""
        return Steps(self.project, host_s=self.host_step_s)

    def kernels(self) -> Any:
        """That module. Not imported before it is needed: it imports numba."""
        return importlib.import_module(self.compiles)

    def kernels_for(self, setup: Setup) -> Any:
        """The same for a run, if some runs need others."""
        return self.kernels()

    def numbers(self) -> Any:
        """A NamedTuple of what compiled code reads of the fields."""
        raise NotImplementedError

    def start(self, setup: Setup) -> Any:
        """A NamedTuple of arrays: what the engines of all GPUs remember."""
        raise NotImplementedError

    def come(self, mine: Any, setup: Setup, row: int, one: Coming) -> None:
        """A request comes while the run is stepped: `row` of what `start` returned is nobody's else, and is as if
        nobody had ever come there. Raises InvalidInput if all requests must be known from the start."""
        raise InvalidInput(f"engine {type(self).__name__} has no come, and requests come while it runs")

    def remembers(self, mine: Any) -> Longs | None:
        """Rows of requests, ended or not, that it may still look at: the others may be of other requests that come.
        None: it may look at all that ever came, and cannot serve for ever."""
        return None

    def forget(self, mine: Any, world: Any, g: int) -> None:
        """Remember fewer of them: drop the older half of what GPU g's cache holds and nobody uses, if that names whom
        it is of. `mine` and `world` as of `lose`."""

    def with_more_room(self, mine: Any, world: Any, g: int) -> Any:
        """The same with more room for GPU g."""
        raise NotImplementedError

    def lose(self, mine: Any, world: Any, g: int, requests: Longs) -> None:
        """GPU g is as nobody had used it, and these requests, which were there, as if they had never come; totals stay.
        They go on behind `world.jobs.shown` tokens when they come again. Nobody is told.
        `mine` and `world` are also what compiled functions of them can be given. Only called if `loses`."""
        raise NotImplementedError

    def withdraw(self, mine: Any, world: Any, g: int, request: int) -> None:
        """A request that waits on GPU g for KV, or has taken blocks for that (`State.RESERVED`), was lost, and is as if
        it had never come. With reserve_first also a prompt that is not computed, in a step in hand, too, and whoever is
        not there. As `lose`; only called if it has `protocols`, too."""
        raise NotImplementedError

    def give_back(self, mine: Any, world: Any, g: int) -> Longs:
        """Take out of GPU g's queue the requests that hold nothing and have no token of this attempt, and return them;
        they are as if they had never come, and the GPU tells of itself what it is then. Only called if `loses`."""
        raise NotImplementedError

    def check(self, gpus: int) -> None:
        """Raises InvalidInput if it cannot be on so many GPUs."""

    def leaves_out(self, layer_kinds: Sequence[Layers], moves: bool) -> str:
        """What its project does with such layers and it does not, in a clause; empty: nothing. `moves`: whether KV
        moves between GPUs or tiers."""
        return ""

    def check_roles(self, protocol: str) -> None:
        """Raises InvalidInput if it cannot, as it is set, have prompts and outputs on GPUs of their own."""

    def check_tiers(self, lends: bool) -> None:
        """Raises InvalidInput if it cannot, as it is set, have tiers behind its caches, or GPUs that lend each other
        what they have."""

    def check_stages(self) -> None:
        """Raises InvalidInput if it cannot, as it is set, be on pipelines of several stages."""

    def check_moves(self) -> None:
        """Raises InvalidInput if requests cannot, as it is set, be moved between its GPUs."""

    def blocks(self, setup: Setup) -> tuple[int, Longs]:
        """Tokens of a block of KV, and (n,) full blocks that each request's context has at most. Only called if
        `fetches` or `moves`."""
        raise NotImplementedError

    def tables(self, setup: Setup) -> Tables:
        """Of blocks, that each request has. Only called if `fetches`."""
        return ONE_TABLE

    def alone(self, workload: Workload) -> tuple[Floats, Floats, Floats] | None:
        """Time to first token, per further token, and to the last, of each request where it is alone, by which
        slowdowns are counted; None: as it is simulated on an idle GPU."""
        return None

    def refuses(self, setup: Setup) -> npt.NDArray[np.bool_]:
        """(n,) which requests can never be served, and are refused when they arrive."""
        return np.zeros(len(setup.workload), np.bool_)

    def own_cache(self, setup: Setup) -> int | None:
        """None: contexts are kept in the tree of `world.cache`. Else how much an engine that keeps them itself may
        tell routers at once of what is stored and evicted."""
        return None

    def own_loop(self) -> Any:
        """The function that serves a workload instead of the general loop, or None (see `engines.released`)."""
        return None
