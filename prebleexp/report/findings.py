"""What became of the paper's claims: every number, verdict and sentence is computed from the rows of the sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from prebleexp.report.claims import VARIANTS, Claim, Comparison, claims
from prebleexp.report.effects import Effect, Verdict, effect, overall
from prebleexp.report.figures import Column, Table
from prebleexp.report.summary import Row
from prebleexp.report.wording import NOTHING, listed, percent, percent_difference

NOTE = (
    "Effects are differences of average normalised latency between runs with the same request streams, relative to the "
    "other side's mean, with 95 % confidence intervals (Student's t over seeds). Each interval is for one comparison: "
    "of twenty true zeros one would be expected to look like an effect. Where fewer than all requests finished, "
    "averages are over those that reported."
)


@dataclass(frozen=True)
class Finding:
    """A claim, what each variant says of it, and the numbers."""

    name: str
    claim: str
    verdicts: tuple[tuple[str, Verdict], ...]
    """(variant, verdict)"""
    sentences: tuple[str, ...]
    effects: Table
    causes: Table
    measured: tuple[tuple[str, Effect], ...]
    """(variant, effect) behind the verdicts, then the suspected causes"""


def findings(parts: Mapping[str, Sequence[Row]]) -> list[Finding]:
    """One for each claim. `parts` are the rows of the sweep `paper`, by part; what is missing is not measured."""
    return [_finding(claim, parts) for claim in claims()]


def _finding(claim: Claim, parts: Mapping[str, Sequence[Row]]) -> Finding:
    tests = {variant: _effects(claim.tests.get(variant, ()), parts) for variant in VARIANTS.values()}
    causes = {variant: _effects(claim.causes.get(variant, ()), parts) for variant in VARIANTS.values()}
    verdicts = tuple((variant, overall(found)) for variant, found in tests.items())
    sentences = [_result(claim, variant, found) for variant, found in tests.items()]
    sentences += [_cause(variant, found) for variant, found in causes.items() if found]
    return Finding(
        claim.name,
        claim.text,
        verdicts,
        tuple(sentences),
        _table(tests, verdict=True),
        _table(causes, verdict=False),
        tuple((variant, one) for found in (tests, causes) for variant, effects in found.items() for one in effects),
    )


def _effects(comparisons: Sequence[Comparison], parts: Mapping[str, Sequence[Row]]) -> list[Effect]:
    found = [
        effect(
            parts, one.one, one.other, where=one.where, what=one.what, expected=one.expected, published=one.published
        )
        for one in comparisons
    ]
    return [one for one in found if one is not None]


def signed(effect: Effect) -> str:
    return percent_difference(effect.relative, effect.half_width)


def _result(claim: Claim, variant: str, effects: Sequence[Effect]) -> str:
    """What one variant says of a claim."""
    start = f"{variant.capitalize()}: "
    measured = [one for one in effects if one.half_width is not None]
    if not measured:
        return f"{start}not measured."
    verdict = overall(measured)
    span = _span(measured)
    if verdict is Verdict.REPRODUCED:
        return f"{start}it reproduces. {claim.subject}: {span}."
    if verdict is Verdict.SMALLER:
        sizes = [f"{abs(one.published) * 100:.4g} %" for one in measured if one.published is not None]
        numbers = listed(list(dict.fromkeys(sizes)))
        return f"{start}the sign reproduces but not the size ({numbers} published). {claim.subject}: {span}."
    if verdict is Verdict.OPPOSITE:
        return f"{start}the opposite holds. {claim.subject}: {span}."
    if verdict is Verdict.NONE:
        return f"{start}no effect is seen. {claim.subject}: {span}; every interval has zero in it."
    counts = Counter(one.verdict for one in measured)
    parts = [f"{count} {_plural(verdict, count)}" for verdict, count in counts.most_common()]
    return f"{start}mixed. Of {len(measured)} comparisons {listed(parts)}. {claim.subject}: {span}."


def _plural(verdict: Verdict, count: int) -> str:
    is_or_are = "is" if count == 1 else "are"
    return {
        Verdict.REPRODUCED: f"{'agrees' if count == 1 else 'agree'} with the claim",
        Verdict.SMALLER: f"{'has' if count == 1 else 'have'} its sign but a smaller size",
        Verdict.NONE: f"{is_or_are} within the noise",
        Verdict.OPPOSITE: f"{'says' if count == 1 else 'say'} the opposite",
    }[verdict]


def _span(effects: Sequence[Effect]) -> str:
    """The effects in words: all of a few, the range of many."""
    if len(effects) <= 2:
        return listed([f"{signed(one)} ({one.where})" for one in effects])
    ordered = sorted(effects, key=lambda one: one.relative)
    low, high = ordered[0], ordered[-1]
    return f"{signed(low)} ({low.what}, {low.where}) to {signed(high)} ({high.what}, {high.where})"


def _cause(variant: str, effects: Sequence[Effect]) -> str:
    """What switching suspected causes shows."""
    seen = [one for one in effects if one.half_width is not None and abs(one.relative) > one.half_width]
    start = f"Causes, {variant}: "
    if not seen:
        return f"{start}none of the {len(effects)} comparisons that switch a suspected cause shows an effect."
    named = [f"{one.what} {signed(one)} ({one.where})" for one in seen]
    quiet = len(effects) - len(seen)
    rest = f"; {quiet} other{'' if quiet == 1 else 's'} within the noise" if quiet else ""
    return f"{start}{listed(named)}{rest}."


def _table(effects: Mapping[str, Sequence[Effect]], *, verdict: bool) -> Table:
    columns = [
        Column("variant", False),
        Column("comparison", False),
        Column("where", False),
        Column("effect", True),
        Column("published", True),
        Column("seeds", True),
        Column("finished", True),
    ]
    rows = []
    for variant, found in effects.items():
        for one in found:
            published = NOTHING if one.published is None else f"{one.published * 100:+.4g} %"
            row = (variant, one.what, one.where, signed(one), published, str(one.seeds), percent(one.finished))
            rows.append((*row, one.verdict.value) if verdict else row)
    return Table((*columns, Column("verdict", False)) if verdict else tuple(columns), tuple(rows))
