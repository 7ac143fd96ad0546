"""The contract that every policy, hardware model and engine in conf/ goes through, and the plug-in interface."""

from __future__ import annotations

import dataclasses
import importlib
import pickle
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prebleexp
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.policies.random import Random, python_randints
from prebleexp.policies.replay import Replay
from prebleexp.sim.cost import decode_s, linear_s, prefill_s, request_ms
from tests.recordings import ROOT


def names(group: str) -> list[str]:
    return sorted(path.stem for path in (ROOT / "conf" / group).glob("*.yaml"))


def cell(policy: str, gpus: int, folder: Path) -> Any:
    given = [f"policy={policy}", f"gpus={gpus}", "rps=20", "duration_s=5"]
    if policy == "replay":
        np.savez(folder / "recorded.npz", gpu=np.arange(100) % gpus)
        given.append(f"policy.path={folder / 'recorded.npz'}")
    return configure.cells(given)[0]


@pytest.mark.parametrize("gpus", [1, 3, 8])
@pytest.mark.parametrize("policy", names("policy"))
def test_compiled_or_not_a_policy_gives_the_same_bytes(policy: str, gpus: int, tmp_path: Path) -> None:
    one = cell(policy, gpus, tmp_path)
    workload = runs.draw(one)
    kind = type(one.policy)
    interpreted = type(kind.__name__, (kind,), {"compiled": False})
    fields = {field.name: getattr(one.policy, field.name) for field in dataclasses.fields(kind)}
    made = runs.simulate_cell(one, workload)
    again = runs.simulate_cell(dataclasses.replace(one, policy=interpreted(**fields)), workload)
    assert kind.compiled
    assert set(made.gpu.tolist()) <= set(range(gpus))
    for field in dataclasses.fields(made):
        np.testing.assert_array_equal(getattr(made, field.name), getattr(again, field.name))


@pytest.mark.parametrize("policy", names("policy"))
def test_a_policy_is_a_frozen_dataclass_that_travels(policy: str, tmp_path: Path) -> None:
    one = cell(policy, 2, tmp_path).policy
    assert pickle.loads(pickle.dumps(one)) == one
    assert type(one).__dataclass_params__.frozen


@pytest.mark.parametrize("hardware", names("hardware"))
def test_a_hardware_model_has_a_source_and_costs_that_grow(hardware: str) -> None:
    one = configure.cells([f"hardware={hardware}"])[0].hardware
    cost = one.step_cost()
    assert one.source
    prefills = [prefill_s(cost, 1, n, n, n, request_ms(cost, n, n)) for n in (512, 1024, 4096, 8192)]
    decodes = [decode_s(cost, b, 1000 * b, 1000 * b, linear_s(cost, b)) for b in (1, 64, 256, 512)]
    for series in (prefills, decodes):
        assert series[0] > 0
        assert series == sorted(series)


@pytest.mark.parametrize("engine", names("engine"))
def test_every_engine_runs(engine: str) -> None:
    assert prebleexp.run(engine=engine, gpus=2, rps=4, duration_s=3).metrics["n_finished"] == 12


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**80), st.integers(1, 300), st.integers(0, 300))
def test_random_draws_are_those_of_python(seed: int, gpus: int, count: int) -> None:
    expected = random.Random(seed)
    assert python_randints(seed, gpus, count).tolist() == [expected.randint(0, gpus - 1) for _ in range(count)]


def test_random_takes_the_seed_of_the_run_unless_it_has_its_own() -> None:
    seen = {
        seed: prebleexp.run(policy="random", rps=4, duration_s=5, seed=seed).requests.gpu.tolist() for seed in (1, 2)
    }
    fixed = [prebleexp.run(policy=Random(7), rps=4, duration_s=5, seed=seed).requests.gpu.tolist() for seed in (1, 2)]
    assert seen[1] != seen[2]
    assert fixed[0] == fixed[1]


def test_replay_says_what_is_wrong_with_its_file(tmp_path: Path) -> None:
    garbage, other, floats, short = (tmp_path / name for name in ("a.npz", "b.npz", "c.npz", "d.npz"))
    garbage.write_bytes(b"PK nothing")
    np.savez(other, cpu=np.zeros(3))
    np.savez(floats, gpu=np.zeros(3))
    np.savez(short, gpu=np.zeros(3, int))
    for path, message in (
        (tmp_path / "none.npz", "none.npz cannot be read: No such file"),
        (garbage, "a.npz: not a readable"),
        (other, "b.npz: there is no column gpu"),
        (floats, "c.npz: column gpu is float64"),
        (short, "d.npz: column gpu has 3 rows; the workload has 20"),
    ):
        with pytest.raises(InvalidInput, match=re.escape(message)):
            prebleexp.run(policy=Replay(str(path)), rps=4, duration_s=5)
    with pytest.raises(InvalidInput, match=r"policy\.path=FILE"):
        Replay()


def test_a_gpu_that_does_not_exist_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", gpu=np.r_[np.zeros(19, int), 5])
    with pytest.raises(PrebleexpError, match=r"Replay sent request 19 at .* s to GPU 5; .* from 0 to 1"):
        prebleexp.run(policy=Replay(str(tmp_path / "x.npz")), gpus=2, rps=4, duration_s=5)


def example(file: str = "README.md") -> tuple[str, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (source,) = [block for block in blocks if "class PowerOfTwo(" in block]
    (yaml,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    return source, yaml


def test_the_policy_of_the_readme_works_as_it_stands(tmp_path: Path) -> None:
    source, yaml = example()
    (tmp_path / "power_of_two.py").write_text(source)
    (tmp_path / "conf" / "policy").mkdir(parents=True)
    (tmp_path / "conf" / "policy" / "power_of_two.yaml").write_text(yaml)
    command = [sys.executable, "-m", "prebleexp", "-m", "policy=lor,power_of_two", "rps=4,8", "gpus=2", "duration_s=3"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "power_of_two" in done.stdout
    assert "4 runs: 4 computed" in done.stderr


def test_the_policy_of_the_readme_balances_better_than_random() -> None:
    namespace: dict[str, Any] = {}
    exec(compile(example()[0], "README.md", "exec"), namespace)
    settings = {"gpus": 8, "rps": 64, "duration_s": 20}
    two = prebleexp.run(policy=namespace["PowerOfTwo"](), **settings).metrics["norm_latency_mean_s"]
    one = prebleexp.run(policy="random", **settings).metrics["norm_latency_mean_s"]
    assert two is not None
    assert one is not None
    assert two < one


def test_the_tutorial_teaches_what_the_readme_shows_and_its_policies_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert example("docs/policy.md") == example()
    text = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    (tmp_path / "tutorial.py").write_text("\n\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)))
    monkeypatch.syspath_prepend(tmp_path)
    tutorial: Any = importlib.import_module("tutorial")
    settings = {"gpus": 4, "rps": 32, "duration_s": 5}
    plain, compiled = (
        prebleexp.run(policy=one(), **settings) for one in (tutorial.PowerOfTwo, tutorial.CompiledPowerOfTwo)
    )
    told = ("told_error_tokens", "told_rank_correlation")  # the compiled one says that it does not read lengths
    assert plain.metrics | dict.fromkeys(told) == compiled.metrics
    assert tutorial.PowerOf(choices=3).choices == 3
