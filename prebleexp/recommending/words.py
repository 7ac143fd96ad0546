"""A recommendation in words and tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from prebleexp.experiment import counting
from prebleexp.experiment.shape import by_chance
from prebleexp.experiment.understood import doubted
from prebleexp.hardware.composed import Composed
from prebleexp.launch import places
from prebleexp.planning.contender import Contender
from prebleexp.recommending import not_run
from prebleexp.recommending.candidates import ALIKE, Candidate, alike
from prebleexp.recommending.designs import MODEL, WHOLE, Design
from prebleexp.recommending.recommender import Recommender
from prebleexp.report import beside, evidence, planned, recorded_plan, stored
from prebleexp.report.beside import EXTRAPOLATED
from prebleexp.report.wording import as_sentence, condition, number, whole_percent

STAR = "* it may cost no more than the first: what request streams leave open of the two prices overlaps"
BRACKETS = "Brackets, (sure) too, are of the request streams alone. {}"
OTHERS = ("gpu", "tensor_parallel", "roles", "policy")
"""of a design, what its name says"""


def sentence(made: Recommender) -> str:
    """The sentence that the page begins with."""
    first, *others = alike(made.candidates)
    contender = first.design.contender
    several = f"; {_equal(len(others))} cannot be told apart from it" if others else ""
    return (
        f"To keep {planned.promised(contender)}, {subject(contender)} {what(first)}{_with(first)}"
        f"{_budget(first)} for {number(first.price)} an hour{_ends(first)}{several}.{_only_theory(made.candidates)}"
    )


def _equal(count: int) -> str:
    """ "2 other candidates (2* to 3* in the table)": they come next to the first there."""
    if count == 1:
        return "1 other candidate (2* in the table)"
    return f"{count} other candidates (2* to {count + 1}* in the table)"


def _with(of: Candidate) -> str:
    return "" if of.router is None else f" with {of.router}"


def subject(of: Contender) -> str:
    """The subject and verb of the answer: "64 requests/s take", "this recording takes"."""
    if of.is_recorded:
        return "this recording takes"
    return f"{condition(of.load_key, of.load)} take"


def what(of: Candidate) -> str:
    """ "4 H100 (2 replicas of 2)" """
    return counting.named(of.cell)


def _only_theory(order: Sequence[Candidate]) -> str:
    """That nothing like the first was measured, and what is the cheapest of which step times were."""
    if evidence.word(order[0].cell) != evidence.THEORY:
        return ""
    known = [one for one in order if evidence.word(one.cell) == evidence.MEASURED]
    said = f" Its step times are {order[0].cell.hardware.support}"
    if not known:
        return f"{said}."
    return f"{said}; the cheapest that was is {what(known[0])} for {number(known[0].price)}."


def _budget(of: Candidate) -> str:
    own = [f"{key}={value}" for key, value in of.design.at.items() if key not in (*OTHERS, MODEL) and value is not None]
    served = [of.design.model] if of.design.model else []
    return f" ({', '.join([*served, *own])})" if served or own else ""


def _ends(of: Candidate) -> str:
    low, high = of.ends
    if math.isinf(high):
        return f" ({number(low)} or more)"
    return f" ({number(low)} to {number(high)})" if high > low else ""


def shown(made: Recommender) -> list[Candidate]:
    """Those that cannot be told apart from the best, and so many others that there are three."""
    same = alike(made.candidates)
    return [*same, *(one for one in made.candidates if one not in same)][: max(ALIKE, len(same))]


def other_models(made: Recommender) -> list[str]:
    """The cheapest of each model of which none is shown, or that none keeps the promise."""
    models = {one: f"with {one}" for one in made.space.models}
    return _others(made, models, lambda one: one.model, "Nothing that can be had keeps the promise {}.")


def other_kinds(made: Recommender) -> list[str]:
    """The cheapest of each kind of GPU that is not shown, or that none keeps the promise, or why none was tried."""
    kinds = {one.at["gpu"]: f"of {one.at['gpu'].upper()}" for one in made.space.designs}
    why: dict[str, dict[str, None]] = {}
    for one in made.space.left_out:
        if one.kind not in kinds:
            why.setdefault(one.kind, {})[one.reason] = None
    never = [f"No {kind.upper()} was tried: {'; '.join(reasons)}." for kind, reasons in why.items()]
    return [*_others(made, kinds, lambda one: one.at["gpu"], "Nothing {} that was tried keeps the promise."), *never]


def _others(made: Recommender, called: Mapping[str, str], of: Callable[[Design], str | None], none: str) -> list[str]:
    """A sentence for each name of which no design is shown. `called`: the names as they are said; `of`: the name of a
    design; `none`: what is said where none keeps the promise."""
    there, found = {of(one.design) for one in shown(made)}, []
    for name, said in called.items():
        if name in there:
            continue
        best = next((one for one in made.candidates if of(one.design) == name), None)
        if best is None:
            found.append(none.format(said))
        else:
            found.append(
                f"The cheapest {said}: {what(best)}{_with(best)} at {number(best.price)} an hour{_ends(best)}"
                f"{evidence.aside(best.cell)}."
            )
    return found


def left_out(made: Recommender) -> list[str]:
    """What was never run, and why, in few lines; and what failed."""
    failed = [f"a run of {name} failed, so that it keeps nothing: {why}" for name, why in made.failures.items()]
    named = {one.cell.hardware.precision for one in made.space.designs if isinstance(one.cell.hardware, Composed)}
    return [*failed, *not_run.lines(made.space.left_out, named)]


def marks(made: Recommender) -> list[str]:
    """What stars and brackets of the table mean."""
    off = made.candidates[0].cell.hardware.off
    moved = "" if made.strain is None else beside.moved(made.strain).rstrip(".")
    if moved:
        known = f"The first with other step times: {moved[0].lower()}{moved[1:]}"
    else:
        by = ", too" if off is None else f" by {whole_percent(off)}"
        known = f"Steps of the first may be off{by}, and plan says how many GPUs it takes then"
    star = [STAR] if len(alike(made.candidates)) > 1 else []
    return [*star, BRACKETS.format(known)]


def routers(of: Sequence[Candidate]) -> list[str]:
    """Each router in words, once."""
    names = dict.fromkeys(one.router for one in of if one.router is not None)
    said = {name: places.words("policy", name).rstrip(".") for name in names}
    return [f"{name} is this router: {words}." for name, words in said.items() if words]


def strained(made: Recommender) -> list[tuple[str, list[str]]]:
    """What the first does under a greater load and without a replica: (title, sentences)."""
    of = made.strain
    if of is None:
        return []
    lost = [*_routed(made), *beside.loss(of), *(as_sentence(one) for one in of.unknown)]
    found = [("Headroom of the first", beside.headroom(of)), ("The loss of a GPU", lost)]
    return [(title, said) for title, said in found if said]


def _routed(made: Recommender) -> list[str]:
    """Of which router the loss of a GPU is, where the first has none: the replica that is added needs one, and there
    routers no longer do the same."""
    first, of = made.candidates[0], made.strain
    if first.router is not None or of is None or of.spare is None or of.spare.requests < beside.FEWEST_DUE:
        return []
    name = first.design.at["policy"]
    others = {one.at["policy"] for one in made.space.designs} - {name, *(one.name for one, _ in of.others)}
    more = ", and another may keep more or less, which plan tells of those that policy= names" if others else ""
    return [f"One replica needs no router, two do: the loss is told with {name}{more}."]


def searched(made: Recommender) -> str:
    """How designs were searched, in a line."""
    rounds = " → ".join(f"{count:,}" for count in made.rounds)
    return f"{len(made.space.designs):,} designs in rounds of {rounds}"


def caveats(made: Recommender) -> list[str]:
    """Caveats of a recommendation, one sentence each: how well step times are known, what was not run, and why."""
    best = made.candidates[0]
    cell = best.cell
    found = [*other_models(made), *other_kinds(made)]
    kept = stored.formats(cell.hardware)
    said = [as_sentence(one) for one in (*by_chance([cell]), *doubted([cell]))]
    strain = made.strain
    if strain is not None and strain.of.contender.is_recorded:
        said += [as_sentence(one) for one in recorded_plan.warnings([strain.of])]
    said += [EXTRAPOLATED.format(best.point.beyond)] if best.point.beyond else []
    said += [f"Step times of the first: {cell.hardware.support}."] if cell.hardware.support else []
    said += [f"The first keeps {kept}."] if kept else []
    refused = {one.design.at["gpu"]: stored.refused(one.cell.hardware) for one in reversed(shown(made))}
    said += [f"{one}." for one in reversed(refused.values()) if one]
    if best.cell.cluster.has_roles or any(one.at["roles"] != WHOLE for one in best.twins):
        link = cell.cluster.link
        said.append(f"KV of split replicas moves over {link.gb_s:g} GB/s a GPU ({link.sharing}): say your own links.")
    return [*found, *said, *(as_sentence(one) for one in left_out(made))]
