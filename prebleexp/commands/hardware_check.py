"""`python -m prebleexp hardware check data=FOLDER`: how well step times predict measurements that they were not fitted
to."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from prebleexp.commands.arguments import Command, Given, choice, flag, path
from prebleexp.errors import InvalidInput
from prebleexp.hardware import checked, kernels, measurements, steps
from prebleexp.hardware.checked import Predicted, Row
from prebleexp.hardware.equations import BUDGET
from prebleexp.hardware.gpu import Gpu
from prebleexp.hardware.measurements import Sizes
from prebleexp.hardware.model import Model
from prebleexp.hardware.parameters import MEASURED
from prebleexp.launch import configs, configure, tables
from prebleexp.launch.from_cache import Options

SERVED = (
    *("hardware=composed", "engine=vllm", f"engine.max_num_batched_tokens={BUDGET:.0f}"),
    *("engine.enable_prefix_caching=false", "policy=round_robin", "gpus=1", "horizon=drain"),
)
"""how a benchmark's requests are served, by the simulator"""


@cache
def sizes() -> Sizes:
    """The GPUs and models of conf/hardware/gpu/ and conf/hardware/model/."""
    options = Options(configs.loader())
    gpus = [Gpu(**config) for config in options.configs("hardware/gpu").values()]
    models = [Model(**config) for config in options.configs("hardware/model").values()]
    return Sizes({one.name: one for one in gpus}, {one.name: one for one in models})


def _check(given: Given) -> int:
    rows = table_of(given["data"], given["simulated"])
    if given["output"] == "table":
        heads = list(rows[0])
        shown = [[f"{one:.1%}" if isinstance(one, float) else str(one) for one in row.values()] for row in rows]
        tables.show(heads, shown)
    else:
        tables.write_rows(rows, given["output"])
    return 0


def table_of(data: Path, serve: bool) -> list[Row]:
    """Raises InvalidInput where there is nothing to compare."""
    if steps.are_steps(data):
        return checked.steps_table(steps.read(data, sizes().with_tables_of(data.parent)))
    if not data.is_dir():
        raise InvalidInput(
            f"data={data} is not valid; it must be a folder with closed_loop.csv.gz or kv_capacity.csv, or what "
            "`hardware measure` wrote"
        )
    files = [measurements.found(data, name) for name in ("closed_loop", "kv_capacity", "attention", "mixed_attention")]
    loops, capacity, attention, mixed = files
    if not any(files):
        raise InvalidInput(
            f"{data} has no closed_loop.csv(.gz), kv_capacity.csv, attention.csv(.gz) or mixed_attention.csv(.gz): "
            "there is nothing to check"
        )
    known, rows = sizes().with_tables_of(data), list[Row]()
    if loops is not None:
        shipped, own = checked.shipped_loops(sizes()), measurements.closed_loops(loops, known)
        seen = checked.predict(own, shipped)
        rows += checked.table(seen, checked.predict_unseen(own, shipped))
        rows += simulated_table(seen, known) if serve else []
    if capacity is not None:
        rows += checked.kv_table(capacity, known)
    calls = [kernels.decodes(attention, known)] if attention is not None else []
    calls += [kernels.mixed(mixed, known)] if mixed is not None else []
    return rows + checked.kernels_table(kernels.by_kind(*calls), known)


def simulated_table(seen: Predicted, known: Sizes) -> list[Row]:
    """Errors of those of vLLM as the simulator serves them, under the parameters by which they were predicted."""
    from prebleexp.experiment.closed_loops import simulated  # numba: the other tables need none

    of = checked.simulable(seen, known)
    return checked.simulated_table(of.loops, simulated(configure.cells(SERVED)[0], of.loops, of.p, known))


CHECK = Command(
    "say how well the equations predict measurements of serving engines that their parameters were not fitted to: "
    "median and 90th percentile of |predicted / measured − 1|, as shares (0.04 is 4 %). A measurement that ships with "
    "the package is predicted by a fit that left it out (a fifth of all configurations at a time; for model=unseen, "
    "all of its model), any other by the parameters that ship. gpu=all has all rows; * stands for several. TTFT is "
    "compared where it is known how the benchmark began: at most 32 clients, and not of origin aic. Kernels of "
    "attention are predicted by numbers that were fitted to those that ship",
    _check,
    "python -m prebleexp hardware check data=my_measurements output=json",
    settings=(
        path(
            "data",
            "a folder with closed_loop.csv or .csv.gz, kv_capacity.csv, attention.csv or mixed_attention.csv and, if "
            "wanted, gpus.csv and models.csv, of the columns that prebleexp/hardware/measured/README.md lists; or the "
            "CSV that `hardware measure` wrote, whose whole steps are compared, by kind; without it: what ships",
            str(MEASURED),
        ),
        flag(
            "simulated",
            "serve the benchmarks of vLLM by the simulator too (engine=vllm, as many clients): metrics tpot_simulated "
            "and ttft_simulated, under the same parameters as tpot and ttft, which are of a formula; half a minute",
        ),
        choice("output", "how to print", "table", "json", "csv"),
    ),
)
