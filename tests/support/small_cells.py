"""Cells that are quickly computed, and what became of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.results import Result
from prebleexp.launch import configure
from prebleexp.policies.base import Policy


def cells(count: int, policy: Policy | None = None) -> list[Cell]:
    made = configure.cells(["gpus=2", "rps=4", "duration_s=3", f"replications={count}"])
    return made if policy is None else [replace(one, policy=policy) for one in made]


def kinds(results: list[Result]) -> list[str | None]:
    return [one.error.type if one.error else None for one in results]


def bytes_of(results: list[Result], cache: Cache) -> list[tuple[Any, bytes | None]]:
    paths = [cache.requests_path(result.key) for result in results]
    return [
        (result.metrics, path.read_bytes() if path.exists() else None)
        for result, path in zip(results, paths, strict=True)
    ]
