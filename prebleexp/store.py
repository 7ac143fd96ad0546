"""The results as DuckDB tables (docs/tables.md): `runs`, a row per cell and seed; `requests`, a row per kept request;
`failures`, a row per run that failed; `experiments` and `experiment_runs`, which sweeps there were, and of which runs.

The cache's files are the truth and the database is an index of them: it may be deleted at any time, and a damaged one
is set aside and started anew. DuckDB admits one writing process, so only the parent writes, in one short transaction.
"""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prebleexp.errors import PrebleexpError

if TYPE_CHECKING:
    import duckdb

Value = int | float | str | bool | None
Row = Mapping[str, Value]

LOCK_PATIENCE_S = 5.0
# What opening or writing a healthy index can fail with; any other error of DuckDB's means the file is no use.
ENVIRONMENT_ERRORS = (
    *("Cannot open file", "Permission denied", "Is a directory", "No space left", "Could not write"),
    "different configuration",  # this process has it open in another way, as a notebook may
)


@dataclass(frozen=True)
class Experiment:
    """A command that was run, and the runs that it is made of."""

    columns: Row
    """of its row, with its "id"; "first_run", "last_run" and "times_run" are added here"""
    started: str
    """UTC, as in ISO 8601"""
    runs: Sequence[Row]
    """rows with the "key" of a run and what it is called here"""


def load(
    database: Path,
    rows: Sequence[Row],
    request_files: Mapping[str, Path],
    failures: Sequence[Row] = (),
    experiment: Experiment | None = None,
) -> None:
    """Bring `runs` and `failures` up to these rows, told apart by "key", `requests` up to these Parquet files, by key,
    and `experiments` up to this one, by "id"; in one transaction.

    What is there already is left alone; a column that is new gets NULL in the older rows. Raises PrebleexpError if
    another process holds the database for long, if it cannot be written, or if a Parquet file cannot be read.
    """
    import duckdb

    def attempt() -> None:
        with closing(connect(database)) as connection:
            connection.begin()
            _bring_up(connection, "runs", "key", rows)
            _load_requests(connection, request_files)
            if _columns(connection, "failures"):
                _delete(connection, "failures", "key", [row["key"] for row in rows])
            _bring_up(connection, "failures", "key", failures)
            if experiment is not None:
                _load_experiment(connection, experiment)
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


def keys(database: Path, *, experiment: str | None = None, where: Mapping[str, Value] | None = None) -> list[str]:
    """Keys of runs: those of the latest experiment of this name, or all, of which only those whose columns ("policy",
    or "line" of an experiment) have these values.

    Raises PrebleexpError if the database is damaged or another process keeps it open. What does not exist has no keys.
    """
    import duckdb

    tables, tests, values = "runs", [], []
    if experiment is not None:
        tables = "runs JOIN experiment_runs USING (key)"
        tests.append("experiment = (SELECT id FROM experiments WHERE name = ? ORDER BY last_run DESC LIMIT 1)")
        values.append(experiment)
    for column, value in (where or {}).items():
        tests.append(f"{_quoted(column)} = ?")
        values.append(str(value))
    query = f"SELECT DISTINCT key FROM {tables} WHERE {' AND '.join(tests) or 'true'} ORDER BY key"  # noqa: S608 -- our own names
    with _reading(database) as connection:
        try:
            return [key for (key,) in connection.execute(query, values).fetchall()]
        except (duckdb.CatalogException, duckdb.BinderException):  # no such table or column yet
            return []


def names(database: Path) -> dict[str, list[str]]:
    """What may be named: "experiment"s, "policy"s and "line"s, each in order of the alphabet."""
    import duckdb

    sources = {"experiment": ("name", "experiments"), "policy": ("policy", "runs"), "line": ("line", "experiment_runs")}
    found = {}
    with _reading(database) as connection:
        for kind, (column, table) in sources.items():
            try:
                rows = connection.execute(f"SELECT DISTINCT {column} FROM {table} ORDER BY 1").fetchall()  # noqa: S608
            except (duckdb.CatalogException, duckdb.BinderException):
                rows = []
            found[kind] = [str(name) for (name,) in rows if name]
    return found


@contextmanager
def _reading(database: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    import duckdb

    try:
        with closing(connect(database, read_only=True)) as connection:
            yield connection
    except duckdb.Error as error:
        hint = "delete it, and the next run makes it anew"
        raise PrebleexpError(f"the database {database} is not usable ({_first_line(error)}); {hint}") from error


def connect(database: Path, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Waits a while for a process that has it open. A connection that may only read cannot read other files either.

    Raises PrebleexpError if the other process keeps it, duckdb.Error if it cannot be opened.
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
                raise PrebleexpError(
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
    stored = _stored(connection, table, by) if columns else {}
    changed = {row[by]: row for row in rows if stored.get(row[by]) != _without_nulls(row)}
    if changed:
        if columns:
            _delete(connection, table, by, list(changed))
        _insert(connection, table, list(changed.values()), columns)


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Row], columns: Mapping[str, str]) -> None:
    names = dict.fromkeys(name for row in rows for name in row)
    incoming = {name: [row.get(name) for row in rows] for name in names}
    types = {name: _type(values, columns.get(name)) for name, values in incoming.items()}
    _widen(connection, table, types, columns)
    lists = ", ".join(f"unnest(?::{types[name]}[]) AS {_quoted(name)}" for name in incoming)
    connection.execute(
        f"INSERT INTO {table} BY NAME SELECT {lists}",
        [_as_type(values, types[name]) for name, values in incoming.items()],
    )


def _delete(connection: duckdb.DuckDBPyConnection, table: str, by: str, values: Sequence[Value]) -> None:
    query = f"DELETE FROM {table} WHERE {_quoted(by)} IN (SELECT unnest(?::VARCHAR[]))"  # noqa: S608 -- our own names
    connection.execute(query, [list(values)])


def _load_experiment(connection: duckdb.DuckDBPyConnection, experiment: Experiment) -> None:
    columns = _columns(connection, "experiments")
    id = experiment.columns["id"]
    before = _stored(connection, "experiments", "id").get(id, {}) if columns else {}
    row = {
        "id": id,
        "first_run": before.get("first_run", experiment.started),
        "last_run": experiment.started,
        "times_run": int(before.get("times_run") or 0) + 1,
        **experiment.columns,
    }
    if columns:
        _delete(connection, "experiments", "id", [id])
    _insert(connection, "experiments", [row], columns)
    columns = _columns(connection, "experiment_runs")
    if columns:
        _delete(connection, "experiment_runs", "experiment", [id])
    _insert(connection, "experiment_runs", [{"experiment": id, **one} for one in experiment.runs], columns)


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


def _stored(connection: duckdb.DuckDBPyConnection, table: str, by: str) -> dict[Value, Row]:
    import duckdb

    found = connection.table(table)
    if by not in found.columns:
        raise duckdb.CatalogException(f"table {table} has no column {by}")
    rows = (dict(zip(found.columns, values, strict=True)) for values in found.fetchall())
    return {row[by]: _without_nulls(row) for row in rows}


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
        definition = ", ".join(f"{_quoted(name)} {kind}" for name, kind in wanted.items())
        connection.execute(f"CREATE TABLE {table} ({definition})")
        return
    for name, kind in wanted.items():
        if name not in present:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {_quoted(name)} {kind}")
        elif kind != present[name]:
            connection.execute(f"ALTER TABLE {table} ALTER COLUMN {_quoted(name)} TYPE {kind}")


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


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
