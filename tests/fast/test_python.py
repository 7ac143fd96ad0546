"""The package from Python and from notebooks: what `run` and `sweep` take, refuse, find in the cache and return."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
import subprocess
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import duckdb
import numpy as np
import pandas as pd
import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl

import prebleexp
import prebleexp.sim.simulate
from prebleexp.__main__ import main
from prebleexp.api import html
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import runs
from prebleexp.launch import configs, configure
from prebleexp.launch.compose import Composer
from prebleexp.launch.progress import Progress
from prebleexp.metrics import METRICS
from prebleexp.policies.base import Policy
from prebleexp.sim.records import View
from tests.support.counted import calls
from tests.support.places import ROOT
from tests.support.stand_in import served

SMALL: dict[str, Any] = {"gpus": 2, "rps": 4, "duration_s": 3}
AXES: dict[str, Any] = {"policy": ["lor", "e2"], "gpus": [1, 2], "rps": [4, 8]}
LINES = ("policy=lor,e2", "gpus=1,2", "rps=4,8", "duration_s=3", "replications=3")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A sweep, in a cache of its own."""
    return prebleexp.sweep(AXES, duration_s=3, replications=3, cache_dir=tmp_path_factory.mktemp("made"))


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the runs that were simulated."""
    seeds: list[int] = []
    simulate = runs.simulate_cell

    def counted(cell: Any, *rest: Any) -> Any:
        seeds.append(cell.seed)
        return simulate(cell, *rest)

    monkeypatch.setattr(runs, "simulate_cell", counted)
    return seeds


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulator that does nothing, and fails on 13 GPUs."""
    monkeypatch.setattr(prebleexp.sim.simulate, "simulate", served)


@dataclass(frozen=True)
class First(Policy):
    compiled: ClassVar[bool] = False
    reads_lengths: ClassVar[bool] = False
    wrong: bool = False

    def route(self, mine: Any, view: View, request: int, now: float) -> int:
        return [0][self.wrong]


# ---------------------------------------------------------------- one composer for the process
def test_the_second_configuration_is_composed_at_once() -> None:
    configure.cells(["gpus=3", "policy=e2"])
    seeds = iter(range(1000))
    took = calls(lambda: configure.cells(["gpus=4", "policy=e2", f"seed={next(seeds)}"]))
    print(f"{took:,} calls")
    assert took < 10_000


@pytest.mark.slow
def test_an_edited_file_and_a_new_one_are_seen_by_the_standing_composer(folder: Path) -> None:
    group = folder / "conf" / "policy"
    group.mkdir(parents=True)
    yaml = "_target_: prebleexp.policies.random.Random\nseed: {}\n"
    with pytest.raises(InvalidInput, match="unknown policy 'mine'"):
        configure.cells(["policy=mine"])
    (group / "mine.yaml").write_text(yaml.format(1))
    assert configure.cells(["policy=mine"])[0].policy.seed == 1
    (group / "mine.yaml").write_text(yaml.format(2))
    assert configure.cells(["policy=mine"])[0].policy.seed == 2
    (group / ".#mine.yaml").symlink_to("somebody@somewhere:1")  # as an editor leaves it
    assert configure.cells(["policy=mine"])[0].policy.seed == 2
    (group / "mine.yaml").unlink()
    with pytest.raises(InvalidInput, match="unknown policy 'mine'"):
        configure.cells(["policy=mine"])


def test_each_folder_has_its_own_configurations(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, name in ((1, "a"), (2, "b")):
        group = folder / name / "conf" / "policy"
        group.mkdir(parents=True)
        (group / "mine.yaml").write_text(f"_target_: prebleexp.policies.random.Random\nseed: {seed}\n")
        monkeypatch.chdir(folder / name)
        assert configure.cells(["policy=mine"])[0].policy.seed == seed


def test_another_folder_composes_nothing_that_was_composed_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Composer(configs.loader()).configuration(["policy=e2"])  # cells may be had from the disk, without a tree
    (folder / "other").mkdir()
    monkeypatch.chdir(folder / "other")
    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", None)
    assert configure.cells(["policy=e2", "gpus=3"])[0].gpus == 3
    composed = Composer(configs.loader()).configuration(["policy=e2", "gpus=3"])
    assert composed.hydra.runtime.cwd == str(folder / "other")


# ---------------------------------------------------------------- one run
def test_a_second_call_computes_nothing_and_says_the_same(computed: list[int], folder: Path) -> None:
    one, other = prebleexp.run(**SMALL), prebleexp.run(**SMALL)
    assert computed == [0]
    assert (one.cached, other.cached) == (False, True)
    assert one.metrics == other.metrics
    assert list(one.metrics) == list(METRICS)
    pd.testing.assert_frame_equal(one.requests, other.requests)
    assert (folder / "cache" / "v1").is_dir()


@pytest.mark.slow
def test_run_and_the_command_line_have_one_cache(computed: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpus=2", "rps=4", "duration_s=3", "policy=e2", "policy.window_s=5", "output=json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    found = prebleexp.run(**SMALL, policy="e2", **{"policy.window_s": 5})
    assert found.cached
    assert found.key == row["key"]
    assert found.metrics == {name: row[name] for name in METRICS}
    prebleexp.run(**SMALL, seed=1, cache_dir="elsewhere")
    assert main(["gpus=2", "rps=4", "duration_s=3", "seed=1", "cache_dir=elsewhere"]) == 0
    assert computed == [0, 1]


def test_without_a_cache_nothing_is_kept_and_all_is_the_same(computed: list[int], folder: Path) -> None:
    one, other = prebleexp.run(**SMALL, cache_dir=None), prebleexp.run(**SMALL, cache_dir=None)
    assert computed == [0, 0]
    assert list(folder.iterdir()) == []
    assert one.key is None
    kept = prebleexp.run(**SMALL)
    assert one.metrics == other.metrics == kept.metrics
    pd.testing.assert_frame_equal(one.requests, kept.requests)
    np.testing.assert_array_equal(one.computed.outcome.finish_s, prebleexp.run(**SMALL).computed.outcome.finish_s)


def test_requests_that_were_not_kept_are_computed_again(computed: list[int]) -> None:
    found = prebleexp.run(**SMALL, keep_requests="none")
    assert len(found.requests) == found.metrics["n_requests"]
    assert computed == [0, 0]


def test_a_policy_object_is_kept_if_its_class_has_a_file(computed: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [prebleexp.run(policy=First(), **SMALL).cached for _ in range(2)] == [False, True]
    assert computed == [0]
    monkeypatch.setitem(sys.modules, "cells", types.ModuleType("cells"))
    names: dict[str, Any] = {"__name__": "cells", "First": First, "dataclass": dataclass}
    exec("@dataclass(frozen=True)\nclass Ad(First):\n    hoc: int = 0", names)
    assert [prebleexp.run(policy=names["Ad"](), **SMALL).key for _ in range(2)] == [None, None]
    assert computed == [0, 0, 0]
    with pytest.raises(InvalidInput, match=r"^policy\.wrong: policy is an object"):
        prebleexp.run(policy=First(), **{"policy.wrong": True})


def test_a_run_that_fails_raises_with_its_traceback() -> None:
    with pytest.raises(PrebleexpError) as raised:
        prebleexp.run(policy=First(wrong=True), **SMALL)
    assert re.search(r"policy First, .*test_python\.py, line \d+: IndexError: list index", str(raised.value))
    assert "return [0][self.wrong]" in "".join(raised.value.__notes__)
    assert not isinstance(raised.value, InvalidInput)
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        prebleexp.run(policy="replay", **SMALL, **{"policy.path": "none.npz"})


SEVERAL = "run makes one run; prebleexp.sweep makes several, with means and intervals"
PAGES = "for the command line, which writes pages; a Sweep has .figure()"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"replications": 20}, f"replications=20: {SEVERAL}"),
        ({"replications": "auto"}, f"replications=auto: {SEVERAL}"),
        ({"gpus": [4, 8]}, f"gpus=[4, 8]: {SEVERAL}"),
        ({"policy": ("lor", "e2")}, f"policy=['lor', 'e2']: {SEVERAL}"),
        ({"+sweeps": "fig1a"}, f"+sweeps=fig1a: {SEVERAL}"),
        ({"hydra.mode": "MULTIRUN"}, f"hydra.mode=MULTIRUN: {SEVERAL}"),
        (
            {"output": "json"},
            "output=json: for the command line, which prints; a Result has .metrics, a Sweep has .frame()",
        ),
        ({"report": "none"}, f"report=none: {PAGES}"),
        ({"reports_dir": "r"}, f"reports_dir=r: {PAGES}"),
        ({"polcy": "lor"}, "Did you mean 'policy'?"),
        ({"policy": "lro"}, "Did you mean 'lor'?"),
        ({"policy": "lor,e2"}, "unknown policy 'lor,e2'"),
        ({"engine.watermrk": 0.1}, "Did you mean 'engine.watermark'?"),
        ({"gpus": 0}, "gpus=0 is not valid; it must be an integer from 1 to 4096"),
        ({"gpus": object}, "it must be a number, text, true, false, null, or a list of them"),
        ({"cache_dir": 3}, "cache_dir=3 is not valid; it must be the path of a folder"),
        ({"backend": "loky", "cache_dir": None}, "backend=loky: a run that is not kept is computed in this process"),
    ],
)
def test_what_run_does_not_understand_is_refused_in_a_line(settings: dict[str, Any], says: str, folder: Path) -> None:
    with pytest.raises(InvalidInput) as raised:
        prebleexp.run(**settings)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_a_configuration_that_is_several_runs_is_refused(folder: Path) -> None:
    (folder / "conf" / "experiment").mkdir(parents=True)
    (folder / "conf" / "experiment" / "many.yaml").write_text("# @package _global_\nreplications: 3\n")
    with pytest.raises(InvalidInput, match=re.escape(f"+experiment=many is more than one run: {SEVERAL}")):
        prebleexp.run(**{"+experiment": "many"})
    assert len(prebleexp.sweep("+experiment=many", **SMALL).frame()) == 3


def test_values_mean_what_they_mean_on_the_command_line(folder: Path) -> None:
    awkward = folder / "a b, 'c' = [d] é"
    assert prebleexp.run(**SMALL, cache_dir=awkward, seed=np.int64(3)).cell.seed == 3
    assert prebleexp.run(**SMALL, cache_dir=str(awkward), seed="3").cached
    mix = {"output_length": "discrete", "output_length.lengths": [1, 40], "output_length.probabilities": (0.5, 0.5)}
    assert prebleexp.run(**SMALL, **mix).requests.output_tokens.isin([1, 40]).all()
    assert prebleexp.run(**SMALL, **{"+variant": "released"}).cell.names["engine"] == "released"


# ---------------------------------------------------------------- a sweep
@pytest.mark.slow
def test_a_sweep_has_the_keys_and_rows_of_the_command_line(
    computed: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-m", *LINES, "output=json", "report=none"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(computed) == 24
    for made in (
        prebleexp.sweep(AXES, duration_s=3, replications=3),
        prebleexp.sweep(*LINES),
        prebleexp.sweep(list(LINES[:2]), {"rps": np.array([4, 8])}, *LINES[3:]),
    ):
        assert len(computed) == 24, "a second call computes nothing"
        assert repr(made) == "<prebleexp.Sweep sweep: 24 runs, all from the cache>"
        assert made.axes == ("policy", "gpus", "rps")
        frame = made.frame()
        assert frame.astype(object).where(frame.notna(), None).to_dict("records") == rows
    assert capsys.readouterr().out == ""
    with duckdb.connect("cache/prebleexp.duckdb") as database:
        (listed,) = database.execute("SELECT name, n_runs, command FROM experiments").fetchall()
        assert listed[:2] == ("sweep", 24)
        assert listed[2].startswith("python -m prebleexp -m policy=lor,e2 gpus=1,2 ")
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (24,)


@pytest.mark.slow
def test_cells_have_means_and_half_widths(made: Any) -> None:
    cells = made.frame(by="cell")
    assert len(cells) == 8
    assert (cells.seeds == 3).all()
    assert "seed" not in cells
    of_runs = made.frame().groupby(["policy", "gpus", "rps"], sort=False).ttft_p99_s
    np.testing.assert_allclose(cells.ttft_p99_s, of_runs.mean())
    np.testing.assert_allclose(cells.ttft_p99_s_half_width_95, 4.302652729911275 * of_runs.std() / 3**0.5)
    one = prebleexp.sweep(seed=[0, 1], **SMALL).frame(by="cell")
    assert one.seeds.tolist() == [2], "seeds are replications, however they are asked for"
    assert one.told_error_tokens.dtype == float
    with pytest.raises(InvalidInput, match="by=policy is not valid; it must be one of run, cell"):
        made.frame(by="policy")


@pytest.mark.slow
def test_requests_have_the_axes_beside_them(made: Any) -> None:
    first = made.requests()
    assert list(first.columns[:5]) == ["policy", "gpus", "rps", "seed", "key"]
    assert first.seed.unique().tolist() == [0]
    everything = prebleexp.sweep(policy="e2", gpus=2, rps=8, duration_s=3, replications=2, keep_requests="all")
    whole = everything.requests()
    assert whole.groupby("key").size().sum() == everything.frame().n_requests.sum()
    alone = prebleexp.run(policy="e2", gpus=2, rps=8, duration_s=3, seed=1).requests
    part = whole.query("seed == 1")
    pd.testing.assert_frame_equal(part[alone.columns].reset_index(drop=True), alone)
    with pytest.raises(InvalidInput, match="no requests were kept; sweep with keep_requests=first or all"):
        prebleexp.sweep(seed=7, **SMALL, keep_requests="none").requests()


def test_a_comparison_is_that_of_the_command(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    folder = f"cache_dir={made._session.settings.cache_dir}"
    for metric in ("norm_latency_mean_s", "p99_ttft"):
        assert main(["compare", "lor", "e2", f"metric={metric}", "output=csv", "report=none", folder]) == 0
        said = capsys.readouterr()
        found = made.compare("lor", "e2", metric)
        rows = list(csv.DictReader(io.StringIO(said.out)))
        assert [{name: str(value) for name, value in row.items()} for row in found.found.rows()] == rows
        assert found.found.account() in said.err
        assert len(found.frame()) == 4
    assert made.compare("lor", "e2", gpus=2, rps=[4]).frame().shape[0] == 1
    assert "undecided" in found._repr_html_()
    assert len(repr(found)) < 200
    for wrong, says in (
        (("lor", "e3"), "unknown policy or line 'e3'"),
        (("lor", "e2", "ttft"), "unknown metric 'ttft'"),
    ):
        with pytest.raises(InvalidInput, match=says):
            made.compare(*wrong)
    with pytest.raises(InvalidInput, match="unknown column 'gpu'"):
        made.compare("lor", "e2", gpu=2)


@pytest.mark.slow
def test_a_figure_is_that_of_the_page(folder: Path, made: Any) -> None:
    assert main(["-m", *LINES, f"cache_dir={made._session.settings.cache_dir}"]) == 0
    shown = made.figure()
    drawn = (folder / "reports" / "sweep" / "figures" / "latency_against_rate.svg").read_text(encoding="utf-8")
    assert shown.svg == drawn
    assert "data:image/svg+xml;base64," in shown._repr_html_()
    assert shown.save("figure.csv").read_text().startswith("gpus,rps,policy,norm_latency_mean_s")
    assert shown.save(folder / "figure.pdf").read_bytes().startswith(b"%PDF")
    ratio = made.figure(metric="hit_ratio")
    assert ratio.figure.y == "Hit ratio (share, higher is better)"
    assert ratio.figure.headline == "e2's hit ratio is within the noise of lor's."
    assert [row[3] for row in ratio.figure.data.rows if row[2] == "lor"] == pytest.approx(
        made.frame(by="cell").query("policy == 'lor'").hit_ratio.tolist()
    )
    assert made.figure(metric="ttft_p99").figure.title == "P99 time to first token against request rate"
    for ask, says in (
        (lambda: made.figure("1A"), "unknown figure '1A'"),
        (lambda: made.figure(metric="ttft"), "unknown metric 'ttft'"),
        (lambda: shown.save("figure.bmp"), r"unknown kind of file '\.bmp'"),
    ):
        with pytest.raises(InvalidInput, match=says):
            ask()


@pytest.mark.slow
def test_a_sweep_of_parts_has_its_lines(quick: None) -> None:
    made = prebleexp.sweep("+sweeps=fig1a", gpus=4, rps=[1, 2], replications=2, duration_s=3)
    frame = made.frame()
    assert list(frame.columns[:4]) == ["part", "variant", "line", "key"]
    assert len(frame) == 2 * 5 * 2 * 2
    cells = made.frame(by="cell")
    assert len(cells) == 2 * 5 * 2
    assert list(cells.columns[:3]) == ["part", "variant", "line"]
    assert made.figure("1A").figure.number == made.figure().figure.number == "1A"
    assert made.figure(metric="hit_ratio").figure.title == "Hit ratio against request rate"
    assert made.requests().groupby(["part", "line", "rps"]).ngroups == 20
    compared = made.compare("LOR", "PREBLE", part="rates_described").frame()
    assert compared.rps.tolist() == [1, 2]
    with pytest.raises(InvalidInput, match="figure 3 is not drawn against the request rate, as hit_ratio would be"):
        prebleexp.sweep("+sweeps=fig3", gpus=4, rps=1, replications=1, duration_s=3).figure(metric="hit_ratio")


@pytest.mark.slow
def test_runs_that_fail_are_said_and_the_others_are_there(quick: None) -> None:
    made = prebleexp.sweep(gpus=[2, 13], rps=[1, 2], duration_s=3)
    assert repr(made) == "<prebleexp.Sweep sweep: 4 runs: 2 computed, 0 from the cache, 2 failed>"
    assert len(made.frame()) == 2
    assert made.failures.gpus.tolist() == [13, 13]
    assert made.failures.error.tolist() == ["PrebleexpError: 13 GPUs bring bad luck"] * 2
    assert made.failures.traceback.str.contains("Traceback").all()
    assert ".failures" in made._repr_html_()
    assert made.frame(by="cell").seeds.tolist() == [1, 1, 0, 0]
    every = prebleexp.sweep(gpus=13, rps=[1, 2], duration_s=3)
    assert len(every.failures) == 2
    assert every.frame().empty
    assert list(every.frame().columns) == list(made.frame().columns)
    assert prebleexp.sweep(gpus=2, rps=1, duration_s=3).failures.empty


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([{"polcy": ["lor"]}], "Did you mean 'policy'?"),
        ([{"policy": ["lor", "lro"]}], "unknown policy 'lro'"),
        ([{"gpus": [4, 0]}], "gpus=0 is not valid"),
        ([{"gpus": []}], "gpus=[]: there is nothing to sweep over"),
        ([{"output": "json"}], "output=json: for the command line, which prints"),
        (["report=none"], f"report=none: {PAGES}"),
        ([{"job_dirs": True}], f"job_dirs=true: {PAGES}"),
        ([{"cache_dir": None}], "cache_dir=None is not valid; it must be the path of a folder"),
        (["gpus=4", {"gpus": 4}], "gpus is set twice"),
        (["-m"], "'-m' is not valid; settings are written key=value"),
        ([["gpus=4", 3]], "3 is not valid"),
        ([{"policy": [First()]}], "it must be a number, text, true, false, null, or a list of them"),
        ([{"sweep.figure": "none"}], "unknown key 'sweep.figure'"),
        (["hydra/launcher=basic"], "hydra/launcher=basic: it must be prebleexp"),
    ],
)
def test_what_a_sweep_does_not_understand_is_refused_before_it_runs(given: list[Any], says: str, folder: Path) -> None:
    with pytest.raises(InvalidInput) as raised:
        prebleexp.sweep(*given)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)
    assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_an_interrupted_sweep_keeps_what_is_finished_and_goes_on(
    quick: None, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"gpus": 2, "rps": 1, "duration_s": 3, "replications": 12, "workers": 1}
    with monkeypatch.context() as patch:
        advance, calls = Progress.advance, iter(range(100))

        def interrupted(self: Progress, count: int = 1) -> None:
            advance(self, count)
            if next(calls) == 4:
                raise KeyboardInterrupt

        patch.setattr(Progress, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt, match="5 of 12 runs are done, and kept"):
            prebleexp.sweep(**settings)
    before = len(computed)
    assert 5 <= before <= 12
    made = prebleexp.sweep(**settings)
    assert len(made.frame()) == 12
    assert len(computed) <= 12 + 1, "but for what was under way"
    assert repr(made).endswith(f"{12 - before} computed, {before} from the cache>") or before == 12


@pytest.mark.slow
def test_runs_and_sweeps_of_several_threads_do_not_disturb_each_other(quick: None) -> None:
    def sweep(first: int) -> Any:
        return prebleexp.sweep(gpus=2, rps=[1, 2], duration_s=2, seed=first, replications=3)

    def run(seed: int) -> Any:
        return prebleexp.run(gpus=3, rps=1, duration_s=2, seed=seed, policy=("lor", "e2")[seed % 2])

    with ThreadPoolExecutor(4) as pool:
        sweeps = [pool.submit(sweep, first) for first in (0, 3, 6)]
        singles = [pool.submit(run, seed) for seed in range(12)]
        assert [one.result().frame().seed.min() for one in sweeps] == [0, 3, 6]
        found = [one.result() for one in singles]
    assert [(one.cell.seed, one.cell.names["policy"]) for one in found] == [
        (seed, ("lor", "e2")[seed % 2]) for seed in range(12)
    ]
    with duckdb.connect("cache/prebleexp.duckdb") as database:
        assert database.execute("SELECT count(*) FROM experiments").fetchone() == (3,)


@pytest.mark.slow
def test_a_database_that_this_process_has_open_is_left_as_it_is(
    quick: None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prebleexp.sweep(gpus=2, rps=1, duration_s=2)
    with duckdb.connect("cache/prebleexp.duckdb", read_only=True):
        made = prebleexp.sweep(gpus=2, rps=[1, 2], duration_s=2)
    assert len(made.frame()) == 2
    assert "prebleexp: cannot write the database" in capsys.readouterr().err
    assert not list((folder / "cache").glob("*.bad"))
    prebleexp.sweep(gpus=2, rps=[1, 2], duration_s=2)
    with duckdb.connect("cache/prebleexp.duckdb") as database:
        assert database.execute("SELECT count(*) FROM runs").fetchone() == (2,)


# ---------------------------------------------------------------- what a notebook sees
def test_only_what_is_public_is_there_and_importing_it_costs_nothing() -> None:
    script = (
        "import sys; before = set(sys.modules); import prebleexp\n"
        "print(dir(prebleexp)); print(sorted(set(sys.modules) - before))\n"
        "from prebleexp import Result, Sweep, run, sweep, InvalidInput, PrebleexpError"
    )
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    public, loaded = done.stdout.splitlines()
    assert public == str(prebleexp.__all__)
    assert public == "['InvalidInput', 'Plan', 'PrebleexpError', 'Result', 'Sweep', 'plan', 'run', 'sweep']"
    assert "'prebleexp'" in loaded
    assert not re.search("numpy|numba|pandas|pyarrow|hydra|omegaconf|dataclasses|inspect|prebleexp[.]", loaded)
    assert (ROOT / "prebleexp" / "py.typed").is_file()
    with pytest.raises(AttributeError, match="module 'prebleexp' has no attribute 'swep'"):
        prebleexp.swep  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.slow
def test_what_is_shown_is_short_and_escaped() -> None:
    one = prebleexp.run(**SMALL)
    assert repr(one) == f"<prebleexp.Result lor gpus=2 rps=4 seed=0: {str(one.key)[:12]}>"
    assert "<td>ttft_p99_s</td>" in one._repr_html_()
    many = prebleexp.sweep(gpus=1, rps=1, duration_s=1, seed=range(25))
    assert many._repr_html_().count("<tr>") == 21
    assert "… 5 more in .frame(by=&quot;cell&quot;)" in many._repr_html_()
    assert "<b>" not in html.table(["<b>"], [["<b>"]]) + html.paragraph("<b>")


class Shown(list[str]):
    """IPython's display: what a notebook was given, and what took its place."""

    def __call__(self, drawn: str, display_id: bool) -> Shown:
        assert display_id
        self.append(drawn)
        return self

    def update(self, drawn: str) -> None:
        self.append(drawn)


def test_progress_is_shown_in_notebooks_and_goes_away(
    quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def module(name: str, **names: Any) -> None:
        made = types.ModuleType(name)
        vars(made).update(names)
        monkeypatch.setitem(sys.modules, name, made)

    shown = Shown()
    shell: Callable[[], Any] = lambda: types.SimpleNamespace(kernel=object())  # noqa: E731
    module("IPython", get_ipython=shell)
    module("IPython.display", display=shown, HTML=str)
    monkeypatch.setattr("prebleexp.launch.progress.REFRESH_S", 0)
    prebleexp.sweep(gpus=2, rps=1, duration_s=2, replications=4)
    assert [re.sub("<.*> ", "", one) for one in shown] == [f"{done} of 4 runs" for done in range(5)] + [""]
    shown.clear()
    prebleexp.sweep(gpus=2, rps=1, duration_s=2, replications=4)
    prebleexp.run(gpus=2, rps=1, duration_s=2, seed=9)
    assert shown == [], "where nothing is waited for nothing is shown"
    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_the_notebook_of_the_documentation_shows_what_it_shows() -> None:
    spec = importlib.util.spec_from_file_location("notebook", ROOT / "docs" / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    kept = json.loads(module.NOTEBOOK.read_text(encoding="utf-8"))
    assert words(module.executed(kept)) == words(kept), "run: python docs/notebook.py"


def words(notebook: dict[str, Any]) -> list[list[str]]:
    """What a reader sees of each cell's outputs: not how libraries write HTML, or draw."""
    found = []
    for cell in notebook["cells"]:
        texts = []
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            text = "".join(data.get("text/html") or data.get("text/plain") or output["text"])
            texts.append(" ".join(re.sub(r"(?s)<style.*?</style>|<[^>]*>", " ", text).split()))
        found.append(texts)
    assert sum(bool(texts) for texts in found) >= 8
    return found
