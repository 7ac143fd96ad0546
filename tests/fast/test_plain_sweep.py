"""Sweeps of plain words say without Hydra what they say with it: jobs, settings, axes, errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.launch.multirun import Multirun
from prebleexp.launch.plain_sweep import PlainSweep
from prebleexp.launch.session import Session
from tests.support.sampled import examples, sampled


class Heard(Session):
    """Runs nothing, and remembers what it was to run."""

    def __init__(self, sweep: Multirun | PlainSweep) -> None:
        super().__init__(sweep.settings)
        self.heard: list[Any] = []

    def run(self, jobs: Sequence[Any], axes: Sequence[str] = ()) -> list[list[Any]]:
        self.heard.append((list(jobs), list(axes)))
        return [[] for _ in jobs]


def said_by(sweep: Multirun | PlainSweep) -> list[Any]:
    session = Heard(sweep)
    sweep.launch(session)
    return [*session.heard, session.axes, session.places]


def by_hydra(overrides: list[str]) -> tuple[Any, Any]:
    try:
        sweep = Multirun.of(overrides)
        return sweep.settings, said_by(sweep)
    except InvalidInput as error:
        return type(error), str(error)


def by_us(overrides: list[str]) -> tuple[Any, Any] | None:
    """None if it is left to Hydra."""
    try:
        sweep = PlainSweep.of(overrides, True)
        return sweep and (sweep.settings, said_by(sweep))
    except InvalidInput as error:
        return type(error), str(error)


PLAIN = (
    *(
        "gpus=1,2",
        "gpus=4",
        "rps=range(1,4)",
        "rps=range(8,2,-3)",
        "rps=2.50,0.5,3",
        "rps=0.00001,1",
        "seed=0,-0,1",
        "rps=1,inf",
    ),
    *("policy=lor,e2,random", "policy=e2", "engine=vllm,sglang", "hardware/gpu=h100,a100", "horizon=stop,drain"),
    *("check=false,true", "engine.max_num_seqs=64,128", "workers=2", "retry=none", "report=none", "reports_ms=null,5"),
    *("slo.target=0.5,0.9", "duration_s=10", "replications=2", "replications=auto", "output=csv", "cluster=tiered"),
)
WRONG = (
    *("policy=lor,nope", "nope=1,2", "nope=1", "gpus=0,1", "workers=1,2", "workers=0", "sweep.nope=1", "seed=null,1"),
    *("objective=nope", "cluster.decode_policy=lor,e2", "output_length=discrete,two_point", "profile=stages"),
)
LEFT_TO_HYDRA = (
    *("gpus=1,1e1", "gpus=range(3)", "gpus=range(4,1)", "gpus=range(1,4,0)", "rps=range(1,2,0.5)", "rps=1, 2"),
    *("policy=glob(l*)", "policy=choice(lor,e2)", "gpus=sort(2,1)", "sweep.name='a b'", "policy=[lor]"),
    *(
        "hydra.verbose=true",
        "+policy.seed=3,4",
        "~title",
        "duration_s=2min",
        "job_dirs=true",
        "gpus=",
        "gpus",
        "nope=1",
    ),
    *("policy=nope", "hydra/sweeper=basic", "cluster=two_kinds", "rps=interval(1,2)", "rps=1,${gpus}"),
)


def same(overrides: list[str]) -> bool:
    """Whether it is plain; then it says what Hydra says."""
    ours = by_us(overrides)
    assert ours is None or ours == by_hydra(overrides)
    return ours is not None


@pytest.mark.parametrize("word", sampled(PLAIN, 8))
def test_each_plain_word_is_swept_without_hydra(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert same([word])


@pytest.mark.parametrize("word", sampled(WRONG, 4))
def test_what_is_wrong_is_said_in_the_same_words(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    same([word])
    same(["gpus=1,2", word])


@pytest.mark.parametrize("word", LEFT_TO_HYDRA)
def test_the_rest_is_left_to_hydra(word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert PlainSweep.of(["rps=1,2", word], True) is None


@pytest.mark.parametrize("words", [["+sweeps=fig1a"], ["gpus=4,8", "+sweeps=ablations", "report=none"]], ids=" ".join)
def test_a_file_of_parts_is_swept_without_hydra(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*words, "sweep.name=x"] if len(words) > 1 else words
    sweep = PlainSweep.of(words, False)
    assert sweep is not None
    assert same(words)


@pytest.mark.parametrize("word", ["seed=1", "+sweeps=tuning", "+sweeps=capacity", "+sweeps=nope"])
def test_a_file_without_parts_and_a_name_that_is_made_are_left_to_hydra(word: str) -> None:
    assert PlainSweep.of(["+sweeps=fig1a", word] if word == "seed=1" else [word], True) is None


def test_what_is_no_sweep_is_none() -> None:
    assert PlainSweep.of(["gpus=4"], False) is None


def test_what_comes_twice_and_folders_of_ones_own_are_left_to_hydra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert PlainSweep.of(["gpus=1,2", "gpus=4"], True) is None
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    assert PlainSweep.of(["gpus=1,2"], True) is None


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.one_of(*[st.sampled_from(PLAIN)] * 3, st.sampled_from(WRONG)), max_size=4))
def test_any_mixture_says_what_hydra_says(overrides: list[str]) -> None:
    same(overrides)
