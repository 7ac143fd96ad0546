"""What a router was asked, was told and answered, in a file (record=), and the same put to a fresh policy (check=).

Lines of JSON. There is no text of a prompt in it, only numbers of blocks, and no name of a session, only its hash.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from prebleexp.errors import InvalidInput
from prebleexp.live.host import Host, Taken

LOG = logging.getLogger(__name__)
FORMAT = "prebleexp route 1"


class Recording:
    """Writes each event as it happens. Close it at the end.

    Raises InvalidInput where nothing can be written. Where that is so later, it says so once and stops: no request
    fails for it.
    """

    def __init__(self, path: Path, settings: Sequence[str], gpus: int) -> None:
        self.stopped = False
        """nothing is recorded any more"""
        self._path = path
        first = {"format": FORMAT, "settings": list(settings), "gpus": gpus}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_line(first), encoding="utf-8")
            self._file: TextIO = path.open("a", encoding="utf-8")
        except OSError as error:
            raise InvalidInput(f"record={path}: {error.strerror}") from error

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
        if not self.stopped:
            try:
                self._file.close()
            except OSError as error:
                self._stop(error)

    def _write(self, told: dict[str, Any]) -> None:
        if self.stopped:
            return
        try:
            self._file.write(_line(told))
        except OSError as error:
            self._stop(error)

    def _stop(self, error: OSError) -> None:
        self.stopped = True
        LOG.error("record=%s: %s. Nothing more is recorded; requests go on", self._path, error.strerror)
        with suppress(OSError):  # it tries to write what is left
            self._file.close()


def _line(told: dict[str, Any]) -> str:
    return json.dumps(told, separators=(",", ":")) + "\n"


class Checked(NamedTuple):
    """`differ`: of so many decisions; `first`: the line of the first; `cut`: the recording ends in the midst of a
    line, since its router was killed or its disk full."""

    decisions: int
    differ: int
    first: int | None
    cut: bool


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
    first, cut = None, False
    for line, told in enumerate(_lines(path), 1):
        if told is None:
            cut = True
            break
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
    return Checked(asked, differ, first, cut)


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
    """What each says; None: the last one, which is cut."""
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield json.loads(line)
                except ValueError:
                    if number == 1 or line.endswith("\n"):
                        raise InvalidInput(f"check={path}, line {number}, is no JSON") from None
                    yield None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"check={path} cannot be read: {error}") from error
