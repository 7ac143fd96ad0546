"""A policy as plain Python, and whether two runs are the same."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from prebleexp.policies.base import Policy
from prebleexp.sim.types import Outcome


def assert_same(one: Outcome, other: Outcome) -> None:
    for field in fields(Outcome):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)


def interpreted(policy: Policy) -> Policy:
    """The same policy in plain Python."""
    kind = type(policy)
    plain: Any = type(kind.__name__, (kind,), {"compiled": False})
    return plain(**{field.name: getattr(policy, field.name) for field in fields(kind)})  # type: ignore[no-any-return]
