"""`python -m prebleexp sql "select …"`: questions to the tables of docs/tables.md, which they cannot change."""

from __future__ import annotations

import io
import json
import math
import sys
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from prebleexp import indexing, store
from prebleexp.commands.arguments import CACHE_DIR, Command, Commands, Given, Setting, path
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import durable
from prebleexp.experiment.cache import Cache
from prebleexp.launch import tables

if TYPE_CHECKING:
    import pyarrow as pa

OUTPUTS = ("table", "csv", "json", "parquet")
MOST_SHOWN = 500
"""rows of a table for people"""
NO_REQUESTS = "Table with name requests does not exist"
"""what DuckDB says before the first run has kept its own"""
SCHEMA = """
SELECT c.table_name AS "table", c.column_name AS "column", c.data_type AS type, t.estimated_size AS rows
FROM duckdb_columns() AS c LEFT JOIN duckdb_tables() AS t USING (table_oid)
WHERE NOT c.internal ORDER BY c.table_name, c.column_index
"""


def _sql(given: Given) -> int:
    """Print or write the answer to a query, or without one which columns there are; 0.

    Raises InvalidInput for a query that is not valid, PrebleexpError if the answer cannot be written or the database is
    in use.
    """
    to = given["to"]
    output = given["output"] or (to.suffix[1:] if to is not None else "table")
    if output not in OUTPUTS or (output == "parquet" and to is None):
        raise InvalidInput(
            f"output={output} is not valid; it must be one of {', '.join(OUTPUTS)} (parquet with to=FILE)"
        )
    cache = Cache(given["cache_dir"], make=False)
    indexing.refresh(cache)
    if not cache.database.is_file():
        raise InvalidInput(f"there is no database {cache.database}; runs make it")
    _write(answer(cache.database, given.words[0] if given.words else SCHEMA), output, to)
    return 0


def answer(database: Path, query: str) -> pa.Table:
    """The rows of a query. Raises InvalidInput if it is not valid, or would do more than read."""
    import duckdb

    with closing(store.connect(database, read_only=True)) as connection:
        try:
            found = connection.sql(query)
            if found is None:
                raise InvalidInput("sql: that is no question; it has no rows")
            return found.to_arrow_table()
        except duckdb.Error as error:
            said = " ".join(str(error).split())
            if NO_REQUESTS in said:
                said = (
                    "there is no table requests, as no run that is listed kept its requests; keep_requests=all has "
                    "runs keep them, which those of plan and recommend else do not"
                )
            raise InvalidInput(f"sql: {said}") from error


def _write(found: pa.Table, output: str, to: Path | None) -> None:
    if to is None:
        _print(found, output)
        return
    data = io.BytesIO()
    if output == "parquet":
        import pyarrow.parquet as pq

        pq.write_table(found, data)
    else:
        text = io.StringIO()
        _as_text(found, output, text)
        data.write(text.getvalue().encode())
    try:
        durable.write(to, data.getvalue())
    except OSError as error:
        raise PrebleexpError(f"{to} cannot be written: {error.strerror}") from error
    print(f"{found.num_rows:,} rows in {to}", file=sys.stderr)


def _print(found: pa.Table, output: str) -> None:
    _as_text(found.slice(0, MOST_SHOWN) if output == "table" else found, output, sys.stdout)
    if output == "table" and found.num_rows > MOST_SHOWN:
        print(f"… and {found.num_rows - MOST_SHOWN:,} more rows; output=csv gives all", file=sys.stderr)


def _as_text(found: pa.Table, output: str, file: IO[str]) -> None:
    rows = _rows(found)
    if output == "table":
        lines = [[tables.number(value) for value in row.values()] for row in rows]
        tables.show(found.column_names, lines, file=file)
    else:
        tables.write_rows(rows, output, file, found.column_names)


def _rows(found: pa.Table) -> list[dict[str, Any]]:
    return [{name: _plain(value) for name, value in row.items()} for row in found.to_pylist()]


def _plain(value: Any) -> Any:
    """What JSON and CSV have a form for."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return json.dumps(value, default=str) if isinstance(value, list | dict) else value


COMMANDS: Commands = {
    "": Command(
        "ask the tables of all results; without a query which columns there are (docs/tables.md)",
        _sql,
        "python -m prebleexp sql \"select policy, rps, mean from results where metric = 'ttft_p99_s'\"",
        words="[QUERY]",
        takes="one query in quotes",
        settings=(
            Setting("output", "what is printed or written; parquet only to a file", "|".join(OUTPUTS)),
            path("to", "write it to this file, in the format of its ending", None),
            CACHE_DIR,
        ),
    )
}
