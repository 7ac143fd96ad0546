"""What is expected of an output's length where the router learns it: the mean over requests that finished lately."""

from __future__ import annotations

from typing import Any

from prebleexp.sim.compiled import compiled

# `world` is any NamedTuple with these parts: the loop of the release has them too.


@compiled
def _group(world: Any, request: int) -> int:
    """Whose mean it is: that of all requests, or that of its prefix (those whose prefix is not known share one)."""
    return 1 + world.seen.requests[request].prefix_group if world.rules.mean_per_prefix else 0


@compiled
def expect(world: Any, request: int) -> None:
    """Write the mean as of now into the request; max_new_tokens where none has finished in the window."""
    means, control, now = world.means, world.control, world.control.now
    while control.mean_first < control.mean_rows and means.times[control.mean_first] < now - world.rules.mean_window_s:
        _count(world, means.requests[control.mean_first], -1)
        control.mean_first += 1
    group, row = _group(world, request), world.seen.requests[request]
    row.informed = means.counts[group] > 0
    if row.informed:
        row.expected_output = means.tokens[group] / means.counts[group]
    else:
        row.expected_output = row.max_new_tokens


@compiled
def learn(world: Any, request: int) -> None:
    """Note that a request has finished, for the running mean."""
    control = world.control
    world.means.times[control.mean_rows], world.means.requests[control.mean_rows] = control.now, request
    control.mean_rows += 1
    _count(world, request, 1)


@compiled
def _count(world: Any, request: int, sign: int) -> None:
    group = _group(world, request)
    world.means.tokens[group] += sign * world.jobs[request].target
    world.means.counts[group] += sign
