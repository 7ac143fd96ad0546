"""What is served before time 0: caches, routers and clocks are as it leaves them, and it is in no number."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.__main__ import main
from prebleexp.autoscalers.hpa import HPA
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.experiment.key import key
from prebleexp.experiment.runs import draw, run, simulate_cell
from prebleexp.faults.base import Event
from prebleexp.faults.timeline import Timeline
from prebleexp.launch import configure
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.history import GpuState
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import OF_REQUESTS, Outcome, State, Workload
from prebleexp.sim.warming import joined_with
from prebleexp.sim.warmth import Before
from prebleexp.warm.first import First
from prebleexp.warm.prefixes import MOST_PREFIXES, Prefixes
from prebleexp.warmed import METRICS, sentences
from tests.support.costs.linear_cost import LinearCost
from tests.support.policies.looker import Looker
from tests.support.sampled import examples
from tests.support.sessions import linked
from tests.support.strategies.paths import workloads
from tests.support.strategies.timelines import timelines
from tests.support.strategies.vllms import POLICIES, VLLMS

ENGINE = VLLM(block_size=4, async_scheduling=False, host_s=0.0)
COST = LinearCost(step_s=0.5, token_s=0.125, context_token_s=0.0, kv_tokens=4096, gpu_memory_gib=48)
FIXED: dict[str, Any] = {"gpus": 2, "policy": RoundRobin(), "hardware": COST, "engine": ENGINE, "lengths": Max()}
FIXED |= {"overhead": Overhead(), "duration_s": 60.0, "horizon": "drain", "seed": 0}
SMALL = ["gpus=2", "rps=6", "duration_s=10"]


def served(workload: Workload, **given: Any) -> Outcome:
    return simulate(workload, **FIXED | given)


def prompts(*of: tuple[float, list[tuple[int, int]]]) -> Workload:
    """When each comes, and the (id, tokens) of its segments; one output token."""
    ones = np.ones(len(of), np.int32)
    return Workload(
        arrival_s=np.array([at_s for at_s, _ in of]),
        prompt_tokens=np.array([sum(tokens for _, tokens in one) for _, one in of]),
        output_tokens=ones,
        max_new_tokens=ones,
        prefix_group=ones - 1,
        segment_offsets=np.cumsum([0, *(len(one) for _, one in of)]),
        segment_ids=np.array([id for _, one in of for id, _ in one]),
        segment_tokens=np.array([tokens for _, one in of for _, tokens in one]),
    )


MINE = prompts((0.0, [(0, 8), (1, 4)]), (0.0, [(0, 8), (2, 4)]))
"""two that share 8 tokens; round robin sends the first to GPU 0"""


# ---------------------------------------------------------------- by hand
@pytest.mark.thorough
def test_the_first_request_of_a_prefix_is_a_hit_where_that_was_warmed() -> None:
    """A step takes 1/2 s and 1/8 s a token: 12 tokens 2 s, the 4 that are left behind a prefix of 8 one second."""
    cold = served(MINE)
    assert (cold.hit_tokens.tolist(), cold.ttft_s.tolist()) == ([0, 0], [2.0, 2.0])
    before = Before(prompts((0.0, [(0, 8)])), np.array([1], np.int32), one_by_one=True)
    made = served(MINE, before=before, policy=Looker())
    of = {int(gpu): i for i, gpu in enumerate(made.gpu)}
    assert made.hit_tokens.tolist() == [0 if i == of[0] else 8 for i in range(2)]
    assert made.ttft_s[of[0]], made.ttft_s[of[1]] == (2.0, 1.0)
    assert (made.due_s.tolist(), made.end_s, made.gpu_requests.tolist()) == ([0.0, 0.0], 2.0, [1, 1])
    assert made.gpu_prefilled_tokens.sum() == 12 + 4, "what was computed before is in no total"
    assert made.gpu_on_s.tolist() == [2.0, 2.0]
    begun = made.begun
    assert begun is not None
    assert (begun.at_s, begun.requests, begun.finished, begun.gpu_requests.tolist()) == (2.0, 1, 1, [0, 1])
    assert begun.kv_share == 8 / 4096 / 2, "8 of 4,096 tokens on one of two"


def test_a_router_goes_on_from_where_it_was() -> None:
    """Round robin had one request: the next goes to GPU 1."""
    made = served(MINE, before=Before(prompts((0.0, [(5, 8)]))))
    assert made.gpu.tolist() == [1, 0]


def test_what_was_used_longest_ago_is_evicted_first() -> None:
    """20 of 24 tokens of a cache are prefixes: 8 tokens of the older one go for a prompt of 12."""
    small = replace(COST, kv_tokens=24)
    listed = prompts((0.0, [(0, 8)]), (0.0, [(5, 8)]))
    for order, kept in ((listed, 5), (prompts((0.0, [(5, 8)]), (0.0, [(0, 8)])), 0)):
        before = Before(order, one_by_one=True)
        mine = prompts((0.0, [(9, 12)]), (9.0, [(kept, 8), (11, 4)]))
        made = served(mine, gpus=1, hardware=small, before=before)
        assert made.hit_tokens.tolist() == [0, 8]


def test_faults_and_the_end_of_time_count_from_the_start() -> None:
    """GPU 0 is lost a second after the start, while its step of two goes on."""
    faults = Timeline(happen=(Event(1.0, 0, "down", 1.0),), on_loss="fail")
    before = Before(prompts((0.0, [(5, 80)]), (0.0, [(6, 80)])))
    made = served(MINE, before=before, faults=faults)
    assert made.state[made.gpu == 0].tolist() == [State.LOST]
    assert made.state[made.gpu == 1].tolist() == [State.FINISHED]
    assert made.gpu_lost_s.tolist() == pytest.approx([1.0, np.nan], nan_ok=True)
    assert (made.end_s, made.gpu_down_s.tolist(), made.gpu_on_s.tolist()) == (2.0, [1.0, 0.0], [1.0, 2.0])
    states = [(one.at_s, one.gpu, one.state) for one in made.history.gpu_states]
    assert states == [(0.0, 0, GpuState.READY), (0.0, 1, GpuState.READY), (1.0, 0, GpuState.FAILED)]
    stopped = served(MINE, before=before, horizon="stop", duration_s=1.5)
    assert (stopped.end_s, np.isnan(stopped.finish_s).all()) == (1.5, True)


def test_an_autoscaler_begins_at_the_start() -> None:
    """It has one GPU before and then, and looks first after its interval."""
    many = prompts(*((0.0, [(20 + i, 40)]) for i in range(8)))
    rule = HPA(target=2.0, interval_s=1.0)
    made, cold = (served(many, before=one, autoscaler=rule) for one in (Before(MINE), None))
    assert made.begun is not None
    assert made.begun.gpu_requests.tolist() == [2, 0]
    assert made.history == cold.history
    assert made.history.decisions[0].at_s == 1.0


# ---------------------------------------------------------------- laws
STREAMS = workloads() | linked(workloads())
ENGINES = st.one_of(
    VLLMS,
    st.builds(SGLang, chunked_prefill_size=st.sampled_from([64, 200])),
    st.builds(Continuous, queue=st.sampled_from(["lpm", "fcfs"]), block_tokens=st.sampled_from([1, 4])),
)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(
    workloads() | linked(workloads()), workloads() | linked(workloads()), ENGINES, POLICIES, st.sampled_from([300, 900])
)
def test_it_is_as_if_the_same_requests_had_come_first_and_drained(
    first: Workload, then: Workload, engine: Any, policy: Any, kv: int
) -> None:
    hardware = LinearCost(0.0013, 0.0001, 1e-6, kv_tokens=kv, gpu_memory_gib=48)
    given = {"engine": engine, "policy": policy, "hardware": hardware, "duration_s": 10.0}
    made = served(then, before=Before(first), **given)
    assert made.begun is not None
    w, at_s = len(first), made.begun.at_s
    whole = joined_with(first, then)
    arrival_s = np.concatenate([first.arrival_s, at_s + then.arrival_s])
    plain = served(whole.changed(arrival_s=arrival_s), **given | {"duration_s": at_s + 10.0})
    assert at_s >= np.nanmax(plain.finish_s[:w], initial=0.0), "it has drained"
    for name in ("gpu", "state", "hit_tokens", "prefilled_tokens", "output_seen"):
        assert (getattr(made, name) == getattr(plain, name)[w:]).all(), name
    for name, clock in (("ttft_s", 0.0), ("latency_s", 0.0), ("finish_s", at_s), ("due_s", at_s)):
        np.testing.assert_allclose(getattr(made, name), getattr(plain, name)[w:] - clock, 0, 1e-9)
    alone = served(first, **given)
    for name in ("gpu_prefilled_tokens", "gpu_hit_tokens", "gpu_evicted_tokens", "gpu_requests"):
        assert (getattr(made, name) == getattr(plain, name) - getattr(alone, name)).all(), name
    assert made.gaps_counts.sum() == plain.gaps_counts.sum() - alone.gaps_counts.sum(), "gaps before are not counted"
    assert made.begun.finished == (alone.state == State.FINISHED).sum()


def _even(seconds: Any) -> Any:
    """On a grid that times behind a start have too."""
    return np.floor(np.asarray(seconds) * 64) / 64


@st.composite
def clusters(draw: st.DrawFn) -> dict[str, Any]:
    gpus = draw(st.integers(2, 3))
    found = {
        "gpus": gpus,
        "reports_ms": draw(st.sampled_from([0.0, 50.0])),
        "horizon": draw(st.sampled_from(["stop", "drain"])),
        "overhead": draw(st.sampled_from([Overhead(), Overhead("serial", decision_s=0.002)])),
        "engine": VLLM(enable_prefix_caching=False, async_scheduling=draw(st.booleans())),
    }
    if draw(st.booleans()):
        faults = draw(timelines(gpus))
        return found | {
            "faults": replace(faults, happen=tuple(one._replace(at_s=_even(one.at_s)) for one in faults.happen))
        }
    return found | {"autoscaler": HPA(target=2.0, interval_s=0.5)} if draw(st.booleans()) else found


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None)
@given(workloads(), workloads() | linked(workloads()), clusters())
def test_what_leaves_nothing_behind_changes_nothing(first: Workload, then: Workload, cluster: dict[str, Any]) -> None:
    """Faults, autoscalers, reports and the end of a run come when they would have come."""
    then = then.changed(arrival_s=_even(then.arrival_s), delay_s=_even(then.delay_s))
    cluster |= {"hardware": LinearCost(0.0013, 0.0001, 1e-6, kv_tokens=900, gpu_memory_gib=48), "duration_s": 3.0}
    made, cold = (served(then, before=one, policy=LeastOutstanding(), **cluster) for one in (Before(first), None))
    for name in (*OF_REQUESTS, *(one for one in Outcome.__dataclass_fields__ if one.startswith("gpu_")), "end_s"):
        np.testing.assert_allclose(getattr(made, name), getattr(cold, name), 0, 1e-9, err_msg=name)
    for rows, others in zip(*((one.gpu_states, one.decisions) for one in (made.history, cold.history)), strict=True):
        assert [one[1:] for one in rows] == [one[1:] for one in others]
        np.testing.assert_allclose([one.at_s for one in rows], [one.at_s for one in others], 0, 1e-9)


# ---------------------------------------------------------------- the stream's own first part
def test_what_comes_first_warms_and_the_rest_is_the_load() -> None:
    stream = prompts(*((float(at_s), [(0, 8), (1 + at_s, 4)]) for at_s in range(6)))
    first = First(first_s=2.0)
    assert first.before(stream).workload.arrival_s.tolist() == [0.0, 1.0]
    rest = first.rest(stream)
    assert rest.arrival_s.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert rest.segment_ids.tolist() == [0, 3, 0, 4, 0, 5, 0, 6]
    made = served(rest, before=first.before(stream))
    assert made.hit_tokens.tolist() == [8, 8, 8, 8], "each GPU has had one"


@settings(max_examples=examples(60), deadline=None)
@given(linked(workloads()), st.floats(0.1, 3))
def test_sessions_that_begin_first_are_served_first_to_their_end(stream: Workload, first_s: float) -> None:
    """No request of the rest comes after one before it, and all are there once."""
    try:
        parts = First(first_s).before(stream).workload, First(first_s).rest(stream)
    except InvalidInput:  # all of it, or nothing
        return
    assert sum(map(len, parts)) == len(stream)
    for part in parts:
        replace(part)  # checks itself
    assert sum(int(part.waits.sum()) for part in parts) == int(stream.waits.sum())
    assert (parts[1].arrival_s[parts[1].arrives] >= 0).all(), "what begins before is in the first part"
    assert sum(int(part.prompt_tokens.sum()) for part in parts) == int(stream.prompt_tokens.sum())


def cell(*overrides: str) -> Any:
    return configure.cells([*SMALL, *overrides])[0]


def test_a_made_up_stream_is_so_much_longer() -> None:
    one = cell("warm=first", "warm.first_s=30")
    rest, whole = draw(one), draw(cell("duration_s=40"))
    first = int((whole.arrival_s < 30).sum())
    assert rest.arrival_s.tolist() == (whole.arrival_s[first:] - 30).tolist()
    made = run(one)
    assert made.metrics["n_requests"] == len(rest) == len(whole) - first
    assert made.metrics["warm_requests"] == first
    assert made.metrics["warm_unserved"] == 0
    assert made.metrics["hit_ratio"] > run(cell()).metrics["hit_ratio"]
    assert all(value is None for name, value in run(cell()).metrics.items() if name.startswith("warm_"))


# ---------------------------------------------------------------- lists
def listed(folder: Path, *rows: dict[str, Any]) -> str:
    path = folder / "prefixes.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows))
    return str(path)


GROUPED = replace(
    prompts((0.0, [(0, 8), (1, 4)]), (1.0, [(0, 8), (2, 4)]), (2.0, [(3, 6), (4, 2)])),
    prefix_group=np.array([0, 0, 1], np.int32),
)


def test_a_list_names_groups_requests_and_tokens(tmp_path: Path) -> None:
    rows = [{"prefix_group": 0, "gpu": 1}, {"request": 2}, {"request": 2, "tokens": 7}, {"tokens": 100}]
    rows += [{"prefix_group": 1, "tokens": 9}, {"prefix_group": 7}]
    before = Prefixes(listed(tmp_path, *rows)).before(GROUPED)
    made = before.workload
    assert made.segment_ids.tolist() == [0, 3, 4, 3, 8, 9]
    assert made.prompt_tokens.tolist() == [8, 8, 6, 100, 9]
    assert before.gpus is not None
    assert before.gpus.tolist() == [1, -1, -1, -1, -1]
    assert made.prefix_group.tolist() == [0, 1, 1, -1, -1]
    again = Prefixes(listed(tmp_path, rows[0], rows[1], rows[0])).before(GROUPED).workload
    assert again.segment_ids.tolist() == [3, 4, 0], "of equal ones the last counts"


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"request": 3}, "row 1: request=3 is not valid; the load has requests 0 to 2"),
        ({"request": 1.5}, "row 1: request=1.5 is not valid; it must be an integer from -1"),
        ({"prefix_group": 0, "tokens": -1}, "row 1: tokens=-1 is not valid; it must be an integer from 0"),
        ({"name": "a"}, "rows have neither request, prefix_group nor tokens"),
        ({"prefix_group": 5}, "no row is a prefix of this load"),
    ],
)
def test_rows_that_are_wrong_are_refused_in_one_line(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Prefixes(listed(tmp_path, row)).before(GROUPED)
    assert str(caught.value).startswith(str(tmp_path))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_of_a_list_that_no_cache_could_hold_the_last_count(tmp_path: Path) -> None:
    path = str(tmp_path / "many.parquet")
    pq.write_table(pa.table({"tokens": np.arange(1, MOST_PREFIXES + 3)}), path)
    made = Prefixes(path).before(GROUPED).workload
    assert (made.prompt_tokens[0], len(made)) == (3, MOST_PREFIXES)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["warm=prefixes"], "warm.path=None is not valid; warm=prefixes needs warm.path=FILE"),
        (["warm=prefixes", "warm.path=/nowhere"], "warm.path=/nowhere cannot be read: No such file"),
        (["warm=run"], "warm.run=None is not valid; warm=run needs warm.run=KEY"),
        (["warm=run", "warm.run=abcd", "warm.cache_dir=/nowhere"], "warm.cache_dir=/nowhere is not a folder"),
        (["warm=first", "warm.first_s=0"], "warm.first_s=0 is not valid; it must be a number of seconds > 0"),
        (["warm=first", "engine=released"], "engine=released begins with empty caches"),
        (["warm=first", "profile=stages", "profile.stages=[{rate: 3, duration: 9}]", "rps=null", "duration_s=null"],
         "warm=first is not valid with profile=stages"),
        (["warm=hot"], "unknown warm 'hot'; valid: first, none, prefixes, run"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(
    overrides: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *overrides, f"cache_dir={tmp_path}"]) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


def test_a_gpu_that_is_not_there_is_refused() -> None:
    for gpu, says in ((2, "GPUs are 0 to 1"), (1, "is not up then")):
        before = Before(MINE, np.array([gpu, 0], np.int32), one_by_one=True)
        with pytest.raises(InvalidInput, match=says):
            served(MINE, before=before, autoscaler=HPA() if gpu == 1 else None)


def test_what_is_warm_is_part_of_the_key(tmp_path: Path) -> None:
    one, other = (tmp_path / name for name in ("a", "b"))
    for folder in (one, other):
        folder.mkdir()
    first, second = listed(one, {"prefix_group": 0}), listed(other, {"prefix_group": 1})
    given = [[], ["warm=first"], ["warm=first", "warm.first_s=9"]]
    given += [["warm=prefixes", f"warm.path={path}"] for path in (first, second)]
    cells = [cell(*overrides) for overrides in given]
    assert len({key(one) for one in cells}) == len(cells)
    assert len({one.stream for one in cells}) == len(cells)
    copy = other / "copy.jsonl"
    copy.write_text(Path(first).read_text())
    assert key(cell("warm=prefixes", f"warm.path={copy}")) == key(cells[3]), "the contents count, not the place"


# ---------------------------------------------------------------- another run, and what is said
@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("cache")
    assert main([*SMALL, "output=csv", f"cache_dir={made}"]) == 0
    return made


def test_another_run_leaves_what_it_had(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SMALL, "output=json", f"cache_dir={folder}"]) == 0
    found = json.loads(capsys.readouterr().out)[0]["key"]
    given = ["warm=run", f"warm.run={found[:12]}", f"warm.cache_dir={folder}"]
    one = cell(*given)
    assert one.identity()["warm"] == {"_target_": "prebleexp.experiment.warm_run.OfRun", "run": found}
    stream, left = draw(one), simulate_cell(cell(), draw(cell()))
    before = one.warm.before(stream)
    assert before.gpus is not None
    order = np.argsort(left.finish_s, kind="stable")
    assert before.gpus.tolist() == left.gpu[order].tolist()
    assert before.workload.prompt_tokens.tolist() == stream.prompt_tokens[order].tolist(), "whole prompts"
    other = cell("seed=5", *given)
    groups = other.warm.before(draw(other)).workload.prefix_group
    assert set(groups.tolist()) <= set(stream.prefix_group.tolist()), "of another stream what groups share"
    made = run(one)
    shares = made.metrics["hit_ratio"]
    assert shares > 0.9
    print(f"hit ratio {shares:.3f} after a run of the same stream")


def test_a_run_and_a_stream_say_that_caches_are_warm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [*SMALL, "warm=first", "warm.first_s=20"]
    assert main([*given, f"cache_dir={folder}"]) == 0
    first = run(cell("warm=first", "warm.first_s=20")).metrics
    (said,) = sentences([("", [first])])
    assert said.startswith(f"caches were warmed by {first['warm_requests']} requests, which no metric counts: ")
    assert f"{first['warm_kv_share']:.1%} of KV memory was in use at the start" in said
    assert f"prebleexp: {said}" in capsys.readouterr().err
    assert main(["workload", "describe", *given]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert f"warmed before it by {first['warm_requests']} requests of" in printed
    assert main(["workload", "describe", *given, "output=json"]) == 0
    warm = json.loads(capsys.readouterr().out)["warm"]
    assert warm["requests"] == first["warm_requests"]
    assert main(["trace", *given, f"reports_dir={folder}"]) == 0
    page, _ = capsys.readouterr().out.splitlines()
    assert said[0].upper() + said[1:] in Path(page).read_text().replace("&#39;", "'")


def test_the_busiest_gpu_is_told_against_the_mean_of_all() -> None:
    """9 of 12 requests on one of 4 GPUs are 3 times the mean."""
    (of,) = [one for name, _, one, *_ in METRICS if name == "warm_max_over_mean"]
    for sent, ratio in (([9, 1, 2, 0], 3.0), ([0, 0, 0, 0], None)):
        begun = SimpleNamespace(gpu_requests=np.array(sent))
        assert of(cast("Any", SimpleNamespace(made=SimpleNamespace(begun=begun)))) == ratio


def test_several_cells_are_said_together() -> None:
    def row(requests: int, share: float, unserved: int = 0) -> dict[str, Any]:
        of = {"warm_requests": requests, "warm_kv_share": share, "warm_unserved": unserved, "warm_max_over_mean": 1.5}
        return of | {"n_requests": 9}

    assert sentences([("", [{"n_requests": 3}])]) == []
    assert sentences([("a", [row(1_200, 0.41, 1)])]) == [
        "caches were warmed by 1,200 requests, which no metric counts: 41.0% of KV memory was in use at the start, and "
        "routers had sent the busiest GPU 1.50 times the mean of all; 1 of them was not served"
    ]
    (said,) = sentences([("a", [row(1_200, 0.41)]), ("b", [row(900, 0.5)]), ("c", [{"n_requests": 3}])])
    assert said.startswith(
        "caches were warmed by 900 to 1,200 requests in 2 of 3 cells, which no metric counts: 41.0% to"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "feature",
    [
        ["cluster=disaggregated", "gpus=4"],
        ["cluster=disaggregated", "cluster.protocol=reserve_first", "gpus=4", "engine=sglang"],
        ["cluster=tiered", "hardware.kv_tokens=20000"],
        ["cluster=two_kinds", "gpus=8"],
        ["cluster=migrating", "hardware.kv_tokens=20000"],
        ["gateway.max_in_flight=3"],
        ["gateway.replicas=2"],
        ["overhead=serial"],
        ["policy=e2", "reports_ms=100"],
        ["policy=dynamo_kv"],
        ["policy=sglang_cache_aware", "engine=sglang"],
    ],
    ids=lambda feature: " ".join(feature),
)
def test_it_goes_with_every_feature(feature: list[str]) -> None:
    """As if the same requests had come first; but reports and pairs, which come at intervals, begin anew."""
    one, cold = (configure.cells([*SMALL, "rps=20", *feature, *more])[0] for more in (["warm=first"], []))
    rest, before = draw(one), one.warm.before(draw(replace(cold, duration_s=310.0)))
    made = simulate_cell(one, rest)
    assert made.begun is not None
    w, at_s = made.begun.requests, made.begun.at_s
    assert made.begun.finished == w == len(before.workload)
    whole = joined_with(before.workload, rest)
    arrival_s = np.concatenate([before.workload.arrival_s, at_s + rest.arrival_s])
    plain = simulate_cell(cold, whole.changed(arrival_s=arrival_s))
    assert (made.state == State.FINISHED).all()
    assert not made.moves_aborted.any() or "migrating" in feature[0]
    if "reports_ms=100" not in feature and "cluster=migrating" not in feature:
        for name in ("gpu", "decode_gpu", "hit_tokens", "host_tokens"):
            assert (getattr(made, name) == getattr(plain, name)[w:]).all(), name
        np.testing.assert_allclose(made.ttft_s, plain.ttft_s[w:], 0, 1e-9)
