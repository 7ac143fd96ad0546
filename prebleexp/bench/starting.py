"""`prebleexp bench starting`: what a command takes before it simulates, and what is compiled and imported for it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from prebleexp.bench.processes import Done, prebleexp, python
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.errors import PrebleexpError

TIMES = 3
OFTEN = 6
FIRST = """
import sys
from prebleexp.launch import configure
from prebleexp.experiment import runs
cell = configure.cells(["gpus=8", "rps=64", *sys.argv[1:]])[0]
runs.simulate_cell(cell, runs.draw(cell))
print(len(sys.modules))
"""
COUNTED = """
import atexit, runpy, sys
out = open(sys.argv.pop(1), "w")
atexit.register(lambda: print(len(sys.modules), file=out, flush=True))
runpy.run_module("prebleexp", run_name="__main__", alter_sys=True)
"""
"""a command that writes how many modules it has imported when it is over; to a file, since it may print itself"""
EDITED = """
from dataclasses import dataclass
from prebleexp.policies.base import Policy

@dataclass(frozen=True)
class Edited(Policy):
    reads_lengths = False

    def route(self, mine, view, request, now):
        return view.candidates[(request + {number}) % len(view.candidates)]
"""
COMMAND = ("gpus=2", "rps=1")
COMPILED = "*.nbc"
"""what numba calls the files that it keeps: one for each function and the types that it was compiled for"""


def starting(root: Path) -> list[Row]:
    """CPU seconds of whole processes of a checkout; functions that were compiled, and modules that were imported, which
    are the same on every machine."""
    with TemporaryDirectory() as folder:
        return _Starting(root, Path(folder)).rows()


class _Starting:
    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.numba = root, folder, folder / "numba"

    def rows(self) -> list[Row]:
        compileall = ["-m", "compileall", "-q", *(str(self.root / one) for one in ("prebleexp", "hydra_plugins"))]
        with suppress(PrebleexpError):  # where it may be written: Python's own code is there, as on the second day
            python(compileall, self.folder, self.root)
        rows = [
            self._first("the first run of lor, nothing compiled"),
            self._first("the first run of e2 after it", "policy=e2"),
            self._first("a second process", times=TIMES),
            self._edited("an edited router"),
        ]
        prebleexp(self.root, [*COMMAND, "seed=0"], self.folder, self.numba)
        seeds = [[*COMMAND, f"seed={1 + i}"] for i in range(OFTEN)]
        rows.append(self._command(f"prebleexp {' '.join(COMMAND)}, all compiled", seeds))
        rows.append(self._command("prebleexp --help", [["--help"]] * OFTEN))
        return rows

    def _first(self, what: str, *arguments: str, times: int = 1) -> Row:
        before = self._functions()
        runs = [self._run(*arguments) for _ in range(times)]
        return _row(what, min(one.cpu_s for one in runs), self._functions() - before, int(runs[-1].out))

    def _edited(self, what: str) -> Row:
        """The least of three edits."""
        (self.folder / "conf" / "policy").mkdir(parents=True)
        (self.folder / "conf" / "policy" / "edited.yaml").write_text("_target_: edited.Edited\n", encoding="utf-8")
        rows = []
        for number in range(1 + TIMES):
            (self.folder / "edited.py").write_text(EDITED.format(number=number), encoding="utf-8")
            rows.append(self._first(what, "policy=edited"))
        return min(rows[1:], key=lambda row: float(row["cpu_seconds"]))

    def _run(self, *arguments: str) -> Done:
        return python(["-c", FIRST, *arguments], self.folder, self.root, self.folder, numba=self.numba)

    def _command(self, what: str, commands: list[list[str]]) -> Row:
        """Modules are counted in the last one, which is not timed."""
        before, counted = self._functions(), self.folder / "modules"
        *timed, last = commands
        seconds = [prebleexp(self.root, one, self.folder, self.numba).cpu_s for one in timed]
        python(["-c", COUNTED, str(counted), *last], self.folder, self.root, numba=self.numba)
        return _row(what, min(seconds), self._functions() - before, int(counted.read_text(encoding="utf-8")))

    def _functions(self) -> int:
        return sum(1 for _ in self.numba.rglob(COMPILED))


def _row(what: str, cpu_s: float, functions: int, modules: int) -> Row:
    return {"what": what, "cpu_seconds": cpu_s, "functions_compiled": functions, "modules_imported": modules}


TABLE = Table(starting, {"cpu_seconds": LESS, "functions_compiled": LESS, "modules_imported": LESS}, of_commands=True)
