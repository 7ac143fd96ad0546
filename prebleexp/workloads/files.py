"""The bytes of a workload's file, whatever it is packed with."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from pathlib import Path

from prebleexp.errors import InvalidInput

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""with which such files begin"""


def read(path: str | None) -> bytes:
    """As it lies there. Raises InvalidInput, naming the file, if it cannot be read."""
    try:
        return Path(str(path)).expanduser().read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"workload.path={path} cannot be read: {reason}") from None


def digest(path: str | None) -> str:
    """What stands for its contents in a key: their SHA-256."""
    return hashlib.sha256(read(path)).hexdigest()


def unpacked(path: str | None) -> bytes:
    """Its contents, of gzip and Zstandard files unpacked; which of them it is, its first bytes say.

    Raises InvalidInput, naming the file, if it cannot be read or is damaged.
    """
    data = read(path)
    if data.startswith(GZIP):
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise InvalidInput(f"{path}: not a gzip file that can be read: {error}") from None
    if data.startswith(ZSTD):
        import pyarrow as pa

        try:
            with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
                return bytes(stream.read())
        except OSError as error:
            raise InvalidInput(f"{path}: not a Zstandard file that can be read: {str(error).splitlines()[0]}") from None
    return data
