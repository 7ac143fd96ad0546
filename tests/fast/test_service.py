"""Service levels: who is good, of whom, and what is measured of it."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.experiment import key as keys
from prebleexp.experiment import results, runs
from prebleexp.experiment.cache import Cache
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.unloaded import unloaded
from prebleexp.launch import configs, configure, from_cache
from prebleexp.metrics import measure
from prebleexp.service.attainment import Attained, Unloaded
from prebleexp.service.in_system import slope
from prebleexp.service.level import NONE, ServiceLevel
from prebleexp.sim.types import State, Workload

NAN = math.nan
FINISHED, RUNNING, QUEUED, REFUSED, UNROUTED = (
    State.FINISHED,
    State.RUNNING,
    State.QUEUED,
    State.REFUSED,
    State.UNROUTED,
)


HERE = ("gpus=2", "rps=12", "duration_s=10", "engine=sglang_2024", "hardware=a6000_mistral_7b")


def cell(*overrides: str) -> Cell:
    return configure.cells([*HERE, *overrides])[0]


def attained(level: ServiceLevel, alone: Unloaded | None = None, **columns: Any) -> Attained:
    """Of requests as they are said, finished at once unless they say otherwise."""
    count = len(next(iter(columns.values())))
    usual = {
        "due_s": 0.0,
        "state": FINISHED,
        "ttft_s": 0.0,
        "latency_s": 0.0,
        "output_seen": 1,
        "finish_s": 0.0,
        "session": -1,
        "gap_p99_s": NAN,
        "gap_top10_s": NAN,
        "slo_ttft_s": NAN,
        "slo_tpot_s": NAN,
    }
    full = {name: np.array(columns.get(name, [value] * count)) for name, value in usual.items()}
    return Attained(full, end_s=10.0, gpus=2, level=level, unloaded=alone)


def good(level: ServiceLevel, **columns: Any) -> list[bool]:
    found = attained(level, **columns).good
    assert found is not None
    return [bool(one) for one in found]


# ---------------------------------------------------------------- who is good
def test_a_request_is_good_within_all_limits_at_once() -> None:
    level = ServiceLevel(ttft_s=1.0, tpot_s=0.1, latency_s=3.0)
    found = good(
        level,
        ttft_s=[1.0, 1.01, 0.5, 0.5, 0.5],
        latency_s=[2.0, 2.0, 1.51, 3.1, 1.5],
        output_seen=[11, 11, 11, 101, 11],
    )
    assert found == [True, False, False, False, True]


def test_an_answer_of_one_token_has_no_time_per_token_and_keeps_any() -> None:
    assert good(ServiceLevel(tpot_s=1e-9), ttft_s=[5.0], latency_s=[5.0], output_seen=[1]) == [True]


def test_of_the_unfinished_those_are_good_that_cannot_fail_any_more() -> None:
    columns: dict[str, Any] = {
        "state": [RUNNING, RUNNING, QUEUED, QUEUED, UNROUTED, REFUSED],
        "ttft_s": [0.5, 1.5, 0.5, NAN, NAN, NAN],
        "latency_s": [0.6, 1.6, 0.6, NAN, NAN, NAN],
        "output_seen": [2, 2, 2, 0, 0, 0],
        "finish_s": [NAN] * 6,
    }
    assert good(ServiceLevel(ttft_s=1.0), **columns) == [True, False, True, False, False, False]
    assert good(ServiceLevel(ttft_s=1.0, tpot_s=9.0), **columns) == [False] * 6
    assert good(ServiceLevel(latency_s=99.0), **columns) == [False] * 6


def test_requests_have_their_own_limits_first() -> None:
    columns: dict[str, Any] = {"ttft_s": [0.4, 0.4, 0.4], "slo_ttft_s": [0.3, NAN, 0.5]}
    assert good(ServiceLevel(ttft_s=0.2), **columns) == [False, False, True]
    assert good(NONE, **columns) == [False, True, True]
    tpot: dict[str, Any] = {"latency_s": [1.0, 1.0], "output_seen": [11, 11], "slo_tpot_s": [0.2, NAN]}
    assert good(ServiceLevel(tpot_s=0.05), **tpot) == [True, False]


def test_nothing_promised_is_nothing_kept() -> None:
    made = attained(NONE, ttft_s=[0.1])
    assert set(made.of_limits.values()) == {None}
    assert made.count == 1


def test_shares_of_requests_are_over_all_that_were_due() -> None:
    level = ServiceLevel(ttft_s=1.0, warmup_s=2.0)
    made = attained(
        level,
        due_s=[0.0, 1.9, 2.0, 3.0, 4.0, NAN],
        ttft_s=[9.0, 0.1, 0.1, 0.1, 9.0, NAN],
        state=[FINISHED, FINISHED, FINISHED, FINISHED, FINISHED, UNROUTED],
    )
    assert made.count == 3
    assert made.of_limits["slo_attainment"] == pytest.approx(2 / 3)
    assert made.of_limits["goodput_per_s"] == pytest.approx(2 / 8)
    assert made.of_limits["goodput_per_gpu_s"] == pytest.approx(1 / 8)


def test_limits_of_shares_are_judged_one_by_one_and_the_good_keep_the_loosest() -> None:
    level = ServiceLevel(ttft_s={"p50": 1.0, "p90": 2.0}, latency_s={"p90": 5.0})  # type: ignore[arg-type]
    ttft = [0.5] * 6 + [1.5] * 3 + [3.0]
    made = attained(level, ttft_s=ttft, latency_s=[4.0] * 8 + [6.0] * 2)
    assert made.of_limits["slo_margin"] == pytest.approx(0.8 - 0.9)  # 60 % ≥ 50 %, 90 % ≥ 90 %, 80 % < 90 %
    assert made.of_limits["slo_attainment"] == pytest.approx(0.8)
    lost = attained(level, ttft_s=[0.5, NAN], latency_s=[1.0, NAN], state=[FINISHED, REFUSED])
    assert lost.of_limits["slo_margin"] == pytest.approx(0.5 - 0.9), "who was refused has kept no limit"


def test_sessions_are_good_if_every_request_of_them_is() -> None:
    level = ServiceLevel(ttft_s=1.0, warmup_s=5.0)
    made = attained(
        level,
        session=[0, 0, 7, 7, 3, 3, 9, -1],
        due_s=[6.0, 8.0, 6.0, 9.0, 1.0, 8.0, 7.0, 6.0],
        ttft_s=[0.5, 0.5, 0.5, 2.0, 0.5, 0.5, NAN, 0.5],
        finish_s=[7.0, 9.5, 7.0, 9.9, 2.0, 9.0, NAN, 7.0],
        state=[FINISHED] * 6 + [RUNNING, FINISHED],
    )
    assert made.of_limits["session_attainment"] == pytest.approx(1 / 3)  # 0 is, 7 and 9 are not, 3 began too early
    assert made.session_s.tolist() == pytest.approx([3.5, 3.9])


LIMITS = st.none() | st.sampled_from([0.2, 0.5, 1.0])
REQUEST = st.tuples(
    st.sampled_from([FINISHED, RUNNING, QUEUED, REFUSED, UNROUTED]),
    st.sampled_from([0.1, 0.2, 0.6]),
    st.sampled_from([0.0, 0.4, 2.0]),
    st.integers(1, 4),
    st.sampled_from([NAN, 0.3]),
)


@given(st.lists(REQUEST, min_size=1, max_size=8), LIMITS, LIMITS, LIMITS)
def test_as_said_in_plain_words(
    requests: list[tuple[State, float, float, int, float]],
    ttft: float | None,
    tpot: float | None,
    latency: float | None,
) -> None:
    def plainly(state: State, first: float, more: float, tokens: int, own: float) -> bool:
        limit = ttft if math.isnan(own) else own
        in_time = limit is None or first <= limit
        if state in (RUNNING, QUEUED):
            return in_time and tpot is None and latency is None
        pace = more / (tokens - 1) if tokens > 1 else 0.0
        whole = first + (more if tokens > 1 else 0.0)
        in_pace = tpot is None or pace <= tpot
        return state == FINISHED and in_time and in_pace and (latency is None or whole <= latency)

    level = ServiceLevel(ttft_s=ttft, tpot_s=tpot, latency_s=latency)
    if level.changes_nothing and all(math.isnan(one[4]) for one in requests):
        return
    states, firsts, mores, tokens, owns = (list(column) for column in zip(*requests, strict=True))
    seen = [state in (FINISHED, RUNNING, QUEUED) for state in states]
    wholes = [one + (more if n > 1 else 0.0) for one, more, n in zip(firsts, mores, tokens, strict=True)]
    # the times of plain words, as latency − ttft gives them
    mores = [whole - one for whole, one in zip(wholes, firsts, strict=True)]
    found = good(
        level,
        state=states,
        ttft_s=[one if some else NAN for one, some in zip(firsts, seen, strict=True)],
        latency_s=[one if some else NAN for one, some in zip(wholes, seen, strict=True)],
        output_seen=tokens,
        slo_ttft_s=owns,
    )
    assert found == [plainly(*one) for one in zip(states, firsts, mores, tokens, owns, strict=True)]


# ---------------------------------------------------------------- alone on an idle GPU
@pytest.mark.slow
@pytest.mark.parametrize("engine", ["sglang_2024", "released"])
def test_slowdown_is_against_the_same_request_alone(engine: str) -> None:
    one = cell(f"engine={engine}", "slo.slowdown=true")
    stream = runs.draw(one)
    alone = unloaded(one, stream)
    for i in (0, len(stream) // 2, len(stream) - 1):
        only = Workload(
            arrival_s=np.zeros(1),
            **{
                name: getattr(stream, name)[i : i + 1]
                for name in ("prompt_tokens", "output_tokens", "max_new_tokens", "prefix_group")
            },
            segment_offsets=np.array([0, 1]),
            segment_ids=np.zeros(1, np.int32),
            segment_tokens=stream.prompt_tokens[i : i + 1],
        )
        made = runs.simulate_cell(replace(one, gpus=1), only)
        tick_s = one.engine.step_cost_s if engine == "released" else 0.0  # what an idle GPU of the release steps by
        assert alone.ttft_s[i] == pytest.approx(made.ttft_s[0], rel=1e-12, abs=1.01 * tick_s)
        assert alone.latency_s[i] == pytest.approx(made.latency_s[0], rel=1e-12, abs=1.01 * tick_s)
    finished = runs.run(one, stream)
    ratios = finished.outcome.latency_s / alone.latency_s
    assert finished.metrics["latency_slowdown_p90"] == pytest.approx(np.percentile(ratios, 90))
    assert finished.metrics["slo_attainment"] is None
    assert runs.run(cell(f"engine={engine}"), stream).metrics["latency_slowdown_p90"] is None


ON_A100 = "slo.alone_on={hardware/gpu: a100}"


def test_slowdown_is_against_the_hardware_that_is_named() -> None:
    """Which is otherwise as the run's: the same model, on as many GPUs."""
    model = (
        "engine=vllm",
        "hardware=composed",
        "hardware/model=llama_3_1_8b",
        "hardware.tensor_parallel=2",
        "rps=12",
        "duration_s=4",
    )
    named = cell(*model, "hardware/gpu=h100", ON_A100, "slo.slowdown=true")
    on_a100, on_h100 = (cell(*model, f"hardware/gpu={gpu}", "slo.slowdown=true") for gpu in ("a100", "h100"))
    assert named.slo.alone_on == on_a100.hardware
    stream = runs.draw(named)
    alone, a100, h100 = (unloaded(one, stream) for one in (named, on_a100, on_h100))
    np.testing.assert_array_equal(alone.latency_s, a100.latency_s)
    assert (alone.latency_s > h100.latency_s).all()
    assert (
        runs.run(named, stream).metrics["latency_slowdown_p50"]
        < runs.run(on_h100, stream).metrics["latency_slowdown_p50"]
    )
    of_groups = cell(*model, ON_A100, "cluster.groups=[{gpus: 2, hardware/gpu: h200}]", "slo.slowdown=true")
    assert of_groups.slo.alone_on == on_a100.hardware
    assert named.columns()["slo.alone_on"] == "llama-3.1-8b in bf16 on 2 a100, vllm"


def test_an_engine_with_hardware_of_its_own_takes_no_other() -> None:
    with pytest.raises(InvalidInput) as caught:
        configure.cells(["engine=splitwise", "slo=splitwise", ON_A100])
    assert str(caught.value) == "slo.alone_on is not valid with engine=splitwise, which has its own; it must be null"


@pytest.mark.slow
def test_the_hardware_that_is_named_is_in_the_key_and_none_is_not() -> None:
    usual = ("engine=vllm", "hardware=composed", "slo.slowdown=true")
    plain, named = cell(*usual), cell(*usual, ON_A100)
    assert "alone_on" not in plain.identity()["slo"]  # type: ignore[operator]
    known = keys.content(named)["cell"]
    assert isinstance(known, dict)
    assert known["slo"]["alone_on"]["gpu"]["name"] == "a100"
    loader = configs.loader()
    again = cell(*from_cache.overrides_of(keys.key(named), known, loader))
    assert keys.key(again) == keys.key(named) != keys.key(plain)
    assert from_cache.Options(loader).columns(known)["slo.alone_on"] == named.columns()["slo.alone_on"]
    strange = {**known, "slo": {**known["slo"], "alone_on": {"_target_": "antigravity.Hardware"}}}
    with pytest.raises(InvalidInput, match=r"run ab: no option of conf/hardware/ is a antigravity\.Hardware"):
        from_cache.overrides_of("ab", strange, loader)
    assert from_cache.Options(loader).columns(strange)["slo"] == "ServiceLevel"
    assert "antigravity" not in sys.modules


def test_a_limit_on_slowdown_is_a_limit_on_the_ratio() -> None:
    alone = Unloaded(np.array([0.1, 0.1]), np.array([0.01, NAN]), np.array([1.0, 0.1]))
    made = attained(
        ServiceLevel(ttft_slowdown=2.0, tpot_slowdown=1.5, latency_slowdown=3.0),
        alone,
        ttft_s=[0.2, 0.21],
        latency_s=[0.2 + 0.015 * 99, 0.21],
        output_seen=[100, 1],
    )
    assert made.good is not None
    assert made.good.tolist() == [True, False]


# ---------------------------------------------------------------- in a run
def test_the_row_of_a_run_has_what_its_requests_say() -> None:
    one = cell("slo.ttft_s=0.2", "slo.target=0.9")
    made = runs.run(one)
    in_time = made.outcome.ttft_s <= 0.2
    assert 0 < in_time.mean() < 1
    assert made.metrics["slo_attainment"] == in_time.mean()
    assert made.metrics["goodput_per_s"] == in_time.sum() / made.outcome.end_s
    assert made.metrics["due_requests"] == len(in_time)
    others = runs.run(cell()).metrics
    changed = {name for name, value in made.metrics.items() if others[name] != value}
    of_batches = {
        "slo_attainment_low",
        "slo_attainment_high",
        "slo_missed_batches",
        "slo_missed_first",
        "slo_missed_worst",
    }
    assert changed == {"slo_attainment", "goodput_per_s", "goodput_per_gpu_s"} | of_batches


def test_what_a_run_that_stops_leaves_unfinished_is_not_good() -> None:
    made = runs.run(cell("rps=60", "horizon=stop", "slo.latency_s=1000"))
    due = int(np.isfinite(made.outcome.due_s).sum())
    assert made.metrics["n_finished"] < due < made.metrics["n_requests"], "some were to come after the end"
    assert made.metrics["due_requests"] == due
    assert made.metrics["slo_attainment"] == made.metrics["n_finished"] / due


def test_a_workload_brings_limits_of_its_requests() -> None:
    one = cell()
    stream = runs.draw(one)
    made = runs.simulate_cell(one, stream)
    own = replace(stream, slo_ttft_s=np.where(np.arange(len(stream)) % 2, 1e-9, np.nan))
    found = measure(own, made)
    assert found["slo_attainment"] == np.mean(np.arange(len(stream)) % 2 == 0)


# ---------------------------------------------------------------- limits that change cost no run
COMPUTE = "the run was computed"


def run(cache: Cache, *overrides: str, keep: str = "first") -> results.Result:
    (found,) = results.run_all([cell(*overrides)], cache, keep_requests=keep, workers=1)
    assert found.error is None
    return found


@pytest.mark.parametrize("before", [(), ("slo.ttft_s=0.3",), ("slo=splitwise",)])
def test_other_limits_are_read_off_the_requests_that_are_kept(
    tmp_path: Path, before: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ("slo.tpot_s=0.03", "slo.ttft_s={p50:0.1,p99:0.4}")
    computed = run(Cache(tmp_path / "other"), *limits).metrics
    cache = Cache(tmp_path / "cache")
    run(cache, *before)
    monkeypatch.setattr(results, "compute", lambda *_: pytest.fail(COMPUTE))
    first = run(cache, *limits)
    assert first.cached
    assert first.metrics == computed
    assert cache.get(first.key, requests=True) is not None
    assert run(cache, *limits).metrics == computed
    assert run(cache, "slo.latency_s=9", keep="none").cached
    none = run(cache)
    assert none.metrics is not None
    assert none.metrics["slo_attainment"] is None
    assert none.metrics["ttft_slowdown_p50"] is None


def test_what_was_not_kept_is_computed(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    run(cache, keep="none")
    assert not run(cache, "slo.ttft_s=0.3").cached
    assert not run(cache, "slo.ttft_s=0.3", "slo.warmup_s=2").cached, "other requests count"
    assert not run(cache, "slo=splitwise").cached, "nothing kept says how requests do alone"


def test_promises_of_the_minute_after_a_loss_are_computed(tmp_path: Path) -> None:
    """Under other limits they were missing, which a plan took for a promise that nobody kept."""
    cache, lost = Cache(tmp_path), ("faults=timeline", "faults.happen=[{at_s: 1, gpu: 0, event: down}]")
    run(cache, *lost, "slo.ttft_s=0.3")
    made = run(cache, *lost, "slo.ttft_s={p50: 0.3}")
    assert not made.cached
    assert made.metrics is not None
    assert made.metrics["after_loss_margin"] is not None


# ---------------------------------------------------------------- presets and settings
PRESETS = configs.loader().get_group_options("slo")


@pytest.mark.slow
def test_every_preset_says_where_it_is_from_and_none_is_the_default() -> None:
    assert len(PRESETS) == 25
    assert configure.cells([])[0].names["slo"] == "none"
    for name in PRESETS:
        level = cell(f"slo={name}").slo
        assert bool(level.source) == (name != "none")
        assert level.changes_nothing == (name == "none")
        shares = level.promises or level.target
        assert bool(shares) == ("mooncake" not in name), "Mooncake's paper names no share"


def test_presets_have_their_sources_numbers() -> None:
    assert cell("slo=distserve_13b").slo.loosest == {"ttft_s": 0.25, "tpot_s": 0.1}
    assert cell("slo=mlperf_deepseek_r1_interactive").slo.ttft_s == (("p99", 1.5),)
    assert cell("slo=splitwise").slo.ttft_slowdown == (("p50", 2.0), ("p90", 3.0), ("p99", 6.0))
    assert len(cell("slo=splitwise").slo.promises) == 9
    assert cell("slo=guidellm_agent").slo.latency_s == (("p99", 5.0),)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("slo.ttft_s=0", "slo.ttft_s=0 is not valid; it must be a number > 0"),
        ("slo.ttft_s=soon", "slo.ttft_s=soon is not valid"),
        ("slo.ttft_s={p100:1}", "slo.ttft_s={'p100': 1} is not valid"),
        ("slo.ttft_s={p0:1}", "is not valid"),
        ("slo.ttft_s={p99:-1}", "is not valid"),
        ("slo.ttft_s={}", "slo.ttft_s={} is not valid"),
        ("slo.ttft_s=true", "slo.ttft_s=True is not valid"),
        ("slo.target=1", "slo.target=1 is not valid; it must be a share of the requests, between 0 and 1, or null"),
        ("slo.warmup_s=-1", "slo.warmup_s=-1 is not valid; it must be a number of seconds >= 0"),
        ("slo.slowdown=1", "slo.slowdown=1 is not valid; it must be true or false"),
        ("slo.ttft=1", "unknown key 'slo.ttft'"),
        ("slo.alone_on=a100", "slo.alone_on=a100 is not valid; it must be hardware, as {hardware/gpu: a100}"),
        ("slo.alone_on={gpus: 3}", "slo.alone_on={'gpus': 3} is not valid; it must be hardware"),
        ("slo.alone_on={hardware: a7}", "unknown hardware 'a7'; valid: "),
        ("slo=chat", "guidellm_chat"),
    ],
)
def test_what_is_not_valid_is_said_in_a_line(override: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        cell(override)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_limit_in_any_form_is_one_key() -> None:
    forms = ("slo.ttft_s={p50:1,p99:2}", "slo.ttft_s={p99:2.0,p50:1.0}", "slo.ttft_s=[[p50,1],[p99,2]]")
    assert len({keys.key(cell(form)) for form in forms}) == 1


# ---------------------------------------------------------------- whether it grows
def test_the_slope_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    come = np.sort(rng.uniform(0, 100, 400))
    gone = come + rng.exponential(10, 400)
    gone[::7] = np.nan
    times = np.linspace(10, 90, 400_001)
    left = np.where(np.isnan(gone), np.inf, gone)
    number = np.searchsorted(come, times, side="right") - np.searchsorted(np.sort(left), times, side="right")
    expected = np.polyfit(times, number, 1)[0]
    assert slope(come, gone, 10.0, 90.0) == pytest.approx(expected, rel=1e-3)


def test_a_cluster_that_cannot_keep_up_has_a_trend() -> None:
    slow, quick = (runs.run(cell(f"rps={rps}", "duration_s=120")).metrics["in_system_trend"] for rps in (60, 6))
    assert slow > 0.3
    assert abs(quick) < 0.05
