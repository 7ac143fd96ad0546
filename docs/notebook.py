"""Execute the notebook and keep what it shows: python docs/notebook.py. A test fails when that is not what it shows now."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("notebook.ipynb")


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with what its cells show when they are run in order, in the current folder. What fails is raised."""
    names: dict[str, Any] = {"__name__": "__notebook__"}
    cells = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count = 1 + sum(one["cell_type"] == "code" for one in cells)
            cell = cell | {"execution_count": count, "outputs": _shown("".join(cell["source"]), names, count)}
        cells.append(cell)
    return notebook | {"cells": cells}


def _shown(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """What was printed, and the value of the last line."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "<notebook>", "exec"), names)  # noqa: S102 -- it is ours
        value = eval(compile(ast.Expression(last.value), "<notebook>", "eval"), names) if last else None  # noqa: S307
    shown: list[dict[str, Any]] = []
    if printed.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = value._repr_html_().splitlines(keepends=True)
        shown.append({"output_type": "execute_result", "execution_count": count, "metadata": {}, "data": data})
    return shown


if __name__ == "__main__":
    sys.path.insert(0, str(NOTEBOOK.parent.parent))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        made = executed(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
    NOTEBOOK.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
