"""What the load generators of vLLM and SGLang write of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from prebleexp.checks import is_integer, is_number, one_of, require
from prebleexp.errors import InvalidInput, significant
from prebleexp.sim.types import Floats
from prebleexp.workloads.blocks import private
from prebleexp.workloads.bursty import ENDLESS, arrivals_s
from prebleexp.workloads.clock import UNITS, clock, unit_of
from prebleexp.workloads.documents import rows_of
from prebleexp.workloads.few_shot import ARRIVALS, random
from prebleexp.workloads.reading import WAY_OUT
from prebleexp.workloads.records import chosen
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.rows import Records
from prebleexp.workloads.trace import Links, Reading, Trace, alone, told

LISTS = ("input_lens", "output_lens")
STARTS = ("start_times", "start_timestamps", "start_time", "request_start_times", "request_timestamps", "arrival_times")
DETAILS = "vllm bench serve --save-result --save-detailed, or sglang.bench_serving --output-file --output-details"
BOUND = 0.9
"""a rate that is served to so small a share or less was held back by the cap on requests at a time"""


ALIKE = 1.1
"""numbers that differ by no more say the same"""


class _Times(NamedTuple):
    """When n requests began, as a benchmark's log has it."""

    starts: Floats
    says: str
    doubts: tuple[str, ...] = ()
    clients: int | None = None
    """that there are, each of whom waits for an answer, where the file has no starts"""
    at_once: bool = False


@dataclass(frozen=True)
class BenchLog(Replayed):
    """The result of `vllm bench serve --save-detailed` or of SGLang's `bench_serving --output-details`: input_lens,
    output_lens, and starts and errors where they are there; of several runs in a file (a line each, or an array) the
    last, or that of `benchmark`.

    Requests with an error, or without output, are left out. Prompts share nothing, since nothing is known of them. If
    the starts were not written down: with max_concurrency, and a request_rate of inf or one that was not reached, so
    many clients send one request after the other; else they come at the run's request_rate with gaps of its burstiness
    (gamma, as the generators draw them), always the same ones, or along its ramp, or all at once if that was inf. Where
    starts are known, `load=population` with so many `lanes` plays the clients.
    """

    benchmark: int | None = None
    """which, from 1 on, of a file of several runs; null: the last"""
    time_unit: str | None = None
    """of starts: s, ms, us or ns; null: as their size and their name say, else s, as the tools have them"""

    name: ClassVar[str] = "bench_log"
    where: ClassVar[str] = f"what was written by {DETAILS}"

    def __post_init__(self) -> None:
        super().__post_init__()
        valid = self.benchmark is None or is_integer(self.benchmark, 1)
        require(valid, "workload.benchmark", self.benchmark, "null or an integer > 0")
        if self.time_unit is not None:
            one_of("workload.time_unit", self.time_unit, tuple(UNITS))

    def read(self) -> Trace:
        log, others = self._log()
        starts = next((one for one in STARTS if isinstance(log.get(one), list)), None)
        there = [name for name in (*LISTS, starts, "errors") if name is not None and log.get(name) is not None]
        for name in LISTS:
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
        when = _recorded(rows, starts, log, self.time_unit) if starts is not None else self._unrecorded(log, len(rows))
        kept = np.flatnonzero(served)[np.argsort(when.starts[served], kind="stable")]
        inputs = rows.integers("input_lens", 0)
        rows.refuse("input_lens", served & (inputs < 1), "at least 1")
        sums = {"total_input_tokens": int(inputs[served].sum()), "total_output_tokens": int(outputs[served].sum())}
        reading = Reading(
            time=when.says,
            prompt="input_lens",
            output="output_lens",
            prefix="prompts share nothing, as nothing is said of them",
            sessions="every request is one of its own" if when.clients is None else "a client each",
            left_out=(*_runs(others), *rows.left_out(~served, "which failed or have no output")),
            doubts=(*when.doubts, *_contradictions(log, sums, 0.0 if starts is None else float(np.ptp(when.starts)))),
        )
        prompts, n = private(inputs[kept]), len(kept)
        times = when.starts[kept] - when.starts[kept[0]]
        links = None if when.clients is None else _in_turn(n, when.clients)
        session, turn = alone(n) if when.clients is None else told(np.arange(n) % when.clients)
        return Trace(
            times,
            outputs[kept],
            prompts,
            session,
            turn,
            links=links,
            reading=reading,
            closed=links is not None,
            at_once=when.at_once,
        )

    def _log(self) -> tuple[dict[str, Any], int]:
        """The run that is taken, and how many others there are."""
        runs = rows_of(self.path)
        if not isinstance(runs, Records):
            raise InvalidInput(f"{self.path}: it is no JSON; it must be a result: {DETAILS}")
        taken = chosen(str(self.path), self.benchmark, len(runs))
        return dict(runs.records[taken - 1]), len(runs) - 1

    def _unrecorded(self, log: dict[str, Any], n: int) -> _Times:
        rate, shape, most = log.get("request_rate"), log.get("burstiness", 1.0), log.get("max_concurrency")
        endless = rate in ENDLESS
        if most is not None and not is_integer(most, 1):
            raise InvalidInput(
                f"{self.path}: max_concurrency={most!r} is not valid; it must be an integer > 0, or null"
            )
        ramp = self._ramp(log, n, shape) if endless and log.get("ramp_up_strategy") else None
        if ramp is not None and not (most and _held_back(n / max(float(ramp.starts[-1]), 1e-9), log)):
            return ramp
        if most is not None and most < n and (endless or _held_back(rate, log)):
            why = (
                f"ramp_up_strategy={log['ramp_up_strategy']}, which was held back"
                if ramp
                else "request_rate=inf"
                if endless
                else f"request_rate={rate}, which was not reached"
            )
            says = f"{most} clients, one request after the other (max_concurrency, {why}; there are no starts)"
            return _Times(np.zeros(n), says, clients=most, at_once=True)
        if endless:
            return _Times(np.zeros(n), "all at once (request_rate=inf; there are no starts)", at_once=True)
        for name, value in (("request_rate", rate), ("burstiness", shape)):
            if not (is_number(value) and value > 0):
                raise InvalidInput(
                    f"{self.path}: {name}={value!r} is not valid; it must be a number > 0, as there are no starts "
                    f"({', '.join(STARTS)})"
                )
        assert rate is not None
        found = arrivals_s(random(0, ARRIVALS), n, rate, shape)
        return _Times(found, f"drawn at request_rate={rate}, burstiness={shape} (there are no starts)")

    def _ramp(self, log: dict[str, Any], n: int, shape: Any) -> _Times:
        """At a rate that grows from request to request, as the tool draws them."""
        from prebleexp.workloads.vllm_bench import VllmBench  # few results have one

        names = ("ramp_up_strategy", "ramp_up_start_rps", "ramp_up_end_rps")
        strategy, *ends = (log.get(name) for name in names)
        try:
            given: dict[str, Any] = {name: log.get(name) for name in names}
            ramp = VllmBench(num_prompts=n, burstiness=shape, **given)
        except InvalidInput as error:
            raise InvalidInput(f"{self.path}: {error}") from None
        found = ramp.due_s(n, 0)
        first, last = (f"{one:g}" for one in ends if one is not None)
        says = f"drawn along a {strategy} ramp from {first} to {last} requests/s (there are no starts)"
        return _Times(found - found[0], says)


def _contradictions(log: dict[str, Any], sums: dict[str, int], span_s: float) -> list[str]:
    """Doubts about what a result says twice. `sums`: by name, what the lists of those that were served add up to."""
    found = []
    for name, added in sums.items():
        said = log.get(name)
        if is_number(said) and said > 0 and not 1 / ALIKE <= added / said <= ALIKE:
            found.append(f"{name} is {said:,}, and the lists of lengths add up to {added:,}")
    took_s = log.get("duration")
    if is_number(took_s) and 0 < took_s < span_s / ALIKE:
        found.append(
            f"the benchmark took {significant(took_s)} s (duration), and its starts are {significant(span_s)} s apart; "
            f"if these are not in seconds, {WAY_OUT}"
        )
    return found


def _runs(others: int) -> tuple[str, ...]:
    if not others:
        return ()
    many = f"{others:,} other run{'s' * (others > 1)} of the file"
    return (f"{many}; workload.benchmark=1, 2, … takes another than the last",)


def _recorded(rows: Records, name: str, log: dict[str, Any], unit: str | None) -> _Times:
    when = clock(rows, name, unit, "s", told=unit_of(name), known=True)
    most = log.get("max_concurrency")
    if not is_integer(most, 1) or most >= len(rows):
        return _Times(when.seconds, when.says, when.doubts)
    doubt = (
        f"the benchmark had at most {most} requests at a time (max_concurrency), and they are sent when they were sent "
        f"then, however fast answers are; workload.load=population workload.lanes={most} plays so many clients"
    )
    return _Times(when.seconds, when.says, (*when.doubts, doubt))


def _held_back(rate: Any, log: dict[str, Any]) -> bool:
    served, count, took_s = (log.get(name) for name in ("request_throughput", "completed", "duration"))
    if served is None and is_number(count) and is_number(took_s) and took_s > 0:
        served = count / took_s
    return is_number(rate) and is_number(served) and served < BOUND * rate


def _in_turn(n: int, clients: int) -> Links:
    """Each request comes when the one so many before it is answered."""
    later = np.arange(min(clients, n), n)
    return Links(later, later - clients, np.zeros(n))
