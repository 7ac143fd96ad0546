"""Azure's traces of LLM inference: real arrivals and lengths, no prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prebleexp.workloads.blocks import private
from prebleexp.workloads.clock import clock, in_order, moments
from prebleexp.workloads.columns import own
from prebleexp.workloads.tabular import Tabular
from prebleexp.workloads.trace import Reading, Trace, alone


@dataclass(frozen=True)
class Azure(Tabular):
    """Azure's LLM inference traces of 2023 (Splitwise) and 2024 (DynamoLLM): TIMESTAMP, ContextTokens, GeneratedTokens;
    further columns, as those of 2025, are ignored.

    Times have a time zone, or none has, and as many digits of a second as they like. Nothing is known of prompts but
    their lengths: they share nothing, and every request is a session of its own. 0 generated tokens count as 1.

    Source: Patel et al., "Splitwise", ISCA 2024; Stojkovic et al., "DynamoLLM", HPCA 2025.
    """

    name: ClassVar[str] = "azure"
    where: ClassVar[str] = "a trace from https://github.com/Azure/AzurePublicDataset"

    def read(self) -> Trace:
        rows = self.rows()
        arrival = own(rows, self.columns, "arrival", "TIMESTAMP")
        length, answer = (
            own(rows, self.columns, "input", "ContextTokens"),
            own(rows, self.columns, "output", "GeneratedTokens"),
        )
        when = moments(rows, arrival) or clock(rows, arrival, self.time_unit, "s")
        order, times = in_order(when.seconds)
        rows = rows.taken(order)
        prompts = private(rows.integers(length, 1))
        reading = Reading(when.says, length, answer, doubts=when.doubts)
        outputs = np.maximum(rows.integers(answer), 1)
        return Trace(times, outputs, prompts, *alone(len(rows)), reading=reading)
