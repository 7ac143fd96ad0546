"""Transfers over shared ports: the examples of the specification by hand, exact, and what holds of all."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.sim.events import subject_of
from prebleexp.sim.handles import Block
from prebleexp.sim.links import FAIR, FIFO, INFINITE, ask, happens, made_links
from tests.support.sampled import examples

pytestmark = pytest.mark.uncompiled

GB = 1e9
Asked = tuple[float, int, int, float]
"""when, from which GPU, to which, bytes"""


def arrivals(
    sharing: int, asked: list[Asked], rate: float = 10 * GB, latency_s: float = 0.0, on_event: Any = None
) -> list[float]:
    """When each of these transfers, in order of time, has arrived."""
    gpus = 1 + max(max(source, target) for _, source, target, _ in asked)
    links = Block(made_links(len(asked), gpus, sharing, rate, latency_s))
    found, next_row = [np.nan] * len(asked), 0
    control = links.value.control
    while next_row < len(asked) or control.time < np.inf:
        if next_row < len(asked) and asked[next_row][0] < control.time:
            now, source, target, size = asked[next_row]
            ask(None, links.handle, next_row, source, target, size, now)
            next_row += 1
        else:
            now, request = float(control.time), int(subject_of(int(control.key)))
            if happens(None, links.handle, request, now):
                found[request] = now
        if on_event is not None:
            on_event(links.value, now)
    return found


TWO: list[Asked] = [(0.0, 0, 2, 10 * GB), (0.5, 1, 2, 10 * GB)]
"""A and B: 10 GB each to one GPU, B half a second later"""


@pytest.mark.slow
@pytest.mark.parametrize(("sharing", "arrived"), [(INFINITE, [1.0, 1.5]), (FIFO, [1.0, 2.0]), (FAIR, [1.5, 2.0])])
def test_two_transfers_to_one_gpu(sharing: int, arrived: list[float]) -> None:
    assert arrivals(sharing, TWO) == arrived


@pytest.mark.parametrize(("sharing", "arrived"), [(INFINITE, [1.25, 1.75]), (FIFO, [1.25, 2.25]), (FAIR, [1.75, 2.25])])
def test_latency_delays_the_start_and_uses_no_bandwidth(sharing: int, arrived: list[float]) -> None:
    assert arrivals(sharing, TWO, latency_s=0.25) == arrived


def test_a_latency_is_over_while_one_waits_for_ones_turn() -> None:
    """B is asked for at 0.5 s: its 0.25 s are over when A has arrived, at 1.25 s."""
    assert arrivals(FIFO, [(0.0, 0, 1, 10 * GB), (0.5, 0, 1, 10 * GB)], latency_s=0.25) == [1.25, 2.25]


def test_max_min_over_all_ports() -> None:
    """P1→D1, P1→D2, P2→D2, P3→D2 over ports of 1 get 2/3, 1/3, 1/3, 1/3."""
    rates: list[list[float]] = []
    pairs = [(0, 3), (0, 4), (1, 4), (2, 4)]
    arrivals(
        FAIR,
        [(0.0, source, target, 1.0) for source, target in pairs],
        rate=1.0,
        on_event=lambda links, now: rates.append(links.transfers.rate.tolist()),
    )
    assert rates[3] == [1 - 1 / 3, 1 / 3, 1 / 3, 1 / 3]


def test_fifo_keeps_the_order_of_requests_at_both_ports() -> None:
    """1→3 was asked for after 0→3, and waits for it although that waits for 0→2."""
    assert arrivals(FIFO, [(0.0, 0, 2, 10 * GB), (0.0, 0, 3, 10 * GB), (0.0, 1, 3, 10 * GB)]) == [1.0, 2.0, 3.0]


def test_different_pairs_do_not_meet() -> None:
    pairs: list[Asked] = [(0.0, g, 4 + g, 10 * GB) for g in range(4)]
    for sharing in (INFINITE, FIFO, FAIR):
        assert arrivals(sharing, pairs) == [1.0] * 4


# ---------------------------------------------------------------- laws
TRANSFERS = st.lists(
    st.tuples(
        st.integers(0, 20).map(lambda eighth: eighth / 8) | st.floats(0, 3),
        st.integers(0, 2),
        st.integers(3, 5),
        st.integers(0, 40).map(float) | st.floats(0.1, 40),
    ),
    min_size=1,
    max_size=12,
).map(lambda asked: sorted(asked, key=lambda one: one[0]))
LATENCIES = st.sampled_from([0.0, 0.125, 0.7])


@settings(max_examples=examples(200), deadline=None)
@given(TRANSFERS, LATENCIES)
def test_no_port_is_above_its_rate_nobody_could_have_more_and_all_bytes_arrive(
    asked: list[Asked], latency_s: float
) -> None:
    """Max-min: each transfer has a port that is full, at which nobody has more than it."""
    moved, last = np.zeros(len(asked)), [0.0, np.zeros(len(asked))]

    def look(links: Any, now: float) -> None:
        nonlocal moved
        moved += last[1] * (now - last[0])
        rates, ports = np.zeros(len(asked)), [np.zeros(6), np.zeros(6)]
        rows = links.moving[: links.control.moving]
        rates[rows] = links.transfers.rate[rows]
        gpus = len(links.ports) // 2
        sides = [links.transfers.egress, links.transfers.ingress - gpus]
        for port, side in zip(ports, sides, strict=True):
            np.add.at(port, side[rows], rates[rows])
            assert (port <= 10 * (1 + 1e-9)).all()
        for row in rows:
            full = [
                port[side[row]] >= 10 * (1 - 1e-9)
                and rates[rows][side[rows] == side[row]].max() <= rates[row] * (1 + 1e-9)
                for port, side in zip(ports, sides, strict=True)
            ]
            assert any(full)
        last[:] = [now, rates]

    arrived = arrivals(FAIR, asked, rate=10.0, latency_s=latency_s, on_event=look)
    np.testing.assert_allclose(moved, [size for *_, size in asked], rtol=1e-9, atol=1e-9)
    assert all(end >= one[0] + latency_s + one[3] / 10 * (1 - 1e-9) for end, one in zip(arrived, asked, strict=True))


@settings(max_examples=examples(200), deadline=None)
@given(TRANSFERS, LATENCIES)
def test_nothing_is_earlier_where_ports_are_shared(asked: list[Asked], latency_s: float) -> None:
    alone = [now + latency_s + size / 10 for now, _, _, size in asked]
    np.testing.assert_array_equal(arrivals(INFINITE, asked, rate=10.0, latency_s=latency_s), alone)
    for sharing in (FIFO, FAIR):
        arrived = np.array(arrivals(sharing, asked, rate=10.0, latency_s=latency_s))
        assert (arrived >= np.array(alone) * (1 - 1e-12)).all()


@settings(max_examples=examples(200), deadline=None)
@given(TRANSFERS, LATENCIES)
def test_on_one_port_fair_and_fifo_end_at_the_same_time(asked: list[Asked], latency_s: float) -> None:
    to_one: list[Asked] = [(now, source, 3, size) for now, source, _, size in asked]
    fair, fifo = (max(arrivals(sharing, to_one, rate=10.0, latency_s=latency_s)) for sharing in (FAIR, FIFO))
    assert fair == pytest.approx(fifo, rel=1e-9)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 30)), min_size=1, max_size=8))
def test_a_fair_port_is_processor_sharing(jobs: list[tuple[int, int]]) -> None:
    """Against exact arithmetic: between two events each of those that are there gets as much of the port."""
    jobs = sorted(jobs)
    arrived = arrivals(FAIR, [(float(at), 0, 1, float(size)) for at, size in jobs], rate=4.0)
    left, now, ends = {}, Fraction(0), {}
    coming = list(enumerate(jobs))
    while coming or left:
        share = Fraction(4, len(left)) if left else Fraction(0)
        end = now + min(left.values()) / share if left else None
        if coming and (end is None or coming[0][1][0] < end):
            until = Fraction(coming[0][1][0])
        else:
            assert end is not None
            until = end
        left = {row: rest - share * (until - now) for row, rest in left.items()}
        now = until
        ends |= {row: now for row, rest in left.items() if rest == 0}
        left = {row: rest for row, rest in left.items() if rest > 0}
        while coming and coming[0][1][0] == now:
            row, (_, size) = coming.pop(0)
            left[row] = Fraction(size)
    assert arrived == pytest.approx([float(ends[row]) for row in range(len(jobs))], rel=1e-12)
