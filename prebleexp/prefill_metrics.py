"""How many tokens of a request's prompt its GPU computed, as no cache had them: what a router that tears conversations
apart has more of. Over the requests that a GPU took up, at their last admission."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from prebleexp.averages import STATISTICS, statistics

Declared = tuple[str, str, Callable[[Any], float | None], str, str, str]


def computed_tokens(run: Any) -> dict[str, float | None]:
    """Statistics over the requests that a GPU took up; None of no such request."""
    made, every = run.made, ("hit", "host", "disk", "shared", "peer", "prefilled")
    taken_up = sum(getattr(made, f"{name}_tokens")[run.counted] for name in every) > 0
    found = statistics(made.prefilled_tokens[run.counted][taken_up].astype(np.float64))
    return dict(zip(STATISTICS, found, strict=True))


_OVER = (
    "over the requests that a GPU took up, of the prompt tokens that it computed: those that no cache had, at the last "
    "admission."
)
METRICS: tuple[Declared, ...] = (
    (
        "computed_tokens_mean",
        "average prompt tokens computed",
        lambda run: run.computed_tokens["mean"],
        "tokens",
        "lower",
        f"Mean, {_OVER}",
    ),
    (
        "computed_tokens_p99",
        "p99 prompt tokens computed",
        lambda run: run.computed_tokens["p99"],
        "tokens",
        "lower",
        f"99th percentile, {_OVER}",
    ),
)
