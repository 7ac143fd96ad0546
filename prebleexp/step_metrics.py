"""What came of steps: of drafts that they verified (`engine.speculative_config`), and of what GPUs waited in them for
each other (`hardware.data_parallel_size`, `hardware.pipeline_parallel_size`). Nothing where there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Declared = tuple[str, str, Callable[[Any], float | None], str, str, str]


def _share(of: str, part: str, whole: str) -> Callable[[Any], float | None]:
    def share(run: Any) -> float | None:
        drafted = run.total("drafted_tokens")
        parts = {"accepted": run.total("accepted_tokens"), "drafted": drafted, "steps": run.total("verified_steps")}
        parts["rejected"] = drafted - parts["accepted"]
        parts["computed"] = run.total("forwarded_tokens")
        return (of == "length") + parts[part] / parts[whole] if drafted and parts[whole] else None

    return share


def _bubbles(run: Any) -> float | None:
    paced = float(run.made.gpu_paced_s.sum())
    return float(run.made.gpu_stalled_s.sum()) / paced if paced else None


def _empty(run: Any) -> float | None:
    steps = run.total("wave_steps")
    return run.total("empty_steps") / steps if steps else None


METRICS: tuple[Declared, ...] = (
    (
        "acceptance_length",
        "tokens of a step with drafts",
        _share("length", "accepted", "steps"),
        "tokens",
        "higher",
        "Tokens that a step with drafts brings a request, on average: one, and the drafts that were accepted; vLLM's "
        "mean acceptance length.",
    ),
    (
        "draft_acceptance",
        "acceptance of drafts",
        _share("share", "accepted", "drafted"),
        "share",
        "higher",
        "Accepted drafts over all that were computed. Those of steps in which a request was for nothing, since its end "
        "was not known yet, count as rejected.",
    ),
    (
        "wasted_tokens",
        "rejected drafts of all tokens computed",
        _share("share", "rejected", "computed"),
        "share",
        "lower",
        "Rejected drafts over all tokens that steps computed, prompts and answers.",
    ),
    (
        "bubble_share",
        "waiting of ranks or stages",
        _bubbles,
        "share",
        "lower",
        "Of the time of steps, what data-parallel ranks wait for the slowest one, or stages of a pipeline for work.",
    ),
    (
        "empty_step_share",
        "empty steps of ranks",
        _empty,
        "share",
        "lower",
        "Of the steps of data-parallel ranks that step together, those without a request of the rank.",
    ),
)
