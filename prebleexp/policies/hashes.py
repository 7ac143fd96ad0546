"""Hashes of names: of points on a ring, and of what requests are routed by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import xxhash
from blake3 import blake3

from prebleexp.policies import keys
from prebleexp.sim.records import NONE
from prebleexp.sim.types import Longs, Setup

Hashes = npt.NDArray[np.uint64]
Hashed = Callable[[Sequence[str]], Hashes]
"""the hash of each of some names"""


def blake3_64(names: Sequence[str]) -> Hashes:
    """The first 8 bytes of BLAKE3, little endian."""
    return np.frombuffer(b"".join(blake3(name.encode()).digest(8) for name in names), "<u8").astype(np.uint64)


def md5_64(names: Sequence[str]) -> Hashes:
    """The upper half of MD5 as a number of 128 bits: of different names they do not agree in it."""
    digests = (hashlib.md5(name.encode(), usedforsecurity=False).digest()[:8] for name in names)
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


def xxh64(names: Sequence[str]) -> Hashes:
    return np.fromiter((xxhash.xxh64_intdigest(name.encode()) for name in names), np.uint64, len(names))


# ---------------------------------------------------------------- of requests
class Names(Protocol):
    """What a request that comes from outside calls its session and its prompt. A policy that routes by names has a
    `named(self, mine, request, names)`, in Python, which is told of them before `route` if the setup has `room`."""

    session: str | None
    """None: of none"""
    number: int
    """of the session, from 0 on in the order in which they came first; -1: of none"""

    def prefix(self, tokens: int) -> str:
        """What so many first tokens, or all of them, are called."""


def of_sessions(policy: Any, setup: Setup, hashed: Hashed, form: str = "{}") -> Hashes:
    """(requests,) the hash of each one's session, whose name is put into `form`; anything if it is of none. Raises
    InvalidInput if none is of any. Those that come later are told of (`Names`)."""
    if setup.room is not None:
        return np.zeros(setup.requests, np.uint64)
    known = np.zeros(keys.sessions(policy, setup), np.uint64)
    used = in_use(setup)
    known[used] = hashed([form.format(keys.session(one)) for one in used.tolist()])
    return known[setup.workload.session]


def in_use(setup: Setup) -> Longs:
    """The sessions that there are requests of."""
    session = setup.workload.session
    return np.flatnonzero(np.bincount(session[session != NONE]))


def of_prefixes(setup: Setup, tokens: int, hashed: Hashed, requests: Longs | None = None) -> Hashes:
    """Of some requests, or of all: the hash of the name of each prompt's first so many tokens, or of all of it."""
    if setup.room is not None:
        return np.zeros(setup.requests, np.uint64)
    workload = setup.workload
    some = slice(None) if requests is None else requests
    lengths = np.minimum(workload.prompt_tokens[some], tokens)
    ends = np.cumsum(workload.segment_tokens, dtype=np.int64)
    before = np.concatenate([[0], ends])[workload.segment_offsets[:-1][some]]
    segments = workload.segment_ids[np.searchsorted(ends, before + lengths)]
    taken = np.zeros(setup.segment_ids, np.int32)  # tokens up to where it is cut: the same for all that have the id
    taken[segments] = lengths
    used = np.flatnonzero(taken)
    known = np.zeros(len(taken), np.uint64)
    known[used] = hashed([keys.prefix(*one) for one in zip(used.tolist(), taken[used].tolist(), strict=True)])
    return known[segments]
