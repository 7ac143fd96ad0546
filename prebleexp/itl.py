"""Inter-token latency: the gaps between the tokens of all requests, pooled, as benchmarks of vLLM and SGLang do it.

A gap is as long as whoever reads a request's stream waits between two tokens: prefills of others, preemptions, moves,
transfers and losses are in it. Where an engine begins an answer anew, its tokens come again, and so do their gaps.
Gaps of all requests count, also of those due during `slo.warmup_s`; of a warm-up stage they do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from prebleexp.sim.histogram import percentile
from prebleexp.sim.types import Outcome

Declared = tuple[str, str, Callable[[Any], float | None], str, str, str]
SHARES = {
    "p50": (0.5, "median", "Median"),
    "p90": (0.9, "p90", "90th percentile"),
    "p95": (0.95, "p95", "95th percentile"),
    "p99": (0.99, "p99", "99th percentile"),
}


def of(made: Outcome, share: float, row: int | None = None) -> float | None:
    """The gap that this share of all gaps, or of those of one class, do not exceed, in seconds: exact to 0.4 %."""
    rows = slice(None) if row is None else slice(row, row + 1)
    counts = made.gaps_counts[rows].sum(axis=0)
    return percentile(counts, float(made.gaps_max_s[rows].max(initial=0.0)), share)


def longest(made: Outcome) -> float | None:
    return float(made.gaps_max_s.max()) if made.gaps_counts.sum() else None


def mean(made: Outcome) -> float | None:
    """The mean of all gaps, exactly."""
    count = int(made.gaps_counts.sum())
    return float(made.gaps_sum_s.sum()) / count if count else None


def _share(share: float, run: Any) -> float | None:
    return of(run.made, share)


_WORDS = "inter-token latency"
_POOLED = "of the gaps between two tokens of a request, over all gaps of all requests, in seconds"
_NOT = "Nothing where the engine does not count them (released, splitwise, dynamo_replay)."
METRICS: tuple[Declared, ...] = (
    ("itl_mean_s", f"average {_WORDS}", lambda run: mean(run.made), "s", "lower",
     f"Mean {_POOLED}, as benchmarks of serving engines pool them: long answers count more than in tpot. {_NOT}"),
    *(
        (f"itl_{name}_s", f"{words} {_WORDS}", partial(_share, share), "s", "lower",
         f"{title} {_POOLED}: the middle of a bin at most 0.8 % wide. {_NOT}")
        for name, (share, words, title) in SHARES.items()
    ),
    ("itl_max_s", f"longest {_WORDS}", lambda run: longest(run.made), "s", "lower",
     f"The longest {_POOLED}; exactly. {_NOT}"),
)  # fmt: skip
