"""Whether a measured benchmark and a simulated one agree, in a plain sentence: over each time that both files have."""

from __future__ import annotations

from collections.abc import Sequence

from prebleexp.vllm_bench.compared import OF_A_METRIC, Row
from prebleexp.vllm_bench.known import UNKNOWN_ERROR, Known

MOST_NAMED = 4
SPREAD = "std"
"""is no time of a request"""


def said(rows: Sequence[Row], known: Known) -> str:
    """ "does it agree? No: of 9 times 2 are off by more than 5 %: p99_ttft_ms is 0.70 of what was measured, …"; the
    farthest first. A time agrees within the known error of its kind, TTFT or another, and within 5 % at least. Empty
    without any times."""
    times = [(one, one.ratio) for one in rows if (of := OF_A_METRIC.fullmatch(one.field)) and of[1] != SPREAD]
    found = [(one.field, ratio, _bound(one.field, known)) for one, ratio in times if ratio is not None]
    if not found:
        return ""
    off = sorted((one for one in found if abs(one[1] - 1) > one[2]), key=lambda one: -abs(one[1] - 1))
    bounds = " and ".join(f"{bound * 100:.1f} %" for bound in dict.fromkeys(bound for *_, bound in found))
    if not off:
        return f"does it agree? Yes: all {len(found)} times are within {bounds} of what was measured"
    named = ", ".join(f"{name} is {ratio:.2f}" for name, ratio, _ in off[:MOST_NAMED])
    more = f", and {len(off) - MOST_NAMED} more" if len(off) > MOST_NAMED else ""
    are = "is" if len(off) == 1 else "are"
    return (
        f"does it agree? No: of {len(found)} times {len(off)} {are} off by more than {bounds}: {named} of what was "
        f"measured{more}"
    )


def _bound(field: str, known: Known) -> float:
    own = known.ttft if "ttft" in field else known.tpot
    return max(own or 0.0, UNKNOWN_ERROR) if known.is_own else UNKNOWN_ERROR
