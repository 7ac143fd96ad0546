"""vLLM's own balancer of data-parallel engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, one_of, require
from prebleexp.policies.base import Policy
from prebleexp.policies.candidates import MOST, nth
from prebleexp.policies.reported import UNREAD, is_news
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import GPUS, View
from prebleexp.sim.types import Setup

SCORES = ("old", "new")


class Client(NamedTuple):
    """Of the GPUs, numbers that are scored as floats, …"""

    waiting: Any
    """requests, as published, and what was sent since then"""
    unfinished: Any
    """these and those that run"""
    full: Any
    """what is in use of its KV memory, beyond a half"""
    scores: Any
    """of the decision in hand"""
    queued: Any
    """… and what the next publication is compared with: requests that wait, …"""
    running: Any
    prompts: Any
    """… and prompt tokens of its last prefills, which tell of requests that came and went"""
    start: Any
    """(1,) where it begins to look"""
    read: Any
    """(1,) see `reported.is_news`"""
    new: int
    """whether the score is the new one"""


@dataclass(frozen=True)
class VLLMDataParallel(Policy):
    """The engine of the least score of what was last published, and one more waiting request a client for each sent
    since; the first of several, from a start on. `old` (up to 0.26): 4 · waiting + running, a fixed start. `new` (from
    0.27.1): at least its own unfinished requests, waiting ones cost where KV memory is full, and the start moves on.

    vLLM's DPLBAsyncMPClient, replayed from recordings of the method that picks. A publication replaces all numbers. It
    comes every 100 ms if anything has changed; here a report with other numbers is one. The one that comes after some
    seconds without a change is left out."""

    score: str = "new"
    """old or new"""
    client_count: int = 1
    """API servers that pick engines; this one gets all requests"""
    client_index: int = 0
    """which of them it is"""

    reads_lengths: ClassVar[bool] = False
    reports_ms: ClassVar[float] = 100.0

    def __post_init__(self) -> None:
        one_of("policy.score", self.score, SCORES)
        require(is_integer(self.client_count, 1), "policy.client_count", self.client_count, "an integer >= 1")
        valid = is_integer(self.client_index, 0, self.client_count - 1)
        require(valid, "policy.client_index", self.client_index, f"an integer from 0 to {self.client_count - 1}")

    def start(self, setup: Setup) -> Client:
        start = setup.gpus * self.client_index // self.client_count
        waiting, unfinished, full, scores = np.zeros((4, setup.gpus))
        queued, running, prompts = np.zeros((3, setup.gpus), np.int64)
        heard = waiting, unfinished, full, scores, queued, running, prompts
        return Client(*heard, np.array([start]), np.array([UNREAD]), int(self.score == "new"))

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        if is_news(mine.read, view):
            hear(mine, view)
        best = least_score(mine, view, self.client_count)
        count(mine, best, self.client_count)
        mine.start[0] += mine.new
        return best


@compiled
def hear(mine: Client, view: View) -> None:
    """Take what is published for true, if it is anything new."""
    gpus, running, queued, prompts, new = view.gpus, mine.running, mine.queued, mine.prompts, 0
    for gpu in range(len(gpus)):  # a branch for each would take longer
        new |= gpus[gpu].queued ^ queued[gpu]
        new |= gpus[gpu].running ^ running[gpu]
        new |= gpus[gpu].window_prompt_tokens ^ prompts[gpu]
    if new != 0:
        take_over(mine, view)


@compiled
def take_over(mine: Client, view: View) -> None:
    for gpu in range(len(view.gpus)):
        report = view.gpus[gpu]
        mine.queued[gpu], mine.running[gpu] = report.queued, report.running
        mine.prompts[gpu] = report.window_prompt_tokens
        mine.waiting[gpu], mine.unfinished[gpu] = report.queued, report.queued + report.running
        used = (report.kv_tokens - report.kv_free - report.evictable) / report.kv_tokens
        mine.full[gpu] = max(0.0, used - 0.5)


@compiled
def count(mine: Client, gpu: int, clients: int) -> None:
    """What is sent there waits, once a client, until something is published."""
    mine.waiting[gpu] += clients
    mine.unfinished[gpu] += clients


@compiled
def least_score(mine: Client, view: View, clients: int) -> int:
    """The first candidate of the least score, from the start on."""
    score(mine, view, clients)
    scores, candidates, least = mine.scores.view(np.int64), view.candidates, MOST  # floats >= 0 are in order as numbers
    gpus = len(candidates)
    for at in range(gpus):
        least = min(least, scores[nth(candidates, len(scores), at)])
    view.work[GPUS] += gpus
    at = mine.start[0] % gpus
    while scores[nth(candidates, len(scores), at)] != least:
        at = at + 1 if at + 1 < gpus else 0
    return nth(candidates, len(scores), at)


@compiled
def score(mine: Client, view: View, clients: int) -> None:
    """Writes each engine's score to `mine.scores`: unfinished requests, and waiting ones three times, or six times
    if it is full. Least is best."""
    waiting, unfinished, full, scores, sent = mine.waiting, mine.unfinished, mine.full, mine.scores, view.sent
    if mine.new == 0:
        for gpu in range(len(scores)):
            scores[gpu] = 3.0 * waiting[gpu] + unfinished[gpu]
    else:
        for gpu in range(len(scores)):
            own = float(np.int32(clients * sent[gpu].outstanding))  # of 64 bits they are not made floats side by side
            scores[gpu] = (own if own > unfinished[gpu] else unfinished[gpu]) + 6.0 * waiting[gpu] * full[gpu]
