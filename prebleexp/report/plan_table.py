"""The table of a plan, and what its columns mean."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.planning.planned import Planned
from prebleexp.planning.promise import ALL
from prebleexp.report import monthly, planned
from prebleexp.report.figures import Column, Table
from prebleexp.report.recorded_plan import OF_SIMILAR, SIMILAR

MEANINGS = {
    "requests/s": "The greatest load that keeps the promise on average over request streams.",
    "95 % interval": "Of the load, over seeds: Student's t at the estimate, through the slope of the share in the "
    "logarithm of the load.",
    "users": "The most who keep the promise on average over request streams, each playing one session after the other.",
    "GPUs": "The fewest of which the whole 95 % interval of the share, over seeds, meets the target.",
    "on average": "The fewest of which the mean share over seeds meets the target: each smaller number was tried.",
    "replicas": "Copies of the model: each is served by hardware.tensor_parallel of the GPUs.",
    SIMILAR: "The fewest of which the interval of the share reaches the target, to the fewest "
    "of which all of it does: for other streams like the recording.",
    ALL: "The share of requests within all limits at once, of the recording with so many GPUs.",
    "worst limit": "The share of requests within a limit, of the limit that is nearest to being broken; within all "
    "limits at once are fewer.",
    "margin": "By how many points the share of requests within a limit exceeds the share that was promised it, of the "
    "one nearest to being broken.",
    OF_SIMILAR: "The 95 % interval of that share, by contiguous batches of the recording's requests: of "
    "other streams like it, if it is stationary.",
    "of the first": "How many times the first line's load, or GPUs; over the seeds that both have, by jackknife, with "
    "a 95 % interval. The order of loads is by it.",
    planned.HOURS: "For a million requests at that load, on as many GPUs.",
    "price/h": f"Of all these GPUs, by price_per_gpu_hour; times {monthly.HOURS} it is a month's.",
    "cost/1M req": "For a million requests: those GPU-hours at their price, price_per_gpu_hour.",
    "seeds": "Request streams at the ends of the bracket.",
    "requests": "Of a run, that count. At every load a seed's stream is the same, only quicker or slower; of a "
    "recording, the same window with more or fewer sessions.",
}
OF_RECORDING = {
    "GPUs": "The fewest that keep the promise to this very recording: each smaller number was tried, and does not.",
    "requests": "That count, of the recording.",
}
"""in place of these"""


def table(found: Sequence[Planned]) -> Table:
    """A row for each contender, the best first."""
    heads = planned.heads(found)
    text = {*planned.axis_heads(found), "verdict", "95 % interval", SIMILAR, OF_SIMILAR}
    meanings = MEANINGS | OF_RECORDING if found[0].contender.is_recorded else MEANINGS
    columns = tuple(Column(head, head not in text, meanings.get(head, "")) for head in heads)
    return Table(columns, tuple(map(tuple, planned.lines(found))))
