"""Hold the shipped model against published experiments: python docs/published.py [STREAMS]

Writes the table of docs/validation.md, of what `prebleexp published` prints and of the gain of routing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from prebleexp.commands import published
from prebleexp.intervals import mean_interval
from prebleexp.published import ladders
from prebleexp.published.ladders import GAINED, TOKENS, Error, Simulated
from prebleexp.report.ladders import compared

PAGE = Path(__file__).parent / "validation.md"
CACHE = Path("cache")
BEGIN, END = "<!-- published experiments: python docs/published.py -->\n", "<!-- end of them -->\n"


def main(streams: int) -> None:
    made = published.simulated_ladders(streams, CACHE)
    rows = compared(made, ladders.read()) + published.of_closed_loops()
    for one in (published.SPLITWISE, published.DISTSERVE):
        rows += published.of_carried(one, CACHE)
    text = f"{errors(rows)}\n{gains(made)}\n({streams} streams of requests.)\n"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(before + BEGIN + text + END + rest.partition(END)[2], encoding="utf-8")


def errors(rows: list[Error]) -> str:
    lines = [
        "| experiment | arm | metric | n | median error, % | 90th percentile, % |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {one.experiment} | {one.arm} | {one.metric} | {one.n:,} | {100 * one.median_error:.1f} | {100 * one.p90_error:.1f} |"
        for one in rows
    ]
    return "\n".join(lines) + "\n"


def gains(made: dict[tuple[str, str], Simulated]) -> str:
    """How many times the tokens/s of round robin each line makes."""
    measured = ladders.read()
    lines = [
        f"| times the tokens/s of round_robin, {GAINED:g} requests/s and more | simulated | published |",
        "| --- | ---: | ---: |",
    ]
    for (experiment, line), of in made.items():
        if line != "round_robin":
            mean, half = mean_interval(ladders.gains(of, made[experiment, "round_robin"]))
            both = measured.get((experiment, line)), measured[experiment, "round_robin"]
            said = "–"
            if both[0]:
                each = [both[0][rate][TOKENS] / both[1][rate][TOKENS] for rate in both[0] if rate >= GAINED]
                said = f"{np.mean(each):.2f}"
            lines.append(f"| {experiment}, {line} | {mean:.2f}{'' if half is None else f' ± {half:.2f}'} | {said} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
