"""GPUs, replicas, GPU-hours and prices against counts by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.experiment import counting, runs
from prebleexp.experiment.cell import Cell
from prebleexp.faults.rates import Rates
from prebleexp.launch import configure
from prebleexp.planning.prices import Prices
from prebleexp.report.wording import number

SMALL = ("hardware/model=llama_3_1_8b", "hardware/gpu=h100", "policy=lor", "engine=vllm", "rps=8", "duration_s=2")
PRICES = Prices({"a100": 1.0, "h100": 2.0, "h200": 3.0})
P2 = "{gpus: 4, role: prefill, hardware.tensor_parallel: 2}"
TP2, TP4 = "hardware.tensor_parallel=2", "hardware.tensor_parallel=4"


def cell(*overrides: str) -> Cell:
    return configure.cells([*SMALL, *overrides])[0]


def groups(*each: str, roles: bool = False) -> tuple[str, ...]:
    return (*(("cluster=disaggregated",) if roles else ()), f"cluster.groups=[{', '.join(each)}]")


BY_HAND: list[tuple[tuple[str, ...], int, int, float]] = [
    # overrides, GPUs, replicas, price of an hour
    (("gpus=3",), 3, 3, 6.0),
    (("replicas=3",), 3, 3, 6.0),
    (("gpus=8", TP2), 8, 4, 16.0),
    (("replicas=4", TP2), 8, 4, 16.0),
    (("gpus=8", "replicas=4", TP2), 8, 4, 16.0),
    (("gpus=4", TP4), 4, 1, 8.0),
    (("replicas=3", TP4), 12, 3, 24.0),
    (("gpus=8", "hardware.tensor_parallel=8", "hardware/gpu=h200"), 8, 1, 24.0),
    (("hardware/gpu=a100", TP2), 8, 4, 8.0),  # of the usual eight
    (groups("{gpus: 4, hardware/gpu: h200}", "{gpus: 4}"), 8, 8, 20.0),
    (groups("{gpus: 4, hardware/gpu: h200, hardware.tensor_parallel: 2}", "{gpus: 4}"), 8, 6, 20.0),
    (groups("{replicas: 2, hardware.tensor_parallel: 4}", "{replicas: 3}"), 11, 5, 22.0),
    (groups("{replicas: 1, hardware/gpu: a100, hardware.tensor_parallel: 2}", "{replicas: 2}"), 4, 3, 6.0),
    (groups(P2, "{gpus: 4, role: decode}", roles=True), 8, 6, 16.0),
    (groups(P2, "{gpus: 4, role: decode, hardware/gpu: h200}", roles=True), 8, 6, 20.0),
    (
        groups("{gpus: 4, role: prefill}", "{replicas: 1, role: decode, hardware.tensor_parallel: 4}", roles=True),
        8,
        5,
        16.0,
    ),
    ((*groups("{replicas: 2, role: prefill}", "{replicas: 2, role: decode}", roles=True), TP2), 8, 4, 16.0),
    (("hardware=h100_tp2_llama3_70b", "gpus=4"), 4, 2, 8.0),
    (("hardware=a100_tp2_llama3_70b", "replicas=3"), 6, 3, 6.0),
    (("cluster=tiered", "gpus=4", TP2), 4, 2, 8.0),
    (("cluster=migrating", "replicas=2", TP2), 4, 2, 8.0),
]


@pytest.mark.slow
@pytest.mark.parametrize(("overrides", "gpus", "replicas", "an_hour"), BY_HAND)
def test_gpus_hours_and_price_are_those_counted_by_hand(
    overrides: tuple[str, ...], gpus: int, replicas: int, an_hour: float
) -> None:
    given = [one for one in SMALL if not (one.startswith("hardware/") and "hardware=" in " ".join(overrides))]
    one = configure.cells([*given, *overrides])[0]
    assert (one.gpus, one.replicas) == (gpus, replicas)
    assert (one.columns()["gpus"], one.columns()["replicas"]) == (gpus, replicas)
    assert PRICES.an_hour(one) == an_hour
    run = runs.run(one)
    assert len(run.outcome.gpu_on_s) == replicas
    assert run.metrics["gpu_hours"] == pytest.approx(gpus * run.outcome.end_s / 3600, rel=1e-12)
    assert run.metrics["n_finished"] == run.metrics["n_requests"] > 0


def test_a_replica_that_is_down_takes_all_its_gpus_along() -> None:
    """Of six GPUs two are down for the second from 1 to 2."""
    happen = "faults.happen=[{at_s: 1, gpu: 0, event: down}, {at_s: 2, gpu: 0, event: up}]"
    kinds = groups("{gpus: 2, hardware.tensor_parallel: 2}", "{gpus: 4}")
    run = runs.run(cell("faults=timeline", happen, *kinds, "slo.ttft_s=10"))
    end_s = run.outcome.end_s
    assert run.metrics["gpu_hours"] == pytest.approx((6 * end_s - 2) / 3600, rel=1e-12)
    assert run.metrics["availability"] == pytest.approx(1 - 2 / (6 * end_s), rel=1e-12)
    assert run.metrics["goodput_per_gpu_s"] == pytest.approx(run.metrics["goodput_per_s"] / 6, rel=1e-12)


def test_a_replica_is_lost_with_the_first_of_its_gpus() -> None:
    """Lives of one GPU, over the number of GPUs: a minimum of exponential times."""
    rates = Rates(mtbf_h=0.01)
    alone = [one for one in rates.events(3, 1e4, 5) if one.event == "down"]
    assert rates.of_replicas([1, 1, 1]) is rates
    grouped = [one for one in rates.of_replicas([1, 2, 4]).events(3, 1e4, 5) if one.event == "down"]
    for g, each in enumerate((1, 2, 4)):
        first, other = (next(one.at_s for one in of if one.gpu == g) for of in (alone, grouped))
        assert other == pytest.approx(first / each)
    many = [len([1 for one in rates.of_replicas([n] * 50).events(50, 600.0, 1) if one.event == "down"]) for n in (1, 4)]
    assert many[1] > many[0]
    often = ("faults=rates", "faults.mtbf_h=0.001", "faults.mttr_h=0.0001", "gpus=8")
    one, four = (runs.run(cell(*often, *more)).metrics["availability"] for more in ((), (TP4,)))
    assert four < one < 1


def test_a_rate_for_each_gpu_is_for_all_of_them() -> None:
    given = [one for one in SMALL if not one.startswith("rps")]
    assert configure.cells([*given, "replicas=4", TP2, "rps_per_gpu=3"])[0].rps == 24


REFUSED = {
    ("gpus=7", TP2): "gpus=7 is not valid with hardware.tensor_parallel=2; it must be a multiple of 2, such as 6 or 8",
    ("gpus=2", TP4): "gpus=2 is not valid with hardware.tensor_parallel=4; it must be a multiple of 4, such as 4",
    ("gpus=8", "replicas=3", TP2): "gpus=8 is not valid with replicas=3 and hardware.tensor_parallel=2: these are 6; "
    "give one of the two",
    ("gpus=8", "replicas=3"): "gpus=8 is not valid with replicas=3: these are 3; give one of the two",
    ("replicas=0",): "replicas=0 is not valid; it must be an integer from 1 to 4096",
    ("replicas=2000", TP4): "replicas=2000 is not valid; it must be an integer from 1 to 1024",
    groups("{gpus: 3, hardware.tensor_parallel: 2}"): "cluster.groups: gpus=3 is not valid with "
    "hardware.tensor_parallel=2; it must be a multiple of 2, such as 2 or 4",
    ("gpus=8", TP2, "faults=timeline", "faults.happen=[{at_s: 1, gpu: 4, event: down}]"): "faults.happen[0]: gpu=4 is "
    "not valid; it must be an integer from 0 to 3, as there are 4 replicas",
    ("gpus=8", TP2, "autoscaler=hpa", "autoscaler.initial=5"): "autoscaler wants 5 replicas at the beginning, and "
    "there can be 4; take more GPUs",
}


@pytest.mark.parametrize("overrides", REFUSED)
def test_what_does_not_divide_gets_one_line(overrides: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        cell(*overrides)
    assert str(caught.value) == REFUSED[overrides]


def test_machines_of_splitwise_are_eight_gpus() -> None:
    one = configure.cells(["engine=splitwise", "replicas=40"])[0]
    assert (one.gpus, one.replicas, counting.words(one)) == (320, 40, "320 GPUs (40 replicas of 8)")
    with pytest.raises(
        InvalidInput, match="gpus=12 is not valid with engine=splitwise, whose machines have 8; it must"
    ):
        configure.cells(["engine=splitwise", "gpus=12"])
    with pytest.raises(InvalidInput, match="has no price of GPUs whose kind is not known; it has a100"):
        PRICES.an_hour(one)
    assert Prices(2.0).an_hour(one) == 640


def test_a_price_is_missing_or_is_none() -> None:
    with pytest.raises(InvalidInput, match="price_per_gpu_hour has no price of h100; it has h200; give one"):
        Prices({"h200": 3.0}).an_hour(cell())
    for wrong in ({}, {"h100": 0.0}, -1.0, {"h100": "x"}):
        with pytest.raises(InvalidInput, match="is not valid; it must be a number > 0, or one for each kind"):
            Prices(wrong)  # type: ignore[arg-type]


def test_words() -> None:
    of = {
        ("gpus=1",): ("1 GPU", "1 H100"),
        ("gpus=4", TP2): ("4 GPUs (2 replicas of 2)", "4 H100 (2 replicas of 2)"),
        ("gpus=4", TP4): ("4 GPUs (1 replica of 4)", "4 H100 (1 replica of 4)"),
        groups(P2, "{gpus: 4, role: decode}", roles=True): (
            "8 GPUs (2 replicas of 2, 4 replicas of 1)",
            "4 H100 (2 replicas of 2) for prefill + 4 H100 for decode",
        ),
    }
    assert {given: (counting.words(cell(*given)), counting.named(cell(*given))) for given in of} == of


# ---------------------------------------------------------------- keys
def test_a_key_says_replicas_only_where_they_are_not_the_gpus() -> None:
    assert "replicas" not in cell("gpus=4").identity()
    assert cell("replicas=4").identity() == cell("gpus=4").identity()
    assert {"gpus": 8, "replicas": 4}.items() <= cell("gpus=8", TP2).identity().items()


def test_runs_of_before_are_read_as_the_replicas_that_they_said() -> None:
    for given in (("gpus=8", TP2), groups(P2, "{gpus: 4, role: decode}", roles=True), ("gpus=3",)):
        today = json.loads(json.dumps(cell(*given).identity()))
        before = json.loads(json.dumps(today))
        _as_before(before)
        assert counting.counted(before) == counting.counted(today) == today
    splitwise = configure.cells(["engine=splitwise", "replicas=5"])[0].identity()
    before = {name: value for name, value in splitwise.items() if name != "replicas"} | {"gpus": 5}
    assert counting.counted(before) == splitwise


def _as_before(one: dict[str, Any]) -> None:
    one["gpus"] = one.pop("replicas", one["gpus"])
    cluster = one.get("cluster", ())
    for group in cluster["groups"] if isinstance(cluster, dict) else cluster:
        group["gpus"] = group.pop("replicas", group["gpus"])


# ---------------------------------------------------------------- tables, SQL, Python
def test_tables_json_and_sql_have_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = [*SMALL, "report=none"]
    assert main([*small, TP2, "gpus=4"]) == 0
    assert capsys.readouterr().out.startswith("lor on 4 GPUs (2 replicas of 2) at 8 requests/s for 2 s ")
    assert main(["-m", *small, "replicas=2", "hardware.tensor_parallel=1,2"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["gpus", "hardware.tensor_parallel"]
    assert [line.split()[:2] for line in lines[:2]] == [["2", "1"], ["4", "2"]]
    assert main(["-m", *small, "replicas=1,2", TP2, "output=json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["gpus"], row["replicas"]) for row in rows] == [(2, 1), (4, 2)]
    assert main(["sql", "select distinct gpus, replicas from results order by all", "output=json"]) == 0
    found = [(row["gpus"], row["replicas"]) for row in json.loads(capsys.readouterr().out)]
    assert found == [(2, 1), (4, 2)]
    assert main(["sql", "select distinct gpus, replicas from runs order by all", "output=json"]) == 0
    found = [(row["gpus"], row["replicas"]) for row in json.loads(capsys.readouterr().out)]
    assert found == [(2, 1), (2, 2), (4, 2)]
    assert main(["cache", "ls", "gpus=4", "output=json"]) == 0
    assert {row["replicas"] for row in json.loads(capsys.readouterr().out)} == {2}


# ---------------------------------------------------------------- plans
PLAN = ("slo.ttft_s=0.5", "slo.target=0.9", "requests=400", "seeds=2", "most_seeds=2", "tol=0.2")
MADE = ("hardware/model=llama_3_1_8b", "hardware/gpu=h100", "policy=lor", "engine=vllm")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_a_plan_counts_gpus_in_steps_of_a_replica(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    price = "price_per_gpu_hour={h100: 2.5}"
    command = ["plan", "rps=200", "hardware.tensor_parallel=1,4", *MADE, *PLAN, price]
    assert main([*command, "output=json", "report=none"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["hardware.tensor_parallel"] for row in rows} == {1, 4}
    for row in rows:
        each = row["hardware.tensor_parallel"]
        assert row["gpus"] == row["replicas"] * each
        assert row["gpus_likely"] % each == 0
        assert row["cost_per_hour"] == 2.5 * row["gpus"]
        assert row["gpu_hours_per_million"] == pytest.approx(row["gpus"] / 200 * 1e6 / 3600)
        assert row["cost_per_million"] == pytest.approx(2.5 * row["gpu_hours_per_million"])
    assert main(command) == 0
    said = capsys.readouterr()
    assert said.out.splitlines()[0].split()[:4] == ["policy", "tensor_parallel", "GPUs", "on"]
    four = next(row for row in rows if row["hardware.tensor_parallel"] == 4)
    plural = "" if four["replicas"] == 1 else "s"
    where = f"{four['gpus']} H100 ({four['replicas']} replica{plural} of 4) at {number(four['cost_per_hour'])} an hour"
    words = f"{where} with tensor_parallel=4"
    assert words in said.out
    page = next((here / "reports").glob("plan-*/index.html")).read_text(encoding="utf-8")
    assert words in page


@pytest.mark.slow
def test_a_plan_of_a_load_says_of_which_gpus(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "replicas=2", TP2, *MADE, *PLAN, "price_per_gpu_hour=3"]) == 0
    said = capsys.readouterr()
    assert "4 H100 (2 replicas of 2) bear " in said.out
    page = next((here / "reports").glob("plan-*/index.html")).read_text(encoding="utf-8")
    assert "How large a load do 4 H100 (2 replicas of 2) bear?" in page
    frame = prebleexp.plan(["gpus=4", TP2, *MADE, *PLAN[:2]], requests=400, seeds=2, most_seeds=2, tol=0.2).frame()
    assert (frame["gpus"][0], frame["replicas"][0]) == (4, 2)
    assert frame["gpu_hours_per_million"][0] == pytest.approx(4 / frame["rps"][0] * 1e6 / 3600)


@pytest.mark.slow
def test_contenders_are_ordered_by_gpus_or_by_money(here: Path) -> None:
    """Two H200 bear what three A100 do, at three times the price of one."""
    given = ["gpus=4", "hardware/gpu=a100,h200", *MADE[:1], *MADE[2:], *PLAN[:2]]
    of: dict[str, Any] = {"requests": 400, "seeds": 2, "most_seeds": 2, "tol": 0.2}
    by_gpus, by_money = (
        prebleexp.plan(given, **of, price_per_gpu_hour=price).frame()["hardware.gpu"].tolist()
        for price in (None, {"a100": 0.1, "h200": 100.0})
    )
    assert (by_gpus[0], by_money[0]) == ("h200", "a100")


def test_what_a_cluster_has_is_not_searched_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "rps=8", "cluster=two_kinds", *MADE[:1], *MADE[2:], *PLAN]) == 2
    assert (
        "cluster.groups have 8 GPUs, so there is no number of GPUs to search for; say gpus=8" in capsys.readouterr().err
    )
