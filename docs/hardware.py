"""Make prebleexp/hardware/measured/parameters.csv and errors.csv of closed_loop.csv.gz beside them, kernels.csv of
attention.csv.gz and mixed_attention.csv.gz, and sizes.csv, again, and the tables in docs/validation.md of what `prebleexp hardware check` prints: python docs/hardware.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prebleexp.commands.hardware_check import simulated_table, sizes
from prebleexp.hardware import checked, kernels, kernels_fit
from prebleexp.hardware.parameters import MEASURED
from prebleexp.hardware.touched import FILE, sizes_csv

PAGE = Path(__file__).parent / "validation.md"
BEGIN, END = "<!-- errors of step times: python docs/hardware.py -->\n", "<!-- end of errors -->\n"
METRICS = {
    checked.TPOT: "TPOT",
    f"{checked.TPOT}{checked.SIMULATED}": "simulated",
    checked.TTFT: "TTFT",
    f"{checked.TTFT}{checked.SIMULATED}": "simulated",
    checked.KV_TOKENS: "tokens of KV",
}


def main() -> None:
    shipped = checked.shipped_loops(sizes())
    for name, text in checked.remade(shipped).items():
        (MEASURED / name).write_text(text, encoding="utf-8")
    known = sizes()
    (MEASURED / FILE).write_text(sizes_csv([*known.gpus.values(), *known.models.values()]), encoding="utf-8")
    calls = kernels.by_kind(
        kernels.decodes(MEASURED / "attention.csv.gz", known), kernels.mixed(MEASURED / "mixed_attention.csv.gz", known)
    )
    text = kernels_fit.kernels_csv(kernels_fit.fitted_to(calls, known.gpus))
    (MEASURED / kernels.FILE).write_text(text, encoding="utf-8")
    kernels.shipped.cache_clear()
    seen = checked.predict(shipped, shipped)
    rows = checked.table(seen, checked.predict_unseen(shipped, shipped)) + simulated_table(seen, sizes())
    rows += checked.kv_table(MEASURED / "kv_capacity.csv", sizes())
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(
        before + BEGIN + markdown(rows) + kernels_markdown(checked.kernels_table(calls, known)) + END + after,
        encoding="utf-8",
    )


def markdown(rows: list[dict[str, Any]]) -> str:
    """Rows of the same measurements side by side."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        said = f"{100 * row['median_error']:.1f} / {100 * row['p90_error']:.1f} ({row['n']:,})"
        found.setdefault(label(row), {})[row["metric"]] = said
    lines = [
        "How far the equations of [hardware](hardware.md) are off public measurements: median / 90th percentile of "
        "|predicted / measured − 1| in %, and rows. Each row is predicted by a fit that left out a fifth of all "
        "configurations, it among them; *left out* models by a fit without any row of theirs, on whatever GPU. "
        "TPOT and TTFT of closed loops are by a formula; *simulated*: the same benchmarks of vLLM, under the same "
        "parameters, as `engine=vllm` serves so many clients, ten requests each, and lengths drawn as theirs. "
        "`python -m prebleexp hardware check simulated=true` prints it. TTFT is compared for at most 32 clients.",
        "",
        f"| measurements | {' | '.join(METRICS.values())} |",
        f"| --- |{' --- |' * len(METRICS)}",
    ]
    lines += [f"| {name} | {' | '.join(of.get(one, '–') for one in METRICS)} |" for name, of in found.items()]
    return "\n".join(lines) + "\n"


def kernels_markdown(rows: list[dict[str, Any]]) -> str:
    """A row for each kind of call, GPU and precision of the cache."""
    lines = [
        "",
        "Calls of kernels of attention, of one layer, likewise. They are those that the numbers of their equations "
        "were fitted to, five or six a GPU and precision of the cache (`prebleexp/hardware/measured/kernels.csv`); with one "
        "batch size left out at a time errors are the same within a point (`tests/fast/test_kernels.py`). "
        "`decode_attention_over_400_mb` are decodes that read so much, by the reading from memory that steps have. No "
        "row is of a latent (MLA), and mixed calls are of one GPU.",
        "",
        "| calls | GPU | cache | rows | median / 90th percentile |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        errors = f"{100 * row['median_error']:.1f} / {100 * row['p90_error']:.1f}"
        lines.append(f"| {row['metric']} | {row['gpu']} | {row['precision']} | {row['n']:,} | {errors} |")
    return "\n".join(lines) + "\n"


def label(row: dict[str, Any]) -> str:
    if row["gpu"] == checked.ALL:
        return "**all**"
    parts = [row[name] for name in ("gpu", "engine", "model", "precision", "origin") if row[name] != checked.SOME]
    return " ".join(parts).replace("unseen", "*left out*")


if __name__ == "__main__":
    main()
