"""Another checkout of this repository, and what its tables measure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from prebleexp import sources
from prebleexp.bench.processes import prebleexp
from prebleexp.bench.table import Row
from prebleexp.checks import not_valid
from prebleexp.errors import PrebleexpError

OURS = sources.PACKAGE.parent


def check(path: Path, table: str = "") -> Path:
    """The root of a checkout. Raises InvalidInput if it is none, or if its bench has no table of this name; the one
    without a name is in all."""
    root = path.resolve()
    if not (root / "prebleexp" / "__main__.py").is_file() or not (root / "conf").is_dir():
        raise not_valid("against", path, "a checkout of this repository, a folder with prebleexp/ and conf/")
    if table and table not in (there := tables(root)):
        names = ", ".join(there) or "none"
        raise not_valid("against", path, f"a checkout that has the table {table}; the tables of that one: {names}")
    return root


def tables(root: Path) -> list[str]:
    """Those of a checkout that have a name, by the help of its command."""
    with TemporaryDirectory() as folder:
        said = prebleexp(root, ["bench", "--help"], Path(folder)).out
    return re.findall(r"^python -m prebleexp bench (\w+)", said, re.MULTILINE)


def rows(root: Path, table: str, settings: Sequence[str]) -> list[Row]:
    """What a table of a checkout measures, in a process of its own. Raises InvalidInput or PrebleexpError as it does,
    and PrebleexpError if what it prints are no rows."""
    words = ["bench", *([table] if table else []), *settings, "output=json"]
    with TemporaryDirectory() as folder:
        said = prebleexp(root, words, Path(folder)).out
    try:
        found: list[Row] = json.loads(said)
    except ValueError:
        raise PrebleexpError(f"in {root}: prebleexp {' '.join(words)} printed no JSON") from None
    return found
