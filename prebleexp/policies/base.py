"""What a routing policy is: a frozen dataclass whose fields are its YAML, with one function that picks a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from prebleexp.policies.decisions import Decisions
from prebleexp.sim.answers import HOLD, REFUSE
from prebleexp.sim.types import Setup
from prebleexp.sources import Part

__all__ = ["HOLD", "REFUSE", "Policy", "Range", "tuned"]


@dataclass(frozen=True)
class Range:
    """The values of a setting that are worth a try."""

    low: float | None
    high: float | None
    log: bool
    among: tuple[Any, ...]


def tuned(
    default: Any, low: float | None = None, high: float | None = None, *, log: bool = False, among: tuple[Any, ...] = ()
) -> Any:
    """A field with this default that `+sweeps=tuning` tries: whole numbers or others from `low` to `high`, evenly or by
    their logarithm, or one of `among`."""
    return field(default=default, metadata={"tuned": Range(low, high, log, among)})


@dataclass(frozen=True)
class Policy(Part):
    """Routes requests to GPUs. Subclass it, give `route`, and name the class in conf/policy/<name>.yaml.

    `route(self, mine, view, request, now) -> int` answers with one of `view.candidates`, or with `HOLD` (ask again at
    the end of every step of a GPU, and so at every first token), or `REFUSE` (it is not served). `mine` is what `start`
    returned, `view` a `prebleexp.sim.records.View`, `request` the row of `view.requests` that arrives, `now` seconds. A
    request that is lost with its GPU comes to `route` again, after `finished`, as a new one would
    (faults.on_loss=retry): there may be more decisions than requests.

    A class may also have, and is then told:

    - `first_token(self, mine, view, request, now)`, `finished(self, mine, view, request, now)`: the request's first or
      last token has come; `view.requests[request]` says from which GPU, after how long, and how many there were
      (none, where it gave up before the first, or was lost with its GPU)
    - `routed(self, mine, view, request, now)`: the request was moved to another GPU, `view.requests[request]` says to
      which; `finished` has been told of the one that it left. A policy that has no `routed` hears nothing more of the
      request's tokens, so that there is one `finished` for each of its decisions
    - `changed(self, mine, view, gpu, now)`: the GPU is a candidate no longer, or again, with nothing in its cache
    - `stored(self, mine, view, request, gpu, tokens, now)`: the GPU's prefix cache holds so many leading tokens of the
      request's context
    - `evicted(self, mine, view, request, gpu, tokens, now)`: it dropped what lies beyond so many tokens of it. Where
      there are several routers (gateway.replicas), each hears of all requests what is stored and evicted, also of those
      that it was not asked about
    - `copied(self, mine, view, request, place, tokens, now)`, `dropped(self, mine, view, request, place, tokens, now)`:
      as `stored` and `evicted`, of tiers behind the caches (cluster=tiered). The host of GPU g is place g, its disk is
      place GPUs + g, and place 2 · GPUs is the store for all. `copied` comes when a store to it has ended
    - `lacks_room(self, mine, view, request) -> int` and `with_more_room(self, mine, view, request)`, which returns what
      takes the place of `mine`, in Python: asked before `route`

    The functions are compiled by numba: they may use their arguments (of `self` the fields that are numbers), numbers,
    numpy and functions decorated with `prebleexp.sim.compiled.compiled`, and `mine` must be None or a NamedTuple (or a
    single array) of numbers, arrays, records and NamedTuples of them. With `compiled = False` they are ordinary Python,
    some fifty times slower, with the same results, and `mine` is anything.

    A policy says what a decision costs by counting in `view.work` (see `prebleexp.sim.records.NODES`).
    """

    compiled: ClassVar[bool] = True
    reports_ms: ClassVar[float] = 0.0
    """how often it hears of queues, batches and memory of the GPUs, unless `reports_ms=` says otherwise; 0: it sees
    them as they are"""
    reads_lengths: ClassVar[bool] = True
    """whether `expected_output` can change what it does; if not, `lengths` is not part of a run's key"""
    follows_running: ClassVar[bool] = False
    """whether each running request is looked at before every decision. What unfinished requests have to come is the sum
    of their `expected_output`, less `generated`, less `ahead`: that is zero, or less where some are beyond what was
    expected of them, since these have nothing to come, not less than nothing. Where lengths are refined it is told
    anyway, and may be above zero. Always zero for policies that do not read lengths"""

    def start(self, setup: Setup) -> Any:
        """What the policy remembers, at the beginning of a run. Randomness comes from `setup.rng` or `setup.seed`
        alone; what several routers of a run agree on, such as hashes, from `setup.agreed_seed`."""
        return None

    def cannot_be_hosted(self) -> str:
        """Why nobody can ask it outside of a simulation; empty: one can."""
        return ""

    def explained(self, mine: Any) -> Decisions | None:
        """Of what it remembers at the end of a run, what each decision was made by; None: nothing is kept of that."""
        return None
