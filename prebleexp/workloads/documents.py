"""The rows of JSON lines, a JSON array, YAML, CSV, Parquet or Arrow, whatever the file is packed with."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.workloads import files
from prebleexp.workloads.rows import Records, Rows, Table

BOM = b"\xef\xbb\xbf"
"""with which some write that a file is UTF-8"""
ARROW, ARROW_STREAM = b"ARROW1", b"\xff\xff\xff\xff"
"""with which files of Arrow begin"""
BETWEEN = re.compile(r"[\s,]*")
"""what may stand between two documents"""
SEPARATORS = ",;\t|"
"""of CSV"""
OTHERS = "an array of objects, YAML, CSV with a header in UTF-8, Parquet or Arrow"
"""what a file may be instead of JSON lines"""
YAML = re.compile(rb"(---|- )|[A-Za-z_][\w.-]*:\s*[\r\n]")
"""how a document begins that has its rows in a list"""

SHIPPED = re.compile(
    rb"^(?:\[pod/\S+\] |[\w.-]+ +\| )?(?:\d{4}-\d\d-\d\d[T ]\S+ (?:(?:stdout|stderr) [FP] )?)?(?=\{)", re.MULTILINE
)
"""what Kubernetes and Compose write before a line of JSON"""
GROUPED = re.compile(rb"(?:^|[;\t])\"?\d{1,3}(?:\.\d{3})+\"?(?=[;\t\r\n]|\Z)", re.MULTILINE)
"""a number in which points may stand between thousands"""
LINES = re.compile(
    rb"(?:\([^()\n]*\) *)?(?:INFO|WARNING|ERROR|DEBUG)(?: +\d[\d-]*[ T]\d\d:\d\d:\d\d|: )"
    rb"|\[\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^\]\n]*\] \S"
)
"""how a log begins that a server writes for people: vLLM's, uvicorn's, SGLang's"""
NOTE = re.compile(rb"\s*(?:#|sep=.\s*$)")
NOTES = 100
"""lines, at most, before a header"""
READ = 65_536
"""bytes of a file, in which a line ends"""


class Csv(Table):
    """A table of a CSV file with a header."""

    def __init__(self, path: str, data: bytes) -> None:
        self.data = data
        super().__init__(path, _csv(path, data), lambda: self._numbers)

    @cached_property
    def _numbers(self) -> Sequence[int]:
        lines = [number for number, line in enumerate(io.BytesIO(self.data), start=1) if line.strip()]
        return lines[1:]


def rows_of(path: str | None) -> Rows:
    """Those of a file, plain, gzipped or packed with Zstandard; its format is told from its first bytes.

    Raises InvalidInput, naming the file, if it cannot be read, is damaged or holds no rows.
    """
    name, data = str(path), files.unpacked(path).removeprefix(BOM)
    if data.startswith(b"PAR1"):
        return Table(name, _parquet(name, data))
    if data.startswith((ARROW, ARROW_STREAM)):
        return Table(name, _arrow(name, data))
    if b"\r" in data[:READ] and b"\n" not in data:  # as Macs once wrote
        data = data.replace(b"\r", b"\n")
    text = data.lstrip()
    if LINES.match(text):
        raise InvalidInput(
            f"{name}: a server's log in lines of text, which do not say in fields how long prompts and answers were; "
            "give a row a request, of JSON lines, CSV or Parquet, as the gateway or a tracer exports them"
        )
    if (shipped := SHIPPED.match(text)) and shipped.end():
        text = data = SHIPPED.sub(b"", data)
    if not text or text[:1] in b"{[" or not _is_text(text):
        return _records(name, data)
    return _yaml(name, data) if YAML.match(text) else Csv(name, _without_notes(data))


def without_headers(rows: Rows) -> tuple[Rows, int]:
    """Those of a CSV file, without lines that say its header again, as where several are behind one another; and how
    many these were."""
    if not isinstance(rows, Csv):
        return rows, 0
    lines = rows.data.splitlines()
    at = next(number for number, line in enumerate(lines) if line.strip())
    again = [number for number, line in enumerate(lines) if number > at and line.strip() == lines[at].strip()]
    if not again or len(again) == len(rows):
        return rows, 0
    for number in again:
        lines[number] = b""
    return Csv(rows.path, b"\n".join(lines)), len(again)


def _is_text(data: bytes) -> bool:
    """Whether its first line is one of a CSV file's."""
    try:
        return data.split(b"\n", 1)[0].decode().replace("\t", " ").isprintable() or b"\r" in data[:4096]
    except UnicodeDecodeError:
        return False


def _without_notes(data: bytes) -> bytes:
    """With empty lines in place of those that stand before a CSV file's header: notes after #, and Excel's `sep=;`."""
    lines = data.split(b"\n", NOTES)
    notes = 0
    while notes < len(lines) - 1 and (NOTE.match(lines[notes]) or not lines[notes].strip()):
        notes += 1
    if notes and lines[notes].lstrip()[:1].isdigit():  # the last of them is the header
        notes -= 1
        lines[notes] = lines[notes].lstrip(b"# ")
    return b"\n".join([b""] * notes + lines[notes:])


def _records(path: str, data: bytes) -> Records:
    found = _documents(path, data)
    for number, one in found:
        if not isinstance(one, dict):
            raise InvalidInput(f"{path}: row {number}: not a JSON object")
    return Records(path, [one for _, one in found], [number for number, _ in found])


def _documents(path: str, data: bytes) -> list[tuple[int, Any]]:
    """What is written in JSON, with its number: lines, from 1 on; the elements of one array, or one object over several
    lines."""
    lines = [(number, line) for number, line in enumerate(data.splitlines(), start=1) if line.strip()]
    if lines and (lines[0][1].lstrip()[:1] == b"[" or not _is_json(lines[0][1])):
        try:
            whole = json.loads(data)
        except (ValueError, RecursionError):
            pass  # the line is named below
        else:
            if not isinstance(whole, list):
                return [(1, whole)]
            if len(lines) > 1 or all(isinstance(one, dict) for one in whole):
                return [*enumerate(whole, start=1)]
        if (several := _in_a_row(data)) is not None:
            return several
    return [(number, _document(path, number, line)) for number, line in lines]


def _in_a_row(data: bytes) -> list[tuple[int, Any]] | None:
    """Documents of whatever lines, with nothing but space or a comma between them, each with the line that it begins
    on; None if it is something else."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    decoder, found, at, line = json.JSONDecoder(), list[tuple[int, Any]](), 0, 1
    while (begin := BETWEEN.match(text, at)) is not None and begin.end() < len(text):
        line += text.count("\n", at, begin.end())
        try:
            one, at = decoder.raw_decode(text, begin.end())
        except (ValueError, RecursionError):
            return None
        found.append((line, one))
        line += text.count("\n", begin.end(), at)
    return found


def _yaml(path: str, data: bytes) -> Records:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # fifteen times as fast
    try:
        found = yaml.load(data, loader)  # noqa: S506
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InvalidInput(f"{path}: not a YAML file that can be read: {reason}") from None
    rows = found if isinstance(found, list) else [found]
    for number, one in enumerate(rows, start=1):
        if not isinstance(one, dict):
            raise InvalidInput(f"{path}: row {number}: not an object with fields")
    return Records(path, rows, range(1, len(rows) + 1))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _document(path: str, number: int, line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        what = "not valid JSON" if _is_utf8(line) else "neither JSON nor CSV in UTF-8"
        raise InvalidInput(f"{path}: row {number}: {what}: {error}; it must be an object a line, or {OTHERS}") from None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _csv(path: str, data: bytes) -> Any:
    """Typed columns; where a later row is not of the first rows' type, texts, so that it can be named."""
    import pyarrow as pa
    from pyarrow import csv

    head = data.lstrip().split(b"\n", 1)[0].decode(errors="replace").strip()
    separator = max(SEPARATORS, key=head.count)
    texts = {name.strip('"'): pa.string() for name in head.split(separator)}

    def read(**options: Any) -> Any:
        reading = csv.ReadOptions(use_threads=False)
        parsing = csv.ParseOptions(delimiter=separator)
        converting = csv.ConvertOptions(**options)
        return csv.read_csv(pa.BufferReader(data), reading, parsing, converting)

    try:
        return read(column_types=texts) if separator in ";\t" and GROUPED.search(data) else read()
    except pa.ArrowException as error:
        try:
            return read(column_types=texts)
        except pa.ArrowException:
            raise InvalidInput(
                f"{path}: not a CSV file that can be read: {str(error).splitlines()[0]}; its first line must be a "
                f"header, of names with {separator!r} between them, and all in UTF-8"
            ) from None


def _parquet(path: str, data: bytes) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return _without_decimals(pq.read_table(pa.BufferReader(data)))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"{path}: not a Parquet file that can be read: {reason}") from None


def _arrow(path: str, data: bytes) -> Any:
    """Of a file, as of Feather, or of a stream."""
    import pyarrow as pa

    try:
        open_it = pa.ipc.open_file if data.startswith(ARROW) else pa.ipc.open_stream
        return _without_decimals(open_it(pa.BufferReader(data)).read_all())
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInput(f"{path}: not an Arrow file that can be read: {reason}") from None


def _without_decimals(table: Any) -> Any:
    """Numbers that databases write with all of their digits, as integers where they have no others behind a point."""
    import pyarrow as pa

    for at, kind in enumerate(table.schema.types):
        if pa.types.is_decimal(kind):
            column = table.column(at)
            try:  # a number of that many digits is not the same as a floating-point one
                column = column.cast(pa.int64())
            except pa.ArrowInvalid:
                column = column.cast(pa.float64())
            table = table.set_column(at, table.column_names[at], column)
    return table
