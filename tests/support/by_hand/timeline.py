"""What happens to GPUs, written down."""

from __future__ import annotations

from typing import Any

from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline


def happens(*events: tuple[float, int, str], detect_ms: float = 0.0, on_loss: str = "retry", **given: Any) -> Timeline:
    return Timeline(detect_ms, on_loss, tuple(Event(*one) for one in events), **given)
