"""Locks on single bytes of a file, between processes.

The system drops a lock when its process ends, however it ends, so that there is nothing to clean up and no clock to
trust. Where a file system has no locks, whatever is asked for may be had.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

_LINUX = "hhqqi4x"
"""struct flock: type, whence, start, length, pid"""


class ByteLocks:
    """Of one file, which it makes. If that cannot be made, everything may be had."""

    def __init__(self, file: Path) -> None:
        try:
            self._file: int | None = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            self._file = None

    def take(self, name: str) -> bool:
        """Whether nobody else has the lock of this name (15 hexadecimal digits or more): then we have it."""
        try:
            self._lock(name, take=True)
        except (BlockingIOError, PermissionError):  # what a lock of somebody else is told by, EAGAIN or EACCES
            return False
        except OSError:
            return True
        return True

    def release(self, name: str) -> None:
        """Gives up one lock, whether held or not. Raises nothing."""
        try:
            self._lock(name, take=False)
        except OSError:  # it could not be taken either
            return

    def close(self) -> None:
        """Give up all. From then on everything may be had."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _lock(self, name: str, take: bool) -> None:
        if self._file is None:
            return
        place = int(name[:15], 16)  # 60 bits: a file has no more than 2^63 places
        if hasattr(fcntl, "F_OFD_SETLK"):
            # of the open file, not of the process: two sweeps in one process exclude each other, and closing another
            # handle of the file drops nothing
            kind = fcntl.F_WRLCK if take else fcntl.F_UNLCK
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, struct.pack(_LINUX, kind, os.SEEK_SET, place, 1, 0))
        else:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB if take else fcntl.LOCK_UN, 1, place)
