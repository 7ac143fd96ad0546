"""Fast composition gives what Hydra's own full composition gives, for every form of its grammar, errors included."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.types import RunMode
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from prebleexp.launch import configs
from prebleexp.launch.compose import Composer
from prebleexp.launch.configure import job_of

FILES = {
    "config.yaml": """
defaults:
  - policy: lor
  - hardware/gpu: small
  - cache: ${policy}_cache
  - optional extra: ${hardware/gpu}
  - _self_
gpus: 8
rps: 64
nothing: null
twice: ${eval_free}
eval_free: ${rps}
which: ${hydra.runtime.choices.policy}
list: [1, 2, 3]
tree:
  a: {b: 1, c: [x, y]}
  d: ${gpus}
required: ???
""",
    "policy/lor.yaml": "_target_: a.B\nseed: null\n",
    "policy/random.yaml": "_target_: a.C\nseed: 3\nof: ${gpus}\n",
    "cache/nested_cache.yaml": "size: 3\n",
    "policy/nested.yaml": "defaults:\n  - lor\n  - _self_\ndepth: {x: 1}\n",
    "cache/lor_cache.yaml": "size: 1\n",
    "cache/random_cache.yaml": "size: 2\npolicy_seed: ${policy.seed}\n",
    "hardware/gpu/small.yaml": "kv: 1000\nname: small\n",
    "hardware/gpu/large.yaml": "kv: 9000\nname: ${hydra.runtime.choices.extra}\n",
    "extra/large.yaml": "# @package _global_\nsurprise: ${rps}\n",
    "sweeps/one.yaml": "# @package _global_\nrps: 7\nhydra: {mode: MULTIRUN}\n",
}
REQUIRED = "required=1"


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> ConfigLoaderImpl:
    folder = tmp_path_factory.mktemp("conf")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    version.setbase("1.3")
    return ConfigLoaderImpl(create_config_search_path(str(folder)))


@pytest.fixture(scope="module")
def composer(loader: ConfigLoaderImpl) -> Composer:
    """One for all tests, so that jobs which saw each other would be noticed."""
    return Composer(loader, [REQUIRED])


def by_hydra(loader: ConfigLoaderImpl, overrides: list[str]) -> Any:
    try:
        cfg = loader.load_configuration(configs.CONFIG, overrides, RunMode.RUN)
        choices = dict(cfg.hydra.runtime.choices)
        values = OmegaConf.to_container(cfg, resolve=False)
        assert isinstance(values, dict)
        names = [name for name in values if name != "hydra"]
        resolved = {}
        for name in names:
            node = cfg[name]
            resolved[name] = (
                OmegaConf.to_container(node, resolve=True, throw_on_missing=True) if OmegaConf.is_config(node) else node
            )
    except Exception as error:
        return type(error), str(error), str(error.__cause__)
    return resolved, choices


def by_us(composer: Composer, overrides: list[str]) -> Any:
    try:
        composition = composer.compose(overrides)
    except Exception as error:
        return type(error), str(error), str(error.__cause__)
    return composition.values, composition.choices


VALID = (
    [],
    ["gpus=4"],
    ["gpus=4", "gpus=5"],
    ["rps=2.5", "policy=random"],
    ["policy=random", "policy.seed=9", "policy.of=1"],
    ["policy.seed=9", "policy=random"],
    ["policy=nested", "policy.depth.x=2"],
    ["+policy@other=random"],
    ["+policy@other=random", "other.seed=5"],
    ["+policy@tree.a=lor", "+tree.a.more=1"],
    ["hardware/gpu=large", "rps=1e3"],
    ["hardware.gpu.kv=2000"],
    ["~cache"],
    ["~list"],
    ["~tree.a.b"],
    ["~tree.a.b=1"],
    ["+new=1"],
    ["+new.deep.er=[1,2,{a: 3}]"],
    ["++gpus=3", "++fresh=4"],
    ["+sweeps=one"],
    ["rps=9", "+sweeps=one"],
    ["tree={a: {b: 7}}"],
    ["+tree={z: 1}"],
    ["policy={seed: 4}"],
    ["list=[4]"],
    ["list.0=9"],
    ["list=[]"],
    ["gpus=${rps}"],
    ["twice='a b, c'"],
    ["twice=${policy.seed}", "policy=random"],
    ["which=${hydra.runtime.choices.cache}"],
    ["nothing=true", "gpus=null", "rps=nan"],
    ["nothing=int(3.7)", "twice=str([1, 2])"],
    ["hydra.job.name=x", "hydra.verbose=true"],
    ["hydra/job_logging=none"],
    ["cache=random_cache"],
)
WRONG = (
    ["policy@other=random"],
    ["~hardware/gpu"],
    ["~policy"],
    ["~nothing"],
    ["gpu=4"],
    ["policy=lro"],
    ["policy=5"],
    ["policy.foo=1"],
    ["tree.a.b.c=1"],
    ["+gpus=3"],
    ["~gpus=9"],
    ["~missing"],
    ["~policy=random"],
    ["gpus=1,2"],
    ["gpus=range(1,4)"],
    ["gpus=interval(1,4)"],
    ["policy=glob(*)"],
    ["gpus=["],
    ["gpus='"],
    ["gpus"],
    ["=4"],
    ["sweeps=one"],
    ["++sweeps=one"],
    ["+sweeps=two"],
    ["+policy=random"],
    ["gpus@there=4"],
    ["hydra.nonsense=1"],
    ["hydra/launcher=nonsense"],
    ["gpus=${missing.key}"],
    ["gpus=${gpus}"],
    ["gpus=${unknown_resolver:1}"],
    ["required=???"],
    ["list.9=1"],
)


@pytest.mark.parametrize("overrides", VALID, ids=" ".join)
def test_composes_what_hydra_composes(loader: ConfigLoaderImpl, composer: Composer, overrides: list[str]) -> None:
    ours = by_us(composer, overrides)
    assert repr(ours) == repr(by_hydra(loader, [REQUIRED, *overrides]))
    assert isinstance(ours[0], dict), f"is not valid: {ours}"


@pytest.mark.parametrize("overrides", WRONG, ids=" ".join)
def test_refuses_what_hydra_refuses_with_the_same_words(
    loader: ConfigLoaderImpl, composer: Composer, overrides: list[str]
) -> None:
    ours = by_us(composer, overrides)
    assert repr(ours) == repr(by_hydra(loader, [REQUIRED, *overrides]))
    assert isinstance(ours[0], type), f"is valid: {ours}"


def test_a_missing_value_is_an_error(loader: ConfigLoaderImpl) -> None:
    assert repr(by_us(Composer(loader), [])) == repr(by_hydra(loader, []))
    assert "required" in by_us(Composer(loader), [])[1]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from([override for lines in (*VALID, *WRONG[:9]) for override in lines]), max_size=5))
def test_any_mixture_composes_as_in_hydra(loader: ConfigLoaderImpl, composer: Composer, overrides: list[str]) -> None:
    assert repr(by_us(composer, overrides)) == repr(by_hydra(loader, [REQUIRED, *overrides]))


def test_the_search_path_may_be_extended(loader: ConfigLoaderImpl, tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "mine.yaml").write_text("seed: 1\n")
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "many.yaml").write_text("count: 64\n")
    extended = f"hydra.searchpath=[{tmp_path}]"
    for overrides in (["policy=mine", "cache=lor_cache"], ["+gpus@tree=many"], ["gpus=4"]):
        lines = [REQUIRED, extended, *overrides]
        assert repr(by_us(Composer(loader), lines)) == repr(by_hydra(loader, lines))


def jobs() -> Iterator[list[str]]:
    for gpus in range(1, 26):
        for rps in range(1, 21):
            for policy in ("random", "lor"):
                yield [f"gpus={gpus}", f"rps={rps}", f"policy={policy}"]


def test_a_thousand_jobs_of_the_package_take_less_than_a_second() -> None:
    composer = Composer(configs.loader())
    start = time.process_time()
    found = [job_of(composer.compose(overrides)) for overrides in jobs()]
    assert time.process_time() - start < 1
    cells = [cell for job in found for cell in job.cells]
    assert len({(cell.gpus, cell.rps, cell.policy) for cell in cells}) == 1000
