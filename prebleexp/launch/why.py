"""Why two cached runs are two: the fields in which what their keys stand for differs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.experiment.key import differences


def answer(arguments: Sequence[str]) -> str:
    """A line per field. Arguments: two keys, as in the column "key" of the results, and perhaps cache_dir=FOLDER."""
    keys = [one for one in arguments if "=" not in one]
    options = dict(one.split("=", 1) for one in arguments if "=" in one)
    folder = Path(options.pop("cache_dir", "cache"))
    if len(keys) != 2 or options:
        raise InvalidInput('why needs two keys, as in the column "key" of the results, and perhaps cache_dir=FOLDER')
    if not folder.is_dir():
        raise InvalidInput(f"cache_dir={folder} is not a folder")
    cache = Cache(folder, make=False)
    first, second = (_entry(cache, key) for key in keys)
    lines = [
        f"{path}: {json.dumps(a)} and {json.dumps(b)}" for path, a, b in differences(first.content, second.content)
    ]
    return "\n".join(lines) or "nothing differs"


def _entry(cache: Cache, key: str) -> Entry:
    if not re.fullmatch("[0-9a-f]{64}", key):
        raise InvalidInput(f"{key!r} is not a key; keys have 64 hexadecimal digits")
    entry = cache.get(key)
    if entry is None:
        raise InvalidInput(f"the cache in {cache.folder} has no run {key}")
    return entry
