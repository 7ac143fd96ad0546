"""The results as two DuckDB tables: `runs`, a row per cell and seed, and `requests`, a row per kept request.

The cache's files are the truth and the database is an index of them: it may be deleted at any time, and a damaged one
is set aside and started anew. DuckDB admits one writing process, so only the parent writes, in one short transaction.
"""

from __future__ import annotations

import glob
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from prebleexp.errors import PrebleexpError

if TYPE_CHECKING:
    import duckdb

Value = int | float | str | bool | None
Row = Mapping[str, Value]

LOCK_PATIENCE_S = 5.0
# What opening or writing a healthy index can fail with; any other error of DuckDB's means the file is no use.
ENVIRONMENT_ERRORS = ("Cannot open file", "Permission denied", "Is a directory", "No space left", "Could not write")


def load(database: Path, rows: Sequence[Row], request_files: Mapping[str, Path]) -> None:
    """Bring `runs` up to these rows, told apart by "key", and `requests` up to these Parquet files, by key.

    What is there already is left alone; a column that is new gets NULL in the older rows. Raises PrebleexpError if
    another process holds the database for long, if it cannot be written, or if a Parquet file cannot be read.
    """
    import duckdb

    try:
        _load(database, rows, request_files)
    except duckdb.Error as error:
        if any(cause in str(error) for cause in ENVIRONMENT_ERRORS):
            raise PrebleexpError(f"cannot write the database {database}: {_first_line(error)}") from error
        _set_aside(database, _first_line(error))
        try:
            _load(database, rows, request_files)
        except duckdb.Error as again:
            raise PrebleexpError(f"cannot build the database {database}: {_first_line(again)}") from again


def _load(database: Path, rows: Sequence[Row], request_files: Mapping[str, Path]) -> None:
    with closing(_connect(database)) as connection:
        connection.begin()
        _load_runs(connection, rows)
        _load_requests(connection, request_files)
        connection.commit()


def _connect(database: Path) -> duckdb.DuckDBPyConnection:
    import duckdb

    give_up = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            return duckdb.connect(database)
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


def _load_runs(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
    columns = _columns(connection, "runs")
    stored = _stored_runs(connection) if columns else {}
    changed = {row["key"]: row for row in rows if stored.get(row["key"]) != _without_nulls(row)}
    if not changed:
        return
    names = dict.fromkeys(name for row in changed.values() for name in row)
    incoming = {name: [row.get(name) for row in changed.values()] for name in names}
    types = {name: _type(values, columns.get(name)) for name, values in incoming.items()}
    _widen(connection, "runs", types, columns)
    connection.execute("DELETE FROM runs WHERE key IN (SELECT unnest(?::VARCHAR[]))", [list(changed)])
    lists = ", ".join(f"unnest(?::{types[name]}[]) AS {_quoted(name)}" for name in incoming)
    connection.execute(
        f"INSERT INTO runs BY NAME SELECT {lists}",
        [_as_type(values, types[name]) for name, values in incoming.items()],
    )


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


def _stored_runs(connection: duckdb.DuckDBPyConnection) -> dict[Value, Row]:
    found = connection.execute("SELECT key, * EXCLUDE (key) FROM runs")
    names = [column[0] for column in found.description or ()]
    rows = (dict(zip(names, values, strict=True)) for values in found.fetchall())
    return {row["key"]: _without_nulls(row) for row in rows}


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
