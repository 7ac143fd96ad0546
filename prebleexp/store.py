"""The results as DuckDB tables (docs/tables.md): `runs`, a row per cell and seed; `requests`, a row per kept request;
`gpu_states` and `autoscaler_decisions`; `failures`, a row per run that failed; `experiments` and `experiment_runs`,
which sweeps there were, and of which runs; and the view `results` of them all.

The cache's files are the truth and the database is an index of them: a damaged one is set aside and started anew.
DuckDB admits one writing process, so only the parent writes, in one short transaction.
"""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from prebleexp import history_tables, views
from prebleexp.errors import PrebleexpError
from prebleexp.experiment.cell import CHOSEN
from prebleexp.experiment.history import Experiment
from prebleexp.history_tables import Kept
from prebleexp.results_view import quoted

if TYPE_CHECKING:
    import duckdb

Value = int | float | str | bool | None
Row = Mapping[str, Value]

LOCK_PATIENCE_S = 2.0
# What opening or writing a healthy index can fail with; any other error of DuckDB's means the file is no use.
ENVIRONMENT_ERRORS = (
    *("Cannot open file", "Permission denied", "Is a directory", "No space left", "Could not write"),
    "different configuration",  # this process has it open in another way, as a notebook may
)


class Held(PrebleexpError):
    """Another process has the database open."""


def load(
    database: Path,
    rows: Sequence[Row],
    request_files: Mapping[str, Path],
    failures: Sequence[Row] = (),
    experiments: Sequence[Experiment] = (),
    kept: Callable[[], Collection[str]] | None = None,
    histories: Mapping[str, Kept] = MappingProxyType({}),
) -> None:
    """Bring `runs` and `failures` up to these rows, told apart by "key", `requests` up to these Parquet files, by key,
    `gpu_states` and `autoscaler_decisions` up to these histories, by key, and `experiments` up to these, by "id"; in
    one transaction.

    What is there already is left alone; a column that is new gets NULL in the older rows. With `kept`, which is asked
    once nobody else can write, what is of other keys goes. Raises Held if another process holds the database for long,
    PrebleexpError if it cannot be written, or if a Parquet file cannot be read.
    """
    import duckdb

    def attempt() -> None:
        with closing(connect(database)) as connection:
            connection.begin()
            if kept is not None:
                _keep_only(connection, kept())
            _bring_up(connection, "runs", "key", rows)
            _load_requests(connection, request_files)
            history_tables.bring_up(connection.execute, histories)
            if _columns(connection, "failures"):
                _delete(connection, "failures", "key", [row["key"] for row in rows])
            _bring_up(connection, "failures", "key", failures)
            _load_experiments(connection, experiments)
            tables = ("runs", "experiment_runs", "requests")
            views.bring_up(connection.execute, *(_columns(connection, table) for table in tables))
            connection.commit()

    try:
        attempt()
    except duckdb.Error as error:
        if any(cause in str(error) for cause in ENVIRONMENT_ERRORS):
            raise PrebleexpError(f"cannot write the database {database}: {_first_line(error)}") from error
        _set_aside(database, _first_line(error))
        try:
            attempt()
        except duckdb.Error as again:
            raise PrebleexpError(f"cannot build the database {database}: {_first_line(again)}") from again


def listed(database: Path) -> dict[str, bool]:
    """The keys of all runs, and whether their requests are there too.

    Raises PrebleexpError if the database is damaged or another process keeps it open.
    """
    import duckdb

    found: dict[str, bool] = {}
    with _reading(database) as connection:
        for table in ("runs", "requests"):
            with suppress(duckdb.CatalogException, duckdb.BinderException):  # no such table or column yet
                keys = connection.execute(f"SELECT DISTINCT key FROM {table}").fetchall()  # noqa: S608 -- our own names
                found.update((key, table == "requests") for (key,) in keys)
    return found


def keys(
    database: Path, *, experiment: str | None = None, where: Mapping[str, Value] | None = None, asides: bool = True
) -> list[str]:
    """Keys of runs: those of the latest experiment of this name, or all, of which only those whose columns ("policy",
    or "line" of an experiment) have these values; of an experiment without its `asides`, if these are not wanted.

    Raises PrebleexpError if the database is damaged or another process keeps it open. What does not exist has no keys.
    """
    import duckdb

    tables, tests, values = "runs", [], []
    if experiment is not None:
        tables = "runs JOIN experiment_runs USING (key)"
        tests.append("experiment = (SELECT id FROM experiments WHERE name = ? ORDER BY last_run DESC LIMIT 1)")
        values.append(experiment)
    for column, value in (where or {}).items():
        tests.append(f"{quoted(column)} = ?")
        values.append(str(value))
    with _reading(database) as connection:
        if not asides and experiment is not None and "aside" in _columns(connection, "experiment_runs"):
            tests.append("aside IS NOT TRUE")
        query = f"SELECT DISTINCT key FROM {tables} WHERE {' AND '.join(tests) or 'true'} ORDER BY key"  # noqa: S608 -- our own names
        try:
            return [key for (key,) in connection.execute(query, values).fetchall()]
        except (duckdb.CatalogException, duckdb.BinderException):  # no such table or column yet
            return []


def names(database: Path) -> dict[str, list[str]]:
    """What may be named: "experiment"s, "policy"s and "line"s, each in order of the alphabet."""
    sources = {"experiment": ("name", "experiments"), "policy": ("policy", "runs"), "line": ("line", "experiment_runs")}
    with _reading(database) as connection:
        found = {kind: _distinct(connection, *source) for kind, source in sources.items()}
    return {kind: [str(name) for name in some if name] for kind, some in found.items()}


def failed(database: Path, policy: str) -> list[str]:
    """With what the runs of a policy failed that are not there, each message once."""
    query = "SELECT DISTINCT error_message FROM failures WHERE policy = ? ORDER BY 1"
    with _reading(database) as connection:
        known = _columns(connection, "failures")
        return [message for (message,) in connection.execute(query, [policy]).fetchall()] if known else []


def values(database: Path, column: str) -> list[Value]:
    """What the runs have in a column, each once, in order; nothing if there is no such column."""
    with _reading(database) as connection:
        return _distinct(connection, column, "runs")


def _distinct(connection: duckdb.DuckDBPyConnection, column: str, table: str) -> list[Value]:
    import duckdb

    query = f"SELECT DISTINCT {quoted(column)} AS one FROM {table} WHERE one IS NOT NULL ORDER BY 1"  # noqa: S608
    try:
        return [one for (one,) in connection.execute(query).fetchall()]
    except (duckdb.CatalogException, duckdb.BinderException):  # no such table or column yet
        return []


def experiments_of(database: Path, keys: Collection[str]) -> dict[str, int]:
    """Names of the experiments that these runs are of, and how many of them: a run may be of several."""
    query = """SELECT name, count(DISTINCT key) FROM experiment_runs JOIN experiments ON experiment = id
        WHERE key IN (SELECT unnest(?::VARCHAR[])) GROUP BY name ORDER BY 2 DESC, 1"""
    with _reading(database) as connection:
        return dict(connection.execute(query, [list(keys)]).fetchall())


@contextmanager
def _reading(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    import duckdb

    try:
        with closing(connect(database, read_only=True)) as connection:
            yield connection
    except duckdb.Error as error:
        hint = "python -m prebleexp cache index makes it anew"
        raise PrebleexpError(f"the database {database} is not usable ({_first_line(error)}); {hint}") from error


def connect(database: Path, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Waits a while for a process that has it open. A connection that may only read cannot read other files either.

    Raises Held if the other process keeps it, duckdb.Error if it cannot be opened.
    """
    import duckdb

    limits: dict[str, Any] = {"enable_external_access": "false", "lock_configuration": "true"} if read_only else {}

    give_up = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return duckdb.connect(database, read_only=read_only, config=limits)
        except duckdb.IOException as error:
            if "Could not set lock" not in str(error):
                raise
            if time.monotonic() > give_up:
                raise Held(
                    f"the database {database} is open in another process; close it there and run this again"
                ) from error
        time.sleep(0.1)


def _set_aside(database: Path, reason: str) -> None:
    aside = database.with_name(f"{database.name}.bad")
    database.replace(aside)
    # changes not yet in the damaged file must not be replayed into the new one
    database.with_name(f"{database.name}.wal").unlink(missing_ok=True)
    print(f"the database {database} is not usable ({reason}); moved to {aside.name} and rebuilt", file=sys.stderr)


def _bring_up(connection: duckdb.DuckDBPyConnection, table: str, by: str, rows: Sequence[Row]) -> None:
    columns = _columns(connection, table)
    stored = _stored(connection, table, by, [row[by] for row in rows]) if columns else {}
    changed = {row[by]: row for row in rows if stored.get(row[by]) != _without_nulls(row)}
    if changed:
        if columns:
            _delete(connection, table, by, list(changed))
        _insert(connection, table, list(changed.values()), columns)


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    incoming = {name: [row.get(name) for row in rows] for name in names}
    present = dict.fromkeys(CHOSEN, "VARCHAR") | dict(columns)  # a spec has a name, even if no row says it yet
    types = {name: _type(values, present.get(name)) for name, values in incoming.items()}
    _widen(connection, table, types, columns)
    lists = ", ".join(f"unnest(?::{types[name]}[]) AS {quoted(name)}" for name in incoming)
    connection.execute(
        f"INSERT INTO {table} BY NAME SELECT {lists}",
        [_as_type(values, types[name]) for name, values in incoming.items()],
    )


def _delete(connection: duckdb.DuckDBPyConnection, table: str, by: str, values: Sequence[Value]) -> None:
    query = f"DELETE FROM {table} WHERE {quoted(by)} IN (SELECT unnest(?::VARCHAR[]))"  # noqa: S608 -- our own names
    connection.execute(query, [list(values)])


def _keep_only(connection: duckdb.DuckDBPyConnection, keys: Collection[str]) -> None:
    for table in ("runs", "requests", "failures", *history_tables.TYPES):
        if _columns(connection, table):
            query = f"DELETE FROM {table} WHERE key NOT IN (SELECT unnest(?::VARCHAR[]))"  # noqa: S608 -- our own names
            connection.execute(query, [list(keys)])


def _load_experiments(connection: duckdb.DuckDBPyConnection, experiments: Sequence[Experiment]) -> None:
    if not experiments:
        return
    about: list[Row] = [one.columns for one in experiments]
    runs: list[Row] = [{"experiment": one.id, **run} for one in experiments for run in one.runs]
    for table, by, rows in (("experiments", "id", about), ("experiment_runs", "experiment", runs)):
        columns = _columns(connection, table)
        if columns:
            _delete(connection, table, by, [one.id for one in experiments])
        if rows:
            _insert(connection, table, rows, columns)


def _load_requests(connection: duckdb.DuckDBPyConnection, request_files: Mapping[str, Path]) -> None:
    import duckdb

    columns = _columns(connection, "requests")
    stored = set(connection.execute("SELECT DISTINCT key FROM requests").fetchall()) if columns else set()
    missing = {str(path): key for key, path in request_files.items() if (key,) not in stored}
    if not missing:
        return
    try:
        connection.execute(
            "CREATE TEMP TABLE incoming AS SELECT named.key, file.* EXCLUDE (filename) "
            "FROM read_parquet(?, filename = true, union_by_name = true) AS file "
            "JOIN (SELECT unnest(?::VARCHAR[]) AS filename, unnest(?::VARCHAR[]) AS key) AS named USING (filename)",
            [[glob.escape(name) for name in missing], list(missing), list(missing.values())],
        )
    except duckdb.Error as error:
        raise PrebleexpError(f"cannot read the kept requests: {_first_line(error)}") from error
    _widen(connection, "requests", _columns(connection, "incoming"), columns)
    connection.execute("INSERT INTO requests BY NAME SELECT * FROM incoming")
    connection.execute("DROP TABLE incoming")


def _stored(connection: duckdb.DuckDBPyConnection, table: str, by: str, values: Sequence[Value]) -> dict[Value, Row]:
    import duckdb

    found = connection.table(table)
    if by not in found.columns:
        raise duckdb.CatalogException(f"table {table} has no column {by}")
    query = f"FROM {table} WHERE {quoted(by)} IN (SELECT unnest(?::VARCHAR[]))"
    rows = connection.execute(query, [list(values)]).fetchall()
    named = (dict(zip(found.columns, row, strict=True)) for row in rows)
    return {row[by]: _without_nulls(row) for row in named}


def _without_nulls(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _columns(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    """Names and types of a table's columns, in order; empty if there is no such table."""
    found = connection.execute(
        "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? "
        "AND database_name IN (current_database(), 'temp') ORDER BY column_index",
        [table],
    )
    return dict(found.fetchall())


def _widen(
    connection: duckdb.DuckDBPyConnection, table: str, wanted: Mapping[str, str], present: Mapping[str, str]
) -> None:
    """Create the table, or add the columns and change the types that it lacks."""
    if not present:
        definition = ", ".join(f"{quoted(name)} {kind}" for name, kind in wanted.items())
        connection.execute(f"CREATE TABLE {table} ({definition})")
        return
    for name, kind in wanted.items():
        if name not in present:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {kind}")
        elif kind != present[name]:
            connection.execute(f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} TYPE {kind}")


def _type(values: Iterable[Value], present: str | None) -> str:
    """The narrowest type that holds these values and those of the present type. Unknown yet: a metric, so a DOUBLE."""
    names = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}
    kinds = {names[type(value)] for value in values if value is not None}
    if present is not None:
        kinds.add(present)
    if len(kinds) == 1:
        return kinds.pop()
    return "DOUBLE" if kinds <= {"BIGINT", "DOUBLE"} else "VARCHAR"


def _as_type(values: Sequence[Value], kind: str) -> list[Value]:
    if kind != "VARCHAR":
        return list(values)
    return [value if value is None else str(value) for value in values]


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
