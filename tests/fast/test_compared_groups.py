"""Comparisons where a group of settings is in some cells alone, and of two values of a setting in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput

pytestmark = pytest.mark.thorough

FEW = ("rps=24,30", "gpus=4", "duration_s=2", "replications=2", "report=none")


@pytest.fixture
def swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With one router there is no gateway in a run's key; with four there is one, with all its settings."""
    monkeypatch.chdir(tmp_path)
    gateway = ("gateway.replicas=1,4", "gateway.gossip_ms=100")
    assert main(["-m", "policy=lor,e2", *gateway, *FEW, "sweep.name=gw"]) == 0
    capsys.readouterr()


@pytest.mark.slow
def test_only_what_differs_between_cells_is_shown(swept: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "lor", "e2", "sweep=gw", "output=json"]) == 0
    found = json.loads(capsys.readouterr().out)
    places = [(cell["gateway.replicas"], cell["rps"]) for cell in found["cells"]]
    assert sorted(places) == [(1, 24), (1, 30), (4, 24), (4, 30)]
    shown = {name for cell in found["cells"] for name in cell if "gateway" in name}
    assert shown == {"gateway.replicas"}
    assert found["common"]["gateway.gossip_ms"] == 100
    assert found["common"]["gateway.order"] == "fcfs"


def test_the_table_is_readable_in_80_columns(
    swept: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["compare", "lor", "e2", "sweep=gw"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "gateway.replicas" in lines[0]
    assert "null" not in "".join(lines)
    assert len(lines) == 5
    text = Path("reports/compare-lor-e2-gw/index.html").read_text()
    assert "gateway.budget_least=" not in text


def test_each_broken_cell_is_another_one(swept: None, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", "e2", "lor", "sweep=gw", "report=none", "fail_if=mean_norm_latency:+0.1%"])
    broken = [line for line in capsys.readouterr().err.splitlines() if " at " in line and line.startswith("fail_if")]
    assert len(broken) == len(set(broken))
    assert all("gateway.replicas=" in line for line in broken)


def test_two_values_of_a_setting_are_compared_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = prebleexp.sweep(gpus=[1, 2], rps=[4.0, 8.0], duration_s=2, replications=2)
    compared = found.compare("gpus=1", "gpus=2")
    assert [cell.place for cell in compared.found.cells] == [{"rps": 4}, {"rps": 8}]
    assert compared.found.differs["gpus"] == (1, 2)
    with pytest.raises(InvalidInput, match="unknown gpus '3'; valid: 1, 2"):
        found.compare("gpus=1", "gpus=3")


def test_gpus_and_groups_of_them_are_said_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cell of a GPU was named by all its numbers as JSON, and runs of groups of GPUs ended with a traceback."""
    monkeypatch.chdir(tmp_path)
    few = ("policy=lor,random", "rps=4", "duration_s=2", "hardware/model=llama_3_1_8b", "report=none")
    assert main(["-m", "gpus=2", "hardware/gpu=h100,a100", *few, "sweep.name=kinds"]) == 0
    groups = "[{gpus: 1, hardware/gpu: h100}, {gpus: 1, hardware/gpu: a100}],[{gpus: 2, hardware/gpu: h100}]"
    assert main(["-m", f"cluster.groups={groups}", *few, "sweep.name=groups"]) == 0
    capsys.readouterr()

    def compared(*words: str) -> list[object]:
        assert main(["compare", *words, "output=json", "report=none"]) == 0
        return [
            [value for name, value in cell.items() if name in ("hardware.gpu", "cluster.groups")]
            for cell in json.loads(capsys.readouterr().out)["cells"]
        ]

    assert compared("lor", "random", "sweep=kinds") == [["a100"], ["h100"]]
    assert compared("lor", "random", "sweep=groups") == [["1 h100 + 1 a100"], ["2 h100"]]
    for key in ("hardware.gpu", "hardware/gpu"):
        assert main(["compare", "lor", "random", "sweep=kinds", f"{key}=h100", "output=json", "report=none"]) == 0
        assert json.loads(capsys.readouterr().out)["common"]["hardware.gpu"] == "h100"
        assert main(["compare", f"{key}=h100", f"{key}=a100", "policy=random", "output=json"]) == 0
        assert json.loads(capsys.readouterr().out)["differs"]["hardware.gpu"] == ["h100", "a100"]
    page = next(tmp_path.glob("reports/compare-hardware.gpu-h100*/index.html")).read_text()
    assert "bf16_tflops" not in page
