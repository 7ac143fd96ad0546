"""Azure's traces of LLM inference: real arrivals and lengths, no prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prebleexp.workloads.blocks import private
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.rows import rows_of
from prebleexp.workloads.trace import Trace, alone


@dataclass(frozen=True)
class Azure(Replayed):
    """Azure's LLM inference traces of 2023 (Splitwise) and 2024 (DynamoLLM): TIMESTAMP, ContextTokens, GeneratedTokens;
    further columns, as those of 2025, are ignored.

    Times have a time zone, or none has, and as many digits of a second as they like. Nothing is known of prompts but
    their lengths: they share nothing, and every request is a session of its own. 0 generated tokens count as 1.

    Source: Patel et al., "Splitwise", ISCA 2024; Stojkovic et al., "DynamoLLM", HPCA 2025.
    """

    name: ClassVar[str] = "azure"
    where: ClassVar[str] = "a trace from https://github.com/Azure/AzurePublicDataset"

    def read(self) -> Trace:
        rows = rows_of(self.path)
        times = rows.in_order("TIMESTAMP", rows.seconds("TIMESTAMP"))
        prompts = private(rows.integers("ContextTokens", 1))
        return Trace(times, np.maximum(rows.integers("GeneratedTokens"), 1), prompts, *alone(len(rows)))
