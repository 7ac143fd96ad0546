"""A cell: one complete configuration with one seed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from prebleexp.checks import integer, is_integer, is_number, require
from prebleexp.engines.base import Engine
from prebleexp.errors import InvalidInput
from prebleexp.hardware.model import Hardware
from prebleexp.lengths.base import Lengths
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.output_length import OutputLength

MOST_GPUS = 4096
HORIZONS = ("drain", "stop")
SPECS = ("policy", "workload", "output_length", "lengths", "hardware", "engine", "overhead")
NUMBERS = ("gpus", "rps", "duration_s", "horizon", "seed", "reports_ms")


@dataclass(frozen=True)
class Cell:
    """What determines a run. Raises InvalidInput, naming the key and what is valid, for values that are not.

    `names` says what tables call the specs (`lor`, `react` …); it changes no result and is not compared.
    """

    gpus: int
    rps: float
    """mean requests per second over all GPUs; does not matter to a recorded workload"""
    duration_s: float
    horizon: str
    """drain: until all is finished; stop: at duration_s"""
    seed: int
    policy: Policy
    workload: WorkloadSource
    output_length: OutputLength
    """does not matter to a recorded workload"""
    lengths: Lengths
    """does not matter to a policy that does not read lengths"""
    hardware: Hardware
    engine: Engine
    overhead: Overhead
    reports_ms: float = 0.0
    """how often routers hear of the GPUs' state; 0: they see that as it is"""
    names: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        integer("gpus", self.gpus, 1, MOST_GPUS)
        for name in ("rps", "duration_s"):
            value = getattr(self, name)
            require(is_number(value) and value > 0, name, value, "a finite number > 0")
        require(self.horizon in HORIZONS, "horizon", self.horizon, " or ".join(HORIZONS))
        require(is_integer(self.seed, 0, 2**63 - 1), "seed", self.seed, "an integer from 0 to 2^63 - 1")
        valid = is_number(self.reports_ms) and self.reports_ms >= 0
        require(valid, "reports_ms", self.reports_ms, "a number of milliseconds >= 0")
        if self.policy.reads_lengths:
            self.lengths.check(self.workload.predictors)

    @cached_property
    def stream(self) -> tuple[object, ...]:
        """What determines the request stream: cells with equal streams serve the same requests."""
        if not self.workload.synthetic:
            return (self.workload,)
        outputs = None if self.workload.own_outputs else self.output_length
        return (self.workload, outputs, self.rps, self.duration_s, self.seed)

    @property
    def left_out(self) -> list[str]:
        """What does not matter to the result: `lengths` that the policy does not read, what a recording has itself."""
        left_out = [] if self.workload.synthetic else ["rps", "output_length"]
        if self.workload.own_outputs:
            left_out.append("output_length")
        if not self.policy.reads_lengths:
            left_out.append("lengths")
        return left_out

    def identity(self, of: Callable[[Any], dict[str, object]] | None = None) -> dict[str, object]:
        """Everything that can change the result, as JSON-able values, all defaults filled in.

        `of` says what stands for a spec; `spec_identity` unless given.
        """
        of, left_out = of or spec_identity, self.left_out
        values: dict[str, object] = {name: getattr(self, name) for name in NUMBERS if name not in left_out}
        for name in SPECS:
            if name not in left_out:
                values[name] = of(getattr(self, name))
        return values

    def columns(self) -> dict[str, int | float | str | bool | None]:
        """The configuration as a table's columns: numbers, names of specs, and their fields as "policy.seed"."""
        row: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS}
        for name in SPECS:
            spec = getattr(self, name)
            row |= spec_columns(name, self.names.get(name, type(spec).__name__), fields_of(spec))
        return row


def spec_identity(spec: Any) -> dict[str, object]:
    """A spec's class and what stands for it: its `identity()` if it has one (for what it reads from files), else
    its fields."""
    kind = type(spec)
    own = spec.identity() if hasattr(spec, "identity") else fields_of(spec)
    return {"_target_": f"{kind.__module__}.{kind.__qualname__}", **own}


def spec_columns(name: str, option: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A spec as a table's columns: which option of its group, and its fields."""
    lists = (tuple, list, dict)
    texts = {key: json.dumps(value) if isinstance(value, lists) else value for key, value in fields.items()}
    return {name: option} | {f"{name}.{key}": value for key, value in texts.items()}


def fields_of(spec: Any) -> dict[str, Any]:
    """What its key knows of a spec. Raises InvalidInput if it is no dataclass."""
    if not dataclasses.is_dataclass(spec):
        raise InvalidInput(f"{type(spec).__name__} is not a dataclass; a spec's fields are its configuration")
    return {one.name: getattr(spec, one.name) for one in dataclasses.fields(spec) if one.metadata.get("key", True)}
