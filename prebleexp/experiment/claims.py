"""Claims on runs that are being computed, so that several sweeps on one cache folder do not compute the same run.

A claim is a lock on one byte of a file, at a place that the run's key gives. The system drops it when its process
ends, however it ends, so that there is nothing to clean up and no clock to trust. Claims are advice: where a file
system has no locks nothing is claimed, and a run may be computed twice, with the same result.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path
from types import TracebackType

_LINUX = "hhqqi4x"
"""struct flock: type, whence, start, length, pid"""


class Claims:
    """The claims of one sweep. A context: leaving it gives up all."""

    def __init__(self, folder: Path) -> None:
        """Makes the file that is locked. No claims are made if it cannot be."""
        try:
            self._file: int | None = os.open(folder / "claims.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            self._file = None

    def take(self, key: str) -> bool:
        """Whether nobody else has it: then we have it."""
        try:
            self._lock(key, take=True)
        except (BlockingIOError, PermissionError):  # what a lock of somebody else is told by, EAGAIN or EACCES
            return False
        except OSError:
            return True
        return True

    def release(self, key: str) -> None:
        """Give one up."""
        try:
            self._lock(key, take=False)
        except OSError:  # it could not be taken either
            return

    def disregard(self) -> None:
        """From now on, whatever is asked for may be had: who has it seems to be stuck."""
        self._close()

    def __enter__(self) -> Claims:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lock(self, key: str, take: bool) -> None:
        if self._file is None:
            return
        place = int(key[:15], 16)  # 60 bits: a file has no more than 2^63 places
        if hasattr(fcntl, "F_OFD_SETLK"):
            # of the open file, not of the process: two sweeps in one process exclude each other, and closing another
            # handle of the file drops nothing
            kind = fcntl.F_WRLCK if take else fcntl.F_UNLCK
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_LINUX, kind, os.SEEK_SET, place, 1, 0))
        else:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB if take else fcntl.LOCK_UN, 1, place)
