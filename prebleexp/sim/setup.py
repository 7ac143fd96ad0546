"""What a plug may know when a run begins."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from prebleexp.sim.types import Workload

FULL, SLIDING, CHUNKED = "full", "sliding", "chunked"
"""what a layer of attention looks back to: all of a context, a window, or where its chunk of the context begins"""


class Tables(NamedTuple):
    """Of blocks of KV, that each request has."""

    number: int
    told: int
    """whose blocks routers hear of"""
    share: float
    """of all KV of a token, that a block of any of them has"""


ONE_TABLE = Tables(1, 0, 1.0)


class Layers(NamedTuple):
    """Layers of a model that are alike."""

    kind: str
    """`FULL`, `SLIDING` or `CHUNKED`"""
    window: int
    """tokens of a window or a chunk; 0: full"""
    layers: int
    """how many they are"""


class Room(NamedTuple):
    """For requests that come one by one, with no end known, so that no workload says how many there are."""

    segments: int
    """rows of all prompts"""
    ids: int
    """of segments: all are less"""
    sessions: int
    """likewise"""


class Steps(NamedTuple):
    """How a GPU's engine makes its steps, as a router may be told."""

    engine: str = ""
    """whose it is, as engines say of themselves; empty: nobody's, or not known"""
    prefill_tokens: int = 0
    """tokens of prompts that a step computes at most; 0: no limit, or not known"""
    mixed: bool = True
    """whether prompts share steps with outputs; if not, a prompt holds up all that decode"""
    host_s: float = 0.0
    """of the host in every step, during which the GPU waits"""


@dataclass(frozen=True)
class Setup:
    """What a plug may know when a run begins."""

    gpus: int
    seed: int
    requests: int
    """how many there will be"""
    kv_tokens: int
    """that fit on a GPU"""
    context_length: int
    workload: Workload
    """for engines: a router that looks into it is an oracle"""
    gpu: str = ""
    """its kind; empty: not known"""
    gpu_memory_gib: float = 0.0
    """of one of them; 0: not known"""
    layer_kinds: tuple[Layers, ...] = ()
    """kinds of a model's layers, in the order in which it has them; none: all look back to all"""
    legs: bool = False
    """whether the second half of the requests is what computes the first half's prompts, on GPUs of their own"""
    pulls: bool = False
    """whether that is read by the GPUs that make outputs (pull), and not sent"""
    tiers: bool = False
    """whether tiers of KV stand behind the caches"""
    moves: bool = False
    """whether requests are moved from one GPU to another"""
    loads_s: tuple[tuple[float, float], ...] = ((math.inf, math.inf),) * 4
    """seconds that a load from a GPU's host, its disk, the store for all and another GPU takes, and a token of it;
    infinite: there is none"""
    counted: bool = True
    """whether what a decision counts in `View.work` takes time: else a router may leave out what changes no answer"""
    common_seed: int | None = None
    """the run's, where `seed` is that of one of several replicas of a router; None: that is the run's"""
    room: Room | None = None
    """for what comes, where `workload` does not say; the policy is told of names (see `policies.hashes.Names`)"""
    ranks: int = 1
    """GPUs, one after the other, that step together as data-parallel ranks of one deployment"""
    first: int = 0
    """the first GPU of this kind"""
    stages: int = 1
    """of the pipeline that each GPU, as it is simulated, is"""
    reads: bool = False
    """whether these GPUs make outputs alone, of KV that they read (pull) …"""
    decodes: bool = False
    """… and no prompt is computed there but of a request that lost its blocks"""
    steps: tuple[Steps, ...] = ()
    """for routers: how each GPU's engine makes its steps; empty: not known, as of servers behind a real router"""

    @property
    def lends(self) -> bool:
        """Whether GPUs lend each other KV."""
        return math.isfinite(self.loads_s[3][0])

    @property
    def last_tokens(self) -> npt.NDArray[np.int64]:
        """(n,) tokens, prompt and output, with which each request is finished."""
        output = np.minimum(self.workload.output_tokens, self.workload.max_new_tokens)
        whole: npt.NDArray[np.int64] = self.workload.prompt_tokens.astype(np.int64) + output
        return np.minimum(whole, self.context_length)

    @property
    def segments(self) -> int:
        """How many segments all prompts have."""
        return len(self.workload.segment_ids) if self.room is None else self.room.segments

    @property
    def segment_ids(self) -> int:
        """How many ids the segments of prompts have: all are less."""
        return 1 + int(self.workload.segment_ids.max(initial=-1)) if self.room is None else self.room.ids

    @property
    def context_ids(self) -> int:
        """The same, with those of answers."""
        return max(self.segment_ids, 1 + int(self.workload.answer_segment.max(initial=-1)))

    @property
    def sessions(self) -> int:
        """How many there are, numbered from 0."""
        return 1 + int(self.workload.session.max(initial=-1)) if self.room is None else self.room.sessions

    @property
    def agreed_seed(self) -> int:
        """Of what all replicas of a router agree on, such as hashes."""
        return self.seed if self.common_seed is None else self.common_seed

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the seed, from its beginning."""
        return np.random.default_rng(self.seed)
