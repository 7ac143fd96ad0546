"""Fast composition gives what Hydra's own full composition gives, for every form of its grammar, errors included."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import setup_globals
from hydra.types import RunMode
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig, OmegaConf, open_dict

from prebleexp.launch import at_once, configs, places
from prebleexp.launch.compose import Composer
from prebleexp.launch.configure import GROUPS, Job, job_of
from prebleexp.launch.groups import made_whole
from prebleexp.launch.messages import understood
from tests.support.counted import calls
from tests.support.sampled import examples, sampled
from tests.support.strategies.grammar import FILES, VALID, WRONG, jobs_of

REQUIRED = "required=1"
NUMBER = 3


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> ConfigLoaderImpl:
    folder = tmp_path_factory.mktemp("conf")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    version.setbase("1.3")
    setup_globals()
    return ConfigLoaderImpl(create_config_search_path(str(folder)))


@pytest.fixture(scope="module")
def composer(loader: ConfigLoaderImpl) -> Composer:
    """One for all tests, so that jobs which saw each other would be noticed."""
    return Composer(loader, [REQUIRED])


def by_hydra(loader: ConfigLoaderImpl, overrides: list[str]) -> Any:
    """The resolved values, the choices and the whole configuration as YAML, or the error, as in a job of Hydra's.

    Groups of a cluster are made whole, as is our own rule, with what Hydra composes.
    """

    def values_of(group: str, lines: Sequence[str]) -> Any:
        with understood(loader, lines):
            return _resolved(loader, lines)[0][group]

    try:
        resolved, cfg = _resolved(loader, overrides)
        made_whole(resolved, overrides, values_of)
    except Exception as error:
        return type(error), str(error), str(error.__cause__)
    return resolved, dict(cfg.hydra.runtime.choices), written(cfg)


def _resolved(loader: ConfigLoaderImpl, overrides: Sequence[str]) -> tuple[dict[str, Any], DictConfig]:
    config: Any = HydraConfig.instance()
    before = config.cfg
    try:
        cfg = loader.load_configuration(places.CONFIG, list(overrides), RunMode.RUN)
        with open_dict(cfg):
            cfg.hydra.job.id = cfg.hydra.job.num = NUMBER
        HydraConfig.instance().set_config(cfg)
        resolved = {}
        for name in (str(name) for name in cfg if name != "hydra"):
            node = cfg[name]
            resolved[name] = (
                OmegaConf.to_container(node, resolve=True, throw_on_missing=True) if OmegaConf.is_config(node) else node
            )
    finally:
        config.cfg = before
    return resolved, cfg


def written(cfg: DictConfig) -> list[str]:
    """As in config.yaml and hydra.yaml of a job."""
    own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
    return [OmegaConf.to_yaml(own), OmegaConf.to_yaml(cfg.hydra)]


def by_us(composer: Composer, overrides: list[str]) -> Any:
    try:
        composition = composer.compose(overrides, NUMBER)
    except Exception as error:
        return type(error), str(error), str(error.__cause__)
    return composition.values, composition.choices, written(composer.configuration(overrides, NUMBER))


# What Hydra itself warns of: a hydra.searchpath that does not exist.
pytestmark = pytest.mark.filterwarnings("ignore:provider=hydra.searchpath:UserWarning")


@pytest.mark.parametrize("overrides", sampled([[], ["gpus=3 "], *jobs_of(VALID)], 24), ids=" ".join)
def test_composes_what_hydra_composes(loader: ConfigLoaderImpl, composer: Composer, overrides: list[str]) -> None:
    ours = by_us(composer, overrides)
    assert repr(ours) == repr(by_hydra(loader, [REQUIRED, *overrides]))
    assert isinstance(ours[0], dict), f"is not valid: {ours}"


@pytest.mark.parametrize("overrides", sampled([[" gpus=3"], *jobs_of(WRONG)], 24), ids=" ".join)
def test_refuses_what_hydra_refuses_with_the_same_words(
    loader: ConfigLoaderImpl, composer: Composer, overrides: list[str]
) -> None:
    ours = by_us(composer, overrides)
    assert repr(ours) == repr(by_hydra(loader, [REQUIRED, *overrides]))
    assert isinstance(ours[0], type), f"is valid: {ours}"


def test_a_missing_value_is_an_error(loader: ConfigLoaderImpl) -> None:
    assert repr(by_us(Composer(loader), [])) == repr(by_hydra(loader, []))
    assert "required" in by_us(Composer(loader), [])[1]


ANY = sorted({line for job in jobs_of(VALID) + jobs_of(WRONG) for line in job})
# An extended search path makes every job slow, and a job that deletes or composes wrongly ends there: fewer of those.
USUAL = sorted({line for job in jobs_of(VALID) for line in job if "searchpath" not in line and line[0] != "~"})


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.one_of(st.sampled_from(USUAL), st.sampled_from(ANY)), max_size=5))
def test_any_mixture_composes_as_in_hydra(loader: ConfigLoaderImpl, composer: Composer, overrides: list[str]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="provider=hydra.searchpath")
        assert repr(by_us(composer, overrides)) == repr(by_hydra(loader, [REQUIRED, *overrides]))


def same_without_hydra(composer: Composer, overrides: list[str], composed: Any) -> bool:
    """Whether it is composed without Hydra; then as with it. What is not valid is left to Hydra."""
    plain = at_once.Plain()
    plain.composer = composer
    at = plain.composed(overrides)
    assert at is None or repr((at.values, at.choices)) == repr(composed[:2])
    return at is not None


@pytest.fixture(scope="module")
def own() -> ConfigLoaderImpl:
    return configs.loader()


@pytest.fixture(scope="module")
def own_composer(own: ConfigLoaderImpl) -> Composer:
    return Composer(own, ["hydra.mode=MULTIRUN"])


CHOICES = [f"{group}={option}" for group in GROUPS for option in configs.loader().get_group_options(group)]
VALUES = (
    *("cluster=two_kinds", "cluster.groups=[{gpus: 1}]", "cluster.groups=[{hardware/gpu: h100}]", "cluster.groups=5"),
    *("gpus=4", "rps=2.5", "horizon=stop", "seed=null", "sweep.name=x", "sweep.title='a: b'", "engine.queue=fcfs"),
    *("seed=${hydra.job.num}", "rps=${gpus}", "workload={a: 1}", "engine={queue: fcfs}", "sweep=5", "sweep.parts=null"),
    *("objective=[ttft_p99_s,hit_ratio]", "report.metrics=[hit_ratio]", "output_length.lengths=[1,2.5]"),
    *("gpus=[1,true]", "policy.quirks=[a,b]"),
    *("output_length.lengths=null", "cluster.groups=[]", "sweep=[1]", "policy=[lor]", "sweep.title=[a,null]"),
    *("report=none", "report.format=none", "report={format: none}", "report=null"),
    *("+policy.seed=3", "++hardware.x=1", "+sweep.x=[1]", "~title", "policy.seed=3", "engine.nope=1", "gpus.x=1"),
)
STRUCTURE = ("+variant=released", "+variant=described", "+sweeps=fig1a", "hydra.verbose=true", "+policy@other=e2")


@pytest.mark.parametrize("override", sampled(VALUES, 7))
def test_each_form_composes_with_those_of_the_package(
    own: ConfigLoaderImpl, own_composer: Composer, override: str
) -> None:
    composed = by_us(own_composer, [override])
    assert repr(composed) == repr(by_hydra(own, ["hydra.mode=MULTIRUN", override]))
    same_without_hydra(own_composer, [override], composed)


@pytest.mark.slow
@settings(max_examples=examples(30), deadline=None)
@given(
    st.lists(st.sampled_from(CHOICES), max_size=4),
    st.lists(st.sampled_from(VALUES), max_size=3),
    st.lists(st.sampled_from(STRUCTURE), max_size=1),
    st.randoms(use_true_random=False),
)
def test_configurations_of_the_package_compose_as_in_hydra(
    own: ConfigLoaderImpl, own_composer: Composer, choices: list[str], values: list[str], more: list[str], order: Any
) -> None:
    overrides = [*choices, *values, *more]
    order.shuffle(overrides)
    composed = by_us(own_composer, overrides)
    assert repr(composed) == repr(by_hydra(own, ["hydra.mode=MULTIRUN", *overrides]))
    same_without_hydra(own_composer, overrides, composed)


def test_the_search_path_may_be_extended(loader: ConfigLoaderImpl, tmp_path: Path) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "mine.yaml").write_text("seed: 1\n")
    (tmp_path / "gpus").mkdir()
    (tmp_path / "gpus" / "many.yaml").write_text("count: 64\n")
    extended = f"hydra.searchpath=[{tmp_path}]"
    for overrides in (["policy=mine", "cache=lor_cache"], ["+gpus@tree=many"], ["gpus=4"]):
        lines = [REQUIRED, extended, *overrides]
        assert repr(by_us(Composer(loader), lines)) == repr(by_hydra(loader, lines))


PLAIN = (
    *("gpus=4", "rps=2.5", "horizon=stop", "seed=null", "check=false", "policy=e2", "engine=sglang", "report=none"),
    *("hardware/gpu=h100", "engine.max_num_seqs=64", "slo.target=0.5"),
)
LEFT_TO_HYDRA = (
    *("gpus=1,2", "rps=1e3", "gpus=007", "gpus=+4", "rps=inf", "seed=NULL", "sweep.name='x'", "sweep.title=a b"),
    *(
        "duration_s=2min",
        "cluster=two_kinds",
        "cluster=disaggregated",
        "policy=nope",
        "nope=1",
        "seed=${gpus}",
        "+policy.seed=3",
        "policy=null",
    ),
    *("gpus", "cluster.groups=[{gpus: 1}]", "hydra.verbose=true", "policy={a: 1}"),
)


def test_plain_words_are_composed_without_hydra(own: ConfigLoaderImpl) -> None:
    """The rest is left to it, and so is what comes twice."""
    composer = Composer(own)
    for lines in [[], *([line] for line in PLAIN), list(PLAIN[:4]), ["policy=e2", "gpus=2", "hardware/gpu=h100"]]:
        assert same_without_hydra(composer, lines, by_us(composer, lines)), lines
    plain = at_once.Plain()
    plain.composer = composer
    for line in LEFT_TO_HYDRA:
        assert plain.composed([line]) is None, line
    assert plain.composed(["policy=lor", "policy=e2"]) is None


def products(gpus: int, rps: int) -> Iterator[list[str]]:
    for n in range(1, gpus + 1):
        for rate in range(1, rps + 1):
            for policy in ("random", "lor"):
                yield [f"gpus={n}", f"rps={rate}", f"policy={policy}"]


def test_hydra_composes_what_is_asked_for_and_no_more(own: ConfigLoaderImpl) -> None:
    """To copy its store of structured configurations, and to make a configuration of all choices for each file, was a
    third of what a composition takes."""
    assert copy.deepcopy(ConfigStore.instance()) is ConfigStore.instance()
    own.load_configuration(places.CONFIG, [], RunMode.RUN)  # files are read once
    took = calls(lambda: own.load_configuration(places.CONFIG, ["policy=e2"], RunMode.RUN))
    print(f"{took:,} calls")
    assert took < 400_000


@pytest.mark.parametrize(("gpus", "rps", "most"), [(4, 5, 1_500), pytest.param(100, 50, 450, marks=pytest.mark.slow)])
def test_a_job_of_the_package_is_composed_in_few_calls(gpus: int, rps: int, most: int) -> None:
    composer = Composer(configs.loader())
    for one in products(1, 1):  # what is read once
        composer.compose(one)
    found: list[Job] = []
    took = calls(lambda: found.extend(job_of(composer.compose(one)) for one in products(gpus, rps))) / (2 * gpus * rps)
    print(f"{len(found):,} jobs to cells: {took:,.0f} calls each")
    assert took < most
    cells = [cell for job in found for cell in job.cells]
    assert len({(cell.gpus, cell.rps, cell.policy) for cell in cells}) == 2 * gpus * rps
