"""Long lists of cases: some of them in every test run, all of them with `-m slow` as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(cases: Iterable[Any], one_in: int) -> list[Any]:
    """The cases as parameters, of which only the first of every `one_in` are quick."""
    slow = pytest.mark.slow
    rows = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*row, marks=() if i % one_in == 0 else slow) for i, row in enumerate(rows)]
