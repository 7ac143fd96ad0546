"""BurstGPT: real arrivals and lengths of requests to ChatGPT and GPT-4, no prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prebleexp.errors import InvalidInput
from prebleexp.workloads.blocks import private
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.rows import rows_of
from prebleexp.workloads.trace import Trace, alone, told

SESSION = "Session ID"


@dataclass(frozen=True)
class BurstGPT(Replayed):
    """Parts 1 to 3: Timestamp (s), Request tokens, Response tokens and, where it is there, Session ID; with six columns
    or with eight.

    Requests without a response (Response tokens 0) failed and are left out. Nothing is known of prompts but their
    lengths: they share nothing. A request without a session is one of its own.

    Source: Wang et al., "BurstGPT", arXiv 2401.17644.
    """

    name: ClassVar[str] = "burstgpt"
    where: ClassVar[str] = "a trace from https://github.com/HPMLL/BurstGPT"

    def read(self) -> Trace:
        rows = rows_of(self.path)
        times = rows.in_order("Timestamp", rows.numbers("Timestamp", 0, "seconds"))
        outputs = rows.integers("Response tokens")
        answered = outputs > 0
        if not answered.any():
            raise InvalidInput(f"{self.path}: there are no requests with a response")
        inputs = rows.integers("Request tokens")
        rows.refuse("Request tokens", answered & (inputs < 1), "at least 1, as there is a response")
        session, turn = told(rows.codes(SESSION)[answered]) if SESSION in rows else alone(int(answered.sum()))
        start_s = times[answered]
        return Trace(start_s - start_s[0], outputs[answered], private(inputs[answered]), session, turn)
