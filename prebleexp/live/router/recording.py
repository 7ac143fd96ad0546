"""What a router was asked, was told and answered, in a file (record=), and the same put to a fresh policy (check=).

Lines of JSON. There is no text of a prompt in it, only numbers of blocks, and no name of a session, only its hash.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from prebleexp.errors import InvalidInput
from prebleexp.live.host import Host, Taken

FORMAT = "prebleexp route 1"


class Recording:
    """Writes each event as it happens. Close it at the end."""

    def __init__(self, path: Path, settings: Sequence[str], gpus: int) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: TextIO = path.open("w", encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"record={path}: {error.strerror}") from error
        self._write({"format": FORMAT, "settings": list(settings), "gpus": gpus})

    def arrives(self, taken: Taken, now: float, ids: Any, ends: Any, given: dict[str, Any]) -> None:
        block = int(ends[0]) if len(ends) > 1 else 0
        told = {"e": "arrives", "t": now, "n": taken.number, "ids": runs_of(ids.tolist()), "block": block}
        self._write({**told, "tokens": taken.tokens, **given})

    def answers(self, taken: Taken, now: float, answer: int) -> None:
        self._write({"e": "ask", "t": now, "n": taken.number, "gpu": answer})

    def hears(self, taken: Taken, now: float, kind: int, gpu: int, more: dict[str, Any]) -> None:
        self._write({"e": "hear", "t": now, "n": taken.number, "kind": kind, "gpu": gpu, **more})

    def changes(self, gpu: int, candidates: Sequence[int], now: float) -> None:
        self._write({"e": "changed", "t": now, "gpu": gpu, "candidates": list(candidates)})

    def reports(self, rows: Any, now: float) -> None:
        self._write({"e": "reports", "t": now, "rows": [list(one) for one in rows.tolist()]})

    def laps(self, now: float) -> None:
        self._write({"e": "lap", "t": now})

    def close(self) -> None:
        self._file.close()

    def _write(self, told: dict[str, Any]) -> None:
        self._file.write(json.dumps(told, separators=(",", ":")) + "\n")


class Checked(NamedTuple):
    """`differ`: of so many decisions; `first`: the line of the first."""

    decisions: int
    differ: int
    first: int | None


class _Names(NamedTuple):
    session: str | None
    number: int
    prefixes: dict[str, str]

    def prefix(self, tokens: int) -> str:
        return self.prefixes[str(tokens)]


def settings_of(path: Path) -> tuple[list[str], int]:
    """With which settings it was recorded, and of how many GPUs. Raises InvalidInput for another file."""
    first: Any = next(_lines(path), None)
    if not isinstance(first, dict) or first.get("format") != FORMAT:
        raise InvalidInput(f"check={path} is no recording of prebleexp route (record=FILE makes one)")
    return list(first["settings"]), int(first["gpus"])


def check(path: Path, host: Host) -> Checked:
    """Put all of it to a policy that knows nothing yet."""
    from prebleexp.live.router.prompts import spread

    taken: dict[int, Taken] = {}
    asked = differ = 0
    first = None
    for line, told in enumerate(_lines(path), 1):
        now, number = told.get("t", 0.0), told.get("n", -1)
        match told.get("e"):
            case "arrives":
                ids = numbers_of(told["ids"])
                names = None if "names" not in told else _Names(*told["names"])
                ends = spread(told["tokens"], told["block"] or told["tokens"])
                expected = told.get("expected")
                taken[number] = host.arrive(
                    ids, ends, told["most"], now, expected=expected, names=names, session=told["session"]
                )
            case "ask":
                asked += 1
                if host.decide(taken[number], now) != told["gpu"]:
                    differ += 1
                    first = first or line
            case "hear":
                more = {name: told[name] for name in ("tokens", "ttft_s", "latency_s", "output") if name in told}
                host.hear(told["kind"], taken[number], told["gpu"], now, **more)
            case "changed" if told["gpu"] >= 0:
                host.changed(told["gpu"], told["candidates"], now)
            case "changed":
                host.candidates(told["candidates"])
            case "reports":
                for g, row in enumerate(told["rows"]):
                    host.view.gpus[g] = tuple(row)
            case "lap":
                host.begin_lap()
    return Checked(asked, differ, first)


def runs_of(ids: Sequence[int]) -> list[int]:
    """As first and number, first and number, …"""
    made: list[int] = []
    for one in ids:
        if made and one == made[-2] + made[-1]:
            made[-1] += 1
        else:
            made += [one, 1]
    return made


def numbers_of(runs: Sequence[int]) -> Any:
    """The numbers that these runs stand for."""
    import numpy as np

    parts = [
        np.arange(first, first + count, dtype=np.int32) for first, count in zip(runs[::2], runs[1::2], strict=True)
    ]
    return np.concatenate(parts)


def _lines(path: Path) -> Iterator[Any]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except ValueError:
                    raise InvalidInput(f"check={path}, line {number}, is no JSON: was the router killed?") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"check={path} cannot be read: {error}") from error
