"""Machine code of other sources is never run."""

from __future__ import annotations

import ast
import errno
import importlib
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from numba import njit, types
from numba.core.errors import TypingError

from prebleexp import machine_code, sources
from prebleexp.experiment.key import key
from prebleexp.launch import configure
from prebleexp.locks import ByteLocks
from prebleexp.sim import on_disk
from prebleexp.sim.later import Later
from tests.support.places import ROOT

COMPILED = ("sim", "policies", "engines", "hardware")
"""parts with functions for numba"""


def forget() -> None:
    """What a process takes for granted while it runs."""
    for function in (
        machine_code._core,
        machine_code._digest_of_package,
        machine_code.home,
        machine_code.locks,
        sources._own_imports,
        sources.is_installed,
        machine_code._digest_of_own,
    ):
        function.cache_clear()
    sources._TEXTS.clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the package, to edit, in place of the checkout; machine code would be kept beside it."""
    copied = tmp_path / "site" / "prebleexp"
    shutil.copytree(sources.PACKAGE, copied, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(sources, "PACKAGE", copied)
    others = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(copied.parent), *others])
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    forget()
    yield copied
    forget()


def edit(file: Path) -> None:
    file.write_text(file.read_text(encoding="utf-8") + "\n", encoding="utf-8")


def folders(files: list[Path]) -> dict[Path, Path]:
    forget()
    return {file: machine_code.folder_of(str(file)) for file in files}


def edits(files: list[Path], edited: list[Path]) -> Iterator[tuple[Path, set[Path]]]:
    """One edit after the other: the file, and of which files the machine code is another after that."""
    before = folders(files)
    for file in edited:
        edit(file)
        after = folders(files)
        yield file, {one for one in files if before[one] != after[one]}
        before = after


def compiled_files(package: Path, *parts: str) -> list[Path]:
    return sorted(file for part in parts for file in (package / part).rglob("*.py"))


def some_of(files: list[Path]) -> list[Path]:
    """A quarter, others in every version of the package."""
    return random.Random(sources.digest(files)).sample(files, len(files) // 4)


OWN = "from prebleexp.policies.base import Policy\nfrom prebleexp.policies.lor import LeastOutstanding\n"


@pytest.mark.slow
def test_an_edit_in_any_file_of_sim_changes_every_folder(package: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    released = "policies/e2_as_released/rules.py"
    names = ("sim/loop.py", "sim/router.py", "policies/lor.py", released, "engines/batching.py")
    files = [own, *(package / name for name in (*names, "engines/released/loop.py", "hardware/preble_step.py"))]
    edited = compiled_files(package, "sim")
    assert len(edited) > 15
    for file, others in edits(files, some_of(edited)):
        assert others == set(files), file


def closures(package: Path, files: list[Path]) -> dict[Path, set[Path]]:
    """The package's files that a file imports when it is loaded, itself among them, they in turn and so on."""

    @cache
    def imported(file: Path) -> list[Path]:
        found = []
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prebleexp"):
                assert node.level == 0
                for name in [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]:
                    at = package.joinpath(*name.split(".")[1:])
                    found += [each for each in (at.with_suffix(".py"), at / "__init__.py") if each.is_file()]
        return found

    def closure(file: Path) -> set[Path]:
        found, waiting = set[Path](), [file]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += imported(one)
        return found

    return {file: closure(file) for file in files}


@pytest.mark.slow
def test_an_edit_of_another_file_changes_the_folders_of_what_imports_it_alone(package: Path) -> None:
    files = compiled_files(package, *COMPILED)
    others = [file for file in files if not file.is_relative_to(package / "sim")]
    needed = closures(package, others)
    some = False
    for file, found in edits(files, some_of(others)):
        expected = {one for one in others if file in needed[one]}
        assert found == expected, file
        some |= 1 < len(expected) < len(others)
    assert some


def test_no_file_with_compiled_functions_imports_where_nobody_looks() -> None:
    """What its machine code depends on are lines `from prebleexp… import …` at their beginning. Functions that are not
    compiled may import more."""
    for file in compiled_files(sources.PACKAGE, *COMPILED):
        text = file.read_text(encoding="utf-8")
        if "@compiled" not in text and "@njit" not in text:
            continue
        tree = ast.parse(text)
        plain = [one for one in tree.body if isinstance(one, ast.FunctionDef) and not one.decorator_list]
        top = {id(node) for part in (tree, *plain) for node in part.body}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                assert not any(alias.name.split(".")[0] == "prebleexp" for alias in node.names), file
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("prebleexp"):
                assert id(node) in top, f"{file}, line {node.lineno}"


def test_every_function_of_the_package_keeps_its_machine_code_in_its_folder() -> None:
    """Not beside its source, where numba would look at that file alone."""
    from numba.core.dispatcher import Dispatcher

    seen = 0
    for file in compiled_files(sources.PACKAGE, *COMPILED):
        if "\nimport torch" in file.read_text(encoding="utf-8"):  # which is not installed everywhere
            continue
        parts = file.relative_to(sources.PACKAGE.parent).with_suffix("").parts
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        for one in [one.made if isinstance(one, Later) else one for one in vars(module).values()]:
            if isinstance(one, Dispatcher) and getattr(one._cache, "cache_path", None):
                source = one.py_func.__code__.co_filename
                place = machine_code.folder_of(source)
                assert Path(one._cache.cache_path).is_relative_to(place), f"{one.__name__} of {source}"
                seen += 1
    assert seen > 100


def test_a_policy_of_ones_own_depends_on_what_it_takes_from_the_package(package: Path, tmp_path: Path) -> None:
    """A helper of prebleexp.policies is compiled into it."""
    own = tmp_path / "own.py"
    own.write_text(OWN)
    edited = [package / "policies" / name for name in ("lor.py", "base.py", "random.py")]
    found = [bool(others) for _, others in edits([own], [own, *edited])]
    assert found == [True, True, True, False]


# ---------------------------------------------------------------- whoever's own files
POLICY = (
    "from dataclasses import dataclass\nfrom prebleexp.policies.base import Policy\n"
    "@dataclass(frozen=True)\nclass Mine(Policy):\n    def route(self, mine, view, request, now):\n        return 0\n"
)


def wordings(package: str, name: str) -> list[str]:
    """How one module of a package may import another."""
    return [
        f"import {package}.{name}",
        f"import {package}.{name} as other",
        f"from {package} import {name}",
        f"from {package}.{name} import VALUE",
        f"def later():\n    from {package}.{name} import VALUE",
        f"try:\n    from {package}.{name} import VALUE as _\nexcept ImportError:\n    pass",
    ]


class Lab:
    """A package, and modules beside it, in three folders of Python's path, which import each other at random."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.files: dict[str, Path] = {}
        for number in range(3):
            (folder / f"path{number}" / f"lab{number}" / "deep").mkdir(parents=True)
            for name in (f"lab{number}", f"lab{number}.deep"):
                self.files[name] = folder / f"path{number}" / name.replace(".", "/") / "__init__.py"
            for name in (f"lab{number}.a", f"lab{number}.b", f"lab{number}.deep.c", f"flat{number}"):
                self.files[name] = folder / f"path{number}" / f"{name.replace('.', '/')}.py"
        self.edges = {name: set(self.rng.sample(sorted(self.files), self.rng.randint(0, 2))) for name in self.files}
        self.plug = self.rng.choice([name for name in self.files if self.files[name].name != "__init__.py"])
        for name, file in self.files.items():
            lines = [self.line(name, other) for other in sorted(self.edges[name] - {name})]
            file.write_text("\n".join(["VALUE = 1", *lines, POLICY if name == self.plug else "", ""]))

    def line(self, name: str, other: str) -> str:
        above, _, last = other.rpartition(".")
        if not above:
            return self.rng.choice([f"import {other}", f"from {other} import VALUE"])
        found = wordings(above, last)
        if above == name.rpartition(".")[0] and self.files[name].name != "__init__.py":
            found += [f"from . import {last}", f"from .{last} import VALUE"]
        return self.rng.choice(found)

    def reachable(self) -> set[str]:
        """With the packages above them: to import a module runs these."""
        found, waiting = set[str](), [self.plug]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                above = name.rpartition(".")[0]
                # the packages above the plug itself are no part of its import statements
                waiting += [above] if above and name != self.plug else []
                waiting += self.edges[name] - {name}
        return found

    def unload(self) -> None:
        for name in [name for name in sys.modules if name.split(".")[0] in {one.split(".")[0] for one in self.files}]:
            del sys.modules[name]
        importlib.invalidate_caches()


CELL = configure.cells([])[0]


def state_of(lab: Lab) -> tuple[str, Path]:
    """The plug's key and the folder of its machine code, as a new process would have them."""
    lab.unload()
    kind: Any = importlib.import_module(lab.plug).Mine
    file = str(lab.files[lab.plug])
    return key(replace(CELL, policy=kind())), machine_code.folder_of(file, kind.__module__)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_plug_depends_on_the_files_that_it_reaches_and_on_no_others(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit of one of them changes its key and the folder of its machine code, an edit of another neither."""
    lab = Lab(tmp_path, seed)
    for number in range(3):
        monkeypatch.syspath_prepend(tmp_path / f"path{number}")
    reached = lab.reachable()
    try:
        before = state_of(lab)
        assert state_of(lab) == before
        for name in sorted(lab.files, key=lambda name: lab.rng.random()):
            edit(lab.files[name])
            after = state_of(lab)
            above = lab.plug.startswith(f"{name}.") and name not in reached  # loaded with the plug: either is right
            if not above:
                assert (after[0] != before[0]) == (name in reached), (name, lab.plug)
                assert (after[1] != before[1]) == (name in reached), (name, lab.plug)
            before = after
    finally:
        lab.unload()


# ---------------------------------------------------------------- what is run
USE = """
from dataclasses import dataclass
from prebleexp.policies.base import Policy
{importing}

@dataclass(frozen=True)
class UseHelp(Policy):
    def route(self, mine, view, request, now):
        return {call}(len(view.candidates))
"""
HELP = """
from prebleexp.sim.compiled import compiled
from prebleexp.sim.later import Later

@compiled
def pick(n):
    return {answer}
"""
RUN = """
import prebleexp, usehelp
print(prebleexp.run(policy=usehelp.UseHelp(), gpus=4, rps=4, duration_s=3, cache_dir=None).requests.gpu.unique())
"""
WAYS = {"name": ("from help1 import pick", "pick"), "module": ("import help1", "help1.pick")}


@pytest.fixture
def lab(tmp_path: Path) -> Callable[..., str]:
    """Writes a policy and its helper, and says what a new process makes of them: GPUs, or its error."""

    def run(way: str, answer: str, script: str = RUN) -> str:
        importing, call = WAYS[way]
        (tmp_path / "usehelp.py").write_text(USE.format(importing=importing, call=call))
        (tmp_path / "help1.py").write_text(HELP.format(answer=answer))
        environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else f"{done.returncode}: {done.stderr.strip()[-300:]}"

    return run


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_an_edit_of_a_helper_in_a_second_file_changes_what_runs(lab: Callable[..., str], way: str) -> None:
    """Also back again, and to an answer that must fail: the old machine code would go on sending to GPU 0."""
    assert lab(way, "0") == "[0]"
    assert lab(way, "n - 1") == "[3]"
    assert "UseHelp sent request 0 at 0 s to GPU 99; it must be an integer from 0 to 3" in lab(way, "99")
    assert lab(way, "0") == "[0]"


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_helpers_index_beyond_an_arrays_end_is_an_error_not_a_crash(lab: Callable[..., str], way: str) -> None:
    error = lab(way, "np.zeros(2, np.int64)[n * 1000000]\n\nimport numpy as np")
    assert error.startswith("1: "), error
    assert "IndexError: index 4000000 is out of bounds" in error


LATE = """
import prebleexp, usehelp
from pathlib import Path
file = Path("help1.py")
file.write_text(file.read_text().replace("return 1", "return 2"))
print(prebleexp.run(policy=usehelp.UseHelp(), gpus=4, rps=4, duration_s=3, cache_dir=None).requests.gpu.unique())
"""


@pytest.mark.slow
def test_an_edit_behind_a_processs_back_is_not_kept_as_what_it_is_not(lab: Callable[..., str]) -> None:
    """A process that has loaded a helper runs that; the next one runs the helper as it is now."""
    assert lab("name", "1", LATE) == "[1]"
    assert lab("name", "2") == "[2]"


# ---------------------------------------------------------------- whether anything is to be compiled
def test_it_is_known_when_nothing_was_compiled_yet(package: Path, tmp_path: Path) -> None:
    """Of each file for itself, with checks and without."""
    own = tmp_path / "own.py"
    own.write_text(OWN)
    for file in (package / "sim" / "loop.py", package / "policies" / "lor.py", own):
        assert machine_code.is_missing(str(file))
        place = machine_code.folder_of(str(file))
        assert place.is_relative_to(tmp_path / "kept")
        (place / "sim_0123").mkdir(parents=True)  # as numba does when a function is only defined
        assert machine_code.is_missing(str(file))
        (place / "sim_0123" / "a.nbi").touch()
        assert not machine_code.is_missing(str(file))
        edit(file)
        forget()
        assert machine_code.is_missing(str(file))
    assert machine_code.is_missing(str(own), check=False)


def test_checked_code_and_unchecked_are_kept_apart(package: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    variants = [machine_code.variant_of(str(own), check) for check in (True, False)]
    assert len({machine_code.folder_of(str(own), variant=one) for one in variants}) == 2
    lor = str(package / "policies" / "lor.py")
    assert machine_code.variant_of(lor, True) == machine_code.variant_of(lor, False)


# ---------------------------------------------------------------- several processes
def half(n: Any) -> Any:
    return n // 2


def no_such_name(n: Any) -> Any:
    return nothing_of_this_name(n)  # type: ignore[name-defined]  # noqa: F821


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where machine code is kept meanwhile."""
    monkeypatch.setattr(machine_code, "home", lambda: tmp_path)
    machine_code.locks.cache_clear()
    yield tmp_path
    machine_code.locks.cache_clear()


def dispatcher(function: Any) -> Any:
    return on_disk.keep(njit(function), on_disk.Kept, str(sources.PACKAGE / "sim" / "loop.py"))


def test_what_is_compiled_for_other_types_at_once_has_a_place_of_its_own(base: Path) -> None:
    """Each of two processes has looked what there is before the other kept anything."""
    one, other = dispatcher(half), dispatcher(half)
    assert (one(7), other(7.0)) == (3, 3.0)
    files = sorted(path.name for path in base.rglob("*.nbc"))
    assert len(files) == len({name.split(".1.nbc")[0] for name in files}) == 2
    again = dispatcher(half)
    assert [again(9), again(9.0)] == [4, 4.0]
    assert again.stats.cache_hits.total() == 2


def test_whoever_cannot_compile_it_lets_others_try(base: Path) -> None:
    broken = dispatcher(no_such_name)
    with pytest.raises(TypingError):
        broken(1)
    assert broken._cache._turns == []
    other = ByteLocks(base / "compiling.lock")
    names = taken(broken)
    assert other.take(names)


def taken(compiled: Any) -> str:
    """The name of its lock, for a whole number."""
    compiled._cache._take_turn((types.int64,), compiled.targetctx)
    name: str = compiled._cache._turns[-1]
    compiled._cache.give_up()
    return name


def test_a_process_that_is_stuck_is_not_waited_for_for_ever(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = dispatcher(half)
    name, stuck = taken(slow), ByteLocks(base / "compiling.lock")
    assert stuck.take(name)
    monkeypatch.setattr(on_disk, "PATIENCE_S", 3 * on_disk.POLL_S)
    assert slow(11) == 5
    assert len(list(base.rglob("*.nbc"))) == 1


def test_a_disk_that_is_full_lets_others_compile(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, key: Any, data: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(on_disk._Files, "save", full)
    made = dispatcher(half)
    with pytest.raises(OSError, match="No space left"):
        made(7)
    assert made._cache._turns == []
    assert ByteLocks(base / "compiling.lock").take(taken(made))
