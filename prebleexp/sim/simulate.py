"""One run: a workload, a cluster and a policy in, an `Outcome` out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prebleexp.sim import outcome
from prebleexp.sim.given import check_together, given_of
from prebleexp.sim.host import Host
from prebleexp.sim.migration import Migration
from prebleexp.sim.pools import Disaggregation
from prebleexp.sim.protocols import Accelerator, Batcher, DecisionCost, Entrance, Faulty, Forecast, Router
from prebleexp.sim.records import World
from prebleexp.sim.replicated import Replication
from prebleexp.sim.scaling import Scales
from prebleexp.sim.tiering import Tiering
from prebleexp.sim.types import Outcome, Workload
from prebleexp.sim.warming import Before, joined_with, measured


def simulate(
    workload: Workload,
    *,
    gpus: int,
    policy: Router,
    hardware: Accelerator,
    engine: Batcher,
    lengths: Forecast,
    overhead: DecisionCost,
    duration_s: float,
    horizon: str,
    seed: int,
    reports_ms: float = 0.0,
    kinds: Sequence[tuple[int, Accelerator]] = (),
    engines: Sequence[Batcher] = (),
    faults: Faulty | None = None,
    pools: Disaggregation | None = None,
    gateway: Entrance | None = None,
    tiers: Tiering | None = None,
    replicas: Replication | None = None,
    autoscaler: Scales | None = None,
    migration: Migration | None = None,
    before: Before | None = None,
    gaps_of_each: bool = False,
    check: bool = True,
    on_pause: Callable[[], object] = lambda: None,
    on_event: Callable[[World], object] | None = None,
) -> Outcome:
    """Serve `workload` on `gpus` GPUs; stop at `duration_s` (horizon="stop") or when all is finished ("drain"). Where
    requests come after others, no session starts after `duration_s`; those that have started go on to their end.

    `lengths` says what the policy is told of output lengths, `overhead` what its decisions take, `reports_ms` how often
    it hears of the GPUs' state (0: it sees that as it is), `kinds`, in place of `hardware`, how many GPUs of which
    kind there are, one kind after the other; a request that one of them could not hold is refused; `engines`, in place
    of `engine`, that of each kind, all of one class; `faults`, what
    happens to GPUs; `pools`, which kinds compute prompts and which make outputs; `gateway`, what requests pass before
    the router; `tiers`, what KV is kept in behind the GPUs' caches; `replicas`, how many routers there are;
    `migration`, when requests are moved from one GPU to another; `before`, what is served, and ends, before time 0, and
    is not in what comes out; `gaps_of_each`, whether the longest gaps between its tokens are kept of each request.
    `seed` is that of policies, lengths and faults; the workload has its own. `check`: plugs that are not the package's
    look at every index. `on_pause` is called at least once a second, and when Python is needed; it may end the run by
    raising. `on_event` is called after every event.

    Raises InvalidInput if the engine cannot lose a GPU and must, or for what does not go with what else is asked for,
    and PrebleexpError if the policy names a GPU that does not exist, or that it knows to be down, or fails: with its
    name, file and line.
    """
    given = given_of(
        workload if before is None else joined_with(before.workload, workload),
        gpus=gpus,
        policy=policy,
        hardware=hardware,
        kinds=kinds,
        engine=engine,
        lengths=lengths,
        overhead=overhead,
        duration_s=duration_s,
        horizon=horizon,
        seed=seed,
        reports_ms=reports_ms,
        check=check,
        faults=faults,
        pools=pools,
        gateway=gateway,
        tiers=tiers,
        replicas=replicas,
        autoscaler=autoscaler,
        migration=migration,
        before=before,
        gaps_of_each=gaps_of_each,
        engines=tuple(engines),
    )
    check_together(given)
    loop_of_its_own = engine.own_loop()
    if loop_of_its_own is not None:
        return loop_of_its_own(given, on_pause, on_event)
    run = Host(given) if on_event is None else Host(given, pause=1, watched=True)
    run.go(on_pause, on_event)
    ended, history = run.ended(), run.history()
    begun = None if run.warming is None else run.warming.begun
    del run  # its memory goes before what is left is copied
    made = outcome.outcome(ended, history)
    return made if begun is None else measured(made, workload, begun)
