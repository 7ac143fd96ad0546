"""Small random workloads routed by E2 as released, recorded with the executable description of the release.

    python -m tests.make_recordings ../shared/spec/reference_model.py

writes tests/data/e2/<case>.npz: the workload's columns, the outcomes of both schedulers, and how many requests would
have gone elsewhere without one thing that the release does. The description works token by token, so that cases are
small; the host's cost of an idle step is large where a run is long.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent / "data" / "e2"
LONG = {"duration": 400, "step_cost_s": 0.05, "output_step_cost_s": 0.05}
RARE = LONG | {"unique": 60}
RAMP = [(0, 90, 0.4), (90, 180, 2.2), (180, 260, 0.3), (260, 330, 2.5)]
PAUSES = [(0, 40, 3.0), (230, 260, 3.0), (300, 320, 2.0)]
"""the second begins when the first has left the window, the third within it"""
COUNTS = ("expiry", "moves", "replication", "retracted", "evicted_tokens")
KEPT = {"preble": ("gpu", "ttft_s", "finish_s", *COUNTS), "empanada": ("gpu", "finish_s", *COUNTS)}
"""columns, by scheduler: not all, for the files' size"""
CASES: dict[str, dict[str, Any]] = {
    "together_g2": {"gpus": 2, "phases": [(0, 8, 16)], "kv": 4_000, "every": 0.5},
    "burst_g5": {"gpus": 5, "phases": [(0, 9, 30)], "kv": 3_000, "outputs": (1, 60)},
    "memory_g3": {
        "seed": 2,
        "gpus": 3,
        "phases": [(0, 8, 25)],
        "kv": 600,
        "sizes": (5, 60),
        "unique": 50,
        "outputs": (20, 120),
    },
    "deep_g4": {"gpus": 4, "phases": [(0, 15, 20)], "depth": 7, "branches": 2, "sizes": (1, 90)},
    "flat_g3": {"gpus": 3, "phases": [(0, 10, 20)], "depth": 1, "branches": 6, "sizes": (300, 1500), "unique": 40},
    "pauses_g3": {"gpus": 3, "phases": PAUSES, "kv": 20_000, **LONG},
    "pauses_g9": {
        "seed": 12,
        "gpus": 9,
        "phases": [(0, 4, 113), (230, 260, 2), (300, 320, 4)],
        **LONG,
        "duration": 330,
    },
    "ramp_g3": {"seed": 48, "gpus": 3, "phases": RAMP, "depth": 1, "sizes": (200, 900), **RARE},
    "ramp_g4": {"seed": 5, "gpus": 4, "phases": RAMP, "depth": 2, "branches": 2, "sizes": (100, 500), **RARE},
}
"""phases: (from, to, requests per second); the prompt tree: depth, branches of each node, sizes (tokens of a node),
unique (up to how many tokens of their own prompts have); every: all that arrive in so many seconds do so at once"""


def config(case: str, scheduler: str) -> dict[str, Any]:
    """What the reference is told of the cluster."""
    one = CASES[case]
    return {
        "scheduler": scheduler,
        "num_gpus": one["gpus"],
        "duration": one.get("duration", 30),
        "kv_tokens_effective": one.get("kv", 100_000),
        "context_len": 8_192,
        "step_cost_s": one.get("step_cost_s", 0.0006),
        "output_step_cost_s": one.get("output_step_cost_s", 0.03),
    }


def draw(case: str, seed: int) -> dict[str, Any]:
    """A workload's columns: paths down a random tree, cut short now and then, most with some tokens of their own."""
    one = CASES[case]
    rng = np.random.default_rng([seed, *case.encode()])
    arrivals = np.concatenate([rng.uniform(a, b, int((b - a) * rps)) for a, b, rps in one["phases"]])
    most, fewest = one.get("outputs", (1, 40))[::-1]
    arrivals = np.sort(np.ceil(arrivals * 1024) / 1024) + np.arange(len(arrivals)) * 2.0**-20
    if "every" in one:
        arrivals = np.floor(arrivals / one["every"]) * one["every"]
    ids: dict[tuple[int, ...], int] = {}
    sizes: list[int] = []

    def segment(path: tuple[int, ...], tokens: tuple[int, int]) -> int:
        if path not in ids:
            ids[path] = len(sizes)
            sizes.append(int(rng.integers(*tokens, endpoint=True)))
        return ids[path]

    prompts = []
    for i in range(len(arrivals)):
        depth = one.get("depth", 3)
        if rng.random() < 0.15:
            depth = int(rng.integers(1, depth, endpoint=True))
        weights = 1 / (1 + np.arange(one.get("branches", 3)))
        path = tuple(rng.choice(len(weights), size=depth, p=weights / weights.sum()).tolist())
        prompt = [segment(path[: k + 1], one.get("sizes", (20, 300))) for k in range(depth)]
        if rng.random() < 0.9:
            prompt.append(segment((*path, -1 - i), (1, one.get("unique", 200))))
        prompts.append(prompt)
    ends = np.cumsum([len(prompt) for prompt in prompts])
    segments = np.concatenate(prompts)
    tokens = np.array(sizes)[segments]
    limits = rng.integers(most, most + 30, size=len(arrivals))
    return {
        "arrival_s": arrivals,
        "prompt_tokens": np.add.reduceat(tokens, np.r_[0, ends[:-1]]).astype(np.int32),
        "output_tokens": np.minimum(rng.integers(fewest, most + 10, size=len(arrivals)), limits).astype(np.int32),
        "max_new_tokens": limits.astype(np.int32),
        "prefix_group": np.full(len(arrivals), -1, np.int32),
        "segment_offsets": np.r_[0, ends],
        "segment_ids": segments.astype(np.int32),
        "segment_tokens": tokens.astype(np.int32),
    }


def reference(path: Path) -> Any:
    """The module that describes the release, but that it takes candidates in ascending order.

    Its order is that of a Python set, which is ascending too for GPUs up to 7; beyond, that of the set's collisions.
    """
    spec = importlib.util.spec_from_file_location("reference_model", path)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.list = lambda values: sorted(values) if isinstance(values, set) else list(values)
    return module


@contextmanager
def without(released: Any, what: str) -> Iterator[None]:
    """The release but for one thing that it does."""
    router = released.ReleasedE2
    names = {"expiry": "_record", "moves": "_allocate_subtree", "replication": "_overloaded"}
    kept = getattr(router, names[what])

    def record(*given: Any) -> None:
        window, released.WINDOW_S = released.WINDOW_S, np.inf
        kept(*given)
        released.WINDOW_S = window

    setattr(router, names[what], record if what == "expiry" else lambda *given: False)
    yield
    setattr(router, names[what], kept)


def main(path: str) -> None:
    released = reference(Path(path))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for case, one in CASES.items():
        workload, outcomes = draw(case, one.get("seed", 1)), {}
        for scheduler in KEPT:
            told = config(case, scheduler)
            made = released.simulate(workload, told)
            for what in ("expiry", "moves", "replication"):
                with without(released, what):
                    made[what] = (released.simulate(workload, told)["gpu"] != made["gpu"]).sum()
            outcomes |= {f"{scheduler}.{column}": made[column] for column in KEPT[scheduler]}
        np.savez_compressed(FOLDER / case, **workload, **outcomes)
        print({name: int(value) for name, value in outcomes.items() if not value.ndim})


if __name__ == "__main__":
    main(*sys.argv[1:])
