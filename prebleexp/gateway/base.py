"""What requests pass before the router: who is let in, and who waits in which order."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prebleexp.checks import flag, integer, is_integer, is_number, one_of, positive, require
from prebleexp.sources import Part

if TYPE_CHECKING:
    from prebleexp.sim.replicated import Replication
    from prebleexp.sim.types import Setup

ORDERS = ("fcfs", "edf", "priority", "round_robin", "vtc", "drr", "dlpm")
"""in the order of `prebleexp.gateway.books`"""
BUDGETS = ("none", "ratio", "window", "tokens")
"""likewise"""
MOST_RETRIES = 100
CLIENTS = ("client", "session", "prefix_group")
SPREADS = ("round_robin", "random", "session")
"""in the order of `prebleexp.sim.replicated`"""
MOST_REPLICAS = 256


@dataclass(frozen=True)
class Gateway(Part):
    """A request that comes is let in or refused, and waits in a queue. Whenever the router is free and some GPU may get
    a request, the router is asked about the next one; it leaves the queue for the GPU that the router answers. HOLD: it
    stays where it is, and the router is asked about it again when something has ended. So where GPUs are limited
    (`max_in_flight`), requests wait here, in an order, and not on the GPUs; those that have no room are no candidates.

    A request that was lost with its GPU (`faults.on_loss=retry`) joins the queue anew. With its defaults the gateway
    changes nothing. Raises InvalidInput for other values.
    """

    order: str = "fcfs"
    """who is next: fcfs; edf: whose promised first token (`slo_ttft_s` after the request was due) is due first, those
    without a promise last; priority: the lowest number, fcfs among equals; round_robin: clients in turn; vtc: the
    client that was given the fewest tokens (Virtual Token Counter, Sheng et al., OSDI 2024); drr: clients in turn, each
    for as many tokens (Deficit Round Robin, Shreedhar and Varghese, SIGCOMM 1995); dlpm: of the clients that have
    credit left, the prompt of which most was sent before (Deficit Longest Prefix Match, Cao et al., arXiv
    2501.14312)"""
    client: str = "client"
    """what of a request says whose it is, for round_robin, vtc, drr and dlpm: client, session or prefix_group; all that
    have none are one client's"""
    input_weight: float = 1.0
    """of a prompt's token in what a client was given (vtc, drr, dlpm): counted when it is sent, cached or not …"""
    cached_weight: float | None = None
    """… of one that was found in a cache, which is known with the first token (vtc, dlpm); null: as in the
    papers, input_weight (vtc) or 0: only what is computed counts (dlpm) …"""
    output_weight: float = 2.0
    """… and of an answer's: counted as it is made (vtc, dlpm), or as many as the router expects when it is sent
    (drr)"""
    quantum: float = 10_000.0
    """weighted tokens that a client may be given in each of its turns (drr), or when nobody has credit left (dlpm),
    besides what it left over of the last"""
    max_in_flight: int | None = None
    """requests that the router has outstanding on a GPU before that gets no more; null: as many as come"""
    limit: int | None = None
    """requests in the system, wherever they are, before newcomers are refused; null: no limit"""
    queue_limit: int | None = None
    """requests that wait in the gateway before newcomers are refused; null: no limit"""
    ttl_queue_s: float | None = None
    """after which who waits in the gateway's queue has expired, whatever it has shown; null: never"""
    bucket_tokens: int | None = None
    """prompt tokens that a bucket holds, full at the beginning; a request of more than are in it is refused, and else
    takes as many (BLIS: 10,000); null: there is no bucket"""
    refill_tokens_s: float = 1000.0
    """tokens that the bucket gets a second"""
    shed: bool = False
    """refuse requests of a priority above 0 while the mean over GPUs of max(queued / saturated_queue, KV in use /
    saturated_kv) is 1 or more (llm-d, whose priorities have the other sign)"""
    saturated_queue: float = 5.0
    """requests that wait on a full GPU"""
    saturated_kv: float = 0.8
    """share of KV memory in use, by more than the cache alone, on a full GPU"""
    slo_ttft_s: float | None = None
    """refuse a request if no GPU is predicted to give it its first token within so long (Mooncake): by the prompt
    tokens that wait on the GPU, its share of those that wait here, and the whole prompt; null: no matter"""

    retries: int = 0
    """attempts of a request after its first, if that was refused (but not since no GPU could hold it), expired, or was
    lost with its GPU (faults.on_loss=retry); 0: none, and who was lost joins the queue at once"""
    retry_initial_s: float = 0.025
    """the k-th wait for an attempt is uniform from 0 to
    min(retry_max_s, retry_initial_s · retry_multiplier ** (k - 1))"""
    retry_max_s: float = 0.25
    """the longest wait"""
    retry_multiplier: float = 2.0
    """by which the longest that a wait can be grows from one attempt to the next"""
    retry_budget: str = "none"
    """who may try again: none: everybody; ratio (Envoy): while fewer retries are under way than the greater of
    budget_least and budget_ratio of the other requests in the system; window (Finagle): no more in budget_window_s than
    budget_least a second and budget_ratio of the requests that came in it; tokens (gRPC): of budget_tokens at most, a
    failure takes 1 and a success brings budget_ratio, while more than half are left"""
    budget_ratio: float = 0.2
    """retries a request (ratio and window), or tokens a success (tokens)"""
    budget_least: float = 3.0
    """retries that are allowed anyway: at a time (ratio), or a second (window: Finagle has 10)"""
    budget_window_s: float = 10.0
    """over which window counts"""
    budget_tokens: float = 10.0
    """that there are at most, and at the beginning (tokens)"""

    replicas: int = 1
    """routers side by side, each with a policy's memory of its own, and of the requests that were sent only what it
    sent itself, and what the others tell"""
    spread: str = "round_robin"
    """to which of them a request comes: round_robin, random, or session: all of a session to one, at random"""
    gossip_ms: float | None = None
    """how old each replica's knowledge is of what the others sent, and of what is finished; 0: all know at once;
    null: none ever learns of it"""

    def __post_init__(self) -> None:
        one_of("gateway.order", self.order, ORDERS)
        one_of("gateway.client", self.client, CLIENTS)
        for name in ("input_weight", "output_weight"):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, f"gateway.{name}", value, "a number >= 0")
        valid = is_number(self.quantum) and self.quantum >= 1
        require(valid, "gateway.quantum", self.quantum, "a number >= 1")
        cached = self.cached_weight
        valid = cached is None or (is_number(cached) and cached >= 0)
        require(valid, "gateway.cached_weight", cached, "a number >= 0, or null: as in the papers")
        for name in ("max_in_flight", "limit", "queue_limit"):
            value = getattr(self, name)
            valid = value is None or is_integer(value, 1)
            require(valid, f"gateway.{name}", value, "an integer >= 1, or null: no limit")
        ttl_s = self.ttl_queue_s
        valid = ttl_s is None or (is_number(ttl_s) and ttl_s > 0)
        require(valid, "gateway.ttl_queue_s", ttl_s, "a number of seconds > 0, or null: never")
        if self.bucket_tokens is not None:
            valid = is_integer(self.bucket_tokens, 1)
            require(valid, "gateway.bucket_tokens", self.bucket_tokens, "an integer >= 1, or null: there is no bucket")
        for name in ("refill_tokens_s", "saturated_queue", "saturated_kv"):
            positive(f"gateway.{name}", getattr(self, name))
        flag("gateway.shed", self.shed)
        if self.slo_ttft_s is not None:
            positive("gateway.slo_ttft_s", self.slo_ttft_s, "a number of seconds > 0, or null: no matter")
        self._check_retries()
        self._check_replicas()

    def _check_retries(self) -> None:
        integer("gateway.retries", self.retries, 0, MOST_RETRIES)
        for name in ("retry_initial_s", "retry_max_s", "retry_multiplier", "budget_window_s", "budget_tokens"):
            positive(f"gateway.{name}", getattr(self, name))
        for name in ("budget_ratio", "budget_least"):
            value = getattr(self, name)
            require(is_number(value) and value >= 0, f"gateway.{name}", value, "a number >= 0")
        one_of("gateway.retry_budget", self.retry_budget, BUDGETS)

    def _check_replicas(self) -> None:
        integer("gateway.replicas", self.replicas, 1, MOST_REPLICAS)
        one_of("gateway.spread", self.spread, SPREADS)
        valid = self.gossip_ms is None or (is_number(self.gossip_ms) and self.gossip_ms >= 0)
        require(valid, "gateway.gossip_ms", self.gossip_ms, "a number of milliseconds >= 0, or null: never")

    @property
    def changes_nothing(self) -> bool:
        """Whether a run is the same without it."""
        return self.lets_all_pass and self.replicas == 1

    @property
    def replication(self) -> Replication | None:
        """What a run with replicas is given."""
        if self.replicas == 1:
            return None
        from prebleexp.sim.replicated import Replication

        gossip_s = math.inf if self.gossip_ms is None else self.gossip_ms / 1e3
        return Replication(self.replicas, SPREADS.index(self.spread), gossip_s)

    @property
    def lets_all_pass(self) -> bool:
        """Whether nobody is refused, and nobody waits unless the router holds them."""
        limits = (self.max_in_flight, self.limit, self.queue_limit, self.ttl_queue_s)
        rules = (*limits, self.bucket_tokens, self.slo_ttft_s)
        return self.order == "fcfs" and not self.shed and self.retries == 0 and rules == (None,) * len(rules)

    @property
    def _usual_cached_weight(self) -> float:
        return 0.0 if self.order == "dlpm" else self.input_weight

    @property
    def most_in_flight(self) -> int:
        """`max_in_flight`, or 0 where there is no such limit."""
        return self.max_in_flight or 0

    @property
    def timers(self) -> int:
        """Of a request, under way at a time: for its time in the queue, and for its next attempt."""
        return 1 + int(self.retries > 0)

    def kernels(self) -> Any:
        from prebleexp.gateway import kernels

        return sys.modules[kernels.__name__]

    def start(self, setup: Setup) -> Any:
        """What the gateway remembers during a run: a `prebleexp.gateway.books.Books` with its queue and counts, all
        empty."""
        from prebleexp.gateway.books import RetryTerms, Terms, made_again, made_books

        terms = Terms(
            order=ORDERS.index(self.order),
            limit=self.limit or 0,
            queue_limit=self.queue_limit or 0,
            ttl_s=math.inf if self.ttl_queue_s is None else float(self.ttl_queue_s),
            input_weight=float(self.input_weight),
            cached_weight=float(self._usual_cached_weight if self.cached_weight is None else self.cached_weight),
            output_weight=float(self.output_weight),
            quantum=float(self.quantum),
            bucket_tokens=self.bucket_tokens or 0,
            refill_tokens_s=float(self.refill_tokens_s),
            shed=bool(self.shed),
            saturated_queue=float(self.saturated_queue),
            saturated_kv=float(self.saturated_kv),
            slo_ttft_s=math.inf if self.slo_ttft_s is None else float(self.slo_ttft_s),
        )
        retries = RetryTerms(
            retries=self.retries,
            initial_s=float(self.retry_initial_s),
            max_s=float(self.retry_max_s),
            multiplier=float(self.retry_multiplier),
            budget=BUDGETS.index(self.retry_budget),
            ratio=float(self.budget_ratio),
            least=float(self.budget_least),
            window_s=float(self.budget_window_s),
            most_tokens=float(self.budget_tokens),
        )
        n = len(setup.workload) // (2 if setup.legs else 1)
        return made_books(terms, made_again(retries, n, setup.seed), setup, getattr(setup.workload, self.client)[:n])

    def known(self, mine: Any) -> dict[str, Any]:
        """Columns of the outcome, by its books at the end of a run."""
        return {"refused_by": mine.requests.refused_by, "retries": mine.requests.retries}


OPEN = Gateway()
