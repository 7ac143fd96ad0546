"""`python -m prebleexp predict train|evaluate …`: predictors of output length."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from prebleexp.commands import line
from prebleexp.commands.arguments import Given
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


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say and return the exit code. Raises InvalidInput for what is not valid, libraries that
    are not installed included."""
    if not arguments or arguments[0] not in COMMANDS:
        raise unknown("predict command", arguments[0] if arguments else "", COMMANDS)
    for word in arguments[1:]:
        if "=" not in word:
            raise InvalidInput(f"predict {arguments[0]} does not know {word!r}; settings are written key=value")
    return COMMANDS[arguments[0]](Given(arguments[1:]), line("predict", *arguments))


def _train(given: Given, command: str) -> int:
    source, threads = _data(given), _threads(given)
    out = given.text("out")
    settings = _settings(given)
    given.end()
    if settings.model not in MODELS:
        raise unknown("model", settings.model, MODELS)
    name = settings.model if settings.edges == "frequency" else f"{settings.model}-{settings.edges}"
    path = Path(out or f"predictors/{name}{ENDING}").expanduser()
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


def _evaluate(given: Given, command: str) -> int:
    from prebleexp.report import frame, listing, predictors_page

    source, threads = _data(given), _threads(given)
    names = given.text("predictors") or ""
    folder = given.path("out", "reports/predictors")
    output = given.choice("output", ("table", "json", "csv"))
    given.end()
    paths = [Path(one).expanduser() for one in names.strip("[]").split(",") if one]
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


def _settings(given: Given) -> train.Settings:
    readers: dict[str, Callable[[str], Any]] = {"int": given.integer, "float": given.number, "str": given.text}
    found = {one.name: readers[str(one.type)](one.name) for one in fields(train.Settings)}
    return train.Settings(**{name: value for name, value in found.items() if value is not None})


def _data(given: Given) -> Path:
    name = given.text("data")
    if not name:
        raise InvalidInput("data=FILE is missing: JSON lines, or a JSON list, of instruction, input and output")
    return Path(name).expanduser()


def _threads(given: Given) -> int:
    threads = given.integer("threads", least=1, most=MOST_THREADS)
    return (os.cpu_count() or 1) if threads is None else threads


COMMANDS: dict[str, Callable[[Given, str], int]] = {"evaluate": _evaluate, "train": _train}
