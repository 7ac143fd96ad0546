"""How fast experts' products of matrices are, by the precision of their weights, where a share of 1 is what they reach
in BF16.

Tables of kernels of vLLM on H100, H200, B200 and L40S (measured/moe.csv.gz) say how much less of a peak is reached with
fewer bits. All of them were fitted together, with a launch for each GPU and precision, as `tests/fast/test_products.py`
does; closed loops of few models cannot tell. Of linear layers they say the same (FP8 .75, FP4 .70), but there closed
loops of models that were left out come out no better with it.
"""

from __future__ import annotations

from prebleexp.hardware.gpu import Gpu

REACHED = {"fp8": 0.55, "fp4": 0.5}
"""share of the peak FLOP/s, over that in BF16"""


def expert_flops(gpu: Gpu, weights: str, always: str) -> float:
    """A second, at a share of 1. `always`: in what a model stores its experts whatever the rest is (MXFP4; empty: as
    the rest). A precision in which the GPU cannot compute is computed in BF16."""
    computed = _computed(gpu, weights, always)
    return REACHED.get(computed, 1.0) * gpu.peak_flops(computed)


def at_peak(gpu: Gpu, weights: str, always: str) -> float:
    """e_xc at which experts reach what the vendor says."""
    return gpu.peak_flops(_computed(gpu, weights, always)) / expert_flops(gpu, weights, always)


def _computed(gpu: Gpu, weights: str, always: str) -> str:
    """A model's own 4-bit experts are computed in BF16, but on GPUs with FP4 in FP8 (MXFP8)."""
    computed = ("fp8" if gpu.peak_flops("fp4") else "bf16") if always else weights
    return computed if gpu.peak_flops(computed) else "bf16"
