"""Settings that have a meaning on the command line and none here: none of them is ignored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from prebleexp.errors import InvalidInput
from prebleexp.launch.parts import key_of

PAGES = "for the command line, which writes pages; a Sweep has .figure()"
SEVERAL = "run makes one run; prebleexp.sweep makes several, with means and intervals"
BY_SWEEP = {
    "output": "for the command line, which prints; a Result has .metrics, a Sweep has .frame()",
    "report": PAGES,
    "reports_dir": PAGES,
    "job_dirs": PAGES,
}
"""why each is refused"""
BY_RUN = BY_SWEEP | dict.fromkeys(
    ("replications", "ci", "ci_metric", "max_replications", "objective", "sweep", "sweeps", "hydra"), SEVERAL
)


def refuse(overrides: Iterable[str], refused: Mapping[str, str]) -> None:
    """Raises InvalidInput, which says why, if one of the overrides is of a key that is refused."""
    for line in overrides:
        name = re.split(r"[./]", key_of(line))[0]
        if name in refused:
            raise InvalidInput(f"{line}: {refused[name]}")
