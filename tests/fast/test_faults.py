"""Whatever happens to a cache folder, running again ends with the bytes of a run that nothing happened to, and the
folder is clean."""

from __future__ import annotations

import errno
import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from prebleexp.errors import PrebleexpError
from prebleexp.experiment import durable
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.maintenance import verify
from prebleexp.experiment.results import run_all
from prebleexp.launch import configure

SMALL = ("gpus=2", "rps=4", "duration_s=3", "replications=6")
ROUNDS = 5
Contents = list[tuple[object, bytes | None]]


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    return [one for policy in ("lor", "random", "e2") for one in configure.cells([f"policy={policy}", *SMALL])]


def contents(cells: list[Cell], folder: Path) -> Contents:
    """What a sweep ends with, and every byte that it keeps of the requests."""
    cache = Cache(folder)
    made = run_all(cells, cache, workers=2)
    paths = [cache.requests_path(one.key) for one in made]
    return [(one.metrics, path.read_bytes() if path.exists() else None) for one, path in zip(made, paths, strict=True)]


@pytest.fixture(scope="module")
def undisturbed(cells: list[Cell], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Contents]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, contents(cells, folder)


def truncate(path: Path, chance: random.Random) -> None:
    with path.open("rb+") as file:
        file.truncate(chance.randrange(path.stat().st_size))


def flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def lose(path: Path, chance: random.Random) -> None:
    path.unlink()


def swap(path: Path, chance: random.Random) -> None:
    """It takes the place of another of its kind, or is lost where those before it took all their places."""
    others = sorted(other for other in path.parent.parent.glob(f"??/*{path.suffix}") if other != path)
    if others:
        path.replace(chance.choice(others))
    else:
        path.unlink()


def litter(path: Path, chance: random.Random) -> None:
    """What a killed writer leaves, long ago."""
    left = path.with_name(f".{path.name}.{chance.randrange(1 << 32)}.tmp")
    left.write_bytes(b"half")
    os.utime(left, (0, 0))


@pytest.mark.slow
@pytest.mark.parametrize("damage", [truncate, flip, lose, swap, litter])
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_damaged_files(
    damage: Callable[[Path, random.Random], None],
    seed: int,
    cells: list[Cell],
    undisturbed: tuple[Path, Contents],
    tmp_path: Path,
) -> None:
    folder, right = undisturbed
    shutil.copytree(folder, tmp_path / "cache")
    chance = random.Random(seed)
    files = sorted((tmp_path / "cache" / "v1").glob("??/*"))
    for path in chance.sample(files, chance.randint(1, len(files) // 2)):
        if path.exists():
            damage(path, chance)
    assert contents(cells, tmp_path / "cache") == right
    assert verify(Cache(tmp_path / "cache")) == []


def sweep(folder: Path, cells: list[Cell]) -> None:
    run_all(cells, Cache(folder), workers=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_kills(seed: int, cells: list[Cell], undisturbed: tuple[Path, Contents], tmp_path: Path) -> None:
    chance = random.Random(seed)
    fork = multiprocessing.get_context("fork")
    for _ in range(4):
        process = fork.Process(target=sweep, args=(tmp_path, cells))
        process.start()
        time.sleep(chance.expovariate(1 / 0.03))
        process.kill()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL)
    assert contents(cells, tmp_path) == undisturbed[1]
    assert verify(Cache(tmp_path)) == []


def full_after(count: int, chance: random.Random) -> Callable[[Path, bytes], None]:
    """A disk on which so many files have room, and the next not as a whole."""
    written: list[Path] = []
    write = durable.write

    def fill(path: Path, data: bytes) -> None:
        if len(written) >= count:
            half = path.with_name(f".{path.name}.half.tmp")
            with suppress(FileNotFoundError), half.open("xb") as file:
                file.write(data[: chance.randrange(len(data))])
            half.unlink(missing_ok=True)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written.append(path)
        write(path, data)

    return fill


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_full_disk(
    seed: int,
    cells: list[Cell],
    undisturbed: tuple[Path, Contents],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chance = random.Random(seed)
    with monkeypatch.context() as patch:
        patch.setattr(durable, "write", full_after(chance.randrange(1, 18), chance))
        with pytest.raises(PrebleexpError, match=r"cannot be written: No space left on device"):
            sweep(tmp_path, cells)
    assert contents(cells, tmp_path) == undisturbed[1]
    assert verify(Cache(tmp_path)) == []


def limited_sweep(folder: Path, cells: list[Cell], most: int) -> None:
    """No file may be larger: the system itself ends a write in its middle."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    with pytest.raises(PrebleexpError, match=r"cannot be written: File too large"):
        sweep(folder, cells)


@pytest.mark.slow
@pytest.mark.parametrize("most", [100, 3000, 4500])
def test_writes_that_end_in_the_middle(
    most: int, cells: list[Cell], undisturbed: tuple[Path, Contents], tmp_path: Path
) -> None:
    process = multiprocessing.get_context("fork").Process(target=limited_sweep, args=(tmp_path, cells, most))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert contents(cells, tmp_path) == undisturbed[1]
    assert verify(Cache(tmp_path)) == []


@pytest.mark.slow
def test_racing_writers(cells: list[Cell], undisturbed: tuple[Path, Contents], tmp_path: Path) -> None:
    """All at once, none of them in the same order; claims are of no use to those that compute all again."""
    fork = multiprocessing.get_context("fork")
    processes = [
        fork.Process(target=again, args=(tmp_path, random.Random(seed).sample(cells, len(cells)))) for seed in range(6)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 6
    assert contents(cells, tmp_path) == undisturbed[1]
    assert verify(Cache(tmp_path)) == []


def again(folder: Path, cells: list[Cell]) -> None:
    run_all(cells, Cache(folder), workers=1, retry="all")
