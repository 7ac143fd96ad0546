"""A policy as plain Python."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from prebleexp.policies.base import Policy


def interpreted(policy: Policy) -> Policy:
    """The same policy in plain Python."""
    kind = type(policy)
    plain: Any = type(kind.__name__, (kind,), {"compiled": False})
    return plain(**{field.name: getattr(policy, field.name) for field in fields(kind)})  # type: ignore[no-any-return]
