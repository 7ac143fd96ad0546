"""Plans for a recording as it came: the interval of one stream, the search, and the command on traces by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.__main__ import main
from prebleexp.errors import significant
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.planning import recorded
from prebleexp.planning.answer import Alone, Answer, Verdict
from prebleexp.planning.contender import Contender
from prebleexp.planning.load import Search
from prebleexp.planning.planned import Planned, others_first
from prebleexp.planning.prices import Prices
from prebleexp.planning.promise import ToKeep
from prebleexp.planning.trials import Question, Sample
from prebleexp.report import planned as report
from prebleexp.report import recorded_plan
from prebleexp.report.evidence import of_several
from prebleexp.report.wording import number
from prebleexp.service import batches
from prebleexp.service.level import ServiceLevel
from tests.support import answers
from tests.support.sampled import examples

QUESTION = Question(target=0.9, strictest=0.9, seeds=1, most_seeds=1, requests=1, most_requests=1)
HERE = ("engine=sglang_2024", "hardware=a6000_mistral_7b")


# ---------------------------------------------------------------- the interval of one stream
def test_a_stream_without_misses_has_the_interval_of_a_count_of_none() -> None:
    """The exact end of a binomial share, with which 400 requests in a row are kept once in forty times."""
    found = batches.between(np.ones(400, bool))
    assert found is not None
    assert (found.high, found.missed, found.first) == (1, 0, 0)
    assert found.low**400 == pytest.approx(0.025)


def test_of_how_many_requests_none_must_miss_for_a_share_to_be_sure() -> None:
    """73 of 73 said 94.95 %, and so never that 95 % is sure: its end was that of a Poisson count."""
    for share, fewest in ((0.9, 36), (0.95, 72), (0.99, 368)):
        assert batches.fewest_sure(share) == fewest
        assert batches.surely(fewest) >= share > batches.surely(fewest - 1)
    found = batches.between(np.ones(73, bool))
    assert found is not None
    assert found.low >= 0.95


def test_independent_misses_have_about_the_interval_of_a_poisson_count() -> None:
    """2 of each batch of 100: 40 misses, of which 28.6 to 54.5 are expected; t of 19 instead of the normal quantile
    widens that by 7 %, and one more cluster of 2 the upper end."""
    kept = np.tile(np.arange(100) >= 2, 20)
    found = batches.between(kept)
    assert found is not None
    assert (1 - found.high) * 2000 == pytest.approx(28.6, abs=1.0)
    assert 54.5 <= (1 - found.low) * 2000 <= 60
    assert (found.missed, found.first) == (20, 0.05)


def test_misses_in_a_row_say_less_than_as_many_apart() -> None:
    apart, together = np.ones(2000, bool), np.ones(2000, bool)
    apart[::50] = False
    together[1000:1040] = False
    ends = [batches.between(one) for one in (apart, together)]
    assert ends[0] is not None and ends[1] is not None  # noqa: PT018
    assert ends[1].high - ends[1].low > 4 * (ends[0].high - ends[0].low)
    assert ends[1].missed == 1
    assert (ends[0].worst, ends[1].worst) == (0.1, 1.0)


def test_what_changes_over_the_stream_widens_the_interval() -> None:
    """The same counts in random order, and sorted: as a day that becomes worse and worse."""
    counts = np.random.default_rng(0).permutation(np.arange(20))
    ends = []
    for order in (counts, np.sort(counts)):
        found = batches.between(np.concatenate([np.arange(100) >= count for count in order]))
        assert found is not None
        ends.append(found.high - found.low)
    assert ends[1] > 1.8 * ends[0]


@pytest.mark.parametrize(("requests", "count"), [(49, 0), (50, 5), (199, 19), (200, 20), (10**6, 20)])
def test_short_streams_have_fewer_batches_or_no_interval(requests: int, count: int) -> None:
    assert batches.count(requests) == count
    assert (batches.between(np.ones(requests, bool)) is None) == (count == 0)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.booleans(), min_size=50, max_size=400))
def test_an_interval_holds_the_share_that_was_kept(kept: list[bool]) -> None:
    found = batches.between(np.array(kept))
    assert found is not None
    assert 0 <= found.low <= np.mean(kept) + 1e-9
    assert found.high <= 1
    assert found.low <= found.high


def test_a_runs_interval_is_over_requests_as_they_were_due_after_the_warm_up() -> None:
    lines = [*HERE, "gpus=2", "rps=30", "duration_s=60", "slo.ttft_s=0.3", "slo.warmup_s=10", "slo.target=0.9"]
    made = runs.run(configure.cells(lines)[0])
    due_s = made.outcome.due_s
    order = np.argsort(due_s, kind="stable")
    order = order[due_s[order] >= 10]
    found = batches.between((made.outcome.ttft_s <= 0.3)[order])
    assert found is not None
    metrics = made.metrics
    assert (metrics["slo_attainment_low"], metrics["slo_attainment_high"]) == (found.low, found.high)
    assert metrics["slo_missed_batches"] == found.missed
    assert metrics["slo_missed_worst"] == found.worst
    assert metrics["slo_margin_low"] is None


def test_of_several_promises_an_end_is_the_least() -> None:
    p90, p99 = {"p90": 1.0}, {"p99": 1.0}
    both = ToKeep.of(ServiceLevel(ttft_s=p90, tpot_s=p99))  # type: ignore[arg-type]
    ends = {"slo_margin_low": -0.02, "slo_margin_high": 0.01, "slo_attainment_low": 0.9, "slo_attainment_high": 0.95}
    assert both.alone(ends) == (-0.02, 0.01)
    assert (both.measure, both.verdict(-0.013)) == ("margin", "breaks the promise by 1.3 points")
    of_each = ToKeep.of(ServiceLevel(ttft_s=p90, tpot_s=0.1, target=0.97))  # type: ignore[arg-type]
    assert of_each.alone(ends) == (pytest.approx(-0.07), pytest.approx(-0.02))
    assert of_each.alone(ends | {"slo_margin_low": None}) is None
    alike = ToKeep.of(ServiceLevel(ttft_s=p90, tpot_s=p90))  # type: ignore[arg-type]
    assert alike.verdict(0.89) == "breaks the promise: 89.0 % of requests are within the worst limit"
    one = ToKeep.of(ServiceLevel(ttft_s=1.0, tpot_s=0.1, target=0.9))
    assert one.verdict(0.9) == "keeps the promise: 90.0 % of requests are within all limits"


# ---------------------------------------------------------------- the search
def solved(search: Search, needs: float, half: float | None = 0.0) -> tuple[Answer, list[float]]:
    """On a share that rises by 0.01 a GPU, and is at the target of 0.9 at `needs`; with the sizes that were tried."""
    tried = []
    asked = next(search)
    while True:
        tried += [one.size for one in asked]
        kept = [0.9 + 0.01 * (one.size - needs) for one in asked]
        ends = [None if half is None else (one - half, one + half) for one in kept]
        try:
            asked = search.send(
                [Sample(*of, None, end, 9, 0.0) for of, end in zip([(k, 1000) for k in kept], ends, strict=True)]
            )
        except StopIteration as over:
            answer: Answer = over.value
            return answer, tried


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 80), st.integers(1, 200), st.integers(0, 5))
def test_it_is_the_fewest_and_others_need_what_their_interval_says(needs: int, guess: int, more: int) -> None:
    found, tried = solved(recorded.fewest(QUESTION, guess, 1000, 2), needs, 0.01 * more + 0.001)
    assert (found.verdict, found.size, found.likely) == (Verdict.FOUND, 2 * needs, 2 * needs)
    assert (found.low, found.high) == (2 * max(1, needs - more), 2 * (needs + more + 1))
    assert len(tried) == len(set(tried)), "a run is asked for once"
    assert found.runs == len(tried)
    assert found.alone is not None
    assert found.alone.ends is not None


def test_who_is_far_from_sure_is_said_to_need_more() -> None:
    found, _ = solved(recorded.fewest(QUESTION, 4, 1000, 1), 10, 0.5)
    assert (found.size, found.low, found.high) == (10, 1, None)


def test_a_short_recording_has_no_interval() -> None:
    found, _ = solved(recorded.fewest(QUESTION, 4, 1000, 1), 10, None)
    assert (found.size, found.low, found.high) == (10, None, None)


def test_no_number_of_gpus_is_enough_for_it() -> None:
    found, _ = solved(recorded.fewest(QUESTION, 4, 8, 1), 100.0)
    assert (found.verdict, found.size, found.alone) == (Verdict.NEVER, None, None)


# ---------------------------------------------------------------- the command
def trace(path: Path, arrivals_s: list[float], prompt: int = 2000, output: int = 2) -> str:
    rows = ({"timestamp": round(at * 1000), "input_length": prompt, "output_length": output} for at in arrivals_s)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"workload.path={path}"


def planned(capsys: pytest.CaptureFixture[str], *lines: str) -> tuple[list[dict[str, object]], str]:
    assert main(["plan", "workload=mooncake", "report=none", "output=json", *HERE, *lines]) == 0
    out, err = capsys.readouterr()
    return json.loads(out), err


def test_three_at_a_time_need_three_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three requests come at once, again and again, and the next three long after. Alone on a GPU each has its token in
    time; two on a GPU have theirs in a third of it more at least, after twice the tokens. So of two GPUs one keeps the
    promise, which is a third of the requests."""
    monkeypatch.chdir(tmp_path)
    path = trace(tmp_path / "threes.jsonl", [20.0 * i for i in range(30) for _ in range(3)])
    alone = runs.run(configure.cells(["workload=mooncake", path, *HERE, "gpus=3", "policy=round_robin"])[0])
    limit = 1.1 * float(alone.outcome.ttft_s.max())
    promise = (path, "policy=round_robin", f"slo.ttft_s={limit}", "slo.target=0.9")
    (row,), said = planned(capsys, *promise)
    assert (row["gpus"], row["kept"], row["below_gpus"]) == (3, 1.0, 2)
    assert row["below_kept"] == pytest.approx(1 / 3)
    assert (row["gpus_low"], row["gpus_high"]) == (3, 3)
    assert "the recording (90 requests, 0.155/s) needs 3 A6000 with round_robin (3 for others like it)" in said
    assert "This is one recorded stream: how other days would be is not known" in said
    assert "come from how much its 9 batches of 10 requests in a row differ" in said


@pytest.mark.slow
def test_the_promise_is_kept_with_the_answer_and_not_with_one_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in range(3):
        gaps = np.random.default_rng(seed).gamma(0.25, 4 / 20, 1500)
        path = trace(tmp_path / f"{seed}.jsonl", list(np.cumsum(gaps)), prompt=1500, output=20)
        level = ("slo.ttft_s=0.6", "slo.target=0.95")
        rows, _ = planned(capsys, path, *level, "policy=lor,round_robin")
        for row in rows:
            count = int(str(row["gpus"]))
            assert count > 1
            lines = ["workload=mooncake", path, *HERE, *level, f"policy={row['policy']}", "workload.load=recorded"]
            cell = configure.cells([*lines, f"gpus={count}"])[0]
            with_it, without = (runs.run(replace(cell, gpus=gpus)).metrics for gpus in (count, count - 1))
            assert with_it["slo_attainment"] == row["kept"]
            assert row["kept"] >= 0.95 > without["slo_attainment"]  # type: ignore[operator]
            assert int(str(row["gpus_low"])) <= count
            assert row["gpus_high"] is None or int(str(row["gpus_high"])) >= count


@pytest.mark.slow
def test_the_cheapest_cluster_is_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three H100 at 3 are dearer than what L40S at 1 are enough, however many more those are; of clusters that are
    given, the one that is not enough comes last though it costs least."""
    monkeypatch.chdir(tmp_path)
    gaps = np.random.default_rng(0).exponential(1 / 40, 800)
    path = trace(tmp_path / "t.jsonl", list(np.cumsum(gaps)), prompt=1500, output=60)
    of = ["workload=mooncake", path, "report=none", "output=json", "engine=vllm", "hardware/model=llama_3_1_8b"]
    level = ["slo.ttft_s=1", "slo.tpot_s=0.05", "slo.target=0.9"]
    assert main(["plan", *of, *level, "hardware/gpu=h100,l40s", "price_per_gpu_hour={h100: 3, l40s: 1}"]) == 0
    rows = json.loads(capsys.readouterr().out)
    costs = [row["cost_per_hour"] for row in rows]
    assert costs == sorted(costs)
    assert all(row["cost_per_hour"] == row["gpus"] * {"h100": 3, "l40s": 1}[row["hardware.gpu"]] for row in rows)
    assert len({row["gpus"] for row in rows}) == 2
    needs = next(row["gpus"] for row in rows if row["hardware.gpu"] == "h100")
    groups = ",".join(f"[{{gpus:{count}}}]" for count in (needs + 2, needs, max(1, needs - 1)))
    cluster = ["hardware/gpu=h100", f"cluster.groups={groups}", "price_per_gpu_hour=3"]
    assert main(["plan", *of, *level, *cluster]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)
    assert [row["gpus"] for row in rows] == [needs, needs + 2, needs - 1]
    assert [row["verdict"] for row in rows] == ["found", "found", "at least"]
    assert f"needs {needs} H100 at {3 * needs:.2f} an hour with {needs} whole; {needs + 2} H100" in err
    assert f"more than {needs - 1} H100" in err


@pytest.mark.slow
def test_the_page_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    path = trace(tmp_path / "t.jsonl", [0.5 * i for i in range(20) for _ in range(3)])
    assert main(["plan", "workload=mooncake", path, *HERE, "slo.ttft_s=1.5", "slo.target=0.9", "policy=lor"]) == 0
    out, _ = capsys.readouterr()
    assert out.split()[:6] == ["policy", "GPUs", "for", "similar", "all", "limits"]
    page = next((tmp_path / "reports").glob("plan-*/index.html")).read_text(encoding="utf-8")
    assert "How many GPUs does this recording take?" in page
    assert "how other days would be is not known" in page
    assert "Points are the recording itself" in page
    assert "The fewest that keep the promise to this very recording" in page


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["gpus=2"], "leave gpus out, and the fewest GPUs for it are searched"),
        (["rps=3", "workload.load=recorded"], "rps does nothing here: workload=mooncake comes when it was recorded"),
        (["duration_s=3", "workload.load=recorded"], "duration_s does nothing here: all of the recording is served"),
        (["duration_s=3"], "gpus and rps: neither given"),
        (["requests=99"], "requests=99: a plan's runs of a recording are all of it"),
        (["slo.target=null"], "slo.target=null: a plan needs the share"),
    ],
)
def test_what_a_recording_has_not_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lines: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = trace(tmp_path / "t.jsonl", [0.5 * i for i in range(20)])
    own = ["slo.ttft_s=1", "slo.target=0.9"] if "slo.target=null" not in lines else ["slo.ttft_s=1"]
    assert main(["plan", "workload=mooncake", path, *HERE, *own, *lines]) == 2
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_few_batches_with_misses_and_few_requests_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    burst = [0.0] * 6 + [100.0 + 10 * i for i in range(94)]
    promise = ("slo.ttft_s=0.8", "slo.target=0.97", "policy=random")
    _, said = planned(capsys, trace(tmp_path / "burst.jsonl", burst), *promise)
    assert "Misses fall into none of 10 batches with random: how often a bad stretch comes cannot be told from" in said
    assert "Routing with random has random draws, which were made once" in said
    _, said = planned(capsys, trace(tmp_path / "few.jsonl", [10.0 * i for i in range(20)]), *promise)
    assert "20 requests are too few for an interval, which takes 50" in said


def test_a_busy_stretch_that_decides_the_interval_is_said(tmp_path: Path) -> None:
    """ "12 H100 (7 to 14)" had one busy stretch in its 20 batches, and nobody may plan with 7."""
    path = trace(tmp_path / "log.jsonl", [1.0 * i for i in range(60)])
    cell = configure.cells(["workload=mooncake", path, *HERE, "slo.ttft_s=1", "slo.target=0.9"])[0]
    of = [
        Planned(
            name,
            {"policy": name},
            Contender(cell, "gpus"),
            answers.answer(4, low=2.0, high=6.0, counted=1000, alone=Alone(0.95, (0.9, 0.99), 12, 0.0, worst)),
        )
        for name, worst in (("lor", 0.64), ("e2", 0.7), ("llmd", 0.2))
    ]
    said = recorded_plan.warnings(of)
    assert any(
        line.startswith("64 % to 70 % of the misses fall into 2 of 20 batches with lor and e2: the interval is that of")
        for line in said
    )
    assert not any("of the misses" in line for line in recorded_plan.warnings(of[2:]))


def busy(path: Path) -> tuple[str, list[float]]:
    """A log of half an hour: one request in 5 s, and in five minutes of it one each half second, a sixth of all."""
    times = sorted([*(5.0 * i for i in range(360)), *(600 + i / 2 for i in range(600))])
    return trace(path, times), times


GROWN = ("policy=lor", "slo.ttft_s=1", "slo.target=0.95", "answer_only=true")


def test_a_recording_at_another_rate_keeps_its_busy_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many GPUs as for a log in which each request is there four times, within a minute; that many more than a
    steady stream of that rate needs."""
    monkeypatch.chdir(tmp_path)
    path, times = busy(tmp_path / "log.jsonl")
    rate = 4 * len(times) / times[-1]
    scaled, said = planned(capsys, path, *GROWN, f"rps={rate}", "seeds=3", "most_seeds=3")
    assert "A recording is one stream: seeds=3 and most_seeds=3 do nothing here" in said
    assert "random draws" not in said, "lor draws nothing"
    assert "Where the copies of its sessions begin, or which sessions are left out, was drawn once" in said
    draws = np.random.default_rng(1)
    true = trace(tmp_path / "four.jsonl", sorted(at + shift for at in times for shift in draws.uniform(0, 60, 4)))
    four, of_four = planned(capsys, true, *GROWN)
    assert not any(word in of_four for word in ("do nothing", "drawn once"))
    assert scaled[0]["gpus"] == four[0]["gpus"]
    assert f"requests, {number(rate)}/s, scaled with its busy hours) needs" in said
    windows, said = planned(
        capsys, path, *GROWN, f"rps={rate}", "duration_s=1200", "seeds=2", "most_seeds=2", "tol=0.2"
    )
    assert int(str(windows[0]["gpus"])) < int(str(scaled[0]["gpus"]))
    first = said.partition("prebleexp: ")[2]
    assert f"its busiest minute is {significant(2.2 / (len(times) / times[-1]))} times its average" in first
    assert "leave duration_s out, and rps= scales all of it with its busy hours" in first


def test_the_greatest_rate_of_a_recording_keeps_its_busy_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path, _ = busy(tmp_path / "log.jsonl")
    (row,), _ = planned(capsys, path, *GROWN, "workload.load=scaled", "gpus=2", "seeds=2", "most_seeds=2", "tol=0.2")
    assert row["verdict"] == "found"
    cells = [f"rps={float(str(row['rps'])) * times}" for times in (0.7, 1.4)]
    lines = ["workload=mooncake", path, *HERE, *GROWN[:-1], "gpus=2", "workload.load=scaled"]
    below, above = (runs.run(configure.cells([*lines, one])[0]).metrics["slo_attainment"] for one in cells)
    assert below >= 0.95 > above  # type: ignore[operator]


def test_a_recording_has_its_n_plus_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = trace(tmp_path / "log.jsonl", [0.25 * i for i in range(600)])
    (row,), said = planned(capsys, path, *GROWN[:-1], "price_per_gpu_hour=2")
    (more,) = [line for line in said.splitlines() if "is lost as the busiest minute begins" in line]
    found = re.search(
        r"the promise is kept in that minute, too, with (\d+) A6000 at (\d+\.\d+) an hour \(N \+ (\d+); "
        r"\d+\.\d % of that minute and \d+\.\d % of all, the lesser (\d+\.\d) % to \d+\.\d %; "
        r"(\d+)(?: to \d+| or more)? for others like it\)",
        more,
    )
    assert found is not None
    assert int(found[3]) == int(found[1]) - int(str(row["gpus"])), "it is called what it is"
    assert int(found[5]) <= int(found[1])
    assert re.search(r"\d % \(\d+\.\d % to \d+\.\d %\) of the \d+ requests of that minute", more), "with its interval"
    assert int(found[1]) > int(str(row["gpus"]))
    assert float(found[2]) == 2 * int(found[1])


PRICES = {"h100": 2.5, "l40s": 0.9}
OF_L40S = ["engine=vllm", "hardware/gpu=l40s", "hardware/model=llama_3_1_8b", "slo.ttft_s=1", "slo.target=0.9"]


def sized(path: str, ends: dict[tuple[str, int], tuple[float, float | None]]) -> list[Planned]:
    """Two routers on H100 in replicas of some sizes; of each the answer and the upper end for others like it."""
    made = []
    for (router, each), (size, high) in ends.items():
        of = ["workload=mooncake", path, "engine=vllm", "hardware/gpu=h100", "hardware/model=llama_3_1_8b"]
        lines = [*of, f"hardware.tensor_parallel={each}", "slo.ttft_s=1", "slo.target=0.9"]
        one = Contender(configure.cells(lines)[0], "gpus")
        found = answers.answer(size, low=size, high=high, alone=Alone(0.95, (0.9, 0.99), 12, 0.0, 0.1))
        at = {"policy": router, "hardware.tensor_parallel": each}
        made.append(Planned(f"{router} tensor_parallel={each}", at, one, found, Prices({"h100": 2.5})))
    return made


def test_what_is_enough_for_others_like_a_recording_is_said_beside_what_is_enough_for_it(tmp_path: Path) -> None:
    """ "2 H100" headed a plan of which others like it need up to 8, and 4 in larger replicas are enough."""
    path = trace(tmp_path / "log.jsonl", [1.0 * i for i in range(60)])
    unsure = {("llmd", 2): (2, 8), ("lor", 2): (2, None)}
    said = report.sentence(sized(path, {**unsure, ("lor", 4): (4, 4), ("llmd", 4): (4, 4)}))
    enough = "Enough for all others like it is 4 H100 (1 replica of 4) at 10.0 an hour with lor and llmd."
    assert enough in said
    assert "Enough for all others like it is 8 H100 (4 replicas of 2)" in report.sentence(sized(path, unsure))
    assert "Enough" not in report.sentence(sized(path, {("lor", 2): (2, 2), ("lor", 4): (4, 4)})), "the first is"
    assert "Enough" not in report.sentence(sized(path, {("lor", 2): (2, None)})), "nobody knows"


def test_gpus_of_several_kinds_have_their_evidence_beside_them(tmp_path: Path) -> None:
    """ "Enough for all others like it is 5 L40S at 4.50", of which nothing was measured, without a word on that."""
    path = trace(tmp_path / "log.jsonl", [1.0 * i for i in range(60)])
    h100, other = sized(path, {("lor", 1): (1, 2), ("llmd", 1): (5, 5)})
    cell = configure.cells(["workload=mooncake", path, *OF_L40S])[0]
    at = {"policy": "llmd", "hardware.gpu": "l40s"}
    l40s = replace(other, name="llmd gpu=l40s", at=at, contender=Contender(cell, "gpus"), prices=Prices(PRICES))
    h100 = replace(h100, at={"policy": "lor", "hardware.gpu": "h100"}, prices=Prices(PRICES))
    theory = "5 L40S at 4.50 an hour with llmd{} (step times: theory only, nothing like it was measured)"
    similar = "1 H100 at 2.50 an hour with lor (1 to 2 for others like it) (step times: not measured itself, other "
    dear = replace(h100, answer=replace(h100.answer, high=8))
    said = report.sentence([dear, l40s])
    assert f"Enough for all others like it is {theory.format('')}." in said
    assert theory.format(" (5 for others like it)") in said
    assert similar.replace("1 to 2", "1 to 8") in said
    assert "step times" not in report.sentence([h100]), "of which the plan says more"
    both = of_several([h100, l40s], [h100, l40s])
    assert both.startswith(" (step times: not measured itself, other models were with ")
    assert "; theory only, nothing like it was measured with " in both


def test_what_survives_a_loss_is_asked_of_other_gpus_before_other_routers(tmp_path: Path) -> None:
    """Of three rivals two were other routers in replicas of 2. Replicas of 4, the cheapest that survive a loss, were
    not asked."""
    path = trace(tmp_path / "log.jsonl", [1.0 * i for i in range(60)])
    ends = {("llmd", 2): (2, 8), ("lor", 2): (2, 8), ("e2", 2): (2, 8), ("lor", 4): (4, 4), ("llmd", 4): (4, 4)}
    of = sized(path, ends)  # type: ignore[arg-type]
    assert [one.name for one in others_first(of)] == [of[i].name for i in (0, 3, 1, 2, 4)]
