"""`python -m prebleexp cache …`: what is in a cache folder, whether it is sound, what may go, how to take it along."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from prebleexp import indexing
from prebleexp.commands import chosen
from prebleexp.commands.arguments import CACHE_DIR, Command, Commands, Given, Setting, choice, flag, integer, path
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import archive, maintenance
from prebleexp.experiment.cache import Cache, Entry, FailedRun
from prebleexp.experiment.key import differences
from prebleexp.experiment.maintenance import Item
from prebleexp.launch import tables
from prebleexp.launch.progress import Progress
from prebleexp.waiting import waiting

SORTS = ("age", "size", "seconds")
COLUMNS = (
    "key",
    "policy",
    "workload",
    "gpus",
    "replicas",
    "rps",
    "duration_s",
    "seed",
    "state",
    "code",
    "seconds",
    "bytes",
    "age_s",
)
SHORT_KEY = 12
_DURATIONS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def list_(cache: Cache, given: Given) -> int:
    """Prints cached runs, a line each, sorted by age, size or seconds of computing; returns the exit code."""
    output, limit = given["output"], given["limit"]
    found = chosen.matching(cache, given)
    orders: Mapping[str, Callable[[Item], float]] = {
        "age": lambda item: item.written,
        "size": lambda item: -item.bytes,
        "seconds": lambda item: -float(item.run.provenance.get("seconds") or 0.0),
    }
    shown = sorted(found, key=orders[given["sort"]])[: limit if limit is not None else len(found)]
    named = chosen.Named()
    rows = [{name: named.columns(item).get(name) for name in COLUMNS} for item in shown]
    if output == "table":
        lines = [[_shown(name, row[name]) for name in COLUMNS] for row in rows]
        tables.show(["age" if name == "age_s" else "size" if name == "bytes" else name for name in COLUMNS], lines)
    else:
        tables.write_rows(rows, output)
    print(f"{len(found):,} runs, {_size(sum(item.bytes for item in found))}", file=sys.stderr)
    return 0


def show(cache: Cache, given: Given) -> int:
    """Prints one run as JSON: configuration, metrics or error, provenance, code, files; returns the exit code."""
    run = cache.run(given.words[0])
    about: dict[str, Any] = {"key": run.key, "configuration": run.content["cell"]}
    if isinstance(run, Entry):
        about |= {"metrics": dict(run.metrics)}
    else:
        about |= {"error": {name: run.error[name] for name in ("type", "message")}}
    about |= {"provenance": dict(run.provenance), "code": run.content["code"], "files": _files(cache, run)}
    json.dump(about, sys.stdout, indent=1, allow_nan=False)
    print()
    if isinstance(run, FailedRun):
        print(run.error["traceback"], end="")
    return 0


def verify(cache: Cache, given: Given) -> int:
    """Check everything; 1 if something is wrong."""
    repair = given["repair"]
    if repair:
        _writable(cache)
    start = time.perf_counter()
    faults = maintenance.verify(cache)
    for fault in faults:
        print(f"{fault.path}: {fault.what}")
    runs = len([*cache.keys(), *cache.failed_keys()])
    seconds = time.perf_counter() - start
    wrong = f"{len(faults)} things are wrong" if len(faults) != 1 else "one thing is wrong"
    print(f"{runs:,} runs, {wrong if faults else 'all sound'}; {seconds:.1f} s", file=sys.stderr)
    if faults and repair:
        maintenance.repair(cache, faults)
    return 1 if faults else 0


def collect(cache: Cache, given: Given) -> int:
    """Remove what may go; without a choice say what there is."""
    dry = given["dry"]
    wanted: dict[str, Any] = {
        "older_than_s": given["older_than"],
        "keep_bytes": given["keep"],
        "unused_code": given["code"],
        "failed": given["failed"],
        "bad": given["bad"],
    }
    nothing = {"older_than_s": math.inf, "keep_bytes": math.inf, "unused_code": False, "failed": False, "bad": False}
    if wanted == nothing:
        removals = maintenance.waste(cache, unused_code=True, failed=True, bad=True)
        dry = True
    else:
        removals = maintenance.waste(cache, **wanted)
    if not dry:
        _writable(cache)
        maintenance.remove(removals)
    reasons = dict.fromkeys(removal.why for removal in removals)
    lines = []
    for why in reasons:
        of_it = [removal for removal in removals if removal.why == why]
        lines.append([why, f"{len(of_it):,}", _size(sum(removal.bytes for removal in of_it))])
    tables.show(["what", "runs", "size"], lines)
    if wanted == nothing:
        print("nothing is removed; say what: older_than=, keep=, code=unused, failed=true or bad=true", file=sys.stderr)
    elif removals and not dry:
        print("removed; python -m prebleexp cache index takes them out of the database", file=sys.stderr)
    return 0


def export(cache: Cache, given: Given) -> int:
    """Runs to an archive: those of a list of keys, or those that match."""
    keys, path = given["keys"], Path(given.words[0])
    archive.check_place(path)
    found = [(item.run, item.current) for item in chosen.matching(cache, given) if isinstance(item.run, Entry)]
    if keys is not None:
        named = _keys(keys)
        found = [(entry, current) for entry, current in found if entry.key in named]
    if not found:
        raise InvalidInput("there is no run to export")
    count = archive.export(cache, [entry for entry, _ in found], path)
    old = sum(not current for _, current in found)
    changed = f"; {old:,} of them by code that has changed since, which code=current leaves out" if old else ""
    print(f"{count:,} runs, {_size(path.stat().st_size)}{changed}", file=sys.stderr)
    return 0


def index(cache: Cache, given: Given) -> int:
    """Bring the database up to all runs and experiments of the cache."""
    _writable(cache)
    start = time.perf_counter()
    with Progress(len(indexing.keys_of(cache))) as progress:
        found = indexing.missing(cache, progress.advance)
    with waiting("writing the database"):
        count = indexing.rebuild(cache, found)
    print(f"{count:,} runs listed in {cache.database}; {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return 0


def import_(cache: Cache, given: Given) -> int:
    """Runs from an archive; 1 if some were refused."""
    _writable(cache)
    done = archive.take_in(cache, Path(given.words[0]))
    for line in done.refused:
        print(line)
    refused = f", {len(done.refused):,} refused" if done.refused else ""
    print(f"{done.added:,} runs imported, {done.present:,} already there{refused}", file=sys.stderr)
    return 1 if done.refused else 0


def why(cache: Cache, given: Given) -> int:
    """The fields in which what two keys stand for differs."""
    first, second = (cache.run(word).content for word in given.words)
    lines = [f"{path}: {json.dumps(a)} and {json.dumps(b)}" for path, a, b in differences(first, second)]
    print("\n".join(lines) or "nothing differs")
    return 0


def _files(cache: Cache, run: Entry | FailedRun) -> dict[str, str]:
    paths = (cache.path(run.key), cache.requests_path(run.key), cache.failure_path(run.key))
    own = paths[0] if isinstance(run, Entry) else paths[2]
    written = datetime.fromtimestamp(own.stat().st_mtime, UTC).isoformat(timespec="seconds")
    sizes = {str(path): _size(path.stat().st_size) for path in paths if path.exists()}
    return sizes | {"written": written}


def _keys(path: str) -> set[str]:
    try:
        return set(Path(path).read_text(encoding="utf-8").split())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"keys={path} cannot be read") from error


def _writable(cache: Cache) -> None:
    if cache.read_only is not None:
        raise InvalidInput(f"cache folder {cache.folder} cannot be written: {cache.read_only}")


def _quantity(name: str, meaning: str, units: Mapping[str, float], like: str) -> Setting:
    def read(name: str, value: str) -> float:
        found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-zA-Z]+)", value)
        if found is None or found[2] not in units:
            raise InvalidInput(f"{name}={value} is not valid; it is like {like}")
        return float(found[1]) * units[found[2]]

    return Setting(name, meaning, like.partition(",")[0], math.inf, read)


def _shown(name: str, value: Any) -> str:
    if name == "key":
        return str(value)[:SHORT_KEY]
    if name == "bytes":
        return _size(value)
    if name == "age_s":
        unit, size = next((unit, size) for unit, size in reversed(_DURATIONS.items()) if value >= size or size == 1)
        return f"{value / size:.0f} {unit}"
    return tables.number(value)


def _size(count: float) -> str:
    unit, size = next(
        (unit, size) for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1)) if count >= size or size == 1
    )
    return f"{count / size:.0f} B" if size == 1 else f"{count / size:.1f} {unit}"


def _of_cache(function: Callable[[Cache, Given], int], given: Given) -> int:
    folder = given["cache_dir"]
    if not folder.is_dir() and function is not import_:
        raise InvalidInput(f"cache_dir={folder} is not a folder")
    try:
        return function(Cache(folder, make=function in (collect, import_, index, verify)), given)
    except BrokenPipeError:  # of who reads our output
        raise
    except OSError as error:
        raise PrebleexpError(f"cache folder {folder} cannot be written: {error.strerror}") from error


def _command(
    function: Callable[[Cache, Given], int],
    does: str,
    example: str,
    *settings: Setting,
    words: str = "",
    takes: str = "",
) -> Command:
    made = f"python -m prebleexp {example}"
    return Command(does, partial(_of_cache, function), made, words, takes, (*settings, CACHE_DIR))


_FILTERS = tuple(Setting(name, "only runs of this") for name in (*chosen.FILTERS, "sweep"))
COMMANDS: Commands = {
    "ls": _command(
        list_,
        "a line for each run",
        "cache ls policy=lor sort=size limit=20",
        choice("output", "what is printed", "table", "json", "csv"),
        choice("sort", "what comes first", *SORTS),
        integer("limit", "only so many", least=0),
        *_FILTERS,
    ),
    "show": _command(
        show,
        "everything about a run, as JSON",
        "cache show 0f3a",
        words="KEY",
        takes="a key",
    ),
    "verify": _command(
        verify,
        "check every file; exit code 1 if something is wrong",
        "cache verify repair=true",
        flag("repair", "set aside what is damaged"),
    ),
    "gc": _command(
        collect,
        "remove runs; without a choice say what there is",
        "cache gc older_than=30d code=unused",
        _quantity("older_than", "runs written longer ago", _DURATIONS, "30d, 12h or 90s"),
        _quantity("keep", "the oldest, until the rest fits", _SIZES, "10GB, 500MB or 1GiB"),
        Setting("code", "runs of other code than this", "unused", False, choice("code", "", "unused").read),
        flag("failed", "failures"),
        flag("bad", "what was set aside"),
        flag("dry", "only say what would go"),
    ),
    "export": _command(
        export,
        "runs to an archive",
        "cache export mine.tar policy=mine",
        path("keys", "a file of keys: only these"),
        *_FILTERS,
        words="FILE",
        takes="a file to write",
    ),
    "import": _command(
        import_,
        "runs from an archive; exit code 1 if some were refused",
        "cache import mine.tar",
        words="FILE",
        takes="a file to read",
    ),
    "index": _command(index, "bring the database up to all runs of the cache", "cache index"),
    "why": _command(
        why,
        "the fields in which two runs differ",
        "cache why 0f3a 17bc",
        words="KEY KEY",
        takes='two keys, as in the column "key" of the results',
    ),
}
