"""Questions to the tables: what they answer, and that they change nothing. The documented schema is the schema."""

from __future__ import annotations

import dataclasses
import json
import re
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from prebleexp import indexing
from prebleexp.__main__ import main
from prebleexp.commands import sql
from prebleexp.experiment.cache import DATABASE, Cache
from prebleexp.experiment.results import Result
from prebleexp.experiment.work import Failure
from prebleexp.intervals import mean_interval
from prebleexp.launch import configure
from prebleexp.launch.parts import Place
from prebleexp.launch.rows import stored_failure
from tests.support.places import ROOT

DOCUMENT = (ROOT / "docs" / "tables.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", DOCUMENT, re.DOTALL)
PAIR = ["gpus", "rps"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("sql")
    sweep = ["-m", "gpus=2,4", "duration_s=8", "replications=3", "report=none", "output=csv", f"cache_dir={made}"]
    sweep += ["hardware=a6000_mistral_7b", "engine=sglang_2024"]
    assert main([*sweep, "policy=lor,e2", "rps=4,16", "sweep.name=first"]) == 0
    assert main([*sweep, "policy=lor,random", "rps=4", "sweep.name=second"]) == 0
    assert main([*sweep, "policy=lor,random", "rps=4", "sweep.name=second"]) == 0
    return made


@pytest.fixture
def runs(folder: Path) -> pd.DataFrame:
    return sql.answer(folder / DATABASE, "from runs").to_pandas()


@pytest.fixture
def requests(folder: Path) -> pd.DataFrame:
    return sql.answer(folder / DATABASE, "from requests").to_pandas()


def asked(folder: Path, about: str) -> pd.DataFrame:
    (query,) = [one for one in QUERIES if about in one]
    return sql.answer(folder / DATABASE, query).to_pandas()


def test_there_are_twelve_queries() -> None:
    assert len(QUERIES) == 12


def intervals(runs: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Mean and half-width by configuration, of the sweep `first`."""
    of_first = runs[runs.policy != "random"]
    found = of_first.groupby([*PAIR, "policy"])[metric].apply(lambda values: mean_interval(list(values)))
    return pd.DataFrame(found.tolist(), index=found.index, columns=["mean", "half_width"])


@pytest.mark.slow
def test_the_obvious_question(folder: Path, runs: pd.DataFrame) -> None:
    found = asked(folder, "part, line, gpus")
    right = intervals(runs, "ttft_p99_s")
    assert len(found) == len(right) == 8
    for column in ("mean", "half_width"):
        np.testing.assert_allclose(sorted(found[column]), sorted(right[column]), rtol=1e-12)
    assert set(found.seeds) == {3}


@pytest.mark.slow
def test_the_best_policy_of_a_sweep(folder: Path, runs: pd.DataFrame) -> None:
    found = asked(folder, "as sure")
    right = intervals(runs, "norm_latency_mean_s")
    means = right["mean"].unstack()
    assert found.best.tolist() == means.idxmin(axis=1).tolist()
    np.testing.assert_allclose(found.latency, means.min(axis=1))
    ends = [(right["mean"] + sign * right.half_width).unstack() for sign in (1, -1)]
    best, other = means.idxmin(axis=1), means.idxmax(axis=1)
    assert found.sure.tolist() == [bool(ends[0].loc[at, best[at]] < ends[1].loc[at, other[at]]) for at in means.index]


@pytest.mark.slow
def test_metrics_side_by_side(folder: Path, runs: pd.DataFrame) -> None:
    found = asked(folder, "pivot")
    assert len(found) == 8
    for metric in ("ttft_p99_s", "tpot_p99_s", "hit_ratio"):
        np.testing.assert_allclose(found[metric], intervals(runs, metric)["mean"])


def test_paired_differences(folder: Path, runs: pd.DataFrame) -> None:
    found = asked(folder, "difference")
    table = runs.pivot_table(index=[*PAIR, "seed"], columns="policy", values="norm_latency_mean_s")
    right = (table.e2 / table.lor - 1).groupby(level=[0, 1]).mean().dropna()
    np.testing.assert_allclose(found.difference, right)
    assert found.pairs.tolist() == [3] * 4


def test_the_highest_rate(folder: Path, runs: pd.DataFrame) -> None:
    found = asked(folder, "ttft < 1")
    means = runs.groupby(["gpus", "policy", "rps"]).ttft_p99_s.mean()
    right = means[means < 1].reset_index().groupby(["gpus", "policy"]).rps.max()
    assert found.rps.tolist() == right.tolist()


def test_goodput(folder: Path, runs: pd.DataFrame, requests: pd.DataFrame) -> None:
    found = asked(folder, "goodput")
    good = (requests.ttft_s <= 0.5) & (requests.tpot_s.fillna(0) <= 0.15)
    merged = requests.assign(good=good).merge(runs, on="key")
    np.testing.assert_allclose(found.goodput, merged.groupby([*PAIR, "policy"]).good.mean())
    assert 0 < found.goodput.min() < 1


def test_balance(folder: Path, requests: pd.DataFrame) -> None:
    found = asked(folder, "as requests, quantile_cont")
    groups = requests.groupby(["key", "gpu"]).ttft_s
    assert found.requests.tolist() == groups.size().tolist()
    np.testing.assert_allclose(found.ttft_p99_s, groups.quantile(0.99))


def test_groups(folder: Path, runs: pd.DataFrame, requests: pd.DataFrame) -> None:
    found = asked(folder, "prefix_group, sum")
    sums = requests.merge(runs[["key", "policy"]], on="key").groupby(["policy", "prefix_group"])
    hit, computed = sums.hit_tokens.sum(), sums.prefilled_tokens.sum()
    np.testing.assert_allclose(found.hit_ratio, hit / (hit + computed))


def test_slow_runs(folder: Path, runs: pd.DataFrame) -> None:
    found = asked(folder, "microseconds_a_request")
    right = (1e6 * runs.seconds / runs.n_requests).sort_values(ascending=False)[:10]
    np.testing.assert_allclose(found.microseconds_a_request, right)


def test_runs_of_one_experiment_alone(folder: Path) -> None:
    found = asked(folder, "not exists")
    assert dict(zip(found.name, found.runs, strict=True)) == {"first": 18, "second": 6}


def test_who_made_it(folder: Path, runs: pd.DataFrame) -> None:
    found = asked(folder, "as latest")
    assert found.runs.sum() == len(runs) == 30
    assert found.seconds.sum() == pytest.approx(runs.seconds.sum())
    assert found.latest[0] == runs.finished.max()


def test_an_experiment_that_is_run_again_is_the_same(folder: Path) -> None:
    indexing.refresh(Cache(folder, make=False))
    found = sql.answer(folder / DATABASE, "from experiments order by name").to_pylist()
    assert [(one["name"], one["times_run"], one["n_runs"], one["n_cached"]) for one in found] == [
        ("first", 1, 24, 0),
        ("second", 2, 12, 12),
    ]
    assert found[1]["command"].startswith("python -m prebleexp -m gpus=2,4")
    assert found[1]["first_run"] <= found[1]["last_run"]


def documented(table: str) -> list[str]:
    """Names and patterns in the first column of a section's table."""
    section = DOCUMENT.split(f"\n## {table}")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row)]
    return [re.sub(r"^(experiments|experiment_runs|gpu_states|autoscaler_decisions)\.", "", name) for name in names]


@pytest.mark.parametrize("table", ["results", "runs", "requests", "gpu_states", "moves", "experiments", "failures"])
def test_every_column_is_documented_and_none_that_is_not_there(folder: Path, table: str) -> None:
    if table == "failures":
        failed = Result(configure.cells([])[0], "ab" * 32, error=Failure("Error", "no reason"))
        columns = set(stored_failure(failed))
    else:
        query = "select column_name from duckdb_columns() where table_name = ?"
        with closing(duckdb.connect(folder / DATABASE, read_only=True)) as connection:
            columns = {name for (name,) in connection.execute(query, [table]).fetchall()}
            if table == "gpu_states":
                columns |= {name for (name,) in connection.execute(query, ["autoscaler_decisions"]).fetchall()}
            if table == "experiments":
                columns |= {name for (name,) in connection.execute(query, ["experiment_runs"]).fetchall()}
                columns |= {field.name for field in dataclasses.fields(Place)}
    patterns = {name: re.escape(name).replace(r"\*", ".*") for name in documented(table)}
    assert {name for name in columns if not any(re.fullmatch(one, name) for one in patterns.values())} == set()
    unused = {name for name, one in patterns.items() if not any(re.fullmatch(one, column) for column in columns)}
    assert unused <= {"autoscaler.*", "lengths.*", "arrivals.*", "profile.*", "adapters.*", "warm.*"}, (
        "an option's fields, of which these runs have none"
    )


def said(capsys: pytest.CaptureFixture[str], folder: Path, *arguments: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main(["sql", *arguments, f"cache_dir={folder}"]) == code
    out, err = capsys.readouterr()
    return out, err


def test_answers_are_printed_as_one_likes(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    query = "select distinct gpus, null as nothing, 0.5::decimal(3, 1) as half, [1, 2] as many from runs order by 1"
    assert said(capsys, folder, query)[0].splitlines() == [
        "gpus  nothing  half  many",
        "   2        –   0.5  [1, 2]",
        "   4        –   0.5  [1, 2]",
    ]
    assert said(capsys, folder, query, "output=csv")[0] == 'gpus,nothing,half,many\n2,,0.5,"[1, 2]"\n4,,0.5,"[1, 2]"\n'
    assert json.loads(said(capsys, folder, query, "output=json")[0])[0] == {
        "gpus": 2,
        "nothing": None,
        "half": 0.5,
        "many": "[1, 2]",
    }
    for name in ("a.csv", "a.json", "a.parquet"):
        out, err = said(capsys, folder, query, f"to={tmp_path / name}")
        assert (out, err) == ("", f"2 rows in {tmp_path / name}\n")
    assert pd.read_parquet(tmp_path / "a.parquet").gpus.tolist() == [2, 4]
    assert (tmp_path / "a.csv").read_text().startswith("gpus,nothing")
    assert said(capsys, folder, "select 1 as a where false", "output=csv")[0] == "a\n"


def test_a_long_answer_is_cut_for_people_only(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "MOST_SHOWN", 10)
    out, err = said(capsys, folder, "from runs")
    assert len(out.splitlines()) == 11
    assert err == "… and 20 more rows; output=csv gives all\n"
    assert len(said(capsys, folder, "from runs", "output=csv")[0].splitlines()) == 31


def test_without_a_query_the_columns_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(said(capsys, folder, "output=json")[0])
    assert {"table": "runs", "column": "rps", "type": "BIGINT", "rows": 30} in rows
    assert {"table": "results", "column": "half_width", "type": "DOUBLE", "rows": None} in rows


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("drop table runs", "read-only mode"),
        ("delete from runs", "read-only mode"),
        ("select 1; create table x as select 1", "read-only mode"),
        ("select * from read_text('/etc/passwd')", "disabled by configuration"),
        ("copy runs to '/tmp/runs.csv'", "disabled by configuration"),
        ("attach '/tmp/other.duckdb'", "disabled by configuration"),
        ("install httpfs", "disabled"),
        ("set enable_external_access = true", "locked"),
        ("selec 1", "syntax error"),
        ("select colour from runs", 'Referenced column "colour" not found'),
    ],
)
def test_queries_only_read(folder: Path, capsys: pytest.CaptureFixture[str], query: str, says: str) -> None:
    out, err = said(capsys, folder, query, code=2)
    assert out == ""
    assert err.startswith("prebleexp: sql: ")
    assert says in err
    assert err.count("\n") == 1


def test_bad_arguments_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for arguments, says in (
        (("select 1", "select 2"), "sql takes one query in quotes, not 2: select 1 select 2"),
        (("select 1", "output=xml"), "output=xml is not valid; it must be one of table, csv, json, parquet"),
        (("select 1", "output=parquet"), "output=parquet is not valid"),
        (("select 1", "to=answer.txt"), "output=txt is not valid"),
    ):
        assert said(capsys, folder, *arguments, code=2)[1].startswith(f"prebleexp: {says}")
    err = said(capsys, tmp_path, "select 1", code=2)[1]
    assert err == f"prebleexp: there is no database {tmp_path / DATABASE}; runs make it\n"
    err = said(capsys, folder, "select 1", "to=/nowhere/a.csv", code=1)[1]
    assert err == "prebleexp: /nowhere/a.csv cannot be written: No such file or directory\n"
