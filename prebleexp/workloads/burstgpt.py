"""BurstGPT: real arrivals and lengths of requests to ChatGPT and GPT-4, no prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from prebleexp.errors import InvalidInput
from prebleexp.workloads.accumulated import ELSEWHERE
from prebleexp.workloads.blocks import private
from prebleexp.workloads.clock import clock, in_order
from prebleexp.workloads.columns import own, set_column
from prebleexp.workloads.tabular import Tabular
from prebleexp.workloads.trace import Reading, Trace, alone, told

SESSION = "Session ID"


@dataclass(frozen=True)
class BurstGPT(Tabular):
    """Parts 1 to 3: Timestamp (s), Request tokens, Response tokens and, where it is there, Session ID; with six columns
    or with eight.

    Requests without a response (Response tokens 0) failed and are left out. Nothing is known of prompts but their
    lengths: they share nothing. A request without a session is one of its own.

    Source: Wang et al., "BurstGPT", arXiv 2401.17644.
    """

    name: ClassVar[str] = "burstgpt"
    where: ClassVar[str] = "a trace from https://github.com/HPMLL/BurstGPT"

    def read(self) -> Trace:
        rows = self.rows()
        arrival = own(rows, self.columns, "arrival", "Timestamp")
        length, answer = (
            own(rows, self.columns, "input", "Request tokens"),
            own(rows, self.columns, "output", "Response tokens"),
        )
        when = clock(rows, arrival, self.time_unit, "s", known=True, least=0)
        order, times = in_order(when.seconds)
        rows = rows.taken(order)
        outputs = rows.integers(answer)
        answered = outputs > 0
        if not answered.any():
            raise InvalidInput(f"{self.path}: there are no requests with a response")
        inputs = rows.integers(length)
        rows.refuse(length, answered & (inputs < 1), "at least 1, as there is a response")
        of = set_column(rows, self.columns, "session") or (SESSION if SESSION in rows else None)
        session, turn = told(rows.codes(of)[answered]) if of is not None else alone(int(answered.sum()))
        start_s = times[answered]
        left_out = rows.left_out(~answered, "which have no response")
        sessions = of or "every request is one of its own"
        reading = Reading(
            when.says, length, answer, sessions=sessions, left_out=left_out, doubts=when.doubts, cure=ELSEWHERE
        )
        return Trace(start_s - start_s[0], outputs[answered], private(inputs[answered]), session, turn, reading=reading)
