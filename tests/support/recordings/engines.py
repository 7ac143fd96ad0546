"""Recordings of the schedulers of real engines, and how an engine is driven as they were."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import Outcome, Workload
from tests.support.costs.linear_cost import LinearCost
from tests.support.places import ROOT
from tests.support.recordings.columns import Columns, load
from tests.support.shared_code import shares_code


def recordings(engine: str, names: str = "*.npz") -> list[Path]:
    """All of the folder named in PREBLEEXP_…_FIDELITY, or beside the checkout; else the few that are committed."""
    beside = os.environ.get(f"PREBLEEXP_{engine.upper()}_FIDELITY", ROOT.parent / "shared" / "fidelity" / engine)
    return sorted(Path(beside).glob(names)) or sorted((ROOT / "tests/data/fidelity" / engine).glob(names))


def workload_of(columns: Columns, **more: Any) -> Workload:
    return Workload(
        arrival_s=columns["arrival_ns"] / 1e9,
        prompt_tokens=np.add.reduceat(columns["segment_tokens"].astype(np.int64), columns["segment_offsets"][:-1]),
        output_tokens=columns["output_tokens"],
        prefix_group=columns["prefix_group"],
        segment_offsets=columns["segment_offsets"],
        segment_ids=columns["segment_ids"],
        segment_tokens=columns["segment_tokens"],
        answer_segment=columns["output_segment"],
        **more,
    )


def drive(
    config: dict[str, Any],
    workload: Workload,
    kv_tokens: int,
    engine: Any,
    on_event: Any = None,
    gpus: int = 1,
    **more: Any,
) -> Outcome:
    """As the recordings were, with one GPU. `more`: of the hardware."""
    costs = (config[name] / 1e9 for name in ("step_ns", "token_ns", "context_token_ns"))
    return simulate(
        workload,
        gpus=gpus,
        policy=RoundRobin(),
        hardware=LinearCost(*costs, kv_tokens=kv_tokens, **more),
        engine=engine,
        lengths=Max(),
        overhead=Overhead(),
        duration_s=1.0,
        horizon="drain",
        seed=0,
        on_event=on_event,
    )


class Driven:
    """An engine whose memory is kept at hand."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.__class__ = shares_code(type(engine))(type("Driven", (type(self),), {}))  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def start(self, setup: Any) -> Any:
        self.mine = self.engine.start(setup)
        return self.mine


def of_requests(columns: Columns, outcome: Outcome) -> Columns:
    return {
        "first_token_ns": ns(outcome.ttft_s + columns["arrival_ns"] / 1e9),
        "finish_ns": ns(outcome.finish_s),
        "first_cached_tokens": outcome.hit_tokens,
    }


def ns(seconds: Any) -> npt.NDArray[np.int64]:
    """−1: never."""
    times = np.asarray(seconds) * 1e9
    return np.rint(np.where(np.isnan(times), -1, times)).astype(np.int64)


def compare(replay: Callable[[dict[str, Any], Columns], Columns], paths: list[str]) -> None:
    """Replay recordings, and print in which columns each differs."""
    equal = 0
    for path in paths:
        config, columns = load(Path(path))
        wrong = [name for name, values in replay(config, columns).items() if not np.array_equal(values, columns[name])]
        equal += not wrong
        print(f"{path}: {len(columns['step_ns'])} steps, " + (f"differs in {', '.join(wrong)}" if wrong else "equal"))
    print(f"{equal} of {len(paths)} recordings equal")
