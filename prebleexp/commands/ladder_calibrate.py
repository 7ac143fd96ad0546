"""`calibrate hardware` of a ladder or a router A/B: what was fitted, before and after, and whether that is better."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from prebleexp.calibration import factors, ladder
from prebleexp.calibration.factors import FACTORS
from prebleexp.calibration.fit import Fitted, fit, gains, shares
from prebleexp.calibration.ladder import METRICS, TOKENS, Arm
from prebleexp.calibration.simulated import Simulated
from prebleexp.commands import ladder_arms
from prebleexp.commands.arguments import Given
from prebleexp.commands.calibrated import Found, Stage, worst
from prebleexp.commands.taken import by_default
from prebleexp.errors import InvalidInput, unknown
from prebleexp.hardware import verdict
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.equations import Array
from prebleexp.hardware.parameters import Parameters, Support
from prebleexp.launch import tables
from prebleexp.waiting import waiting

WIDE = 1.96
"""standard deviations of a 95 % interval"""
SHOWN = {TOKENS: "tokens/s", "ttft_mean_s": "TTFT", "ttft_p90_s": "TTFT p90", "tpot_mean_s": "TPOT",
         "latency_mean_s": "latency"}  # fmt: skip
JUDGED = ("tpot_mean_s", "latency_mean_s", TOKENS)
"""whose error is that of step times, the first that was measured"""


def calibrated(
    given: Given, named: Sequence[str], into: Found, *, is_free: Callable[[Composed], object]
) -> tuple[Composed, Support] | None:
    """Print it all, and fill `into`. None: it is not better, and nothing is to be written; else what was fitted, and
    how good it is. Before minutes of fitting, `is_free` raises InvalidInput if that could not be written."""
    arms = {one.name: one for one in ladder_arms.read(given, named)}
    chosen = _chosen(given["fit"], arms)
    ladder.check(chosen)
    simulated = Simulated(chosen, given["replications"])
    is_free(simulated.hardware)
    with waiting(f"fitting {len(chosen.rungs)} stages of {chosen.name}"):
        found = fit(simulated)
    hardware = simulated.hardware
    cell = chosen.plays[0].cell
    behind = "1 replica" if cell.replicas == 1 else f"{cell.replicas} replicas behind {cell.names['policy']}"
    into.of = f"{len(chosen.rungs)} stages of {chosen.name}: {hardware.title} on {behind}"
    into.support = hardware.support
    print(f"{into.of}\nwhat ships: {into.support}\n")
    for sentence in by_default(cell, [*named, *given.others, f"policy={cell.names['policy']}"]):
        tables.say(f"prebleexp: {sentence}")
    into.factors = _factors(found, hardware)
    _show_parameters(found, hardware)
    into.stages = _show_stages(simulated, found.before, found.left_out, "by a fit to the other stages")
    others = [Simulated(one, given["replications"]) for name, one in arms.items() if name != chosen.name]
    for one in others:
        with waiting(f"serving {one.arm.name}, to which nothing is fitted"):
            made = [one(np.zeros(len(FACTORS))), one(found.logs)]
        print(f"\n{one.arm.name}, to which nothing was fitted")
        shown = _show_stages(one, made[0], made[1], f"by the fit to {chosen.name}")
        into.stages += [replace(stage, fitted=False) for stage in shown]
        into.gains += _show_gain(one, made, simulated, [found.before, found.after])
    if given["counted"] != 1:
        print(f"\ntokens/s are all that engines made: the client counted {given['counted']:g} of them")
    runs = sum(one.runs for one in (simulated, *others))
    print(f"{runs:,} simulations, {given['replications']} streams of requests", file=sys.stderr)
    if not found.told.any():
        print("\nthe ladder tells nothing that is not known: what ships stays as it is")
        return None
    print()
    into.judge(found.score)
    if found.score < verdict.SURE and given["write"] != "always":
        print("nothing is written; write=always writes the fit nevertheless")
        return None
    return factors.applied(hardware, found.logs), _support(simulated, found)


def _chosen(name: str | None, arms: dict[str, Arm]) -> Arm:
    if name is None and len(arms) > 1:
        raise InvalidInput(
            f"there are several arms; say to which to fit, the others are judged by it: fit={' or '.join(arms)}"
        )
    if name is not None and name not in arms:
        raise unknown("fit", name, list(arms))
    return arms[name] if name is not None else next(iter(arms.values()))


def _factors(found: Fitted, hardware: Composed) -> list[dict[str, Any]]:
    """Likewise, for programs; intervals are of 95 %."""
    before, after = hardware.parameters, factors.parameters(hardware, found.logs)
    rows = []
    for i, factor in enumerate(FACTORS):
        log, sd = (float(found.logs[i]), float(found.spread[i])) if found.told[i] else (0.0, float(found.prior[i]))
        names = factor.times + factor.shares
        moved = {name: [getattr(before, name), getattr(after, name)] for name in names}
        low, high = (float(np.exp(log + sign * WIDE * sd)) for sign in (-1, 1))
        row = {"name": factor.name, "told": bool(found.told[i]), "factor": float(np.exp(log))}
        rows.append({**row, "low": low, "high": high, "parameters": moved})
    return rows


def _show_parameters(found: Fitted, hardware: Composed) -> None:
    """A line for each factor, and one for each parameter that it moves."""
    before, after = hardware.parameters, factors.parameters(hardware, found.logs)
    assert isinstance(before, Parameters)
    lines = []
    for i, factor in enumerate(FACTORS):
        old, new = (
            f"(× {_interval(log, sd)})" for log, sd in ((0.0, found.prior[i]), (found.logs[i], found.spread[i]))
        )
        moved = ", ".join(
            f"{name} {getattr(before, name):.4g} → {getattr(after, name):.4g}" for name in factor.times + factor.shares
        )
        fitted = f"× {np.exp(found.logs[i]):.3f} {new}" if found.told[i] else "as it ships: the ladder does not tell"
        lines.append([factor.name, factor.words, old, fitted, moved if found.told[i] else ""])
    tables.show(["factor", "of the time of", "ships", "fitted", "parameters"], lines)


def _interval(log: float, sd: float) -> str:
    return f"{np.exp(log - WIDE * sd):.2f} to {np.exp(log + WIDE * sd):.2f}"


def _show_stages(of: Simulated, before: Array, after: Array, how: str) -> list[Stage]:
    """What was measured, and how far off it is, before and after, the largest by name."""
    names = [name for name in METRICS if any(name in rung.seen for rung in of.arm.rungs)]
    at = {one: column for column, one in enumerate(of.seen)}
    off = [shares(one, of.measured) for one in (before, after)]
    lines = []
    for i, rung in enumerate(of.arm.rungs):
        cells = [rung.name]
        for name in names:
            column = at.get((i, name))
            cells.append(
                "–"
                if column is None
                else f"{rung.seen[name]:.4g}: {100 * off[0][column]:+.1f} → {100 * off[1][column]:+.1f} %"
            )
        lines.append(cells)
    medians = ["median error"]
    for name in names:
        columns = [column for (_, one), column in at.items() if one == name]
        medians.append(" → ".join(f"{100 * np.median(np.abs(one[columns])):.1f}" for one in off) + " %")
    print(f"\nmeasured: error by what ships → {how}")
    tables.show(["stage", *(SHOWN[name] for name in names)], [*lines, medians])
    stages = []
    for i, name in of.seen:
        rung, column = of.arm.rungs[i], at[i, name]
        shown = float(off[0][column]), float(off[1][column])
        stages.append(Stage(of.arm.name, rung.name, SHOWN[name], rung.seen[name], shown[0], shown[1]))
    print(worst(stages))
    return stages


def _show_gain(arm: Simulated, made: Sequence[Array], base: Simulated, based: Sequence[Array]) -> list[dict[str, Any]]:
    """Of an arm over the one that was fitted: how many times the tokens/s, and how many times shorter the TTFT."""
    rates = [rung.rate for rung in arm.arm.rungs]
    rows = list[dict[str, Any]]()
    least = ladder.upper([rung for rung in base.arm.rungs if rung.rate in rates])
    for name, words in (
        (TOKENS, "{} times the tokens/s of {}"),
        ("ttft_mean_s", "a mean TTFT {} times as short as {}"),
    ):
        columns = _by_rate(arm, name, least), _by_rate(base, name, least)
        both = sorted(set(columns[0]) & set(columns[1]))
        if not both:
            continue
        these, those = ([column[rate] for rate in both] for column in columns)
        found = [gains(one, other, these, those) for one, other in zip(made, based, strict=True)]
        truth = float((arm.measured[these] / base.measured[those]).mean())
        if name != TOKENS:  # the less the better
            found, truth = [1 / one for one in found], 1 / truth
        row = {"arm": arm.arm.name, "over": base.arm.name, "metric": SHOWN[name], "from_rate": float(least)}
        rows.append(
            {**row, "measured": truth} | dict(zip(("before", "after"), (float(x.mean()) for x in found), strict=True))
        )
        before, after = (f"{one.mean():.3g}{_half(one)}" for one in found)
        print(
            f"from {least:g}/s on {arm.arm.name} has {words.format(f'{truth:.3g}', base.arm.name)}; simulated by what "
            f"ships {before}, by the fit {after}"
        )
    return rows


def _half(values: Array) -> str:
    from prebleexp.intervals import mean_interval

    _, half = mean_interval(values.tolist())
    return "" if half is None else f" ± {half:.2f}"


def _by_rate(of: Simulated, metric: str, least: float) -> dict[float, int]:
    found = {}
    for column, (i, name) in enumerate(of.seen):
        if name == metric and least <= of.arm.rungs[i].rate < np.inf:
            found[of.arm.rungs[i].rate] = column
    return found


def _support(of: Simulated, found: Fitted) -> Support:
    """Errors of the metric that says most of step times, of each stage by a fit to the others."""
    there = {name for _, name in of.seen}
    metric = next(name for name in (*JUDGED, *METRICS) if name in there)
    columns = [column for column, (_, name) in enumerate(of.seen) if name == metric]
    off = np.abs(shares(found.left_out, of.measured)[columns])
    against = f"a ladder of one's own, {SHOWN[metric]}"
    errors = float(np.median(off)), float(np.quantile(off, 0.9))
    return Support("ladder measured", against, len(columns), *errors, of.domain(found.logs))
