"""In the release, jumping over idle steps gives what stepping gives, bit for bit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.engines.released.idle import next_idle_step
from tests.support.sampled import examples


@settings(max_examples=examples(400), deadline=None)
@given(
    st.floats(0, 100),
    st.one_of(st.floats(1e-4, 0.1), st.sampled_from([0.0006, 0.03, 2.0**-10, 3 * 2.0**-12])),
    st.floats(0, 3),
)
def test_a_jump_equals_repeated_addition(clock: float, cost: float, further: float) -> None:
    time = clock + further
    stepped = clock
    while stepped < time:
        stepped += cost
    assert next_idle_step(clock, cost, time) == stepped


def test_a_clock_that_a_step_does_not_move_goes_to_the_time_asked_for() -> None:
    assert next_idle_step(1e17, 1e-3, 2e17) == 2e17
