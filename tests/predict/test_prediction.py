"""Predictions in a simulation: a workload that carries them, policies that are told, what asking costs.

None of it needs the libraries that predictors are trained with.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prebleexp
from prebleexp import metrics
from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.experiment import runs
from prebleexp.experiment.key import key
from prebleexp.launch import configure
from prebleexp.lengths.binned import Binned, packaged
from prebleexp.lengths.predicted import Predicted
from prebleexp.overhead.model import Overhead
from prebleexp.paper.quality import ALL_LOADS, with_regret
from prebleexp.sim.types import COLUMNS
from prebleexp.workloads.instructions import PACKAGED, Instructions
from prebleexp.workloads.output_length import OutputLength
from tests import train_predictors
from tests.support.predictors import parquet

CONSTANT = OutputLength((150,), (1.0,))
NARROW = ("gpus=2", "rps=8", "duration_s=10", "workload=instructions")
PREDICTORS = ("minilm", "minilm-width", "prompt_features", "prompt_features-width", "tfidf", "tfidf-width")


def cell(*overrides: str) -> Any:
    return configure.cells([*NARROW, *overrides])[0]


# ---------------------------------------------------------------- the workload
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**63 - 1), st.integers(1, 200))
def test_requests_are_rows_of_the_evaluation(seed: int, n: int) -> None:
    """Prompt length, output length and predictions of a request come from one row."""
    table = pq.read_table(PACKAGED).to_pydict()
    known = set(zip(*(table[name] for name in ("prompt_tokens", "output_tokens", *PREDICTORS)), strict=True))
    source = Instructions()
    made = source.draw(rps=10, duration_s=n / 10, seed=seed, output_length=CONSTANT)
    shared = source.common_tokens + source.instruction_tokens + source.examples * source.example_tokens
    columns = [made.prompt_tokens - shared, made.output_tokens, *(made.predictions[one] for one in PREDICTORS)]
    assert set(zip(*(column.tolist() for column in columns), strict=True)) <= known
    again = source.draw(rps=10, duration_s=n / 10, seed=seed, output_length=CONSTANT)
    for name in COLUMNS:
        assert getattr(made, name).tobytes() == getattr(again, name).tobytes()
    for name in PREDICTORS:
        assert made.predictions[name].tobytes() == again.predictions[name].tobytes()


def test_requests_of_a_group_share_their_examples_and_no_question() -> None:
    source = Instructions(groups=3)
    made = source.draw(rps=10, duration_s=9, seed=0, output_length=CONSTANT)
    segments = made.segment_ids.reshape(len(made), 3)
    assert len(set(segments[:, 0])) == 1
    for group in range(3):
        assert len(set(segments[made.prefix_group == group, 1])) == 1
    assert len(set(segments[:, 1])) == 3
    assert len(set(segments[:, 2])) == len(made)


def test_its_output_lengths_are_its_own() -> None:
    assert key(cell("output_length=constant")) == key(cell("output_length=two_point"))
    assert cell("output_length=constant").stream == cell("output_length=two_point").stream
    lengths = runs.draw(cell("output_length=constant")).output_tokens
    assert len(set(lengths.tolist())) > 10


BAD: dict[str, dict[str, Any]] = {
    "there is no column output_tokens": {"output_tokens": None},
    "column prompt_tokens is double; it must be integers": {"prompt_tokens": [1.5, 2.0, 3.0]},
    "column mine is string; it must be numbers": {"mine": ["a", "b", "c"]},
    "column mine, row 1: it must be > 0": {"mine": [1.0, float("nan"), 2.0]},
    "column mine, row 2: it must be > 0": {"mine": [1.0, 2.0, 0.0]},
    "column output_tokens, row 0: it must be > 0": {"output_tokens": [0, 1, 2]},
    "column output_tokens": {"output_tokens": [1, None, 2]},
    "there are no rows": {
        "prompt_tokens": pa.array([], pa.int32()),
        "output_tokens": pa.array([], pa.int32()),
        "mine": None,
    },
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_file_is_one_line_that_names_it(message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = parquet(tmp_path / "p.parquet", **BAD[message])
    given = [*NARROW, f"workload.path={path}", f"cache_dir={tmp_path / 'cache'}"]
    assert main(given) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert "p.parquet" in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("content", [None, b"", b"PAR1 no", b"no"])
def test_what_is_no_parquet_is_one_line(content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "p.parquet").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"p\.parquet"):
        cell(f"workload.path={tmp_path / 'p.parquet'}")


# ---------------------------------------------------------------- who is told
def test_a_policy_is_told_what_the_predictor_said() -> None:
    one = cell("policy=lor_tokens", "lengths=predicted", "lengths.predictor=tfidf")
    run = runs.run(one)
    assert run.outcome.told_output.tolist() == run.workload.predictions["tfidf"].tolist()


def test_predictions_are_part_of_the_key(tmp_path: Path) -> None:
    paths = [parquet(tmp_path / "a.parquet"), parquet(tmp_path / "b.parquet", mine=[11.5, 19.0, 31.5])]
    of = ["policy=lor_tokens", "lengths=predicted", "lengths.predictor=mine"]
    a, b = (cell(*of, f"workload.path={path}") for path in paths)
    assert key(a) != key(b)
    same = tmp_path / "elsewhere.parquet"
    same.write_bytes(Path(paths[0]).read_bytes())
    assert key(cell(*of, f"workload.path={same}")) == key(a)  # contents count, not where they lie
    packaged_one = cell("policy=lor_tokens")
    keys = {
        key(replace(packaged_one, lengths=kind(predictor=one))) for kind in (Predicted, Binned) for one in PREDICTORS
    }
    assert len(keys) == 2 * len(PREDICTORS)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("lengths=predicted", "lengths.predictor=minlm"), "unknown lengths.predictor 'minlm'"),
        (("lengths=predicted", "workload=react"), "lengths=predicted needs a workload with predictions"),
        (("lengths=binned", "lengths.predictor=gpt"), "unknown lengths.predictor 'gpt'; valid: minilm, minilm-width"),
        (("lengths=binned", "lengths.predictor=minilm", "lengths.path=c.json"), "exclude each other"),
        (
            ("lengths=binned", "lengths.predictor=minilm", "lengths.bins=10"),
            "lengths.predictor=minilm: edges must be 11 numbers",
        ),
        (("lengths=binned",), "or lengths.predictor=minilm or minilm-width or prompt_features"),
        (("overhead=serial", "overhead.prediction_s=-1"), "overhead.prediction_s=-1 is not valid"),
    ],
)
def test_bad_values_are_one_line(overrides: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidInput) as error:
        cell("policy=lor_tokens", *overrides)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_policy_that_does_not_read_lengths_needs_no_predictions() -> None:
    assert key(cell("policy=lor", "lengths=predicted", "workload=react")) == key(cell("policy=lor", "workload=react"))


def test_predictions_of_another_shape_or_sign_are_refused() -> None:
    made = runs.draw(cell())
    with pytest.raises(InvalidInput, match="predictions of a have shape"):
        replace(made, predictions={"a": np.ones(3)})
    with pytest.raises(InvalidInput, match="predictions of a, row 0: -1"):
        replace(made, predictions={"a": -np.ones(len(made))})


def test_the_matrices_of_the_package_are_whole() -> None:
    assert packaged() == PREDICTORS
    for name in packaged():
        told = Binned(predictor=name).expected(runs.draw(cell()), 0)
        assert (told > 0).all()


def test_the_evaluation_of_the_package_shows_what_it_must(capsys: pytest.CaptureFixture[str]) -> None:
    """4.8 x random and AUROC 0.85 over 20 bins of equal frequency (tests/train_predictors.py makes it anew); and its
    scores are those of the predictions that lie beside it."""
    assert train_predictors.check() == 0
    with capsys.disabled():
        print(f"\n{capsys.readouterr().out}", end="")
    numbers = json.loads(PACKAGED.with_name("evaluation.json").read_text())
    table = pq.read_table(PACKAGED).to_pandas()
    assert len(table) == numbers["rows"]
    assert set(numbers["predictors"]) == set(PREDICTORS)
    for name, one in numbers["predictors"].items():
        assert (table[name] - table["output_tokens"]).abs().mean() == pytest.approx(
            one["scores"]["mae_tokens"], rel=1e-5
        )
        ranks = table[[name, "output_tokens"]].rank().corr().iloc[0, 1]
        assert ranks == pytest.approx(one["scores"]["rank_correlation"], abs=1e-4)
        assert one["card"]["data_sha256"] == numbers["data_sha256"]
        assert one["card"]["rows"]["test"] == numbers["rows"]


# ---------------------------------------------------------------- how good it was
def test_errors_and_ranks_of_what_was_told_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for lengths in (["lengths=predicted"], ["lengths=noisy"], ["lengths=binned", "lengths.predictor=tfidf"]):
        run = runs.run(cell("policy=lor_tokens", *lengths))
        true = np.minimum(run.workload.output_tokens, run.workload.max_new_tokens)
        told = run.outcome.told_output
        assert run.metrics["told_error_tokens"] == pytest.approx(np.abs(told - true).mean())
        assert run.metrics["told_rank_correlation"] == pytest.approx(stats.spearmanr(told, true).statistic)


def test_an_oracle_is_right_and_the_most_says_nothing() -> None:
    oracle, most = (runs.run(cell("policy=lor_tokens", f"lengths={one}")).metrics for one in ("oracle", "max"))
    assert (oracle["told_error_tokens"], oracle["told_rank_correlation"]) == (0, pytest.approx(1))
    assert most["told_rank_correlation"] == 0
    assert most["told_error_tokens"] > 100


def test_who_is_not_told_has_no_quality() -> None:
    found = prebleexp.run(policy="lor", gpus=2, rps=4, duration_s=3, lengths="oracle", cache_dir=None)
    assert found.metrics["told_error_tokens"] is None
    assert found.requests["told_output"].isna().all()


def test_requests_that_were_not_routed_do_not_count() -> None:
    run = runs.run(
        cell("policy=lor_tokens", "lengths=oracle", "horizon=stop", "overhead=serial", "overhead.decision_s=1")
    )
    assert run.metrics["n_unrouted"] > 0
    assert np.isnan(run.outcome.told_output).sum() == run.metrics["n_unrouted"]
    assert run.metrics["told_error_tokens"] == 0
    nobody = replace(run.outcome, told_output=np.full(len(run.workload), np.nan))
    assert metrics.measure(run.workload, nobody)["told_rank_correlation"] is None


# ---------------------------------------------------------------- what it costs
def served(mode: str, prediction_s: float, *overrides: str) -> Any:
    given = [f"overhead.{unit}_s=0" for unit in ("decision", "node", "segment", "entry", "gpu")]
    given = [] if mode == "none" else [*given, f"overhead.prediction_s={prediction_s}"]
    return runs.run(cell("policy=round_robin", f"overhead={mode}", *given, *overrides))


def test_a_prediction_delays_every_request_and_no_other() -> None:
    """With nothing else to wait for, what is served a second later is served alike: 1 s more to every first token."""
    alone = ("rps=0.2", "duration_s=60", "gpus=4")
    free, charged = served("serial", 0.0, *alone), served("serial", 1.0, *alone)
    np.testing.assert_allclose(charged.outcome.ttft_s, free.outcome.ttft_s + 1, rtol=1e-2)
    assert (charged.outcome.overhead_s == 1).all()
    assert (charged.outcome.router_wait_s == 0).all()


def test_predictions_do_not_wait_for_each_other_as_decisions_do() -> None:
    """16 requests in half a second, 0.5 s for each: one router would need 8 s for decisions."""
    burst = ("rps=32", "duration_s=0.5")
    predicted, decided = served("serial", 0.5, *burst), served("serial", 0.0, *burst, "overhead.decision_s=0.5")
    assert np.nanmax(predicted.outcome.router_wait_s) < 1e-9
    assert np.nanmax(decided.outcome.router_wait_s) > 6


def test_recorded_predictions_are_recorded_alone() -> None:
    none, recorded = served("none", 0.25), served("recorded", 0.25)
    assert (recorded.outcome.overhead_s == 0.25).all()
    assert recorded.outcome.ttft_s.tobytes() == none.outcome.ttft_s.tobytes()
    assert key(replace(cell(), overhead=Overhead("none", prediction_s=1))) == key(cell())


# ---------------------------------------------------------------- what comes of it
def test_least_work_told_the_truth_keeps_gpus_free_for_short_outputs() -> None:
    """As docs/predictors.md has it: with GPUs to spare, one token takes a third of its time with lor_tokens."""
    seconds = {}
    for policy in ("least_work", "lor_tokens"):
        common = ["+variant=described", "gpus=16", "rps=32", "overhead=serial_compiled", "lengths=oracle"]
        finished = runs.run(configure.cells([*common, f"policy={policy}", "replications=1"])[0])
        short = finished.workload.output_tokens == 1
        seconds[policy] = finished.outcome.latency_s[short].mean()
    print(f"\none token: {seconds['least_work']:.3f} s, with lor_tokens {seconds['lor_tokens']:.3f} s")
    assert seconds["least_work"] < 0.5 * seconds["lor_tokens"]


# ---------------------------------------------------------------- the figure
def test_latency_is_against_the_oracle_over_the_same_requests() -> None:
    common = {"part": "p", "policy": "e2", "gpus": 8, "rps": 64}
    rows: list[Any] = [
        common | {"seed": seed, "line": line, "lengths": lengths, "norm_latency_mean_s": latency, **more}
        for seed in (0, 1)
        for line, lengths, latency, more in (
            ("oracle", "oracle", 2.0 + seed, {"told_rank_correlation": 1.0}),
            ("MiniLM", "predicted", 3.0, {"told_rank_correlation": 0.8 + 0.1 * seed}),
            ("MiniLM, charged", "predicted", 4.0, {"told_rank_correlation": 0.85, "overhead.prediction_s": 0.01}),
        )
    ]
    found = with_regret(rows)
    assert not [row for row in found if row["lengths"] == "oracle"], "the oracle is what all is compared with"
    runs = [row for row in found if row["load"] == "8 GPUs, 64 requests/s"]
    assert [row["regret"] for row in runs] == pytest.approx([50, 100, 0, 100 / 3])
    # one name for all runs told alike, with the rank correlation over all of them
    assert [row["told"] for row in runs] == ["MiniLM (0.85)", "MiniLM, charged (0.85)"] * 2
    means = [row for row in found if row["load"] == ALL_LOADS]
    assert [row["regret"] for row in means] == pytest.approx([50, 100, 0, 100 / 3]), "of one load"


def test_only_seeds_of_all_loads_count_over_all_loads() -> None:
    """Seed 1 was not run at 32 requests/s: with it the mean would be of other loads than the rest."""
    rows: list[Any] = [
        {"part": "p", "policy": "e2", "gpus": 8, "rps": rps, "seed": seed, "line": line, "lengths": lengths}
        | {"norm_latency_mean_s": latency, "told_rank_correlation": 0.9}
        for rps, seed in ((64, 0), (32, 0), (64, 1))
        for line, lengths, latency in (("oracle", "oracle", 2.0), ("MiniLM", "predicted", 3.0 if rps == 64 else 2.0))
    ]
    means = [row for row in with_regret(rows) if row["load"] == ALL_LOADS]
    assert [(row["seed"], row["regret"]) for row in means] == [(0, pytest.approx(25))]


@pytest.mark.slow
def test_the_sweep_is_cached_like_every_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["+sweeps=prediction", "policy=e2", "gpus=2", "rps=4", "duration_s=3", "replications=2", "workers=1"]
    given += [f"cache_dir={tmp_path / 'cache'}", f"reports_dir={tmp_path / 'reports'}", "output=csv"]
    assert main(given) == 0
    first = capsys.readouterr()
    assert main(given) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert "all from the cache" in again.err
    name = "prediction-duration_s-3-gpus-2-policy-e2-replications-2-rps-4"
    page = (tmp_path / "reports" / name / "index.html").read_text()
    assert "Latency against the oracle" in page
    assert "told" in page
