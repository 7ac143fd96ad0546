"""`prebleexp bench hardware`: nanoseconds in which it is said what a step takes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from prebleexp.bench.cpu import least_s
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.launch import configure
from prebleexp.sim import addresses
from prebleexp.sim.compiled import compiled
from prebleexp.sim.cost import decode_s, request_ms, step_s
from prebleexp.sim.plug import Plug
from prebleexp.sim.signatures import COST

HARDWARE = (
    "hardware=a6000_mistral_7b_monotone",
    "hardware=composed hardware/model=llama_3_1_8b",
    "hardware=composed hardware/model=gpt_oss_120b",
)
STEPS = 1_000_000


def hardware(names: Sequence[str] | None = None) -> list[Row]:
    """Nanoseconds that a cost model takes to price a step, by name of the hardware: called from machine code, as
    engines do."""
    rows = []
    for name in names or HARDWARE:
        model = configure.cells(["engine=vllm", *name.split()])[0].hardware
        plug = Plug(model, model.kernels(), model.start(), addresses.COST, COST)
        for what, ask in ASKED.items():
            ask(plug.record, 1)
            least = least_s(partial(ask, plug.record, STEPS))
            rows.append({"hardware": name, "what": what, "ns": round(least / STEPS * 1e9, 1)})
    return rows


@compiled
def decodes_s(cost: Any, steps: int) -> float:
    """Seconds of so many steps of various batches."""
    seconds = 0.0
    for step in range(steps):
        running = 1 + step % 256
        seconds += decode_s(cost, running, 1000 * running, 1000 * running, 1)
    return seconds


@compiled
def mixed_s(cost: Any, steps: int) -> float:
    """The same with a chunk of a prompt in each, of which `request_ms` is known."""
    seconds = 0.0
    for step in range(steps):
        running, new = 1 + step % 256, 1 + step % 2048
        context, length = 1000 * running, 2048
        seconds += step_s(cost, 1, new, length, running, context, context + length, 1.0)
    return seconds


@compiled
def requests_ms(cost: Any, steps: int) -> float:
    """Milliseconds of so many chunks of prompts, added up."""
    milliseconds = 0.0
    for step in range(steps):
        milliseconds += request_ms(cost, 1 + step % 2048, 2048)
    return milliseconds


ASKED = {"a step of decodes": decodes_s, "a step with a prompt": mixed_s, "a prompt's part": requests_ms}
TABLE = Table(hardware, {"ns": LESS})
