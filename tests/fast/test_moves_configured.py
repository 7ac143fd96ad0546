"""Migration as it is set, kept and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from prebleexp import moved
from prebleexp.__main__ import main
from prebleexp.commands import sql
from prebleexp.experiment.cache import DATABASE
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import content, key
from prebleexp.experiment.runs import run
from prebleexp.history_tables import kept
from prebleexp.launch import configs, configure, from_cache
from prebleexp.report import perfetto

TIGHT = ("cluster=migrating", "hardware.kv_tokens=20000", "gpus=3", "rps=30", "duration_s=5", "policy=round_robin")


def cell(*overrides: str) -> Cell:
    return configure.cells(overrides)[0]


def test_whatever_changes_a_result_is_in_the_key_and_nothing_of_it_without() -> None:
    none = ("cluster=migrating", "cluster.migration.interval_ms=null")
    assert key(cell(*none)) == key(cell(*none, "cluster.migration.max_stages=7", "cluster.link.gb_s=3")) == key(cell())
    changes = (
        *("interval_ms=10", "below_freeness=-1", "chooses=first_waiting", "last_stage_blocks=4", "max_stages=2"),
        *("chooses=first_waiting_or_shortest_running",),
    )
    links = ("cluster.link.gb_s=10", "cluster.link.latency_us=0", "cluster.link.sharing=fifo")
    settings = [[], *([f"cluster.migration.{one}"] for one in changes), *([one] for one in links)]
    assert len({key(cell(*TIGHT, *one)) for one in settings}) == len(settings)


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["cluster.groups=[{gpus: 2, hardware/gpu: h100}]", "gpus=2"]])
def test_a_run_is_made_again_from_what_the_cache_knows(more: list[str]) -> None:
    made = cell(*TIGHT, "cluster.migration.below_freeness=5", "cluster.link.gb_s=7", *more)
    known = content(made)["cell"]
    assert isinstance(known, dict)
    overrides = from_cache.overrides_of(key(made), known, configs.loader())
    assert key(cell(*overrides)) == key(made)
    shown = made.columns()
    columns = from_cache.Options(configs.loader()).columns(known)
    assert shown["cluster.migration.below_freeness"] == 5
    for name in (name for name in shown if name.startswith("cluster")):
        assert columns[name] == shown[name]


@pytest.mark.thorough
def test_a_run_with_moves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [*TIGHT, "cluster.migration.below_freeness=30"]
    assert main([*settings, f"cache_dir={tmp_path / 'cache'}", f"reports_dir={tmp_path / 'reports'}"]) == 0
    assert "stopped_mean_s" in capsys.readouterr().out
    done = run(cell(*settings))
    numbers, made = done.metrics, done.outcome
    assert numbers["n_finished"] == numbers["n_requests"] > 0
    assert numbers["moves"] == made.moves.sum() > 0
    assert numbers["moves_aborted"] == made.moves_aborted.sum()
    assert numbers["stopped_mean_s"] == pytest.approx(made.stopped_s[made.stopped_s > 0].mean())
    rows = made.history.moves
    found = sql.answer(tmp_path / "cache" / DATABASE, "select * exclude (key) from moves").to_pylist()
    assert [tuple(one.values()) for one in found] == [tuple(one) for one in rows]
    assert sum(one.moved for one in rows) == numbers["moves"]
    assert sum(not one.moved for one in rows) == numbers["moves_aborted"]
    assert moved.sentence(made.history).startswith(f"{numbers['moves']:,} of {len(rows):,} moves were made")
    lasted = [1e6 * (one.ended_s - one.at_s) for one in rows]
    assert [one["dur"] for one in perfetto.of_moves(done, "GPU")] == pytest.approx(lasted, abs=1e-3)
    assert kept(made.history, with_requests=False) == {}
    none = run(cell(*settings, "cluster.migration.interval_ms=null"))
    assert none.metrics["moves"] == none.metrics["moves_aborted"] == 0
    assert none.metrics["stopped_mean_s"] is None
    assert moved.sentence(none.outcome.history) == ""


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["engine=sglang"], "engine=sglang cannot move requests; take engine=vllm, or a cluster without"),
        (["engine=released"], "engine=released cannot move requests; take engine=vllm, or a cluster without migration"),
        (["hardware=a6000_mistral_7b"], "hardware=a6000_mistral_7b does not say how large KV is, which has to be sent"),
        (["cluster.migration.interval_ms=0"], "cluster.migration.interval_ms=0 is not valid; it must be null or a num"),
        (["cluster.migration.below_freeness=x"], "cluster.migration.below_freeness=x is not valid; it must be a numbe"),
        (["cluster.migration.chooses=last"], "cluster.migration.chooses=last is not valid; it must be one of shortest"),
        (["cluster.migration.max_stages=0"], "cluster.migration.max_stages=0 is not valid; it must be an integer from"),
        (
            ["cluster.migration.last_stage_blocks=0"],
            "cluster.migration.last_stage_blocks=0 is not valid; it must be an",
        ),
        (
            ["engine.scheduling_policy=priority"],
            "engine.scheduling_policy=priority is not valid; it must be fcfs where requests are moved",
        ),
    ],
)
def test_a_migration_that_cannot_be_is_one_line(
    settings: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster=migrating", *settings, f"cache_dir={tmp_path / 'cache'}"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"prebleexp: {says}")
    assert printed.count("\n") == 1
