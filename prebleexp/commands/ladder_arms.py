"""From a user's ladder and the settings of a run to what is to be simulated: each arm, as it was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prebleexp.calibration import benchmarks, ladder
from prebleexp.calibration.ladder import Arm, Play, Rung, Table
from prebleexp.commands.arguments import Given
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.hardware import bench_results
from prebleexp.hardware.composed import Composed
from prebleexp.launch import configure
from prebleexp.launch.multirun import Multirun
from prebleexp.sim.types import Workload

SWEEP = "+sweeps="
USUAL = ("policy=round_robin", "gpus=1", "horizon=drain")
LONG_S = 1e9
"""longer than any benchmark: its requests all come"""


def takes(path: Path) -> bool:
    """Whether this is a ladder: a CSV of stages, results at rates, or a folder of folders of these, an arm each."""
    if path.is_dir() and not bench_results.files(path):
        return bool(_folders(path))
    return ladder.is_ladder(path) or (bench_results.are_results(path) and bench_results.at_rates(_results(path)))


def read(given: Given, named: Sequence[str]) -> list[Arm]:
    """All arms. `named` are overrides that the command's own settings stand for. Raises InvalidInput for what cannot be
    simulated as it was."""
    path: Path = given["data"]
    overrides = [*named, *given.others]
    if ladder.is_ladder(path):
        return _of_table(ladder.read(path, given["experiment"], given["counted"]), overrides)
    folders = _folders(path) if path.is_dir() and not bench_results.files(path) else {"": path}
    return [_of_results(arm, _results(one), _line(arm, overrides)) for arm, one in folders.items()]


def _results(path: Path) -> list[bench_results.Result]:
    return bench_results.read(path)


def _folders(path: Path) -> dict[str, Path]:
    return {one.name: one for one in sorted(path.iterdir()) if one.is_dir() and bench_results.files(one)}


def _of_results(name: str, results: Sequence[bench_results.Result], overrides: Sequence[str]) -> Arm:
    own = next((one for one in overrides if one.startswith(("workload=", "workload."))), None)
    if own is not None:
        raise InvalidInput(
            f"{own} is not valid with results of benchmarks, which say what was asked; for another workload give a CSV "
            f"with rate_rps and {', '.join(ladder.METRICS[:2])}"
        )
    cell = _cell(overrides)
    plays = [
        Play(cell, lambda seed, one=one: benchmarks.stream(one, seed), (benchmarks.rung(one),))  # type: ignore[misc]
        for one in results
    ]
    return Arm(name or cell.names["policy"], tuple(sorted(plays, key=lambda play: play.rungs[0].rate)))


def _of_table(table: Table, overrides: Sequence[str]) -> list[Arm]:
    if not any(one.startswith(("workload=", SWEEP)) for one in overrides):
        raise InvalidInput(
            "a CSV of stages does not say what was asked: add the workload, as workload=inference_perf "
            "workload.num_groups=150 …, or +sweeps=NAME whose lines are the arms"
        )
    stages = [f"[{rate:g}, {s:g}]" for rate, s in zip(_rates(table), table.durations, strict=False)]
    if stages and "workload=inference_perf" in overrides and not _sets(overrides, "workload.stages"):
        overrides = [*overrides, f"workload.stages=[{', '.join(stages)}]"]
    arms = []
    for name, rungs in table.arms.items():
        line = _line(name, overrides, table.experiment)
        arms.append(Arm(name or "ladder", _plays(rungs, line)))
    return arms


def _rates(table: Table) -> list[float]:
    return [one.rate for one in next(iter(table.arms.values()))]


def _sets(overrides: Sequence[str], key: str) -> bool:
    return any(one.lstrip("+").startswith(f"{key}=") for one in overrides)


def _plays(rungs: Sequence[Rung], line: Sequence[str]) -> tuple[Play, ...]:
    """One run that has all stages, or a run for each rate."""
    cell = _cell(line)
    rates = cell.workload.rates
    if not rates:
        if "rps" not in cell.workload.obeys:
            raise InvalidInput(
                f"workload={cell.names['workload']} is a recording, which has no rate of its own to be set; give one "
                "that obeys rps, or workload=inference_perf with its stages"
            )
        apart = [(_cell([*line, f"rps={one.rate!r}"]), one) for one in rungs]
        return tuple(Play(one, _drawn(one), (rung,)) for one, rung in apart)
    for one in rungs:
        if one.rate not in rates:
            valid = ", ".join(f"{rate:g}" for rate in rates)
            raise InvalidInput(f"rate_rps={one.rate:g} is not valid; workload.stages has {valid}")
    numbers = tuple(rates.index(one.rate) for one in rungs)
    return (Play(cell, _drawn(cell), tuple(rungs), numbers if cell.workload.staged else ()),)


def _drawn(cell: Cell) -> Any:
    def stream(seed: int) -> Workload:
        return runs.draw(replace(cell, seed=seed))

    return stream


def _line(arm: str, overrides: Sequence[str], experiment: str = "") -> list[str]:
    """The overrides of an arm: of the sweep's line of this name, or the router of this name."""
    sweep = next((one for one in overrides if one.startswith(SWEEP)), None)
    rest = [one for one in overrides if one != sweep]
    if sweep is not None:
        parts = {part.name: part for part in Multirun.of([sweep]).settings.parts}
        if experiment not in parts and len(parts) > 1:
            raise unknown("experiment", experiment, list(parts))
        part = parts.get(experiment) or next(iter(parts.values()))
        if arm not in part.lines:
            raise InvalidInput(f"arm={arm} is no line of {sweep}; it has {', '.join(part.lines)}")
        return [*USUAL, *part.overrides, *_params(part.params), *part.lines[arm], *rest]
    if arm and not _sets(rest, "policy"):
        return [*USUAL, f"policy={arm}", *rest]
    return [*USUAL, *rest]


def _params(params: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in params.items()]


def _cell(overrides: Sequence[str]) -> Cell:
    cell = configure.cells(list(_last(overrides)))[0]
    if cell.cluster.groups or not isinstance(cell.hardware, Composed):
        raise InvalidInput(
            "a ladder is fitted on GPUs of one kind whose cost is composed: give gpu=, model= and engine=, and no "
            "cluster.groups"
        )
    if cell.draws_costs:
        raise InvalidInput("hardware.uncertainty=true is not valid here: the fit starts from what is simulated without")
    return replace(cell, duration_s=LONG_S) if not cell.workload.rates and "rps" not in cell.workload.obeys else cell


def _last(overrides: Sequence[str]) -> list[str]:
    """Of each key what was said last."""
    found: dict[str, str] = {}
    for one in overrides:
        key = one.partition("=")[0].lstrip("+")
        found.pop(key, None)
        found[key] = one
    return list(found.values())
