"""The candidates as a table, and below it what else of them was chosen, and who does the same."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prebleexp.recommending.candidates import KEPT, Candidate
from prebleexp.recommending.designs import MODEL
from prebleexp.recommending.recommender import Recommender
from prebleexp.report import evidence
from prebleexp.report.recorded_plan import FEW
from prebleexp.report.wording import number, seconds

SPARE = ("TPOT p95", "TTFT p95", "evidence")
"""columns that a terminal does without, in this order, where it has no room"""
FEW_MISSES = "few misses"
"""of a recording whose misses fall into too few batches for an interval"""
NO_ROUTER = "none"
"""of one replica"""
NAMED = ("gpu", "tensor_parallel", "roles", "policy", MODEL)
"""of a design, what the table says"""


def heads(candidates: Sequence[Candidate]) -> list[str]:
    model = ["model"] if _has_models(candidates) else []
    return ["", "GPUs", *model, "router", "price/h", candidates[0].to_keep.measure, "TTFT p95", "TPOT p95", "evidence"]


def _has_models(candidates: Sequence[Candidate]) -> bool:
    return any(one.design.model for one in candidates)


def lines(candidates: Sequence[Candidate], best: Sequence[Candidate]) -> list[list[str]]:
    """Of text, a line for each; those of `best` but the first are marked."""
    made, has_models = [], _has_models(candidates)
    for i, one in enumerate(candidates, 1):
        model = [str(one.design.model)] if has_models else []
        seen = one.point.seen
        made.append(
            [
                f"{i}{'*' if one in best[1:] else ''}",
                gpus(one),
                *model,
                one.router or NO_ROUTER,
                _price(one),
                one.to_keep.said(*seen[KEPT]),
                seconds(seen.get("ttft_p95_s")),
                seconds(seen.get("tpot_p95_s")),
                evidence.word(one.cell),
            ]
        )
    return made


def gpus(of: Candidate) -> str:
    """ "2 A100", "4 L40S 2×TP2", "4 H100 1P+3D": replicas, and those of each role."""
    cell, hardware = of.cell, of.cell.hardware
    each = hardware.gpus_per_replica // hardware.stages
    spread = (f"TP{each}" if each > 1 else "") + (f"PP{hardware.stages}" if hardware.stages > 1 else "")
    said = [str(cell.gpus), hardware.gpu_name.upper()]
    if cell.cluster.has_roles:
        said.append("+".join(f"{one.replicas}{str(one.role)[0].upper()}" for one in cell.cluster.groups))
        said += [spread] if spread else []
    elif spread:
        said.append(spread if of.replicas == 1 else f"{of.replicas}×{spread}")
    return " ".join(said)


def _price(of: Candidate) -> str:
    """At the answer; in brackets what it may be besides, by what request streams leave open, or that they leave nothing
    open: of a recording whose misses fall into few batches that is not known."""
    low, high = of.ends
    alone = of.answer.alone
    if alone is not None and alone.ends is None:
        return f"{number(of.price)} (no interval)"
    few = alone is not None and alone.missed is not None and alone.missed < FEW
    below, above = low < of.price, high > of.price
    if math.isinf(high):
        said = f"{number(low)} or more" if below else "or more"
    elif below and above:
        said = f"{number(low)} to {number(high)}"
    else:
        said = f"from {number(low)}" if below else f"to {number(high)}" if above else FEW_MISSES if few else "sure"
    return f"{number(of.price)} ({said})"


def notes(made: Recommender, candidates: Sequence[Candidate]) -> list[str]:
    """What else of each was chosen of several, and which other routers do the same; a line for all that say the
    same."""
    said: dict[str, list[str]] = {}
    for i, one in enumerate(candidates, 1):
        said.setdefault(_note(made, one), []).append(str(i))
    return [f"{', '.join(of)}: {text}" for text, of in said.items() if text]


def _note(made: Recommender, of: Candidate) -> str:
    policy = str(of.design.at["policy"])
    chosen = [f"{key}={value}" for key, value in of.design.at.items() if key not in NAMED and value is not None]
    routers = dict.fromkeys(str(one.at["policy"]) for one in of.twins)
    others = [one for one in routers if one != policy]
    count = len({one.at["policy"] for one in made.space.designs})
    if count > 1 and of.replicas == 1 and len(made.equal.get(of.design.name, ())) == count:
        every = "both" if count == 2 else f"all {count}"
        return "; ".join([*chosen, f"{every} routers do the same, as there is one replica"])
    budgets = ["other budgets of the engine"] if len(others) < len(of.twins) else []
    same = [*others, *budgets]
    return "; ".join([*chosen, *([f"{', '.join(same)} did the same"] if same else [])])
