"""`python -m prebleexp cache …`: what is in a cache folder, whether it is sound, what may go, how to take it along."""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from prebleexp import indexing
from prebleexp.commands.arguments import Given
from prebleexp.errors import InvalidInput, PrebleexpError, unknown
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
    "rps",
    "duration_s",
    "seed",
    "state",
    "code",
    "seconds",
    "bytes",
    "age_s",
)
FILTERS = ("policy", "workload", "gpus", "rps", "duration_s", "seed", "state", "code")
SHORT_KEY = 12
WORDS = {
    "show": (1, "a key"),
    "why": (2, 'two keys, as in the column "key" of the results'),
    "export": (1, "a file to write"),
    "import": (1, "a file to read"),
}
_DURATIONS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SIZES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say and return the exit code."""
    if not arguments or arguments[0] not in COMMANDS:
        raise unknown("cache command", arguments[0] if arguments else "", COMMANDS)
    words = [one for one in arguments[1:] if "=" not in one]
    _count(arguments[0], words)
    given = Given(one for one in arguments[1:] if "=" in one)
    folder = given.path("cache_dir", "cache")
    if not folder.is_dir() and arguments[0] != "import":
        raise InvalidInput(f"cache_dir={folder} is not a folder")
    try:
        cache = Cache(folder, make=arguments[0] in ("gc", "import", "index", "verify"))
        return COMMANDS[arguments[0]](cache, words, given)
    except BrokenPipeError:  # of who reads our output
        raise
    except OSError as error:
        raise PrebleexpError(f"cache folder {folder} cannot be written: {error.strerror}") from error


def list_(cache: Cache, words: Sequence[str], given: Given) -> int:
    """A line for each run."""
    output = given.choice("output", ("table", "json", "csv"))
    sort = given.choice("sort", SORTS)
    limit = given.integer("limit", least=0)
    filters = given.texts(FILTERS)
    given.end()
    found = _matching(cache, filters)
    orders: Mapping[str, Callable[[Item], float]] = {
        "age": lambda item: item.written,
        "size": lambda item: -item.bytes,
        "seconds": lambda item: -float(item.run.provenance.get("seconds") or 0.0),
    }
    shown = sorted(found, key=orders[sort])[: limit if limit is not None else len(found)]
    rows = [{name: item.columns().get(name) for name in COLUMNS} for item in shown]
    if output == "table":
        lines = [[_shown(name, row[name]) for name in COLUMNS] for row in rows]
        tables.show(["age" if name == "age_s" else "size" if name == "bytes" else name for name in COLUMNS], lines)
    else:
        tables.write_rows(rows, output)
    print(f"{len(found):,} runs, {_size(sum(item.bytes for item in found))}", file=sys.stderr)
    return 0


def show(cache: Cache, words: Sequence[str], given: Given) -> int:
    """Everything about a run."""
    given.end()
    item = _item(cache, words[0])
    run = item.run
    about: dict[str, Any] = {"key": item.key, "configuration": run.content["cell"]}
    if isinstance(run, Entry):
        about |= {"metrics": dict(run.metrics)}
    else:
        about |= {"error": {name: run.error[name] for name in ("type", "message")}}
    about |= {"provenance": dict(run.provenance), "code": run.content["code"], "files": _files(cache, item)}
    json.dump(about, sys.stdout, indent=1, allow_nan=False)
    print()
    if isinstance(run, FailedRun):
        print(run.error["traceback"], end="")
    return 0


def verify(cache: Cache, words: Sequence[str], given: Given) -> int:
    """Check everything; 1 if something is wrong."""
    repair = given.flag("repair")
    given.end()
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


def collect(cache: Cache, words: Sequence[str], given: Given) -> int:
    """Remove what may go; without a choice say what there is."""
    dry = given.flag("dry")
    code = given.text("code")
    if code not in (None, "unused"):
        raise InvalidInput(f"code={code} is not valid; it must be unused")
    wanted: dict[str, Any] = {
        "older_than_s": _quantity(given, "older_than", _DURATIONS, "30d, 12h or 90s"),
        "keep_bytes": _quantity(given, "keep", _SIZES, "10GB, 500MB or 1GiB"),
        "unused_code": code is not None,
        "failed": given.flag("failed"),
        "bad": given.flag("bad"),
    }
    given.end()
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


def export(cache: Cache, words: Sequence[str], given: Given) -> int:
    """Runs to an archive: those of a list of keys, or those that match."""
    keys, filters, path = given.text("keys"), given.texts(FILTERS), Path(words[0])
    given.end()
    archive.check_place(path)
    wanted = [item.run for item in _matching(cache, filters) if isinstance(item.run, Entry)]
    if keys is not None:
        wanted = [entry for entry in wanted if entry.key in _keys(keys)]
    if not wanted:
        raise InvalidInput("there is no run to export")
    count = archive.export(cache, wanted, path)
    print(f"{count:,} runs, {_size(path.stat().st_size)}", file=sys.stderr)
    return 0


def index(cache: Cache, words: Sequence[str], given: Given) -> int:
    """Bring the database up to all runs and experiments of the cache."""
    given.end()
    _writable(cache)
    start = time.perf_counter()
    with Progress(len(indexing.keys_of(cache))) as progress:
        found = indexing.missing(cache, progress.advance)
    with waiting("writing the database"):
        count = indexing.rebuild(cache, found)
    print(f"{count:,} runs listed in {cache.database}; {time.perf_counter() - start:.1f} s", file=sys.stderr)
    return 0


def import_(cache: Cache, words: Sequence[str], given: Given) -> int:
    """Runs from an archive; 1 if some were refused."""
    given.end()
    _writable(cache)
    done = archive.take_in(cache, Path(words[0]))
    for line in done.refused:
        print(line)
    refused = f", {len(done.refused):,} refused" if done.refused else ""
    print(f"{done.added:,} runs imported, {done.present:,} already there{refused}", file=sys.stderr)
    return 1 if done.refused else 0


def why(cache: Cache, words: Sequence[str], given: Given) -> int:
    """The fields in which what two keys stand for differs."""
    given.end()
    first, second = (_item(cache, word).run.content for word in words)
    lines = [f"{path}: {json.dumps(a)} and {json.dumps(b)}" for path, a, b in differences(first, second)]
    print("\n".join(lines) or "nothing differs")
    return 0


COMMANDS: dict[str, Callable[[Cache, Sequence[str], Given], int]] = {
    "ls": list_,
    "show": show,
    "verify": verify,
    "gc": collect,
    "export": export,
    "import": import_,
    "index": index,
    "why": why,
}


def _matching(cache: Cache, filters: Mapping[str, str]) -> list[Item]:
    found = []
    for item in maintenance.items(cache):
        columns = item.columns()
        if all(_same(columns.get(name), value) for name, value in filters.items()):
            found.append(item)
    return found


def _same(value: object, wanted: str) -> bool:
    if isinstance(value, int | float):
        try:
            return value == float(wanted)
        except ValueError:
            return False
    return str(value) == wanted


def _item(cache: Cache, start: str) -> Item:
    """The run whose key begins so."""
    if not re.fullmatch("[0-9a-f]{4,64}", start):
        raise InvalidInput(f"{start!r} is not a key; keys have 64 hexadecimal digits, of which the first will do")
    keys = cache.beginning(start)
    if len(keys) > 1:
        raise InvalidInput(f"{start} begins {len(keys)} keys; give more digits")
    for key in keys:
        run = cache.get(key) or cache.failure(key)
        if run is not None:
            path = cache.path(key) if isinstance(run, Entry) else cache.failure_path(key)
            return Item(key, run, path.stat().st_size, path.stat().st_mtime)
    raise InvalidInput(f"the cache in {cache.folder} has no run {start}")


def _files(cache: Cache, item: Item) -> dict[str, str]:
    paths = (cache.path(item.key), cache.requests_path(item.key), cache.failure_path(item.key))
    written = datetime.fromtimestamp(item.written, UTC).isoformat(timespec="seconds")
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


def _count(name: str, words: Sequence[str]) -> None:
    count, what = WORDS.get(name, (0, ""))
    if len(words) != count:
        raise InvalidInput(f"{name} needs {what}" if count else f"cache {name} does not know {words[0]!r}")


def _quantity(given: Given, name: str, units: Mapping[str, float], like: str) -> float:
    value = given.text(name)
    if value is None:
        return math.inf
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-zA-Z]+)", value)
    if found is None or found[2] not in units:
        raise InvalidInput(f"{name}={value} is not valid; it is like {like}")
    return float(found[1]) * units[found[2]]


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
