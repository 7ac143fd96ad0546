"""What is composed of the package's own files is kept for the next process, as long as the files are as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra._internal.config_loader_impl import ConfigLoaderImpl

from prebleexp import machine_code
from prebleexp.errors import InvalidInput
from prebleexp.launch import bases, configs, written
from prebleexp.launch.compose import Composer
from prebleexp.launch.configure import job


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine_code, "home", lambda: tmp_path)
    monkeypatch.setattr(bases, "_OF_PACKAGE", {})
    return tmp_path / "composed"


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Fills with what Hydra composes from now on."""
    found: list[Any] = []
    usual = ConfigLoaderImpl.load_configuration

    def load(self: Any, *arguments: Any, **named: Any) -> Any:
        found.append(arguments)
        return usual(self, *arguments, **named)

    monkeypatch.setattr(ConfigLoaderImpl, "load_configuration", load)
    return found


def composed() -> tuple[dict[str, Any], dict[str, str]]:
    made = Composer(configs.loader()).compose(["gpus=3", "rps=2.5"])
    return made.values, made.choices


def test_what_hydra_composed_is_kept_and_given_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = counted(monkeypatch)
    first = composed()
    assert (len(loads), len(list(home.iterdir()))) == (1, 1)
    bases._OF_PACKAGE.clear()  # as in another process
    assert (composed(), len(loads)) == (first, 1)
    (file,) = home.iterdir()
    said = json.loads(file.read_text())
    assert said["written"]["policy"]["_target_"]
    for damaged in ("", "{}", file.read_text()[:-9], json.dumps(said | {"made_of": "other files"})):
        file.write_text(damaged)
        bases._OF_PACKAGE.clear()
        assert composed() == first
        assert json.loads(file.read_text()) == said
    assert len(loads) == 5


def test_what_needs_hydras_trees_composes_them(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other() -> object:
        return Composer(configs.loader()).compose(["gpus=4", "+policy.more=1"]).values["policy"]

    composed()
    bases._OF_PACKAGE.clear()
    loads = counted(monkeypatch)
    assert other() == other()
    assert len(loads) == 1


@pytest.mark.usefixtures("home")
def test_what_is_wrong_is_looked_for_in_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = counted(monkeypatch)
    for count in (2, 1):  # the configuration, and what Hydra is asked to say itself, each time
        with pytest.raises(InvalidInput, match=r"unknown key 'gpsu'\. Did you mean 'gpus'"):
            job(["gpsu=3"], configs.loader())
        assert len(loads) == count
        loads.clear()


@pytest.mark.usefixtures("home")
def test_an_edit_of_any_file_is_another_configuration() -> None:
    one = written.Written({"policy": "lor"}, {"gpus": 2}, {"gpus": 2}, frozenset({"gpus"}), False, False)
    first, second = written.digest(("a file", 1)), written.digest(("a file", 2))
    written.keep(first, (), one)
    assert written.kept(first, ()) == one
    assert written.kept(second, ()) is None
    assert written.kept(first, ("policy=e2",)) is None
    written.keep(first, (), written.Written({}, {"gpus": (2,)}, {}, frozenset(), False, False))
    assert written.kept(first, ()) == one  # a tuple would come back as a list
