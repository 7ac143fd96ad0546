"""Two runs of one stream: the interval of the difference of attainment, by pairs of batches of its requests."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from prebleexp.__main__ import main
from prebleexp.commands import compare as command
from prebleexp.comparison import Measured, Verdict, compare
from prebleexp.intervals import t_quantile
from prebleexp.regression import limit_of
from prebleexp.report.compared import sentence
from prebleexp.service.batches import BATCHES, Stream, half_width

N = 2000
EACH = N // BATCHES


def stream(misses: npt.ArrayLike) -> Stream:
    """Of which so many requests of each batch miss, the first ones."""
    kept = np.concatenate([np.arange(EACH) >= count for count in np.asarray(misses)])
    return Stream(np.arange(float(N)), kept)


def run(name: str, of: Stream, seed: int | None = None) -> Measured:
    ends = {"slo_attainment_low": 0.0, "slo_attainment_high": 1.0}
    share = {"slo_attainment": float(of.kept.mean())}
    return Measured({"policy": name}, seed, share | ends, "", streams={"slo_attainment": of})


def test_it_is_the_t_interval_of_pairs_widened_by_what_neighbours_share() -> None:
    apart = np.tile([0, 8, 2, 6], BATCHES // 4)
    sums = apart - apart.mean()
    assert (sums[1:] * sums[:-1]).sum() < 0, "so nothing is shared"
    plain = t_quantile(BATCHES - 1) * apart.std(ddof=1) * np.sqrt(BATCHES) / N
    assert half_width(stream(apart * 0), stream(apart)) == pytest.approx(plain)
    alike = np.repeat([0, 8, 2, 6, 0], 4)
    sums = alike - alike.mean()
    factor = (sums[1:] * sums[:-1]).sum() / (sums * sums).sum()
    plain = t_quantile(BATCHES - 1) * alike.std(ddof=1) * np.sqrt(BATCHES) / N
    assert half_width(stream(alike * 0), stream(alike)) == pytest.approx(plain * np.sqrt((1 + factor) / (1 - factor)))


def test_bursts_that_both_had_are_in_neithers_favour() -> None:
    """Each side's own interval was as wide as its bursts, so that of a loss of 28 % was ± 103 %."""
    bursts = np.where(np.arange(BATCHES) % 7 == 3, 80, 0)
    worse = stream(bursts + 4 + np.arange(BATCHES) % 2)
    quiet, bursty = (
        half_width(stream(bursts * 0), stream(4 + np.arange(BATCHES) % 2)),
        half_width(stream(bursts), worse),
    )
    assert bursty == pytest.approx(quiet, rel=0.01)
    (cell,) = compare([run("a", stream(bursts))], [run("b", worse)], "slo_attainment").cells
    assert cell.verdict is Verdict.WORSE
    assert cell.together is None
    said = sentence(compare([run("a", stream(bursts))], [run("b", worse)], "slo_attainment"), "a", "b")
    assert said.endswith(
        "There is one stream, whose batches of requests, in pairs, give the interval for others like it."
    )


def test_it_covers_the_truth_of_streams_with_bursts() -> None:
    """Of pairs of runs whose difference is none, hardly more than 5 % are told apart."""
    rng, wrong, rounds = np.random.default_rng(1), 0, 600
    for _ in range(rounds):
        busy = np.where(rng.random(BATCHES) < 0.3, rng.uniform(0.2, 0.8, BATCHES), 0.02)
        a, b = (rng.binomial(EACH, np.clip(busy * rng.uniform(0.8, 1.2, BATCHES), 0, 1)) for _ in range(2))
        one, other = stream(a), stream(b)
        half = half_width(one, other)
        assert half is not None
        wrong += abs(other.kept.mean() - one.kept.mean()) > half
    assert wrong / rounds < 0.06


def test_few_requests_that_fell_out_differently_prove_nothing() -> None:
    """Spread over the batches they would vary less than independent ones, which is luck."""
    some, none = np.arange(BATCHES) % 5 == 2, np.zeros(BATCHES)
    half = half_width(stream(none), stream(some))
    assert half is not None
    assert half > some.sum() / N
    assert half_width(stream(none), stream(none + 1)) < 1 / EACH, "one in each of twenty batches does"


def test_requests_count_that_are_due_on_either_side_and_batches_are_in_their_order() -> None:
    rng = np.random.default_rng(2)
    one, other = stream(rng.integers(0, 30, BATCHES)), stream(rng.integers(0, 30, BATCHES))
    known = half_width(one, other)
    assert half_width(other, one) == known
    shuffled = rng.permutation(N)
    assert half_width(*(Stream(of.due_s[shuffled], of.kept[shuffled]) for of in (one, other))) == pytest.approx(known)
    early = Stream(np.where(one.due_s < N / 2, np.nan, one.due_s), one.kept)
    both = half_width(early, Stream(early.due_s, other.kept))
    cut = half_width(*(Stream(of.due_s[N // 2 :], of.kept[N // 2 :]) for of in (one, other)))
    assert both == pytest.approx(cut)
    assert half_width(early, other) is not None
    assert half_width(one, Stream(other.due_s[1:], other.kept[1:])) is None, "of other requests"
    assert half_width(*(Stream(of.due_s[:49], of.kept[:49]) for of in (one, other))) is None, "too few"


def test_of_one_stream_the_value_decides_and_the_cell_says_unproven() -> None:
    """It passed a loss of 28 %, "not surely so …: more seeds would tell", where p99 TTFT failed by its value."""
    once = np.where(np.arange(BATCHES) == 4, 90, 0)
    found = compare([run("a", stream(once * 0))], [run("b", stream(once))], "slo_attainment")
    (cell,) = found.cells
    assert cell.half_width is not None
    assert cell.half_width > abs(cell.difference or 0)
    assert cell.verdict is Verdict.UNPROVEN
    assert limit_of("slo_attainment:-4%").broken_by(cell)
    assert not limit_of("slo_attainment:-5%").broken_by(cell)
    (line,) = command._broken(found, limit_of("slo_attainment:-4%"))
    assert line.endswith("at the only configuration, of one seed, where the value decides")
    said = sentence(found, "a", "b")
    assert "cannot be told apart" not in said
    assert said.endswith("give the interval for others like it; unproven is where that has zero in it.")


@pytest.mark.slow
def test_runs_of_the_cache_and_of_an_export_have_their_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["rps=40", "duration_s=10", "gpus=2", "report=none", "slo.ttft_s=60ms", "slo.warmup_s=1"]
    assert main(["-m", "policy=lor,random", "sweep.name=kept", *few]) == 0
    for name in ("lor", "random"):
        assert main(["cache", "export", f"{name}.tar", f"policy={name}"]) == 0

    def cell(*words: str) -> dict[str, float]:
        capsys.readouterr()
        assert main(["compare", *words, "output=json", "report=none"]) == 0
        found: dict[str, float] = json.loads(capsys.readouterr().out)["cells"][0]
        return found

    known = cell("lor", "random", "sweep=kept")
    assert known["metric"] == "slo_attainment"
    assert known["half_width_95"] > 0
    assert cell("lor.tar", "random.tar") == known
    assert main(["-m", "policy=lor,random", "sweep.name=bare", *few, "seed=7", "keep_requests=none"]) == 0
    assert cell("lor", "random", "sweep=bare")["half_width_95"] is None
    assert main(["compare", "lor", "random", "sweep=bare", "metric=mean_ttft", "report=none"]) == 0
    assert "with keep_requests=first metric=slo_attainment has one" in capsys.readouterr().err
