"""Logs of requests to a server that speaks OpenAI's protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prebleexp.checks import is_number, require
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Longs
from prebleexp.workloads import inferred
from prebleexp.workloads.blocks import Prompts, joined, private
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.rows import MOST, Records, Rows, parsed, rows_of
from prebleexp.workloads.trace import Trace, alone, told

TIMES = ("timestamp", "arrival_time", "start_time", "created", "time")
INPUTS, OUTPUTS = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens")
SESSIONS = ("session_id", "conversation_id")
MESSAGES, CHOICES = "messages", "choices"
INNER = ("request", "response", "body", "usage")
"""objects within a row whose fields count as the row's"""
USUAL = 4.0
"""characters a token, if the log says nothing of tokens"""


@dataclass(frozen=True)
class RequestLog(Replayed):
    """A row a request, in any order: when (timestamp, arrival_time, start_time, created or time: seconds, or a date and
    time), what was asked (messages, or prompt_tokens or input_tokens) and how long the answer was (completion_tokens or
    output_tokens, or choices with their text). Fields may stand in `request`, `response`, `body` and `usage`.

    Of messages each is a segment: prompts share their equal first ones. A message has its characters / c tokens, where
    c is `characters_per_token`, or what the log's own counts say over all of it, or 4. Sessions are those of session_id
    or conversation_id; without them, a request is the next turn of the latest one whose messages it begins with.
    Messages of more than 60 requests are everybody's. Without messages, prompts share nothing. An answer of 0 tokens
    counts as 1.
    """

    characters_per_token: float | None = None
    """of messages; null: as the log says, else 4"""

    name: ClassVar[str] = "request_log"
    where: ClassVar[str] = "a log with a row a request, of JSON lines, CSV or Parquet"

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = self.characters_per_token is None or (
            is_number(self.characters_per_token) and self.characters_per_token > 0
        )
        require(valid, "workload.characters_per_token", self.characters_per_token, "null or a number > 0")

    def read(self) -> Trace:
        rows = rows_of(self.path)
        if isinstance(rows, Records):
            rows = Records(rows.path, [_flat(one) for one in rows.records], rows.lines)
        times = rows.seconds(_named(rows, TIMES))
        order = np.argsort(times, kind="stable")
        times = times[order] - times[order[0]]
        if MESSAGES not in rows:
            prompts = private(rows.integers(_named(rows, INPUTS), 1)[order])
            outputs = rows.integers(_named(rows, OUTPUTS))[order]
            session, turn = _sessions(rows, order) or alone(len(rows))
            return Trace(times, np.maximum(outputs, 1), prompts, session, turn)
        said = [_messages(rows, row, value) for row, value in enumerate(rows.values(MESSAGES))]
        letters = np.array([sum(len(text) for _, text in one) for one in said])
        c = self._characters_per_token(rows, letters)
        outputs = _outputs(rows, c)[order]
        prompts = _tree([said[row] for row in order.tolist()], c)
        session, turn = _sessions(rows, order) or inferred.chains(inferred.continuing(prompts))
        prompts, _ = joined(prompts)
        return Trace(times, np.maximum(outputs, 1), prompts, session, turn, inferred.public(prompts))

    def _characters_per_token(self, rows: Rows, letters: Longs) -> float:
        if self.characters_per_token is not None:
            return self.characters_per_token
        if not any(name in rows for name in INPUTS):
            return USUAL
        return max(1.0, float(letters.sum())) / float(rows.integers(_named(rows, INPUTS), 1).sum())


def _named(rows: Rows, names: Sequence[str]) -> str:
    """The first of these that there is."""
    found = next((name for name in names if name in rows), None)
    if found is None:
        raise InvalidInput(f"{rows.path}: there is no field {names[0]}; one of {', '.join(names)} must be there")
    return found


def _flat(record: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(record)
    for name in INNER:
        if isinstance(inner := record.get(name), dict):
            found = _flat(inner) | found
    return found


def _messages(rows: Rows, row: int, value: object) -> list[tuple[str, str]]:
    """Roles and texts. What is no text, as pictures and calls of tools, counts as its JSON."""
    value = parsed(value) if isinstance(value, str) else value
    if not (isinstance(value, list) and value and all(isinstance(one, dict) for one in value)):
        raise rows.wrong(row, f"{MESSAGES} is not valid; it must be a list of objects with role and content")
    found = []
    for one in value:
        content = one.get("content")
        rest = {key: part for key, part in one.items() if key not in ("role", "content") and part}
        text = content if isinstance(content, str) else "" if content is None else json.dumps(content)
        found.append((str(one.get("role")), text + (json.dumps(rest, sort_keys=True) if rest else "")))
    return found


def _outputs(rows: Rows, characters_per_token: float) -> Longs:
    if CHOICES not in rows or any(name in rows for name in OUTPUTS):
        return rows.integers(_named(rows, OUTPUTS))
    found = np.zeros(len(rows), np.int64)
    for row, choices in enumerate(rows.values(CHOICES)):
        try:
            found[row] = round(sum(len(_text(one)) for one in choices) / characters_per_token)
        except (TypeError, KeyError, AttributeError):
            raise rows.wrong(
                row, f"{CHOICES} is not valid; it must be a list of objects with message or text"
            ) from None
    return found


def _text(choice: Mapping[str, Any]) -> str:
    return choice["text"] if "text" in choice else choice["message"].get("content") or ""


def _tree(said: Sequence[Sequence[tuple[str, str]]], characters_per_token: float) -> Prompts:
    """A segment for each different beginning of messages."""
    number: dict[tuple[int, str, str], int] = {}
    offsets, ids, sizes = [0], [], []
    for messages in said:
        path = -1
        for role, text in messages:
            path = number.setdefault((path, role, text), len(number))
            ids.append(path)
            sizes.append(max(1, round(len(text) / characters_per_token)))
        offsets.append(len(ids))
    tokens = np.minimum(sizes, MOST).astype(np.int32)
    return Prompts(np.array(offsets), np.array(ids, np.int32), tokens)


def _sessions(rows: Rows, order: Longs) -> tuple[Any, Any] | None:
    name = next((name for name in SESSIONS if name in rows), None)
    return None if name is None else told(rows.codes(name)[order])
