"""Each router decides as the real one did, decision for decision, in every recording of ../shared/fidelity/routers.

All of the folder named in PREBLEEXP_ROUTER_FIDELITY (default: ../shared/fidelity/routers beside the checkout) if there
is one, else the few that are committed. Where the real one draws, what was drawn must be possible, and as likely as
here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recordings.router_models import BYTES, MODELS, UNLIKELY, model_of, settings_of
from tests.support.recordings.routers import load, named, recordings, replay

pytestmark = pytest.mark.uncompiled


@pytest.mark.parametrize("path", recordings("routers"), ids=lambda path: path.stem)
def test_every_decision_is_the_recorded_one(path: Path) -> None:
    recording = load(path)
    with named(recording):
        model = model_of(recording)
        made = replay(recording, MODELS[model](settings_of(recording)), bytes_of=model in BYTES)
    print(f"{path.stem}: {made.agree} of {made.decisions}, {made.decisions - made.drawn} without a draw")
    assert made.agree == made.decisions, made.first
    assert made.unlikely < UNLIKELY
