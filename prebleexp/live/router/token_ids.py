"""Token ids of a prompt, as JSON has them, to 4 bytes each.

Lists of Python's integers take ten times as long, and the lock that all threads share; compiled code needs neither.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np

from prebleexp.sim.entry import compiled_for
from prebleexp.sim.handles import Block

USUAL = 1 << 18
"""bytes of JSON for which there is room already: one thread's"""
DIGITS = 17
"""of a number, that compiled code reads"""
_NUMBERS, _SEVERAL = msgspec.json.Decoder(list[int]), msgspec.json.Decoder(list[int | list[int]])


class Text(NamedTuple):
    json: Any
    """(bytes,)"""
    ids: Any
    """(bytes / 2,) of the text in hand"""
    ints: Any
    """(1,) bytes of it"""


def _room(size: int) -> Text:
    return Text(np.zeros(size, np.uint8), np.zeros(size // 2 + 1, np.uint32), np.zeros(1, np.int64))


_HERE = Block(_room(USUAL))


@compiled_for(_HERE)
def parsed(text: Text) -> int:
    """How many ids there are in a list of them, or in lists in a list, one behind another; -1: there is something else
    in it. It is JSON, so that only what stands in it is looked at, and not in which order."""
    json, ids, size = text.json, text.ids, text.ints[0]
    count, depth, digits = 0, 0, 0
    number = np.int64(0)
    for at in range(size):
        one = json[at]
        if 48 <= one <= 57:
            digits += 1
            number = number * 10 + np.int64(one - 48)
            if digits > DIGITS:
                return -1
            continue
        if digits > 0:
            ids[count] = number & 0xFFFFFFFF
            count, digits, number = count + 1, 0, np.int64(0)
        if one == 91:  # [
            depth += 1
            if depth > 2:
                return -1
        elif one == 93:  # ]
            depth -= 1
        elif one not in (44, 32, 9, 10, 13):  # a comma, or space
            return -1
    return count if depth == 0 else -1


def token_ids(prompt: bytes) -> bytes:
    """Of one prompt, or of several, one behind another. `prompt` is JSON. Raises msgspec.DecodeError, or OverflowError,
    for what is no list of whole numbers."""
    size = len(prompt)
    block = _HERE if size <= USUAL else Block(_room(size), _HERE.layout)
    text: Text = block.value
    text.json[:size] = np.frombuffer(prompt, np.uint8)
    text.ints[0] = size
    count = parsed(block.handle)
    return text.ids[:count].tobytes() if count >= 0 else _slowly(prompt)


def _slowly(prompt: bytes) -> bytes:
    """Negative ones, too; or it says what is wrong."""
    try:
        numbers = _NUMBERS.decode(prompt)
    except msgspec.ValidationError:
        several = _SEVERAL.decode(prompt)
        numbers = [token for one in several for token in (one if isinstance(one, list) else [one])]
    return np.array(numbers, np.int64).astype(np.int32).tobytes()
