"""What an interrupted command has computed, and keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prebleexp.launch.progress import Progress

Plan = Callable[[int, int], object]


def runs_of(count: int) -> str:
    """A number of runs in words: "1 run", "2,000 runs"."""
    return f"{count:,} run" if count == 1 else f"{count:,} runs"


class Kept:
    """Counts over all that a command asks for at a time. `asks_on`: what runs say decides which others are asked for,
    so that nobody knows how many there will be."""

    def __init__(self, asks_on: bool) -> None:
        self._asks_on = asks_on
        self._computed = 0

    @contextmanager
    def batch(self, total: int, progress: Progress, say: Plan) -> Iterator[Plan]:
        """Around the runs of a batch, which tells what it gives how many there are and are missing; an interruption
        says what is kept."""
        there = missing = 0

        def planned(runs: int, left: int) -> None:
            nonlocal there, missing
            there, missing = runs - left, left
            say(runs, left)

        try:
            yield planned
        except KeyboardInterrupt as stop:
            said = f"{progress.done:,} of {runs_of(total)} are done, and kept"
            if self._asks_on or self._computed:
                computed = runs_of(self._computed + max(progress.done - there, 0))
                said = f"{computed} were computed and are kept; the same command goes on from there"
            stop.args = (said,)
            raise
        self._computed += missing
