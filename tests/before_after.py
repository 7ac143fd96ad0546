"""What a change of the simulator changed: `python -m tests.before_after BEFORE AFTER`, two folders in which
`python -m prebleexp +sweeps=paper` and `+sweeps=prediction` were run, prints tables in Markdown for docs/validation.md.

Latencies are paired by seed, as described (engine=preble, two_point outputs, 8 GPUs); claims are those of the reports.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import numpy as np

from prebleexp.intervals import mean_interval

RUNS = """
    select policy, lengths, rps, seed, avg(norm_latency_mean_s) as latency from runs
    where engine = 'preble' and output_length = 'two_point' and overhead = 'none' and gpus = 8 and rps in (32, 64, 128)
        and workload = 'react' and (policy != 'e2' or "policy.window_s" = 180 and "policy.decode" = 'remaining'
        and "policy.request_cost" and "policy.eviction_cost" and "policy.rebalance_threshold" = 1.5
        and "policy.replicate_factor" = 2 and "policy.decode_heavy_hit_ratio" = 0.7)
    group by all order by all
"""


def latencies(folder: Path) -> dict[tuple[str, str, float], dict[int, float]]:
    """Mean normalised latency by policy, lengths and rate, and by seed."""
    found: dict[tuple[str, str, float], dict[int, float]] = {}
    with duckdb.connect(str(folder / "cache" / "prebleexp.duckdb"), read_only=True) as database:
        for policy, lengths, rps, seed, latency in database.execute(RUNS).fetchall():
            found.setdefault((policy, lengths, float(rps)), {})[seed] = latency
    return found


def changes(before: Path, after: Path) -> None:
    """A row a policy and rate: the mean before and after, and the paired change."""
    old, new = latencies(before), latencies(after)
    print("| policy | told | requests/s | before, ms/token | after, ms/token | change |")
    print("| --- | --- | --- | --- | --- | --- |")
    for policy, lengths, rps in sorted(old.keys() & new.keys()):
        a, b = old[policy, lengths, rps], new[policy, lengths, rps]
        seeds = sorted(a.keys() & b.keys())
        ratios = [100 * (b[seed] / a[seed] - 1) for seed in seeds]
        mean, half = mean_interval(ratios)
        means = [1e3 * float(np.mean([one[seed] for seed in seeds])) for one in (a, b)]
        print(
            f"| `{policy}` | {lengths} | {rps:g} | {means[0]:.1f} | {means[1]:.1f} | {mean:+.1f} ± {half or 0:.1f} % |"
        )


def claims(before: Path, after: Path) -> None:
    """A row a claim and variant: verdict before and after, and its first sentence."""
    print("| claim | read | before | after |\n| --- | --- | --- | --- |")
    found = [
        json.loads((folder / "reports" / "paper" / "report.json").read_text(encoding="utf-8"))["findings"]
        for folder in (before, after)
    ]
    for old, new in zip(*found, strict=True):
        for variant, verdict in old["verdicts"].items():
            if (verdict, _range(old, variant)) == (new["verdicts"][variant], _range(new, variant)):
                now = "the same, to the last digit"
            else:
                now = f"{new['verdicts'][variant]}: {_range(new, variant)}"
            print(f"| {old['claim'].split(':')[0]} | {variant} | {verdict}: {_range(old, variant)} | {now} |")


def _range(finding: dict[str, object], variant: str) -> str:
    """The effects that a claim is about, from the least to the greatest."""
    effects = finding["effects"]
    assert isinstance(effects, list)
    of = [one for one in effects if one["variant"] == variant and one["expected"] and one["relative"] is not None]
    if not of:
        return "–"
    ends = sorted(of, key=lambda one: one["relative"])
    return " to ".join(f"{100 * one['relative']:+.1f} ± {100 * one['half_width']:.1f} %" for one in (ends[0], ends[-1]))


def predictions(before: Path, after: Path) -> None:
    """A row a workload, policy and what it was told: how far it is from being told the truth, in the cells where that
    is least and most."""
    print("| outputs | policy | told | before | after |\n| --- | --- | --- | --- | --- |")
    for number, outputs in enumerate(("real questions", "1 or 300")):
        old, new = (_regrets(folder, number) for folder in (before, after))
        for policy, told in old:
            print(f"| {outputs} | `{policy}` | {told} | {old[policy, told]} | {new[policy, told]} |")


def _regrets(folder: Path, number: int) -> dict[tuple[str, str], str]:
    figure = json.loads((folder / "reports" / "prediction" / "report.json").read_text(encoding="utf-8"))["figures"][
        number
    ]
    rows = [dict(zip(figure["columns"], row, strict=True)) for row in figure["rows"]]
    of: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        of.setdefault((row["policy"], row["told"]), []).append((row["regret"], row["half_width_95"]))
    return {
        key: " to ".join(f"{regret:+.1f} ± {half:.1f} %" for regret, half in (min(found), max(found)))
        for key, found in of.items()
    }


if __name__ == "__main__":
    folders = Path(sys.argv[1]), Path(sys.argv[2])
    changes(*folders)
    print()
    claims(*folders)
    print()
    predictions(*folders)
