"""What a page says of routing experiments that others measured: each stage beside what is simulated, and the gain of
routing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from prebleexp.experiment.cell import Cell
from prebleexp.intervals import mean_interval
from prebleexp.published import ladders
from prebleexp.published.ladders import ARMS, COUNTED, METRICS, TOKENS, Error, Measured, Published, Simulated
from prebleexp.report.figures import Column, Table
from prebleexp.report.finding import Finding
from prebleexp.report.wording import listed, number
from prebleexp.stages import Stage

TITLE = "Experiment by experiment"
NOTE = (
    "Published figures are those of llm-d's guides; nothing is fitted to them. Simulated ones are means over streams "
    "of requests, in brackets how far they are off. Tokens are those that the client counts."
)
Runs = Mapping[tuple[str, str], Sequence[tuple[Cell, Sequence[Stage]]]]
"""by experiment and line"""
SHOWN = {"output_tokens_per_s": "tokens/s", "ttft_mean_s": "mean TTFT, s"}


def simulated(runs: Runs) -> dict[tuple[str, str], Simulated]:
    """Those of experiments that are known."""
    return {
        (part, line): ladders.simulated(part, [(cell.workload.rates, stages) for cell, stages in of])
        for (part, line), of in runs.items()
        if part in COUNTED
    }


def compared(made: Mapping[tuple[str, str], Simulated], measured: Measured) -> list[Error]:
    """How far off each arm is that was measured, as each of the lines that may be it."""
    return [
        error
        for (experiment, arm), published in measured.items()
        for line in ARMS[arm]
        if (experiment, line) in made
        for error in ladders.errors(experiment, line, published, made[experiment, line])
    ]


def findings(runs: Runs) -> list[Finding]:
    made, measured = simulated(runs), ladders.read()
    drawn = any(cell.draws_costs for of in runs.values() for cell, _ in of)
    return [_finding(part, made, measured, drawn) for part in dict.fromkeys(part for part, _ in made)]


def _finding(part: str, made: Mapping[tuple[str, str], Simulated], measured: Measured, drawn: bool) -> Finding:
    lines = {line: of for (one, line), of in made.items() if one == part}
    arms = {line: measured.get((part, arm), {}) for arm, some in ARMS.items() for line in some}
    off = compared({key: of for key, of in made.items() if key[0] == part}, measured)
    columns, table = _side_by_side(lines, arms)
    far = tuple(
        (one.arm, one.metric, str(one.n), f"{100 * one.median_error:.1f} %", f"{100 * one.p90_error:.1f} %")
        for one in off
    )
    heads = (
        Column("arm", False),
        Column("metric", False),
        Column("stages", True),
        Column("median error", True, "Of |simulated / published − 1|, over the stages."),
        Column("90th percentile", True),
    )
    gain, said = _gain(lines, measured.get((part, "precise")), measured.get((part, "round_robin")), drawn)
    tokens = [one for one in off if one.metric == TOKENS]
    missed = [f"{one.arm} is {100 * one.median_error:.1f} % off in tokens/s, in the median" for one in tokens]
    sentences = (*([f"{'; '.join(missed)}."] if missed else []), *(_covered(lines, arms) if drawn else []), *said)
    numbers = {"errors": [vars(one) for one in off], "gain": gain}
    return Finding(part, part, part, sentences, Table(columns, table), Table(heads, far), numbers)


def _side_by_side(
    lines: Mapping[str, Simulated], arms: Mapping[str, Published]
) -> tuple[tuple[Column, ...], tuple[tuple[str, ...], ...]]:
    columns, rows = [Column("requests/s", True)], []
    shown = [(line, metric) for line in lines for metric in METRICS if metric in SHOWN]
    for line, metric in shown:
        if any(metric in of for of in arms.get(line, {}).values()):
            columns.append(Column(f"{line}, {SHOWN[metric]}: published", True))
        columns.append(Column(f"{line}, {SHOWN[metric]}", True))
    for rate in next(iter(lines.values())):
        row = [f"{rate:g}"]
        for line, metric in shown:
            mean, of = float(np.mean(lines[line][rate][metric])), arms.get(line, {})
            if any(metric in one for one in of.values()):
                said = of.get(rate, {}).get(metric)
                off = "" if said is None else f" ({100 * (mean / said - 1):+.0f} %)"
                row += ["–" if said is None else f"{said:,.9g}", number(mean, 4) + off]
            else:
                row.append(number(mean, 4))
        rows.append(tuple(row))
    return tuple(columns), tuple(rows)


def _covered(lines: Mapping[str, Simulated], arms: Mapping[str, Published]) -> list[str]:
    """In how many stages what was published is where one more draw of step times would be, in a sentence."""
    found = []
    for line, made in lines.items():
        known = {
            rate: of[TOKENS] for rate, of in arms.get(line, {}).items() if TOKENS in of and len(made[rate][TOKENS]) > 1
        }
        within = 0
        for rate, said in known.items():
            mean, half = mean_interval(made[rate][TOKENS], of_one=True)
            within += abs(mean - said) <= (half or 0.0)
        found += [f"{within} of {len(known)} stages of {line}"] if known else []
    return [f"Published tokens/s lie in the interval of one draw of step times in {listed(found)}."] if found else []


def _gain(
    lines: Mapping[str, Simulated], routed: Published | None, other: Published | None, drawn: bool
) -> tuple[dict[str, object], list[str]]:
    """Of the router fed by KV events over none."""
    if not {"precise", "round_robin"} <= lines.keys():
        return {}, []
    each = ladders.gains(lines["precise"], lines["round_robin"])
    if not each:
        return {}, []
    mean, half = mean_interval(each, of_one=drawn)
    within = "" if half is None else f" ± {half:.2f}"
    text = f"From {ladders.GAINED:g} requests/s on precise makes {mean:.2f}{within} times the tokens/s of round_robin"
    numbers: dict[str, object] = {"simulated": mean, "half_width": half}
    if routed and other:
        said = [
            routed[rate][TOKENS] / other[rate][TOKENS] for rate in routed if rate >= ladders.GAINED and rate in other
        ]
        numbers["published"] = float(np.mean(said))
        text += f"; measured were {np.mean(said):.2f}"
    return numbers, [f"{text}."]
