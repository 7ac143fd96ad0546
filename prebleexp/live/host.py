"""A policy outside of a simulation: asked about one request at a time, told what becomes of it, and no end known.

It is the simulator's: the same world of arrays, the same book, the same compiled policy. Requests are rows of arrays
that are made once (`Room`). When these are used up, a new lap begins: the policy forgets all, as at its start, and its
arrays are used anew, so that memory stays as it is. Requests of a lap that is over are struck from the book when they
end; the policy has never heard of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.live import asked as of
from prebleexp.live.asked import Asked
from prebleexp.policies.base import Policy
from prebleexp.sim import addresses, hearing, notices, records, world
from prebleexp.sim.answers import HOLD, REFUSE
from prebleexp.sim.handles import Block
from prebleexp.sim.later import INTERPRETED
from prebleexp.sim.plug import Plug, joined
from prebleexp.sim.routing import Routing
from prebleexp.sim.rules import Rules
from prebleexp.sim.signatures import COST
from prebleexp.sim.types import Room, Setup, Workload
from prebleexp.sim.types import records as made_records

ROOM = Room(segments=1 << 23, ids=1 << 22, sessions=1 << 16)
ROWS = 1 << 17
"""requests of a lap"""
_ONE = np.ones(1, np.int32)
NOBODY = Workload(np.zeros(1), _ONE, _ONE, _ONE, _ONE, np.array([0, 1]), _ONE, _ONE)
"""a stream that says nothing: what a policy knows of requests, it is told when they come"""


@dataclass(frozen=True)
class Taken:
    """A request, for as long as its lap lasts."""

    number: int
    """of all that ever came"""
    lap: int
    row: int
    tokens: int
    """of its prompt"""


class Host:
    """See the module. `hardware`: of each GPU. Times are seconds from a beginning of the caller's choice, never less
    than the one before.

    Raises InvalidInput for a policy that cannot live so, and PrebleexpError, with its name, file and line, if it fails.
    """

    def __init__(
        self, policy: Policy, hardware: Sequence[Any], seed: int = 0, rows: int = ROWS, room: Room = ROOM
    ) -> None:
        gpus, first = len(hardware), hardware[0]
        why = policy.cannot_be_hosted()
        if why:
            raise InvalidInput(f"policy {type(policy).__name__} cannot be hosted: {why}")
        self.setup = Setup(
            gpus,
            seed,
            rows,
            first.kv_tokens,
            first.context_length,
            NOBODY,
            first.gpu_name,
            first.gpu_memory_gib,
            first.layer_kinds,
            room=room,
        )
        self.rows, self.room, self.lap, self.arrived = rows, room, 0, 0
        self.routing = Routing(policy, self.setup)
        costs = [Plug(one, one.kernels(), one.start(), addresses.COST, COST) for one in hardware]
        self._kept = costs
        self._policies = self.routing.repeated()
        self._block: Any = Block(of.asked(self._made(costs, [one.kv_tokens for one in hardware])), of.EXAMPLE.layout)
        self._look()
        self._begin()
        self.view.gpus["kv_tokens"] = self.view.gpus["kv_free"] = [one.kv_tokens for one in hardware]

    def _made(self, costs: Sequence[Plug], kv_tokens: Sequence[int]) -> Any:
        gpus, n = self.setup.gpus, self.rows
        rules = Rules(
            end_s=math.inf,
            last_start_s=math.inf,
            reports_s=0.0,
            pause=1,
            mean_window_s=0.0,
            mean_per_prefix=False,
            follow=False,
            overhead=records.NO_OVERHEAD,
            prediction_s=0.0,
            retry=False,
            resume=False,
            changes=0,
            submit_s=0.0,
            decision_s=0.0,
            unit_s=np.zeros(4),
            timers=0,
            max_in_flight=0,
            singly=False,
            watched=False,
        )
        engines = [Plug(None, None, None, addresses.ENGINE, {}) for _ in range(gpus)]
        self._engines = engines
        plugs = (
            self._policies,
            joined([one.repeated(1) for one in engines]),
            joined([one.repeated(1) for one in costs]),
        )
        none = np.zeros(1, np.bool_)
        made = world.allocate(replace(self.setup, room=None), rules, list(kv_tokens), none, None, None, plugs, 0)
        rows, jobs = made_records(n, records.REQUEST), made_records(n, records.JOB)
        prompts = records.Prompts(*np.zeros((2, self.room.segments), np.int32))
        seen = made.seen._replace(requests=rows, prompts=prompts)
        nobody = made.sessions._replace(
            behind_offsets=np.zeros(n + 1, np.int64), goes_on=np.zeros(n, np.int32), patience_s=np.zeros(0)
        )
        return made._replace(
            seen=seen,
            decode_seen=seen,
            cache=made.cache._replace(requests=rows, prompts=prompts),
            jobs=jobs,
            sessions=nobody,
            arrivals=np.zeros(n),
            news=made_records(1, records.NEWS),
        )

    def _begin(self) -> None:
        value: Asked = self._block.value
        self._ints, self._floats = value.ints, value.floats
        self.view, self._prompts = value.world.seen, value.world.seen.prompts
        self.row = self.segment = 0
        value.world.control.unfinished = 1 << 60
        if value.world.seen.touched.times[0] > 0:
            value.world.seen.touched.times[0] += len(value.world.seen.touched.gpus) + 1

    @property
    def _seen(self) -> Any:
        """As policies in plain Python see it."""
        return self._block.value.world.seen if INTERPRETED else self._block.world.seen

    # ---------------------------------------------------------------- requests
    @property
    def first(self) -> int:
        """The number of this lap's first request."""
        return self.arrived - self.row

    def has_room(self, segments: int) -> bool:
        """For one more request whose prompt has so many. If not, `begin_lap` makes some."""
        return self.row < self.rows and self.segment + segments <= self.room.segments

    def begin_lap(self) -> None:
        """The policy forgets all that it was told."""
        self.routing.start_again(self.setup)
        self.lap += 1
        self._begin()

    def arrive(
        self,
        ids: Any,
        ends: Any,
        most: int,
        now: float,
        *,
        expected: float | None = None,
        answer: int = records.NONE,
        session: int = records.NONE,
        names: Any = None,
    ) -> Taken:
        """`ids`: of its segments, each of which stands for its path from the root, below `room.ids`; `ends`: tokens
        from the prompt's beginning to the end of each; `expected`: output tokens, if anything is known of them."""
        first, count, row = self.segment, len(ids), self.row
        self._prompts.ids[first : first + count] = ids
        self._prompts.ends[first : first + count] = ends
        self.segment += count
        self.row += 1
        self.arrived += 1
        ints, floats = self._ints, self._floats
        ints[of.ROW], ints[of.FIRST], ints[of.SEGMENTS], ints[of.PROMPT] = row, first, count, ends[count - 1]
        ints[of.MOST], ints[of.ANSWER], ints[of.SESSION] = most, answer, session
        ints[of.INFORMED] = expected is not None
        floats[of.NOW], floats[of.EXPECTED] = now, most if expected is None else expected
        of.comes(self._block.handle)
        if names is not None:
            self.routing.named(row, names)
        return Taken(self.arrived - 1, self.lap, row, int(ends[count - 1]))

    def taken(self, row: int) -> Taken:
        """The request of this lap that has a row."""
        return Taken(self.first + row, self.lap, row, int(self.view.requests[row].prompt_tokens))

    def decide(self, request: Taken, now: float) -> int:
        """The GPU that it is sent to, `HOLD` or `REFUSE`. One that was lost with its GPU may be asked about again."""
        ints = self._ints
        ints[of.ROW], ints[of.SENT_TO], self._floats[of.NOW] = request.row, records.NONE, now
        while True:
            try:
                answer = of.decide(self._block.handle)
            except PrebleexpError:
                raise
            except Exception as error:
                raise self.routing.explained(error, self._seen, request.row, [], now) from error
            if answer == of.NEEDS_ROOM:
                self.routing.with_more_room(self._seen, request.row)
            elif answer == of.NEEDS_PYTHON:
                found = self.routing.ask(self._seen, request.row, now)
                if found in (HOLD, REFUSE):
                    return found
                if found not in range(len(self.view.sent)):
                    raise PrebleexpError(self.routing.bad_answer(self._seen, request.row, now, found))
                ints[of.SENT_TO] = found
            elif answer == of.BAD_ANSWER:
                raise PrebleexpError(self.routing.bad_answer(self._seen, request.row, now, int(ints[of.GPU])))
            else:
                return answer

    # ---------------------------------------------------------------- notices
    def hear(
        self,
        kind: int,
        request: Taken,
        gpu: int,
        now: float,
        *,
        tokens: int = 0,
        ttft_s: float = math.nan,
        latency_s: float = math.nan,
        output: int = 0,
    ) -> None:
        """What has happened to a request (a kind of `sim.notices`). `ttft_s`, `latency_s`, `output`: of first and
        last tokens."""
        if request.lap != self.lap:
            if kind in (notices.FINISHED, notices.CANCELLED, notices.LOST):
                book = self.view.sent[gpu]
                book.outstanding -= 1
                book.tokens -= request.tokens
            return
        ints, floats = self._ints, self._floats
        ints[of.TOKENS], ints[of.OUTPUT] = tokens, output
        floats[of.TTFT], floats[of.LATENCY] = ttft_s, latency_s
        self._told(kind, request.row, gpu, tokens, now)

    def changed(self, gpu: int, candidates: Sequence[int], now: float) -> None:
        """These may get requests from now on; the GPU is one of them no longer, or again, with nothing in its cache."""
        self.candidates(candidates)
        self._told(notices.CHANGED, records.NONE, gpu, 0, now)

    def candidates(self, gpus: Sequence[int]) -> None:
        """These may get requests from now on."""
        for name in ("seen", "decode_seen"):
            self._block.put(("world", name, "candidates"), np.array(sorted(gpus), np.int64))
        self.view = self._block.value.world.seen
        self._look()

    def _look(self) -> None:
        """What the policy sees may be at another place now."""
        self._policies[0].seen = self._seen if INTERPRETED else self._seen.address

    def _told(self, kind: int, row: int, gpu: int, tokens: int, now: float) -> None:
        ints = self._ints
        ints[of.KIND], ints[of.ROW], ints[of.GPU], self._floats[of.NOW] = kind, row, gpu, now
        try:
            untold = of.notes(self._block.handle)
        except PrebleexpError:
            raise
        except Exception as error:
            news = self._block.value.world.news[:1]
            raise self.routing.explained(error, self._seen, records.NONE, news, now) from error
        if untold:
            handle = self._block.handle.world
            hearing.hear(handle, kind, row)
            self.routing.tell(self._seen, kind, row, gpu, tokens, now)
            self._block.value.world.control.news = 0
