"""What a hardware model is: what a model step costs on a GPU, or on a group of GPUs that serves one copy of the model,
and how much KV fits."""

from __future__ import annotations

import importlib
from dataclasses import fields
from typing import Any, ClassVar

from prebleexp.hardware.domain import UNKNOWN, Domain
from prebleexp.sim.types import Layers
from prebleexp.sources import Part


class Hardware(Part):
    """Subclass it as a frozen dataclass and name the class in conf/hardware/<name>.yaml.

    `compiles` names a module with three functions that numba can compile (see `prebleexp.sim.cost`); `self` is what
    `numbers` gives, `mine` what `start` returned:

    - `request_ms(self, mine, new, length) -> float`
    - `step_s(self, mine, prefills, new, length, running, context, unique, requests_ms) -> float`
    - `decode_s(self, mine, running, context, unique, steps) -> float`
    """

    compiles: ClassVar[str]

    kv_tokens: int
    """tokens of KV that fit beside the weights"""
    context_length: int
    """tokens of a request, at most"""
    source: str
    """where the numbers are from"""

    @property
    def draws_costs(self) -> bool:
        """Whether `drawn` is another for each seed."""
        return False

    @property
    def gpu_name(self) -> str:
        """The GPU's kind, such as a100, by which engines choose their defaults; empty: not known."""
        return ""

    @property
    def gpus_per_replica(self) -> int:
        """GPUs that serve one copy of the model: what is simulated as one is so many."""
        return 1

    @property
    def replica_said(self) -> str:
        """What makes them so many, and how many of them are ranks of one deployment, in words of the command line."""
        return f"hardware.tensor_parallel={self.gpus_per_replica}"

    @property
    def ranks(self) -> int:
        """How many of these, data-parallel ranks of one deployment, step together; `compiles` then has `wave_s(self,
        mine, tokens) -> float`, too (see `prebleexp.sim.cost`)."""
        return 1

    @property
    def stages(self) -> int:
        """Of the pipeline through which each step goes, of which each takes as long."""
        return 1

    @property
    def handoff_s(self) -> tuple[float, float]:
        """Seconds a step, and seconds a token of it, from one stage to the next."""
        return 0.0, 0.0

    @property
    def gpu_memory_gib(self) -> float:
        """Memory of one of them, likewise; 0: not known."""
        return 0.0

    @property
    def frontend_s(self) -> tuple[float, float]:
        """Seconds a request, and seconds a token of its prompt, that it spends between the router and the engine's
        queue: HTTP and tokenising, beside the GPU."""
        return 0.0, 0.0

    @property
    def layer_kinds(self) -> tuple[Layers, ...]:
        """Kinds of the model's layers, in the order in which it has them; none: all look back to all of a context."""
        return ()

    @property
    def kv_bytes(self) -> float:
        """Of a token's KV, over all GPUs that share it; 0: nobody says, and none can be sent."""
        return 0.0

    def load_s(self, source_gb_s: float) -> float:
        """Seconds until its weights, from a source that gives so much a second, are on its GPUs; 0: nobody says how
        many they are."""
        return 0.0

    @property
    def layers(self) -> int:
        """Of the model, each with as much of that."""
        return 1

    @property
    def title(self) -> str:
        """What it is made of, for a reader who knows the option that was chosen; empty: that says it."""
        return ""

    @property
    def support(self) -> str:
        """How far its step times can be believed, in a line; empty: nobody says."""
        return ""

    @property
    def domain(self) -> Domain:
        """Of which sizes the measurements are that its step times were fitted to."""
        return UNKNOWN

    def served_by(self, project: str) -> Hardware:
        """The same under the engine of a project, such as vllm (empty: of none), if that matters to it. Raises
        InvalidInput if it is not offered with that one."""
        return self

    def drawn(self, seed: int) -> Hardware:
        """The same with what is not known of its costs as a seed draws it, where that is asked for."""
        return self

    @property
    def off(self) -> float | None:
        """Nine in ten times that were measured are within this share of what it says; None: nobody says."""
        return None

    def slowed(self, factor: float) -> Hardware:
        """The same with steps that take so many times as long, where `off` says how far they may be off."""
        raise AssertionError(f"{type(self).__name__} does not say how far it is off")

    def columns(self) -> dict[str, Any]:
        """What tables show of it: its fields, and `support`."""
        own: Any = self
        shown = {one.name: getattr(self, one.name) for one in fields(own) if one.metadata.get("key", True)}
        return shown | {"support": self.support, **self.domain.columns()}

    def kernels(self) -> Any:
        """That module. Not imported before it is needed: it imports numba."""
        return importlib.import_module(self.compiles)

    def numbers(self) -> Any:
        """None if the kernels read what `start` returns alone."""
        return None

    def start(self) -> Any:
        """A NamedTuple of numbers and arrays."""
        raise NotImplementedError
