"""Times of a model's steps, taken on this machine: a tiny model, on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest

from prebleexp.__main__ import main
from prebleexp.commands.hardware_check import sizes
from prebleexp.errors import InvalidInput
from prebleexp.hardware.composed import Composed
from prebleexp.hardware.model import Model
from prebleexp.launch import configure
from tests.support.predictors import require_extra

require_extra()
import torch  # noqa: E402

from prebleexp.hardware import measure  # noqa: E402
from prebleexp.hardware.measure import Decoder, measured  # noqa: E402

Capture = pytest.CaptureFixture[str]
CPU = torch.device("cpu")


SIZES = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "ffn": 128, "vocab": 256}
TINY = Model("tiny", **SIZES, context_length=128)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads that wait for one another would be what is measured."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def test_a_prompt_in_two_steps_gives_the_same_as_in_one() -> None:
    model = Decoder(TINY, CPU, torch.float32)
    x = torch.randn(3, 12, 64, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        cache = model.cache(3, 12)
        whole = model.step(x, cache, 36).view(3, 12, -1)
        for cut in (5, 11):  # a chunk behind what is cached; a decode
            again = model.cache(3, 12)
            model.step(x[:, :cut], again[..., :cut, :], 1)
            rest = model.step(x[:, cut:], again, 3 * (12 - cut)).view(3, 12 - cut, -1)
            torch.testing.assert_close(rest, whole[:, cut:])
            torch.testing.assert_close(again, cache)


def test_points_are_what_the_equations_ask_for() -> None:
    found = list(measured(TINY, CPU, tokens=(1, 8), batches=(1, 3), contexts=(16, 64)))
    sizes = [(one.what, one.new, one.sequences, one.context, one.pairs) for one in found]
    assert sizes[:2] == [("linear", 1, 0, 0, 0.0), ("linear", 8, 0, 0, 0.0)]
    batches = [(1, 16), (1, 64), (3, 48), (3, 192)]
    assert sizes[2:6] == [("attention", sequences, sequences, context, 0.0) for sequences, context in batches]
    assert sizes[6:8] == [("prefill", 8, 1, 0, 32.0), ("prefill", 8, 1, 0, 96.0)]
    assert sizes[8:] == [("decode", sequences, sequences, context, 0.0) for sequences, context in batches]
    assert all(one.us > 0 and one.repeats >= measure.LEAST_REPEATS for one in found)


def clock(work: partial[torch.Tensor], _: torch.device) -> tuple[float, int]:
    """A device whose times are not by chance: 100 us, and 1 ns for each number of its tokens and their context."""
    work()
    return 1e-4 + sum(one.numel() for one in work.args if isinstance(one, torch.Tensor)) * 1e-9, 1


def test_what_the_command_writes_is_compared_and_fitted_to(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Capture
) -> None:
    monkeypatch.setattr(measure, "timed", clock)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "conf" / "hardware" / "model"
    folder.mkdir(parents=True)
    (folder / "tiny.yaml").write_text(json.dumps(asdict(TINY)))
    assert main(["hardware", "measure", "gpu=h100", "model=tiny", "device=cpu", "to=measured.csv"]) == 0
    found = pd.read_csv("measured.csv")
    assert set(found["what"]) == {"linear", "attention", "prefill", "decode"}
    assert (found["us"] > 0).all()
    assert (found["gpu"] == "h100").all()
    sizes.cache_clear()  # of the folder that was the working one before
    assert main(["hardware", "check", "data=measured.csv", "output=json"]) == 0
    rows = json.loads(capsys.readouterr().out.partition("measured.csv\n")[2])
    counts = {row["metric"]: row["n"] for row in rows if row["gpu"] != "*"}
    whole = found["what"].isin(["prefill", "decode"])
    assert counts["prefill_step"] + counts["decode_step"] == counts["step"] == whole.sum()
    assert main(["calibrate", "hardware", "data=measured.csv"]) == 0
    assert f"{whole.sum()} whole steps of tiny in bf16 on 1 h100" in capsys.readouterr().out
    made = configure.cells(["hardware=h100_tiny_bf16_tp1_any", "engine=vllm"])[0].hardware
    assert isinstance(made, Composed)
    assert made.evidence is not None
    assert made.evidence.median < 0.1
    sizes.cache_clear()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpu=h100", "model=gpt_oss_120b", "device=cpu"], "gpt-oss-120b cannot be measured: only dense models"),
        (["gpu=h100", "model=llama", "device=cpu"], "unknown model 'llama'. Did you mean 'llama_2_7b'? Valid: "),
        (["gpu=h1000", "model=llama_3_1_8b"], "unknown gpu 'h1000'; valid: "),
        (["gpu=h100", "model=llama_3_1_8b", "device=gpu"], "device=gpu cannot be used here; there are: cpu"),
    ],
)
def test_what_cannot_be_measured_is_said_in_a_line(words: list[str], said: str, capsys: Capture) -> None:
    assert main(["hardware", "measure", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"prebleexp: {said}")


def test_more_work_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "timed", clock)
    wide = replace(TINY, hidden=256, heads=8, kv_heads=8, head_dim=32, ffn=512)
    found = {(one.what, one.new): one.us for one in measured(wide, CPU, (1, 64), (1, 16), (16,))}
    assert found["linear", 64] > found["linear", 1]
    assert found["decode", 16] > found["attention", 16]
    assert found["prefill", 64] > found["decode", 1]


def test_a_model_that_does_not_fit_is_refused() -> None:
    huge = replace(TINY, layers=10_000, hidden=16_384, ffn=65_536)
    with pytest.raises(InvalidInput, match=r"weights take .* GB, and cpu has .* GB; choose a smaller model"):
        next(measured(huge, CPU))
