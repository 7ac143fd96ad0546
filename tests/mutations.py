"""`python -m tests.mutations COUNT [SEED]`: random lines of the package, each made wrong in a copy; are they noticed?

For each the tests that it needs are run, nearest first, for most of a minute (tests.touched). What survives is either
the same in other words, or wants a test.
"""

from __future__ import annotations

import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from tests.imports import PACKAGE
from tests.support.places import ROOT

COPIED = ("prebleexp", "conf", "sweeps", "tests", "hydra_plugins", "docs", "pyproject.toml", "README.md", "mkdocs.yml")
COPIED += ("CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", ".ci")
HANGS_S = 300
"""what was begun within the minute and has not ended by then hangs, which is noticed"""
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
}


@dataclass(frozen=True)
class Mutation:
    file: Path
    line: int
    right: str
    wrong: str
    start: int
    """where `right` begins in that line, in characters"""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.right} -> {self.wrong}"

    def text(self) -> str:
        """Of the file, with this."""
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.wrong + line[self.start + len(self.right) :]
        return "".join(lines)


def mutations(file: Path) -> Iterator[Mutation]:
    """All that can be made wrong in a file, within a line each."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in _executed(ast.parse(text)):
        wrong = _wrong(node)
        if wrong is not None and node.lineno == node.end_lineno:  # type: ignore[attr-defined]
            line = lines[node.lineno - 1].encode()  # type: ignore[attr-defined]
            start, end = node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
            right = line[start:end].decode()
            yield Mutation(file, node.lineno, right, wrong, len(line[:start].decode()))  # type: ignore[attr-defined]


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run; not annotations, nor what a docstring says."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
                continue
            if isinstance(one, ast.AST) and not isinstance(one, ast.JoinedStr):
                yield from _executed(one)


def _wrong(node: ast.AST) -> str | None:
    """The node in source text, made wrong; None where nothing is known."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return ast.unparse(ast.Compare(node.left, [OTHER[type(node.ops[0])]()], node.comparators))  # type: ignore[list-item]
    if isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in OTHER:
        other = OTHER[type(node.op)]()
        if isinstance(node, ast.BinOp):
            return f"({ast.unparse(ast.BinOp(node.left, other, node.right))})"  # type: ignore[arg-type]
        return f"({ast.unparse(ast.BoolOp(other, node.values))})"  # type: ignore[arg-type]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return f"({ast.unparse(node.operand)})"
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return str(not node.value)
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return str(node.value + 1)
    if isinstance(node, ast.AugAssign | ast.Expr):
        return "pass"
    return None


def drawn(count: int, seed: int) -> list[Mutation]:
    """Of as many lines, each as likely as any other, one mutation each."""
    of: dict[tuple[Path, int], list[Mutation]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        for one in mutations(file):
            of.setdefault((one.file, one.line), []).append(one)
    chance = random.Random(seed)
    return [chance.choice(of[line]) for line in chance.sample(sorted(of), count)]


def copied(folder: Path) -> Path:
    """The checkout, with shared/ beside it if there is one."""
    made = folder / ROOT.name
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, made / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, made / name)
    if (ROOT.parent / "shared").exists():
        (folder / "shared").symlink_to(ROOT.parent / "shared")
    return made


def noticed(one: Mutation, checkout: Path) -> bool:
    """Whether a test fails with it in a copy of the checkout."""
    at = checkout / one.file.relative_to(ROOT)
    command = [sys.executable, "-m", "tests.touched", str(at)]
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    right = at.read_text(encoding="utf-8")
    at.write_text(one.text(), encoding="utf-8")
    try:
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, check=False, timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        return True
    finally:
        at.write_text(right, encoding="utf-8")
    assert done.returncode in (0, 1), done.stdout.decode()[-2000:]
    return done.returncode == 1


def main(count: int, seed: int) -> None:
    found, workers = drawn(count, seed), os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            free.put(copied(Path(folder) / str(number)))
        same = replace(found[0], wrong=found[0].right)
        checkout = free.get()
        assert not noticed(same, checkout), "tests fail without any mutation"
        free.put(checkout)

        def tried(one: Mutation) -> bool:
            checkout = free.get()
            try:
                caught = noticed(one, checkout)
            finally:
                free.put(checkout)
            print("caught  " if caught else "SURVIVED", one, flush=True)
            return caught

        with ThreadPoolExecutor(workers) as pool:
            print(f"{sum(pool.map(tried, found))} of {count} lines made wrong were noticed (seed {seed})")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
