"""The database follows the cache: held by somebody else, deleted, killed, two at once, nothing of a result is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from prebleexp import indexing, store
from prebleexp.__main__ import main
from prebleexp.errors import PrebleexpError
from prebleexp.experiment import history
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.history import Experiment
from tests.support.counted import calls
from tests.support.places import ROOT
from tests.support.said import after_first_words

CELLS = ("gpus=2", "rps=4", "duration_s=2", "output=csv")
SWEEP = ("-m", *CELLS, "policy=lor,e2", "replications=2")
TABLES = ("runs", "requests", "experiments", "experiment_runs", "failures")
Command = Callable[..., tuple[int, str]]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep, a single run, and a run that failed."""
    folder = tmp_path_factory.mktemp("swept")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main([*SWEEP, "sweep.name=first"]) == 0
        assert main([*CELLS, "policy=e2", "policy.window_s=20", "lengths=oracle", "engine=vllm"]) == 0
        assert main([*CELLS, "policy=lor", "time_limit_s=1e-9", "seed=77"]) == 1
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def folder(swept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(swept, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cache(folder: Path) -> Cache:
    return Cache(Path("cache"))


@pytest.fixture
def command(folder: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs a command; gives its exit code and what it says on standard error."""

    def run(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(list(arguments))
        return code, after_first_words(capsys.readouterr().err)

    return run


@pytest.fixture
def held(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Another process has the database open to write, as DuckDB's window does; call to close that."""
    monkeypatch.setattr(store, "LOCK_PATIENCE_S", 0.2)
    code = f"import duckdb; c = duckdb.connect({str(cache.database)!r}); print('held', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"

    def close() -> None:
        process.communicate("\n")

    yield close
    process.kill()
    process.communicate()


def tables(database: Path) -> dict[str, list[str]]:
    """Every row of every table, columns in order of their names, as text."""
    found = {}
    with duckdb.connect(database, read_only=True) as connection:
        for table in TABLES:
            rows = connection.table(table)
            columns = ", ".join(f'"{name}"' for name in sorted(rows.columns))
            found[table] = sorted(map(repr, [sorted(rows.columns), *rows.project(columns).fetchall()]))
    return found


def asked(database: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(database, read_only=True) as connection:
        return connection.execute(query).fetchall()


HELD = "prebleexp: the database cache/prebleexp.duckdb is open in another process; "
LATER = f"{HELD}a later command brings it up to date\n"
NAMES = "select name, n_runs, times_run from experiments order by name"


@pytest.mark.slow
def test_an_open_window_costs_no_sweep_its_report_and_no_run_its_success(
    cache: Cache, held: Callable[[], None], command: Command
) -> None:
    code, said = command(*SWEEP, "sweep.name=second", "seed=5")
    assert code == 0
    assert said.splitlines()[-1] == "reports/second/index.html"
    assert LATER in said
    assert Path("reports/second/index.html").exists()
    code, said = command(*CELLS, "seed=9")
    assert (code, said.splitlines(keepends=True)[-1]) == (0, LATER)
    for question in (["sql", "select 1"], ["compare", "lor", "e2"]):
        code, said = command(*question)
        assert (code, said) == (1, f"{HELD[:-2]}; close it there and run this again\n")
    held()
    assert command("sql", "select 1") == (0, "")
    assert asked(cache.database, NAMES) == [
        ("first", 4, 1),
        ("run", 1, 1),
        ("run", 1, 1),
        ("run", 1, 1),
        ("second", 4, 1),
    ]
    assert asked(cache.database, "select count(*) from runs") == [(10,)]
    assert not history.waiting(cache)


@pytest.mark.slow
@pytest.mark.parametrize(
    "later", [(*SWEEP, "sweep.name=third", "seed=8"), ("compare", "lor", "e2", "sweep=second", "report=none")]
)
def test_a_later_sweep_or_comparison_catches_up(
    cache: Cache, held: Callable[[], None], command: Command, later: tuple[str, ...]
) -> None:
    command(*SWEEP, "sweep.name=second", "seed=5", "report=none")
    held()
    code, said = command(*later)
    assert code == 0, said
    assert "database" not in said
    assert ("second", 4, 1) in asked(cache.database, NAMES)
    assert asked(cache.database, "select count(*) from runs where seed in (5, 6)") == [(4,)]


@pytest.mark.slow
def test_what_catches_up_is_what_would_have_been_there(
    cache: Cache, held: Callable[[], None], command: Command
) -> None:
    """Rows made of the cache's files are those made of the command's own words."""
    line = (*CELLS, "policy=e2", "policy.window_s=30", "hardware=a100_mistral_7b", "lengths=noisy", "seed=5")
    command(*line)
    held()
    command("sql", "select 1")
    shutil.copytree(cache.runs, Path("other/v1"))
    command(*line, "cache_dir=other")

    def row(database: Path) -> dict[str, Any]:
        with duckdb.connect(database, read_only=True) as connection:
            found = connection.execute("from runs where seed = 5")
            names = [column[0] for column in found.description or ()]
            return {name: value for name, value in zip(names, *found.fetchall(), strict=True) if value is not None}

    assert row(cache.database) == row(Path("other/prebleexp.duckdb"))
    assert row(cache.database)["hardware"] == "a100_mistral_7b"


@pytest.mark.slow
def test_a_process_that_is_killed_before_the_database_is_written_loses_nothing(
    cache: Cache, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def kill(*arguments: object, **more: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(store, "load", kill)
        with pytest.raises(Killed):
            command(*CELLS, "seed=9")
    assert len(history.unlisted(cache)) == 1
    before = len(asked(cache.database, "from runs"))
    with monkeypatch.context() as patch:  # and after it was written, before that was noted
        patch.setattr(history, "settle", kill)
        with pytest.raises(Killed):
            command(*CELLS, "seed=10")
    assert len(asked(cache.database, "from runs")) == before + 2
    assert command("sql", "select 1") == (0, "")
    assert not history.waiting(cache)
    assert [times for _, _, times in asked(cache.database, NAMES)] == [1, 1, 1, 1, 1]


@pytest.mark.slow
def test_two_that_finish_at_once_are_both_listed(cache: Cache) -> None:
    line = [sys.executable, "-m", "prebleexp", *CELLS]
    processes = [
        subprocess.Popen(
            [*line, f"seed={seed}"],
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for seed in (11, 12, 13)
    ]
    assert [process.wait() for process in processes] == [0, 0, 0]
    indexing.refresh(cache)
    assert len(asked(cache.database, "from runs where seed in (11, 12, 13)")) == 3
    assert len(asked(cache.database, "from experiments")) == 6


@pytest.mark.slow
def test_what_is_all_cached_leaves_the_database_alone_and_is_counted_when_it_is_asked(
    cache: Cache, command: Command
) -> None:
    before = cache.database.read_bytes()
    for _ in range(2):
        command(*SWEEP, "sweep.name=first", "report=none")
    assert cache.database.read_bytes() == before
    command("sql", "select 1")
    assert asked(cache.database, NAMES)[0] == ("first", 4, 3)


@pytest.mark.slow
def test_index_makes_a_deleted_database_anew(cache: Cache, command: Command) -> None:
    before = tables(cache.database)
    assert len(before["runs"]) == 6, "the columns, and five runs"
    assert len(before["failures"]) == 2
    assert len(before["requests"]) > 10
    cache.database.unlink()
    code, said = command("cache", "index")
    assert (code, said.partition(";")[0]) == (0, "5 runs listed in cache/prebleexp.duckdb")
    assert tables(cache.database) == before
    assert command("sql", "select 1") == (0, "")


@pytest.mark.slow
def test_index_lists_what_was_imported_and_takes_out_what_was_removed(cache: Cache, command: Command) -> None:
    command("cache", "export", "lor.tar", "policy=lor")
    command("cache", "import", "lor.tar", "cache_dir=other")
    assert command("sql", "select 1", "cache_dir=other")[0] == 2
    assert command("cache", "index", "cache_dir=other")[1].startswith("2 runs listed")
    columns = "policy, hardware, lengths, count(*)"
    query = f"select {columns} from runs group by all"
    assert asked(Path("other/prebleexp.duckdb"), query) == [("lor", "composed", None, 2)]
    removed = next(iter(cache.keys()))
    for path in list(cache.runs.glob(f"??/{removed}.*")):
        path.unlink()
    assert command("cache", "index")[1].startswith("4 runs listed")
    assert len(asked(cache.database, "from runs")) == 4
    assert asked(cache.database, "select count(*) from requests where key not in (select key from runs)") == [(0,)]


@pytest.mark.slow
def test_index_starts_a_damaged_database_anew(cache: Cache, command: Command) -> None:
    before = tables(cache.database)
    cache.database.write_bytes(b"no database" * 1000)
    code, said = command("cache", "index")
    assert code == 0
    assert "moved to prebleexp.duckdb.bad" in said
    assert tables(cache.database) == before


def test_index_of_a_database_that_is_open_elsewhere_is_one_line(
    cache: Cache, held: Callable[[], None], command: Command
) -> None:
    assert command("cache", "index") == (1, f"{HELD[:-2]}; close it there and run this again\n")


def test_who_asks_is_told_what_is_not_listed(cache: Cache, command: Command) -> None:
    cache.database.unlink()
    hint = "python -m prebleexp cache index lists them all\n"
    assert command("sql", "select 1") == (
        2,
        f"prebleexp: 0 of 5 cached runs are listed; {hint}prebleexp: there is no database cache/prebleexp.duckdb; "
        "runs make it\n",
    )
    command(*CELLS, "seed=9")
    for question in (["sql", "select 1"], ["compare", "lor", "lor", "report=none"]):
        assert command(*question)[1].startswith(f"prebleexp: 1 of 6 cached runs are listed; {hint}")


def test_who_asks_for_requests_that_no_run_kept_is_told_how_to_keep_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a plan it was DuckDB's "Did you mean results?"."""
    monkeypatch.chdir(tmp_path)
    assert main([*CELLS, "policy=lor", "keep_requests=none"]) == 0
    capsys.readouterr()
    assert main(["sql", "select count(*) from requests"]) == 2
    said = capsys.readouterr().err
    assert "sql: there is no table requests, as no run that is listed kept its requests; keep_requests=all has" in said
    assert main(["sql", "select count(*) from request"]) == 2
    assert "Table with name request does not exist" in capsys.readouterr().err
    assert main([*CELLS, "policy=lor", "keep_requests=all"]) == 0
    assert main(["sql", "select count(*) > 0 as any from requests", "output=json"]) == 0


def test_thousands_of_runs_are_listed_without_a_look_at_each(tmp_path: Path) -> None:
    cache, runs = Cache(tmp_path), 2_000
    for i in range(runs):
        path = cache.path(f"{i * 7919 % 256:02x}{i:062x}")
        path.parent.mkdir(exist_ok=True)
        path.touch()
    (cache.runs / "00" / f"{'0' * 64}.failed.json").touch()
    assert len(indexing.keys_of(cache)) == runs
    each = calls(lambda: indexing.keys_of(cache)) / runs
    print(f"{each:.1f} calls a run")
    assert each < 7


def test_a_cache_that_cannot_be_written_is_read(
    cache: Cache, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.note(cache, Experiment({"id": "late", "name": "late"}, []), "2026-01-01")

    def refuse(*arguments: object, **more: object) -> None:
        raise PrebleexpError("cannot write the database: Read-only file system")

    monkeypatch.setattr(store, "load", refuse)
    assert command("sql", "select 1") == (0, "")
    assert [one.id for one in history.waiting(cache)] == ["late"]


def test_an_experiment_is_noted_with_its_dates(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    one = Experiment({"id": "a", "name": "x"}, [{"key": "k"}])
    assert history.note(cache, one, "2026-01-01").columns["times_run"] == 1
    history.note(cache, one, "2026-01-02")
    assert history.unlisted(cache) == {"a"}
    history.settle(cache, [one])
    history.settle(cache, [one])
    assert (history.waiting(cache), history.unlisted(cache)) == ([], set())
    history.note(cache, one, "2026-01-03")
    assert history.unlisted(cache) == set(), "the database has it, as it was"
    dates = {"first_run": "2026-01-01", "last_run": "2026-01-03", "times_run": 3}
    assert history.waiting(cache) == history.every(cache) == [Experiment({**one.columns, **dates}, one.runs)]


def test_a_damaged_experiment_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = Cache(tmp_path)
    history.note(cache, Experiment({"id": "a"}, []), "2026-01-01")
    history.note(cache, Experiment({"id": "b"}, []), "2026-01-01")
    (tmp_path / "experiments" / f"a{history.WAITING}").write_bytes(b"{}")
    assert [one.id for one in history.waiting(cache)] == ["b"]
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "is damaged" in said
    assert [one.id for one in history.waiting(cache)] == ["b"]
    assert capsys.readouterr().err == "", "said once"
