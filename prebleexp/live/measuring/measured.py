"""One measurement: a cell's stream, sent, with what came of it, what the engines say, and what it is worth."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from prebleexp.errors import InvalidInput, significant
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.runs import GIVEN, Run, draw
from prebleexp.launch.progress import Progress
from prebleexp.live.http import loops
from prebleexp.live.http.calls import Failed
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import Origin
from prebleexp.live.measuring.lateness import NO_MEASUREMENT, Lateness, lateness
from prebleexp.live.measuring.outcome import outcome, unknown
from prebleexp.live.measuring.schedule import last_due_s
from prebleexp.live.measuring.sending import Came, How, send
from prebleexp.live.measuring.sent import Table
from prebleexp.live.measuring.server_view import View, between, scrape
from prebleexp.metrics import measure, per_request
from prebleexp.sim.outcomes import OF_REQUESTS
from prebleexp.sim.types import State, Workload

MOST_LATE = 0.01
"""of a mock's tokens may be written late"""
MOST_ERRORS = 5
"""kinds of errors that are said"""
TOLD = 0.01
"""by so great a share may lengths differ from what was asked for before it is said"""


@dataclass(frozen=True)
class Measured:
    cell: Cell
    run: Run
    """as a simulated one"""
    sent: Table
    lateness: Lateness
    view: View
    stopped: bool
    """by somebody, before its end"""

    @property
    def columns(self) -> dict[str, Any]:
        """Of each request: those of a simulated run that are known, then what only a measurement has."""
        of = self.sent
        columns = {name: getattr(self.run.workload, name) for name in GIVEN}
        columns |= {name: getattr(self.run.outcome, name) for name in OF_REQUESTS} | per_request(self.run.outcome)
        own = {"sent_s": of.sent_s, "late_s": of.late_s, "ended_s": of.ended_s, "status": of.status}
        own |= {"ttft_sent_s": of.first_s - of.sent_s, "latency_sent_s": of.last_s - of.sent_s}
        own |= {"chunks": of.chunks, "first_chunk_tokens": of.first_tokens}
        own |= {"measured_prompt_tokens": of.prompt, "cached_tokens": of.cached, "error": of.error}
        return columns | own

    @property
    def says(self) -> list[str]:
        """What is to be known of it, in sentences."""
        found = [self.lateness.words]
        if self.lateness.is_late:
            limit = (
                f"p99 may be {self.lateness.valid_p99_s * 1e3:.1f} ms, and one {self.lateness.valid_max_s * 1e3:g} ms"
            )
            found.append(f"{NO_MEASUREMENT} of the load that was asked for: the client was late ({limit})")
        found += late_mock(self.view)
        if self.stopped:
            found.append(f"it was stopped after {self.run.seconds:.1f} s: what was not over then is cut off")
        found += _errors(self.sent) + _lengths(self.run, self.sent)
        chunks, tokens = int(self.sent.chunks.sum()), int(self.sent.output.sum())
        if chunks and abs(tokens / chunks - 1) > TOLD:
            found.append(f"{tokens:,} tokens came in {chunks:,} events: itl_* are gaps between events, not tokens")
        if not (self.sent.cached >= 0).any():
            found.append(
                "the server does not say which prompt tokens it had cached (vLLM: --enable-prompt-tokens-details)"
            )
        return found


def late_mock(view: View) -> list[str]:
    """A sentence where what answered is a mock that does not keep up with its own simulation."""
    written, late = (view.totals.get(name, 0.0) for name in ("written", "written_late"))
    if late <= MOST_LATE * written:
        return []
    share = f"{late / written:.1%}".replace("%", " %")
    return [
        f"{NO_MEASUREMENT} of what the mock simulates: it wrote {share} of its tokens more than 5 ms late, so the "
        "machine that it runs on is too slow for this load"
    ]


def check(cell: Cell, how: How) -> None:
    """Raises InvalidInput for what cannot be sent."""
    if not cell.warm.changes_nothing:
        raise InvalidInput("warm= is not valid with live: what a server's caches hold is its own; take warm=none")
    if how.real_answers and how.prompt != "ids":
        raise InvalidInput(
            f"answers=real is not valid with prompt={how.prompt}: answers are put back as ids of tokens; take "
            "answers=planned, or prompt=ids"
        )


def stream(cell: Cell) -> Workload:
    """What is sent. Raises InvalidInput for a load that has adapters."""
    workload = draw(cell)
    if workload.adapter.any():
        raise InvalidInput("requests ask for LoRA adapters, and live asks for one model; take a load without them")
    return workload


def least_s(cell: Cell, workload: Workload) -> float:
    """Seconds that sending takes at least, if no request fails."""
    last_start_s, stop_s = _limits_s(cell, workload)
    return min(last_due_s(workload, last_start_s), stop_s)


def _limits_s(cell: Cell, workload: Workload) -> tuple[float, float]:
    """After which no session starts, and at which all is cut off."""
    last_start_s = cell.duration_s if len(workload.after_ids) else math.inf
    return last_start_s, cell.duration_s if cell.horizon == "stop" else math.inf


def measured(cell: Cell, workload: Workload, how: How, engines: Sequence[Origin], late_limit_s: float) -> Measured:
    """`workload`: the cell's `stream`; `engines`: whose metrics are read before and after. Raises InvalidInput where
    nobody answers at the beginning."""
    last_start_s, stop_s = _limits_s(cell, workload)

    async def main() -> tuple[Came, View]:
        client = Client()
        try:
            before = await scrape(client, engines)
            came = await send(workload, cell.seed, stop_s, last_start_s, how, progress.advance)
            return came, between(before, await scrape(client, engines))
        finally:
            client.close()

    try:
        with Progress(len(workload), "requests") as progress:
            came, view = loops.run(main())
    except Failed as error:
        raise InvalidInput(f"url: {error}") from error
    sent = came.sent
    made = outcome(sent, cell.replicas, came.end_s)
    metrics: dict[str, Any] = dict(measure(workload, made, cell.slo)) | dict.fromkeys(unknown(sent))
    return Measured(
        cell, Run(metrics, workload, made, came.end_s), sent, lateness(sent, late_limit_s), view, came.stopped
    )


def served_models(origins: Sequence[Origin]) -> list[str]:
    """What /v1/models of each says first. Raises InvalidInput for one that does not answer, naming it."""

    async def main() -> list[str]:
        client = Client()
        try:
            return [await _model(client, one) for one in origins]
        finally:
            client.close()

    return loops.run(main())


async def _model(client: Client, origin: Origin) -> str:
    try:
        reply = await client.fetch(origin, "/v1/models")
    except Failed as error:
        raise InvalidInput(f"url={origin} does not answer: {error}") from error
    try:
        return str(msgspec.json.decode(reply.body)["data"][0]["id"])
    except (msgspec.MsgspecError, LookupError, TypeError):
        raise InvalidInput(
            f"url={origin}: /v1/models says no model (status {reply.status}); if that is the server, give model="
        ) from None


def _errors(sent: Table) -> list[str]:
    """Those that came most often."""
    kinds = Counter(one for one in sent.error if one)
    found = [f"{count:,} of {len(sent.error):,} requests: {one}" for one, count in kinds.most_common(MOST_ERRORS)]
    left = len(kinds) - len(found)
    return [*found, *([f"… and {left:,} other errors: column error"] if left > 0 else [])]


def _lengths(run: Run, sent: Table) -> list[str]:
    """Where the server counts other tokens than were asked for."""
    ok = sent.state == State.FINISHED
    asked = np.minimum(run.workload.output_tokens, run.workload.max_new_tokens)
    found = []
    pairs = (("prompts", sent.prompt, run.workload.prompt_tokens), ("answers", sent.output, asked))
    for name, came, wanted in pairs:
        known = ok & (came >= 0)
        if known.any():
            ratio = float(came[known].sum() / wanted[known].sum())
            if abs(ratio - 1) > TOLD:
                found.append(
                    f"{name} have {significant(ratio)} times as many tokens by the server's count as were asked for"
                )
    return found


def facts(of: Measured) -> Mapping[str, Any]:
    """What is written down of it beside its requests."""
    return {
        "seed": of.cell.seed,
        "end_s": of.run.seconds,
        "lateness": of.lateness._asdict(),
        "is_late": of.lateness.is_late,
        "stopped": of.stopped,
        "metrics": of.run.metrics,
        "server": {"totals": dict(of.view.totals), "means_s": dict(of.view.means_s)},
        "says": of.says,
    }
