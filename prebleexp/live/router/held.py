"""What GPUs hold by what they tell of it (kv=events), and what of that the policy has been told.

A block is known by a hash of its tokens, chained behind the blocks before it. The policy hears of blocks by requests:
of those that a request has sent, when a GPU stores or drops them. What others have stored, and answers, which are no
prompt of anybody yet, it hears of when a request comes that begins so, before it is asked about that request.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import xxhash

from prebleexp.sim.notices import EVICTED, STORED

WIDTH = 4
"""bytes of a token"""
USUAL_BLOCK = 16
"""tokens of vLLM's blocks on GPUs, until events say otherwise"""
_ROW = 24
"""bits of a block's number, behind the row of a request"""
Hash = int | bytes


class Stored(msgspec.Struct, tag_field="type", tag="BlockStored"):
    """vLLM's KV event BlockStored: consecutive blocks that a server now holds, each by its hash."""

    block_hashes: list[Hash]
    token_ids: list[int]
    block_size: int
    parent_block_hash: Hash | None = None
    medium: str | None = None
    lora_name: str | None = None
    lora_id: int | None = None
    extra_keys: list[Any] | None = None


class Removed(msgspec.Struct, tag_field="type", tag="BlockRemoved"):
    block_hashes: list[Hash]
    medium: str | None = None


class Cleared(msgspec.Struct, tag_field="type", tag="AllBlocksCleared"):
    pass


Event = Stored | Removed | Cleared


class Notice(NamedTuple):
    """What the policy is to hear: the GPU holds so many leading tokens of this row's prompt, or no more than so."""

    kind: int
    row: int
    gpu: int
    tokens: int


class Found(NamedTuple):
    """Of a prompt: these GPUs (bits) hold so many leading tokens."""

    gpus: int
    tokens: int


class _Block:
    """That a GPU holds."""

    __slots__ = ("copies", "key", "number")

    def __init__(self, key: int, number: int) -> None:
        self.key, self.number, self.copies = key, number, 1


class Held:
    """`rows`: blocks of prompts that are remembered, for what is stored or dropped later."""

    def __init__(self, gpus: int, rows: int, seed: int) -> None:
        self.size = USUAL_BLOCK
        self.passed_over = 0
        """blocks of which cannot be known what they are"""
        self._most, self._seed = rows, seed
        self._sized = False
        self._blocks: list[dict[Hash, _Block]] = [{} for _ in range(gpus)]
        self._where = dict[int, int]()
        """by key: the GPUs that hold a block, as bits …"""
        self._told = dict[int, int]()
        """… and those of which the policy believes it"""
        self._rows = OrderedDict[int, int]()
        """by key: the last request that has the block in its prompt, and the block's number there"""
        self._adapters = set[str]()

    # ------------------------------------------------------------ requests
    def comes(self, row: int, text: bytes, of: str) -> tuple[list[Notice], list[Found]]:
        """A request has come whose prompt are these tokens, 4 bytes each. What the policy must hear before it is asked;
        and what GPUs hold of the prompt. An engine computes the last token of every prompt, so it is never held."""
        width, blocks = WIDTH * self.size, (len(text) // WIDTH - 1) // self.size
        where, told, rows = self._where, self._told, self._rows
        model, _, salt = of.partition("\0")
        if salt:  # events do not say which
            return [], []
        key = self._root(model if model in self._adapters else None)
        alive = (1 << len(self._blocks)) - 1
        untold = beyond = 0
        found: list[Found] = []
        for number in range(blocks):
            key = xxhash.xxh3_64_intdigest(text[number * width : (number + 1) * width], key)
            rows[key] = row << _ROW | number
            rows.move_to_end(key)
            if alive:
                left = alive & ~where.get(key, 0)
                if left:
                    found.append(Found(left, number * self.size))
                    alive ^= left
            known = told.get(key, 0)
            untold |= alive & ~known
            beyond |= known & ~alive
            if alive:
                told[key] = alive
            elif known:
                del told[key]
        found.append(Found(alive, blocks * self.size))
        while len(rows) > self._most:
            rows.popitem(last=False)
        notices: list[Notice] = []
        if untold | beyond:
            for gpus, tokens in found:
                notices += [Notice(EVICTED, row, gpu, tokens) for gpu in _bits(gpus & beyond)]
                notices += [Notice(STORED, row, gpu, tokens) for gpu in _bits(gpus & untold)]
        return notices, found

    # ------------------------------------------------------------ GPUs
    def hears(self, gpu: int, event: Event) -> Iterator[Notice]:
        """What the policy must hear of an event."""
        if isinstance(event, Cleared):
            yield from self.forget(gpu)
        elif event.medium not in (None, "GPU"):
            return  # a copy in a tier below
        elif isinstance(event, Stored):
            yield from self._stored(gpu, event)
        else:
            yield from self._removed(gpu, event)

    def _stored(self, gpu: int, event: Stored) -> Iterator[Notice]:
        size, hashes = event.block_size, event.block_hashes
        if not self._sized and size > 0:
            self._sized = True
            if size != self.size:
                self.size = size
                self._rows.clear()
        held = self._blocks[gpu]
        parent = None if event.parent_block_hash is None else held.get(event.parent_block_hash)
        others = {one for keys in event.extra_keys or () for one in keys or ()} - {event.lora_name}
        unknown_parent = event.parent_block_hash is not None and parent is None
        if size != self.size or len(event.token_ids) != size * len(hashes) or others or unknown_parent:
            self.passed_over += len(hashes)
            return
        if event.lora_name is not None:
            self._adapters.add(event.lora_name)
        text = np.array(event.token_ids, np.int64).astype("<i4").tobytes()
        key, number = (self._root(event.lora_name), 0) if parent is None else (parent.key, parent.number + 1)
        bit, last, width = 1 << gpu, None, WIDTH * size
        keys: list[int] = []
        for at, hashed in enumerate(hashes):
            key = xxhash.xxh3_64_intdigest(text[at * width : (at + 1) * width], key)
            keys.append(key)
            known = held.get(hashed)
            if known is None:
                held[hashed] = _Block(key, number + at)
                self._where[key] = self._where.get(key, 0) | bit
            else:
                known.copies += 1
            row = self._rows.get(key)
            if row is not None:
                last = at, row
        if last is not None:
            for key in keys[: last[0] + 1]:
                self._told[key] = self._told.get(key, 0) | bit
            yield self._notice(STORED, last[1], gpu, 1)

    def _removed(self, gpu: int, event: Removed) -> Iterator[Notice]:
        held, bit = self._blocks[gpu], 1 << gpu
        gone = dict[int, int]()
        """by row: the first of its blocks that is gone"""
        for hashed in event.block_hashes:
            block = held.get(hashed)
            if block is None:
                continue
            block.copies -= 1
            if block.copies:
                continue
            del held[hashed]
            _clear(self._where, block.key, bit)
            if _clear(self._told, block.key, bit) and (row := self._rows.get(block.key)) is not None:
                of = row >> _ROW
                gone[of] = min(gone.get(of, row), row)
        for row in gone.values():
            yield self._notice(EVICTED, row, gpu, 0)

    def forget(self, gpu: int) -> Iterator[Notice]:
        """It holds nothing, or nobody knows what."""
        bit, rows = 1 << gpu, set[int]()
        for block in self._blocks[gpu].values():
            _clear(self._where, block.key, bit)
            if _clear(self._told, block.key, bit) and (row := self._rows.get(block.key)) is not None:
                rows.add(row >> _ROW)
        self._blocks[gpu] = {}
        for one in sorted(rows):
            yield Notice(EVICTED, one, gpu, 0)

    def changed(self, gpu: int, there: bool) -> None:
        """The policy believes that this GPU holds nothing. If it is gone, nobody knows what it will hold."""
        bit = 1 << gpu
        for block in self._blocks[gpu].values():
            _clear(self._told, block.key, bit)
            if not there:
                _clear(self._where, block.key, bit)
        if not there:
            self._blocks[gpu] = {}

    def begin_lap(self) -> None:
        """Forgets what the policy was told, since it begins anew. What servers hold is kept."""
        self._rows.clear()
        self._told.clear()

    def blocks(self, gpu: int) -> int:
        """How many blocks a GPU holds."""
        return len(self._blocks[gpu])

    def _notice(self, kind: int, packed: int, gpu: int, more: int) -> Notice:
        return Notice(kind, packed >> _ROW, gpu, ((packed & (1 << _ROW) - 1) + more) * self.size)

    def _root(self, adapter: str | None) -> int:
        return self._seed if adapter is None else xxhash.xxh3_64_intdigest(adapter.encode(), self._seed)


def tokens_on(found: Sequence[Found], gpu: int) -> int:
    """Leading tokens that a GPU holds."""
    return next((one.tokens for one in found if one.gpus >> gpu & 1), 0)


def _clear(bits: dict[int, int], key: int, bit: int) -> bool:
    """Whether it was set."""
    known = bits.get(key, 0)
    if known == bit:
        del bits[key]
    elif known & bit:
        bits[key] = known ^ bit
    return bool(known & bit)


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low
