"""Traces of the Mooncake project: real arrivals and lengths, prompts as hashes of blocks of 512 tokens."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, is_number, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Ints, Longs, Workload
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.output_length import OutputLength

BLOCK = 512
"""tokens a hash"""
LONGEST = 2**31 - 1
"""what a column holds"""
WHERE = "https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces"


class Request(NamedTuple):
    """A line of a trace."""

    timestamp: float
    """ms"""
    input_length: int
    output_length: int
    hash_ids: list[int]


@dataclass(frozen=True)
class Mooncake(WorkloadSource):
    """A trace in the format of Mooncake's FAST'25 release, plain or gzipped JSON lines

    {timestamp, input_length, output_length, hash_ids}.

    A hash stands for 512 tokens and all before them; the last one for what remains. Requests share the blocks of their
    equal leading hashes; a hash that comes behind another one than before, or with another number of tokens, is not
    shared. An output length of 0 counts as 1: a prefill always yields a token. `prefix_group` is −1: a trace does not
    say.

    Source: Qin et al., "Mooncake", FAST 2025. Raises InvalidInput, naming the field, for values that are not valid, and
    naming the file, the row (line, from 1) and the field for lines that are not.
    """

    path: str | None = None
    """relative to the current folder"""
    rate_scale: float = 1.0
    """requests come so many times as fast as recorded"""
    limit: int | None = None
    """the first so many requests; None: all"""
    max_new_tokens: int | None = None
    """generation is cut short after these; None: it is not"""

    synthetic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise InvalidInput(
                f"workload.path={self.path} is not valid; mooncake needs workload.path=FILE, a trace from {WHERE}"
            )
        valid = is_number(self.rate_scale) and self.rate_scale > 0
        require(valid, "workload.rate_scale", self.rate_scale, "a finite number > 0")
        for name in ("limit", "max_new_tokens"):
            value = getattr(self, name)
            valid = value is None or is_integer(value, 1, LONGEST)
            require(valid, f"workload.{name}", value, f"null or an integer from 1 to {LONGEST}")

    def identity(self) -> dict[str, object]:
        """The file's contents stand for its path."""
        return {
            "sha256": hashlib.sha256(self._bytes()).hexdigest(),
            "rate_scale": self.rate_scale,
            "limit": self.limit,
            "max_new_tokens": self.max_new_tokens,
        }

    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        """The trace; the arguments do not matter."""
        requests = list(islice(self._requests(), self.limit))
        if not requests:
            raise InvalidInput(f"{self.path}: there are no requests")
        timestamps, prompts, outputs, hashes = zip(*requests, strict=True)
        prompt_tokens = np.array(prompts, np.int32)
        output_tokens = np.maximum(np.array(outputs, np.int32), 1)
        cut = output_tokens if self.max_new_tokens is None else np.full_like(output_tokens, self.max_new_tokens)
        blocks = np.array([len(ids) for ids in hashes])
        offsets = np.concatenate(([0], np.cumsum(blocks)))
        tokens = np.full(offsets[-1], BLOCK, np.int32)
        tokens[offsets[1:] - 1] = prompt_tokens - BLOCK * (blocks - 1)
        with np.errstate(over="ignore"):  # Workload refuses what is not finite
            arrivals = np.array(timestamps, np.float64) / 1000 / self.rate_scale
        flat = np.fromiter(chain.from_iterable(hashes), np.int64, offsets[-1])
        return Workload(
            arrival_s=arrivals,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            max_new_tokens=cut,
            prefix_group=np.full(len(requests), -1, np.int32),
            segment_offsets=offsets,
            segment_ids=_paths(offsets, flat, tokens),
            segment_tokens=tokens,
        )

    def _bytes(self) -> bytes:
        try:
            return Path(str(self.path)).read_bytes()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidInput(f"workload.path={self.path} cannot be read: {reason}") from None

    def _requests(self) -> Iterator[Request]:
        data = self._bytes()
        if data[:2] == b"\x1f\x8b":
            try:
                data = gzip.decompress(data)
            except (OSError, EOFError, zlib.error) as error:
                raise InvalidInput(f"{self.path}: not a gzip file that can be read: {error}") from None
        now = 0.0
        for row, line in enumerate(data.splitlines(), start=1):
            if not line.strip():
                continue
            try:
                request = _parse(line)
                if request.timestamp < now:
                    raise InvalidInput(
                        f"timestamp={request.timestamp} is not valid; it must be >= {now}, that of the row before it"
                    )
            except InvalidInput as error:
                raise InvalidInput(f"{self.path}: row {row}: {error}") from None
            now = request.timestamp
            yield request


def _parse(line: bytes) -> Request:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not valid JSON: {error}") from None
    if not isinstance(record, dict):
        raise InvalidInput("not a JSON object")
    for name in Request._fields:
        if name not in record:
            raise InvalidInput(f"there is no field {name}")
    request = Request(*(record[name] for name in Request._fields))
    if not is_number(request.timestamp) or request.timestamp < 0:
        raise InvalidInput(f"timestamp={request.timestamp!r} is not valid; it must be a number of ms >= 0")
    for name, least in (("input_length", 1), ("output_length", 0)):
        if not is_integer(record[name], least, LONGEST):
            raise InvalidInput(f"{name}={record[name]!r} is not valid; it must be an integer from {least} to {LONGEST}")
    hashes = request.hash_ids
    if (
        not isinstance(hashes, list)
        or set(map(type, hashes)) - {int}
        or min(hashes, default=0) < 0
        or max(hashes, default=0) >= 2**63
    ):
        raise InvalidInput("hash_ids is not valid; it must be a list of integers from 0 to 2^63 - 1")
    expected = -(-request.input_length // BLOCK)
    if len(hashes) != expected:
        raise InvalidInput(
            f"hash_ids has {len(hashes)} elements; input_length={request.input_length} "
            f"needs {expected}, one to {BLOCK} tokens"
        )
    return request


def _paths(offsets: Longs, hashes: Longs, tokens: Ints) -> Ints:
    """Segment ids, one to each different path from the root: blocks are equal if their hash, tokens and parent are."""
    _, number = np.unique(hashes, return_inverse=True)
    block = number * (BLOCK + 1) + tokens
    ids = np.empty(len(hashes), np.int32)
    parent = np.zeros(len(offsets) - 1, np.int64)
    row, end = offsets[:-1], offsets[1:]
    next_id = 0
    while len(row):
        path = _pairs(parent, block[row])
        ids[row] = next_id + path
        next_id += int(path.max()) + 1
        more = row + 1 < end
        row, end, parent = row[more] + 1, end[more], path[more]
    return ids


def _pairs(first: Longs, second: Longs) -> Longs:
    """(n,) numbers from 0 without gaps, equal where both elements are."""
    _, dense = np.unique(second, return_inverse=True)
    numbers: Longs = np.unique(first * len(second) + dense, return_inverse=True)[1]
    return numbers
