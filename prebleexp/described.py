"""What a stream of requests looks like, in numbers."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from prebleexp.busiest import Busiest, busiest
from prebleexp.sim.types import Floats, Workload

SHARES = (0.05, 0.5, 0.9, 0.99)
"""of quantiles"""
WINDOWS_S = (1.0, 10.0, 60.0)
"""in which requests are counted"""
CACHES = (1_000_000, 3_000_000, 10_000_000, 30_000_000)
"""tokens"""


@dataclass(frozen=True)
class Quantiles:
    """Of some numbers: at `SHARES`, and the mean; NaN if there are none."""

    at: tuple[float, ...]
    mean: float


@dataclass(frozen=True)
class Description:
    """Times are in seconds, lengths in tokens. NaN: there is nothing that it could be measured by."""

    requests: int
    span_s: float
    """from the first start to the last, of requests that wait for nobody; so too, if others do:"""
    rate: float
    """requests a second"""
    busiest: Busiest | None
    """its busiest hour or minute; None of a stream of less than two minutes"""
    dispersion: Mapping[float, float]
    """by seconds of a window: variance / mean of the requests in it; 1 for a Poisson process"""
    gap_cv: float
    """standard deviation / mean of the gaps between starts"""
    gamma_shape: float
    """of a gamma distribution of gaps; NaN if some gap is 0"""
    input: Quantiles
    output: Quantiles
    unlimited: float
    """tokens found in a cache that forgets nothing / prompt tokens, in order of arrival"""
    reuse: Mapping[int, float]
    """by tokens of a cache that forgets what was used least recently"""
    sessions: int
    """that a request belongs to; one without a session is none"""
    several: int
    """of them, with more than one request"""
    turns: Quantiles
    """requests of a session"""
    gap: Quantiles
    """from a start to the next of its session, where requests have starts of their own"""
    think: Quantiles
    """from an answer to what comes after it, where requests wait for answers"""


def describe(workload: Workload, block_tokens: int = 1, caches: Sequence[int] = CACHES) -> Description:
    """`block_tokens`: a cache holds whole blocks of these."""
    starts = workload.arrival_s[workload.dated]
    gaps = np.diff(starts)
    turns = np.unique(workload.session[workload.session >= 0], return_counts=True)[1]
    span_s = float(starts[-1] - starts[0])
    return Description(
        requests=len(workload),
        span_s=span_s,
        rate=len(starts) / span_s if span_s else math.nan,
        busiest=busiest(starts),
        dispersion={window: dispersion(starts, window) for window in WINDOWS_S},
        gap_cv=float(gaps.std() / gaps.mean()) if span_s else math.nan,
        gamma_shape=gamma_shape(gaps),
        input=quantiles(workload.prompt_tokens),
        output=quantiles(workload.output_tokens),
        unlimited=reuse(workload, math.inf, block_tokens),
        reuse={size: reuse(workload, size, block_tokens) for size in caches},
        sessions=len(turns),
        several=int((turns > 1).sum()),
        turns=quantiles(turns),
        gap=quantiles(turn_gaps(workload)),
        think=quantiles(workload.delay_s[workload.waits > 0]),
    )


def quantiles(values: npt.NDArray[np.number]) -> Quantiles:
    if not len(values):
        return Quantiles((math.nan,) * len(SHARES), math.nan)
    return Quantiles(tuple(np.quantile(values, SHARES).tolist()), float(values.mean()))


def dispersion(starts: Floats, window_s: float) -> float:
    """Variance / mean of the counts in whole windows from the first start on; NaN of less than two."""
    counts = np.bincount(((starts - starts[0]) // window_s).astype(np.int64))[:-1]
    return float(counts.var() / counts.mean()) if len(counts) > 1 else math.nan


def gamma_shape(gaps: Floats) -> float:
    """Of a gamma distribution, by maximum likelihood to within 1.5 % (Minka's closed form). NaN if a gap is 0, if they
    are all equal, or if there are none."""
    if not len(gaps) or gaps.min() <= 0:
        return math.nan
    spread = math.log(gaps.mean()) - float(np.log(gaps).mean())
    if spread <= 1e-12:
        return math.nan
    return (3 - spread + math.sqrt((spread - 3) ** 2 + 24 * spread)) / (12 * spread)


def reuse(workload: Workload, tokens: float, block_tokens: int = 1) -> float:
    """Prompt tokens found in one cache / prompt tokens, in order of arrival.

    The cache holds whole segments, in blocks of `block_tokens`. A prompt finds those of its leading segments that are
    there without a gap; then all of it is there, and the answer that later prompts have, the first segment as the last
    one used, and what was used least recently goes until the rest fits into `tokens`.
    """
    ids, sizes = workload.segment_ids.tolist(), workload.segment_tokens.tolist()
    offsets, answers = workload.segment_offsets.tolist(), workload.answer_segment.tolist()
    generated = np.minimum(workload.output_tokens, workload.max_new_tokens)
    room, of_answer = (
        (-(-tokens.astype(np.int64) // block_tokens) * block_tokens).tolist()
        for tokens in (workload.segment_tokens, generated)
    )
    cached: OrderedDict[int, int] = OrderedDict()
    used = found = 0
    for request, (begin, end) in enumerate(pairwise(offsets)):
        row = begin
        while row < end and ids[row] in cached:
            found += sizes[row]
            row += 1
        context = [(ids[row], room[row]) for row in range(begin, end)]
        if answers[request] >= 0:
            context.append((answers[request], of_answer[request]))
        for segment, takes in reversed(context):
            if segment in cached:
                cached.move_to_end(segment)
            else:
                cached[segment] = takes
                used += takes
        while used > tokens:
            used -= cached.popitem(last=False)[1]
    return found / int(workload.prompt_tokens.sum(dtype=np.int64))


def turn_gaps(workload: Workload) -> Floats:
    """From the start of each request to that of the next one of its session, of those that wait for nobody."""
    own = np.flatnonzero((workload.session >= 0) & (workload.waits == 0))
    order = own[np.argsort(workload.session[own], kind="stable")]
    session = workload.session[order]
    found: Floats = np.diff(workload.arrival_s[order])[session[1:] == session[:-1]]
    return found
