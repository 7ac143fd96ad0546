"""The rules of a run, which stay the same from its beginning to its end."""

from __future__ import annotations

from typing import Any, NamedTuple


class Rules(NamedTuple):
    """What stays the same during a run."""

    end_s: float
    """nothing happens after it"""
    last_start_s: float
    """no session starts after it"""
    reports_s: float
    """between two reports of the GPUs; 0: what routers see of them is what is"""
    pause: int
    """events, or what takes as long, after which to return for a moment, so that Python can look at signals"""
    mean_window_s: float
    """over which the mean length of finished outputs is what is expected of the next; 0: what is expected is known
    from the start"""
    mean_per_prefix: bool
    follow: bool
    """whether engines report what each running request has left"""
    overhead: int
    """of `prebleexp.sim.records`: `NO_OVERHEAD`, `RECORDED` or `SERIAL`"""
    prediction_s: float
    """what it takes to predict the length of an output"""
    retry: bool
    """whether requests that are lost with their GPU are routed again"""
    resume: bool
    """… and continue after what was shown of them"""
    changes: int
    """rows of `World.timeline` that follow each other"""
    submit_s: float
    """from when a request is due until the router can take it up"""
    decision_s: float
    """what each decision takes, and on top of it …"""
    unit_s: Any
    """… each unit of what `View.work` counts"""
    timers: int
    """of a request, that the gateway may have under way at a time"""
    max_in_flight: int
    """of whom a GPU that has so many outstanding is no candidate; 0: GPUs are not limited"""
    singly: bool
    """whether each step is an event of its own, since a gateway, policies or an observer look up after it"""
    watched: bool
    """whether somebody looks at the world after every event, so that engines write down what they need not remember"""
