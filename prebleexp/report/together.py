"""What a page says of each load: what features are worth, alone and together."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.report.feature_sets import AND, Sets, sentence
from prebleexp.report.figures import Column, Table
from prebleexp.report.finding import Finding
from prebleexp.report.ranking import ALL, with_distance, within
from prebleexp.report.summary import Row
from prebleexp.report.wording import plain

TITLE = "Load by load"
NOTE = (
    "Latency is normalised: time from arrival to the last token over output tokens, averaged. Each set is measured "
    "over the same requests as the others. Intervals are 95 % confidence intervals of the mean ratio over seeds; of "
    "one seed there are none. Beside the product is what a set is worth over the product of what each of it is worth "
    "alone."
)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """For each load a sentence, and each set's worth in a table."""
    far = with_distance(rows)
    loads = list(dict.fromkeys(plain(row["cluster"]) for row in far if row["cluster"] != ALL))
    return [_finding(load, Sets(within(far, load)), i) for i, load in enumerate(loads, 1)]


def _finding(load: str, sets: Sets, place: int) -> Finding:
    columns = (
        Column("set", False),
        Column("latency", True, "Average normalised latency over that with nothing of it, over the same requests."),
        Column("beside the product", True, "What the set is worth over the product of what each of it is worth alone."),
    )
    known = {one: (sets.worth(one), sets.beside(one)) for one in sets.of if one}
    names = {one: AND.join(name for name in sets.features if name in one) for one in known}
    table = tuple(
        (names[one], worth.share if worth else "", beside.share if beside and len(one) > 1 else "")
        for one, (worth, beside) in known.items()
    )
    numbers = {
        names[one]: {"worth": worth and (worth.mean, worth.half), "beside": beside and (beside.mean, beside.half)}
        for one, (worth, beside) in known.items()
    }
    said = (sentence(sets),)
    return Finding(f"load-{place}", load, load, said, Table(columns, table), Table((), ()), {"sets": numbers})
