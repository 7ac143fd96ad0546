"""Products of matrices, against the tables of kernels that ship: `prebleexp.hardware.products` and the step's equations
have what they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from prebleexp.commands.hardware_check import sizes
from prebleexp.hardware import fitting, products
from prebleexp.hardware.equations import Array
from prebleexp.hardware.measurements import read
from prebleexp.hardware.model import BYTES
from prebleexp.hardware.parameters import MEASURED

GPUS = ("h100", "h200", "b200", "l40s")
"""of which all precisions were measured that they have"""
BITS = ("bf16", "fp8", "fp4")
LARGE = 2e7
"""weights: no cache holds so many"""
START = {"gemm": (0.7, 0.8, 4e-6), "moe": (0.3, 0.8, 2e-5)}
CALLED = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "fp4", "fp8_block": "fp8"}


def linear(row: dict[str, str]) -> tuple[float, float, float]:
    """Operations, weights, and weights of which the table is."""
    m, n, k = (float(row[name]) for name in ("m", "n", "k"))
    return 2 * m * n * k, n * k, n * k


def experts(row: dict[str, str]) -> tuple[float, float, float]:
    """Likewise of one GPU's experts, of which so many are touched as if all were as likely."""
    tokens, hidden, ffn, active, count, tp, ep = (
        float(row[name]) for name in ("tokens", "hidden", "ffn", "active", "experts", "tp", "ep")
    )
    one = 3 * hidden * ffn / tp
    return 2 * tokens * active / ep * one, count / ep * (1 - (1 - active / count) ** tokens) * one, LARGE + 1


def fitted(table: str, power: float, gpus: tuple[str, ...] = GPUS, bits: tuple[str, ...] = BITS) -> tuple[Array, Array]:
    """Shares of both peaks, (2, precisions), and |predicted / measured − 1| of all rows."""
    known, of = sizes().gpus, linear if table == "gemm" else experts
    labels, numbers = list[tuple[int, int]](), list[tuple[float, float, float]]()
    for _, row in read(MEASURED / f"{table}.csv.gz", ("gpu", "dtype", "us")):
        precision = CALLED.get(row["dtype"], "")
        if row["gpu"] in gpus and precision in bits and not (table == "moe" and row["dtype"] == "fp8"):
            operations, weights, large = of(row)
            if large > LARGE:
                gpu = known[row["gpu"]]
                reading = weights * BYTES[precision] / (gpu.hbm_gb_s * 1e9)
                labels.append((gpus.index(row["gpu"]), bits.index(precision)))
                numbers.append((operations / gpu.peak_flops(precision), reading, float(row["us"]) / 1e6))
    (where, which), (computing, reading_, seen) = np.array(labels).T, np.array(numbers).T
    launches = 2 * len(bits) + where * len(bits) + which
    start = np.log(np.repeat(START[table], (len(bits), len(bits), len(gpus) * len(bits))))

    def residuals(x: Array) -> Array:
        logs = start + x
        shares = np.exp(logs[which]), np.exp(logs[len(bits) + which])
        both = ((computing / shares[0]) ** power + (reading_ / shares[1]) ** power) ** (1 / power)
        made: Array = (np.log(np.exp(logs[launches]) + both) - np.log(seen)) / 0.1
        return made

    def jacobian(x: Array, here: Array) -> Array:
        return np.column_stack([(residuals(x + step) - here) / 1e-4 for step in 1e-4 * np.eye(len(x))])

    x = fitting.mode(residuals, jacobian, np.ones(len(start)))
    return np.exp(start + x)[: 2 * len(bits)].reshape(2, -1), np.abs(np.exp(0.1 * residuals(x)) - 1)


@pytest.mark.thorough
def test_experts_reach_as_much_less_of_a_peak_with_fewer_bits_as_the_table_says() -> None:
    shares, _ = fitted("moe", 2.0)
    of = {precision: share / shares[0, 0] for precision, share in zip(BITS[1:], shares[0, 1:], strict=True)}
    assert of == pytest.approx(products.REACHED, abs=0.01)


@pytest.mark.thorough
def test_linear_layers_do_likewise() -> None:
    """Of the peak FLOP/s, and of the memory's bandwidth; steps do not have it."""
    shares, _ = fitted("gemm", 4.0)
    assert (shares / shares[:, :1])[0, 1:] == pytest.approx([0.75, 0.70], abs=0.03)


@pytest.mark.thorough
def test_a_product_turns_from_reading_to_computing_more_suddenly_than_experts_do() -> None:
    """Median and 90th percentile, in %, of an H100 in BF16: with the power of 4 and of 2."""
    assert said(lambda power: fitted("gemm", power, ("h100",), ("bf16",))[1], 4.0) == "4.1 / 11.4"
    assert said(lambda power: fitted("gemm", power, ("h100",), ("bf16",))[1], 2.0) == "4.6 / 14.2"
    sharp, round_ = (np.median(fitted("moe", power, ("h100",), ("bf16",))[1]) for power in (4.0, 2.0))
    assert sharp > round_


def said(errors: Callable[[float], Array], power: float) -> str:
    return " / ".join(f"{100 * np.quantile(errors(power), share):.1f}" for share in (0.5, 0.9))


@pytest.mark.parametrize(("weights", "always", "computed"), [("fp8", "", "fp8"), ("bf16", "fp4", "fp8")])
def test_at_the_peak_is_the_vendors(weights: str, always: str, computed: str) -> None:
    gpu = sizes().gpus["b200"]
    flops = products.at_peak(gpu, weights, always) * products.expert_flops(gpu, weights, always)
    assert flops == pytest.approx(gpu.peak_flops(computed))


def test_what_a_gpu_cannot_compute_in_is_computed_in_bf16() -> None:
    """A model's own 4-bit experts, too, where the GPU has no FP4."""
    gpus = sizes().gpus
    for name, weights, always in (("a100", "fp8", ""), ("a100", "bf16", "fp4"), ("h100", "bf16", "fp4")):
        assert products.expert_flops(gpus[name], weights, always) == gpus[name].peak_flops("bf16")
