"""What every number of a run means."""

from __future__ import annotations

from prebleexp.metrics import DECLARED


def meanings() -> dict[str, str]:
    """A sentence for every metric, in the order of a row."""
    own = {"seconds": "How long it took to compute, in seconds of the machine that did."}
    return {name: one.meaning for name, one in DECLARED.items()} | own
