"""The command line is a contract: what it prints where, its exit codes, and one clear line for bad input."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hydra.core.global_hydra import GlobalHydra

import prebleexp.sim.simulate
from prebleexp import commands
from prebleexp.__main__ import main
from prebleexp.launch import configs, configure
from prebleexp.metrics import FIRST, METRICS
from tests.support.places import ROOT
from tests.support.said import after_first_words
from tests.support.sampled import sampled
from tests.support.stand_in import served

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in an empty folder, with a simulator that takes no time."""
    monkeypatch.setattr(prebleexp.sim.simulate, "simulate", served)
    monkeypatch.chdir(tmp_path)

    def command(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, after_first_words(printed.err)

    return command


POLICIES = sorted(file.stem for file in (ROOT / "conf" / "policy").glob("*.yaml"))
"""read there: whoever adds one, as the README says, breaks no test"""
BAD = {
    "policy=lro": f"unknown policy 'lro'. Did you mean 'lor'? Valid: {', '.join(POLICIES)}.",
    "policy=LOR": "Did you mean 'lor'?",
    "hardware=h100": "unknown hardware 'h100'; it is a GPU: say hardware/gpu=h100",
    "hardware=h200": "unknown hardware 'h200'; it is a GPU: say hardware/gpu=h200",
    "gpu=4": "unknown key 'gpu'. Did you mean 'gpus'? Valid: adapters, arrivals, autoscaler, backend, cache_dir, ",
    "+foo=1": "unknown key 'foo'; valid:",
    "~seed": "seed has no value",
    "gpus=0": "gpus=0 is not valid",
    "gpus=2.5": "gpus=2.5 is not valid",
    "gpus=true": "gpus=True is not valid",
    "rps=-1": "rps=-1 is not valid",
    "rps=nan": "rps=nan is not valid",
    "rps=abc": "rps=abc is not valid",
    "duration_s=inf": "duration_s=inf is not valid",
    "horizon=maybe": "horizon=maybe is not valid",
    "seed=-1": "seed=-1 is not valid",
    "replications=0": "replications=0 is not valid; it must be an integer from 1",
    "workers=0": "workers=0 is not valid; it must be an integer from 1",
    "keep_requests=x": "keep_requests=x is not valid; it must be one of first, all, none",
    "output=x": "output=x is not valid; it must be one of table, json, csv",
    "report=pdf": "report=pdf is not valid; it must be one of html, none",
    "cache_dir=null": "cache_dir=None is not valid",
    "sweep.name=../up": "sweep.name=../up is not valid",
    "+sweep.colour=red": "unknown field of sweep 'colour'; valid: figures, findings, name, parts, plan, title",
    "-m report.metrics=[ttft_p9_s]": "unknown metric in report.metrics: 'ttft_p9_s'. Did you mean 'ttft_p99_s'? Valid:",
    "-m report.metrics=ttft_p99_s": "report.metrics=ttft_p99_s is not valid; it must be a list of metrics",
    "report.metrics=[]": "report.metrics=[] is not valid; it must be a list of metrics",
    "+report.colour=red": "unknown field of report 'colour'; valid: about, format, metrics",
    "policy.foo=1": "unknown key 'policy.foo'; policy=lor has no fields.",
    "policy=random policy.sed=1": "unknown key 'policy.sed'; valid: policy.seed. Did you mean 'policy.seed'?",
    "+policy.foo=1": "unknown key 'policy.foo'; policy=lor has no fields.",
    "+policy._target_=1": "+policy._target_=1",
    "policy._target_=os.system": "its _target_ 'os.system' is not a dataclass",
    "policy._target_=no.such.Thing": "its _target_ 'no.such.Thing' cannot be imported",
    "policy=[lor,random]": "policy is a list of options; it must be one",
    "~policy": "policy has no value",
    "output_length.probabilities=[0.5,0.4]": "probabilities",
    "gpus=[": "gpus=[ is not valid",
    "gpus='": "gpus=' is not valid: a quote or bracket is not closed",
    "gpus=4 rps": "'rps' is not valid; settings are written key=value",
    "gpus=${nope}": "nope",
    "slo.ttft_s={p95:1} slo.ttft_s={p99:2}": "slo.ttft_s is given twice: slo.ttft_s={p95:1} and slo.ttft_s={p99:2}",
    "gpus=1,2": "gpus=1,2 has several values; add -m",
    "hardware utilisation=.8,.9": "utilisation=.8,.9 has several values; hardware is of one configuration: give one",
    "workload describe rps=1,2": "rps=1,2 has several values; workload is of one configuration: give one value at a",
    "hindsight rps=1,2": "rps=1,2 has several values; hindsight is of one configuration: give one value at a time",
    "sweeps=fig1a": "use +sweeps=fig1a",
    "+sweeps=fig1x": ("unknown sweep 'fig1x'. Did you mean 'fig1d'? Valid: ablations, "),
    "+sweeps=fig1a policy=lor": "policy cannot be set: the lines of part rates_released differ in it",
    "+sweeps=fig2 sweep.figures.2.draw=pie": "unknown figure 'pie'; valid: change_by_switch",
    "+sweeps=fig2 +sweep.figures.2.colour=red": "unknown field of sweep.figures.2 'colour'",
    "+sweeps=fig2 sweep.figures.2.parts=[all]": "unknown part in sweep.figures.2: 'all'",
    "+sweeps=fig2 sweep.parts.lengths_released.params=null": "sweep.parts.lengths_released has no params",
    "+sweeps=fig2 sweep.findings=maybe": "sweep.findings=maybe is not valid; it must be one of cases, claims, "
    "clusters, ",
    "policy=e2 lengths=binned": "lengths.path=None is not valid; binned needs lengths.path=FILE",
    "policy=e2 policy.rebalance_threshold=0.5": "policy.rebalance_threshold=0.5 is not valid; it must be a number >= 1",
    "policy=e2 policy.replicate_factor=0": "policy.replicate_factor=0 is not valid; it must be a number >= 1",
    "policy=e2_released policy.quirks=[q9]": "unknown quirk 'q9'; valid: candidate_position",
    "overhead.mode=parallel": "overhead.mode=parallel is not valid; it must be one of none, recorded, serial",
    "engine=preble engine.queue=lifo": "engine.queue=lifo is not valid; it must be one of lpm, fcfs, priority_groups",
    "-m rps=1,-1": "rps=-1 is not valid",
    "-m policy=lor,lro": "unknown policy 'lro'. Did you mean 'lor'? Valid:",
    "-m rps=interval(1,2)": "rps=interval(1,2): an interval has no list of values",
    "-m policy=glob(x*)": "nothing to sweep over",
    "-m workers=1,2": "workers must be the same for all cells",
    "-m gpus=1,2 hydra/launcher=basic": "hydra/launcher=basic: it must be prebleexp",
    "simulate": (
        "unknown command 'simulate'; valid: bench, bench-serve, cache, calibrate, compare, compare-bench, "
        "composes, hardware, hindsight, live, mock, open, pick, plan, predict, published, recommend, route, sql, "
        "status, trace, why, workload"
    ),
    "--fast": "unrecognized arguments: --fast",
    "--cfg everything": "invalid choice: 'everything'",
    "why": "why takes two keys",
    "why a b": "cache_dir=cache is not a folder",
    "why a b cache_dir=.": "'a' is not a key",
    f"why {'0' * 64} {'1' * 64} cache_dir=.": f"the cache in . has no run {'0' * 64}",
}


@pytest.mark.parametrize("line", sampled(BAD, 3))
def test_bad_input_is_one_clear_line_and_exit_code_2(run: Run, line: str, tmp_path: Path) -> None:
    code, out, err = run(*line.split(" "))
    assert (code, out) == (2, "")
    assert err.startswith("prebleexp: ")
    assert err.count("\n") == 1
    assert BAD[line] in err
    assert not list(tmp_path.rglob("*.json")), "something was computed"


def test_a_cache_folder_that_cannot_be_written_is_bad_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, out, err = run("cache_dir=file/cache")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "file/cache" in err


@pytest.mark.parametrize("sweep", [[], ["-m", "gpus=1,2"]])
def test_a_malformed_workload_file_is_bad_input(run: Run, tmp_path: Path, sweep: list[str]) -> None:
    (tmp_path / "trace.jsonl").write_text('{"timestamp": 0, "input_length": 3, "output_length": -1, "hash_ids": [1]}\n')
    code, out, err = run(*sweep, "workload=mooncake", "workload.path=trace.jsonl")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "trace.jsonl" in err
    assert "output_length" in err


def test_one_run_prints_its_metrics(run: Run) -> None:
    code, out, err = run("gpus=2", "rps=4", "duration_s=5")
    assert code == 0
    head, *lines, last, believed = out.splitlines()[1:]
    assert head.split() == ["metric", "value", "unit", "which", "is"]
    assert tuple(line.split()[0] for line in lines) == FIRST
    assert re.match(r"ttft_p99_s +0\.5 +s +p99 time to first token$", lines[3]), "with unit and words"
    assert last == f"… {len(METRICS) - len(FIRST)} more: output=json prints all; docs/metrics.md defines them"
    (row,) = json.loads(run("gpus=2", "rps=4", "duration_s=5", "output=json")[1])
    assert believed == f"step times: {row['hardware.support']}"
    assert set(METRICS) <= set(row)
    assert err.startswith("1 run: 1 computed, 0 from the cache; ")
    again = run("gpus=2", "rps=4.0", "duration_s=5")
    assert again[1] == out
    assert again[2].startswith("1 run, all from the cache; ")


def test_replications_print_means_with_intervals_and_only_new_seeds_are_computed(run: Run) -> None:
    run("rps=4", "duration_s=5", "replications=3")
    code, out, err = run("rps=4", "duration_s=5", "replications=5")
    assert code == 0
    assert err.startswith("5 runs: 2 computed, 3 from the cache; ")
    assert out.splitlines()[1].split() == [
        "metric",
        *["mean", "of", "5", "seeds", "±", "95", "%"],
        "unit",
        "which",
        "is",
    ]
    ttft = next(line.split() for line in out.splitlines() if line.startswith("ttft_mean_s"))
    assert float(ttft[1]) == pytest.approx(np.mean([1 / (8 + seed) for seed in range(5)]), rel=1e-3)
    assert float(ttft[2]) > 0


def test_json_and_csv_are_a_row_per_run(run: Run) -> None:
    arguments = ("rps=4", "duration_s=5", "replications=2", "policy=random")
    rows = json.loads(run(*arguments, "output=json")[1])
    assert [row["seed"] for row in rows] == [0, 1]
    assert {"key", "gpus", "policy", "policy.seed", "workload", "ttft_p99_s", "seconds"} <= set(rows[0])
    read = list(csv.DictReader(io.StringIO(run(*arguments, "output=csv")[1])))
    assert [row["key"] for row in read] == [row["key"] for row in rows]
    assert float(read[1]["ttft_mean_s"]) == rows[1]["ttft_mean_s"]


def test_a_sweep_prints_a_line_per_cell_and_writes_database_and_report(run: Run, tmp_path: Path) -> None:
    code, out, err = run("-m", "gpus=2,4", "rps=range(1,4)", "policy=glob(r*,exclude=replay)", "duration_s=5")
    assert code == 0
    head, *lines = out.splitlines()
    assert head.split()[:3] == ["gpus", "rps", "policy"]
    assert [tuple(line.split()[:3]) for line in lines] == [
        (gpus, rps, policy) for gpus in ("2", "4") for rps in ("1", "2", "3") for policy in ("random", "round_robin")
    ]
    assert err.startswith("12 runs: 12 computed, 0 from the cache; ")
    page = tmp_path / "reports" / "sweep" / "index.html"
    assert err.splitlines()[-1] == str(page.relative_to(tmp_path))
    assert "gpus=2,4" in page.read_text()
    with duckdb.connect(tmp_path / "cache" / "prebleexp.duckdb", read_only=True) as database:
        assert database.execute("select count(*), min(rps), max(gpus) from runs").fetchone() == (12, 1, 4)
        found = database.execute("select count(distinct key) from requests").fetchone()
        assert found == (12,)


@pytest.mark.slow
@pytest.mark.parametrize("sweep", [("-m", "policy=lor,random"), ("+sweeps=fig1a",)])
def test_a_page_draws_the_metrics_that_are_asked_for(run: Run, tmp_path: Path, sweep: tuple[str, ...]) -> None:
    """Of a sweep of one's own it drew normalised latency and nothing else."""
    arguments = (*sweep, "gpus=2", "rps=1,2", "duration_s=3", "replications=1", "sweep.name=asked")
    code, _, err = run(*arguments, "report.metrics=[ttft_p99_s,hit_ratio]")
    assert code == 0, err
    figures = tmp_path / "reports" / "asked" / "figures"
    assert {file.stem for file in figures.iterdir()} == {"ttft_p99_s", "hit_ratio"}
    page = (figures.parent / "index.html").read_text()
    assert "Hit ratio against request rate" in page
    code, _, err = run(*arguments, "report=none", "reports_dir=none")
    assert code == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_a_glob_leaves_out_what_needs_a_file_and_says_so(run: Run, tmp_path: Path) -> None:
    """`policy=glob(*)` has replay in it, which needs a path: so nothing was run."""
    line = ("rps=1", "duration_s=5", "report=none", "output=json")
    code, out, err = run("-m", "policy=glob(*)", *line)
    assert code == 0, err
    assert {row["policy"] for row in json.loads(out)} == set(POLICIES) - {"replay"}
    assert "policy=glob(*) leaves out replay: policy.path=None is not valid; replay needs policy.path=FILE" in err
    for asked in ("policy=glob(r*,exclude=[re*])", "policy=glob([random,replay])", "policy=replay,lor"):
        assert "leaves out" not in run("-m", asked, *line)[2]
    np.savez(tmp_path / "gpus.npz", gpu=np.zeros(100, np.int64))
    rows = json.loads(run("-m", "policy=glob(rep*)", "++policy.path=gpus.npz", *line)[1])
    assert [row["policy"] for row in rows] == ["replay"]


def test_a_figure_of_a_single_rate_is_not_drawn_against_the_rate(run: Run, tmp_path: Path) -> None:
    assert run("-m", "policy=lor,random", "rps=2", "duration_s=3")[0] == 0
    page = (tmp_path / "reports" / "sweep" / "index.html").read_text()
    assert "Average normalised latency at 2 requests/s" in page
    assert "8 GPUs: average normalised latency at 2 requests/s" in page
    assert "against request rate" not in page


@pytest.mark.slow
def test_a_sweep_of_the_package_may_be_narrowed_on_the_command_line(run: Run, tmp_path: Path) -> None:
    code, out, err = run("+sweeps=fig1a", "gpus=4", "rps=1,2", "replications=2", "duration_s=5")
    assert code == 0
    assert err.startswith("40 runs: 40 computed")  # two variants of five lines
    assert len(out.splitlines()) == 1 + 20
    page = tmp_path / "reports" / "fig1a-duration_s-5-gpus-4-replications-2-rps-1-2" / "index.html"
    assert page.exists()


def test_a_sweep_that_was_run_before_says_that_all_came_from_the_cache(run: Run) -> None:
    arguments = ("-m", "gpus=2,4", "rps=1,2", "duration_s=5", "report=none")
    first = run(*arguments)
    again = run(*arguments)
    assert again[1] == first[1]
    assert again[2].startswith("4 runs, all from the cache; ")
    assert again[2].count("\n") == 1


@pytest.mark.slow
def test_the_rest_of_a_sweep_goes_on_where_a_run_fails(run: Run, tmp_path: Path) -> None:
    code, out, err = run("-m", "gpus=2,13,4", "rps=1", "duration_s=5")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()] == ["gpus", "2", "13", "4"]
    assert "3 runs: 2 computed, 0 from the cache, 1 failed" in err
    assert "13 GPUs bring bad luck" in err
    assert "13 GPUs bring bad luck" in (tmp_path / "reports" / "sweep" / "index.html").read_text()


def test_a_single_run_that_fails_says_why(run: Run) -> None:
    code, out, err = run("gpus=13", "rps=1", "duration_s=5")
    assert (code, out) == (1, "")
    assert "13 GPUs bring bad luck" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_hydra_leaves_nothing_behind(run: Run, tmp_path: Path) -> None:
    run("rps=1", "duration_s=5")
    run("-m", "gpus=1,2", "rps=1", "duration_s=5", "report=none")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]
    assert not GlobalHydra.instance().is_initialized()


@pytest.mark.slow
def test_another_sweeper_gets_the_metrics_of_its_jobs(run: Run) -> None:
    code, out, err = run("-m", "gpus=2,4", "rps=1", "duration_s=5", "report=none", "hydra/sweeper=basic")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["gpus", "2", "4"]
    assert err.startswith("2 runs: 2 computed")


def test_a_folder_that_is_called_like_a_key_is_not_a_config_group(run: Run, tmp_path: Path) -> None:
    for name in ("rps", "report", "workers", "conf"):
        (tmp_path / name).mkdir()
    assert run("rps=1", "report=none", "workers=1", "duration_s=5")[0] == 0


def test_an_unrelated_configuration_in_the_current_folder_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "config.yaml").write_text("something: else\n")
    assert run("rps=1", "duration_s=5")[0] == 0


def test_own_options_come_before_those_of_the_package(run: Run, tmp_path: Path) -> None:
    for group, text in (("policy", "_target_: prebleexp.policies.random.Random\nseed: 5\n"), ("sweeps", "")):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / "mine.yaml").write_text(text)
    (tmp_path / "conf" / "policy" / "lor.yaml").write_text("_target_: prebleexp.policies.random.Random\nseed: 6\n")
    rows = [json.loads(run("rps=1", "duration_s=5", f"policy={name}", "output=json")[1])[0] for name in ("mine", "lor")]
    assert [(row["policy"], row["policy.seed"]) for row in rows] == [("mine", 5), ("lor", 6)]


def test_an_own_sweep_says_which_line_it_lacks(run: Run, tmp_path: Path) -> None:
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "mine.yaml").write_text("sweep: {name: mine}\n")
    code, _, err = run("+sweeps=mine")
    assert code == 2
    assert "a file of sweeps/ is not valid without its first line, which must be '# @package _global_'" in err


def test_help_names_every_key_and_option(run: Run) -> None:
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    for key in configure.KEYS:
        assert f"  {key}=" in out or f"  {key} " in out or key == "sweep"
    for option in ("round_robin", "a6000_mistral_7b", "two_point", "released", "fig1a"):
        assert option in out


def test_help_knows_the_choices_that_hydra_finds(run: Run, tmp_path: Path) -> None:
    for group in ("policy", "sweeps"):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / "mine.yaml").write_text("")
    out = run("--help")[1]
    loader = configs.loader()
    for group in (*configure.GROUPS, "backend", "sweeps"):
        (said,) = re.findall(rf"^  \+?{group} +(.*)$", out, re.MULTILINE)
        assert [re.match(r"\w+", one)[0] for one in said.split(", ")] == loader.get_group_options(group)


def test_help_marks_the_default_of_each_group_and_says_which_version_an_engine_is(run: Run) -> None:
    out = run("--help")[1]
    for group, default in configure.cells([])[0].names.items():
        (said,) = re.findall(rf"^  {group} +(.*)$", out, re.MULTILINE)
        assert re.findall(r"(\w+)\*", said) == [default]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for engine, version in re.findall(r"`(\w+)`: ([\d.]+\d)", readme):
        assert re.search(rf" {engine}\*? \({version}\)", out)
    assert out.count("(0.") == 2, "of nothing else"


@pytest.mark.parametrize("name", commands.NAMES)
def test_each_command_says_what_it_does_and_takes(run: Run, name: str) -> None:
    module = commands.module(name)
    for second, command in module.COMMANDS.items():
        called = f"{name} {second}".strip()
        code, out, err = run(*called.split(), "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"python -m prebleexp {called}")
        assert f"{command.does[0].upper()}{command.does[1:]}"[:60] in out
        assert re.search(rf"^example:\n  python -m prebleexp {called}\b", out, re.MULTILINE)
        for setting in command.settings:
            assert re.search(rf"^  {setting.name}=\S* +\w", out, re.MULTILINE)
        assert max(map(len, out.splitlines())) <= 120
        words = command.words.replace("[", "").replace("]", "").split()
        code, out, err = run(*called.split(), *words, "one", "too", "many")
        assert (code, out, err.count("\n")) == (2, "", 1), "words are counted"
        if command.settings and not command.others:
            err = run(*called.split(), *words, "colour=red")[2]
            assert err.startswith("prebleexp: unknown setting 'colour'; valid: ")
    code, out, _ = run(name, "-h")
    assert code == 0
    assert all(f"prebleexp {name} {second}" in out for second in module.COMMANDS)


def test_a_setting_that_is_given_twice_is_refused(run: Run) -> None:
    said = (2, "", "prebleexp: output is given twice\n")
    assert run("sql", "select 1", "output=csv", "output=json") == said
    assert run("compare", "lor", "e2", "output=csv", "output=json") == said


def test_help_loads_no_library() -> None:
    """It took 0.7 CPU-seconds with the core before (f41406d), numpy's and Hydra's imports."""
    script = "import sys; from prebleexp.__main__ import main; main(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"numpy", "hydra", "numba", "duckdb"} & set(done.stdout.split())


def test_the_composed_configuration_can_be_shown(run: Run) -> None:
    code, out, err = run("--cfg", "job", "gpus=3", "policy=random")
    assert (code, err) == (0, "")
    assert "gpus: 3\n" in out
    assert "policies.random.Random" in out
    assert "hydra" not in out


def test_why_says_which_fields_make_two_runs_two(run: Run) -> None:
    def key(*arguments: str) -> str:
        return str(json.loads(run("rps=1", "duration_s=5", "output=json", *arguments)[1])[0]["key"])

    a, b = key("gpus=2"), key("gpus=4", "policy=random")
    code, out, err = run("why", a, b)
    assert (code, err) == (0, "")
    assert "cell.gpus: 2 and 4\n" in out
    assert any(line.startswith("cell.policy._target_: ") for line in out.splitlines())
    assert run("why", a, a)[1] == "nothing differs\n"


def test_cells_are_a_python_call_that_leaves_hydra_alone() -> None:
    cells = configure.cells(["gpus=4", "policy=random", "replications=3", "seed=7"])
    assert [cell.seed for cell in cells] == [7, 8, 9]
    assert {cell.gpus for cell in cells} == {4}
    assert cells[0].names["policy"] == "random"
    assert cells[0].policy is cells[2].policy
    assert not GlobalHydra.instance().is_initialized()


def python(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_process_exits_with_the_code_and_no_traceback(tmp_path: Path) -> None:
    done = python("-m", "prebleexp", "policy=lro", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


ENDS = """
import atexit, sys, threading
from prebleexp.__main__ import script
atexit.register(print, "then at exit")
threading._register_atexit(print, "first what threads wait for")
sys.argv = ["prebleexp", "--help"]
script()
"""


def test_a_process_ends_in_the_order_of_python(tmp_path: Path) -> None:
    """Else a sweep in several processes waits five minutes for joblib's workers to end by themselves."""
    done = python("-c", ENDS, cwd=tmp_path)
    assert done.stdout.splitlines()[-2:] == ["first what threads wait for", "then at exit"]


CACHED = """
import sys
from prebleexp.__main__ import main
assert main(["-m", "gpus=2,4", "rps=1", "duration_s=5", "report=none"]) == 0
slow = {"numba", "pandas", "seaborn", "matplotlib", "jinja2", "rich", "joblib"} & set(sys.modules)
assert not slow, slow
"""


@pytest.mark.slow
def test_a_fully_cached_sweep_imports_nothing_slow(run: Run, tmp_path: Path) -> None:
    assert run("-m", "gpus=2,4", "rps=1", "duration_s=5", "report=none")[0] == 0
    done = python("-c", CACHED, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert after_first_words(done.stderr).startswith("2 runs, all from the cache")


@pytest.mark.slow
def test_whoever_reads_the_output_may_stop_reading(run: Run, tmp_path: Path) -> None:
    assert run("rps=1", "duration_s=5")[0] == 0
    line = f"{sys.executable} -m prebleexp rps=1 duration_s=5 output=json | true"
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, check=True
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception" not in done.stderr
