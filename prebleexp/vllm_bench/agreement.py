"""Whether a measured benchmark and a simulated one agree, in sentences: mean TTFT and mean TPOT, each by its bar."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.vllm_bench.compared import Row
from prebleexp.vllm_bench.known import UNKNOWN_ERROR, Judged, Known, judged

MEANS = {"TTFT": "mean_ttft_ms", "TPOT": "mean_tpot_ms"}
"""of which the cost model's errors are known"""
REST = (
    "all other times are shown and not judged: known errors are of means, and those of medians and percentiles were "
    "not measured"
)


def of_rows(rows: Sequence[Row], known: Known) -> list[Judged]:
    """What is judged of a table, each time once."""
    of = {one.field: one for one in rows}
    found = [(name, of[field].measured, of[field].of_seeds) for name, field in MEANS.items() if field in of]
    return judged(found, known)


def said(times: Sequence[Judged], known: Known) -> list[str]:
    """ "does it agree? No: mean TTFT is 0.87 of what was measured, within 15.0 %; mean TPOT is 0.91 of what was
    measured, beyond 7.2 %", of what these bars are, and what is not judged. Empty without any means."""
    if not times:
        return []
    barred = [one for one in times if one.bar is not None]
    each = "; ".join(map(str, times))
    if not barred:
        return [f"does it agree? Nobody can say: {each}"]
    least = f", {UNKNOWN_ERROR * 100:.0f} % at least" if any(one.bar != one.error for one in barred) else ""
    bars = f"the bar is the known error of step times (p90) {known.of}{least}"
    return [f"does it agree? {_answer(barred, known)}: {each}; {bars}", REST]


def _answer(barred: Sequence[Judged], known: Known) -> str:
    if any(one.agrees is False for one in barred):
        return "No"
    if any(one.agrees is None for one in barred):
        return "The seeds do not tell"
    return "Yes" if known.is_own else "As far as step times are known here, yes"
