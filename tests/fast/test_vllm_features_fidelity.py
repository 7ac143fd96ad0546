"""`engine=vllm` equals what vLLM's own V1 scheduler decided with groups of layers (its hybrid KV cache manager).

All hybrid_* of the folder named in PREBLEEXP_VLLM_FEATURES_FIDELITY (default: ../shared/fidelity/vllm_features beside
the checkout) if there are any, else the few that are committed; step for step. Beyond them, random small streams and
groups against the plain model of it, which equals the recordings as well. Only names of blocks are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tests.support.interpreted import printed
from tests.support.places import ROOT
from tests.support.recordings import vllm_offload, vllm_pairs
from tests.support.recordings.columns import load
from tests.support.recordings.vllm import (
    NAMES_OF_BLOCKS,
    OF_ADAPTERS,
    OF_DRAFTS,
    OF_GROUPS,
    equal,
    is_served_alike_unseen,
    replay,
    replays,
)
from tests.support.recordings.vllm_offload import OFFLOADS
from tests.support.recordings.vllm_pairs import PAIRS
from tests.support.reference import vllm as reference_vllm
from tests.support.reference import vllm_offloading as reference_offloading
from tests.support.sampled import seeds
from tests.support.strategies.engine_streams import random_features, random_groups, random_offloads, random_setting

CONNECTED = ROOT / "tests/data/fidelity/vllm_connected"
"""made by `python -m tests.record_vllm`"""
HOSTED, PAIRED = (sorted(CONNECTED.glob(names)) for names in ("offload_*.npz", "pd_*.npz"))
STUCK = CONNECTED / "offload_groups_50.npz"
"""six requests of which two never end: each holds the blocks of KV that it loaded, and none is left for either"""
MODELLED = [path for path in HOSTED if "groups" not in path.stem or path.stem.startswith("offload_groups_")]
"""the plain model has no group of a draft's head, and does not know of blocks that had left a window when they were
offered"""
SEEDS_AT_ONCE = 10
UNENDING = {50}
"""settings under which two requests preempt each other for ever, in the plain model as well: vLLM's rules do"""


@pytest.mark.parametrize("path", OF_GROUPS, ids=lambda path: path.stem)
def test_every_step_of_a_recording_is_the_same(path: Path) -> None:
    replays(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAIRS, ids=lambda path: path.stem)
def test_every_step_of_a_pair_is_the_same(path: Path) -> None:
    vllm_pairs.replays(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", OFFLOADS, ids=lambda path: path.stem)
def test_every_step_with_a_host_is_the_same(path: Path) -> None:
    vllm_offload.replays(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", OFFLOADS, ids=lambda path: path.stem)
def test_the_plain_model_offloads_as_recorded(path: Path) -> None:
    config, recorded = load(path)
    equal(reference_offloading.replay(config, recorded), recorded)


@pytest.mark.slow
@pytest.mark.parametrize("path", OF_GROUPS, ids=lambda path: path.stem)
def test_the_plain_model_equals_the_recordings(path: Path) -> None:
    config, recorded = load(path)
    equal(reference_vllm.replay(config, recorded), recorded)


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(range(100, 180), range(210)))
def test_random_groups_are_served_as_the_plain_model_serves_them(first: int) -> None:
    for seed in sorted(set(range(first, first + SEEDS_AT_ONCE)) - UNENDING):
        config, stream = random_groups(seed)
        model = reference_vllm.replay(config, stream)
        del model[NAMES_OF_BLOCKS]
        ours = replay(config, stream)
        if len(config["groups"]) == 1:
            del ours["scheduled_blocks"]
        assert set(ours) == set(model)
        equal(ours, model, f"seed {seed}: ")


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(range(20, 40), range(50)))
def test_one_group_that_looks_back_to_all_is_as_if_there_were_none(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        config, stream = random_setting(seed)
        ours = replay(config | {"groups": [{"kind": "full"}]}, stream)
        del ours["scheduled_blocks"]
        equal(ours, replay(config, stream), f"seed {seed}: ")


@pytest.mark.slow
@pytest.mark.parametrize("path", OF_GROUPS[:2], ids=lambda path: path.stem)
def test_watching_changes_nothing(path: Path) -> None:
    is_served_alike_unseen(path)


# ---------------------------------------------------------------- adapters and drafts
@pytest.mark.uncompiled
@pytest.mark.parametrize("path", OF_ADAPTERS, ids=lambda path: path.stem)
def test_adapters_are_served_as_recorded(path: Path) -> None:
    replays(path)


@pytest.mark.parametrize("path", OF_DRAFTS, ids=lambda path: path.stem)
def test_drafts_are_served_as_recorded(path: Path) -> None:
    replays(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", [*OF_ADAPTERS, *OF_DRAFTS], ids=lambda path: path.stem)
def test_the_plain_model_has_adapters_and_drafts_as_recorded(path: Path) -> None:
    config, recorded = load(path)
    equal(reference_vllm.replay(config, recorded), recorded)


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(range(20, 160), range(300)))
def test_random_features_are_served_as_the_plain_model_serves_them(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        config, stream = random_features(seed)
        model = reference_vllm.replay(config, stream)
        del model[NAMES_OF_BLOCKS]
        ours = replay(config, stream)
        if len(config.get("groups", ())) == 1:
            del ours["scheduled_blocks"]
        assert set(ours) == set(model)
        equal(ours, model, f"seed {seed}: ")


HELD_BACK = """
from tests.support.recordings.vllm import equal, replay
from tests.support.reference import vllm
from tests.support.strategies.engine_streams import random_features

for seed in (%s):
    config, stream = random_features(seed)
    config["prefill_schedule_interval"] = 2 + seed %% 4
    model, ours = vllm.replay(config, stream), replay(config, stream)
    equal({name: ours[name] for name in model if name in ours}, model, f"seed {seed}: ")
    before = vllm.replay(config | {"prefill_schedule_interval": 1}, stream)
    print(int((model["finish_ns"] != before["finish_ns"]).any()))
"""


@pytest.mark.slow
def test_prompts_in_every_few_steps_are_computed_when_the_plain_model_computes_them() -> None:
    """With drafts, adapters and groups, too, in a process that compiles nothing; it makes a difference."""
    assert sum(map(int, printed(HELD_BACK % "2, 3, 6, 8, 15, 20, 23, 27, 28"))) > 4


# ---------------------------------------------------------------- hosts
def _hosts(seeds: Iterable[int], grouped: bool = False) -> None:
    for seed in seeds:
        config, stream = random_offloads(seed, grouped)
        equal(vllm_offload.replay(config, stream), reference_offloading.replay(config, stream), f"seed {seed}: ")


@pytest.mark.slow
def test_random_hosts_are_served_as_the_plain_model_serves_them() -> None:
    _hosts((*range(14, 30), 133))


@pytest.mark.slow
def test_random_hosts_with_groups_are_served_as_the_plain_model_serves_them() -> None:
    _hosts((2, 3, 5, 6, 7, 8, 10, 13, 17, 27), grouped=True)


@pytest.mark.parametrize("path", MODELLED, ids=lambda path: path.stem)
def test_the_plain_model_offloads_as_vllm_itself(path: Path) -> None:
    config, recorded = load(path)
    equal(reference_offloading.replay(config, recorded), recorded)


def test_requests_with_loaded_kv_may_block_each_other_for_ever_as_in_vllm_itself() -> None:
    config, recorded = load(STUCK)
    assert not config["reserve_full_isl"]
    never = recorded["finish_ns"] < 0
    assert never.sum() == 2
    assert not set(recorded["finished_request"]) & set(np.flatnonzero(never))
    assert set(recorded["load_request"][-2:]) == set(np.flatnonzero(never))
    assert not recorded["step_running"][-1]


@pytest.mark.uncompiled
def test_who_never_fits_never_ends() -> None:
    """In the plain model neither: of these 36 requests 33 have no end."""
    _hosts([19], grouped=True)


@pytest.mark.uncompiled
@pytest.mark.parametrize("seed", [155, 258])
def test_steps_wait_for_the_blocks_that_a_window_left_and_for_no_others(seed: int) -> None:
    """155: what another request finds is not taken from whoever has not filled that block yet. 258: a request that was
    preempted has left blocks that are stored, and stores others of the same place."""
    vllm_offload.replays(CONNECTED / f"offload_groups_{seed}.npz")


@pytest.mark.slow
def test_drafts_adapters_and_groups_are_offloaded_as_by_vllm_itself() -> None:
    """In a process that compiles nothing."""
    assert printed(_replayed(HOSTED, "vllm_offload")) == [path.stem for path in HOSTED]


@pytest.mark.slow
def test_pairs_with_groups_or_drafts_do_as_two_of_vllm_itself() -> None:
    """In a process that compiles nothing."""
    assert printed(_replayed(PAIRED, "vllm_pairs")) == [path.stem for path in PAIRED]


def _replayed(paths: list[Path], by: str) -> str:
    return REPLAYED.format(by=by, paths=[str(path) for path in paths])


REPLAYED = """
from pathlib import Path

from tests.support.recordings import {by}

for path in map(Path, {paths}):
    {by}.replays(path)
    print(path.stem)
"""


DRAFTED = """
from tests.support.recordings import vllm_offload
from tests.support.recordings.vllm import equal
from tests.support.reference import vllm_offloading
from tests.support.strategies.engine_streams import random_offloads

for seed, grouped in (%s):
    config, stream = random_offloads(seed, grouped, drafted=True)
    model, ours = vllm_offloading.replay(config, stream), vllm_offload.replay(config, stream)
    equal({name: ours[name] for name in model}, model, f"seed {seed}: ")
    print(seed)
"""


@pytest.mark.slow
def test_random_hosts_with_drafts_are_served_as_the_plain_model_serves_them() -> None:
    """In a process that compiles nothing: an engine with both takes more than a minute to compile."""
    of = [(2, False), (3, False), (8, False), (2, True), (8, True)]
    assert printed(DRAFTED % repr(of)[1:-1]) == [str(seed) for seed, _ in of]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("first", range(30, 300, SEEDS_AT_ONCE))
def test_random_hosts_are_served_as_the_plain_model_serves_them_on_many(first: int) -> None:
    _hosts(range(first, first + SEEDS_AT_ONCE))
    _hosts(range(first, first + SEEDS_AT_ONCE), grouped=True)
