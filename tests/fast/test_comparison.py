"""Two sides against each other: pairs, intervals, verdicts and limits, on the command line too."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp import indexing, store
from prebleexp.__main__ import main
from prebleexp.commands import compare as command
from prebleexp.commands import sides
from prebleexp.comparison import Measured, Verdict, compare, metric_of
from prebleexp.errors import InvalidInput
from prebleexp.launch import chosen_options, configs
from prebleexp.launch.from_cache import Options
from prebleexp.regression import Limit, limit_of
from prebleexp.report import compare_page
from prebleexp.report import explained as why
from prebleexp.report.compared import pair, sentence
from prebleexp.report.wording import percent_difference
from prebleexp.service.batches import Stream
from tests.support.pages.hostile import HOSTILE
from tests.support.pages.parsed import Page
from tests.support.sides import METRIC, side


def test_differences_are_paired_and_relative_to_a() -> None:
    # by hand: differences 1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.302653, half-width 4.302653/sqrt(3) = 2.484138
    found = compare(side("a", {4: [10, 20, 30]}), side("b", {4: [11, 22, 33]}), METRIC)
    (cell,) = found.cells
    assert (cell.a, cell.b, cell.seeds) == (20, 22, 3)
    assert cell.difference == pytest.approx(2 / 20)
    assert cell.half_width == pytest.approx(2.484138 / 20, abs=1e-6)
    assert cell.verdict is Verdict.UNDECIDED
    assert found.differs == {"policy": ("a", "b")}
    assert found.common == {"gpus": 4, "rps": 8.0}


@pytest.mark.parametrize(
    ("b", "verdict"),
    [
        ([11, 21.1, 31.2], Verdict.WORSE),
        ([9, 19.1, 28.9], Verdict.BETTER),
        ([10, 20, 30], Verdict.EQUAL),
        ([11, 19, 30], Verdict.UNDECIDED),
        ([50], Verdict.UNPROVEN),
    ],
)
def test_a_verdict_needs_an_interval_without_zero(b: list[float], verdict: Verdict) -> None:
    assert compare(side("a", {4: [10, 20, 30]}), side("b", {4: b}), METRIC).cells[0].verdict is verdict


def test_more_is_better_where_it_is() -> None:
    a, b = ([Measured({}, seed, {"hit_ratio": value + seed / 100}, "") for seed in range(4)] for value in (0.5, 0.6))
    assert (
        compare(a, [*b[:3], Measured({}, 3, {"hit_ratio": 0.64}, "")], "hit_ratio").cells[0].verdict is Verdict.BETTER
    )


def test_what_only_one_side_has_is_counted_and_what_varies_names_a_cell() -> None:
    a, b = side("a", {2: [1, 2], 4: [1, 2], 8: [1, 2]}), side("b", {4: [2, 3], 8: [2, 3], 16: [1, 1]})
    found = compare(a, b, METRIC)
    assert [cell.place for cell in found.cells] == [{"gpus": 4}, {"gpus": 8}]
    assert found.left_out == 2


def test_a_run_that_reads_no_lengths_is_compared_with_every_setting_of_them() -> None:
    """As it is when the README is followed in order: lor, e2, then e2 told true lengths."""
    a = side("lor", {4: [1, 2], 8: [1, 2]})
    b = side("e2", {4: [2, 4], 8: [2, 4]}, lengths="Max") + side("e2", {4: [1, 2], 16: [1, 2]}, lengths="Oracle")
    found = compare(a, b, METRIC)
    places = [{"gpus": 4, "lengths": "Max"}, {"gpus": 4, "lengths": "Oracle"}, {"gpus": 8, "lengths": "Max"}]
    assert [cell.place for cell in found.cells] == places
    assert [cell.difference for cell in found.cells] == [1, 0, 1]
    assert found.left_out == 1
    turned = compare(b, a, METRIC)
    assert [cell.place for cell in turned.cells] == places
    assert turned.left_out == 1


def test_fields_that_only_one_policy_has_tell_the_sides_apart() -> None:
    found = compare(side("a", {4: [1, 2]}), side("b", {4: [1, 2]}, **{"policy.window_s": 180}), METRIC)
    assert found.differs == {"policy": ("a", "b"), "policy.window_s": (None, 180)}


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ([], side("b", {4: [1]}), "A has no runs"),
        (side("a", {4: [1], 8: [1]}), side("b", {2: [1], 16: [1]}), "gpus is 4, 8 in A and 16, 2 in B"),
        (side("a", {4: [None]}), side("b", {4: [1]}), "no seed in common for which both have ttft_p99_s"),
    ],
)
def test_what_cannot_be_compared_says_why(a: list[Measured], b: list[Measured], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        compare(a, b, METRIC)


def test_of_two_runs_of_a_cell_and_seed_the_later_counts() -> None:
    a = [Measured({"gpus": 1}, 0, {METRIC: value}, finished) for value, finished in ((5, "2026-02"), (7, "2026-01"))]
    assert compare(a, [Measured({"gpus": 1}, 0, {METRIC: 5}, "")], METRIC).cells[0].verdict is Verdict.EQUAL


def by_cell(name: str, *cells: Sequence[float | None], **more: Any) -> list[Measured]:
    return side(name, dict(enumerate(cells, 1)), **more)


def test_the_overall_difference_has_the_seeds_as_its_replications() -> None:
    # by hand: of cell 1, relative to 20: 0.05, 0.10, 0.15; of cell 2, relative to 10: -0.10, 0, -0.20; their means by
    # seed: -0.025, 0.05, -0.025: mean 0, s = 0.0433013, half-width 4.302653 s/sqrt(3) = 0.107566
    found = compare(by_cell("a", [10, 20, 30], [10, 10, 10]), by_cell("b", [11, 22, 33], [9, 10, 8]), METRIC)
    assert found.overall is not None
    assert found.overall == (pytest.approx(0, abs=1e-12), pytest.approx(0.107566, abs=1e-6))


def test_the_overall_difference_is_of_seeds_that_all_cells_have() -> None:
    found = compare(by_cell("a", [10, 10, 10], [10, 10]), by_cell("b", [11, 13, 90], [12, 12]), METRIC)
    assert found.overall is not None
    assert found.overall[0] == pytest.approx((0.15 + 0.25) / 2)
    apart = compare(by_cell("a", [10, None], [None, 10]), by_cell("b", [11, 11], [12, 12]), METRIC)
    assert apart.overall is None


LOST, SERVED = {"n_requests": 100, "n_finished": 80, "n_refused": 20}, {"n_requests": 100, "n_finished": 100}


def losing(runs: list[Measured], gpus: int) -> list[Measured]:
    return [replace(run, metrics=run.metrics | (LOST if run.place["gpus"] == gpus else SERVED)) for run in runs]


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (
            by_cell("a", [100, 101, 99], [50, 50, 50], [10, 10, 10]),
            by_cell("b", [112, 113, 110], [54, 55, 53], [9.9, 10, 10.1]),
            "B (e2) is 6.6 ± 1.7 % slower than A (lor) in p99 time to first token, on average over 3 configurations; "
            "one by one, 2 of 3 are worse and 1 undecided, where the 95 % interval of the paired differences has zero "
            "in it. Lower is better.",
        ),
        (
            by_cell("a", [100, 101, 99]),
            by_cell("b", [90, 90.5, 89.5]),
            "B (e2) is 10.0 ± 1.2 % faster than A (lor) in p99 time to first token. Lower is better.",
        ),
        (
            by_cell("a", [100, 101, 99]),
            by_cell("b", [101, 99, 102]),
            "B (e2) and A (lor) cannot be told apart in p99 time to first token: B is 0.7 ± 6.3 % slower. Lower is "
            "better.",
        ),
        (
            by_cell("a", [100]),
            by_cell("b", [130]),
            "B (e2) is 30.0 % slower than A (lor) in p99 time to first token. Lower is better. There is one seed, so "
            "no interval: a difference may be chance; replications=5 gives one.",
        ),
        (
            by_cell("a", [100, 101], [50, 50]),
            by_cell("b", [100, 101], [50, 50]),
            "B (e2) is equal to A (lor) in p99 time to first token; one by one, both are equal. Lower is better.",
        ),
        (
            by_cell("a", [100, 101], [50, 51], [50, 51], [10, 11]),
            by_cell("b", [90, 91], [40, 41], [70, 71], [10, 11]),
            "B (e2) is 10.0 to 19.8 % faster than A (lor) in p99 time to first token in 2 of 4 configurations, and "
            "39.6 ± 0.0 % slower in 1; on average over 4 configurations it is 2.5 ± 0.0 % slower; 1 equal. Lower is "
            "better.",
        ),
        (
            by_cell("a", [100, 101, 100], [0, 0, 0]),
            by_cell("b", [90, 91, 90], [1, 1.1, 1]),
            "B (e2) is 10.0 ± 0.0 % faster than A (lor) in p99 time to first token, on average over 2 configurations; "
            "one by one, 1 of 2 is better and 1 worse. Lower is better.",
        ),
        (
            by_cell("a", [0, 0]),
            by_cell("b", [1, 2]),
            "B (e2) has no relative difference from A (lor) in p99 time to first token, which is 0 in A. Lower is "
            "better.",
        ),
        (
            losing(by_cell("a", [100, 101], [50, 50.5]), 0),
            losing(by_cell("b", [10, 11], [49, 49.5]), 1),
            "B (e2) is 2.0 ± 0.0 % faster than A (lor) in p99 time to first token, on average over the 1 configuration "
            "that can be compared; one by one, 1 of 2 is better and 1 incomparable. Lower is better.",
        ),
        (
            losing(by_cell("a", [100, 101]), 0),
            losing(by_cell("b", [10, 11]), 1),
            "B (e2) and A (lor) cannot be compared in p99 time to first token: one of them lost requests that the "
            "other served. Lower is better.",
        ),
    ],
)
def test_a_comparison_in_a_sentence(a: list[Measured], b: list[Measured], said: str) -> None:
    assert sentence(compare(a, b, METRIC), "lor", "e2") == said


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("hit_ratio", "B (e2) is 20.0 ± 2.5 % higher than A (lor) in hit ratio. Higher is better."),
        ("n_requests", "B (e2) is 20.0 ± 2.5 % higher than A (lor) in requests. Neither more nor less is better."),
    ],
)
def test_a_sentence_says_which_direction_is_better(metric: str, said: str) -> None:
    a, b = ([Measured({}, seed, {metric: value}, "") for seed, value in enumerate(values)]
            for values in ([100, 100, 100], [119, 120, 121]))  # fmt: skip
    assert sentence(compare(a, b, metric), "lor", "e2") == said


VALUES = st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=2, max_size=12)


@given(VALUES)
def test_swapping_the_sides_turns_the_verdict_around(pairs: list[tuple[float, float]]) -> None:
    a, b = (side(name, {4: [pair[i] for pair in pairs]}) for i, name in enumerate("ab"))
    one, other = compare(a, b, METRIC).cells[0], compare(b, a, METRIC).cells[0]
    turned = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    assert turned.get(one.verdict, one.verdict) is other.verdict
    assert one.together == pytest.approx(one.half_width), "of a single cell"


def test_the_limit_for_many_cells_is_seldom_broken_by_chance(capsys: pytest.CaptureFixture[str]) -> None:
    """Thirty cells without a difference, limit 0: of single 95 % intervals one would break it nearly always."""
    random = np.random.default_rng(5)
    rounds, all_at_once, one_by_one = 300, 0, 0
    for _ in range(rounds):
        a, b = (side(name, {gpus: random.normal(100, 10, 5).tolist() for gpus in range(1, 31)}) for name in "ab")
        cells = compare(a, b, METRIC).cells
        all_at_once += any(Limit(METRIC, 0.0).broken_by(cell) for cell in cells)
        one_by_one += any(cell.verdict is Verdict.WORSE for cell in cells)
    with capsys.disabled():
        print(f"\nfalse alarms over 30 equal cells: {all_at_once / rounds:.1%}, singly {one_by_one / rounds:.0%}")
    assert all_at_once / rounds < 0.05
    assert one_by_one / rounds > 0.3


def test_a_limit_is_broken_by_what_is_beyond_it_and_sure() -> None:
    def broken(b: list[float], limit: str) -> bool:
        return limit_of(limit).broken_by(compare(side("a", {4: [10, 20, 30]}), side("b", {4: b}), METRIC).cells[0])

    assert broken([11, 21.1, 31.2], "p99_ttft:+5%")
    assert not broken([10.2, 20.2, 30.2], "p99_ttft:+5%"), "sure, but within"
    assert not broken([30, 10, 40], "p99_ttft:+5%"), "beyond, but chance"
    assert not broken([9, 19.1, 28.9], "p99_ttft:+5%"), "better"
    assert broken([11], "p99_ttft:+5%"), "a single seed has no chance in it to speak of"


def test_metrics_may_be_named_the_way_people_say_them() -> None:
    for text in ("ttft_p99_s", "ttft_p99", "p99_ttft", "p99_ttft_s"):
        assert metric_of(text) == "ttft_p99_s"
    assert metric_of("mean_norm_latency") == "norm_latency_mean_s"
    assert limit_of("p99_ttft:+5%") == Limit("ttft_p99_s", 0.05)
    assert math.copysign(1, limit_of("hit_ratio:-0%").share) == -1
    for text in ("hit_ratio:+2%", "p99_ttft:-5%"):
        with pytest.raises(InvalidInput, match="would fail what is better"):
            limit_of(text)


@pytest.mark.parametrize(
    "text", ["p99_ttft", "p99_ttft:5%", "p99_ttft:+5", "p99_ttft:+x%", "p99_ttft:+inf%", "nope:+5%"]
)
def test_a_limit_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"fail_if=|unknown metric"):
        limit_of(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_name_is_text_on_the_page(name: str) -> None:
    found = pair(name, side(name, {4: [1, 2], 8: [1, 2]}), "b", side("b", {4: [1, 3], 8: [2, 3]}), METRIC)
    shown = Page(compare_page.render([found], name, name, [name]))
    assert shown.text.count(name) >= 6
    data = next(text for text in [compare_page.render([found], name)] if "application/json" in text)
    packed = data.partition('id="data">')[2].partition("</script>")[0]
    assert len(json.loads(packed)) == 2


def test_a_difference_that_is_some_is_not_written_as_none() -> None:
    assert percent_difference(-0.0004, 0.0002) == "−0.04 ± 0.02 %"
    assert percent_difference(-0.0012, 0.0002) == "−0.12 ± 0.02 %"
    assert percent_difference(-0.0012, 0.002) == "−0.1 ± 0.2 %"
    assert percent_difference(0.0, 0.0) == "+0.0 ± 0.0 %"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sweeps."""
    made = tmp_path_factory.mktemp("swept")
    few = ["rps=8,16", "duration_s=3", "gpus=2", "replications=3", "report=none"]
    few.append(f"cache_dir={made}/cache")
    few.append("hardware=a6000_mistral_7b")
    assert main(["-m", "policy=lor,random", "sweep.name=one", "engine=sglang_2024", *few]) == 0
    assert main(["-m", "policy=random", "sweep.name=other", "engine=vllm", *few]) == 0
    return made


@pytest.fixture
def swept(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(folder)
    capsys.readouterr()
    return folder


@pytest.mark.slow
def test_policies_sweeps_and_exports_are_compared_on_the_command_line(
    swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "lor", "random", "sweep=one", "output=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [cell["rps"] for cell in found["cells"]] == [8, 16]
    assert found["differs"]["policy"][1].endswith("random.Random")
    page = (swept / "reports" / "compare-lor-random-one" / "index.html").read_text()
    assert "lor against random" not in page
    assert "random against lor" in page

    assert main(["compare", "one", "other", "policy=random", "report=none", "output=csv"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    for policy in ("lor", "random"):
        assert main(["cache", "export", f"{policy}.tar", f"policy={policy}"]) == 0
    capsys.readouterr()
    engine = ["engine=continuous", "engine.queue=lpm"]
    arguments = ["compare", "lor.tar", "random.tar", *engine, "report=none", "output=json"]
    assert main(arguments) == 0
    assert [cell["a"] for cell in json.loads(capsys.readouterr().out)["cells"]] == [
        cell["a"] for cell in found["cells"]
    ]


@pytest.mark.slow
def test_runs_that_the_database_lacks_are_spoken_of_unless_all_sides_are_files(
    swept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for policy in ("lor", "random"):
        assert main(["cache", "export", f"{policy}.tar", f"policy={policy}", "sweep=one"]) == 0
    keys_of = indexing.keys_of
    monkeypatch.setattr(indexing, "keys_of", lambda cache: {*keys_of(cache), "another"})
    for one, other, said in (("lor", "random", True), ("lor.tar", "random", True), ("lor.tar", "random.tar", False)):
        capsys.readouterr()
        sweep = ["sweep=one"] if said else []
        assert main(["compare", one, other, *sweep, "report=none"]) == 0
        assert ("cached runs are listed" in capsys.readouterr().err) == said


@pytest.mark.thorough
def test_one_is_compared_with_each_of_several(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`compare` took two sides alone, so who tried a rule of his own typed it once for each other router."""
    assert main(["compare", "lor", "random", "random", "sweep=one", "output=csv", "report=none"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("side_a,side_b,rps,")
    assert [line.split(",")[:2] for line in lines[1:]] == [["lor", "random"]] * 2 + [["random", "random"]] * 2
    assert main(["compare", "random", "sweep=one"]) == 0
    assert "B (random) and A (lor) cannot be told apart" in capsys.readouterr().err, "there is one other"
    assert main(["compare", "lor", "lor", "random", "sweep=one"]) == 0
    out, err = capsys.readouterr()
    assert out.split()[:2] == ["random", "against"]
    assert [line.split()[0] for line in out.splitlines()[1:]] == ["lor"] * 4
    assert err.count("random and lor cannot be told apart") == 2
    assert err.count("Lower is better; undecided is where the 95 % interval of the paired differences has zero in") == 1
    assert main(["compare", "rps=8", "rps=16", "rps=16", "sweep=one", "output=json", "report=none"]) == 0
    assert [(one["a"], one["b"]) for one in json.loads(capsys.readouterr().out)] == [
        ("rps=8", "rps=16"),
        ("rps=16", "rps=16"),
    ]
    assert main(["compare", "lor", "lor", "random", "fail_if=p99_ttft:+5%"]) == 2
    assert "fail_if=p99_ttft:+5% is of two sides, not 3: lor lor random" in capsys.readouterr().err


@pytest.mark.slow
def test_a_limit_decides_the_exit_code(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = ["compare", "random", "lor", "sweep=one", "metric=mean_latency"]
    assert main([*two, "fail_if=n_requests:+5%"]) == 0
    assert "fail_if=n_requests:+5%: passed\n" in capsys.readouterr().err
    assert main(["compare", "one", "other", "policy=random", "fail_if=mean_norm_latency:+0%", "seed=0"]) == 0
    assert main(["compare", "other", "one", "policy=random", "fail_if=mean_norm_latency:+1%", "seed=0"]) == 1
    captured = capsys.readouterr()
    assert "fail_if=mean_norm_latency:+1%: norm_latency_mean_s +" in captured.err
    assert "failed" in Page(named("compare-other-one-policy-random-seed-0").read_text()).text


def named(name: str) -> Path:
    """The page of a comparison."""
    return Path("reports") / name / "index.html"


@pytest.mark.slow
def test_two_values_of_a_setting_are_compared(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "engine=sglang_2024", "engine=vllm", "policy=random", "output=json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["differs"]["engine"][1].endswith("VLLM")
    assert [(cell["rps"], cell["seeds"]) for cell in found["cells"]] == [(8, 3), (16, 3)]
    assert "B (engine=vllm) and A (engine=sglang_2024) cannot be told apart" in err
    assert named("compare-engine-sglang_2024-engine-vllm-policy-random").exists()
    assert main(["compare", "rps=8", "rps=16", "sweep=one", "report=none", "output=json"]) == 0
    assert json.loads(capsys.readouterr().out)["differs"] == {"rps": [8, 16]}


@pytest.mark.slow
def test_runs_of_an_option_are_chosen_by_its_name(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """policy=lor found nothing, as its class is called LeastOutstanding; `compare --help` has it as an example."""
    assert main(["compare", "rps=8", "rps=16", "sweep=one", "policy=lor", "report=none", "output=json"]) == 0
    assert json.loads(capsys.readouterr().out)["common"]["policy"].endswith("LeastOutstanding")
    assert main(["compare", "rps=8", "rps=16", "policy=lor,random", "report=none", "output=json"]) == 0
    assert main(["compare", "lor", "random", "engine=vllm"]) == 2
    assert capsys.readouterr().err.endswith("lor with engine=vllm: prebleexp cache ls lists them all\n")


@pytest.mark.slow
def test_sweeps_that_are_pooled_are_named(swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`random` is in both sweeps, with another engine in the second; lor in the first alone."""
    said = "runs of 2 sweeps are pooled: one (12) and other (6); sweep=NAME takes one"
    assert main(["compare", "lor", "random"]) == 0
    assert f"prebleexp: {said}\n" in capsys.readouterr().err
    assert f"R{said[1:]}." in Page(named("compare-lor-random").read_text()).text
    for one in ("lor random sweep=one", "lor random engine=continuous", "one other policy=random"):
        assert main(["compare", *one.split(), "report=none"]) == 0
        assert "pooled" not in capsys.readouterr().err


@pytest.mark.slow
def test_an_export_is_of_no_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cache export a.tar sweep=one` and `compare a.tar b.tar` named other sweeps, which have the same runs too."""
    monkeypatch.chdir(tmp_path)
    for sweep in ("one", "two"):
        few = ("rps=4", "duration_s=2", "gpus=2", "report=none", f"sweep.name={sweep}")
        assert main(["-m", "policy=lor,random", *few]) == 0
    for policy in ("lor", "random"):
        assert main(["cache", "export", f"{policy}.tar", "sweep=one", f"policy={policy}"]) == 0
    assert main(["compare", "lor.tar", "random.tar", "report=none"]) == 0
    assert "pooled" not in capsys.readouterr().err
    assert main(["compare", "lor", "random", "report=none"]) == 0
    assert "runs of 2 sweeps are pooled" in capsys.readouterr().err


@pytest.mark.slow
def test_pages_of_other_sweeps_metrics_and_settings_are_other_pages(
    swept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page of a metric took the place of the one before, in silence."""
    for more, name in (
        (["sweep=one"], "one"),
        (["sweep=one", "metric=p99_ttft"], "one-ttft_p99_s"),
        (["sweep=one", "fail_if=hit_ratio:-2%"], "one-hit_ratio"),
        (["sweep=one", "gpus=2", "rps=8,16"], "one-gpus-2-rps-8-16"),
    ):
        page = named(f"compare-random-lor-{name}")
        assert not page.exists()
        main(["compare", "random", "lor", *more])
        assert page.exists()
        assert str(page) in capsys.readouterr().err


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lor"], "compare takes two of: a policy, a line, a sweep, the file of an export; or two values of a setting"),
        (["engine=vllm"], "compare takes two of"),
        (["engine=vllm", "engine=vlm"], "unknown engine 'vlm'; valid: sglang_2024, vllm. Did you mean 'vllm'?"),
        (["colour=red", "colour=blue"], "colour=red: no run has a setting colour"),
        (["lor", "random", "gpus=2", "gpus=4"], "a setting is given twice: gpus=2 gpus=4"),
        (["lor", "nope"], "unknown policy, line or sweep 'nope'; valid: lor, one, other, random."),
        (["lor", "random", "gpsu=2"], "unknown key 'gpsu'"),
        (["lor", "random", "metric=speed"], "unknown metric 'speed'"),
        (["lor", "random", "output=xml"], "output=xml is not valid"),
        (["lor", "random", "sweep=two"], "unknown sweep 'two'; valid: one, other."),
        (["lor", "random", "part=x"], "part belong to a sweep of several parts"),
        (["lor", "random", "cache_dir=nowhere"], "no database nowhere/prebleexp.duckdb"),
        (["lor", "random", "fail_if=5%"], "fail_if=5% is not valid"),
        (["lor", "random", "gpus=64"], "there is no run of lor with gpus=64: prebleexp cache ls lists them all"),
        (["lor", "random", "replications=9"], "replications= is for sweeps: compare takes the runs that are there"),
        (["lor", "random", "metric=ttft_p9"], "Did you mean 'ttft_p9"),
        (["README.md", "random"], "is no archive of runs"),
        (["x" * 5000, "random"], "unknown policy, line or sweep 'xxx"),
    ],
)
def test_bad_input_is_one_line(
    swept: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (swept / "README.md").write_text("no archive")
    assert main(["compare", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


def test_a_policy_whose_runs_all_failed_is_not_called_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was "unknown policy, line or sweep 'mine'" after `policy=lor,mine` had tried it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "cache" / "prebleexp.duckdb"
    path.parent.mkdir()
    run = {"key": "a", "policy": "lor", "gpus": 1}
    failed = {"key": "b", "policy": "mine", "error_message": "policy Mine: it does not compile"}
    store.load(path, [run], {}, [failed])
    monkeypatch.setattr(indexing, "refresh", lambda cache: None)
    assert main(["compare", "mine", "lor"]) == 2
    assert (
        "mine has no run to compare: all that were tried failed, with: policy Mine: it does not compile"
        in capsys.readouterr().err
    )


def test_runs_with_limits_are_compared_by_these() -> None:
    def runs(*attainments: float | None) -> list[sides.Run]:
        return [sides.Run("", Measured({}, 0, {"slo_attainment": one}, ""), {}, {}) for one in attainments]

    assert command._usual([runs(0.9, 1.0), runs(0.8)]) == "slo_attainment"
    assert command._usual([runs(0.9, None), runs(0.8)]) == "norm_latency_mean_s"


def test_a_damaged_database_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "prebleexp.duckdb").write_bytes(b"no database" * 1000)
    assert main(["compare", "lor", "e2"]) == 1
    error = capsys.readouterr().err
    assert "is not usable" in error
    assert len(error.splitlines()) == 1


def test_a_side_that_draws_nothing_is_the_same_for_every_seed_of_the_other() -> None:
    drawn = [Measured({"policy": "llmd"}, seed, {"ttft_mean_s": 1.0 + seed / 10}, "") for seed in range(3)]
    still = [Measured({"policy": "lor"}, None, {"ttft_mean_s": 1.0}, "")]
    (cell,) = compare(still, drawn, "ttft_mean_s").cells
    assert (cell.seeds, cell.a) == (3, 1.0)
    assert cell.b == pytest.approx(1.1)
    (turned,) = compare(drawn, still, "ttft_mean_s").cells
    assert turned.seeds == 3
    assert turned.a == pytest.approx(1.1)


def test_a_metric_whose_quantile_stands_in_front_is_found_though_it_is_misspelt() -> None:
    with pytest.raises(InvalidInput, match=r"Did you mean 'ttft_p99_s'\?"):
        metric_of("p99_tftt")


# ---------------------------------------------------------------- what else differs, whose fields, one stream
def explained(name: str, levels: list[float], computed: float) -> list[Measured]:
    metrics = [{METRIC: level, "computed_tokens_mean": computed + i / 10} for i, level in enumerate(levels)]
    return [Measured({"policy": name, "gpus": 4}, i, one, "") for i, one in enumerate(metrics)]


def test_what_else_differs_is_said_where_the_two_surely_do() -> None:
    lor, mine = explained("lor", [100, 101, 99], 640.0), explained("mine", [149, 150, 152], 890.0)
    found = pair("lor", lor, "mine", mine, METRIC)
    assert found.why.startswith("mine and lor also surely differ in prompt tokens computed per request (890 against")
    assert found.why.endswith("that may be why, but does not prove it")
    assert f"{found.why}." in compare_page.render([found], "")
    undecided = pair("lor", lor, "mine", explained("mine", [90, 110, 101], 890.0), METRIC)
    assert not undecided.why
    assert not pair("lor", lor, "mine", explained("mine", [149, 150, 152], 640.0), METRIC).why, "nothing else differs"
    other_way = pair("lor", lor, "mine", explained("mine", [149, 150, 152], 410.0), METRIC)
    assert other_way.why == (
        "Of what else surely differs between mine and lor, prompt tokens computed per request (410 against 640) "
        "points the other way"
    )


def test_what_speaks_for_the_one_that_is_worse_is_not_called_why() -> None:
    levels = [
        why.Level("computed_tokens_mean", 400, 600),
        why.Level("computed_tokens_p99", 900, 700),
        why.Level("hit_ratio", 0.9, 0.8),
    ]
    assert why.sentence("mine", "lor", True, levels) == (
        "mine and lor also surely differ in prompt tokens computed per request (400 against 600) and hit ratio (0.900 "
        "against 0.800); that may be why, but does not prove it; their p99 (900 against 700) points the other way"
    )


def test_means_over_values_of_a_field_are_of_no_router() -> None:
    """`compare lor mine` averaged all values of policy.slack that were ever tried, and named that "mine"."""

    def runs(name: str, *slacks: int) -> list[sides.Run]:
        texts = [{"policy": name} | ({"policy.slack": str(slack)} if slack else {}) for slack in slacks]
        return [sides.Run(f"{name}{i}", Measured({}, 0, {}, ""), asked, {}) for i, asked in enumerate(texts)]

    said = "mine has 3 values of policy.slack (4, 8, 16): policy.slack=4 takes one"
    assert sides.several("mine", runs("mine", 16, 4, 8, 4), runs("lor", 0)) == said
    assert not sides.several("mine", runs("mine", 16, 16), runs("lor", 0))
    assert not sides.several("mine", runs("mine", 16, 4), runs("mine", 4, 16)), "these tell cells apart"
    assert "(1, 2, 3, 4, …)" in sides.several("mine", runs("mine", 5, 4, 3, 2, 1), runs("lor", 0))


def test_one_stream_without_an_interval_names_what_has_one() -> None:
    """It said "undecided … one seed, so no interval", and a recording has no other seeds."""

    of = {"slo_attainment": Stream(np.arange(100.0), np.arange(100) % 3 > 0)}

    def said(seed: int | None, streams: Mapping[str, Stream] = of, **ends: float) -> str:
        a, b = (
            [Measured({"policy": name}, seed, {METRIC: at, **ends}, "", streams)]
            for name, at in (("a", 1.0), ("b", 2.0))
        )
        return sentence(compare(a, b, METRIC), "a", "b").partition("may be chance; ")[2]

    batches = "metric=slo_attainment has one, of batches of the stream."
    ends = {"slo_attainment": 0.9, "slo_attainment_low": 0.8, "slo_attainment_high": 1.0}
    assert said(None, **ends) == batches
    assert said(None, {}, **ends) == f"with keep_requests=first {batches}"
    assert said(None, {}) == f"with limits, as slo.ttft_s=500ms, {batches}"
    assert said(0, **ends) == f"replications=5 gives one and {batches}"
    assert said(0, {}) == "replications=5 gives one."


def test_the_page_has_units_and_no_null() -> None:
    a = side("a", {4: [0.1, 0.11], 8: [0.2, 0.21]}, **{"lengths": None})
    b = side("b", {4: [0.2, 0.22], 8: [0.3, 0.32]}, **{"lengths": "prebleexp.lengths.known.Max"})
    shown = compare_page.render([pair("a", a, "b", b, METRIC)], "")
    assert ">A, ms</th>" in shown
    assert ">B, ms</th>" in shown
    assert "null" not in Page(shown).text
    assert "A: –B: Max" in "".join(Page(shown).text.split("\n"))
    three = compare_page.render([pair("a", a, "b", b, METRIC), pair("c", side("c", {4: [1, 2]}), "b", b, METRIC)], "")
    assert "b against a and c" in Page(three).text


def test_a_page_says_options_and_not_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "VLLM, FewShot", and that lengths differed, "A: –, B: Max", where nobody had set any."""
    monkeypatch.chdir(tmp_path)
    small = ["gpus=2", "rps=2", "duration_s=3", "replications=2", "engine=vllm", "report=none"]
    assert main(["-m", "policy=lor,e2", *small, "sweep.name=both"]) == 0
    assert main(["compare", "lor", "e2", "sweep=both"]) == 0
    page = (tmp_path / "reports" / "compare-lor-e2-both" / "index.html").read_text(encoding="utf-8")
    assert "vllm, " in page
    differs, same = (page.partition(head)[2] for head in ("What differs", "The same in all cells"))
    differs = differs[: differs.index("The same in all cells")]
    assert "A: lor<br>B: e2" in differs
    assert ">lengths<" not in differs
    assert "max by default" in same
    assert not re.search(r"\b(VLLM|LeastOutstanding|E2Policy)\b", differs + same)
    paths = {one: config["_target_"] for one, config in Options(configs.loader()).configs("policy").items()}
    of = [("policy", paths[name]) for name in ("llmd", "lor")]
    assert chosen_options.by_class(of, ["llmd"]) == {paths["llmd"]: "llmd", paths["lor"]: "lor"}
    assert paths["llmd"] not in chosen_options.by_class(of, []), "of which there are two options"
