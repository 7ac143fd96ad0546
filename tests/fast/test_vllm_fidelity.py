"""`engine=vllm` equals what vLLM's own V1 scheduler decided, step for step.

All of the folder named in PREBLEEXP_VLLM_FIDELITY (default: ../shared/fidelity/vllm beside the checkout) if there is
one, else the few recordings that are committed. Beyond them, random small streams against the plain model of it, which
equals the recordings as well. Only names of blocks are not compared: no decision depends on them.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from prebleexp.sim.types import Outcome
from tests.support.recordings.engines import Columns, load
from tests.support.recordings.vllm import RECORDINGS, Watched, engine_of, replay, run
from tests.support.reference import vllm as reference_vllm
from tests.support.strategies.engine_streams import random_setting

NAMES_OF_BLOCKS = "step_blocks_crc32"
SEEDS_AT_ONCE = 10


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_step_of_a_recording_is_the_same(path: Path) -> None:
    config, recorded = load(path)
    ours = replay(config, recorded)
    of_the_stream = {"output_tokens", "priority", "prefix_group", "output_segment", "arrival_ns"}
    of_the_stream |= {"segment_offsets", "segment_ids", "segment_tokens"}
    assert set(ours) == set(recorded) - of_the_stream - {NAMES_OF_BLOCKS}
    _equal(ours, recorded)


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_plain_model_equals_the_recordings(path: Path) -> None:
    config, recorded = load(path)
    _equal(reference_vllm.replay(config, recorded), recorded)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, SEEDS_AT_ONCE))
def test_random_streams_are_served_as_the_plain_model_serves_them(first: int) -> None:
    for seed in range(first, first + SEEDS_AT_ONCE):
        config, stream = random_setting(seed)
        model = reference_vllm.replay(config, stream)
        del model[NAMES_OF_BLOCKS]
        ours = replay(config, stream)
        assert set(ours) == set(model)
        _equal(ours, model, f"seed {seed}: ")


@pytest.mark.slow
@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_watching_changes_nothing(path: Path) -> None:
    config, recorded = load(path)
    watched = Watched(engine_of(config))
    seen, unseen = run(config, recorded, watched, watched), run(config, recorded, engine_of(config))
    for one in fields(Outcome):
        np.testing.assert_array_equal(getattr(seen, one.name), getattr(unseen, one.name), err_msg=one.name)


def _equal(ours: Columns, theirs: Columns, where: str = "") -> None:
    for name, values in ours.items():
        np.testing.assert_array_equal(values, theirs[name], err_msg=where + name)
