"""How a model is spread over GPUs: each layer over the GPUs of a tensor-parallel group, layers over stages of a
pipeline, and experts over the GPUs of all data-parallel ranks. What fits then, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prebleexp.checks import flag, integer, not_valid, require
from prebleexp.errors import TooLittleMemory
from prebleexp.hardware.equations import all_reduces_s
from prebleexp.hardware.experts import Popularity, busiest
from prebleexp.hardware.transfers import paths
from prebleexp.sim.types import records

if TYPE_CHECKING:
    from prebleexp.hardware.composed import Composed

MOST_RANKS, MOST_STAGES = 8, 4
SENT = 4
"""bytes of a hidden element that go to the next stage: its state and the residual, in BF16"""


def check(of: Composed) -> None:
    """Raises InvalidInput for what cannot be spread so."""
    model, tp, experts = of.model, of.tensor_parallel, of.model.experts
    integer("hardware.data_parallel_size", of.data_parallel_size, 1, MOST_RANKS)
    integer("hardware.pipeline_parallel_size", of.pipeline_parallel_size, 1, min(MOST_STAGES, model.layers))
    flag("hardware.enable_expert_parallel", of.enable_expert_parallel)
    object.__setattr__(of, "expert_imbalance", Popularity.of(of.expert_imbalance))
    dp, pp = of.data_parallel_size, of.pipeline_parallel_size
    valid = f"false for {model.name}, which has no experts"
    require(experts > 0 or not of.enable_expert_parallel, "hardware.enable_expert_parallel", True, valid)
    valid = "1 with hardware.pipeline_parallel_size: ranks that are pipelines are not modelled"
    require(dp == 1 or pp == 1, "hardware.data_parallel_size", dp, valid)
    if not of.spreads_experts:
        valid = "1 without hardware.enable_expert_parallel=true: each GPU has a part of every expert"
        require(of.expert_imbalance == 1, "hardware.expert_imbalance", _given(of.expert_imbalance), valid)
        return
    gpus = tp * dp
    if gpus not in of.gpu.groups:
        valid = (
            f"such that with tensor_parallel={tp} they are {_or(of.gpu.groups)} {of.gpu.name}, whose links are known"
        )
        raise not_valid("hardware.data_parallel_size", dp, valid)
    valid = f"false for {experts} experts on {gpus} GPUs, which cannot have as many each"
    require(not of.enable_expert_parallel or experts % gpus == 0, "hardware.enable_expert_parallel", True, valid)
    valid = "1 without hardware.enable_expert_parallel=true: each GPU has a part of every expert"
    even = of.enable_expert_parallel or of.expert_imbalance == 1
    require(even, "hardware.expert_imbalance", _given(of.expert_imbalance), valid)
    busiest(of.expert_imbalance, experts, gpus)


def _given(given: Any) -> Any:
    return {name: value for name, value in vars(given).items() if value} if isinstance(given, Popularity) else given


def _or(numbers: tuple[int, ...]) -> str:
    return " or ".join(map(str, numbers))


def does_not_fit(of: Composed, fits: Callable[[int, str], bool]) -> TooLittleMemory:
    """Too little is left beside the weights; `fits` says of other groups of GPUs and precisions whether enough is."""
    gpu, model = of.gpu, of.model
    would = {
        precision: f"tensor_parallel={count} precision={precision}"
        for precision in gpu.precisions
        if (count := next((gpus for gpus in of.groups if fits(gpus, precision)), 0))
    }
    titled, gpus = model.stored(of.precision), f"{of.gpus_per_replica} {gpu.name}"
    weights = of.gpu_weights(of.tensor_parallel, of.precision) / 1e9
    said = f"{titled} does not fit on {gpus}: its weights take {weights:.0f} GB of "
    said += f"{of.utilisation * gpu.memory_gb:.0f} a GPU; "
    fitting = (
        f"on {gpu.name} these fit: {'; '.join(would.values())}" if would else f"it fits on no number of {gpu.name}"
    )
    return TooLittleMemory(said + fitting, titled, gpus, would)


# ---------------------------------------------------------------- what it costs
def cost(of: Composed, alone: Any, v: float) -> Any:
    """What `parallel_step` reads, of what `composed_step` would of a tensor-parallel group that has all experts.

    Attention, and layers without experts, are each rank's own, and so are their all-reduces. Tokens go to their experts
    and back by an all-gather and a reduce-scatter over all GPUs, as by vLLM's usual backend: the halves of an
    all-reduce, of which the measured times are taken, in place of the one behind the experts."""
    from prebleexp.hardware.parallel_step import COST

    tp, model, layers = of.tensor_parallel, of.model, of.model.expert_layers
    gpus = tp * of.data_parallel_size
    made = records(1, COST)[0]
    for name in alone.dtype.names:
        made[name] = alone[name]
    before_s, before_token_s = _all_reduce(of, tp)
    made.exchange, made.exchange_token = (v * layers * one for one in _all_reduce(of, gpus))
    made.fixed -= v * layers * before_s
    made.token -= v * layers * before_token_s
    made.experts, made.spread, made.ranks = 0, model.experts, of.data_parallel_size
    made.decodes = 0.0
    made.busiest = busiest(of.expert_imbalance, model.experts, gpus)
    made.expert_compute *= tp / gpus
    made.expert_memory *= tp / gpus
    return made


def _all_reduce(of: Composed, gpus: int) -> tuple[float, float]:
    """Seconds of one, and of each token."""
    if gpus == 1:
        return 0.0, 0.0
    latency, rate = of.gpu.link(gpus)
    return latency, all_reduces_s(of.model, 1, gpus, rate)


def handoff_s(of: Composed) -> tuple[float, float]:
    """Seconds a step, and a token, from a stage to the next: each GPU of a group sends its part to one there."""
    if of.pipeline_parallel_size == 1:
        return 0.0, 0.0
    ways = paths(of.gpu)
    way = ways.get("nvlink") or ways.get("pcie") or ways["network"]
    return way.latency_s, SENT * of.model.hidden / of.tensor_parallel / way.bytes_s


def said(of: Composed) -> str:
    """Settings that say how many GPUs a replica, or a deployment, takes: "hardware.tensor_parallel=2"."""
    sizes = {"data_parallel_size": of.ranks, "pipeline_parallel_size": of.stages}
    parts = [f"hardware.{name}={size}" for name, size in sizes.items() if size > 1]
    if of.tensor_parallel > 1 or not parts:
        parts.insert(0, f"hardware.tensor_parallel={of.tensor_parallel}")
    return " and ".join(parts)


def words(of: Composed) -> str:
    """What is spread, behind how many GPUs serve a copy: ", 8 ranks with experts over 8"."""
    parts = [f"{of.pipeline_parallel_size} stages"] if of.pipeline_parallel_size > 1 else []
    parts += [f"{of.data_parallel_size} ranks"] if of.data_parallel_size > 1 else []
    parts += ["expert parallel"] if of.enable_expert_parallel else []
    return "".join(f", {one}" for one in parts)


def unmeasured(of: Composed) -> str:
    """What of it no measurement says; empty: nothing."""
    parts = []
    if of.spreads_experts:
        gpus = of.tensor_parallel * of.data_parallel_size
        parts.append(f"experts over {gpus} GPUs, whose exchange is taken as a measured all-reduce")
    if of.pipeline_parallel_size > 1:
        parts.append(f"{of.pipeline_parallel_size} stages of equal time")
    return "; ".join((*parts, "no serving engine was measured so")) if parts else ""
