"""Imports point downwards only, the simulator knows of none of its plugs, and heavy libraries stay where they
belong."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

PACKAGE = ROOT / "prebleexp"
LEVELS = {
    "errors": 0,
    "checks": 1,
    "evaluated": 0,
    "sources": 0,
    "intervals": 0,
    "offered": 1,
    "overload": 0,
    "unfound": 0,
    "losses": 2,
    "records": 0,
    "warmed": 0,
    "waiting": 0,
    "busiest": 0,
    "machine_code": 1,
    "locks": 0,
    "results_view": 1,
    "precision": 1,
    "sim": 2,
    "hardware": 3,
    "engines": 3,
    "policies": 3,
    "workloads": 3,
    "lengths": 3,
    "overhead": 3,
    "described": 3,
    "autoscalers": 3,
    "faults": 3,
    "gateway": 3,
    "recovery": 3,
    "itl": 3,
    "history_tables": 3,
    "scaling_metrics": 3,
    "moved": 3,
    "slo_metrics": 0,
    "step_metrics": 0,
    "averages": 0,
    "prefill_metrics": 1,
    "told": 3,
    "service": 3,
    "cluster": 4,
    "warm": 4,
    "metrics": 4,
    "stages": 4,
    "stages_view": 3,
    "published": 5,
    "comparison": 5,
    "regression": 6,
    "testing": 5,
    "experiment": 5,
    "calibration": 6,
    "vllm_bench": 6,
    "sglang_bench": 7,
    "planning": 6,
    "launch": 7,
    "views": 6,
    "store": 7,
    "report": 7,
    "indexing": 8,
    "paper": 8,
    "publish": 9,
    "predict": 9,
    "live": 9,
    "recommending": 8,
    "bench": 10,
    "commands": 11,
    "api": 11,
    "__main__": 12,
    "__init__": 12,
}
HOMES = {
    "hydra": {"launch", "commands/simulate.py"},
    "omegaconf": {"launch", "publish", "commands/simulate.py"},
    "duckdb": {"store", "commands/sql.py"},
    "seaborn": {"report"},
    "matplotlib": {"report"},
    "jinja2": {"report"},
    "vl_convert": {"report"},
    "numba": {"sim", "engines", "machine_code"},
    "llvmlite": {"sim"},
    "IPython": {"launch"},
    "httptools": {"live"},
    "uvloop": {"live"},
    "zmq": {"live"},
    "msgspec": {"live"},
    "grpc": {"live"},
    "grpc_health": {"live"},
    "envoy": {"live"},
}
FILES = sorted(PACKAGE.rglob("*.py"))
TESTS = {"fast", "pages", "predict", "slow"}
"""folders that .ci/run runs, of which `slow` holds slow tests alone"""


def part_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def imports(file: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found += whole if node.module == "prebleexp" or node.module.startswith("tests") else [node.module]
    return found


def test_imports_point_downwards() -> None:
    for file in FILES:
        name = file.relative_to(PACKAGE).as_posix()
        part = name.split("/")[0].removesuffix(".py")
        for module in imports(file):
            root = module.split(".")[0]
            assert root not in HOMES or {part, name} & HOMES[root], f"{module} does not belong in {name}"
            if root == "prebleexp":
                other = part_of(module)
                assert other == part or LEVELS[other] < LEVELS[part], f"{part} must not know {other}, as {name} does"


def test_a_file_holds_one_idea() -> None:
    assert [str(file) for file in FILES if len(file.read_text(encoding="utf-8").splitlines()) > 350] == []


# ---------------------------------------------------------------- the general core
SIM = sorted((PACKAGE / "sim").rglob("*.py"))
PLUGS = ("policy", "engine", "hardware")
ORDINARY = {"random", "replay"}
"""names that are words too"""


def plug_names() -> set[str]:
    """Of every policy, engine and hardware model there is, as YAML and as class; and of what they are made of."""
    found = {"mistral", "llama", "qwen", "a6000", "a100", "h100", "h200", "empanada"}
    for group in PLUGS:
        for file in (ROOT / "conf" / group).glob("*.yaml"):
            target = re.search(r"^_target_: (\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
            found |= {file.stem.lower()} | ({target[1].rpartition(".")[2].lower()} if target else set())
    return found - ORDINARY - {"hardware"}


@pytest.mark.parametrize("file", SIM, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_the_simulator_names_no_policy_no_engine_and_no_hardware(file: Path) -> None:
    """But for references to the specification, and for what a Python file that would be one is called."""
    text = re.sub(r"\((?:see )?(?:spec:|`prebleexp\.)[^)]*\)", "", file.read_text(encoding="utf-8")).lower()
    assert len(plug_names()) > 15
    for name in sorted(plug_names()):
        whole = re.search(rf"(?<![a-z0-9]){re.escape(name)}(?![a-z0-9])", text)
        assert whole is None, f"{name}, line {text[: whole.start()].count(chr(10)) + 1}"
    for module in imports(file):
        assert module.split(".")[0] != "prebleexp" or part_of(module) in {"sim", "errors", "sources", "machine_code"}


# ---------------------------------------------------------------- released simulators, which are frozen
FROZEN = ("released", "splitwise", "dynamo_replay")
OF_THE_GENERAL_LOOP = {
    *("prebleexp.sim.loop", "prebleexp.sim.router", "prebleexp.sim.events"),
    *(f"prebleexp.engines.{name}" for name in ("batching", "admission", "continuous", "queue", "records")),
    *(f"prebleexp.engines.{name}" for name in ("rooms", "serving")),
}
LEAVES = {
    *(f"prebleexp.sim.{name}" for name in ("answers", "caches", "children", "compiled", "cost", "entry", "given")),
    *(f"prebleexp.sim.{name}" for name in ("handles", "notices", "outcome", "signatures")),
    *(f"prebleexp.sim.{name}" for name in ("plug", "records", "routing", "running_mean", "types", "world")),
    *(f"prebleexp.engines.{name}" for name in ("base", "batch", "largest")),
    *("prebleexp.checks", "prebleexp.errors", "prebleexp.sim"),
}
"""what it may share: none of them chooses when or in which order anything happens"""
OF_RELEASES = {"prebleexp.engines.serial_heap"}
"""what releases share among themselves, and nothing else has"""


@pytest.mark.parametrize("engine", FROZEN)
def test_a_release_takes_leaves_of_the_core_and_nothing_of_its_loop(engine: str) -> None:
    files = sorted((PACKAGE / "engines" / engine).rglob("*.py"))
    assert len(files) > 5
    for file in files:
        for module in imports(file):
            if module.split(".")[0] == "prebleexp" and not module.startswith(f"prebleexp.engines.{engine}"):
                assert module not in OF_THE_GENERAL_LOOP, (file, module)
                assert module in LEAVES | OF_RELEASES, (file, module)


def test_the_general_loop_takes_nothing_of_a_release() -> None:
    others = [file for file in FILES if file.is_relative_to(PACKAGE / "sim") or file.parent == PACKAGE / "engines"]
    for file in others:
        assert not any(name in module for module in imports(file) for name in FROZEN), file
        assert OF_RELEASES.isdisjoint(imports(file)), file


def test_what_both_share_knows_neither_loop() -> None:
    """But for the kinds of events."""
    for module in sorted(LEAVES - {"prebleexp.checks", "prebleexp.sim", "prebleexp.errors"}):
        file = PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
        assert not OF_THE_GENERAL_LOOP & set(imports(file)) - {"prebleexp.sim.events"}, module
        assert not any("released" in one for one in imports(file)), module


# ---------------------------------------------------------------- the tests themselves
CLOCKS = re.compile(
    r"\b(perf_counter|process_time|thread_time|monotonic|clock_gettime|timeit|getrusage|wait4|default_timer)(_ns)?\b"
    r"|\btime\.time(_ns)?\b|\bos\.times\b|\b(date)?time\.now\b|yardstick|slowness"
)
MAY_ASK = {
    "tests/support/patience.py": "ends what hangs, and judges nothing",
    "tests/minute.py": "begins nothing after a minute of work",
    "tests/real_engines.py": "is no test: measures for a table, and judges nothing",
    "tests/make_tool_files.py": "waits for a server, and judges nothing",
    "tests/support/token_server.py": "answers no faster than an engine, and judges nothing",
    "tests/fast/test_limits.py": "a run that is ended by the clock",
    "tests/fast/test_maintenance.py": "makes files some days old",
    "tests/fast/test_architecture.py": "names them above",
}


def test_no_test_judges_by_a_clock() -> None:
    """What is judged is counted: a busy machine is no wrong one. `prebleexp bench` measures."""
    found = []
    for file in sorted((ROOT / "tests").rglob("*.py")):
        text, name = file.read_text(encoding="utf-8"), file.relative_to(ROOT).as_posix()
        if name in MAY_ASK:
            text = "\n".join(line for line in text.splitlines() if line.lstrip().startswith("assert"))
        found += [f"{name}: {one.group()}" for one in CLOCKS.finditer(text)]
    assert found == []


def test_nothing_is_imported_from_a_test() -> None:
    """What tests share lies in tests/support."""
    files = sorted((ROOT / "tests").rglob("*.py"))
    assert len(files) > 200
    importing = re.compile(
        r"^\s*(from|import) (tests\.(\w+\.)*)?test_|^\s*from tests(\.\w+)* import .*\btest_", re.MULTILINE
    )
    assert [str(file) for file in files if importing.search(file.read_text(encoding="utf-8"))] == []


def test_every_test_is_run_by_somebody() -> None:
    files = [file.relative_to(ROOT / "tests") for file in (ROOT / "tests").rglob("test_*.py")]
    assert {file.parent.as_posix() for file in files} == TESTS
    for file in files:
        marked = "pytestmark = pytest.mark.slow\n" in (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert marked or file.parts[0] != "slow", f"{file} has tests that -m slow leaves out"
    run = re.search(r"-m pytest (.+) -m \"not nightly\"", (ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert run is not None
    assert {place.removeprefix("tests/") for place in run[1].split()} == TESTS
    assert "-m pytest tests -m nightly" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
