"""What became of the paper's claims: every number, verdict and sentence is computed from the rows of the sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from prebleexp.metrics import NEITHER
from prebleexp.paper.claims import VARIANTS, Claim, Comparison, claims
from prebleexp.paper.effects import Effect, Verdict, effect, overall
from prebleexp.report.answer import Answer, Cell, Tone
from prebleexp.report.dots import Dot, DotRow
from prebleexp.report.drawings import Drawings
from prebleexp.report.figures import Column, Data, Entry, Figure, Table, dot_panels
from prebleexp.report.finding import Finding
from prebleexp.report.measure import Measure
from prebleexp.report.palette import STYLES
from prebleexp.report.summary import Row
from prebleexp.report.wording import listed, percent, percent_difference, signed_percent, signed_range

NOTE = (
    "Effects are differences of average normalised latency between runs with the same request streams, relative to the "
    "other side's mean, with 95 % confidence intervals (Student's t over seeds). Each interval is for one comparison: "
    "of twenty true zeros one would be expected to look like an effect. Where fewer than all requests finished, "
    "averages are over those that reported."
)


SAID = {
    Verdict.REPRODUCED: "reproduced",
    Verdict.SMALLER: "smaller than published",
    Verdict.MIXED: "true only in some places",
    Verdict.NONE: "without an effect",
    Verdict.OPPOSITE: "the opposite",
    Verdict.NOT_MEASURED: "not measured",
}
TONES = {
    Verdict.REPRODUCED: Tone.GOOD,
    Verdict.SMALLER: Tone.MIDDLING,
    Verdict.MIXED: Tone.MIDDLING,
    Verdict.NONE: Tone.NONE,
    Verdict.OPPOSITE: Tone.BAD,
    Verdict.NOT_MEASURED: Tone.NONE,
}
EFFECT, PUBLISHED = STYLES[0], STYLES[3]


@dataclass(frozen=True)
class Judged(Finding):
    """With what each variant says of the claim, and the effects behind that."""

    verdicts: tuple[tuple[str, Verdict], ...]
    """(variant, verdict)"""
    tested: tuple[tuple[str, Effect], ...]
    """(variant, effect)"""


def findings(parts: Mapping[str, Sequence[Row]], variants: Mapping[str, str] = VARIANTS) -> list[Judged]:
    """One for each claim. `parts` are the rows of a sweep, by part; what is missing is not measured. `variants`: how
    the names of parts end, and what that means."""
    return [judged(claim, parts, list(variants.values())) for claim in claims(variants)]


def judged(claim: Claim, parts: Mapping[str, Sequence[Row]], variants: Sequence[str]) -> Judged:
    """What the rows say of a claim, for each variant."""
    tests = {variant: _effects(claim.tests.get(variant, ()), parts) for variant in variants}
    causes = {variant: _effects(claim.causes.get(variant, ()), parts) for variant in variants}
    verdicts = tuple((variant, overall(found)) for variant, found in tests.items())
    sentences = [_result(claim, variant, found) for variant, found in tests.items()]
    sentences += [_cause(variant, found) for variant, found in causes.items() if found]
    tested = tuple((variant, one) for variant, effects in tests.items() for one in effects)
    switched = tuple((variant, one) for variant, effects in causes.items() for one in effects)
    effects = [
        {"variant": variant, **asdict(one), "verdict": one.verdict.value} for variant, one in (*tested, *switched)
    ]
    return Judged(
        claim.name,
        claim.short,
        claim.text,
        tuple(sentences),
        _table(tests, verdict=True),
        _table(causes, verdict=False),
        {"verdicts": {variant: verdict.value for variant, verdict in verdicts}, "effects": effects},
        verdicts,
        tested,
    )


def answer(found: Sequence[Judged]) -> Answer:
    """What became of all claims, in a sentence and in a table of words."""
    variants = tuple(dict.fromkeys(variant for finding in found for variant, _ in finding.verdicts))
    rows = tuple(
        (finding.short, tuple(_cell(verdict, finding, variant) for variant, verdict in finding.verdicts))
        for finding in found
    )
    said: dict[str, list[str]] = {}
    for variant in variants:
        verdicts = [verdict for finding in found for of, verdict in finding.verdicts if of == variant]
        counts = [(verdicts.count(verdict), words) for verdict, words in SAID.items()]
        said.setdefault(listed([f"{count} {words}" for count, words in counts if count]), []).append(variant)
    parts = [f"{listed(of)}: {text}" for text, of in said.items()]
    sentence = f"Of the paper's {len(found)} claims, {'; '.join(parts)}."
    return Answer(f"{sentence} {_differ(found)}", "The paper's claim", variants, rows)


def _differ(found: Sequence[Judged]) -> str:
    """Of which claims the variants say something else."""
    differing = [one.short for one in found if len({verdict for _, verdict in one.verdicts}) > 1]
    if not differing:
        return "They agree on all of them."
    if len(differing) == len(found):
        return "They differ on all of them."
    return f"They differ on {len(differing)} of the {len(found)}: {listed([f'“{short}”' for short in differing])}."


def _cell(verdict: Verdict, finding: Judged, variant: str) -> Cell:
    measured = [one for of, one in finding.tested if of == variant and one.half_width is not None]
    if not measured:
        return Cell(verdict.value, TONES[verdict], "")
    if len(measured) == 1:
        return Cell(verdict.value, TONES[verdict], signed_percent(measured[0].relative, measured[0].half_width))
    sizes = [100 * one.relative for one in measured]
    return Cell(verdict.value, TONES[verdict], signed_range(min(sizes), max(sizes)))


def overview(found: Sequence[Judged], drawings: Drawings, before: str = "") -> Figure:
    """The effects behind all verdicts, a row for each claim, and what the paper published. The answer begins with
    `before`."""
    variants = tuple(dict.fromkeys(variant for finding in found for variant, _ in finding.verdicts))
    rows = {
        variant: [
            DotRow(finding.short, _dots([one for of, one in finding.tested if of == variant])) for finding in found
        ]
        for variant in variants
    }
    measure = Measure("effect", "difference of average normalised latency", "%", "", better=NEITHER)
    data = Data(
        ("claim", "variant", "what", "where", "effect", "half_width_95", "published"),
        tuple(
            (finding.name, variant, one.what, one.where, one.relative, one.half_width, one.published)
            for finding in found
            for variant, one in finding.tested
        ),
    )
    tables = [finding.effects for finding in found]
    says = answer(found)
    says = replace(says, sentence=f"{before} {says.sentence}".strip())
    panels, caption = dot_panels(rows, [says.sentence] * len(rows), measure, "claims", drawings)
    return Figure(
        name="claims",
        number="",
        title="The effects behind the verdicts",
        command="",
        x=measure.label,
        y="",
        answer=says,
        losses="",
        panels=tuple(panels),
        paired=True,
        left_out=0,
        legend=(
            Entry("a comparison, with its 95 % interval", EFFECT, line=False),
            Entry("what the paper has", PUBLISHED, line=False),
        ),
        caption=caption,
        table=Table(tables[0].columns, tuple(row for table in tables for row in table.rows)),
        data=data,
    )


def _dots(effects: Sequence[Effect]) -> tuple[Dot, ...]:
    measured = [Dot(100 * one.relative, 100 * (one.half_width or 0), EFFECT) for one in effects]
    published = dict.fromkeys(100 * one.published for one in effects if one.published is not None)
    return (*measured, *(Dot(size, None, PUBLISHED) for size in published))


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
    seen: dict[str, list[Effect]] = {}
    for one in effects:
        if one.half_width is not None and abs(one.relative) > one.half_width:
            seen.setdefault(one.what, []).append(one)
    if not seen:
        return f"{variant.capitalize()}, none of {len(effects)} switches of a suspected cause shows an effect."
    named = []
    for what, found in seen.items():
        line, _, base = what.partition(" against ")
        switched = line.startswith(f"{base}, ")
        verb = f'"{line.removeprefix(f"{base}, ")}" changes {base} by' if switched else f"{line} differs from {base} by"
        named.append(f"{verb} {listed([f'{signed(one)} ({one.where})' for one in found])}")
    quiet = len(effects) - sum(map(len, seen.values()))
    rest = f"; {quiet} other switch{'' if quiet == 1 else 'es'} within the noise" if quiet else ""
    return f"Suspected causes, {variant}: {'; '.join(named)}{rest}."


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
            published = percent_difference(one.published, None)
            row = (variant, one.what, one.where, signed(one), published, str(one.seeds), percent(one.finished))
            rows.append((*row, one.verdict.value) if verdict else row)
    return Table((*columns, Column("verdict", False)) if verdict else tuple(columns), tuple(rows))
