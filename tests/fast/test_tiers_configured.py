"""Tiers as they are set, kept and shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from prebleexp.__main__ import main
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import content, key
from prebleexp.experiment.runs import run
from prebleexp.launch import configs, configure, from_cache

TIGHT = (
    *("cluster=tiered", "hardware.kv_tokens=20000", "gpus=2", "rps=16", "duration_s=10"),
    *("workload=chats", "workload.think_s=3", "workload.longest=8000"),
)


def cell(*overrides: str) -> Cell:
    return configure.cells(overrides)[0]


def test_whatever_changes_a_result_is_in_the_key_and_nothing_of_what_is_not_there() -> None:
    assert "cluster" not in cell("cluster=tiered", "cluster.host.gb=0").identity()
    assert key(cell("cluster=tiered", "cluster.host.gb=0", "cluster.shared.load_gb_s=3")) == key(cell())
    changes = (
        *("cluster.host.gb=10", "cluster.host.load_gb_s=10", "cluster.host.store_gb_s=10", "cluster.host.latency_us=0"),
        *("cluster.host.choose=threshold", "cluster.host.least_tokens=7", "cluster.shared.gb=10"),
        *(
            "cluster.offload_prompt_only=false",
            "cluster.peers.gb_s=36",
            "cluster.groups=[{gpus: 2, hardware/gpu: h100}]",
        ),
    )
    keys = {key(cell(*TIGHT, *([change] if change else []))) for change in ("", *changes)}
    assert len(keys) == 1 + len(changes)
    shared = (*TIGHT, "cluster.host.gb=0", "cluster.shared.gb=10")
    more = ("cluster.shared.total_gb_s=50", "cluster.shared.sharing=fifo", "cluster.host.load_gb_s=1")
    assert len({key(cell(*shared, *([change] if change else []))) for change in ("", *more)}) == len(more)


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        ["cluster.host.gb=7"],
        ["cluster.host.gb=0", "cluster.shared.gb=70", "cluster.shared.total_gb_s=50"],
        ["cluster.shared.gb=70", "cluster.groups=[{gpus: 2, hardware/gpu: h100}, {gpus: 1}]"],
        ["cluster.host.gb=0", "cluster.peers.gb_s=36", "cluster.peers.choose=threshold"],
    ],
)
def test_a_run_is_made_again_from_what_the_cache_knows(more: list[str]) -> None:
    made = cell(*TIGHT, *more)
    known = content(made)["cell"]
    assert isinstance(known, dict)
    overrides = from_cache.overrides_of(key(made), known, configs.loader())
    assert key(cell(*overrides)) == key(made)
    shown = made.columns()
    columns = from_cache.Options(configs.loader()).columns(known)
    assert {name for name in shown if name.startswith("cluster.")} >= {"cluster.groups"}
    for name in (name for name in shown if name.startswith("cluster")):
        assert columns[name] == shown[name]


@pytest.mark.slow
def test_a_host_drops_and_stores_as_it_is_told() -> None:
    told = cell("cluster=tiered", "cluster.host.eviction_policy=arc", "cluster.host.store_threshold=2")
    host = told.cluster.host.simulated()
    assert (host.adaptive, host.store_threshold) == (True, 2)
    usual = cell("cluster=tiered").cluster.host.simulated()
    assert (usual.adaptive, usual.store_threshold) == (False, 0)


@pytest.mark.thorough
def test_a_run_with_tiers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [f"cache_dir={tmp_path / 'cache'}", f"reports_dir={tmp_path / 'reports'}"]
    assert main([*TIGHT, *places]) == 0
    assert "host_hit_ratio" in capsys.readouterr().out
    done = run(cell(*TIGHT, "cluster.shared.gb=1000"))
    numbers = done.metrics
    assert numbers["n_finished"] == numbers["n_requests"] > 0
    assert numbers["host_hit_ratio"] > 0
    assert numbers["found_ratio"] == pytest.approx(
        numbers["hit_ratio"] + numbers["host_hit_ratio"] + numbers["shared_hit_ratio"]
    )
    assert done.outcome.host_tokens.sum() == done.outcome.gpu_host_tokens.sum()
    many = run(cell(*TIGHT, "cluster.host.gb=1", "cluster.disk.gb=50", "cluster.peers.gb_s=100")).metrics
    assert many["disk_hit_ratio"] > 0
    assert many["peer_hit_ratio"] > 0
    parts = (many[f"{where}hit_ratio"] for where in ("", "host_", "disk_", "shared_", "peer_"))
    assert many["found_ratio"] == pytest.approx(sum(parts))
    changing = (
        "cluster.peers.gb_s=100",
        "faults=rates",
        "faults.mtbf_h=0.0055",
        "autoscaler=hpa",
        "autoscaler.target=1",
    )
    lost = run(cell(*TIGHT, *changing)).metrics
    assert lost["n_finished"] == lost["n_requests"] == numbers["n_requests"]
    assert lost["scale_changes"] > 0
    assert lost["peer_hit_ratio"] > 0
    none = run(cell(*TIGHT, "cluster.host.gb=0"))
    assert none.metrics["host_hit_ratio"] == none.metrics["shared_hit_ratio"] == 0
    assert none.metrics["found_ratio"] == none.metrics["hit_ratio"] < numbers["found_ratio"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["engine=sglang"], "engine=sglang takes no tiers; take engine=vllm, or a cluster without tiers"),
        (["engine=released"], "engine=released takes no tiers; take engine=vllm, or a cluster without tiers"),
        (["hardware=a6000_mistral_7b"], "hardware=a6000_mistral_7b does not say how large KV is, which has to be sent"),
        (["cluster.host.gb=-1"], "cluster.host.gb=-1 is not valid; it must be a number of GB >= 0"),
        (["cluster.host.load_gb_s=0"], "cluster.host.load_gb_s=0 is not valid; it must be a number of GB/s > 0"),
        (["cluster.shared.store_gb_s=0"], "cluster.shared.store_gb_s=0 is not valid; it must be a number of GB/s > 0"),
        (["cluster.host.latency_us=x"], "cluster.host.latency_us=x is not valid; it must be a number of microseconds"),
        (
            ["cluster.host.eviction_policy=fifo"],
            "cluster.host.eviction_policy=fifo is not valid; it must be one of lru",
        ),
        (
            ["cluster.host.store_threshold=-1"],
            "cluster.host.store_threshold=-1 is not valid; it must be an integer >= 0",
        ),
        (["cluster.host.choose=never"], "cluster.host.choose=never is not valid; it must be one of always, threshold"),
        (["cluster.host.least_tokens=1.5"], "cluster.host.least_tokens=1.5 is not valid; it must be an integer >= 0"),
        (
            ["cluster.shared.total_gb_s=0"],
            "cluster.shared.total_gb_s=0 is not valid; it must be null or a number of GB",
        ),
        (["cluster.peers.gb_s=-1"], "cluster.peers.gb_s=-1 is not valid; it must be a number of GB/s >= 0"),
        (
            ["cluster.peers.latency_us=x"],
            "cluster.peers.latency_us=x is not valid; it must be a number of microseconds",
        ),
        (
            ["cluster.peers.choose=never"],
            "cluster.peers.choose=never is not valid; it must be one of always, threshold",
        ),
        (["cluster.peers.sharing=even"], "cluster.peers.sharing=even is not valid; it must be one of infinite, fifo"),
        (["cluster.peers.least_tokens=-1"], "cluster.peers.least_tokens=-1 is not valid; it must be an integer >= 0"),
        (
            ["engine=sglang", "cluster.host.gb=0", "cluster.peers.gb_s=36"],
            "engine=sglang takes no tiers; take engine=vllm",
        ),
        (["cluster.shared.sharing=even"], "cluster.shared.sharing=even is not valid; it must be one of infinite, fifo"),
        (
            ["engine.scheduling_policy=priority"],
            "engine.scheduling_policy=priority is not valid; it must be fcfs where",
        ),
        (["engine.enable_prefix_caching=false"], "engine.enable_prefix_caching=False is not valid; it must be true"),
        (
            ["cluster.groups=[{gpus: 1}, {gpus: 1, hardware.kv_precision: bf16}]"],
            "cluster.groups: KV of 36,864 and 73,728 bytes a token; where there are tiers it must be the same",
        ),
    ],
)
def test_tiers_that_cannot_be_are_one_line(
    settings: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster=tiered", *settings, f"cache_dir={tmp_path / 'cache'}"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"prebleexp: {says}")
    assert printed.count("\n") == 1
