"""`python -m tests.race FOLDER ROUNDS`: eight processes sweep the same cells on one cache folder, some are killed at
random moments. After each round: whoever was not killed has every result, with the right bytes; every entry on disk is
whole; and no run was kept twice.

The processes are forked from this one, which has loaded everything and has no threads: a round takes a tenth of a
second.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

from prebleexp.experiment import results, work
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.work import Attempt, Task
from prebleexp.launch import configure

PROCESSES = 8
results.POLL_S = 0.005
keep = work.keep


def main(folder: Path, rounds: int) -> None:
    cells = [
        one for policy in ("lor", "random") for one in configure.cells([f"policy={policy}", *SMALL, "replications=8"])
    ]
    right = contents(cells, folder / "undisturbed")
    killed = kept = 0
    for number in range(rounds):
        chance = random.Random(number)
        shared = folder / f"round{number}"
        log = shared / "log"
        shared.mkdir()
        children = [fork(chance.sample(cells, len(cells)), shared, log) for _ in range(PROCESSES)]
        victims = chance.sample(children, chance.randint(0, PROCESSES))
        for victim in victims:
            time.sleep(chance.expovariate(1 / 0.01))
            os.kill(victim, signal.SIGKILL)
        codes = {child: os.waitpid(child, 0)[1] for child in children}
        bad = {child: code for child, code in codes.items() if code not in (0, signal.SIGKILL)}
        assert not bad, f"round {number}: {bad}"
        keys = log.read_text().split() if log.exists() else []
        assert len(keys) == len(set(keys)), f"round {number}: a run was computed twice"
        killed += sum(code != 0 for code in codes.values())
        kept += len(keys)
        assert contents(cells, shared / "cache") == right, f"round {number}: other bytes"
        assert not (shared / "cache" / "bad").exists(), f"round {number}: a damaged entry"
        shutil.rmtree(shared)
    print(f"{rounds} rounds of {PROCESSES} processes, {killed} killed, {kept} runs kept by them, none twice")


SMALL = ("gpus=2", "rps=2", "duration_s=2")


def fork(cells: list[Cell], shared: Path, log: Path) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        sys.stderr = (shared / f"{os.getpid()}.txt").open("w")

        def keep_and_tell(attempt: Attempt, task: Task, cache: Cache) -> Attempt:
            done = keep(attempt, task, cache)
            file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(file, f"{task.key}\n".encode())
            return done

        work.keep = keep_and_tell
        made = results.run_all(cells, Cache(shared / "cache"), workers=1)
        code = 0 if all(one.metrics is not None for one in made) else 3
    finally:
        os._exit(code)


def contents(cells: list[Cell], folder: Path) -> list[tuple[object, bytes | None]]:
    """What a sweep finds in the folder, having computed what is missing."""
    cache = Cache(folder)
    made = results.run_all(cells, cache, workers=1)
    paths = [cache.requests_path(one.key) for one in made]
    return [(one.metrics, path.read_bytes() if path.exists() else None) for one, path in zip(made, paths, strict=True)]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
