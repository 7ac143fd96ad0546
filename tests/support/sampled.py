"""Long lists of cases: some of them in every test run, all of them in .ci/run as well."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

THOROUGH = "PREBLEEXP_THOROUGH"
"""set, laws try all their examples"""


def examples(most: int, found: bool = False) -> int:
    """How many examples a law tries: all of them where `THOROUGH` is set. In every test run an eighth, or a quarter if
    the law has `found` what was wrong, with random examples, before anybody else did."""
    return most if os.environ.get(THOROUGH) else max(5, most // (4 if found else 8))


def sampled(cases: Iterable[Any], one_in: int) -> list[Any]:
    """The cases as parameters, of which only the first of every `one_in` are quick."""
    slow = pytest.mark.slow
    rows = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*row, marks=() if i % one_in == 0 else slow) for i, row in enumerate(rows)]


def seeds(quick: range, most: range, at_once: int = 10) -> list[Any]:
    """First ones of as many seeds at once: those of `quick` in .ci/run, the others of `most` before a release."""
    nightly = pytest.mark.nightly
    firsts = range(most.start, most.stop, at_once)
    return [pytest.param(first, marks=() if first in quick else nightly) for first in firsts]
