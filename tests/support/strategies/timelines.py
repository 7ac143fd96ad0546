"""Random things that happen to GPUs, each possible when it does."""

from __future__ import annotations

from hypothesis import strategies as st

from prebleexp.faults.base import Event, Faults
from prebleexp.faults.timeline import Timeline

TIMES = st.one_of(st.floats(0.05, 0.5), st.floats(0.05, 2), st.floats(0, 6), st.integers(0, 12).map(lambda i: i / 2))
HAPPENS = st.tuples(TIMES, st.integers(0, 7), st.integers(0, 5), st.sampled_from([0.25, 0.5, 2.0]))
DRAWN = st.one_of(st.lists(HAPPENS, min_size=2, max_size=4), st.lists(HAPPENS, min_size=4, max_size=12))
POSSIBLE = {"up": ("down", "down", "down", "slow", "slow", "drain"), "down": ("up",), "drained": ("down", "up", "slow")}
BECOMES = {"down": "down", "up": "up", "drain": "drained"}


def timeline(drawn: list[tuple[float, int, int, float]], gpus: int, **given: object) -> Faults:
    """Of what is drawn, in order of time: each thing happens to some GPU, whatever can happen to it then."""
    are, happen = ["up"] * gpus, []
    for at_s, number, which, factor in sorted(drawn):
        g = number % gpus
        event = POSSIBLE[are[g]][which % len(POSSIBLE[are[g]])]
        are[g] = BECOMES.get(event, are[g])
        happen.append(Event(at_s, g, event, factor if event == "slow" else 1.0))
    return Timeline(happen=tuple(happen), **given)  # type: ignore[arg-type]


def timelines(gpus: int, resumes: bool = False) -> st.SearchStrategy[Faults]:
    return st.builds(
        lambda drawn, **given: timeline(drawn, gpus, **given),
        DRAWN,
        detect_ms=st.sampled_from([0.0, 0.0, 1.0, 100.0, 1500.0]),
        on_loss=st.sampled_from(["retry", "retry", "resume", "fail"] if resumes else ["retry", "retry", "fail"]),
        drain=st.sampled_from(["finish", "requeue"]),
        drain_s=st.sampled_from([None, None, 0.05, 0.5]),
        init_s=st.sampled_from([0.0, 0.0, 0.5, 1.7]),
    )
