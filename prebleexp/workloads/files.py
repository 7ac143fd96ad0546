"""The bytes of a workload's file, whatever it is packed with."""

from __future__ import annotations

import bz2
import hashlib
import io
import lzma
import time
import zipfile
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from prebleexp.errors import InvalidInput, unreadable

DAMAGED = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError)
"""what unpacking raises"""
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
UTF_32 = (b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")
"""with which a file of that encoding begins"""
OF_A_MAC = ("/", ".DS_Store")
"""how names in a zip end that are no files of its sender's"""
SETTLED_NS = 2_000_000_000
"""after which a change of a file surely has another time than the one before"""


def read(path: str | None) -> bytes:
    """As it lies there. Raises InvalidInput, naming the file, if it cannot be read."""
    try:
        return Path(str(path)).expanduser().read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(f"workload.path={path}", path, error) from None


def digest(path: str | None) -> str:
    """What stands for its contents in a key: their SHA-256. A file that is as it was is not read again: the tables of a
    search ask for it thousands of times."""
    try:
        about = Path(str(path)).expanduser().stat()
    except (OSError, ValueError):
        return _digest(path)  # which says what is wrong
    changed_ns = max(about.st_mtime_ns, about.st_ctime_ns)
    if time.time_ns() - changed_ns < SETTLED_NS:  # it may change again, and its times be the same
        return _digest(path)
    return _known(path, (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))


@lru_cache(maxsize=64)
def _known(path: str | None, about: tuple[int, ...]) -> str:
    return _digest(path)


def _digest(path: str | None) -> str:
    return hashlib.sha256(read(path)).hexdigest()


def unpacked(path: str | None) -> bytes:
    """Its contents, unpacked where they are packed; with what, its first bytes say. UTF-16 is made UTF-8.

    Raises InvalidInput, naming the file, if it cannot be read or is damaged.
    """
    data = read(path)
    for start, (called, unpack) in PACKED.items():
        if data.startswith(start):
            try:
                data = unpack(data)
            except DAMAGED as error:
                reason = str(error).splitlines()[0] if str(error) else type(error).__name__
                raise InvalidInput(f"{path}: not a {called} file that can be read: {reason}") from None
            break
    if data[257:262] == b"ustar":
        raise InvalidInput(f"{path}: it is an archive of files (tar); unpack it, and give one of them")
    encoding = "UTF-32" if data.startswith(UTF_32) else "UTF-16" if data.startswith(UTF_16) or _is_wide(data) else ""
    if encoding:
        try:
            wide = encoding if data.startswith((*UTF_32, *UTF_16)) else f"{encoding}-LE"
            return data.decode(wide).encode()
        except UnicodeError as error:
            raise InvalidInput(f"{path}: not a {encoding} file that can be read: {error}") from None
    return data


def _is_wide(data: bytes) -> bool:
    """Whether it is text of two bytes a letter that does not say so, as PowerShell and SQL Server write it."""
    start = data[:64]
    return len(start) > 1 and not any(start[1::2]) and all(start[::2])


def _zstandard(data: bytes) -> bytes:
    import pyarrow as pa

    with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
        return bytes(stream.read())


def _only_member(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [one for one in archive.namelist() if not one.endswith(OF_A_MAC)]
        names = [one for one in names if not one.startswith("__MACOSX/")]
        if "[Content_Types].xml" in names:
            raise ValueError("it is a workbook; save its sheet as CSV")
        if len(names) != 1:
            raise ValueError(f"it holds {len(names)} files, and must hold one; unpack it")
        return archive.read(names[0])


def _gunzip(data: bytes) -> bytes:
    import gzip  # few files are packed

    return gzip.decompress(data)


PACKED: Mapping[bytes, tuple[str, Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": ("gzip", _gunzip),
    b"\x28\xb5\x2f\xfd": ("Zstandard", _zstandard),
    b"BZh": ("bzip2", bz2.decompress),
    b"\xfd7zXZ": ("xz", lzma.decompress),
    b"PK\x03\x04": ("zip", _only_member),
}
"""by how files begin"""
