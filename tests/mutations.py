"""`python -m tests.mutations COUNT [SEED]`: random lines of the package, each made wrong in a copy; are they noticed?

For each the tests that it needs are run, nearest first, for most of a minute of CPU time (tests.touched): a busy
machine notices as much as an idle one. What survives is either the same in other words, or wants a test.
"""

from __future__ import annotations

import ast
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

from tests.imports import PACKAGE
from tests.support.places import ROOT

COPIED = ("prebleexp", "conf", "sweeps", "tests", "hydra_plugins", "docs", "pyproject.toml", "README.md", "mkdocs.yml")
COPIED += ("CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", ".ci")
HANGS_S = 300
"""CPU-seconds: what was begun within the minute and has not ended by then hangs, which is noticed"""
SLEEPS_S = 3600
"""what has not used them by then waits for ever, however busy the machine is"""
OUTCOMES = FAILS, CRASHES, HANGS, SURVIVED = "a test fails", "Python crashes", "does not end", "SURVIVED"
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


def outcome(one: Mutation, checkout: Path) -> str:
    """What becomes of the tests with it in a copy of the checkout."""
    at = checkout / one.file.relative_to(ROOT)
    command = [sys.executable, "-m", "tests.touched", str(at)]
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONDONTWRITEBYTECODE": "1"}
    right = at.read_text(encoding="utf-8")
    at.write_text(one.text(), encoding="utf-8")
    try:
        with tempfile.TemporaryFile() as said:
            begun = subprocess.Popen(
                command, cwd=checkout, env=environment, stdout=said, stderr=said, start_new_session=True
            )
            resource.prlimit(begun.pid, resource.RLIMIT_CPU, (HANGS_S, HANGS_S))  # and of each that it starts
            try:
                code = begun.wait(SLEEPS_S)
            except subprocess.TimeoutExpired:
                return HANGS
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(begun.pid, signal.SIGKILL)  # what a test has left behind
                begun.wait()
            said.seek(0)
            text = said.read().decode(errors="replace")
    finally:
        at.write_text(right, encoding="utf-8")
    code = code - 256 if code > 128 else code  # `sys.exit` of a signal's number
    if code == 0:
        return SURVIVED
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return HANGS
    assert code < 0 or code in (1, 4), text[-2000:]  # 4: tests/conftest.py cannot be imported
    return FAILS if code > 0 else CRASHES


def table(found: Sequence[Mutation], outcomes: Sequence[str]) -> str:
    """How many of each room of the package were noticed, and how."""
    rows: dict[str, Counter[str]] = {}
    for one, what in zip(found, outcomes, strict=True):
        room = one.file.relative_to(PACKAGE).parts[0]
        rows.setdefault(room, Counter())[what] += 1
    rows = dict(sorted(rows.items())) | {"all": Counter(outcomes)}
    lines = [f"{'':24}{'lines':>10}" + "".join(f"{one:>16}" for one in OUTCOMES)]
    lines += [
        f"{room:24}{row.total():10}" + "".join(f"{row[one]:16}" for one in OUTCOMES) for room, row in rows.items()
    ]
    return "\n".join(lines)


def main(count: int, seed: int) -> None:
    found, workers = drawn(count, seed), os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        free: SimpleQueue[Path] = SimpleQueue()
        for number in range(workers):
            free.put(copied(Path(folder) / str(number)))
        same = replace(found[0], wrong=found[0].right)
        checkout = free.get()
        assert outcome(same, checkout) == SURVIVED, "tests fail without any mutation"
        free.put(checkout)

        def tried(one: Mutation) -> str:
            checkout = free.get()
            try:
                what = outcome(one, checkout)
            finally:
                free.put(checkout)
            print(f"{what:16}{one}", flush=True)
            return what

        with ThreadPoolExecutor(workers) as pool:
            outcomes = list(pool.map(tried, found))
    print(f"\n{table(found, outcomes)}")
    print(f"{count - outcomes.count(SURVIVED)} of {count} lines made wrong were noticed (seed {seed})")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
