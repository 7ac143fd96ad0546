"""In which formats a deployment keeps its weights and its KV cache, and whether its GPU can."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prebleexp.errors import DoesNotFit
from prebleexp.hardware.base import Hardware
from prebleexp.hardware.composed import Composed
from prebleexp.planning.planned import Planned
from prebleexp.report.contenders import named

IN_BF16 = "hardware.kv_precision=bf16"
REFUSED = "--kv-cache-dtype fp8 needs a GPU of compute capability 8.9 or more"
"""Ada and later; Triton: "fp8e4nv data type is not supported on CUDA arch < 89" (vllm-project/vllm#7714)"""


def formats(hardware: Hardware) -> str:
    """ "weights in BF16, their experts in FP4; KV cache in FP8"; empty for hardware that is not composed."""
    if not isinstance(hardware, Composed):
        return ""
    experts = hardware.model.experts_apart(hardware.precision)
    own = f", their experts in {experts.upper()}" if experts else ""
    kv = f"{str(hardware.kv_precision).upper()}{'' if serves_kv(hardware) else ', as it was simulated'}"
    return f"weights in {hardware.precision.upper()}{own}; KV cache in {kv}"


def in_fp8(hardware: Hardware) -> str:
    """That the KV cache is simulated in FP8, as in benchmarks, and that engines must be told so; empty: it is not."""
    if not isinstance(hardware, Composed) or hardware.kv_precision != "fp8":
        return ""
    kept = "an engine left to itself keeps the cache in BF16, unless the checkpoint says FP8"
    told = "start vLLM with --kv-cache-dtype fp8" if serves_kv(hardware) else REFUSED
    return f"{formats(hardware)}; {kept}: {told}, or take {IN_BF16}, with half as many tokens"


def of_contenders(found: Sequence[Planned]) -> list[str]:
    """The same of a plan's contenders, each once, with those that it is of where that is not all."""
    alike: dict[str, list[Planned]] = {}
    for one in found:
        for said in dict.fromkeys(in_fp8(kind.hardware) for kind in one.contender.cell.kinds):
            alike.setdefault(said, []).append(one)
    return [said if len(of) == len(found) else f"with {named(of, found)}, {said}" for said, of in alike.items() if said]


def serves_kv(hardware: Composed) -> bool:
    """Whether engines can keep the KV cache on this GPU as it was simulated."""
    return hardware.kv_precision != "fp8" or hardware.gpu.fp8_tflops > 0


def refused(hardware: Hardware) -> str:
    """That engines cannot keep the KV cache as it was simulated, and what would be left; empty: they can."""
    if not isinstance(hardware, Composed) or serves_kv(hardware):
        return ""
    try:
        room = replace(hardware, kv_precision="bf16", kv_tokens=None, context_length=None).kv_tokens
        left = f"{room:,} tokens fit in BF16"
    except DoesNotFit:
        left = "in BF16 too little fits to serve at all"
    return (
        f"KV cache in FP8 was simulated on {hardware.gpu.name.upper()} ({hardware.kv_tokens:,} tokens), and {REFUSED}: "
        f"the files leave it out, {left}, and each takes twice as long to read; {IN_BF16} simulates that"
    )
