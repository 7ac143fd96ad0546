"""Splitwise's routers: which machine computes a request's prompt, and which its tokens.

token_jsq, jsq: both on one machine. The others choose from two pools; mixed_pool lets machines change over.
"""

from __future__ import annotations

from prebleexp.engines.splitwise.pools import BOOKED, PENDING, REQUESTS, amount, least, mix
from prebleexp.engines.splitwise.records import ALL, MIXED, PROMPT, TOKEN, Sim
from prebleexp.engines.splitwise.schedulers import BY_QUEUE, BY_TOKENS, IN_TURN, QUEUE_ALONE, TOKENS_ALONE
from prebleexp.engines.splitwise.tables import MEMORY
from prebleexp.sim.compiled import compiled
from prebleexp.sim.records import NONE

MOST_PENDING = 8192
"""pending tokens of a machine that has a queue; one more prompt that exceeds it goes elsewhere"""


@compiled
def route(sim: Sim, request: int) -> None:
    """Choose the machines of both tasks of a request, and book it."""
    rule, prompt = sim.rules.rule, sim.requests[request].prompt
    if rule == TOKENS_ALONE:
        first = least(sim, ALL, PENDING)
        second = first
        sim.machines[first].pending += prompt + 1
    elif rule == QUEUE_ALONE:
        first = least(sim, ALL, REQUESTS)
        second = first
    elif rule == IN_TURN:
        first, second = _in_turn(sim)
    elif rule == BY_TOKENS:  # never booked, only ever reduced: who has done most gets more, as in the release
        first, second = least(sim, PROMPT, PENDING), least(sim, TOKEN, PENDING)
    elif rule == BY_QUEUE:
        first, second = least(sim, PROMPT, REQUESTS), least(sim, TOKEN, REQUESTS)
    else:
        first, second = _mixed(sim, request)
    sim.tasks[2 * request].machine, sim.tasks[2 * request + 1].machine = first, second
    sim.requests[request].moves = first != second


@compiled
def _in_turn(sim: Sim) -> tuple[int, int]:
    control, pools, members = sim.control, sim.pools, sim.members
    first, second = int(pools[PROMPT, control.next_prompt]), int(pools[TOKEN, control.next_token])
    control.next_prompt = (control.next_prompt + 1) % members[PROMPT]
    control.next_token = (control.next_token + 1) % members[TOKEN]
    return first, second


@compiled
def _mixed(sim: Sim, request: int) -> tuple[int, int]:
    """Each task in its pool, else in the mixed one; else a machine of the other pool becomes mixed. Where there is
    none either, the machine of all with the fewest pending tokens takes both."""
    prompt, tokens = sim.tasks[2 * request], sim.tasks[2 * request + 1]
    first, second = _for_prompt(sim, prompt.tokens), _for_tokens(sim, prompt.bytes + tokens.bytes)
    if first == NONE and sim.members[TOKEN] > 0:
        first = least(sim, TOKEN, PENDING)
        mix(sim, first)
    if second == NONE and sim.members[PROMPT] > 0:
        second = least(sim, PROMPT, BOOKED)
        mix(sim, second)
    if first == NONE or second == NONE:
        first = second = _least_of_all(sim)
    sim.machines[second].booked += prompt.bytes + tokens.bytes
    if first != second:
        sim.machines[first].booked += prompt.bytes
    sim.machines[first].pending += prompt.tokens
    sim.machines[second].pending += 1
    return first, second


@compiled
def _for_prompt(sim: Sim, tokens: int) -> int:
    for pool in (PROMPT, MIXED):
        if sim.members[pool] > 0:
            g = least(sim, pool, PENDING)
            if sim.machines[g].waiting == 0 or sim.machines[g].pending + tokens <= MOST_PENDING:
                return g
    return NONE


@compiled
def _for_tokens(sim: Sim, size: int) -> int:
    for pool in (TOKEN, MIXED):
        if sim.members[pool] > 0:
            g = least(sim, pool, BOOKED)
            if sim.machines[g].booked + size < MEMORY:
                return g
    return NONE


@compiled
def _least_of_all(sim: Sim) -> int:
    """The first by pool: prompts, mixed, tokens."""
    best = NONE
    for pool in (PROMPT, MIXED, TOKEN):
        if sim.members[pool] > 0:
            g = least(sim, pool, PENDING)
            if best == NONE or amount(sim, g, PENDING) < amount(sim, best, PENDING):
                best = g
    return best
