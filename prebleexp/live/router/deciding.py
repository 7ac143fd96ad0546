"""The policy, with all that it is told of requests while they pass: no sockets here, and no clock of its own."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from prebleexp.live.host import ROOM, ROWS, Host, Taken
from prebleexp.live.router.answers import counted
from prebleexp.live.router.caches import Assumed
from prebleexp.live.router.held import USUAL_BLOCK, Event, Found, Held, Notice, tokens_on
from prebleexp.live.router.outputs import Outputs
from prebleexp.live.router.prompts import BYTES_PER_TOKEN, Interner, Request
from prebleexp.live.router.recording import Recording
from prebleexp.policies.base import Policy
from prebleexp.sim import notices
from prebleexp.sim.records import NONE

if TYPE_CHECKING:
    from prebleexp.live.router.hearing import Ears

LOG = logging.getLogger(__name__)
KV_BLOCK = 16
"""tokens that caches keep together"""


LEAST_BLOCKS = 1 << 16
"""of prompts that are remembered, beside twice what GPUs hold"""


LONG_NAME = 64
"""characters of a session's name beyond which its hash is remembered: clients choose names, as long as a body"""


class Known(OrderedDict[str, int]):
    """Sessions by name, numbered from 0 for a lap."""

    def number(self, name: str) -> int:
        short = name if len(name) <= LONG_NAME else xxhash.xxh3_128_hexdigest(name.encode())
        return self.setdefault(short, len(self))


class Names:
    """What a request calls its session and its prompt (`policies.hashes.Names`), and what was asked of that."""

    def __init__(self, session: str | None, number: int, request: Request) -> None:
        self.session, self.number, self._request = session, number, request
        self.prefixes: dict[int, str] = {}

    def prefix(self, tokens: int) -> str:
        """By the hash of its bytes: the same in every router before the same servers."""
        text = self._request.text[: min(tokens, 1 << 24) * round(BYTES_PER_TOKEN)]
        made = f"prefix-{xxhash.xxh3_128_hexdigest(self._request.of.encode() + text)}"
        self.prefixes[tokens] = made
        return made


class Ticket:
    """A request that the policy knows."""

    __slots__ = ("arrived_s", "ends", "first_s", "found", "gpu", "hashes", "request", "taken")

    def __init__(self, request: Request, taken: Taken, hashes: Any, ends: Any, arrived_s: float) -> None:
        self.request, self.taken, self.hashes, self.ends, self.arrived_s = request, taken, hashes, ends, arrived_s
        self.gpu = NONE
        self.first_s: float | None = None
        """when its first token came"""
        self.found: Sequence[Found] = ()
        """what GPUs held of its prompt when it came, as far as they tell"""


class Deciding:
    """`bytes_per_token`: of prompts that come as text; what `usage` says of them is adopted when a lap begins.
    `told`: GPUs tell what they hold (`hears`), else it is assumed. `lengths_window_s`: for how long an answer's length
    counts for what is expected of others; 0: nothing is.
    """

    def __init__(
        self,
        policy: Policy,
        hardware: Sequence[Any],
        seed: int,
        hash_seed: int,
        rows: int = ROWS,
        recording: Recording | None = None,
        bytes_per_token: float = BYTES_PER_TOKEN,
        told: bool = False,
        lengths_window_s: float = 0.0,
    ) -> None:
        self.host = Host(policy, hardware, seed, rows)
        self._interner = Interner(ROOM.ids, hash_seed, bytes_per_token)
        self._caches = [] if told else [Assumed(one.kv_tokens) for one in hardware]
        blocks = sum(one.kv_tokens for one in hardware) // USUAL_BLOCK
        self.held = Held(len(hardware), 2 * blocks + LEAST_BLOCKS, hash_seed) if told else None
        self.unmatched = self.predicted_tokens = self.cached_tokens = 0
        """where GPUs tell what they hold: prompts of which nothing can be found there, being text; and of others, whose
        servers say how much they had cached, how much it was to be, and was"""
        self._sessions = Known()
        self._outputs = Outputs(lengths_window_s)
        self.recording = recording
        self._named = hasattr(type(policy), "named")
        self._hears_of_caches = hasattr(type(policy), "stored")
        self._untold: list[int] = []
        """GPUs that are assumed to hold what the policy has not heard of in this lap"""
        self._bytes, self._tokens, self._given_ratio = 0, 0, bytes_per_token
        self.candidates: list[int] = []
        self.waiting_tokens = [0] * len(hardware)
        """prompt tokens of requests without a first token"""
        self._look([])

    # ------------------------------------------------------------ requests
    def arrives(self, request: Request, now: float) -> Ticket:
        """A request's body is whole: it gets a ticket."""
        asked = request.text, request.of, request.whole_tokens
        found = self._interner.of(*asked) if self._has_room(request) else None
        if found is None:
            self._begin_lap(now)
            found = self._interner.of(*asked)
            assert found is not None
        session = request.session
        if session is not None and self.recording is not None:  # no names of people in files
            session = xxhash.xxh3_128_hexdigest(session.encode())
        number = NONE if session is None else self._sessions.number(session)
        names = Names(session, number, request) if self._named else None
        expected = self._outputs.expected(now)
        more: dict[str, Any] = {} if expected is None else {"expected": expected}
        taken = self.host.arrive(found.ids, found.ends, request.most, now, session=number, names=names, **more)
        if self.recording is not None:
            told: dict[str, Any] = {"most": request.most, "session": number, **more}
            if names is not None:
                told["names"] = [session, number, names.prefixes]
            self.recording.arrives(taken, now, found.ids, found.ends, told)
        ticket = Ticket(request, taken, found.hashes.copy(), found.ends, now)
        if self._untold:
            self._tell_again(ticket, now)
        if self.held is not None and request.whole_tokens:
            heard, ticket.found = self.held.comes(taken.row, request.text, request.of)
            self._note(heard, now)
        self.unmatched += self.held is not None and not request.whole_tokens
        return ticket

    def tokens(self, request: Request) -> int:
        """How many tokens a request's prompt has."""
        return self._interner.tokens(len(request.text), request.whole_tokens)

    def ask(self, ticket: Ticket, now: float, among: Sequence[int] | None = None) -> int:
        """The GPU that it is sent to, `HOLD` or `REFUSE`; of these candidates alone. There must be some."""
        all_of_them = self.candidates
        if among is not None:
            self.begin(among, now)
        answer = self.host.decide(ticket.taken, now)
        if self.recording is not None:
            self.recording.answers(ticket.taken, now, answer)
        if among is not None:
            self.begin(all_of_them, now)
        if answer >= 0:
            ticket.gpu = answer
            ticket.first_s = None
            self.waiting_tokens[answer] += ticket.taken.tokens
        return answer

    def is_of_this_lap(self, ticket: Ticket) -> bool:
        """If not, the policy cannot be asked about it again: it has to arrive anew."""
        return ticket.taken.lap == self.host.lap

    def first_token(self, ticket: Ticket, now: float) -> None:
        """Tell the policy of a request's first token. What its prompt's KV displaces is assumed to be gone."""
        ticket.first_s = now
        gpu, taken = ticket.gpu, ticket.taken
        self.waiting_tokens[gpu] -= taken.tokens
        self._hear(ticket, notices.FIRST_TOKEN, now, ttft_s=now - ticket.arrived_s, output=1)
        if self.held is not None:
            return
        whole = (taken.tokens - 1) // KV_BLOCK * KV_BLOCK  # an engine computes the last token of every prompt
        hashes, ends = ticket.hashes.tolist(), ticket.ends.tolist()
        for gone in self._caches[gpu].stored(taken.number, hashes, ends, whole):
            self._tell(self.host.taken(gone.number - self.host.first), gpu, notices.EVICTED, now, tokens=gone.tokens)
        if whole > 0 and self.is_of_this_lap(ticket):
            self._hear(ticket, notices.STORED, now, tokens=whole)

    def finished(self, ticket: Ticket, output: int, now: float) -> None:
        """The answer is whole. Of a client that left in the end, it was told already."""
        if ticket.gpu == NONE:
            return
        if ticket.first_s is None:
            self.first_token(ticket, now)
        first_s = now if ticket.first_s is None else ticket.first_s
        more = {"ttft_s": first_s - ticket.arrived_s, "latency_s": now - ticket.arrived_s}
        self._hear(ticket, notices.FINISHED, now, output=output, **more)
        self._outputs.finished(output, now)
        ticket.gpu = NONE

    def lost(self, ticket: Ticket, now: float) -> None:
        """Its server is gone, or its client."""
        if ticket.gpu == NONE:
            return
        if ticket.first_s is None:
            self.waiting_tokens[ticket.gpu] -= ticket.taken.tokens
        self._hear(ticket, notices.CANCELLED, now)
        ticket.gpu = NONE

    def learns_of(self, ticket: Ticket, usage: Mapping[str, Any]) -> None:
        """What an answer's `usage` says of its prompt."""
        details = usage.get("prompt_tokens_details")
        cached = details.get("cached_tokens") if isinstance(details, dict) else None
        self.learns(ticket, counted(usage.get("prompt_tokens")), None if cached is None else counted(cached))

    def warns(self, request: Request) -> None:
        """That nothing can be known of the first prompt that came as text, where GPUs tell of ids."""
        if self.held is not None and self.unmatched == 1 and not request.whole_tokens:
            LOG.warning(
                "a prompt came as text, and KV events are of token ids: nothing of a text is known to be cached "
                "anywhere (prebleexp:kv_unmatched_total counts such prompts); send ids, or take kv=assumed"
            )

    def learns(self, ticket: Ticket, prompt_tokens: int, cached_tokens: int | None = None) -> None:
        """What `usage` says of a prompt."""
        if ticket.found and cached_tokens is not None and ticket.gpu != NONE:
            self.predicted_tokens += tokens_on(ticket.found, ticket.gpu)
            self.cached_tokens += cached_tokens
        if not ticket.request.whole_tokens and prompt_tokens > 0 and ticket.request.text:
            self._bytes += len(ticket.request.text)
            self._tokens += prompt_tokens

    @property
    def bytes_per_token(self) -> float:
        """Bytes of a token, as learned from answers so far."""
        return self._bytes / self._tokens if self._tokens else self._given_ratio

    # ------------------------------------------------------------ GPUs
    def changed(self, gpu: int, candidates: Sequence[int], now: float) -> None:
        """These are there now, and the GPU was not before, or is no longer."""
        if self.held is None:
            self._caches[gpu].forget()
        else:
            self.held.changed(gpu, gpu in candidates)
        self._look(candidates)
        self.host.changed(gpu, candidates, now)
        if self.recording is not None:
            self.recording.changes(gpu, candidates, now)

    def hears(self, gpu: int, event: Event | None, now: float) -> None:
        """What a GPU tells of its cache; None: nobody knows any more what it holds."""
        assert self.held is not None
        self._note(self.held.forget(gpu) if event is None else self.held.hears(gpu, event), now)

    def _note(self, heard: Iterable[Notice], now: float) -> None:
        for one in heard:
            self._tell(self.host.taken(one.row), one.gpu, one.kind, now, tokens=one.tokens)

    def _look(self, candidates: Sequence[int]) -> None:
        self.candidates = sorted(candidates)
        self.host.candidates(self.candidates)

    def begin(self, candidates: Sequence[int], now: float = 0.0) -> None:
        """These are asked about from now on, though no GPU has come or gone."""
        self._look(candidates)
        if self.recording is not None:
            self.recording.changes(NONE, candidates, now)

    def reports(self, now: float) -> None:
        """Note for the recording that `host.view.gpus` was written."""
        if self.recording is not None:
            self.recording.reports(self.host.view.gpus, now)

    # ------------------------------------------------------------ laps
    def _has_room(self, request: Request) -> bool:
        blocks = len(request.text) // 64 + 1
        return self.host.has_room(blocks) and len(self._sessions) < ROOM.sessions

    def _begin_lap(self, now: float) -> None:
        block = self._interner.block_tokens
        self.host.begin_lap()
        self._interner.begin(self.bytes_per_token)
        self._sessions.clear()
        for one in self._caches:
            one.begin_lap(self.host.first)
            if block != self._interner.block_tokens:  # its sizes are of another ratio
                one.forget()
        if self._hears_of_caches:
            self._untold = [gpu for gpu, one in enumerate(self._caches) if one.untold]
        if self.held is not None:
            self.held.begin_lap()
        if self.recording is not None:
            self.recording.laps(now)
        kept = "hears again what GPUs hold" if self._hears_of_caches else "has forgotten what it decided"
        LOG.info("lap %d begins: all rows are used, the policy begins anew and %s", self.host.lap, kept)

    def _tell_again(self, ticket: Ticket, now: float) -> None:
        """What GPUs have held of a prompt since an earlier lap."""
        hashes, ends, taken = ticket.hashes.tolist(), ticket.ends.tolist(), ticket.taken
        for gpu in self._untold:
            tokens = self._caches[gpu].again(taken.number, hashes, ends)
            if tokens > 0:
                self._tell(taken, gpu, notices.STORED, now, tokens=tokens)
        self._untold = [gpu for gpu in self._untold if self._caches[gpu].untold]

    def _hear(self, ticket: Ticket, kind: int, now: float, **more: Any) -> None:
        self._tell(ticket.taken, ticket.gpu, kind, now, **more)

    def _tell(self, taken: Taken, gpu: int, kind: int, now: float, **more: Any) -> None:
        self.host.hear(kind, taken, gpu, now, **more)
        if self.recording is not None:
            self.recording.hears(taken, now, kind, gpu, {name: _plain(value) for name, value in more.items()})


def ears(
    addresses: Sequence[str], replays: Sequence[str], deciding: Deciding, clock: Callable[[], float]
) -> Ears | None:
    """What hears KV events of GPU 0, 1, … at these addresses, and tells what decides of them; none where there are no
    addresses."""
    if not addresses:
        return None
    from prebleexp.live.router.hearing import Ears

    return Ears(addresses, replays, lambda gpu, event: deciding.hears(gpu, event, clock()))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
