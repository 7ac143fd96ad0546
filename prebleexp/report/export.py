"""The figures and numbers of a report as files: for papers, for slides, for programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prebleexp.experiment import durable
from prebleexp.report.figures import Figure, Table
from prebleexp.report.finding import Finding
from prebleexp.report.sheet import pdf, png, sheet

FORMATS = ("svg", "pdf", "png", "csv", "tex")
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "²": "$^2$", "−": "$-$",
}  # fmt: skip


def figures(folder: Path, found: Sequence[Figure]) -> None:
    """Each figure as `folder`/NAME.svg, .pdf and .png, its numbers as .csv (all digits) and .tex (a table). Pictures
    that are there and unchanged are left alone. Raises OSError if the folder cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    for figure in found:
        _figure(folder, figure)


def _figure(folder: Path, figure: Figure) -> None:
    path = folder / f"{figure.name}.svg"
    picture = sheet(figure)
    files = {"csv": comma_separated(figure).encode(), "tex": latex(figure.table, figure.title).encode()}
    made = [path.with_suffix(f".{suffix}") for suffix in ("pdf", "png")]
    if not _holds(path, picture.encode()) or not all(file.exists() for file in made):
        # the drawing last: while it is missing or old, the others are made again
        files |= {"pdf": pdf(picture), "png": png(picture), "svg": picture.encode()}
    for suffix, data in files.items():
        file = path.with_suffix(f".{suffix}")
        if not _holds(file, data):
            durable.write(file, data)


def comma_separated(figure: Figure) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(figure.data.columns)
    writer.writerows(figure.data.rows)
    return file.getvalue()


def latex(table: Table, caption: str) -> str:
    """A table for the package booktabs, with the numbers as on the page."""
    columns = "".join("r" if column.numeric else "l" for column in table.columns)
    heads = " & ".join(_escaped(column.name) for column in table.columns)
    body = "\n".join(" & ".join(map(_escaped, row)) + r" \\" for row in table.rows)
    return (
        f"\\begin{{table}}\n\\caption{{{_escaped(caption)}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n"
        f"{heads} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n\\end{{table}}\n"
    )


def _escaped(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def report_json(
    about: Mapping[str, Any],
    figures: Sequence[Figure],
    findings: Sequence[Finding],
    failures: Sequence[Mapping[str, Any]],
    provenance: Mapping[str, Any],
) -> str:
    """All numbers of a page, in full."""
    whole = {
        "sweep": about,
        "findings": [
            {"name": one.name, "claim": one.claim, "sentences": one.sentences, **one.numbers} for one in findings
        ],
        "figures": [
            {
                "name": one.name,
                "number": one.number,
                "title": one.title,
                "headline": one.headline,
                "command": one.command,
                "columns": one.data.columns,
                "rows": one.data.rows,
            }
            for one in figures
        ],
        "failures": failures,
        "provenance": provenance,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _holds(path: Path, data: bytes) -> bool:
    return path.exists() and path.read_bytes() == data
