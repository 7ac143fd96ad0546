"""JSON that carries the sha256 of its own bytes, so that a flipped bit or a missing end is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_HEAD, _MIDDLE, _TAIL = b'{"sha256":"', b'","entry":', b"}\n"


class Damaged(Exception):
    """Bytes that cannot be those that were written."""


def seal(value: Mapping[str, Any]) -> bytes:
    """`value` and its digest, as one line of JSON. Raises ValueError for what JSON has no form for, such as NaN."""
    body = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL


def unseal(data: bytes) -> dict[str, Any]:
    """The bytes that were sealed. Raises Damaged."""
    start = len(_HEAD) + 64 + len(_MIDDLE)
    body = data[start : len(data) - len(_TAIL)]
    digest = hashlib.sha256(body).hexdigest().encode()
    if data != _HEAD + digest + _MIDDLE + body + _TAIL:
        raise Damaged("its bytes are not those that were written")
    content = json.loads(body)
    if not isinstance(content, dict):
        raise Damaged("it is not a mapping")
    return content
