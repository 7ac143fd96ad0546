"""What kernels of attention take, fitted to the tables that ship: measured/kernels.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from prebleexp.hardware import fitting, kernels
from prebleexp.hardware.equations import Array
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.kernels import DECODE, EQUATIONS, MIXED, PREFILL, Calls, Kernel

START = {
    DECODE: Kernel(10e-6, 10e-9, 0.2e-9, 0.85, 80e6, 0.5),
    MIXED: Kernel(5e-6, 20e-9, 20e-9, 0.8, work=25e-9),
}
"""where the fit begins, and what its prior draws to"""
SPREAD = 1.0
"""standard deviation of each logarithm, but of the share"""
SHARE_SPREAD = 0.1
MOST_SHARE = 0.97
"""of the memory's bandwidth, so that nothing is read faster"""
SCATTER = 0.1
"""of measured times about the equations (of the logarithm)"""
DIFFERENCE = 1e-4


def fitted(kind: str, of: Calls, gpu: Gpu) -> Kernel:
    """To calls of a kind on one GPU. Same rows, same result, but for the last digits of linear algebra."""
    start = START[kind]
    names = [one.name for one in fields(Kernel) if getattr(start, one.name)]
    prior = np.log([getattr(start, name) for name in names])
    seen = np.log(of.seconds)

    def kernel(x: Array) -> Kernel:
        values = dict(zip(names, map(float, np.exp(prior + x)), strict=True))
        values["share"] = min(values["share"], MOST_SHARE)
        return Kernel(**{**vars(start), **values})

    def residuals(x: Array) -> Array:
        made: Array = (np.log(EQUATIONS[kind](of, gpu, kernel(x))) - seen) / SCATTER
        return made

    def jacobian(x: Array, here: Array) -> Array:
        return np.column_stack([(residuals(x + step) - here) / DIFFERENCE for step in DIFFERENCE * np.eye(len(x))])

    spread = np.array([SHARE_SPREAD if name == "share" else SPREAD for name in names])
    return kernel(fitting.mode(residuals, jacobian, spread))


def fitted_to(
    tables: Mapping[tuple[str, str, str], Calls], gpus: Mapping[str, Gpu]
) -> dict[tuple[str, str, str], Kernel]:
    """Of all kinds, GPUs and precisions; prefills alone are of the kernel of mixed calls."""
    joined: dict[tuple[str, str, str], Calls] = {}
    for (kind, *key), of in tables.items():
        name = (MIXED if kind == PREFILL else kind, key[0], key[1])
        joined[name] = kernels.joined(joined[name], of) if name in joined else of
    return {name: fitted(name[0], of, gpus[name[1]]) for name, of in joined.items()}


def kernels_csv(of: Mapping[tuple[str, str, str], Kernel]) -> str:
    """The text of measured/kernels.csv, of these kernels."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    names = [one.name for one in fields(Kernel)]
    writer.writerow(("kind", "gpu", "kv", *names))
    writer.writerows((*key, *(f"{getattr(one, name):.4g}" for name in names)) for key, one in sorted(of.items()))
    return file.getvalue()
