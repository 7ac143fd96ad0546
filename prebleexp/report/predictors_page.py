"""The page of an evaluation: how good predictors of output length are, and what they cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from prebleexp.report import draw, frame
from prebleexp.report.canvas import POINTS
from prebleexp.report.draw import Line, Scales, labels_fit
from prebleexp.report.figures import Column, Entry, Panel, Table
from prebleexp.report.palette import styles
from prebleexp.report.wording import NOTHING, interval, number, percent_difference, slug

SCORES = {
    "accuracy": ("accuracy", "Share of requests whose bin was told."),
    "times_random": ("× random", "Accuracy times the number of bins: how many times better than guessing."),
    "f1_macro": ("F1", "Plain mean over the bins (macro), as are precision and recall."),
    "precision_macro": ("precision", ""),
    "recall_macro": ("recall", ""),
    "auroc": ("AUROC", "Each bin against the rest, plain mean over the bins."),
    "mcc": ("MCC", "Matthews correlation of the bins told and the true ones."),
    "f1_weighted": ("F1, weighted", "Mean over the bins by how often each occurs, as are the next two."),
    "precision_weighted": ("precision, weighted", ""),
    "recall_weighted": ("recall, weighted", ""),
}
ESTIMATES = {
    "mae_tokens": ("MAE, tokens", "Mean absolute error of the expected length, which is what a scheduler is told."),
    "pinball_tokens": (
        "pinball, tokens",
        "Mean pinball loss of the quantiles 0.1, 0.5 and 0.9; a bin's probability is spread evenly between its edges.",
    ),
    "rank_correlation": ("rank correlation", "Spearman's, of expected and true lengths."),
    "calibration_error": (
        "calibration error",
        "Mean difference of how sure a predictor was of the bin it told and how often it was right, over ten groups.",
    ),
}
COSTS = {
    "seconds": ("training, s", ""),
    "rows_per_s": ("rows/s", "Rows that training went through, over its time."),
    "ms_batch_1": ("ms", "Median milliseconds of a prompt that comes alone, tokenising included."),
    "ms_batch_32": ("ms of 32", "Likewise, a prompt's share of 32 that come together."),
    "training_memory": ("training, MiB", "The most memory that the process used, libraries included."),
    "memory": ("prediction, MiB", "Likewise, of a process that only predicts."),
}
MIB = 2**20
DIAGONAL = "as often right as sure"
SHARES = Scales((), False, (0, 1), False, (0, 1))
"""what is as large on both axes is on a straight line"""
SURE, PRODUCED = "how sure the predictor was of the bin it told", "tokens produced so far"
CALIBRATION = (
    "Ten groups of equally many requests, by how sure the predictor was. A predictor whose probabilities can be "
    "believed is on the diagonal."
)
REFINEMENT = (
    "Requests that have not ended after so many tokens: the error of the first estimate less what was produced, and of "
    "one that Bayes' rule over the bins has refined by the tokens seen (after TRAIL, without access to the model)."
)
METRICS = {"accuracy": ("accuracy", True), "mae_tokens": ("mean absolute error", False)}
"""what pairs are compared by, and whether more is better"""


def render(numbers: Mapping[str, Any], published: Mapping[str, float], command: str) -> str:
    """The page's HTML. `numbers` is what `prebleexp.predict.evaluate.numbers` makes, `published` has the paper's
    scores."""
    predictors: Mapping[str, Any] = numbers["predictors"]
    everyone = predictors | numbers["baselines"]
    return frame.render(
        "predictors.html.j2",
        scripts=("tables.js",),
        sentences=[_verdict(one) for one in numbers["differences"]] or [_best(predictors)],
        rows=f"{numbers['rows']:,}",
        threads=numbers["threads"],
        classes=_table(everyone, SCORES, published),
        estimates=_table(everyone, ESTIMATES),
        costs=_costs(predictors),
        meanings=[(name, meaning) for name, meaning in {**SCORES, **ESTIMATES, **COSTS}.values() if meaning],
        figures=[
            _figure("Calibration", "share that was right", SURE, _calibration(predictors), CALIBRATION, SHARES),
            _figure("What is left", "mean absolute error, tokens", PRODUCED, _refinement(predictors), REFINEMENT),
        ],
        confusions={name: _confusion(one) for name, one in predictors.items()},
        cards={name: _card(one["card"]) for name, one in predictors.items()},
        command=command,
        data=f"sha256 {numbers['data_sha256']}, seed {numbers['seed']}",
    )


def _best(predictors: Mapping[str, Any]) -> str:
    name, one = max(predictors.items(), key=lambda item: float(item[1]["scores"]["times_random"]))
    return f"{name} tells the bin {number(one['scores']['times_random'])} times as often as guessing does."


def _verdict(pair: Mapping[str, Any]) -> str:
    """Plainly whether one beats the other, by intervals of the rows' differences."""
    said = []
    for metric, (words, more_is_better) in METRICS.items():
        difference, half = pair[metric]
        sure = half is not None and abs(difference) > half
        better = (difference > 0) == more_is_better
        word = "is better in" if sure and better else "is worse in" if sure else "does not differ surely in"
        unit = (
            percent_difference(difference, half) if metric == "accuracy" else f"{interval((difference, half))} tokens"
        )
        said.append(f"{word} {words} ({unit.replace('%', 'points') if metric == 'accuracy' else unit})")
    return f"{pair['one']} against {pair['other']}: {' and '.join(said)}."


def _table(
    ones: Mapping[str, Any], names: Mapping[str, tuple[str, str]], published: Mapping[str, float] | None = None
) -> Table:
    rows = [
        (name, str(len(one["edges"]) - 1), _kind(one), *(number(one["scores"].get(score)) for score in names))
        for name, one in ones.items()
    ]
    if published:
        scores = (number(published[score], 2) if score in published else NOTHING for score in names)
        rows.append(("Arango et al., table 1 (MiniLM on Alpaca-52K)", "20", NOTHING, *scores))
    heads = (Column("predictor", False), Column("bins", True), Column("of equal", False))
    return Table((*heads, *(Column(words, True) for words, _ in names.values())), tuple(rows))


def _kind(one: Mapping[str, Any]) -> str:
    if one["card"]:
        return str(one["card"]["edges"])
    widths = [high - low for low, high in zip(one["edges"], one["edges"][1:], strict=False)]
    return "width" if max(widths) - min(widths) < 1e-6 * max(widths) else "frequency"


def _costs(predictors: Mapping[str, Any]) -> Table:
    rows = []
    for name, one in predictors.items():
        training, speed = one["card"]["training"], one["speed"]
        found = {**training, **speed}
        found |= {
            "training_memory": training["peak_memory_bytes"] / MIB,
            "memory": speed["peak_memory_bytes"] / MIB,
        }
        rows.append((name, *(number(found[cost]) for cost in COSTS)))
    return Table((Column("predictor", False), *(Column(words, True) for words, _ in COSTS.values())), tuple(rows))


def _calibration(predictors: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    found = {name: [(said, was) for said, was, _ in one["calibration"]] for name, one in predictors.items()}
    sure = [said for points in found.values() for said, _ in points]
    return found | {DIAGONAL: [(end, end) for end in (min(sure), max(sure))]}


def _refinement(predictors: Mapping[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Of each predictor, by the tokens produced: what it said at first less these, and refined by them."""
    found = {}
    for name, one in predictors.items():
        for kind, label in (("refined", f"{name}, refined"), ("unrefined", name)):
            found[label] = [(step["produced"], step[kind]) for step in one["refinement"]]
    return found


def _figure(
    title: str,
    y: str,
    x: str,
    of: Mapping[str, Sequence[tuple[float, float]]],
    caption: str,
    scales: Scales | None = None,
) -> dict[str, Any]:
    """The figure that templates/figure.html.j2 draws."""
    looks = styles(of)
    lines = [Line(one, looks[one], tuple((at, value, None) for at, value in points)) for one, points in of.items()]
    spoken = "; ".join(f"{one}: {number(points[0][1])} to {number(points[-1][1])}" for one, points in of.items())
    labelled = labels_fit(list(of))
    svg = draw.panel(
        lines,
        scales or Scales.of(lines),
        name=slug(title),
        title=f"{title}: {y}",
        description=spoken,
        labelled=labelled,
    )
    return {
        "title": title,
        "x": x,
        "y": y,
        "panels": [Panel("", svg, draw.WIDTH_IN * POINTS, draw.HEIGHT_IN * POINTS)],
        "legend": [] if labelled else [Entry(name, look) for name, look in looks.items()],
        "paired": False,
        "left_out": 0,
        "caption": caption,
    }


def _confusion(one: Mapping[str, Any]) -> dict[str, Any]:
    """Rows of (bin, shares in percent), true bins downwards and told ones across."""
    edges = one["edges"]
    heads = [f"{low:.0f}" for low in edges[:-1]]
    rows = [
        (head, [(round(100 * share), round(min(1.0, 2 * share), 2)) for share in row])
        for head, row in zip(heads, one["confusion"], strict=True)
    ]
    return {"heads": heads, "rows": rows}


def _card(card: Mapping[str, Any]) -> dict[str, str]:
    rows = ", ".join(f"{name} {count:,}" for name, count in card["rows"].items())
    settings = {name: value for name, value in card["training"].items() if not isinstance(value, list)}
    return {
        "model": str(card["model"]),
        "rows": rows,
        "data": f"sha256 {card['data_sha256']}",
        "training": ", ".join(f"{name} {_said(value)}" for name, value in settings.items()),
        "validation losses": ", ".join(number(loss, 4) for loss in card["training"].get("validation_losses", []))
        or NOTHING,
        "made with": ", ".join(f"{name} {version}" for name, version in card["versions"].items()),
        "licence": str(card["licence"]),
    }


def _said(value: Any) -> str:
    return number(value) if isinstance(value, float) else str(value) or NOTHING
