"""`python -m prebleexp compare-bench FILE …`: a measured result of `vllm bench serve` beside a simulated one."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from pathlib import Path

from prebleexp.commands import benchmarked
from prebleexp.commands.arguments import Command, Commands, Given, choice
from prebleexp.launch import tables
from prebleexp.vllm_bench import compared
from prebleexp.vllm_bench.result import result
from prebleexp.workloads.vllm_bench import VllmBench


def _compare_bench(given: Given) -> int:
    measured = compared.read(str(Path(given.words[0]).expanduser()))
    found = benchmarked.of_settings(given.others, "vllm_bench", measured.settings)
    source = found.cell.workload
    assert isinstance(source, VllmBench)
    rows = compared.rows(measured.fields, result(found.seen, source, measured.wanted, datetime.now()).fields)
    says = [*measured.says, *found.says]
    if given["output"] == "json":
        fields = {one.field: {"measured": one.measured, "simulated": one.simulated, "ratio": one.ratio} for one in rows}
        print(json.dumps({"measured": measured.path, "settings": measured.settings, "fields": fields, "says": says}))
    else:
        lines = [
            [one.field, *map(tables.number, (one.measured, one.simulated)), tables.number(one.ratio, 3)] for one in rows
        ]
        tables.show(("field", "measured", "simulated", "simulated / measured"), lines)
    for sentence in says:
        print(f"prebleexp: {sentence}", file=sys.stderr)
    return 0


COMMANDS: Commands = {
    "": Command(
        "a measured result of vllm bench serve --save-result beside that of the same benchmark of a simulated cluster, "
        "field by field",
        _compare_bench,
        "python -m prebleexp compare-bench measured.json gpus=1 hardware/gpu=h100 hardware/model=llama_3_1_8b",
        words="FILE",
        takes="one file: what --save-result wrote, best with --save-detailed too",
        settings=(choice("output", "how the result is written", "table", "json"),),
        others="what serves, as one is set for a run (prebleexp --help); all but the workload",
    )
}
