"""Draws of compiled policies: those of the published generator, compiled or not."""

from __future__ import annotations

import numpy as np

from prebleexp.sim.draws import _next, below, generator, uniform


def published(state: list[int]) -> int:
    """xoshiro128++ as its authors wrote it, in C."""
    word, turned = 0xFFFFFFFF, lambda x, k: ((x << k) | (x >> (32 - k))) & 0xFFFFFFFF
    result = (turned((state[0] + state[3]) & word, 7) + state[0]) & word
    t = (state[1] << 9) & word
    state[2] ^= state[0]
    state[3] ^= state[1]
    state[1] ^= state[2]
    state[0] ^= state[3]
    state[2] ^= t
    state[3] = turned(state[3], 11)
    return result


def test_it_is_the_published_generator_compiled_and_as_plain_python() -> None:
    for seed in range(20):
        ours, plain = generator(seed), generator(seed)
        theirs = ours.tolist()
        for _ in range(500):
            expected = published(theirs)
            assert _next(ours) == expected
            assert getattr(_next, "py_func", _next)(plain) == expected
        assert ours.tolist() == plain.tolist() == theirs


def test_draws_are_even_and_seeds_differ() -> None:
    state, count = generator(1), 7
    drawn = np.array([below(state, count) for _ in range(70_000)])
    counts = np.bincount(drawn, minlength=count)
    assert ((counts - 10_000) ** 2 / 10_000).sum() < 22.5  # chi square, 6 degrees of freedom, 1 in 1,000
    numbers = np.array([uniform(state) for _ in range(10_000)])
    assert 0 < numbers.min() < numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 4 * (1 / 12 / 10_000) ** 0.5
    assert [below(generator(seed), 1 << 30) for seed in range(3)] != [below(generator(0), 1 << 30)] * 3
