"""What the client of a benchmark sends: warm-ups first, and at most so many requests at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from prebleexp.sim.arrays import ragged
from prebleexp.sim.types import Floats, Longs, Workload
from prebleexp.workloads import azure_lengths, files
from prebleexp.workloads.blocks import Prompts


class Requests(NamedTuple):
    """Of n requests in the order in which they are sent."""

    prompts: Prompts
    group: Longs
    """(n,) which prefix; -1: none"""
    outputs: Longs
    due_s: Floats | None = None
    """(n,) when the data set itself says that each is sent"""


def identity(settings: Mapping[str, Any], dataset: str, path: str | None) -> dict[str, object]:
    """The settings of a benchmark, of which the contents of its file, or of that of ours which has its lengths, stand
    for `dataset_path`."""
    own = {name: value for name, value in settings.items() if name != "dataset_path"}
    if path is not None:
        own["sha256"] = files.digest(path)
    elif dataset == "azure_conversations":
        own["sha256"] = files.digest(str(azure_lengths.FILE))
    return own


def sent(made: Requests, due_s: Floats, most: int | None, warm: int, longest_warm: int | None = None) -> Workload:
    """`due_s`: (n,) seconds from when the benchmark begins until each request comes to the client's queue; `most` are
    under way at a time. Before, so many warm-ups of the first request, of which an answer is no longer than that."""
    n, total = len(made.outputs), len(made.outputs) + warm
    rows = np.concatenate([np.zeros(warm, np.int64), np.arange(n)])
    offsets, ids, tokens = _taken(made, rows)
    outputs = made.outputs[rows]
    later = np.arange(total) >= warm
    if longest_warm is not None:
        outputs = np.where(later, outputs, np.minimum(outputs, longest_warm))
    stage = later.astype(np.int32) - 1 if warm else np.zeros(total, np.int32)
    return Workload(
        arrival_s=np.concatenate([np.zeros(warm), due_s]),
        prompt_tokens=np.add.reduceat(tokens, offsets[:-1]),
        output_tokens=outputs,
        max_new_tokens=outputs,
        prefix_group=made.group[rows],
        segment_offsets=offsets,
        segment_ids=ids,
        segment_tokens=tokens,
        stage=stage,
        delay_s=np.where(later & (warm > 0), np.concatenate([np.zeros(warm), due_s]), 0.0),
        goes_on=np.ones(total, np.int32),
        after_ends=_after_ends(n, warm, most or total),
    )


def _after_ends(n: int, warm: int, most: int) -> Any:
    """The client lets the next one go when one of those under way has ended; warm-ups likewise, before."""
    ends = [np.maximum(np.arange(many) + 1 - most, 0) for many in (warm, n)]
    return np.concatenate([ends[0], np.where(ends[1] > 0, ends[1] + warm, 0)])


def _taken(made: Requests, rows: Any) -> tuple[Any, Any, Any]:
    """Segments of some of the requests, in this order."""
    offsets, ids, tokens = made.prompts
    into, at = ragged(offsets, rows)
    return into, ids[at], tokens[at]
