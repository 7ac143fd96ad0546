"""A cluster of several kinds of GPU: groups, each with its number of GPUs and what they cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from prebleexp.checks import integer
from prebleexp.hardware.base import Hardware
from prebleexp.sources import Part

MOST_GPUS = 4096


@dataclass(frozen=True)
class Group:
    """GPUs of one kind. Raises InvalidInput if there are none."""

    gpus: int
    hardware: Hardware

    def __post_init__(self) -> None:
        integer("cluster.groups: gpus", self.gpus, 1, MOST_GPUS)


@dataclass(frozen=True)
class Cluster(Part):
    """Groups of GPUs, which are numbered one group after the other; none: all `gpus` are of one kind, `hardware`.

    In YAML a group says how many GPUs it has, and in what they differ from `hardware`, in the words of the command
    line: `{gpus: 8, hardware/gpu: h200}`, `{gpus: 4, hardware/gpu: h100, hardware.utilisation: 0.8}`. How many there
    are in all is then no matter of `gpus`.
    """

    groups: tuple[Group, ...] = ()
    """how many GPUs of which kind; none: one kind"""

    @property
    def gpus(self) -> int:
        """Of all groups."""
        return sum(group.gpus for group in self.groups)

    def columns(self) -> dict[str, Any]:
        """What tables show, such as "8 x gpt-oss-120b in bf16 on h200, vllm"."""
        texts = [f"{group.gpus} x {group.hardware.title or type(group.hardware).__name__}" for group in self.groups]
        return {"groups": " + ".join(texts) or None}


ONE_KIND = Cluster()
