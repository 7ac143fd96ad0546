"""What an object file in ELF needs of others."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

SYMTAB = 2
"""the kind of the section that has an object's symbols"""


def outside(objects: Sequence[bytes]) -> set[str]:
    """Names that some of these objects of 64 bits use and none of them defines."""
    used, defined = set[str](), set[str]()
    for one in objects:
        for name, section in _symbols(one):
            (defined if section else used).add(name)
    return used - defined


def _symbols(code: bytes) -> Iterator[tuple[str, int]]:
    """Names, and the sections that define them: 0 where none does."""
    (start,) = struct.unpack_from("<Q", code, 40)
    size, count = struct.unpack_from("<HH", code, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, start + i * size) for i in range(count)]
    for _, kind, _, _, first, length, link, _, _, each in sections:
        if kind != SYMTAB:
            continue
        names = sections[link][4]
        for at in range(first, first + length, each):
            name, _, _, section = struct.unpack_from("<IBBH", code, at)
            if name:
                yield code[names + name : code.index(b"\0", names + name)].decode(), section
