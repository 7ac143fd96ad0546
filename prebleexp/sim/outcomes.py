"""What comes out of a run: equal-length arrays, one element a request, or a GPU."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.sim.arrays import Floats, Ints, Longs
from prebleexp.sim.histogram import BINS
from prebleexp.sim.history import NOTHING, History
from prebleexp.sim.warmth import Begun


@dataclass(frozen=True)
class Outcome:
    """What became of every request (arrays of shape (n,)) and of every GPU (`gpu_…`, of shape (gpus,)).

    A column is declared here and nowhere else: kept requests and docs/tables.md are made from these lines.
    """

    gpu: Ints
    """where it was sent; -1: nowhere, since it was refused or the run ended first"""
    decode_gpu: Ints
    """where its output was generated: the same, unless prompts and outputs have GPUs of their own"""
    state: npt.NDArray[np.int8]
    """a `State`"""
    due_s: Floats
    """when it was due, in seconds from the start of the run (see `Workload`); NaN if the run ended first"""
    told_output: Floats
    """output tokens that the policy was told to expect; NaN if it does not read that, or there was no decision"""
    overhead_s: Floats
    """what its routing decision took; NaN if that is not counted, or if there was none"""
    router_wait_s: Floats
    """from when it was due until the router took it up; NaN likewise"""
    ttft_s: Floats
    """first token − due; NaN if there was none"""
    latency_s: Floats
    """last token − due; for unfinished requests as of their last report; NaN if there was none"""
    finish_s: Floats
    """when the last token came, in seconds from the start of the run; NaN if unfinished"""
    output_seen: Ints
    """output tokens as of the last report"""
    hit_tokens: Ints
    """prompt tokens found in the GPU's prefix cache at its last admission, or its first if the real engine says so"""
    gap_p99_s: Floats
    """99th percentile of the gaps between its tokens, as numpy interpolates it; NaN if there is none, or if the service
    level (slo) has no limit on gaps"""
    gap_top10_s: Floats
    """mean of the longest tenth of these gaps, rounded up to whole ones; NaN likewise. Of a request that began anew
    both are of its longest gaps, as many as its answer has"""
    prefilled_tokens: Ints
    """prompt tokens computed then; 0 if it was never admitted"""
    prefill_end_s: Floats
    """end of its prompt's computation − due: where one GPU does all, its first token; NaN if there was none"""
    transferred_tokens: Ints
    """of its prompt, read over a link by the GPU where its output was generated, in whole blocks"""
    host_tokens: Ints
    """prompt tokens loaded from the host memory of its GPU, at the admission of which `hit_tokens` is"""
    disk_tokens: Ints
    """prompt tokens loaded from the disk of its GPU, likewise"""
    shared_tokens: Ints
    """prompt tokens loaded from the cluster's shared store, likewise"""
    peer_tokens: Ints
    """prompt tokens fetched from another GPU's cache, or its host's memory, likewise"""
    moves: Ints
    """how often it was moved to another GPU, of which `gpu` is the last"""
    moves_aborted: Ints
    """how often that began and came to nothing"""
    stopped_s: Floats
    """seconds in which no GPU had it in its batch since the last stage of a move was under way"""
    losses: Ints
    """how often it was lost with its GPU; it is routed again as often, unless it ended so"""
    refused_by: Ints
    """what of the gateway refused it: 1 its limit, 2 its full queue, 3 the token bucket, 4 saturation, 5 a predicted
    time to first token; 0: nothing of it"""
    retries: Ints
    """attempts after its first that the gateway allowed it"""
    gpu_hit_tokens: Longs
    """prompt tokens found in the prefix cache, over all prefills"""
    gpu_host_tokens: Longs
    """prompt tokens loaded from its host memory, over all prefills"""
    gpu_disk_tokens: Longs
    """prompt tokens loaded from its disk, over all prefills"""
    gpu_shared_tokens: Longs
    """prompt tokens loaded from the cluster's shared store, over all prefills"""
    gpu_peer_tokens: Longs
    """prompt tokens fetched from another GPU's cache, or its host's memory, over all prefills"""
    gpu_prefilled_tokens: Longs
    """prompt tokens computed, over all prefills"""
    gpu_forwarded_tokens: Longs
    """tokens computed: prefills and decode"""
    gpu_recomputed_tokens: Longs
    """prompt tokens of requests sent back to the queue for want of memory"""
    gpu_requests: Longs
    """requests routed to it"""
    gpu_evicted_tokens: Longs
    gpu_retracted: Longs
    """how often a request was sent back to the queue for want of memory"""
    gpu_peak_kv_tokens: Longs
    """most KV in use at any time"""
    gpu_peak_running: Longs
    """most requests that a step made a token of; 0 where the engine has step times of its own"""
    gpu_peak_context_tokens: Longs
    """most tokens that the requests of such a step were long, all together: each counts, shared or not; 0 likewise"""
    gpu_lost_s: Floats
    """when it first went down, in seconds from the start of the run; NaN: never"""
    gpu_down_s: Floats
    """seconds, until the run ended, in which it was down"""
    gpu_on_s: Floats
    """seconds of it that are paid for: not while it was down, or drained and empty; while it was started, too"""
    end_s: float
    """when the run ended, in seconds from its start"""
    gaps_priority: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    """(classes,) the `priority` of each class of requests of which gaps between tokens are counted, ascending; none
    where the engine does not count them. Where requests have more than 16 priorities, they are of one class"""
    gaps_counts: Longs = field(default_factory=lambda: np.zeros((0, BINS), np.int64))
    """(classes, bins) gaps between tokens in each bin of `prebleexp.sim.histogram`, none of a warm-up stage"""
    gaps_sum_s: Floats = field(default_factory=lambda: np.zeros(0))
    """(classes,) what they add up to: the time from first tokens to last ones"""
    gaps_max_s: Floats = field(default_factory=lambda: np.zeros(0))
    """(classes,) the longest of them, exactly; 0 where there is none"""
    gpu_drafted_tokens: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """tokens of steps that were drafts (`engine.speculative_config`); none where the engine has no drafts"""
    gpu_accepted_tokens: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """of these, those that were accepted"""
    gpu_verified_steps: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """steps that verified drafts of a request, each request counted"""
    gpu_wave_steps: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """steps together with other ranks of its deployment"""
    gpu_empty_steps: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """of these, those without a request of its own"""
    gpu_paced_s: Floats = field(default_factory=lambda: np.zeros(0))
    """seconds of steps together with other ranks, or in which a pipeline had work"""
    gpu_stalled_s: Floats = field(default_factory=lambda: np.zeros(0))
    """of these, waiting for the slowest rank, or, on average over stages, for work"""
    history: History = NOTHING
    """what became of its GPUs over time, and what its autoscaler decided"""
    begun: Begun | None = None
    """what was there when it began; None: nothing was"""

    def __len__(self) -> int:
        return len(self.gpu)


OF_RUN = ("gpu_", "end_", "gaps_", "history", "begun")
OF_REQUESTS = tuple(one.name for one in fields(Outcome) if not one.name.startswith(OF_RUN))
"""the columns of an outcome with an element a request"""

COUNTS = (
    *("hit_tokens", "host_tokens", "disk_tokens", "shared_tokens", "peer_tokens"),
    *("moves", "moves_aborted", "losses", "refused_by", "retries"),
)
NEVER = ("told_output", "overhead_s", "router_wait_s", "gap_p99_s", "gap_top10_s")
GPU_COUNTS = (
    *("gpu_hit_tokens", "gpu_host_tokens", "gpu_disk_tokens", "gpu_shared_tokens", "gpu_peer_tokens"),
    *("gpu_recomputed_tokens", "gpu_evicted_tokens", "gpu_retracted", "gpu_peak_running", "gpu_peak_context_tokens"),
)


def lacking(requests: int, gpus: int) -> dict[str, Any]:
    """The columns that a simulator may lack, as they are where it has nothing like them: nothing found in a cache,
    moved, lost, refused or retried, no time of a decision or of a gap."""
    return {
        **dict.fromkeys(COUNTS, np.zeros(requests, np.int32)),
        **dict.fromkeys(NEVER, np.full(requests, np.nan)),
        "stopped_s": np.zeros(requests),
        **dict.fromkeys(GPU_COUNTS, np.zeros(gpus, np.int64)),
        "gpu_lost_s": np.full(gpus, np.nan),
        "gpu_down_s": np.zeros(gpus),
    }
