"""Roles, links and a second policy as they are set, kept and shown."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.key import content, key
from prebleexp.experiment.runs import draw, run
from prebleexp.launch import configs, configure, from_cache
from prebleexp.policies.random import Random
from prebleexp.policies.round_robin import RoundRobin

POOLS = ("cluster=disaggregated", "rps=16", "duration_s=3")
PAIR = "cluster.groups=[{gpus: 2, role: prefill}, {gpus: 6, role: decode}]"


def cell(*overrides: str) -> Cell:
    return configure.cells(overrides)[0]


def test_roles_are_words_of_groups() -> None:
    made = cell(PAIR, "gpus=3")
    assert made.gpus == 8
    assert [group.role for group in made.kinds] == ["prefill", "decode"]
    assert made.cluster.link.sharing == "fair"
    assert made.columns()["cluster.groups"] == (
        "2 x gpt-oss-120b in bf16 with experts in fp4 on h200, vllm (prefill) + "
        "6 x gpt-oss-120b in bf16 with experts in fp4 on h200, vllm (decode)"
    )


def test_pools_may_have_tiers() -> None:
    both, pools = cell("cluster=disaggregated_tiered"), cell("cluster=disaggregated")
    assert both.cluster.has_roles
    assert (both.cluster.host.gb, both.cluster.link) == (200, pools.cluster.link)
    assert key(both) != key(pools) == key(cell("cluster=disaggregated_tiered", "cluster.host.gb=0"))


@pytest.mark.parametrize(
    ("cluster", "settings"),
    [
        ("disaggregated_tiered", ("host.gb=7", "shared.gb=3", "offload_prompt_only=false")),
        ("disaggregated_migrating", ("migration.interval_ms=7", "migration.chooses=first_waiting")),
    ],
)
def test_a_key_and_columns_know_of_roles_and_of_what_else_there_is(cluster: str, settings: tuple[str, ...]) -> None:
    roles = ("protocol=push_at_end", "link.gb_s=3", "decider=never", "decode_policy=random")
    cells = [cell(f"cluster={cluster}", *[f"cluster.{one}"][: one != ""]) for one in ("", *settings, *roles)]
    assert len({key(one) for one in cells}) == len(cells)
    for made in cells:
        known = content(made)["cell"]
        assert isinstance(known, dict)
        overrides = from_cache.overrides_of(key(made), known, configs.loader())
        assert key(cell(*overrides)) == key(made), overrides
        assert {"cluster.protocol", f"cluster.{settings[0].partition('=')[0]}"} <= made.columns().keys()
        columns = from_cache.Options(configs.loader()).columns(known)
        assert all(columns[name] == one for name, one in made.columns().items() if name.startswith("cluster."))


def test_engines_of_roles_may_differ_in_settings() -> None:
    groups = "cluster.groups=[{gpus: 2, role: prefill}, {gpus: 6, role: decode, engine.max_num_seqs: 8}]"
    made = cell(groups, "rps=16", "duration_s=3", "engine=vllm", "engine.max_num_batched_tokens=4096")
    assert [group.engine and group.engine.max_num_seqs for group in made.kinds] == [None, 8]
    assert made.kinds[1].engine.max_num_batched_tokens == 4096
    assert str(made.columns()["cluster.groups"]).endswith("(decode, max_num_batched_tokens=4096, max_num_seqs=8)")
    known = content(made)["cell"]
    assert isinstance(known, dict)
    again = cell(*from_cache.overrides_of(key(made), known, configs.loader()))
    assert key(again) == key(made)
    columns = from_cache.Options(configs.loader()).columns(known)
    assert columns["cluster.groups"] == made.columns()["cluster.groups"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("{gpus: 2, role: prefill}, {gpus: 6, role: decode, engine.block_size: 32}", "engine.block_size"),
        ("{gpus: 2}, {gpus: 6, engine.max_num_seqs: 8}", "not valid without roles"),
        ("{gpus: 2, role: prefill}, {gpus: 6, role: decode, engine: sglang}", "it must be vllm"),
    ],
)
def test_engines_of_roles_are_refused_in_a_line(words: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        cell(f"cluster.groups=[{words}]", "engine=vllm")


def test_a_second_policy_is_a_name_or_has_fields() -> None:
    assert cell(*POOLS).cluster.decode_policy is None
    assert cell(*POOLS, "cluster.decode_policy=round_robin").cluster.decode_policy == RoundRobin()
    given = "cluster.decode_policy={policy: random, policy.seed: 3}"
    assert cell(*POOLS, "policy=random", "policy.seed=7", given).cluster.decode_policy == Random(seed=3)


def test_whatever_changes_a_result_is_in_the_key_and_nothing_of_it_without_roles() -> None:
    assert "cluster" not in cell().identity()
    changes = (
        *(
            "cluster.link.gb_s=10",
            "cluster.link.latency_us=0",
            "cluster.link.sharing=fifo",
            "cluster.protocol=push_at_end",
        ),
        *("cluster.decider=predicted", "cluster.decider=uncached_tokens"),
        *("cluster.decode_policy=lor", "cluster.decode_policy=random", PAIR),
    )
    keys = {key(cell(*POOLS, *([change] if change else []))) for change in ("", *changes)}
    assert len(keys) == 1 + len(changes)
    assert isinstance(cell("cluster=two_kinds").identity()["cluster"], list)


@pytest.mark.slow
@pytest.mark.parametrize("second", ["null", "lor", "{policy: random, policy.seed: 3}"])
def test_a_run_is_made_again_from_what_the_cache_knows(second: str) -> None:
    more = ("cluster.link.gb_s=50", "cluster.decider=uncached_tokens")
    made = cell(*POOLS, PAIR, f"cluster.decode_policy={second}", *more)
    known = content(made)["cell"]
    assert isinstance(known, dict)
    overrides = from_cache.overrides_of(key(made), known, configs.loader())
    assert key(cell(*overrides)) == key(made)
    columns = from_cache.Options(configs.loader()).columns(known)
    for name in ("groups", "protocol", "link.gb_s", "link.sharing", "decode_policy"):
        assert columns[f"cluster.{name}"] == made.columns()[f"cluster.{name}"]


@pytest.mark.thorough
def test_a_run_with_roles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = [f"cache_dir={tmp_path / 'cache'}", f"reports_dir={tmp_path / 'reports'}"]
    assert main([*POOLS, *places]) == 0
    assert "vllm (prefill) + 4 x gpt-oss-120b" in capsys.readouterr().out
    made = cell(*POOLS)
    done = run(made)
    assert done.metrics["n_finished"] == done.metrics["n_requests"] > 0
    assert done.metrics["prefill_end_mean_s"] < done.metrics["ttft_mean_s"]
    assert done.metrics["transferred_tokens"] == done.outcome.transferred_tokens.sum() > 0
    assert set(done.outcome.gpu.tolist()) <= {0, 1, 2, 3} >= {g - 4 for g in done.outcome.decode_gpu.tolist()}


@pytest.mark.uncompiled
def test_two_policies_are_those_that_were_set() -> None:
    made = cell(*POOLS, "cluster.decode_policy=round_robin")
    workload = draw(made)
    outcome = run(made, workload).outcome
    of_outputs = np.bincount(outcome.decode_gpu, minlength=8)[4:]
    assert of_outputs.max() - of_outputs.min() <= 1
    of_prompts = np.bincount(outcome.gpu, minlength=8)[:4]
    assert of_prompts.max() - of_prompts.min() > 1


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (
            ["engine=preble", "hardware=composed"],
            "engine=preble takes no groups with roles; take engine=vllm or engine=sglang, or groups without roles",
        ),
        (
            ["engine=sglang", "cluster.protocol=pull"],
            "cluster.protocol=pull is not valid; it must be reserve_first with engine=sglang",
        ),
        (
            ["cluster.link.send=layers"],
            "cluster.link.send=layers is not valid; it must be end with cluster.protocol=pull, which asks for KV when",
        ),
        (["engine=sglang", "cluster.link.send=tokens"], "cluster.link.send=tokens is not valid; it must be one of end"),
        (
            ["autoscaler=hpa", "autoscaler.least=5"],
            "autoscaler wants 5 replicas for prefill at the beginning, and there can be 4; take more GPUs",
        ),
        (
            ["hardware=a6000_mistral_7b"],
            "hardware=a6000_mistral_7b does not say how large KV is, which has to be sent",
        ),
        (
            ["cluster.protocol=push"],
            "cluster.protocol=push is not valid; it must be one of pull, reserve_first, push_at_end",
        ),
        (
            ["cluster.decider=often"],
            "cluster.decider=often is not valid; it must be one of always, never, unca",
        ),
        (
            ["engine=sglang", "cluster.decider=never"],
            "some prompts are computed where outputs are made, and room is reserved before prompts are computed; only "
            "one of the two is modelled at once: take groups without roles, or cluster.decider=always",
        ),
        (
            [
                "cluster.decider=predicted",
                "cluster.groups=[{gpus: 1, role: prefill}, {gpus: 1, role: both}, {gpus: 1, role: decode}]",
            ],
            "cluster.decider=predicted is not valid beside groups with role both; take always",
        ),
        (["cluster.link.gb_s=0"], "cluster.link.gb_s=0 is not valid; it must be a number of GB/s > 0"),
        (["cluster.link.latency_us=-1"], "cluster.link.latency_us=-1 is not valid; it must be a number of microsec"),
        (
            ["cluster.link.sharing=even"],
            "cluster.link.sharing=even is not valid; it must be one of infinite, fifo",
        ),
        (
            ["cluster.groups=[{gpus: 2, role: prefill}]"],
            "no group of cluster.groups makes outputs; one must have role",
        ),
        (
            ["cluster.groups=[{gpus: 2, role: decode}]"],
            "no group of cluster.groups computes prompts; one must have",
        ),
        (["cluster.groups=[{gpus: 2, role: prefill}, {gpus: 2}]"], "cluster.groups[1] has no role; it must be one of"),
        (
            ["cluster.groups=[{gpus: 2, role: king}]"],
            "cluster.groups: role=king is not valid; it must be one of",
        ),
        (["cluster.groups=[]", "cluster.decode_policy=lor"], "cluster.decode_policy has nothing to route: no group of"),
        (["cluster.decode_policy=lorr"], "unknown policy 'lorr'. Did you mean 'lor'? Valid: "),
        (
            ["cluster.decode_policy=[lor]"],
            "cluster.decode_policy=['lor'] is not valid; it must be a policy",
        ),
        (
            ["engine.scheduling_policy=priority"],
            "engine.scheduling_policy=priority is not valid; it must be fcfs",
        ),
        (["engine=splitwise"], "engine=splitwise takes no groups of GPUs; take another engine, or cluster=one_kind"),
        (
            ["cluster.groups=[{gpus: 1, role: prefill}, {gpus: 1, role: decode, hardware.kv_precision: bf16}]"],
            "cluster.groups: KV of 36,864 and 73,728 bytes a token; where groups have roles it must be the same",
        ),
    ],
)
def test_a_cluster_that_cannot_be_is_one_line(
    settings: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cluster=disaggregated", *settings, f"cache_dir={tmp_path / 'cache'}"]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"prebleexp: {says}")
    assert printed.count("\n") == 1


@pytest.mark.slow
def test_the_protocol_is_the_engines_own_unless_it_is_said() -> None:
    assert cell(*POOLS).cluster.protocol == "pull"
    assert key(cell(*POOLS)) == key(cell(*POOLS, "cluster.protocol=pull"))
    sglang = cell(*POOLS, "engine=sglang")
    assert (sglang.cluster.protocol, sglang.cluster.link.send) == ("reserve_first", "chunks")
    layers = run(cell(*POOLS, "engine=sglang", "cluster.link.send=layers")).metrics
    chunks = run(sglang).metrics
    assert layers["prefill_end_mean_s"] < layers["ttft_mean_s"] < chunks["ttft_mean_s"]
    outcome = run(cell(*POOLS, "cluster.protocol=push_at_end")).outcome
    assert (outcome.ttft_s == outcome.prefill_end_s).all()


def test_lengths_matter_if_either_policy_reads_them() -> None:
    blind = cell(*POOLS)
    assert not blind.policy.reads_lengths
    assert "lengths" in blind.left_out
    reads = replace(blind, cluster=cell(*POOLS, "cluster.decode_policy=least_work").cluster)
    assert "lengths" not in reads.left_out
