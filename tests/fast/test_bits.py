"""Sets of GPUs as words, against Python's sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.policies import bits
from prebleexp.sim.compiled import compiled
from tests.support.sampled import examples


@compiled
def counted(words: np.ndarray, into: np.ndarray) -> int:
    """Write all that are in the words, and return how many there are."""
    count = 0
    for word in range(len(words)):
        for n in range(bits.size(words[word])):
            into[count] = 64 * word + bits.nth_of(words[word], n)
            count += 1
    return count


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 200).flatmap(lambda gpus: st.tuples(st.just(gpus), st.sets(st.integers(0, gpus - 1)))))
def test_a_set_has_what_was_put_into_it(given: tuple[int, set[int]]) -> None:
    gpus, some = given
    words, found = np.full(-(-gpus // 64), 77), np.zeros(gpus, np.int64)
    bits.fill(words, np.array(sorted(some), np.int64), gpus)
    count = counted(words, found)
    assert found[:count].tolist() == sorted(some)


@pytest.mark.parametrize("gpus", [1, 63, 64, 65, 127, 128])
def test_all_gpus_are_a_set_in_plain_python_too(gpus: int) -> None:
    words = np.zeros(-(-gpus // 64), np.int64)
    getattr(bits.fill, "py_func", bits.fill)(words, np.arange(gpus), gpus)
    assert sum(int(word) % 2**64 << 64 * at for at, word in enumerate(words)) == 2**gpus - 1
