"""A simulation that never ends fails at once, and with its example: it would hang until the whole run is killed."""

from __future__ import annotations


class Ends:
    """Called again and again by what is to end: the oracle at every event, the core whenever Python has its turn, which
    is at least once in 32,768 events."""

    def __init__(self, what: str, most: int) -> None:
        self.what, self.most, self.calls = what, most, 0

    def __call__(self) -> None:
        self.calls += 1
        assert self.calls <= self.most, f"the {self.what} does not end: it had its turn {self.calls:,} times"
