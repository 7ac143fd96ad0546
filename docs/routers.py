"""Write the numbers of the sweeps `routers`, `sessions`, `faults` and `tuning` into docs/policies.md, each from its
report:

python docs/routers.py reports/routers/report.json reports/sessions/report.json reports/faults/report.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BEGIN, END = "<!-- {} by docs/routers.py -->", "<!-- until here -->"
TWICE = 100.0
TEN_S = 10.0


def ranking(rows: list[dict[str, Any]]) -> list[str]:
    """A row for each router, in order of its rank over all clusters."""
    clusters = list(dict.fromkeys(row["cluster"] for row in rows))
    ranks = list(dict.fromkeys(row["rank"] for row in rows if row["cluster"] == clusters[0]))
    found = {(row["cluster"], row["rank"]): row for row in rows}
    hits = {rank: found[clusters[0], rank]["hit_ratio"] for rank in ranks}
    busy = {rank: found[clusters[0], rank]["requests_max_over_mean"] for rank in ranks}
    return [
        f"| | {' | '.join(clusters)} | hit ratio | busiest GPU / mean |",
        f"| --- |{' ---: |' * (len(clusters) + 2)}",
        *(
            f"| {rank} | {' | '.join(_share(found[one, rank]['distance']) for one in clusters)} "
            f"| {hits[rank]:.2f} | {busy[rank]:.2f} |"
            for rank in ranks
        ),
    ]


def faults(rows: list[dict[str, Any]]) -> list[str]:
    """A row for each router: its p99 time to first token in the minute after each kind of loss, and how long it takes
    to recover, mean of all."""
    clusters = list(dict.fromkeys(row["cluster"] for row in rows))
    ranks = list(dict.fromkeys(row["rank"] for row in rows if row["cluster"] == clusters[0]))
    found = {(row["cluster"], row["rank"]): row for row in rows}
    return [
        f"| | {' | '.join(f'{one}, s' for one in clusters[1:])} | to recover, s |",
        f"| --- |{' ---: |' * len(clusters)}",
        *(
            f"| {rank} | {' | '.join(_seconds(found[one, rank]['after_loss_ttft_p99_s']) for one in clusters[1:])} "
            f"| {found[clusters[0], rank]['recovery_s']:.0f} |"
            for rank in ranks
        ),
    ]


def tuning(rows: list[dict[str, Any]]) -> list[str]:
    """A row for each router, in order of what its best setting gains."""
    best, worst = ({row["policy"]: row for row in rows if row["tried"].startswith(kind)} for kind in ("best", "worst"))
    return [
        "| | best setting against the default | worst |",
        "| --- | ---: | ---: |",
        *(
            f"| `{name}` | {_change(row)} | {_change(worst[name])} |"
            for name, row in sorted(best.items(), key=lambda one: one[1]["change"])
        ),
    ]


SWEEPS = {"routers": ranking, "sessions": ranking, "faults": faults, "tuning": tuning}


def numbers(report: dict[str, Any]) -> str:
    """What the page has of a sweep: what all figures say, and the table of the first."""
    name, figures = report["sweep"]["name"], report["figures"]
    rows = [dict(zip(figures[0]["columns"], row, strict=True)) for row in figures[0]["rows"]]
    said = " ".join(figure["headline"] for figure in figures)
    return "\n".join((BEGIN.format(name), "", said, "", *SWEEPS[name](rows), "", END))


def _change(row: dict[str, Any]) -> str:
    return f"{row['change']:+.1f} ± {row['half_width_95']:.1f} %".replace("-", "−")


def _share(percent: float) -> str:
    times = 1 + percent / 100
    return f"+{percent:.0f} %" if percent < TWICE else f"{times:.{1 if times < 10 else 0}f} ×"


def _seconds(value: float) -> str:
    return f"{value:.2g}" if value < TEN_S else f"{value:.0f}"


def main(paths: list[str]) -> None:
    page = HERE / "policies.md"
    text = page.read_text(encoding="utf-8")
    for path in paths:
        made = numbers(json.loads(Path(path).read_text(encoding="utf-8")))
        old = f"{re.escape(made.splitlines()[0])}.*?{END}"
        text = re.sub(old, lambda _, new=made: new, text, flags=re.DOTALL)  # type: ignore[misc]
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
