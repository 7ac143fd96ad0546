"""What clients send, as policies know prompts: runs of segments that stand for their path from the root.

Nothing is tokenised: that takes longer than all else a router does. A prompt is known by chained hashes of blocks of
64 bytes of its text, or of the numbers of its tokens, 4 bytes each, where a client sends these. Hashes begin with a
seed of this process, since 64 bits can be forged. Tokens are bytes divided by a ratio that stays the same for a lap.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
import xxhash

from prebleexp.live.router.token_ids import token_ids
from prebleexp.sim.entry import compiled_for
from prebleexp.sim.handles import Block

BLOCK = 64
"""bytes"""
WORDS = BLOCK // 8
BYTES_PER_TOKEN = 4.0
TOKEN = 4
"""bytes of one whose number a client sends"""
LONGEST = 8 << 20
"""bytes of a prompt that are looked at"""
DEFAULT_MOST = 1024
"""output tokens of a request that gives no max_tokens: engines would go on to the end of the context"""


class Malformed(ValueError):
    """A body that no OpenAI-style server could understand."""


class _Body(msgspec.Struct):
    """Fields that matter to a router."""

    model: str = ""
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None
    session_id: str | None = None
    user: str | None = None
    cache_salt: str | None = None
    priority: int | None = None


_DECODER = msgspec.json.Decoder(_Body)


class Request(NamedTuple):
    """A body, as far as a router knows it."""

    text: bytes
    """what is hashed"""
    of: str
    """what prompts must have in common to share a cache: the model, …"""
    most: int
    """output tokens"""
    stream: bool
    session: str | None
    whole_tokens: bool
    """whether the client sent tokens: 4 bytes of the text are one, exactly"""
    priority: int = 0
    """lower is first"""


def read(body: bytes) -> Request:
    """The request of a body. Raises Malformed."""
    try:
        one = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Malformed(f"the body is no JSON that a model could be asked with: {str(error)[:120]}") from None
    except RecursionError:
        raise Malformed("the body is nested too deeply") from None
    numbers = False
    if one.messages:
        text = bytes(one.tools) + bytes(one.messages).rstrip().removesuffix(b"]")
    else:
        prompt = bytes(one.prompt or one.input)
        numbers = prompt[:1] == b"[" and prompt[1:].lstrip()[:1] not in (b'"', b"]")
        text = _tokens(prompt) if numbers else prompt.strip(b'"')
    most = one.max_completion_tokens or one.max_tokens or DEFAULT_MOST
    of = f"{one.model}\0{one.cache_salt or ''}"
    most = max(1, min(most, 1 << 30))
    return Request(text[:LONGEST], of, most, bool(one.stream), one.session_id or one.user, numbers, one.priority or 0)


def _tokens(prompt: bytes) -> bytes:
    try:
        return token_ids(prompt)
    except (msgspec.DecodeError, OverflowError) as error:
        raise Malformed(f"prompt: {str(error)[:120]}") from None


# ---------------------------------------------------------------- blocks to ids
SIZE, START, MADE, FOUND = range(4)


class Blocks(NamedTuple):
    words: Any
    """of the text, zeros behind it"""
    keys: Any
    """(a power of two) hashes, 0: free; …"""
    ids: Any
    """… and what each is called"""
    out: Any
    """(blocks,) ids of the text in hand, …"""
    hashes: Any
    """(blocks,) … and its hashes, which are the same in every lap"""
    ints: Any
    """(4,) bytes of the text; what its hash begins with; ids so far; how many there may be"""


EXAMPLE = Block(Blocks(*(np.zeros(1, one) for one in (np.uint64, np.uint64, np.int32, np.int32, np.uint64, np.int64))))
FACTOR, SHIFT, ONE = np.uint64(0x9FB21C651E98DF25), np.uint64(32), np.uint64(1)


@compiled_for(EXAMPLE)
def intern(blocks: Blocks) -> int:
    """The ids of a text's blocks; returns how many they are, or -1: more than there may be."""
    ints, words, keys, ids = blocks.ints, blocks.words, blocks.keys, blocks.ids
    count, mask = (ints[SIZE] + BLOCK - 1) // BLOCK, len(keys) - 1
    made = np.uint64(ints[START])
    for block in range(count):
        for word in range(WORDS):
            made = (made ^ words[block * WORDS + word]) * FACTOR
            made ^= made >> SHIFT
        if block == count - 1:  # zeros that were sent are others than zeros that fill
            made = (made ^ np.uint64(ints[SIZE])) * FACTOR if ints[SIZE] % BLOCK != 0 else made
            made ^= made >> SHIFT
        name = made | ONE
        slot = np.int64(name >> np.uint64(20)) & mask
        while keys[slot] != 0 and keys[slot] != name:
            slot = (slot + 1) & mask
        if keys[slot] == 0:
            if ints[MADE] >= ints[FOUND]:
                return -1
            keys[slot], ids[slot] = name, ints[MADE]
            ints[MADE] += 1
        blocks.out[block], blocks.hashes[block] = ids[slot], name
    return int(count)


class Interned(NamedTuple):
    ids: Any
    """(blocks,) a view that the next text overwrites"""
    hashes: Any
    """(blocks,) what they are called in every lap; such a view, too"""
    ends: Any
    """(blocks,) tokens from the beginning to the end of each"""


class Interner:
    """Texts to ids below a number of these, until none is left."""

    def __init__(self, ids: int, seed: int, bytes_per_token: float = BYTES_PER_TOKEN) -> None:
        size = 1 << (2 * ids - 1).bit_length()
        room = LONGEST // BLOCK
        words = np.zeros(LONGEST // 8 + WORDS, np.uint64)
        self._bytes = words.view(np.uint8).data
        arrays = words, np.zeros(size, np.uint64), np.zeros(size, np.int32)
        out = np.zeros(room + 1, np.int32), np.zeros(room + 1, np.uint64)
        self._block = Block(Blocks(*arrays, *out, np.zeros(4, np.int64)), EXAMPLE.layout)
        self._seed, self._most = seed, ids
        self.begin(bytes_per_token)

    def begin(self, bytes_per_token: float) -> None:
        """Forget all texts and their ids."""
        blocks: Blocks = self._block.value
        blocks.keys[:], blocks.ids[:] = 0, 0  # pages that are there: hashes lie anywhere, and each would be a wait
        blocks.ints[MADE], blocks.ints[FOUND] = 0, self._most
        self.block_tokens = max(1, round(BLOCK / bytes_per_token))

    @property
    def used(self) -> int:
        """How many ids were given so far."""
        return int(self._block.value.ints[MADE])

    def of(self, text: bytes, kind: str, whole_tokens: bool = False) -> Interned | None:
        """None: there is no room for the text's blocks. `whole_tokens`: it is tokens, 4 bytes each."""
        blocks: Blocks = self._block.value
        size = len(text)
        start = xxhash.xxh3_64_intdigest(kind.encode(), self._seed) >> 1
        self._bytes[:size] = text
        end = -(-size // BLOCK) * BLOCK
        self._bytes[size:end] = bytes(end - size)
        blocks.ints[SIZE], blocks.ints[START] = max(size, 1), start
        count = intern(self._block.handle)
        if count < 0:
            return None
        block = BLOCK // TOKEN if whole_tokens else self.block_tokens
        return Interned(blocks.out[:count], blocks.hashes[:count], spread(self.tokens(size, whole_tokens), block))

    def tokens(self, size: int, whole_tokens: bool) -> int:
        """Of a text of so many bytes."""
        return tokens_of(max(size, 1), BLOCK // TOKEN if whole_tokens else self.block_tokens)


def tokens_of(size: int, block: int) -> int:
    """Of a text of so many bytes, with so many tokens a block; its last block has one at least."""
    return max(size * block // BLOCK, (size - 1) // BLOCK * block + 1)


def spread(tokens: int, block: int) -> Any:
    """Where blocks of so many tokens end in a prompt."""
    made = np.arange(1, -(-tokens // block) + 1, dtype=np.int32) * np.int32(block)
    made[-1] = tokens
    return made
