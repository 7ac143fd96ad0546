"""Clusters of several kinds of GPU: each GPU does as its kind does, and routers see which kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.engines.base import Engine
from prebleexp.engines.continuous import Continuous
from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import content, key
from prebleexp.experiment.runs import draw
from prebleexp.experiment.unloaded import unloaded
from prebleexp.hardware.base import Hardware
from prebleexp.launch import configs, configure, from_cache
from prebleexp.lengths.known import Max
from prebleexp.overhead.model import Overhead
from prebleexp.policies.base import Policy
from prebleexp.policies.e2 import E2
from prebleexp.policies.least_work import LeastWork
from prebleexp.policies.lor import LeastOutstanding
from prebleexp.policies.round_robin import RoundRobin
from prebleexp.sim.simulate import simulate
from prebleexp.sim.types import OF_REQUESTS, OPTIONAL, Outcome, State, Workload
from prebleexp.testing import MODEL, stream
from tests.support.outcomes import assert_same

SLOW = replace(MODEL, efficiency=0.3, kv_tokens=20_000)
ENGINES = [Continuous(), VLLM(), SGLang()]
TWO_KINDS = ["cluster=two_kinds", "rps=40", "duration_s=3"]


def served(policy: Policy, engine: Engine, kinds: Sequence[tuple[int, Hardware]], workload: Workload) -> Outcome:
    return simulate(
        workload,
        gpus=sum(count for count, _ in kinds),
        policy=policy,
        hardware=MODEL,
        kinds=kinds,
        engine=engine,
        lengths=Max(),
        overhead=Overhead(),
        duration_s=10.0,
        horizon="drain",
        seed=1,
    )


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("policy", [LeastOutstanding(), E2(), LeastWork()])
def test_groups_of_one_kind_are_one_group(policy: Policy, engine: Engine) -> None:
    workload = stream(2)
    assert_same(
        served(policy, engine, [(3, MODEL)], workload), served(policy, engine, [(1, MODEL), (2, MODEL)], workload)
    )


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ENGINES)
def test_each_gpu_does_as_it_would_alone(engine: Engine) -> None:
    """Turns do not look at GPUs, so what each is sent it may be sent alone."""
    workload = stream(5, requests=240)
    kinds = [(2, MODEL), (1, SLOW)]
    made = served(RoundRobin(), engine, kinds, workload)
    assert (made.state == State.FINISHED).all()
    for g, (_, hardware) in enumerate([kinds[0], kinds[0], kinds[1]]):
        here = np.flatnonzero(made.gpu == g)
        alone = served(RoundRobin(), engine, [(1, hardware)], some_of(workload, here))
        for name in set(OF_REQUESTS) - {"gpu", "decode_gpu"}:
            np.testing.assert_array_equal(getattr(alone, name), getattr(made, name)[here], name)


def some_of(workload: Workload, rows: Any) -> Workload:
    """These requests of a stream, of two segments each."""
    segments = np.column_stack([2 * rows, 2 * rows + 1]).ravel()
    names = ("arrival_s", "prompt_tokens", "output_tokens", "max_new_tokens", "prefix_group", "session")
    assert set(OPTIONAL) > {"session"}
    return Workload(
        **{name: getattr(workload, name)[rows] for name in names},
        segment_offsets=2 * np.arange(len(rows) + 1),
        segment_ids=workload.segment_ids[segments],
        segment_tokens=workload.segment_tokens[segments],
    )


def test_what_one_kind_cannot_hold_is_refused() -> None:
    workload = stream(1)
    made = served(RoundRobin(), VLLM(), [(1, MODEL), (1, replace(MODEL, context_length=600))], workload)
    assert ((made.state == State.REFUSED) == (workload.prompt_tokens >= 600)).all()
    assert 0 < (made.state == State.REFUSED).sum() < len(workload)


@pytest.mark.thorough
def test_routers_that_know_costs_give_the_faster_ones_more() -> None:
    workload = stream(3, requests=600)
    blind, knowing = (
        served(policy, VLLM(), [(2, SLOW), (2, MODEL)], workload) for policy in (RoundRobin(), LeastWork())
    )
    assert blind.gpu_requests.tolist() == [150] * 4
    assert knowing.gpu_requests[2:].sum() > 1.2 * knowing.gpu_requests[:2].sum()
    assert knowing.latency_s.mean() < blind.latency_s.mean()


# ---------------------------------------------------------------- as it is set
def cell(*overrides: str) -> Cell:
    return configure.cells(overrides)[0]


def test_a_group_says_in_what_it_differs() -> None:
    made = cell(
        "hardware.utilisation=0.8", "gpus=3", "cluster=two_kinds", "cluster.groups.1={gpus: 2, hardware/gpu: b200}"
    )
    assert made.gpus == 6
    assert [group.gpus for group in made.kinds] == [4, 2]
    first, second = (group.hardware.columns() for group in made.kinds)
    assert (first["gpu"], second["gpu"]) == ("h200", "b200")
    assert first["utilisation"] == second["utilisation"] == 0.8
    assert first["engine"] == second["engine"] == "vllm"
    assert (
        made.columns()["cluster.groups"] == "4 x gpt-oss-120b in bf16 with experts in fp4 on h200, vllm + "
        "2 x gpt-oss-120b in bf16 with experts in fp4 on b200, vllm"
    )
    assert cell("rps_per_gpu=2", "cluster=two_kinds").rps == 16


def test_one_kind_is_no_part_of_a_key_and_groups_are() -> None:
    assert "cluster" not in cell().identity()
    assert "hardware" not in cell("cluster=two_kinds").identity()
    two, turned = (
        cell("cluster=two_kinds"),
        cell("cluster=two_kinds", "cluster.groups=[{gpus: 4, hardware/gpu: h100}, {gpus: 4, hardware/gpu: h200}]"),
    )
    assert len({key(cell()), key(two), key(turned)}) == 3
    assert key(cell("cluster=two_kinds", "hardware/gpu=b200")) == key(two)


@pytest.mark.slow
def test_a_run_is_traced_by_the_key_that_it_has_in_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = [f"cache_dir={tmp_path / 'cache'}", f"reports_dir={tmp_path / 'reports'}"]
    made = cell(*TWO_KINDS)
    assert main([*TWO_KINDS, *places]) == 0
    printed = capsys.readouterr().out
    assert (
        "4 x gpt-oss-120b in bf16 with experts in fp4 on h200, vllm + "
        "4 x gpt-oss-120b in bf16 with experts in fp4 on h100, vllm" in printed
    )
    assert printed.count("step times: TPOT measured against") == 2
    assert main(["trace", key(made)[:12], *places]) == 0
    assert "4 x gpt-oss-120b" in Path(capsys.readouterr().out.splitlines()[0]).read_text(encoding="utf-8")
    known = content(made)["cell"]
    assert isinstance(known, dict)
    overrides = from_cache.overrides_of(key(made), known, configs.loader())
    assert key(cell(*overrides)) == key(made)
    assert from_cache.Options(configs.loader()).columns(known)["cluster.groups"] == made.columns()["cluster.groups"]


def test_slowdowns_are_against_the_first_kind() -> None:
    mixed, of_first = (cell(*TWO_KINDS[1:], *more) for more in (["cluster=two_kinds"], ["hardware/gpu=h200"]))
    alone = [unloaded(one, draw(one)).ttft_s for one in (mixed, of_first)]
    np.testing.assert_array_equal(*alone)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["cluster=twokinds"],
            "unknown cluster 'twokinds'; valid: disaggregated, disaggregated_migrating, disaggregated_tiered, "
            "migrating, one_kind, tiered, two_kinds",
        ),
        (["cluster.groups=5"], "cluster.groups=5 is not valid; it must be a list of groups"),
        (["cluster.groups=[5]"], "cluster.groups[0]=5 is not valid; it must be a group such as {gpus: 8, hardware/gpu"),
        (["cluster.groups=[{hardware/gpu: h100}]"], "cluster.groups[0]={'hardware/gpu': 'h100'} is not valid"),
        (
            ["cluster.groups=[{gpus: 2, hardware: {hardware/gpu: h100}}]"],
            "hardware={hardware/gpu: h100} of a group is not valid; say it in the group: {gpus: 4, hardware/gpu: h100}",
        ),
        (["cluster.groups=[{gpus: 2, gpu: h100}]"], "unknown key 'gpu' in cluster.groups[0]; it must be a group such"),
        (["cluster.groups=[{gpus: 0}]"], "cluster.groups: gpus=0 is not valid; it must be an integer from 1 to 4096"),
        (["cluster.groups=[{gpus: 2, hardware/gpu: h7}]"], "unknown hardware/gpu 'h7'; valid: "),
        (["cluster.groups=[{gpus: 2, hardware.speed: 3}]"], "unknown key 'hardware.speed'"),
        (
            ["cluster.groups=[{gpus: 2, hardware/gpu: l40s}]"],
            "gpt-oss-120b in bf16 with experts in fp4 does not fit on 1 l40s",
        ),
        (["cluster=two_kinds", "engine=released"], "engine=released takes no groups of GPUs; take another engine, or"),
    ],
)
def test_what_is_no_cluster_is_one_line(
    settings: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*settings, f"cache_dir={tmp_path / 'cache'}"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"prebleexp: {says}")
    assert printed.count("\n") == 1


def test_a_cell_has_as_many_gpus_as_its_groups() -> None:
    with pytest.raises(InvalidInput, match="gpus=3 is not valid; it must be 8, as many as cluster=two_kinds has"):
        replace(cell("cluster=two_kinds"), gpus=3)


def test_no_class_that_a_cache_names_is_imported() -> None:
    known = content(cell("cluster=two_kinds"))["cell"]
    assert isinstance(known, dict)
    known["cluster"][0]["hardware"]["_target_"] = "this.Antigravity"
    with pytest.raises(InvalidInput, match=r"run ab: no option of conf/hardware/ is a this\.Antigravity"):
        from_cache.overrides_of("ab", known, configs.loader())
    assert from_cache.Options(configs.loader()).columns(known)["cluster.groups"] is None
