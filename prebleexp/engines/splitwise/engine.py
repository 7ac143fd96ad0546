"""Splitwise's own simulator as an engine: machines, and how requests are split between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import integer, one_of, require
from prebleexp.engines.base import Engine
from prebleexp.engines.splitwise.schedulers import ON_ONE_MACHINE, SCHEDULERS
from prebleexp.engines.splitwise.tables import KINDS, WEIGHTS, fingerprint, step_times
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats, Longs, Workload

STARTS = ("splitwise", "baseline", "orca")
MOST_MACHINES = 4096
USUAL = (5, 8)
"""prompt machines in a cluster of one kind: 25 of 40, as in the paper's plots"""


class Cluster(NamedTuple):
    """Which kind each machine is, and which machines prompts and tokens are computed on."""

    kinds: Longs
    """(machines,) which of `KINDS` each is"""
    prompt: range | Longs
    """those of the prompt pool"""
    token: range | Longs


@dataclass(frozen=True)
class Splitwise(Engine):
    """splitwise-sim 8f99e7d as released: a request's prompt is computed on one machine, its other tokens on another,
    and its KV goes over a link between. A replica is a machine of eight GPUs (DGX): `replicas=40`, or `gpus=320`.

    It has routers, step times and a model of its own: policy and hardware do not matter, and are left as they are.
    Prompts share nothing. TTFT is the end of the prompt, as the release reports it: the first token is shown before the
    KV is sent, and the time of that is in the gap to the second. `gpu` is the prompt's machine, `decode_gpu` that of
    the tokens. Slowdowns of a service level (slo) are over an A100 machine alone, read from the tables, as the paper's.

    Kept as released: the token table is read at the batch's size, though its x counts prompt tokens; kv_token_jsq and
    overlap_kv_token_jsq reduce what they never booked, so that one machine of each pool gets nearly all; the link is
    never shared; a transfer that finds no memory is tried again every second. A request that never fits waits for ever.
    Not kept: a request of one token has a token task of no length; if that is in a batch with a prompt, the release's
    clock goes back, and here it ends with the batch.
    """

    compiles: ClassVar[str] = "prebleexp.engines.splitwise.loop"
    brings: ClassVar[Mapping[str, str]] = {
        "policy": "lor",
        "hardware": "composed",
        "lengths": "max",
        "overhead": "none",
    }
    gpus_per_replica: ClassVar[int] = 8

    start_state: str = "splitwise"
    """splitwise: a pool of machines for prompts and one for tokens; baseline: each machine does both; orca: so too, and
    batches are of all who came, by arrival, until memory is full"""
    scheduler: str = "mixed_pool"
    """the router: token_jsq and jsq choose one machine, by fewest pending tokens or requests; kv_round_robin,
    kv_round_robin_ethernet, kv_jsq, kv_token_jsq, overlap_kv_jsq and overlap_kv_token_jsq one of each pool; mixed_pool
    too, and machines change over when theirs has too little to do"""
    model: str = "llama2-70b"
    """or bloom-176b"""
    a100: int = 0
    """so many machines, the first ones, are of A100; the others of H100"""
    h100_capped: int = 0
    """so many, the last ones, of H100 whose power is capped"""
    prompt_machines: int | None = None
    """so many, the first ones, are for prompts; null: those of H100 (not capped) if there are others, else five in
    eight"""
    token_machines: int | None = None
    """so many of those after them are for tokens; null: all the others"""

    def __post_init__(self) -> None:
        for name, valid in (("start_state", STARTS), ("scheduler", tuple(SCHEDULERS)), ("model", tuple(WEIGHTS))):
            one_of(f"engine.{name}", getattr(self, name), valid)
        for name in ("a100", "h100_capped"):
            integer(f"engine.{name}", getattr(self, name), 0, MOST_MACHINES)
        needs_pools = SCHEDULERS[self.scheduler][0] not in ON_ONE_MACHINE
        alone = tuple(name for name, (rule, _) in SCHEDULERS.items() if rule in ON_ONE_MACHINE)
        for name in ("prompt_machines", "token_machines"):
            value = getattr(self, name)
            if value is not None:
                require(self._splits, f"engine.{name}", value, f"null with engine.start_state={self.start_state}")
                integer(f"engine.{name}", value, 1, MOST_MACHINES)
        require(
            self._splits or not needs_pools,
            "engine.scheduler",
            self.scheduler,
            f"{' or '.join(alone)} with engine.start_state={self.start_state}, which has no pools",
        )

    @property
    def _splits(self) -> bool:
        return self.start_state == "splitwise"

    def identity(self) -> dict[str, object]:
        """Its fields, and the step times that ship."""
        return {**asdict(self), "step_times": fingerprint()}

    @property
    def own(self) -> Mapping[str, str]:
        return {"policy": self.scheduler, "hardware": f"{self.model} on {self._machines}"}

    @property
    def _machines(self) -> str:
        h100 = "DGX-H100"
        if self.a100:
            h100 = f"{self.a100} DGX-A100, others {h100}"
        return f"{h100}, {self.h100_capped} capped" if self.h100_capped else h100

    @property
    def support(self) -> str:
        return "medians of Splitwise's own measurements; those of tokens are read at the batch's size, as released"

    def check(self, gpus: int) -> None:
        self.cluster(gpus)

    def cluster(self, gpus: int) -> Cluster:
        """So many machines. Raises InvalidInput if they are fewer than the fields say, or a pool is empty."""
        h100 = gpus - self.a100 - self.h100_capped
        if h100 < 0:
            raise InvalidInput(
                f"engine.a100={self.a100} and engine.h100_capped={self.h100_capped} are not valid with "
                f"replicas={gpus}; there must be as many machines at least"
            )
        kinds = np.repeat(np.arange(len(KINDS)), (self.a100, h100, self.h100_capped))
        if not self._splits:
            return Cluster(kinds, range(0), range(0))
        prompt, token = self._pools(kinds)
        for name, pool in (("prompt", prompt), ("token", token)):
            if not len(pool):
                raise InvalidInput(
                    f"replicas={gpus} is not valid with {self._said}: no machine is left for {name}s; there must be "
                    "one for prompts and one for tokens"
                )
        most = int(max(prompt[-1], token[-1])) + 1
        if most > gpus:
            raise InvalidInput(f"replicas={gpus} is not valid with {self._said}; it must be {most} at least")
        return Cluster(kinds, prompt, token)

    @property
    def _said(self) -> str:
        """What a run's heading says of the machines."""
        names = ("a100", "h100_capped", "prompt_machines", "token_machines")
        given = [f"engine.{name}={getattr(self, name)}" for name in names if getattr(self, name)]
        return ", ".join(given) or f"engine.start_state={self.start_state}"

    def _pools(self, kinds: Longs) -> tuple[range | Longs, range | Longs]:
        gpus, is_h100 = len(kinds), kinds == KINDS.index("h100")
        if self.prompt_machines is None and self.token_machines is None and len(set(kinds.tolist())) > 1:
            return np.flatnonzero(is_h100), np.flatnonzero(~is_h100)
        prompts = self.prompt_machines
        if prompts is None:
            prompts = max(1, gpus * USUAL[0] // USUAL[1])
            prompts = prompts if self.token_machines is None else gpus - self.token_machines
        tokens = gpus - prompts if self.token_machines is None else self.token_machines
        return range(prompts), range(prompts, prompts + tokens)

    def alone(self, workload: Workload) -> tuple[Floats, Floats, Floats]:
        """By the tables, on a machine of A100: the prompt, and each further token at the prompt's length."""
        times = step_times(self.model)
        x, a100 = times.tokens[0], KINDS.index("a100")
        lengths = np.minimum(workload.output_tokens, workload.max_new_tokens)
        at = workload.prompt_tokens
        i = np.clip(np.searchsorted(x, at), 1, len(x) - 1)

        def of(y: Floats) -> Floats:
            return y[i - 1] + (y[i] - y[i - 1]) * (at - x[i - 1]) / (x[i] - x[i - 1])

        ttft_s, tpot_s = of(times.prompt_s[a100]), of(times.token_s[a100])
        return ttft_s, np.where(lengths > 1, tpot_s, np.nan), ttft_s + tpot_s * (lengths - 1)

    def own_loop(self) -> Any:
        from prebleexp.engines.splitwise.simulate import simulate  # nothing that is cached needs it

        return simulate
