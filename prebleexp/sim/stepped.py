"""A run whose requests come while it runs: whoever drives it says how far time has come, and puts in who comes.

Nothing is known of a request before it comes. What has room for requests, `rows` of a workload, is there from the
start; a row may be another request's once nobody remembers the one before. Requests that are put in before anything
else happens at their time are served as `simulate` serves them, to the bit.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.sim import records as of
from prebleexp.sim.answers import REFUSE
from prebleexp.sim.comer import Coming
from prebleexp.sim.coming import enter, leave
from prebleexp.sim.given import PAUSE, Given, check_together
from prebleexp.sim.host import Host, Watching
from prebleexp.sim.outcome import Ended
from prebleexp.sim.records import NONE, Events, World
from prebleexp.sim.types import Setup, records

FOREVER = 2**62
"""requests that are still to end, where nobody knows how many come"""


class Stepped:
    """The run. Times are seconds from its beginning.

    Raises InvalidInput for what cannot be stepped: engines with a loop of their own, or whose requests must be known
    from the start, what is served before time 0, and roles, of which a request has two rows.
    """

    def __init__(self, given: Given, *, known: bool = False, shows: bool = False) -> None:
        """`known`: all rows of `given.workload` will come, each once, and then the run is over; else it has no end.
        `shows`: who has a token is written to `world.gaps.shown` after every event."""
        check_together(given)
        _check(given)
        empty = np.full(len(given.workload), np.nan)
        self.given = replace(given, workload=given.workload.changed(arrival_s=empty))  # none is due
        with np.errstate(invalid="ignore"):  # when sessions begin is not known either
            self.host = Host(self.given, pause=1 if shows else PAUSE, shows=shows)
        state = self.world
        n, patient = len(state.jobs), len(state.sessions.patience_s)
        room = n * (1 + int(patient > 0) + state.rules.timers)
        self.host.world.put(("sessions", "timers"), Events(np.zeros(room), np.zeros(room, np.int64)))
        state.sessions.patience_s[:] = np.inf
        state.jobs.answer = 0
        if not known:
            state.control.unfinished = FOREVER
        state.control.until = -math.inf
        self._one = [_of_one(kind.setup) for kind in self.host.kinds]

    @property
    def world(self) -> World:
        state: World = self.host.world.value
        return state

    @property
    def next_s(self) -> float:
        """When something happens next, if nobody comes; infinite: nothing does."""
        state = self.world
        time = min(float(state.sessions.control.time), float(state.links.control.time))
        return min(time, float(state.events.times[0])) if state.control.events > 0 else time

    # ---------------------------------------------------------------- time
    def to(self, time_s: float, on_event: Watching | None = None) -> None:
        """Let happen what happens until then, and then."""
        self.world.control.until = time_s
        self.host.go(on_event=on_event)

    def before(self, time_s: float, on_event: Watching | None = None) -> None:
        """Runs on through all events before `time_s`, and none at it."""
        self.to(math.nextafter(time_s, -math.inf), on_event)

    def end(self) -> Ended:
        """Nobody comes any more: on to the end."""
        self.to(math.inf)
        return self.host.ended()

    # ---------------------------------------------------------------- requests
    def come(self, row: int, first: int, one: Coming, at_s: float) -> bool:
        """A request comes, at `at_s` or as soon as what has happened allows it. `row`: nobody's; `first`: rows of
        `Prompts` from there on are its. False: no GPU could ever serve it, and it is refused."""
        state = self.world
        prompts, end = state.seen.prompts, first + len(one.ids)
        prompts.ids[first:end], prompts.ends[first:end] = one.ids, one.ends
        seen = state.seen.requests[row]
        informed = not math.isnan(one.expected_output)
        seen.arrival_s, seen.prompt_tokens, seen.max_new_tokens = at_s, one.prompt_tokens, one.max_new_tokens
        seen.expected_output, seen.informed = one.expected_output if informed else one.max_new_tokens, informed
        seen.prefix_group, seen.session, seen.turn = one.prefix_group, one.session, one.turn
        seen.parent_session, seen.priority = one.parent_session, one.priority
        seen.slo_ttft_s, seen.slo_tpot_s = one.slo_ttft_s, one.slo_tpot_s
        seen.first_segment, seen.segments, seen.answer_segment = first, len(one.ids), one.answer_segment
        seen.gpu, seen.output_seen, seen.ttft_s, seen.latency_s = NONE, 0, np.nan, np.nan
        job = records(1, of.JOB)
        job.target, job.next, job.length_class = one.target, NONE, one.length_class
        job.ttft_s = job.latency_s = job.finish_s = job.overhead_s = job.router_wait_s = np.nan
        served = not self._refuses(one)
        if not served:
            job.answer = REFUSE
        state.jobs[row] = job[0]
        state.gaps.last_s[row] = np.nan
        if self.host.routers.books is not None:
            self.host.routers.books.forget(row)
        for kind in self.host.kinds:
            self.host.batcher.come(kind.engine.mine, kind.setup, row, one)
        if len(state.sessions.patience_s):
            state.sessions.patience_s[row] = one.patience_s
        state.control.subject = row
        enter(self.host.world.handle)
        return served

    def leave(self, row: int) -> None:
        """Whoever waits for a request's tokens has gone: so does it, when its step in hand is over."""
        self.world.control.subject = row
        leave(self.host.world.handle)

    def _refuses(self, one: Coming) -> bool:
        """Whether some GPU could never serve it."""
        refused = False
        for setup in self._one:
            workload = setup.workload
            workload.prompt_tokens[0], workload.output_tokens[0] = one.prompt_tokens, one.output_tokens
            workload.max_new_tokens[0] = one.max_new_tokens
            refused = refused or bool(self.host.batcher.refuses(setup)[0])
        return refused


def _check(given: Given) -> None:
    engine, name = given.engine, type(given.engine).__name__
    if engine.own_loop() is not None:
        raise InvalidInput(f"engine {name} has a loop of its own, and cannot be stepped")
    if given.before is not None:
        raise InvalidInput("requests are served before time 0, and a run that is stepped begins with empty caches")
    if given.pools is not None:
        raise InvalidInput("GPUs have roles, and in a run that is stepped each serves whole requests")


def _of_one(setup: Setup) -> Setup:
    """For one request, whose numbers are written into it."""
    first = {name: column[:1].copy() for name, column in vars(setup.workload).items() if isinstance(column, np.ndarray)}
    return replace(setup, requests=1, workload=setup.workload.changed(**first))
