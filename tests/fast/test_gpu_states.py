"""What an autoscaler did can be seen: in tables, metrics and on the page of a run (../shared/cases, D11)."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.commands import sql
from prebleexp.experiment import runs
from prebleexp.experiment.cache import DATABASE, Cache
from prebleexp.experiment.runs import Run
from prebleexp.history_tables import kept
from prebleexp.launch import configure
from prebleexp.report import run_page
from prebleexp.scaling_metrics import METRICS, over_time, sentence
from prebleexp.sim.history import NOTHING, SERVING, Change, Decision, GpuState, History
from prebleexp.sim.steps import Steps
from tests.support.pages.parsed import Page
from tests.support.places import ROOT

pytestmark = pytest.mark.thorough

READY, SLOW, STARTING, DRAINING, FAILED, OFF = GpuState
D11 = ["autoscaler=hpa", "autoscaler.target=10", "faults.init_s=60", "gpus=10"]
NAMES = tuple(name for name, *_ in METRICS)
QUERY = next(
    one
    for one in re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "tables.md").read_text(encoding="utf-8"), re.DOTALL)
    if "gpu_states" in one
)


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Ten minutes of 8 requests a second, then nobody until one comes at 1,500 s."""
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    times = [*(i / 8 for i in range(4_800)), 1_500.0]
    rows = [{"timestamp": at_s, "prompt_tokens": 1_000, "completion_tokens": 300} for at_s in times]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return [*D11, "workload=request_log", f"workload.path={path}", "workload.load=recorded"]


@pytest.fixture(scope="module")
def computed(given: list[str]) -> Run:
    (cell,) = configure.cells(given)
    return runs.run(cell)


@pytest.fixture(scope="module")
def folder(given: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("d11")
    assert main([*given, "output=csv", "report=none", f"cache_dir={made}"]) == 0
    return made


def asked(folder: Path, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sql.answer(folder / DATABASE, query).to_pylist()
    return found


@pytest.mark.slow
def test_tables_have_what_happened(folder: Path, computed: Run) -> None:
    history = computed.outcome.history
    states = [(one["at_s"], one["gpu"], one["state"]) for one in asked(folder, "from gpu_states order by at_s, gpu")]
    assert {(one["cluster_group"], one["role"]) for one in asked(folder, "from gpu_states")} == {(None, None)}
    assert states == [(at_s, gpu, state.name.lower()) for at_s, gpu, state in history.gpu_states]
    decisions = asked(folder, "select * exclude (key) from autoscaler_decisions order by at_s")
    assert [tuple(one.values()) for one in decisions] == [tuple(one) for one in history.decisions]
    assert len(states) > 20
    assert decisions[0]["at_s"] == 15
    left = [one["at_s"] for one in decisions if one["at_s"] > 600 and one["ready"] == 1]
    assert 900 <= min(left) <= 960, "silence has begun at 600 s, and 300 s are remembered"


def test_paid_states_add_up_to_gpu_hours(folder: Path) -> None:
    (found,) = asked(
        folder,
        "with held as (select key, state, lead(at_s) over (partition by key, gpu order by at_s) - at_s as s, at_s "
        "from gpu_states) select sum(coalesce(s, end_s - at_s)) / 3600 as hours, any_value(gpu_hours) as said "
        "from held join runs using (key) where state not in ('off', 'failed')",
    )
    assert found["hours"] == pytest.approx(found["said"])
    print(f"gpu_hours {found['said']:.4f}")


def test_the_documented_question_counts_gpus(folder: Path, computed: Run) -> None:
    found = [(one["at_s"], one["ready"], one["starting"]) for one in asked(folder, QUERY)]
    assert found == [(one.at_s, one.ready, one.of[STARTING]) for one in over_time(computed.outcome.history)]


def test_metrics_say_how_often_and_how_far(folder: Path) -> None:
    (row,) = asked(folder, f"select {', '.join(NAMES)} from runs")
    (counted,) = asked(
        folder,
        "select count(*) filter (started + drained > 0) as scale_changes, max(wanted) as most_wanted "
        "from autoscaler_decisions",
    )
    (bounds,) = asked(folder, f"select max(ready) as most_replicas, min(ready) as least_replicas from ({QUERY})")
    assert {name: row[name] for name in (*counted, *bounds)} == counted | bounds
    ups = [one["up"] for one in asked(
        folder, "select started > 0 as up from autoscaler_decisions where started + drained > 0 order by at_s"
    )]  # fmt: skip
    assert row["scale_flips"] == sum(a != b for a, b in pairwise(ups))
    print(row)


def test_the_index_made_anew_has_the_same(folder: Path, given: list[str]) -> None:
    queries = ["from gpu_states order by all", "from autoscaler_decisions order by all"]
    before = [asked(folder, query) for query in queries]
    assert main([*given, "output=csv", "report=none", f"cache_dir={folder}"]) == 0
    assert [asked(folder, query) for query in queries] == before, "nothing comes twice"
    (folder / DATABASE).unlink()
    assert main(["cache", "index", f"cache_dir={folder}"]) == 0
    assert [asked(folder, query) for query in queries] == before


@pytest.mark.slow
def test_the_page_says_it_and_draws_it() -> None:
    (cell,) = configure.cells([*D11, "autoscaler.target=1", "rps=4", "duration_s=120"])
    steps = Steps()
    run = runs.run(cell, on_event=steps)
    whole = run_page.render(
        run,
        steps,
        gpus=10,
        kv_tokens=np.full(10, 9000),
        title="",
        subject="",
        command="",
        key="",
        configuration={},
        files={},
    )
    row = run.metrics
    assert row["scale_changes"] > 1
    assert row["most_replicas"] > row["least_replicas"]
    text = Page(whole).text
    assert f"The autoscaler changed the number of replicas {row['scale_changes']} times" in text
    assert f": most {row['most_replicas']}, least {row['least_replicas']} were ready" in text
    assert 'data-chart="scale"' in whole
    drawn = run_page._scale(run)
    for what in ("ready", "starting", "wanted"):
        rows = [(one["t"], one["gpus"]) for one in drawn if one["what"] == what]
        assert [t for t, _ in rows] == sorted(t for t, _ in rows)
        assert rows[-1][0] == pytest.approx(run.outcome.end_s, rel=1e-6)
    assert max(one["gpus"] for one in drawn if one["what"] == "ready") == row["most_replicas"]


def test_trace_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["trace", *D11, "rps=4", "duration_s=60", "output=json"]) == 0
    out, err = capsys.readouterr()
    assert "prebleexp: the autoscaler " in err
    assert json.loads(out)["metrics"]["most_wanted"] >= 1


def measured(history: History, gpus: int) -> dict[str, int | None]:
    class Served:
        class made:
            pass

    made: Any = Served.made
    made.history, made.gpu_on_s = history, np.zeros(gpus)
    return {name: of(Served) for name, _, of, *_ in METRICS}


def test_by_hand() -> None:
    """Two GPUs: the second is drained at 10, off at 12, and started from 20 to 25; then the first fails."""
    states = [(0, 0, READY), (0, 1, READY), (10, 1, DRAINING), (12, 1, OFF), (20, 1, STARTING), (25, 1, SLOW)]
    changes = tuple(Change(float(at_s), gpu, state) for at_s, gpu, state in [*states, (30, 0, FAILED), (30, 1, READY)])
    looks = (Decision(10.0, 1, 2, 0, 0, 0, 1), Decision(15.0, 1, 1, 0, 0, 0, 0), Decision(20.0, 3, 1, 0, 0, 1, 0))
    history = History(changes, looks)
    assert [(one.at_s, one.ready) for one in over_time(history)] == [
        (0, 2),
        (10, 1),
        (12, 1),
        (20, 1),
        (25, 2),
        (30, 1),
    ]
    assert list(measured(history, 2).values()) == [2, 1, 2, 1, 3]
    assert sentence(history, 2) == (
        "the autoscaler changed the number of replicas 2 times, once the other way than before: most 2, least 1 were "
        "ready, and it wanted 3 at most"
    )
    assert list(measured(History(changes), 2).values()) == [None, None, 2, 1, None]
    assert sentence(History(changes), 2) == "the number of ready replicas changed: most 2, least 1"
    still = History((), looks[1:2])
    assert list(measured(still, 4).values()) == [0, 0, 4, 4, 1]
    assert sentence(still, 4).startswith("the autoscaler never changed the number of replicas: most 4, least 4")
    assert list(measured(NOTHING, 4).values()) == [None] * 5
    assert sentence(NOTHING, 4) == ""
    assert {*SERVING} == {READY, SLOW}


def test_gpus_of_a_cluster_have_its_groups_and_roles(tmp_path: Path) -> None:
    groups = "cluster.groups=[{gpus: 1, role: prefill}, {gpus: 2, role: decode}]"
    given = [groups, "rps=2", "duration_s=4", "faults=timeline", "faults.happen=[{at_s: 1, gpu: 2, event: drain}]"]
    assert main([*given, "output=csv", "report=none", f"cache_dir={tmp_path}"]) == 0
    found = asked(
        tmp_path, "select gpu, cluster_group, role, max(at_s) as at_s from gpu_states group by all order by 1"
    )
    assert [tuple(one.values())[:3] for one in found] == [(0, 0, "prefill"), (1, 1, "decode"), (2, 1, "decode")]
    assert [one["at_s"] > 0 for one in found] == [False, False, True]
    (row,) = asked(tmp_path, f"select {', '.join(NAMES)} from runs")
    assert list(row.values()) == [None, None, 3, 2, None]


def test_where_nothing_happens_the_cache_is_as_before(tmp_path: Path) -> None:
    assert kept(NOTHING) == {}
    plain = ["gpus=2", "rps=2", "duration_s=2", "output=csv", "report=none", f"cache_dir={tmp_path}"]
    assert main(plain) == 0
    cache = Cache(tmp_path)
    (key,) = cache.keys()
    assert b'"history"' not in cache.path(key).read_bytes()
    entry = cache.get(key)
    assert entry is not None
    assert entry.history == {}
    assert asked(tmp_path, "from gpu_states") == asked(tmp_path, "from autoscaler_decisions") == []


def test_a_load_that_changes_is_followed_and_both_are_in_tables(tmp_path: Path) -> None:
    """Two minutes at 2 requests/s, two at 30, two at 2: replicas come after the first change, and go after the next."""
    stages = "profile.stages=[{rate: 2, duration: 120}, {rate: 30, duration: 120}, {rate: 2, duration: 120}]"
    given = ["profile=stages", stages, "autoscaler=hpa", "autoscaler.target=8", "autoscaler.window_s=30", "gpus=8"]
    given += ["hardware/gpu=a100", "hardware/model=llama_3_1_8b", "faults.init_s=5"]
    assert main([*given, "output=csv", "report=none", f"cache_dir={tmp_path}"]) == 0
    query = "select floor(at_s / 120) as part, max(ready) as ready from autoscaler_decisions group by 1"
    ready = {int(one["part"]): one["ready"] for one in asked(tmp_path, query)}
    assert ready[0] == 1 < ready[1]
    last = asked(tmp_path, "select at_s, wanted, ready from autoscaler_decisions order by at_s desc limit 1")[0]
    assert last["ready"] < ready[1]
    starts = asked(tmp_path, "select at_s from gpu_states where state = 'starting' order by at_s")
    assert 120 <= starts[0]["at_s"] <= 150, "it looks every 15 s"
    stage = asked(tmp_path, "select stage, n_requests, offered_rps from stages order by stage")
    assert [round(one["offered_rps"]) for one in stage] == pytest.approx([2, 30, 2], rel=0.2)
    print(ready, last)
