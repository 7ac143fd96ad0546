"""What a policy outside of a simulation is asked and told, through the simulator's own book, candidates, touching and
hearing: compiled, and entered once for each question and each notice."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.answers import HOLD, REFUSE
from prebleexp.sim.book import enter
from prebleexp.sim.candidates import is_candidate
from prebleexp.sim.entry import compiled_for
from prebleexp.sim.handles import Block
from prebleexp.sim.hearing import tell_policy
from prebleexp.sim.notices import FINISHED, FIRST_TOKEN
from prebleexp.sim.plug import call_int
from prebleexp.sim.records import NONE, World
from prebleexp.sim.touching import touch, touch_all
from prebleexp.sim.world import EXAMPLE as WORLD

NEEDS_ROOM, NEEDS_PYTHON, BAD_ANSWER = -10, -11, -12
"""what `decide` answers beside what policies do"""
ROW, FIRST, SEGMENTS, PROMPT, MOST, ANSWER, SESSION, INFORMED, KIND, GPU, TOKENS, OUTPUT, SENT_TO = range(13)
NOW, EXPECTED, TTFT, LATENCY = range(4)


class Asked(NamedTuple):
    world: World
    ints: Any
    """(13,) `ROW` …: of the request in hand"""
    floats: Any
    """(4,) `NOW` …"""


def asked(world: World) -> Asked:
    return Asked(world, np.zeros(13, np.int64), np.zeros(4))


EXAMPLE = Block(asked(WORLD.value))


@compiled_for(EXAMPLE)
def comes(one: Asked) -> int:
    """A request has come, whose prompt is written already."""
    ints, floats = one.ints, one.floats
    row = one.world.seen.requests[ints[ROW]]
    row.arrival_s, row.prompt_tokens, row.max_new_tokens = floats[NOW], ints[PROMPT], ints[MOST]
    row.expected_output, row.informed = floats[EXPECTED], ints[INFORMED]
    row.prefix_group, row.session, row.turn, row.parent_session, row.priority = NONE, ints[SESSION], 0, NONE, 0
    row.first_segment, row.segments, row.answer_segment = ints[FIRST], ints[SEGMENTS], ints[ANSWER]
    row.slo_ttft_s, row.slo_tpot_s = np.nan, np.nan
    row.gpu, row.output_seen, row.ttft_s, row.latency_s = NONE, 0, np.nan, np.nan
    return 0


@compiled_for(EXAMPLE)
def decide(one: Asked) -> int:
    """Where the request in hand goes: it is sent there."""
    world, request, now = one.world, one.ints[ROW], one.floats[NOW]
    view, policy, answer = world.seen, world.policies[0], one.ints[SENT_TO]
    world.control.now = now
    if answer == NONE:  # nobody has answered yet
        view.requests[request].gpu, view.requests[request].ttft_s = NONE, np.nan  # it may have been lost
        if policy.lacks_room != 0 and call_int(policy.lacks_room, policy.own, policy.seen, request) != 0:
            return NEEDS_ROOM
        if policy.compiled == 0:
            return NEEDS_PYTHON
        answer = call_int(policy.route, policy.own, policy.seen, request, now)
    if answer in (HOLD, REFUSE):
        return int(answer)
    if not is_candidate(view.candidates, answer):
        one.ints[GPU] = answer
        return BAD_ANSWER
    view.requests[request].gpu = answer
    enter(world, request, 1)
    touch(world, answer)
    return int(answer)


@compiled_for(EXAMPLE)
def notes(one: Asked) -> int:
    """Something has happened: the book is kept. Returns whether it is the policy's turn to hear of it from Python."""
    world, ints, floats = one.world, one.ints, one.floats
    world.control.now = floats[NOW]
    kind, request, g = ints[KIND], ints[ROW], ints[GPU]
    if kind in (FIRST_TOKEN, FINISHED):
        row = world.seen.requests[request]
        row.ttft_s, row.latency_s, row.output_seen = floats[TTFT], floats[LATENCY], ints[OUTPUT]
    news = world.news[0]
    news.kind, news.request, news.gpu, news.tokens = kind, request, g, ints[TOKENS]
    world.control.news = 1
    if g != NONE:
        touch(world, g)
    else:
        touch_all(world)
    if world.told.compiled != 0:
        tell_policy(world)
    return int(world.control.news)
