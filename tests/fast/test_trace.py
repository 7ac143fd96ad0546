"""What a trace says is what happened: its steps add up to the run, its time lines lose no peak, its page is whole."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.__main__ import main
from prebleexp.experiment import runs
from prebleexp.experiment.runs import Run
from prebleexp.launch import configure
from prebleexp.report.perfetto import events, megabytes, write
from prebleexp.report.timelines import BINS, QUANTILES, assignment, envelope, quantiles, timelines
from prebleexp.sim.steps import Steps
from prebleexp.sim.types import Longs
from tests.support.pages.hostile import HOSTILE
from tests.support.pages.parsed import Page
from tests.support.predictors import parquet
from tests.support.sampled import sampled

SMALL = ["gpus=3", "rps=24", "duration_s=6", "hardware=a6000_mistral_7b_monotone", "hardware.kv_tokens=9000"]
SETTINGS = (
    ["policy=e2", "engine=vllm"],
    ["policy=lor", "overhead=serial"],
    ["policy=random", "horizon=stop"],
    ["policy=e2_released", "engine=released"],
    ["policy=round_robin", "engine=preble"],
    ["policy=lor", "engine=sglang", "engine.chunked_prefill_size=512"],
)


def traced(*overrides: str) -> tuple[Run, Steps, int, Longs]:
    (cell,) = configure.cells([*SMALL, *overrides])
    steps = Steps()
    return runs.run(cell, on_event=steps), steps, cell.gpus, np.full(cell.gpus, cell.hardware.kv_tokens)


@pytest.mark.parametrize("overrides", sampled(SETTINGS, 2))
def test_looking_changes_nothing_and_the_steps_add_up_to_the_run(overrides: list[str]) -> None:
    (cell,) = configure.cells([*SMALL, *overrides])
    run, steps, gpus, kv_tokens = traced(*overrides)
    assert run.metrics == runs.run(cell).metrics
    columns, outcome = steps.columns(), run.outcome
    for g in range(gpus):
        here = columns["gpu"] == g
        start, end = columns["start_s"][here], columns["end_s"][here]
        assert (start < end).all()
        assert (start[1:] >= end[:-1] - 1e-9).all(), "a GPU does one step at a time"
        for name in ("prefilled_tokens", "hit_tokens", "evicted_tokens", "retracted"):
            assert columns[name][here].sum() == getattr(outcome, f"gpu_{name}")[g]
        forwarded = columns["prefilled_tokens"][here].sum() + columns["generated_tokens"][here].sum()
        assert forwarded == outcome.gpu_forwarded_tokens[g]
        assert (kv_tokens[g] - columns["kv_free"][here]).max() <= outcome.gpu_peak_kv_tokens[g]
    ends = np.sort(columns["end_s"])
    first = (run.workload.arrival_s + outcome.ttft_s)[~np.isnan(outcome.ttft_s)]
    nearest = ends[np.minimum(np.searchsorted(ends, first - 1e-9), len(ends) - 1)]
    assert np.allclose(first, nearest, atol=1e-9), "a first token comes at the end of a step"
    assert (steps.queues()[1] >= 0).all()


CHANGES = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 9)), max_size=30)


@given(CHANGES, st.integers(1, 12))
def test_an_envelope_is_that_of_the_function_it_stands_for(changes: list[tuple[float, int]], count: int) -> None:
    changes = sorted(changes, key=lambda change: change[0])
    times, values = np.array([t for t, _ in changes]), np.array([v for _, v in changes], np.float64)
    bins = np.linspace(0, 10, count + 1)
    low, high, mean = envelope(times, values, bins)
    fine = np.unique(np.concatenate([bins, times]))
    for i in range(count):
        inside = fine[(fine >= bins[i]) & (fine <= bins[i + 1])]
        middles, lengths = (inside[1:] + inside[:-1]) / 2, np.diff(inside)
        index = np.searchsorted(times, middles, side="right") - 1
        in_force = np.where(index >= 0, np.append(values, 0)[index], 0.0)
        keep = lengths > 1e-9
        assert low[i] <= in_force[keep].min() <= in_force[keep].max() <= high[i]
        assert mean[i] == pytest.approx((in_force * lengths).sum() / lengths.sum(), abs=1e-6)
        assert {low[i], high[i]} <= {0.0, *values}


def test_a_peak_of_an_instant_is_not_lost_and_a_value_goes_on_until_it_changes() -> None:
    low, high, mean = envelope(np.array([1.0, 1.001]), np.array([7.0, 2.0]), np.array([0.0, 5.0, 10.0]))
    assert (low.tolist(), high.tolist()) == ([0, 2], [7, 2])
    assert mean == pytest.approx([(0.001 * 7 + 3.999 * 2) / 5, 2])


def test_time_lines_agree_with_the_metrics() -> None:
    run, steps, gpus, kv_tokens = traced("policy=e2")
    lines = {one.name: one for one in timelines(run, steps, gpus, kv_tokens)}
    width = run.outcome.end_s / BINS
    waiting_and_served = float(np.nansum(run.outcome.latency_s))
    assert lines["outstanding"].mean.sum() * width == pytest.approx(waiting_and_served, rel=1e-6)  # Little's law
    busy = steps.columns()["end_s"] - steps.columns()["start_s"]
    assert lines["busy"].mean.sum() * width == pytest.approx(busy.sum(), rel=1e-6)
    for one in lines.values():
        assert one.mean.shape == (gpus, BINS)
        if one.low is not None and one.high is not None:
            assert (one.low <= one.mean + 1e-9).all()
            assert (one.mean <= one.high + 1e-9).all()
    groups, counts = assignment(run, gpus)
    assert sorted(groups) == sorted(set(run.workload.prefix_group.tolist()))
    assert counts.sum(axis=0).tolist() == run.outcome.gpu_requests.tolist()


def test_a_thinned_distribution_keeps_its_ends() -> None:
    values = np.random.default_rng(1).exponential(size=5000)
    thin = quantiles(np.append(values, np.nan))
    assert len(thin) == QUANTILES
    assert (thin[0], thin[-1]) == (values.min(), values.max())
    assert np.median(thin) == pytest.approx(np.median(values), rel=0.01)
    assert len(quantiles(np.full(3, np.nan))) == 0


def test_a_trace_is_valid_and_its_slices_nest() -> None:
    run, steps, gpus, kv_tokens = traced("policy=lor", "horizon=stop", "hardware.kv_tokens=6000")
    found = list(events(run, steps, gpus, kv_tokens))
    json.dumps(found, allow_nan=False)
    kinds = {kind: [one for one in found if one["ph"] == kind] for kind in "MXCbei"}
    sent_back = [int(one["name"].removesuffix(" sent back for want of memory")) for one in kinds["i"]]
    assert sum(sent_back) == run.outcome.gpu_retracted.sum() > 0
    assert len(kinds["M"]) == 3 * gpus
    assert len(kinds["X"]) == len(steps.columns()["gpu"])
    assert {one["name"] for one in kinds["X"]} <= {"prefill", "decode", "prefill + decode"}
    assert len(kinds["b"]) == len(kinds["e"])
    opened: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for one in found:
        if one["ph"] == "b":
            opened.setdefault((one["pid"], one["id"]), []).append(one)
        elif one["ph"] == "e":
            start = next(other for other in opened[one["pid"], one["id"]] if other["name"] == one["name"])
            assert one["ts"] >= start["ts"]


def test_the_size_of_a_trace_is_known_before_it_is_written() -> None:
    """93 MB were written in half a minute, without a word."""
    run, steps, gpus, kv_tokens = traced("policy=lor", "horizon=stop")
    file = io.BytesIO()
    write(file, run, steps, gpus, kv_tokens, {})
    assert megabytes(run, steps) == pytest.approx(file.tell() / 1e6, rel=0.15)
    assert len(json.loads(file.getvalue())["traceEvents"]) > 100


@pytest.mark.thorough
def test_a_large_trace_is_announced_and_nothing_empty_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Chats have no prefix groups: the picture of who served which had one row, "none"."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("prebleexp.commands.trace.SAID_MB", 0)
    pages = {}
    for workload in ("chats", "react"):
        assert main(["trace", "gpus=2", "rps=2", "duration_s=3", f"workload={workload}", "output=json"]) == 0
        out, err = capsys.readouterr()
        made = json.loads(out)
        assert f"prebleexp: writing {made['trace']}, about 0 MB\n" in err
        pages[workload] = Page(Path(made["page"]).read_text())
        assert f", {workload}" in pages[workload].text
    assert "Who served which prefixes" not in pages["chats"].text
    assert "Who served which prefixes" in pages["react"].text


@pytest.mark.slow
def test_a_run_is_traced_by_its_configuration_or_by_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*SMALL, "policy=e2", "policy.window_s=60", "lengths=noisy", "seed=3", "output=json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert main(["trace", *SMALL, "policy=e2", "policy.window_s=60", "lengths=noisy", "seed=3", "output=json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["key"] == row["key"]
    assert main(["trace", row["key"][:10], "output=json"]) == 0
    second = json.loads(capsys.readouterr().out)
    assert second == first
    trace = json.loads(Path(first["trace"]).read_text())
    assert trace["otherData"]["policy"] == "e2"
    shown = Page(Path(first["page"]).read_text())
    assert row["key"] in shown.text
    assert f"{row['n_requests']:,}" in shown.text
    before = Path(first["page"]).read_bytes()
    assert main(["trace", row["key"][:10], "output=json"]) == 0
    assert Path(first["page"]).read_bytes() == before


@pytest.mark.slow
def test_a_run_that_read_files_is_traced_by_its_key_if_they_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What comes with the package is known by name; of other files the key knows a hash, and nothing else is taken."""
    monkeypatch.chdir(tmp_path)
    paths = [parquet(tmp_path / "a.parquet"), parquet(tmp_path / "b.parquet", mine=[1.0, 2.0, 3.0])]
    packaged = ["workload=instructions", "lengths=binned", "lengths.predictor=tfidf", "lengths.refine=true"]
    own = ["workload=instructions", f"workload.path={paths[0]}", "lengths=predicted", "lengths.predictor=mine"]
    keys = []
    for chosen in (packaged, own):
        assert main(["gpus=2", "rps=2", "duration_s=3", "policy=least_work", *chosen, "output=json"]) == 0
        keys.append(json.loads(capsys.readouterr().out)[0]["key"])
    assert main(["trace", keys[0], "output=json"]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == keys[0]
    assert main(["trace", keys[1], f"workload.path={paths[0]}", "output=json"]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == keys[1]
    assert main(["trace", keys[1], f"workload.path={paths[1]}"]) == 2
    assert "had read another file; say which, as workload.path=FILE" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["0123456789"], "the cache in cache has no run 0123456789"),
        (["xyz"], "'xyz' is not a key"),
        (["abcd", "ef01"], "trace takes one key, not 2"),
        (["gpus=0"], "gpus=0 is not valid"),
        (["abcd", "cache_dir=nowhere"], "cache_dir=nowhere is not a folder"),
        (["gpus=1,2"], "gpus=1,2 has several values; trace is of one configuration"),
    ],
)
def test_what_cannot_be_traced_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    (tmp_path / "cache").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["trace", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_key_of_a_foreign_class_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from prebleexp.experiment.cache import Cache, Entry
    from prebleexp.experiment.key import contents, digest

    monkeypatch.chdir(tmp_path)
    (cell,) = configure.cells(SMALL)
    content: Any = json.loads(json.dumps(contents([cell])[0]))
    content["cell"]["policy"] = {"_target_": "os.system", "command": "touch owned"}
    key = digest(content)
    Cache(tmp_path / "cache").put(Entry(key, content, {}, {}))
    assert main(["trace", key]) == 2
    assert "no option of conf/policy/ is a os.system" in capsys.readouterr().err
    assert not (tmp_path / "owned").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE.values())
def test_a_hostile_name_is_text_on_the_page_of_a_run(name: str) -> None:
    from prebleexp.report import run_page

    run, steps, gpus, kv_tokens = traced("policy=lor", "duration_s=1")
    whole = run_page.render(
        run,
        steps,
        gpus=gpus,
        kv_tokens=kv_tokens,
        title=name,
        subject=name,
        command=name,
        key=name,
        configuration={name: name},
        files={name: name},
    )
    shown = Page(whole)
    assert shown.text.count(name) >= 7
    assert [tag for tag, _ in shown.tags].count("script") == 5


def test_a_step_of_less_than_no_time_is_spoken_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    falling = [*SMALL, "hardware=a6000_mistral_7b", "policy=e2", "engine=preble", "output=json"]
    assert main(["trace", *falling]) == 0
    made = json.loads(capsys.readouterr().out)
    assert "steps took less than no time" in Page(Path(made["page"]).read_text()).text
    slices = [one for one in json.loads(Path(made["trace"]).read_text())["traceEvents"] if one["ph"] == "X"]
    host_us = 600
    assert min(one["dur"] for one in slices if one["name"].startswith(("prefill", "decode", "step"))) == host_us


@pytest.mark.slow
def test_replicas_of_several_gpus_are_called_replicas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    of_two = ["hardware/gpu=h100", "hardware/model=llama_3_1_8b", "hardware.tensor_parallel=2", "duration_s=2"]
    names = {}
    for each, lines in ((1, []), (2, of_two)):
        assert main(["trace", "gpus=4", "rps=4", "engine=vllm", "output=json", *lines]) == 0
        made = json.loads(capsys.readouterr().out)
        events = json.loads(Path(made["trace"]).read_text())["traceEvents"]
        names[each] = [one["args"]["name"] for one in events if one["name"] == "process_name"]
        shown = Page(Path(made["page"]).read_text()).text
        assert ("The GPUs" in shown, "The replicas" in shown) == (each == 1, each == 2)
    assert names == {1: [f"GPU {i}" for i in range(4)], 2: ["replica 0", "replica 1"]}


def test_a_run_without_a_request_has_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trace", "gpus=2", "rps=0.001", "duration_s=1"]) == 0
