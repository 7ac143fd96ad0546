"""Which groups a model's layers make, what fits into their pool, and where they are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prebleexp.__main__ import main
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.engines.vllm.groups import grouped, grouping, most_held, requests_at_once
from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.sim.types import CHUNKED, FULL, SLIDING, Layers, Setup
from tests.support.by_hand.small_cluster import alike

OSS = (Layers(SLIDING, 128, 18), Layers(FULL, 0, 18))
GEMMA = (Layers(SLIDING, 1024, 52), Layers(FULL, 0, 10))


def test_a_group_has_as_many_layers_as_the_rarest_kind() -> None:
    assert grouped(OSS) == OSS
    assert [one.kind for one in grouped(GEMMA)] == [SLIDING] * 6 + [FULL]
    assert {one.layers for one in grouped(GEMMA)} == {10}


def test_kinds_that_are_almost_as_frequent_have_a_group_each() -> None:
    almost = (Layers(SLIDING, 64, 20), Layers(FULL, 0, 14))
    assert [(one.kind, one.layers) for one in grouped(almost)] == [(SLIDING, 20), (FULL, 20)]
    assert len(grouped((Layers(SLIDING, 64, 21), Layers(FULL, 0, 14)))) == 3


def test_the_pool_of_the_default_model_is_as_vllm_says() -> None:
    """Spec engine-features.md, section 0: an H200 of 1,764,286 tokens."""
    of = grouping(OSS, 1_764_286, 16)
    assert of.blocks == 220_535
    assert requests_at_once(of, 16, 1_000) == 220_534 // (63 + 9)
    assert requests_at_once(of, 16, 8_000) == 220_534 // (500 + 9)
    assert requests_at_once(of, 16, 200) == 220_534 // (13 + 9)


def test_a_window_and_what_is_in_flight_bound_what_a_request_holds() -> None:
    """Spec, section 1: 1,033 blocks with the defaults of an H200."""
    assert most_held(OSS[0], 16, 2 * 8192, 131_072) == 1_033
    assert most_held(OSS[0], 16, 2 * 8192, 1_000) == 64
    assert most_held(OSS[1], 16, 2 * 8192, 131_072) is None
    assert most_held(Layers(CHUNKED, 512, 1), 16, 64, 131_072) == 36


@pytest.mark.parametrize(("ahead", "blocks", "phase"), [(False, 71 + 1, 3), (True, 135 + 1, 4)])
def test_a_step_that_is_scheduled_ahead_counts(ahead: bool, blocks: int, phase: int) -> None:
    """A window of 100 tokens and a step of 1,024 are 1,123 tokens: 71 blocks, and one that is begun; with two steps
    2,147. The block that a window leaves is given up 99 tokens behind its end, 3 tokens into a block; or 100, 4 into
    it."""
    engine = VLLM(max_num_batched_tokens=1024, max_num_seqs=8, async_scheduling=ahead)
    kinds = (Layers(SLIDING, 100, 18), Layers(FULL, 0, 18))
    groups = engine.start(Setup(1, 0, 1, 20_000, 131_072, alike([0.0], 3000, 10), layer_kinds=kinds)).groups
    assert [int(one.cap) for one in groups.all if one.window > 0] == [blocks]
    assert groups.offsets.tolist() == [0, phase]


@pytest.mark.parametrize(("decodes", "reserves", "refused"), [(True, True, 0), (False, True, 1), (True, False, 1)])
def test_whose_output_alone_is_made_needs_no_room_for_steps_of_its_prompt(
    decodes: bool, reserves: bool, refused: int
) -> None:
    """Of 3,010 tokens it holds 189 blocks and 10 of the window (128 tokens and two steps), of 250 in the pool. Steps of
    1,024 tokens of a prompt need 137 of the window: where admissions leave no room for all of a prompt, whoever is
    preempted would try that for ever."""
    engine = VLLM(max_num_batched_tokens=1024, max_num_seqs=8, scheduler_reserve_full_isl=reserves)
    stream = alike([0.0], 3000, 10)
    of = Setup(1, 0, 1, 2000, 131_072, stream, layer_kinds=OSS, legs=True, pulls=True, reads=True, decodes=decodes)
    assert engine.refuses(of).tolist() == [bool(refused)]
    assert not engine.refuses(replace(of, kv_tokens=2640)).any()  # 330 blocks


def hardware(*lines: str) -> Any:
    return configure.cells(["hardware=composed", *lines])[0].kinds[0].hardware


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        ("gpt_oss_120b", OSS),
        ("gpt_oss_20b", (Layers(SLIDING, 128, 12), Layers(FULL, 0, 12))),
        ("gemma_3_27b", GEMMA),
        ("gemma_3_12b", (Layers(SLIDING, 1024, 40), Layers(FULL, 0, 8))),
        ("llama_3_1_8b", ()),
    ],
)
def test_models_say_which_layers_have_windows(model: str, kinds: tuple[Layers, ...]) -> None:
    assert hardware(f"hardware/model={model}").layer_kinds == kinds


def test_groups_where_kv_moves_are_refused_in_a_line() -> None:
    lines = ["cluster=migrating", "engine=vllm", "engine.disable_hybrid_kv_cache_manager=false"]
    with pytest.raises(InvalidInput, match=r"disable_hybrid_kv_cache_manager=False is not valid.*true or null"):
        configure.cells(lines)
    lines = ["cluster=tiered", *lines[1:]]
    configure.cells(lines)
    with pytest.raises(InvalidInput, match="true or null where GPUs lend each other KV"):
        configure.cells([*lines, "cluster.peers.gb_s=36"])


@pytest.mark.parametrize("value", ["7", "-16", "1.5", "true"])
def test_an_interval_is_whole_blocks(value: str) -> None:
    with pytest.raises(InvalidInput, match="prefix_cache_retention_interval"):
        configure.cells(["engine=vllm", f"engine.prefix_cache_retention_interval={value}"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cluster=disaggregated"], False),
        (["cluster=disaggregated", "cluster.protocol=push_at_end"], True),
        (["cluster=tiered"], False),
        (["cluster=tiered", "cluster.peers.gb_s=36"], True),
        (["cluster=tiered", "cluster.peers.gb_s=36", "engine.disable_hybrid_kv_cache_manager=true"], False),
        ([], False),
    ],
)
def test_where_kv_moves_it_is_said_that_windows_are_kept_whole(
    words: list[str], said: bool, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = ["engine=vllm", "gpus=4", "rps=2", "duration_s=2", f"cache_dir={tmp_path}/c", f"reports_dir={tmp_path}/r"]
    assert main([*given, *words]) == 0
    line = "prebleexp: engine=vllm keeps all of a context for all layers where KV moves or steps go through stages"
    assert (line in capsys.readouterr().err) == said
