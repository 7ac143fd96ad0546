"""A key says everything that can change a result, and nothing else."""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp import sources
from prebleexp.errors import InvalidInput
from prebleexp.experiment import itself
from prebleexp.experiment import key as keys
from prebleexp.experiment.cell import SPECS, Cell
from prebleexp.experiment.key import canonical, content, contents, differences, key
from prebleexp.launch import configure
from prebleexp.overhead.model import Overhead
from prebleexp.service.level import LIMITED, ServiceLevel
from tests.support.counted import calls
from tests.support.sampled import examples


def cell(*overrides: str) -> Cell:
    return configure.cells(list(overrides))[0]


PAPERS = ("hardware=a6000_mistral_7b", "engine=sglang_2024")
"""options with fields of their own"""
DEFAULT = replace(
    cell(*PAPERS),
    overhead=Overhead("serial", 1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
    slo=ServiceLevel(*[1.0] * len(LIMITED), warmup_s=1.0),
)


@pytest.mark.parametrize(
    ("overrides", "pinned"),
    [
        ((), "c50a0420d0d696b3feda348d853515fee7858bd79c9133825761f0e984930502"),
        (
            ("gpus=4", "rps=2.5", "policy=random", "policy.seed=42", "engine=released", "horizon=stop"),
            "3f5a8ccdc8351ab0c397788d08f1d41a18e22c1578ef73ad2cad823be0ee789d",
        ),
    ],
)
def test_keys_do_not_change_by_accident(
    monkeypatch: pytest.MonkeyPatch, overrides: tuple[str, ...], pinned: str
) -> None:
    """If this fails, every cached run of every user is computed again: change FORMAT and these on purpose only."""
    monkeypatch.setattr(keys, "code", lambda: {"sources": "fixed"})
    assert key(cell(*overrides)) == pinned


@pytest.mark.parametrize(
    "override",
    [
        "gpus=7",
        "rps=65",
        "duration_s=29",
        "horizon=stop",
        "seed=1",
        "policy=random",
        "reports_ms=50",
        "engine=released",
        "engine=sglang",
        "engine=sglang_2024",
        "engine=preble",
        "engine.watermark=0.1",
        "hardware=a6000_mistral_7b",
        "hardware/gpu=h100",
        "hardware/model=llama_3_1_8b",
        "hardware.tensor_parallel=2",
        "hardware.utilisation=0.8",
        "hardware.gpu.hbm_gb_s=4000",
        "hardware.kv_tokens=1000",
        "workload.groups=9",
        "workload.max_new_tokens=301",
        "output_length.lengths=[1,299]",
        "slo=agents",
        "slo.ttft_s=0.5",
        "slo.ttft_s={p99:0.5}",
        "slo.warmup_s=5",
        "slo.slowdown=true",
    ],
)
def test_whatever_changes_a_result_changes_the_key(override: str) -> None:
    assert key(cell(override)) != key(cell())


@pytest.mark.parametrize(
    "override",
    [
        "engine.step_cost_s=0.0007",
        "engine.queue=fcfs",
        "engine.prefill=chunked",
        "engine.decode_steps=1",
        "hardware.linear=[[0,22,0.1,0]]",
    ],
)
def test_so_does_what_changes_the_papers_engine_and_hardware(override: str) -> None:
    assert key(cell(*PAPERS, override)) != key(cell(*PAPERS))


NUMBERS = [
    (name, field.name)
    for name in SPECS
    for field in fields(getattr(DEFAULT, name))
    if type(getattr(getattr(DEFAULT, name), field.name)) in (int, float)
]


@pytest.mark.parametrize(("name", "field"), NUMBERS)
def test_every_number_of_every_spec_counts(name: str, field: str) -> None:
    spec = getattr(DEFAULT, name)
    changed: dict[str, Any] = {name: replace(spec, **{field: getattr(spec, field) * 2})}
    assert key(replace(DEFAULT, **changed)) != key(DEFAULT)


def test_whole_floats_are_integers_everywhere() -> None:
    assert key(replace(DEFAULT, rps=64.0, duration_s=30.0)) == key(replace(DEFAULT, rps=64, duration_s=30))


NUMBER = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)


@given(NUMBER, NUMBER)
def test_texts_are_equal_where_numbers_are(a: float, b: float) -> None:
    assert (canonical(a) == canonical(b)) == (a == b)
    assert json.loads(canonical(a)) == a


def test_what_cannot_change_a_result_does_not_change_the_key() -> None:
    plain = key(cell())
    for override in (
        *("workers=1", "cache_dir=elsewhere", "hardware.source=hearsay", "rps=64.0", "keep_requests=all"),
        *("check=false", "reports_ms=0.0", "slo=none", "slo.target=0.9"),
    ):
        assert key(cell(override)) == plain
    released = cell("engine=released")
    assert key(replace(released, engine=replace(released.engine, stepwise=True))) == key(released)
    assert key(replace(cell(), names={"policy": "another name"})) == plain


def test_a_recorded_workload_has_its_own_rate_and_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 5, "output_length": 3, "hash_ids": [1]}\n')
    given = ("workload=mooncake", f"workload.path={trace}", "workload.load=recorded")
    assert key(cell(*given)) == key(cell(*given, "rps=1", "output_length=constant"))
    copied = tmp_path / "copy.jsonl"
    copied.write_bytes(trace.read_bytes())
    assert key(cell(*given)) == key(cell("workload=mooncake", f"workload.path={copied}", "workload.load=recorded"))


def test_the_sources_count(monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(cell())
    monkeypatch.setattr(keys, "code", lambda: {"sources": "edited"})
    assert key(cell()) != before


def test_a_policy_of_ones_own_counts_with_the_modules_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_helper.py").write_text("ANSWER = 0\n")
    text = (
        "from dataclasses import dataclass\nfrom own_helper import ANSWER\nfrom prebleexp.policies.base import Policy\n"
        "@dataclass(frozen=True)\nclass Own(Policy):\n"
        "    def route(self, mine, view, request, now):\n        return ANSWER\n"
    )
    found = []
    for helper, extra in (("ANSWER = 0\n", ""), ("ANSWER = 1\n", ""), ("ANSWER = 1\n", "# edited\n")):
        (tmp_path / "own_helper.py").write_text(helper)
        (tmp_path / "own_policy.py").write_text(text + extra)
        sys.modules.pop("own_policy", None)
        importlib.invalidate_caches()
        own = importlib.import_module("own_policy").Own()
        found.append(key(replace(cell(), policy=own)))
    assert len(set(found)) == 3


def write_package(folder: Path, importing: str) -> None:
    (folder / "lab").mkdir(exist_ok=True)
    (folder / "lab" / "__init__.py").write_text("")
    (folder / "lab" / "mine.py").write_text(
        f"from dataclasses import dataclass\n{importing}\nfrom prebleexp.policies.base import Policy\n"
        "@dataclass(frozen=True)\nclass Mine(Policy):\n    pass\n"
    )


@pytest.mark.parametrize("importing", ["from . import score", "from .score import S", "from lab.score import S"])
@pytest.mark.parametrize("root", ["code", "site-packages"])
def test_a_policy_in_a_package_counts_with_what_it_imports_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importing: str, root: str
) -> None:
    folder = tmp_path / root
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    write_package(folder, importing)
    found = []
    for deeper, unused in ((0, 0), (1, 0), (1, 1)):
        (folder / "lab" / "score.py").write_text("import lab.deeper\nS = 0\n")
        (folder / "lab" / "deeper.py").write_text(f"D = {deeper}\n")
        (folder / "lab" / "unused.py").write_text(f"U = {unused}\n")
        for name in [name for name in sys.modules if name.split(".")[0] == "lab"]:
            del sys.modules[name]
        importlib.invalidate_caches()
        own = importlib.import_module("lab.mine").Mine()
        found.append(key(replace(cell(), policy=own)))
    assert found[0] != found[1] == found[2]


def test_of_an_installation_only_the_policys_own_package_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    found = []
    for version in (0, 1):
        (folder / "library.py").write_text(f"V = {version}\n")
        write_package(folder, "import library")
        sys.modules.pop("lab.mine", None)
        sys.modules.pop("lab", None)
        importlib.invalidate_caches()
        found.append(key(replace(cell(), policy=importlib.import_module("lab.mine").Mine())))
    assert found[0] == found[1]


def test_another_copy_of_the_package_on_the_path_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the checkout that is installed, where one works in a second."""
    monkeypatch.syspath_prepend(tmp_path)
    base, mine = tmp_path / "prebleexp" / "policies" / "base.py", tmp_path / "mine.py"
    base.parent.mkdir(parents=True)
    base.write_text("class Policy: pass\n")
    mine.write_text("from prebleexp.policies.base import Policy\n")
    assert sources.with_imports(mine, "mine") == {mine}


def test_a_file_that_changes_while_the_process_runs_changes_the_key(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    found = []
    for length in (5, 6):
        trace.write_text(f'{{"timestamp": 0, "input_length": {length}, "output_length": 3, "hash_ids": [1]}}\n')
        traced = cell("workload=mooncake", f"workload.path={trace}", "workload.load=recorded")
        (both,) = {canonical(one) for one in contents([traced, traced])}
        assert hashlib.sha256(both.encode()).hexdigest() == key(traced)
        found.append(key(traced))
    assert found[0] != found[1]


def test_canonical_text() -> None:
    assert canonical({"b": 1.0, "a": [True, None, 0.1, (2,)]}) == canonical({"a": (True, None, 0.1, [2.0]), "b": 1})
    assert canonical(True) != canonical(1)
    for bad in (float("nan"), float("inf"), object()):
        with pytest.raises(InvalidInput, match=r"x\.y\[1\]="):
            canonical({"x": {"y": [0, bad]}})


VALUE = st.recursive(
    st.none() | st.booleans() | NUMBER | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@settings(deadline=None, max_examples=examples(100))
@given(st.dictionaries(st.text(), VALUE))
def test_canonical_text_is_json_whose_names_are_sorted(value: dict[str, Any]) -> None:
    text = canonical(value)
    assert json.loads(text) == value
    assert json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) == text


def test_what_cells_share_is_put_in_as_text() -> None:
    cells = [cell("gpus=4"), cell("policy=e2", "rps=2.5"), cell("slo.ttft_s=0.5")]
    for one in contents(cells):
        assert canonical(one) == canonical(json.loads(json.dumps(one)))


def test_what_is_made_of_the_same_objects_is_made_once_and_few_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(itself, "KEPT", 3)
    made = []

    @itself.once_of_itself
    def joined(ones: list[int], name: str) -> str:
        made.append(name)
        return f"{name}{ones}"

    first, equal = [1], [1]
    assert [joined(one, "x") for one in (first, first, equal, first)] == ["x[1]"] * 4
    assert made == ["x", "x"]
    assert [joined([number], "y") for number in range(9)] == [f"y[{number}]" for number in range(9)]
    assert joined(first, "x") == "x[1]"


def test_why_two_keys_differ() -> None:
    found = differences(content(cell("gpus=4")), content(cell("rps=32")))
    assert found == [("cell.gpus", 4, 8), ("cell.rps", 64, 32)]


def test_a_key_takes_few_calls() -> None:
    cells = configure.cells(["replications=50"])
    key(cells[0])
    assert len({key(one) for one in cells}) == 50
    each = calls(lambda: [key(one) for one in cells]) / 50
    print(f"{each:.0f} calls a key")
    assert each < 2_500


@pytest.mark.parametrize("overrides", [["gpus=2"], ["policy=lor", "slo.ttft_s=0.5"], ["policy=random"]])
def test_the_cells_of_several_seeds_have_the_keys_that_they_have_alone(overrides: list[str]) -> None:
    """Though most of their contents is made once."""
    other = cell(*overrides, "rps=7")
    cells = [one for first in (cell(*overrides), other) for one in (first, first.with_seed(5), first.with_seed(2**40))]
    assert [keys.digest(one) for one in contents(iter(cells))] == [key(replace(one)) for one in cells]
    assert len({key(one) for one in cells}) == len(cells)
