"""The table of a plan, and what its columns mean."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.planning.planned import Planned
from prebleexp.report import planned
from prebleexp.report.figures import Column, Table
from prebleexp.report.recorded_plan import HEADS

MEANINGS = {
    "requests/s": "The greatest load that keeps the promise on average over request streams.",
    "95 % interval": "Of the load, over seeds: Student's t at the estimate, through the slope of the share in the "
    "logarithm of the load.",
    "users": "The most who keep the promise on average over request streams, each playing one session after the other.",
    "GPUs": "The fewest of which the whole 95 % interval of the share, over seeds, meets the target.",
    "on average": "The fewest of which the mean share over seeds meets it.",
    "replicas": "Copies of the model: each is served by hardware.tensor_parallel of the GPUs.",
    "for similar streams": "The fewest of which the interval of the share reaches the target, to the fewest "
    "of which all of it does: for other streams like the recording.",
    "kept": "The share that was kept of the recording with so many GPUs.",
    "of similar streams": "The 95 % interval of that share, by contiguous batches of the recording's requests: of "
    "other streams like it, if it is stationary.",
    "of the first": "How many times the first line's load, or GPUs; over the same seeds, by jackknife, with a 95 % "
    "interval.",
    "GPU-hours of 1M": "For a million requests at that load, on as many GPUs.",
    "cost of 1M": "For a million requests, by price_per_gpu_hour: the price of one GPU.",
    "seeds": "Request streams at the ends of the bracket.",
    "of requests": "Of a run, that count. At every load a seed's stream is the same, only quicker or slower; of a "
    "recording, the same window with more or fewer sessions.",
}


def table(found: Sequence[Planned]) -> Table:
    """A row for each contender, the best first."""
    heads = planned.heads(found)
    text = {*(name for one in found for name in one.at), "verdict", "95 % interval", *HEADS}
    columns = tuple(Column(head, head not in text, MEANINGS.get(head, "")) for head in heads)
    return Table(columns, tuple(map(tuple, planned.lines(found))))
