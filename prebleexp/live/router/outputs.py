"""What a router learns of answers' lengths (lengths=mean): the mean of those that finished lately."""

from __future__ import annotations

from collections import deque

MOST = 1 << 17
"""answers that are averaged, the last of those of the window, so that memory stays as it is"""


class Outputs:
    """`window_s`: for how many seconds an answer counts; 0: nothing is learned."""

    def __init__(self, window_s: float = 0.0) -> None:
        self._window_s = window_s
        self._finished = deque[tuple[float, int]]()
        self._tokens = 0

    def finished(self, tokens: int, now: float) -> None:
        """An answer of so many tokens is whole."""
        if self._window_s > 0:
            self._finished.append((now, tokens))
            self._tokens += tokens
            if len(self._finished) > MOST:
                self._drop()

    def expected(self, now: float) -> float | None:
        """Tokens of the next answer; None: nothing is known."""
        while self._finished and self._finished[0][0] < now - self._window_s:
            self._drop()
        return self._tokens / len(self._finished) if self._finished else None

    def _drop(self) -> None:
        self._tokens -= self._finished.popleft()[1]
