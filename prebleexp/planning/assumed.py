"""What runs that are not there yet are taken to say, so that it can be told how many a search asks for."""

from __future__ import annotations

from prebleexp.planning.contender import GPUS, Contender
from prebleexp.planning.trials import Sample, Trial

SURELY = 1.25
"""times the size that is enough for a recording, that is enough for all like it"""


class Assumed:
    """Of one search: that the size which it tries first is the answer, or the next one that what is known leaves."""

    def __init__(self, contender: Contender) -> None:
        self._grows = contender.searched == GPUS  # else what is searched is too much from some load on
        self._to_keep = contender.to_keep
        self._enough: float | None = None
        self._not_enough: float | None = None

    def know(self, trial: Trial, sample: Sample) -> None:
        """That a run says so."""
        is_met = sample.kept >= self._to_keep.target
        at = self._along(trial.size)
        if is_met and (self._enough is None or at < self._enough):
            self._enough = at
        if not is_met and (self._not_enough is None or at > self._not_enough):
            self._not_enough = at

    def sample(self, trial: Trial) -> Sample:
        """Of a run that is not there."""
        at = self._along(trial.size)
        if self._enough is None and (self._not_enough is None or at > self._not_enough):
            self._enough = at
        is_met = self._enough is not None and at >= self._enough
        nothing = self._to_keep.nothing
        all_of_it = nothing + 1
        surely = is_met and at >= SURELY * (self._enough or 0)
        kept = all_of_it if is_met else nothing
        return Sample(kept, trial.requests, None, (all_of_it if surely else nothing, kept))

    def _along(self, size: float) -> float:
        """Greater where more is kept."""
        return size if self._grows else -size
