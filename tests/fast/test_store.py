"""The database is an index of the results: typed, complete, rebuilt at will."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prebleexp import store
from prebleexp.errors import PrebleexpError
from prebleexp.experiment.history import Experiment
from prebleexp.intervals import mean_interval
from prebleexp.store import Row, load
from tests.support.counted import calls
from tests.support.sampled import examples


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "prebleexp.duckdb"


def query(database: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(database, read_only=True) as connection:
        return connection.execute(sql).fetchall()


def a_row(key: str, **values: Any) -> Row:
    return {"key": key, "gpus": 8, "rps": 64.0, "policy": "lor", "ttft_p99_s": 0.5} | values


def requests_file(path: Path, n: int, **columns: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"gpu": [0] * n, "ttft_s": [0.25] * n} | columns), path)
    return path


def test_columns_have_the_types_of_the_values(database: Path) -> None:
    load(database, [a_row("a", **{"policy.sticky": True, "ttft_p99_s": None})], {})
    types = dict(query(database, "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'runs'"))
    assert types == {
        "key": "VARCHAR",
        "gpus": "BIGINT",
        "rps": "DOUBLE",
        "policy": "VARCHAR",
        "ttft_p99_s": "DOUBLE",
        "policy.sticky": "BOOLEAN",
    }


def test_an_integer_column_becomes_double_when_a_fraction_comes_and_text_when_text_comes(database: Path) -> None:
    load(database, [a_row("a", **{"policy.x": 1})], {})
    load(database, [a_row("b", **{"policy.x": 1.5})], {})
    assert query(database, 'SELECT "policy.x" FROM runs ORDER BY key') == [(1.0,), (1.5,)]
    load(database, [a_row("c", **{"policy.x": "auto"}), a_row("d", **{"policy.x": 2})], {})
    assert query(database, 'SELECT "policy.x" FROM runs ORDER BY key') == [("1.0",), ("1.5",), ("auto",), ("2",)]


def test_a_later_sweep_brings_new_columns_and_older_rows_have_null(database: Path) -> None:
    load(database, [a_row("a")], {})
    load(database, [a_row("b", **{"policy.window_s": 180.0})], {})
    assert query(database, 'SELECT key, gpus, "policy.window_s" FROM runs ORDER BY key') == [
        ("a", 8, None),
        ("b", 8, 180.0),
    ]


def test_a_key_has_one_row_and_the_last_one_given_counts(database: Path) -> None:
    load(database, [a_row("a", seconds=1.0), a_row("b")], {})
    load(database, [a_row("a", seconds=2.0), a_row("a", seconds=3.0)], {})
    assert query(database, "SELECT key, seconds FROM runs ORDER BY key") == [("a", 3.0), ("b", None)]


def test_a_value_that_became_unknown_becomes_null(database: Path) -> None:
    load(database, [a_row("a", hit_ratio=0.5)], {})
    load(database, [a_row("a", hit_ratio=None)], {})
    assert query(database, "SELECT hit_ratio FROM runs") == [(None,)]


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
integers = st.integers(-(2**63), 2**63 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=names, values=st.lists(st.none() | integers) | st.lists(st.none() | texts) | st.lists(st.floats()))
def test_any_value_under_any_name_comes_back_as_it_was(tmp_path: Path, name: str, values: list[Any]) -> None:
    database = tmp_path / "any.duckdb"
    database.unlink(missing_ok=True)
    column = f"policy.{name}"
    load(database, [{"key": f"{i:09}", column: value} for i, value in enumerate(values)] or [{"key": "-"}], {})
    with duckdb.connect(database, read_only=True) as connection:
        found = connection.execute("SELECT * FROM runs ORDER BY key").fetchall()
    assert repr([row[1] for row in found if len(row) > 1]) == repr(values)


def test_requests_are_loaded_once_under_their_key(database: Path, tmp_path: Path) -> None:
    files = {"a": requests_file(tmp_path / "1.parquet", 3), "b": requests_file(tmp_path / "2.parquet", 2)}
    for _ in range(2):
        load(database, [a_row("a"), a_row("b")], files)
    assert query(database, "SELECT key, count(*), min(ttft_s) FROM requests GROUP BY key ORDER BY key") == [
        ("a", 3, 0.25),
        ("b", 2, 0.25),
    ]


def test_requests_with_a_new_column_join_the_older_ones(database: Path, tmp_path: Path) -> None:
    load(database, [], {"a": requests_file(tmp_path / "1.parquet", 1)})
    load(database, [], {"b": requests_file(tmp_path / "2.parquet", 1, overhead_s=[0.001])})
    assert query(database, "SELECT key, overhead_s FROM requests ORDER BY key") == [("a", None), ("b", 0.001)]


def test_a_folder_name_with_wildcards_is_taken_literally(database: Path, tmp_path: Path) -> None:
    wanted = requests_file(tmp_path / "run[1] *?'" / "k.parquet", 1)
    requests_file(tmp_path / "run1 xx'" / "k.parquet", 7)
    load(database, [], {"a": wanted})
    assert query(database, "SELECT count(*) FROM requests") == [(1,)]


def test_an_unreadable_requests_file_is_named_and_the_database_kept(database: Path, tmp_path: Path) -> None:
    load(database, [a_row("a")], {})
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1 this is not Parquet PAR1")
    with pytest.raises(PrebleexpError, match=r"broken\.parquet"):
        load(database, [a_row("b")], {"b": broken})
    assert query(database, "SELECT key FROM runs") == [("a",)], "the load is one transaction"


def truncated(file: bytes) -> bytes:
    return file[: len(file) // 2]


def flipped(file: bytes) -> bytes:
    return file[:4200] + bytes([file[4200] ^ 1]) + file[4201:]


def foreign(file: bytes) -> bytes:
    return b"no database at all" * 100


@pytest.mark.parametrize("damage", [truncated, flipped, foreign])
def test_a_damaged_database_is_reported_set_aside_and_rebuilt(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: Any
) -> None:
    files = {"a": requests_file(tmp_path / "1.parquet", 3)}
    load(database, [a_row("a")], files)
    damaged = damage(database.read_bytes())
    database.write_bytes(damaged)
    load(database, [a_row("a")], files)
    assert query(database, "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM requests)") == [(1, 3)]
    assert database.with_name("prebleexp.duckdb.bad").read_bytes() == damaged
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert str(database) in said


def test_a_table_of_someone_elses_is_set_aside(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with duckdb.connect(database) as connection:
        connection.execute("CREATE TABLE runs AS SELECT 42 AS answer")
    load(database, [a_row("a")], {})
    assert query(database, "SELECT key, gpus FROM runs") == [("a", 8)]
    assert "rebuilt" in capsys.readouterr().err


@pytest.fixture
def holder(database: Path) -> Any:
    """Starts another process that holds the database's lock for some seconds."""
    started = []

    def hold(seconds: float) -> None:
        code = f"import duckdb, time; c = duckdb.connect({str(database)!r}); print('held', flush=True)"
        command = [sys.executable, "-c", f"{code}; time.sleep({seconds})"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

    yield hold
    for process in started:
        process.kill()
        process.communicate()


def test_a_lock_that_another_process_holds_briefly_is_waited_for(database: Path, holder: Any) -> None:
    holder(0.3)
    load(database, [a_row("a")], {})
    assert query(database, "SELECT key FROM runs") == [("a",)]


def test_a_lock_that_another_process_keeps_is_one_clear_error(
    database: Path, holder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "LOCK_PATIENCE_S", 0.2)
    holder(60)
    with pytest.raises(PrebleexpError, match=r"prebleexp\.duckdb is open in another process") as caught:
        load(database, [a_row("a")], {})
    assert "\n" not in str(caught.value)


def test_a_database_that_cannot_be_opened_is_one_clear_error_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "folder.duckdb"
    folder.mkdir()
    for path in (folder, tmp_path / "missing" / "x.duckdb"):
        with pytest.raises(PrebleexpError, match=path.name) as caught:
            load(path, [a_row("a")], {})
        assert "\n" not in str(caught.value)
    assert folder.is_dir()


def many_rows() -> list[Row]:
    return [
        {"key": f"{i:064x}", "policy": f"p{i % 3}", "seed": i} | {f"m{j}_s": i / 7 + j for j in range(50)}
        for i in range(1000)
    ]


def test_a_thousand_rows_are_loaded_together_and_again_nothing_is_written(tmp_path: Path) -> None:
    rows, database = many_rows(), tmp_path / "many.duckdb"
    first = calls(lambda: load(database, rows, {})) / len(rows)
    before = database.read_bytes()
    again = calls(lambda: load(database, rows, {})) / len(rows)
    print(f"{first:.1f} calls a row, again {again:.1f}")
    assert first < 150
    assert again < 20
    assert database.read_bytes() == before, "nothing is written when nothing changed"


def experiment(name: str, keys: str, last_run: str) -> Experiment:
    return Experiment({"id": name, "name": name, "last_run": last_run}, [{"key": key, "part": "p"} for key in keys])


def test_an_experiment_has_one_row_and_its_runs(database: Path) -> None:
    load(database, [], {}, experiments=[experiment("a", "xyz", "2026-01-01")])
    load(database, [], {}, experiments=[experiment("b", "x", "2026-01-02"), experiment("a", "xy", "2026-01-03")])
    with duckdb.connect(database) as connection:
        found = connection.execute("SELECT id, last_run FROM experiments ORDER BY id").fetchall()
        assert found == [("a", "2026-01-03"), ("b", "2026-01-02")]
        found = connection.execute("SELECT experiment, key FROM experiment_runs ORDER BY ALL").fetchall()
        assert found == [("a", "x"), ("a", "y"), ("b", "x")]


def test_what_is_of_other_keys_goes_if_that_is_asked_for(database: Path, tmp_path: Path) -> None:
    files = {key: requests_file(tmp_path / f"{key}.parquet", 2) for key in "ab"}
    load(database, [a_row("a"), a_row("b")], files, [{"key": "c"}, {"key": "d"}])
    assert store.listed(database) == {"a": True, "b": True}
    load(database, [a_row("e")], {}, kept=lambda: {"a", "d", "e"})
    assert store.listed(database) == {"a": True, "e": False}
    assert query(database, "SELECT DISTINCT key FROM requests") == [("a",)]
    assert query(database, "SELECT key FROM failures") == [("d",)]


def seeds(name: str, values: list[float | None], **columns: Any) -> list[Row]:
    return [a_row(f"{name}{seed}", seed=seed, ttft_p99_s=value, **columns) for seed, value in enumerate(values)]


def results(database: Path, where: str = "true") -> list[tuple[Any, ...]]:
    columns = "sweep, part, policy, mean, half_width, seeds"
    return query(database, f"SELECT {columns} FROM results WHERE metric = 'ttft_p99_s' AND {where} ORDER BY ALL")


def of(name: str, rows: list[Row], last_run: str = "2026-01-01", id: str = "") -> Experiment:
    runs = [{"key": row["key"], "part": "p"} for row in rows]
    return Experiment({"id": id or name, "name": name, "last_run": last_run}, runs)


def test_results_have_the_intervals_of_reports_and_mix_no_configurations(database: Path) -> None:
    a, b, c = [0.5, 0.75, 0.625, 1.5], [2.0, None, 4.0], [7.0]
    rows = [*seeds("a", a), *seeds("b", b, **{"policy.window_s": 20.0}), *seeds("c", c, **{"policy.window_s": 60.0})]
    load(database, rows, {}, experiments=[of("one", rows)])
    found = {row[3]: row for row in results(database)}
    for values, mean in ((a, 0.84375), (b, 3.0)):
        _, half = mean_interval([value for value in values if value is not None])
        assert found[mean][4] == pytest.approx(half, rel=1e-12)
        assert found[mean][5] == sum(value is not None for value in values)
    assert found[7.0] == ("one", "p", "lor", 7.0, None, 1)
    fields = query(database, """SELECT "policy.window_s" FROM results WHERE metric = 'ttft_p99_s' ORDER BY ALL""")
    assert fields == [(20.0,), (60.0,), (None,)]


def test_results_keep_variants_lines_and_settings_of_lengths_apart(database: Path) -> None:
    """As in the paper's sweep: one run may stand in several parts, and a policy in several settings of lengths."""
    told = {name: seeds(name, [i + 1.0], lengths=name) for i, name in enumerate(("max", "oracle"))}
    released, described = seeds("r", [5.0, 7.0], engine="released"), seeds("d", [9.0, 11.0], engine="sglang_2024")
    places = [
        *((row, "rates", "as released", "LOR") for row in released),
        *((row, "rates", "as described", "LOR") for row in described),
        *((row, "causes", "as described", "LOR") for row in described),
        *((row, "rates", "as described", f"PREBLE, {name}") for name, rows in told.items() for row in rows),
    ]
    runs = [{"key": row["key"], "part": part, "variant": variant, "line": line} for row, part, variant, line in places]
    paper = Experiment({"id": "paper", "name": "paper", "last_run": "2026-01-01"}, runs)
    load(database, [row for row, *_ in places], {}, experiments=[paper])
    columns = "part, variant, line, engine, lengths, mean, seeds"
    assert query(database, f"SELECT {columns} FROM results WHERE metric = 'ttft_p99_s' ORDER BY ALL") == [
        ("causes", "as described", "LOR", "sglang_2024", None, 10.0, 2),
        ("rates", "as described", "LOR", "sglang_2024", None, 10.0, 2),
        ("rates", "as described", "PREBLE, max", None, "max", 1.0, 1),
        ("rates", "as described", "PREBLE, oracle", None, "oracle", 2.0, 1),
        ("rates", "as released", "LOR", "released", None, 6.0, 2),
    ]


@pytest.mark.parametrize("count", [200, 1000])
def test_the_interval_of_very_many_seeds_is_a_little_too_wide(database: Path, count: int) -> None:
    rows = seeds("a", [float(i % 7) for i in range(count)])
    load(database, rows, {}, experiments=[of("one", rows)])
    _, half = mean_interval([float(i % 7) for i in range(count)])
    assert half is not None
    assert half * (1 - 1e-12) <= results(database)[0][4] <= half * 1.007


def test_results_are_of_the_last_sweep_of_a_name_and_of_the_last_run_of_a_configuration(database: Path) -> None:
    old, new = seeds("a", [1.0, 3.0]), seeds("b", [5.0])
    load(database, [*old, *new], {}, experiments=[of("s", old), of("s", new, "2026-01-02", "later")])
    assert [row[3] for row in results(database)] == [5.0]
    other = seeds("c", [9.0], policy="e2")
    single = [
        of("run", some, day, day) for some, day in ((old, "2026-02-01"), (new, "2026-02-02"), (other, "2026-02-03"))
    ]
    load(database, other, {}, experiments=single)
    assert [(row[2], row[3]) for row in results(database, "sweep = 'run'")] == [("e2", 9.0), ("lor", 5.0)]


def test_results_are_of_what_was_asked_for(database: Path) -> None:
    """A run of a plan that had slower steps, or lost a GPU, was in the average."""
    asked, besides = seeds("a", [1.0, 3.0]), seeds("b", [9.0], **{"hardware.parameters.f": 1.1})
    runs = [{"key": row["key"], "aside": row in besides} for row in (*asked, *besides)]
    plan = Experiment({"id": "plan", "name": "plan", "last_run": "2026-01-01"}, runs)
    load(database, [*asked, *besides], {}, experiments=[plan, of("other", besides)])
    found = query(database, "SELECT sweep, mean, seeds FROM results WHERE metric = 'ttft_p99_s' ORDER BY ALL")
    assert found == [("other", 9.0, 1), ("plan", 2.0, 2)]


def test_results_follow_a_column_to_another_type(database: Path) -> None:
    for seed, value in enumerate((1, 1.5, "auto")):
        rows = [a_row(f"a{seed}", seed=seed, lengths=None, **{"policy.x": value})]
        load(database, rows, {}, experiments=[of("s", rows, f"2026-01-0{seed + 1}")])
        assert query(database, """SELECT "policy.x" FROM results WHERE metric = 'ttft_p99_s'""") == [(value,)]
    assert query(database, "SELECT count(*) FROM runs WHERE lengths = 'max'") == [(0,)], "a name, though none has one"


def test_results_have_columns_that_came_later(database: Path) -> None:
    rows = seeds("a", [1.0])
    load(database, rows, {}, experiments=[of("s", rows)])
    before = database.read_bytes()
    load(database, rows, {})
    assert database.read_bytes() == before, "the view is not made again without need"
    more = [a_row("b", seed=0, hit_ratio=0.5, **{"engine.new": "x'\""})]
    load(database, more, {}, experiments=[of("t", more)])
    found = query(database, "SELECT mean, \"engine.new\" FROM results WHERE metric = 'hit_ratio'")
    assert found == [(0.5, "x'\"")]


def test_a_failure_stays_until_the_run_succeeds(database: Path) -> None:
    failed = {"key": "a", "error_type": "RuntimeError", "error_message": "'quoted'"}
    load(database, [a_row("b")], {}, [failed])
    with duckdb.connect(database) as connection:
        assert connection.execute("SELECT error_message FROM failures").fetchall() == [("'quoted'",)]
    load(database, [a_row("a")], {})
    with duckdb.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM failures").fetchall() == [(0,)]
