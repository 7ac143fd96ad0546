"""In what document rows stand, and what it is packed with."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from typing import Any

import numpy as np

from tests.support.odd_files.truth import Row, Truth


def as_lines(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    between = str(rng.choice(["\n", "\n", "\r\n", "\n\n"]))
    return "".join(json.dumps(row) + between for row in rows)


def as_array(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    return json.dumps(rows, indent=int(rng.integers(0, 3)) or None)


def as_wrapped(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    return json.dumps({str(rng.choice(["data", "logs", "results"])): rows}, indent=1)


def flat(rows: list[Row]) -> list[Row]:
    return [{k: json.dumps(v) if isinstance(v, dict) else v for k, v in row.items()} for row in rows]


def table(rows: list[Row], separator: str) -> str:
    file = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, names, delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def as_csv(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    return table(flat(rows), str(rng.choice([",", ";", "\t"])))


def as_german_csv(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    """With commas for points, and it may be points for commas."""
    of.strange = "decimal commas"
    grouped = rng.random() < 0.3

    def said(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value:.3f}".replace(".", ",")
        return f"{value:,}".replace(",", ".") if grouped and isinstance(value, int) and value < 10**6 else value

    return table([{name: said(value) for name, value in row.items()} for row in flat(rows)], ";")


def as_csv_with_heads(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    """Two files, one after the other, each with its header; or a line of sums at the end, or of words before."""
    of.strange = "lines that are no rows"
    lines = table(flat(rows), ",").splitlines()
    ways = ([*lines[:2], lines[0], *lines[2:]], [*lines, "Total" + "," * lines[0].count(",")], ["# exported", *lines])
    return "\n".join(ways[int(rng.integers(3))]) + "\n"


def as_printed(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    """Objects over several lines each, one after the other, or with commas between them, or all on one line."""
    of.strange = "objects that are no lines"
    ways = ("\n".join(json.dumps(row, indent=1) for row in rows), ",\n".join(map(json.dumps, rows)))
    return (*ways, "".join(map(json.dumps, rows)))[int(rng.integers(3))]


def as_torn(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    """The last line was not written to its end."""
    of.strange = "half a line"
    return "".join(json.dumps(row) + "\n" for row in [*rows, rows[-1]])[:-20]


def as_searched(rows: list[Row], of: Truth, rng: np.random.Generator) -> str:
    """As Elasticsearch, Docker, journald, CloudWatch and Splunk give lines of JSON."""
    of.strange = "an envelope"
    way = int(rng.integers(5))
    if way == 0:
        hits = [{"_index": "llm", "_id": str(i), "_source": row} for i, row in enumerate(rows)]
        return json.dumps({"took": 3, "hits": {"total": len(rows), "hits": hits}})
    if way == 1:
        return "".join(json.dumps({"_index": "llm", "_source": row}) + "\n" for row in rows)
    if way == 2:
        return "".join(json.dumps({"log": json.dumps(row) + "\n", "stream": "stdout"}) + "\n" for row in rows)
    if way == 3:
        events = [{"eventId": str(i), "message": json.dumps(row)} for i, row in enumerate(rows)]
        return json.dumps({"events": events})
    return "".join(json.dumps({"preview": False, "result": row}) + "\n" for row in rows)


SHAPES = (
    *(as_lines, as_lines, as_lines, as_array, as_array, as_wrapped, as_csv, as_csv, as_csv),
    *(as_german_csv, as_csv_with_heads, as_printed, as_torn, as_searched),
)


def zipped(text: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("log.jsonl", text)
    return file.getvalue()


def zstd(text: bytes) -> bytes:
    import pyarrow as pa

    file = pa.BufferOutputStream()
    with pa.CompressedOutputStream(file, "zstd") as stream:
        stream.write(text)
    return bytes(file.getvalue())


def packed(text: str, of: Truth, rng: np.random.Generator) -> tuple[bytes, str]:
    """The bytes of a file, and how they are packed."""
    way = str(rng.choice(["", "gz", "zst", "bom", "utf16", "zip", "bz2", "xz"], p=[0.7, *[0.06] * 3, *[0.03] * 4]))
    data = text.encode()
    if way in ("utf16", "zip", "bz2", "xz"):
        of.strange = way
    made = {"gz": gzip.compress, "zst": zstd, "zip": zipped, "bz2": bz2.compress, "xz": lzma.compress}
    if way in made:
        return made[way](data), way
    return {"bom": b"\xef\xbb\xbf" + data, "utf16": text.encode("utf-16"), "": data}[way], way
