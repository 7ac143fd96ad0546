"""A KV store of one's own, as docs/tiers.md has it: one file and one configuration, nothing in the simulator."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.experiment.key import key
from prebleexp.experiment.runs import draw, simulate_cell
from prebleexp.launch.configure import cells
from prebleexp.sim.types import Outcome
from tests.support.outcomes import assert_same
from tests.support.places import ROOT

pytestmark = pytest.mark.thorough

LOAD = ("gpus=2", "rps=4", "duration_s=8", "engine=vllm", "cluster.host.gb=0")


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "tiers.md").read_text(encoding="utf-8")
    (source,), (yaml,) = (re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("python", "yaml"))
    (tmp_path / "zipped.py").write_text(source)
    (tmp_path / "conf" / "cluster").mkdir(parents=True)
    (tmp_path / "conf" / "cluster" / "zipped.yaml").write_text(yaml)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))


def served(*overrides: str) -> Outcome:
    (cell,) = cells([*LOAD, *overrides])
    return simulate_cell(cell, draw(cell))


@pytest.mark.usefixtures("zipped")
def test_it_has_twice_the_room_and_half_the_rates() -> None:
    """And each is seen: kv is scarce, so that what is loaded depends on what the store has, and when."""
    ours = served("cluster=zipped", "cluster.shared.gb=0.2")
    rates = [f"cluster.shared.{name}_gb_s=18" for name in ("load", "store")]
    assert ours.shared_tokens.sum() > 0
    assert_same(ours, served("cluster=tiered", "cluster.shared.gb=0.4", *rates))
    for other in (["cluster.shared.gb=0.2", *rates], ["cluster.shared.gb=0.4"]):
        assert not np.array_equal(ours.latency_s, served("cluster=tiered", *other).latency_s), other


@pytest.mark.usefixtures("zipped")
def test_it_is_part_of_the_key_and_says_its_name() -> None:
    (one,), (other,) = (cells([*LOAD, "cluster=zipped", f"cluster.shared.slower={times}"]) for times in (2, 3))
    assert key(one) != key(other)
    with pytest.raises(InvalidInput, match=r"cluster\.shared\.gb=-1 .* a number of GB >= 0"):
        cells([*LOAD, "cluster=zipped", "cluster.shared.gb=-1"])
