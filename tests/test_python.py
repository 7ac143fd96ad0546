"""The package from Python and from notebooks: what `run` and `sweep` take, refuse, find in the cache and return."""

from __future__ import annotations

from pathlib import Path

import pytest

from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from tests.yardstick import least, slowness


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------- one composer for the process
def test_the_second_configuration_is_composed_at_once() -> None:
    configure.cells(["gpus=3", "policy=e2"])
    seeds = iter(range(1000))
    took = least(lambda: configure.cells(["gpus=4", "policy=e2", f"seed={next(seeds)}"]), times=20)
    print(f"cells: {1000 * took:.2f} ms of CPU")
    assert took < 0.005 * slowness()


def test_an_edited_file_and_a_new_one_are_seen_by_the_standing_composer(folder: Path) -> None:
    group = folder / "conf" / "policy"
    group.mkdir(parents=True)
    yaml = "_target_: prebleexp.policies.random.Random\nseed: {}\n"
    with pytest.raises(InvalidInput, match="unknown policy 'mine'"):
        configure.cells(["policy=mine"])
    (group / "mine.yaml").write_text(yaml.format(1))
    assert configure.cells(["policy=mine"])[0].policy.seed == 1
    (group / "mine.yaml").write_text(yaml.format(2))
    assert configure.cells(["policy=mine"])[0].policy.seed == 2
    (group / "mine.yaml").unlink()
    with pytest.raises(InvalidInput, match="unknown policy 'mine'"):
        configure.cells(["policy=mine"])


def test_each_folder_has_its_own_configurations(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, name in ((1, "a"), (2, "b")):
        group = folder / name / "conf" / "policy"
        group.mkdir(parents=True)
        (group / "mine.yaml").write_text(f"_target_: prebleexp.policies.random.Random\nseed: {seed}\n")
        monkeypatch.chdir(folder / name)
        assert configure.cells(["policy=mine"])[0].policy.seed == seed
