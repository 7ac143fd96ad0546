"""Instructions with their answers, from files of people: JSON lines or a JSON list, as Alpaca has them."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput, unreadable
from prebleexp.predict.extra import needed
from prebleexp.sim.types import Ints, Longs

TRAIN, VALIDATION, TEST = range(3)
SHARES = (0.6, 0.2, 0.2)
LARGEST_BYTES = 4 << 30
"""unpacked"""


@dataclass(frozen=True)
class Instructions:
    """n prompts and the lengths of their answers, in tokens of Mistral-7B."""

    prompts: tuple[str, ...]
    """(n,) instruction and input"""
    prompt_tokens: Ints
    output_tokens: Ints
    sha256: str
    """of the file"""
    left_out: int
    """rows whose output is empty"""

    def take(self, rows: Longs) -> Instructions:
        """The data set with these rows alone."""
        prompts = tuple(self.prompts[i] for i in rows)
        return replace(
            self, prompts=prompts, prompt_tokens=self.prompt_tokens[rows], output_tokens=self.output_tokens[rows]
        )

    def __len__(self) -> int:
        return len(self.prompts)

    def split(self, seed: int) -> Ints:
        """(n,) `TRAIN`, `VALIDATION` or `TEST`: 60, 20 and 20 %.

        By a hash of the prompt, so that a prompt that comes twice is on one side only: a held-out row was never seen.
        """
        draws = [int.from_bytes(hashlib.sha256(f"{seed}\n{one}".encode()).digest()[:7]) / 2**56 for one in self.prompts]
        return np.searchsorted(np.cumsum(SHARES[:2]), draws, side="right").astype(np.int32)


def read(path: Path) -> Instructions:
    """Rows are objects with `instruction`, `output` and perhaps `input`; .gz is unpacked.

    Raises InvalidInput, naming file and row, for what cannot be read, is not UTF-8 or JSON, or lacks a field.
    """
    data = _bytes(path)
    prompts, outputs, left_out = [], [], 0
    for number, row in _rows(path, data):
        prompt, output = _fields(path, number, row)
        if output:
            prompts.append(prompt)
            outputs.append(output)
        else:
            left_out += 1
    if not prompts:
        raise InvalidInput(f"{path} has no row with an output")
    counts = [token_counts(texts) for texts in (prompts, outputs)]
    return Instructions(tuple(prompts), counts[0], counts[1], hashlib.sha256(data).hexdigest(), left_out)


def token_counts(texts: Sequence[str]) -> Ints:
    """Tokens of each text for Mistral-7B, at least 1; the tokenizer is part of mistral-common."""
    tokenizer = needed("mistral_common.tokens.tokenizers.mistral").MistralTokenizer.v1().instruct_tokenizer.tokenizer
    return np.array([max(1, len(tokenizer.encode(text, bos=False, eos=False))) for text in texts], np.int32)


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                data = file.read(LARGEST_BYTES + 1)
            if len(data) > LARGEST_BYTES:
                raise InvalidInput(f"{path} is more than {LARGEST_BYTES >> 30} GiB unpacked")
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidInput(f"{path} is a damaged .gz: {error}") from None
    except OSError as error:
        raise unreadable(str(path), path, error) from None
    if not data.strip():
        raise InvalidInput(f"{path} is empty")
    return data


def _rows(path: Path, data: bytes) -> Iterator[tuple[int, Any]]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}, byte {error.start}: not UTF-8") from None
    if text.lstrip().startswith("["):
        try:
            yield from enumerate(json.loads(text), 1)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{path} is not JSON: {error}") from None
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InvalidInput(f"{path}, row {number}: not JSON: {error}") from None


def _fields(path: Path, number: int, row: Any) -> tuple[str, str]:
    if not isinstance(row, dict):
        raise InvalidInput(f"{path}, row {number}: not an object with instruction and output")
    for name in ("instruction", "output"):
        if not isinstance(row.get(name), str):
            raise InvalidInput(f"{path}, row {number}: it has no {name}, which must be a text")
    extra = row.get("input") or ""
    if not isinstance(extra, str):
        raise InvalidInput(f"{path}, row {number}: its input is not a text")
    prompt = f"{row['instruction']}\n{extra}" if extra.strip() else row["instruction"]
    return prompt, row["output"].strip()
