"""Of which sizes the measurements are that a step's cost was fitted to, and what of a run is larger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prebleexp.errors import significant

COLUMNS = {
    "measured_requests": ("peak_running", "a step made a token of {0} requests"),
    "measured_context_tokens": ("peak_context_tokens", "a step had {0} tokens of context"),
    "measured_prompt_tokens": ("prompt_tokens_max", "a prompt had {0} tokens"),
}
"""of a table: the metric that each is a limit of, and how to say that it was exceeded"""
FEWEST = "measured_requests_least"
"""of a table: the requests at a time of the smallest measurement. A run at a light load has fewer in most steps, so its
sentence has where measurements begin, and no run is called beyond them for that"""


@dataclass(frozen=True)
class Domain:
    """The largest of what was measured, each for itself; 0: nobody says."""

    requests: int = 0
    """at a time"""
    context_tokens: int = 0
    """of all of these together: on average, half of their outputs with it"""
    prompt_tokens: int = 0
    requests_per_s: float = 0.0
    """of one copy of the model"""
    fewest: int = 0
    """requests at a time, of the smallest measurement"""

    def __bool__(self) -> bool:
        return self.context_tokens > 0

    def __str__(self) -> str:
        """How far it reaches, in words; empty: nobody says."""
        if not self:
            return ""
        least = f"from {self.fewest:,} " if self.fewest > 1 else ""
        sizes = f"{least}to {self.requests:,} requests and {self.context_tokens:,} tokens of context at a time"
        prompts = f", prompts of {self.prompt_tokens:,}" if self.prompt_tokens else ""
        rate = f", {significant(self.requests_per_s)} requests/s" if self.requests_per_s else ""
        return sizes + prompts + rate

    def columns(self) -> dict[str, int | None]:
        """As a table has them: None where nobody says."""
        values = (self.requests, self.context_tokens, self.prompt_tokens)
        found = {name: value or None for name, value in zip(COLUMNS, values, strict=True)}
        return found | {FEWEST: self.fewest or None}


UNKNOWN = Domain()

Run = tuple[Mapping[str, Any], Mapping[str, Any]]
"""what was measured, as `Domain.columns` has it, and the run's metrics"""


def beyond(run: Run) -> dict[str, tuple[float, str]]:
    """What of a run is larger than what was measured: of each column how many times as large, and a sentence."""
    found, (measured, metrics) = dict[str, tuple[float, str]](), run
    for name, (metric, words) in COLUMNS.items():
        limit, value = measured.get(name), metrics.get(metric)
        if limit is not None and value is not None and value > limit:
            found[name] = value / limit, f"{words.format(f'{value:,.0f}')} (measured to {limit:,.0f})"
    return found


def farthest(runs: Sequence[Run]) -> str:
    """How many of these runs are larger in anything, and in each the one that is by most; empty: none is."""
    outside = [found for found in map(beyond, runs) if found]
    if not outside:
        return ""
    there = [name for name in COLUMNS if any(name in one for one in outside)]
    most = {name: max(one[name] for one in outside if name in one) for name in there}
    sentences = "; ".join(sentence for _, sentence in most.values())
    return sentences if len(runs) == 1 else f"{len(outside):,} of {len(runs):,} runs; the farthest: {sentences}"
