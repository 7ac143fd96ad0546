"""Write the pages that come from the code: python docs/generate.py. A test fails when they are out of date."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

from prebleexp.commands import options
from prebleexp.experiment.runs import GIVEN
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.model import Model
from prebleexp.launch import configs, specs
from prebleexp.launch.configure import GROUPS
from prebleexp.metrics import DECLARED, QUANTITIES, Metric
from prebleexp.report.meanings import meanings
from prebleexp.sim import compatibility, events
from prebleexp.sim.types import OF_REQUESTS, Outcome, State, Workload

WITHIN = {"hardware": {"hardware/gpu": Gpu, "hardware/model": Model}}
"""groups within a group, and what their options are"""
HERE = Path(__file__).parent
READING = {
    "n": "What became of the requests: each is in exactly one of those from `n_finished` to `n_failed`. Averages are over those that reported, and were due after `slo.warmup_s`: requests that were refused or never came are in none of them, unfinished ones as of "
    "their last report. So the terminal, the tables and the pages say how many were refused or not finished. [Compare](compare.md) calls a cell *incomparable* where what looks better "
    "has lost requests that the other side served. With `horizon=stop` unfinished requests are normal, with `drain` they would have waited for ever.",
    "ttft": "What a person waits for before anything appears. The tail (`p99`) shows hot spots long before the mean does. Beware of `horizon=stop`: requests "
    "that never got a token are not in it, so an overloaded cluster can look good; look at `n_queued`.",
    "tpot": "How fast text flows once it does. It grows with the batch: a policy that piles requests onto one GPU raises it there. Requests of a single token have "
    "none.",
    "latency": "From arrival to the last token. It is dominated by output length, so its mean says as much about the workload as about the policy.",
    "norm_latency": "Latency per output token, the paper's measure. It weighs a request of one token as much as one of three hundred: waiting for the first token "
    "counts in full for short outputs and hardly for long ones. That makes it sensitive to queues and prefills, and is why mixes of very short and very long "
    "outputs look so bad by it.",
    "overhead": "What the routing decisions themselves took. With `overhead=recorded` it is only counted; with `serial` requests wait for it, and "
    "`router_wait_mean_s` shows the queue in front of the router.",
}


def configuration() -> str:
    """Every key, and every field of every class that an option stands for."""
    rows = [(f"`{key}`", f"`{default}`", meaning) for key, default, meaning in options.documented_keys()]
    parts = [
        "# Configuration",
        "Everything is set as `key=value`, by [Hydra's grammar](https://hydra.cc/docs/advanced/override_grammar/basic/). A group has options, each a YAML in "
        "`conf/GROUP/` (yours in `./conf/GROUP/` of the current folder); an option's fields are set as `group.field=value`. This page is made from the code.",
        "## Keys",
        _table(("key", "default", "meaning"), rows),
    ]
    loader = configs.loader()
    for group in (*GROUPS, "backend"):
        parts.append(f"## {group}")
        seen: dict[type, list[str]] = {}
        for option in loader.get_group_options(group):
            loaded: Any = loader.repository.load_config(f"{group}/{option}")
            target = loaded.config.get("_target_")
            if target is not None:
                seen.setdefault(specs.located(group, option, target), []).append(option)
        for kind, names in seen.items():
            parts += _of_class(group, kind, names)
        for inner, kind in WITHIN.get(group, {}).items():
            parts += _of_class(inner, kind, loader.get_group_options(inner))
    return "\n\n".join(parts) + "\n"


def metrics() -> str:
    """Every metric with its meaning, and how to read each quantity."""
    parts = [
        "# Metrics",
        "A run has one row of metrics: columns of the table `runs`, of `output=csv` and of the explorer. Times are in seconds of simulated time; *better* is what "
        "[compare](compare.md) calls so. This page is made from the code.",
    ]
    groups: dict[str, list[Metric]] = {}
    for one in DECLARED.values():
        groups.setdefault(_group(one.name), []).append(one)
    groups[""] = groups.pop("")  # the rest comes last
    for group, members in groups.items():
        rows = [(f"`{one.name}`", one.unit, one.better, one.meaning) for one in members]
        parts += [f"## {group if group != 'n' else 'requests'}", READING[group]] if group else ["## Everything else"]
        parts.append(_table(("metric", "unit", "better", "meaning"), rows))
    parts.append(f"The column `seconds` of a run is no metric: {meanings()['seconds']}")
    return "\n\n".join(parts) + "\n"


def _group(metric: str) -> str:
    return next((name for name in READING if metric.startswith(f"{name}_")), "")


def tables() -> str:
    """The page as it is, with the columns that are declared in the code."""
    text = (HERE / "tables.md").read_text(encoding="utf-8")
    metrics = dict.fromkeys(f"`{group}_*`" if (group := _group(name)) else f"`{name}`" for name in DECLARED)
    text = _with_rows(
        text,
        "n_*",
        "end_s",
        [(", ".join(metrics), "its [metrics](metrics.md), in simulated seconds, tokens and requests")],
    )
    columns = _columns()
    columns["state"] = ", ".join(f"{state.value} {state.name.lower()}" for state in State)
    return _with_rows(text, "arrival_s", "norm_latency_s", [(f"`{name}`", about) for name, about in columns.items()])


def _columns() -> dict[str, str]:
    """Of requests, with their meanings."""
    given, made = _attribute_docs(Workload), _attribute_docs(Outcome)
    columns = {name: given[name].removeprefix("(n,) ") for name in GIVEN}
    columns |= {name: made[name] for name in OF_REQUESTS}
    return columns | {name: one.meaning for one in QUANTITIES if (name := f"{one.name}_s") not in columns}


def glossary() -> str:
    """The page as it is, with the meanings of the states, events and columns that are declared in the code."""
    text = (HERE / "glossary.md").read_text(encoding="utf-8")
    states = {name.lower(): meaning for name, meaning in _attribute_docs(State).items()}
    kinds = dict(re.findall(r"^\| ([A-Z]+) \| .*? \| (.*) \|$", events.__doc__ or "", flags=re.MULTILINE))
    columns, shown = _columns(), re.findall(r"^\| `(\w+)`", _table_of(text, "column"), flags=re.MULTILINE)
    text = _with_meanings(text, "state", states)
    text = _with_meanings(text, "event", kinds)
    return _with_meanings(text, "column", {name: columns[name] for name in shown})


def _table_of(text: str, head: str) -> str:
    """Of a page, the table whose first column is called so."""
    found = re.search(rf"^\| {head} \|(?:.*\n)+?(?=\n)", text, flags=re.MULTILINE)
    assert found, f"glossary.md has no table of {head}"
    return found[0]


def _with_meanings(text: str, head: str, meanings: dict[str, str]) -> str:
    """A page whose table of this head has a row for each, with what it means. Words of other programs stay."""
    table = _table_of(text, head)
    heads, _, *lines = [line[2:-2].split(" | ") for line in table.splitlines()]
    theirs = {name: words for name, _, *words in lines}
    unknown = ["–"] * (len(heads) - 2)
    rows = [(f"`{name}`", meaning, *theirs.get(f"`{name}`", unknown)) for name, meaning in meanings.items()]
    return text.replace(table, _table(tuple(heads), rows) + "\n")


def notebook() -> str:
    """The notebook as a page, with what its cells showed when docs/notebook.py executed it."""
    parts = []
    for cell in json.loads((HERE / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                dress = r' border="1" class="dataframe"|(?s:<style.*?</style>)|\s*\n\s*'  # pandas' own
                shown = re.sub(dress, "", "".join(data["text/html"]))
                parts.append(f"<div>{shown}</div>")
            else:
                parts.append(f"```text\n{''.join(data.get('text/plain') or output['text']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


def _with_rows(text: str, first: str, last: str, rows: list[tuple[str, ...]]) -> str:
    """A page whose table rows from the one of column `first` to that of column `last` are these."""
    lines = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    made, count = re.subn(
        rf"^\| `{re.escape(first)}`(?:.*\n)*?.*`{last}`.*$", lambda _: lines, text, flags=re.MULTILINE
    )
    assert count == 1, f"tables.md has no rows {first} to {last}"
    return made


def _of_class(group: str, kind: type, names: list[str]) -> list[str]:
    meanings_of = _attribute_docs(kind)
    rows = []
    for field in dataclasses.fields(kind):
        if field.init:
            default = "required" if field.default is dataclasses.MISSING else f"`{_plain(field.default)}`"
            rows.append((f"`{group.replace('/', '.')}.{field.name}`", default, meanings_of.get(field.name, "")))
    about = inspect.cleandoc(kind.__doc__ or "").split("\n\nRaises")[0]
    parts = [f"### {', '.join(f'`{group}={name}`' for name in names)}", about]
    return [*parts, _table(("field", "default", "meaning"), rows)] if rows else parts


def _attribute_docs(kind: type) -> dict[str, str]:
    """The strings that stand under fields, of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__ in ("builtins", "enum"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for one, two in pairwise(body.body):
            match one, two:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = " ".join(text.split())
    return found


def _plain(value: Any) -> str:
    words = {None: "null", True: "true", False: "false"}
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return words[value] if value is None or isinstance(value, bool) else str(value)


def composes() -> str:
    """Which features are not modelled together."""
    refused = [(names, refusal) for *names, refusal in compatibility.refused_pairs()]
    triples = [(names, refusal) for *names, refusal in compatibility.refused_triples()]
    parts = [
        "# What goes together",
        f"A run may have several of these features. {len(refused)} of {len([*compatibility.pairs()])} pairs are refused, and {len(triples)} of the triples whose pairs are "
        "not: they are not modelled at once. What an engine cannot do stands with the engine. `prebleexp composes output=json` prints the same for programs. This page is made "
        "from the code.",
        "Before a release all pairs that are allowed, 300 random triples and 100 random quadruples run on small streams. In each run every feature does something, and "
        "a second simulator ([core](core.md)) gives the same bytes (`tests/slow/test_together.py`).",
        "## Features",
        _table(
            ("feature", "what it is"), [(f"`{name}`", compatibility.WORDS[name]) for name in compatibility.FEATURES]
        ),
        "## Refused",
    ]
    for cause, why in compatibility.CAUSES.items():
        rows = [(f"`{' × '.join(names)}`", one.sentence) for names, one in (*refused, *triples) if one.cause == cause]
        parts += [f"### {why[0].upper()}{why[1:]}: {len(rows)}", _table(("features", "what a run is told"), rows)]
    return "\n\n".join(parts) + "\n"


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


PAGES = {
    "configuration.md": configuration,
    "metrics.md": metrics,
    "tables.md": tables,
    "notebook.md": notebook,
    "composes.md": composes,
    "glossary.md": glossary,
}

if __name__ == "__main__":
    for name, make in PAGES.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        print(HERE / name)
