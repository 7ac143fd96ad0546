"""On what the step times of a candidate rest, in a word."""

from __future__ import annotations

from prebleexp.hardware.base import Hardware
from prebleexp.hardware.composed import Composed
from prebleexp.report.wording import NOTHING

THEORY, MEASURED = "theory", "measured"
OWN = "your own"
WORDS = {
    "measured": MEASURED,
    "ladder measured": MEASURED,
    "steps measured": "steps",
    "unseen model": "similar",
    "kernels only": "kernels",
    "theory": THEORY,
}
"""of levels of `Support`"""


def word(hardware: Hardware) -> str:
    """One of `WORDS`; `OWN` for parameters that were given, and nothing for hardware that is not composed."""
    if not isinstance(hardware, Composed):
        return NOTHING
    return OWN if hardware.evidence is None else WORDS[hardware.evidence.level]
