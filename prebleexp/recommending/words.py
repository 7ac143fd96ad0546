"""A recommendation in words and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prebleexp.experiment import counting
from prebleexp.planning.contender import Contender
from prebleexp.recommending.candidates import ALIKE, Candidate, alike
from prebleexp.recommending.designs import WHOLE
from prebleexp.recommending.recommender import Recommender
from prebleexp.report import planned
from prebleexp.report.wording import NOTHING, condition, number, seconds, share

OTHERS = ("gpu", "tensor_parallel", "roles", "policy")
"""of a design, what its name says"""


def sentence(made: Recommender) -> str:
    """The sentence that the page begins with."""
    first, *others = alike(made.candidates)
    contender = first.design.contender
    several = f"; {len(others)} more cannot be told apart from it" if others else ""
    return (
        f"To keep {planned.promised(contender)}, {subject(contender)} {what(first)} with {first.design.at['policy']}"
        f"{_budget(first)} for {number(first.price)} an hour{_ends(first)}{several}."
    )


def subject(of: Contender) -> str:
    """The subject and verb of the answer: "64 requests/s take", "this recording takes"."""
    if of.is_recorded:
        return "this recording takes"
    return f"{condition(of.load_key, of.load)} take"


def what(of: Candidate) -> str:
    """ "4 H100 (2 replicas of 2)" """
    return counting.named(of.cell)


def _budget(of: Candidate) -> str:
    own = [f"{key}={value}" for key, value in of.design.at.items() if key not in OTHERS and value is not None]
    return f" ({', '.join(own)})" if own else ""


def _ends(of: Candidate) -> str:
    low, high = of.ends
    if math.isinf(high):
        return f" ({number(low)} or more)"
    return f" ({number(low)} to {number(high)})" if high > low else ""


def shown(made: Recommender) -> list[Candidate]:
    """Those that cannot be told apart from the best, and so many others that there are three."""
    same = alike(made.candidates)
    return [*same, *(one for one in made.candidates if one not in same)][: max(ALIKE, len(same))]


def heads(candidates: Sequence[Candidate]) -> list[str]:
    own = [key for key in _axes(candidates) if key not in OTHERS]
    return ["", "GPUs", "router", *own, "price/h", "may be", "kept", "TTFT p95", "TPOT p95", "also"]


def _axes(candidates: Sequence[Candidate]) -> list[str]:
    keys = dict.fromkeys(key for one in candidates for key in one.design.at)
    return [key for key in keys if len({str(one.design.at.get(key)) for one in candidates}) > 1 or key in OTHERS]


def lines(candidates: Sequence[Candidate], best: Sequence[Candidate]) -> list[list[str]]:
    """Of text, a line for each; those of `best` are marked."""
    own = [key for key in _axes(candidates) if key not in OTHERS]
    made = []
    for i, one in enumerate(candidates, 1):
        low, high = one.ends
        may = f"{number(low)} to {'…' if math.isinf(high) else number(high)}" if high > low else NOTHING
        at = [NOTHING if one.design.at.get(key) is None else str(one.design.at[key]) for key in own]
        seen = one.point.seen
        made.append(
            [
                f"{i}{'*' if one in best else ''}",
                what(one),
                str(one.design.at["policy"]),
                *at,
                number(one.price),
                may,
                share(seen["slo_attainment"], 3),
                seconds(seen.get("ttft_p95_s")),
                seconds(seen.get("tpot_p95_s")),
                twins(one),
            ]
        )
    return made


def twins(of: Candidate) -> str:
    """What served all streams in the very same way."""
    if not of.twins:
        return NOTHING
    routers = list(dict.fromkeys(str(one.at["policy"]) for one in of.twins))
    others = [one for one in routers if one != of.design.at["policy"]]
    said = [*others, *(["other budgets"] if len(others) < len(of.twins) else [])]
    return ", ".join(said)


def left_out(made: Recommender) -> list[str]:
    """What was never run, and why: each reason once."""
    reasons: dict[str, list[int]] = {}
    for one in made.space.left_out:
        reasons.setdefault(one.why, []).append(one.designs)
    said = [f"{sum(count):,} designs were not run: {why}" for why, count in reasons.items()]
    said += [f"a run of {name} failed, so that it keeps nothing: {why}" for name, why in made.failures.items()]
    return said


def searched(made: Recommender) -> str:
    """How designs were searched, in a line."""
    rounds = " → ".join(f"{count:,}" for count in made.rounds)
    return f"{len(made.space.designs):,} designs in rounds of {rounds}"


def caveats(made: Recommender) -> list[str]:
    """Caveats of a recommendation, one sentence each: how well step times are known, what was not run, and why."""
    best = made.candidates[0]
    cell = best.cell
    said = [f"Step times of the first: {cell.hardware.support}."] if cell.hardware.support else []
    if best.cell.replicas == 1:
        said.append(
            "The first has one replica: nothing is left when it is lost. `prebleexp plan` says what one more would do."
        )
    if best.cell.cluster.has_roles or any(one.at["roles"] != WHOLE for one in best.twins):
        link = cell.cluster.link
        said.append(f"KV of split replicas moves over {link.gb_s:g} GB/s a GPU ({link.sharing}): say your own links.")
    return [*said, *(f"{one[0].upper()}{one[1:]}." for one in left_out(made))]
