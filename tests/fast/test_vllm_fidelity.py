"""`engine=vllm` equals what vLLM's own V1 scheduler decided, step for step.

All of the folder named in PREBLEEXP_VLLM_FIDELITY (default: ../shared/fidelity/vllm beside the checkout) if there is
one, else the few recordings that are committed. Beyond them, random small streams against the plain model of it, which
equals the recordings as well. Only names of blocks are not compared: no decision depends on them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recordings.columns import load
from tests.support.recordings.vllm import NAMES_OF_BLOCKS, RECORDINGS, equal, is_served_alike_unseen, replay, replays
from tests.support.reference import vllm as reference_vllm
from tests.support.sampled import seeds
from tests.support.strategies.engine_streams import random_setting

SEEDS_AT_ONCE = 10


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_step_of_a_recording_is_the_same(path: Path) -> None:
    replays(path)


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_plain_model_equals_the_recordings(path: Path) -> None:
    config, recorded = load(path)
    equal(reference_vllm.replay(config, recorded), recorded)


@pytest.mark.slow
@pytest.mark.parametrize("first", seeds(range(100, 180), range(200)))
def test_random_streams_are_served_as_the_plain_model_serves_them(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        config, stream = random_setting(seed)
        model = reference_vllm.replay(config, stream)
        del model[NAMES_OF_BLOCKS]
        ours = replay(config, stream)
        assert set(ours) == set(model)
        equal(ours, model, f"seed {seed}: ")


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_watching_changes_nothing(path: Path) -> None:
    is_served_alike_unseen(path)
