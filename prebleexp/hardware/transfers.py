"""How long bytes take from a GPU to elsewhere: a latency and a rate for each path (spec: hardware.md, Moving KV)."""

from __future__ import annotations

from dataclasses import dataclass

from prebleexp.hardware.gpu import Gpu

OF_PEAK = 0.8
"""share of a link's peak rate that is taken where it was not measured"""
NVLINKS = {"h100": (8e-6, 359e9), "a100": (14e-6, 289e9)}
"""send and receive within one host, as Vidur measured them"""


@dataclass(frozen=True)
class Path:
    latency_s: float
    bytes_s: float
    """a second"""
    known: str
    """measured or assumed"""

    def seconds(self, size: float) -> float:
        """For so many bytes at once; for many small ones it is longer."""
        return self.latency_s + size / self.bytes_s


def paths(gpu: Gpu) -> dict[str, Path]:
    """By name: nvlink to a GPU of the same host, network to another host (400 Gb/s a GPU), pcie to the host's memory,
    nvme to its disk."""
    found = {}
    if gpu.nvlink_gb_s > 0:
        measured = gpu.name in NVLINKS
        latency, rate = NVLINKS.get(gpu.name, (8e-6, OF_PEAK * gpu.nvlink_gb_s * 1e9))
        found["nvlink"] = Path(latency, rate, "measured" if measured else "assumed")
    found["network"] = Path(20e-6, 36e9, "measured")
    if gpu.pcie_gb_s > 0:
        found["pcie"] = Path(10e-6, OF_PEAK * gpu.pcie_gb_s * 1e9, "assumed")
    return found | {"nvme": Path(100e-6, 6e9, "assumed")}
