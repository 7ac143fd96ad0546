"""What a page says of routers that go by sessions, by prefixes and by load: what an id is worth, where reuse falls off
a cliff, and who is first in each kind of cluster."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.report import clusters
from prebleexp.report.cliff import HITS, KV, WHERE, falls, most, reuse
from prebleexp.report.figures import Column, Table
from prebleexp.report.finding import Finding
from prebleexp.report.kinds import KINDS, LOAD, PREFIX, SESSION, kind_of, name_of
from prebleexp.report.ranking import ALL, with_distance, within
from prebleexp.report.summary import Row, points
from prebleexp.report.wording import listed, number, plain
from prebleexp.report.worth import against, bests, verdict

NOTE = (
    "Of each kind of router the best is compared, which is known once all have run: who takes one router for all does "
    "worse. " + clusters.NOTE
)


def _worth(rows: Sequence[Row]) -> Finding | None:
    """By kind of cluster, and by how much memory there is."""
    sized = [{**row, "variant": _place(row)} for row in rows]
    far = with_distance(sized)
    places = list(dict.fromkeys(_place(row) for row in rows))
    table, numbers = [], dict[str, object]()
    for place in (ALL, *places):
        inside = within(far, place)
        pairs = {other: against(inside, SESSION, other) for other in (PREFIX, LOAD)}
        if all(pairs.values()):
            best = {kind_of(line): name_of(line) for line in bests(inside)}
            cells = [f"{one.share}{'' if one.is_sure else ' (not sure)'}" for one in pairs.values() if one]
            table.append((place, *(best[kind] for kind in KINDS), *cells))
            numbers[place] = {other: (one.mean, one.half) for other, one in pairs.items() if one}
    if not table:
        return None
    everywhere = against(within(far, ALL), SESSION, LOAD)
    assert everywhere is not None
    sentences = [verdict(with_distance(rows))]
    gains = "something" if everywhere.is_sure and everywhere.mean < 0 else "nothing that is sure"
    alone = f"its latency is {everywhere.words}, the best that looks at load alone"
    sentences.append(f"Where prefixes are not known it is worth {gains}: {alone}.")
    sentences += _where(far, places)
    columns = (
        Column("where", False),
        *(Column(f"best {kind}", False) for kind in KINDS),
        Column("session against prefix", True, "Difference of average normalised latency, over the same requests."),
        Column("session against load", True),
    )
    question = "Is a session's id worth anything once prefixes are known?"
    return Finding("worth", question, question, tuple(sentences), Table(columns, tuple(table)), Table((), ()), numbers)


def _where(far: Sequence[Row], places: Sequence[str]) -> list[str]:
    """Where an id helps, and where it hurts."""
    found = {place: against(within(far, place), SESSION, PREFIX) for place in places}
    sure = {place: one for place, one in found.items() if one and one.is_sure}
    gains = [f"{place} ({one.share})" for place, one in sure.items() if one.mean < 0]
    losses = [f"{place} ({one.share})" for place, one in sure.items() if one.mean > 0]
    said = [f"It gains in {len(gains)} of {len(found)} places: {listed(gains)}."] if gains else []
    return said + ([f"It costs in {len(losses)}: {listed(losses)}."] if losses else [])


def _place(row: Row) -> str:
    return f"{plain(row.get('variant'))}, {float(row.get(KV) or 0):,.0f} tokens of KV"


def _cliff(rows: Sequence[Row]) -> Finding | None:
    found = most(points(reuse(rows), WHERE, HITS))
    if not found:
        return None
    sizes = sorted({size for of in found.values() for one in of for size in one.hits})
    columns = (
        Column("where", False),
        Column("router", False),
        *(Column(f"{size:,.0f}", True, f"Hit ratio with {size:,.0f} tokens of KV a GPU.") for size in sizes),
    )
    table = tuple(
        (variant, f"{one.kind}: {one.name}", *(number(one.hits.get(size)) for size in sizes))
        for variant, of in found.items()
        for one in of
    )
    numbers = {
        variant: {one.kind: {"router": one.name, "edge": one.edge} for one in of} for variant, of in found.items()
    }
    question = "Where is the cliff of reuse?"
    sentences = tuple(falls(variant, of) for variant, of in found.items())
    return Finding("cliff", question, question, sentences, Table(columns, table), Table((), ()), numbers)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """The two questions, and who is first in each kind of cluster."""
    return [one for one in (_worth(rows), _cliff(rows)) if one] + clusters.findings(rows)
