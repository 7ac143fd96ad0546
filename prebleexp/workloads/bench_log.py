"""What the load generators of vLLM and SGLang write of a benchmark."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from prebleexp.checks import is_number
from prebleexp.errors import InvalidInput
from prebleexp.sim.types import Floats
from prebleexp.workloads import files
from prebleexp.workloads.blocks import private
from prebleexp.workloads.few_shot import ARRIVALS, random
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.rows import Records
from prebleexp.workloads.trace import Trace, alone

LISTS = ("input_lens", "output_lens", "start_times", "errors")
DETAILS = "vllm bench serve --save-result --save-detailed, or sglang.bench_serving --output-file --output-details"


@dataclass(frozen=True)
class BenchLog(Replayed):
    """The result of `vllm bench serve --save-detailed` or of SGLang's `bench_serving --output-details`: input_lens,
    output_lens, and start_times and errors where they are there; of several runs in a file (a line each) the last.

    Requests with an error, or without output, are left out. Prompts share nothing, since nothing is known of them. If
    the starts were not written down, they come at the run's request_rate with gaps of its burstiness (gamma, as the
    generators draw them), always the same ones; all at once if that was inf.
    """

    name: ClassVar[str] = "bench_log"
    where: ClassVar[str] = f"what was written by {DETAILS}"

    def read(self) -> Trace:
        log = self._log()
        there = [name for name in LISTS if log.get(name) is not None]
        for name in LISTS[:2]:
            if name not in there:
                raise InvalidInput(f"{self.path}: there is no list {name}; write it with {DETAILS}")
        for name in there:
            if not isinstance(log[name], list) or len(log[name]) != len(log["input_lens"]):
                raise InvalidInput(f"{self.path}: {name} is not valid; it must be a list as long as input_lens")
        records = [dict(zip(there, values, strict=True)) for values in zip(*(log[one] for one in there), strict=True)]
        rows = Records(str(self.path), records, range(1, len(records) + 1))
        failed = np.array([bool(one) for one in rows.values("errors")] if "errors" in there else [False] * len(rows))
        outputs = rows.integers("output_lens")
        served = ~failed & (outputs > 0)
        if not served.any():
            raise InvalidInput(f"{self.path}: there are no requests that were served")
        times = rows.seconds("start_times") if "start_times" in there else self._drawn(log, len(rows))
        kept = np.flatnonzero(served)[np.argsort(times[served], kind="stable")]
        inputs = rows.integers("input_lens", 0)
        rows.refuse("input_lens", served & (inputs < 1), "at least 1")
        return Trace(times[kept] - times[kept[0]], outputs[kept], private(inputs[kept]), *alone(len(kept)))

    def _log(self) -> dict[str, Any]:
        data = files.unpacked(self.path)
        for row, text in ((None, data), *reversed([*enumerate(data.splitlines(), start=1)])):
            if not text.strip():
                continue
            try:
                log = json.loads(text)
            except (ValueError, RecursionError) as error:
                if row is None and b"\n" in data.strip():
                    continue  # one run a line
                raise InvalidInput(f"{self.path}: row {row or 1}: not valid JSON: {error}") from None
            if not isinstance(log, dict):
                raise InvalidInput(f"{self.path}: row {row or 1}: not a JSON object")
            return log
        raise InvalidInput(f"{self.path}: there are no requests")

    def _drawn(self, log: dict[str, Any], n: int) -> Floats:
        rate, shape = log.get("request_rate"), log.get("burstiness", 1.0)
        if rate in ("inf", math.inf):
            return np.zeros(n)
        for name, value in (("request_rate", rate), ("burstiness", shape)):
            if not (is_number(value) and value > 0):
                raise InvalidInput(f"{self.path}: {name}={value!r} is not valid; it must be a number > 0")
        gaps = random(0, ARRIVALS).standard_gamma(shape, n) / (shape * rate)
        found: Floats = np.cumsum(gaps) - gaps[0]
        return found
