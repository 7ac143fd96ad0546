"""Claims on runs that are being computed, so that several sweeps on one cache folder do not compute the same run.

A claim is a lock of the name that is the run's key. Claims are advice: where a file system has no locks nothing is
claimed, and a run may be computed twice, with the same result.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from prebleexp.locks import ByteLocks


class Claims(ByteLocks):
    """The claims of one sweep. A context: leaving it gives up all."""

    def __init__(self, folder: Path) -> None:
        """Makes the file that is locked."""
        super().__init__(folder / "claims.lock")

    def disregard(self) -> None:
        """From now on, whatever is asked for may be had: who has it seems to be stuck."""
        self.close()

    def __enter__(self) -> Claims:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
