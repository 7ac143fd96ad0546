"""`prebleexp bench commands`: the paper's sweep and a plan, from the command to the last line."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from prebleexp.bench.processes import Done, prebleexp
from prebleexp.bench.table import LESS, Row, Table
from prebleexp.bench.terminal import COMMAND, silences

PAPER = "+sweeps=paper"
CHAT = (
    *("workload.examples=0", "workload.instruction_tokens=11950", "workload.groups=2520", "output_length=discrete"),
    *("workload.max_new_tokens=2048", "output_length.lengths=[10,150,350,450,600,1118]"),
    "output_length.probabilities=[0.1,0.15,0.3,0.25,0.18,0.02]",
)
"""Mooncake's conversation in its means: prompts of 12,034 tokens, of which 37 % are reused among 4,000 requests, and
answers of 358"""
PLAN = (
    *("plan", "gpus=8", "policy=lor,e2,dynamo_kv", "engine=vllm", "hardware=a100_mistral_7b", *CHAT),
    *("slo.ttft_s=5", "slo.tpot_s=0.1", "slo.target=0.9"),
)
LONG = "requests=4000"
COMPILING = ("requests=100", "most_requests=100", "seed=100", "most_seeds=8")
TIMES = 3


def commands(root: Path) -> list[Row]:
    """Seconds by the clock, on as many cores as there are, and of CPU; of whole commands of a checkout."""
    with TemporaryDirectory() as made:
        folder = Path(made)

        def run(*arguments: str) -> Done:
            return prebleexp(root, arguments, folder, folder / "numba")

        first, longest = silences(root, folder, folder / "elsewhere")
        rows = [
            _watched("nothing compiled, on a terminal: until the first words", first),
            _watched("nothing compiled, on a terminal: its longest silence then", longest),
            _row(PAPER, "nothing compiled, nothing in the cache, its report drawn", [run(PAPER)]),
            _row(PAPER, "from the cache, without a report", [run(PAPER, "report=none") for _ in range(TIMES)]),
            _row(PAPER, "from the cache, its report drawn", [run(PAPER, f"reports_dir={folder}/anew")]),
            _row(PAPER, "from the cache, its report unchanged", [run(PAPER) for _ in range(TIMES)]),
        ]
        run(*PLAN, *COMPILING)
        three = "a plan of three policies"
        rows.append(_row(three, "all compiled, nothing in the cache", [run(*PLAN, LONG)]))
        rows.append(_row(three, "from the cache", [run(*PLAN, LONG) for _ in range(TIMES)]))
    return rows


def _row(what: str, how: str, done: list[Done]) -> Row:
    """The least of several times."""
    least = {"wall_seconds": min(one.wall_s for one in done), "cpu_seconds": min(one.cpu_s for one in done)}
    return {"command": what, "how": how} | least


def _watched(how: str, wall_s: float) -> Row:
    return {"command": " ".join(COMMAND), "how": how, "wall_seconds": wall_s, "cpu_seconds": None}


TABLE = Table(commands, {"wall_seconds": LESS, "cpu_seconds": LESS}, of_commands=True)
