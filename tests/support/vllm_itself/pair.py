"""Two of vLLM's engines over NIXL's connector: one computes prompts, the other reads their KV and goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.v1.outputs import KVConnectorOutput

from tests.support.recordings.columns import Columns
from tests.support.vllm_itself.engine import ENDLESS, ROW, Copy, Endless, Engine, Step, groups_of

RESERVED = ("reserved_request", "reserved_hit_tokens", "reserved_blocks", "heard_request")
TIMES = ("prefill_end_ns", "reserved_ns", "arrived_ns", "heard_ns", "released_ns", "first_token_ns", "finish_ns")
COUNTS = ("p_cached_tokens", "d_cached_tokens", "transferred_blocks")


class Part(Engine):
    """An engine of a pair, `p` or `d`."""

    columns_of_steps = (*ROW, "step_reserved")

    def __init__(self, config: dict[str, Any], stream: Columns, name: str, pair: Pair) -> None:
        self.name, self.pair = name, pair
        role = {"kv_connector": "NixlConnector", "kv_role": {"p": "kv_producer", "d": "kv_consumer"}[name]}
        policy = {"kv_load_failure_policy": config.get("failure_policy", "fail")}
        super().__init__({**config, **config[name]}, stream, role | policy)
        self.lists |= {one: [] for one in RESERVED}

    def _launch(self, step: Step, now: int) -> int:
        reads = step.output.kv_connector_metadata.reqs_to_recv
        for index, here, _, blocks in step.loads:
            of = reads[f"{index:09}"].local_block_ids
            for one, value in zip(RESERVED, (index, here, blocks), strict=False):
                self.lists[one].append(value)
            self.pair.read(index, here, [block for group in of for block in group], now)
        for index, computed in step.admitted:
            if self.name == "p":
                self.pair.set("p_cached_tokens", index, computed)
        return 0

    def _of_step(self, step: Step) -> list[int]:
        return [len(step.loads)]

    def _heard(self, news: list[Copy]) -> KVConnectorOutput | None:
        names: Any = dict.fromkeys(f"{one.request:09}" for one in news)  # in order, as sets are not
        if self.name == "p":
            return KVConnectorOutput(finished_sending=names)
        failed = [one for one in news if one.failed]
        if len(groups_of(self.config)) > 1:
            return KVConnectorOutput(finished_recving=names, failed_recving={f"{one.request:09}" for one in failed})
        blocks = {block for one in failed for block in one.failed}
        return KVConnectorOutput(finished_recving=names, invalid_block_ids=blocks)

    def _note(self, given: list[Any], finished: list[Any], news: list[Copy], now: int) -> None:
        super()._note(given, finished, news, now)
        for one in finished:
            if self.name == "p":
                self.pair.handed.append((int(one.request_id), one.kv_transfer_params))
        for copy in news:
            self.lists["heard_request"].append(copy.request)
            self.pair.set("released_ns" if self.name == "p" else "heard_ns", copy.request, now)

    def columns(self) -> Columns:
        return {f"{self.name}_{one}": values for one, values in super().columns().items()}


class Pair:
    """Both, and a link on which every transfer is alone."""

    def __init__(self, config: dict[str, Any], stream: Columns) -> None:
        self.config, self.stream, self.n = config, stream, len(stream["arrival_ns"])
        self.per_request = {name: np.full(self.n, -1, np.int64) for name in (*TIMES, *COUNTS)}
        self.handed: list[tuple[int, dict[str, Any]]] = []
        self.transfers: list[Copy] = []
        self.p, self.d = Part(config, stream, "p", self), Part(config, stream, "d", self)

    def set(self, name: str, index: int, value: int) -> None:
        if self.per_request[name][index] < 0:
            self.per_request[name][index] = value

    def read(self, index: int, here: int, blocks: list[int], now: int) -> None:
        self.per_request["reserved_ns"][index], self.per_request["d_cached_tokens"][index] = now, here
        self.per_request["transferred_blocks"][index] = len(blocks)
        ends = now + self.config["link_latency_ns"] + len(blocks) * self.config["link_block_ns"]
        fails = "fails" in self.stream and self.stream["fails"][index]
        self.transfers.append(Copy(ends, index, failed=blocks if fails else None))

    def run(self) -> None:
        stream, joined, now = self.stream, 0, 0
        arrivals, remote = stream["arrival_ns"].tolist(), stream.get("remote", np.ones(self.n))
        engines = (self.p, self.d)
        while True:
            times = [one.wakes_ns for one in engines if one.wakes_ns is not None]
            times += [one.end_ns for one in self.transfers] + arrivals[joined : joined + 1]
            if not times:
                return
            now = max(now, min(times))
            idle = {one for one in engines if one.wakes_ns is None}
            acts = {one for one in engines if one.wakes_ns is not None and one.wakes_ns <= now}
            for copy in sorted(
                (one for one in self.transfers if one.end_ns <= now), key=lambda one: (one.end_ns, one.request)
            ):
                self.transfers.remove(copy)
                self.per_request["arrived_ns"][copy.request] = now
                self.d.coming.append(copy)
                self.p.coming.append(copy)
                acts |= idle
            while joined < self.n and arrivals[joined] <= now:
                engine, target = (self.p, 1) if remote[joined] else (self.d, int(stream["output_tokens"][joined]))
                engine.add(joined, target, {"do_remote_decode": True} if remote[joined] else None)
                acts |= idle & {engine}
                joined += 1
            if self.p in acts:
                self.p.advance(now)
            for index, transfer in self.handed:
                self.d.add(index, int(stream["output_tokens"][index]), transfer)
                acts |= idle & {self.d}
            self.handed = []
            if self.d in acts:
                self.d.advance(now)
            if len(self.p.rows) + len(self.d.rows) > ENDLESS:
                raise Endless

    def columns(self) -> Columns:
        made = self.p.columns() | self.d.columns() | self.per_request
        made["prefill_end_ns"] = self.p.per_request.get("finish_ns", made["prefill_end_ns"])
        for name in ("first_token_ns", "finish_ns"):
            made[name] = self.d.per_request[name]
        for one in (self.p, self.d):
            preempted = np.array(one.lists["preempted_request"], np.int64)
            made[f"{one.name}_preemptions"] = np.bincount(preempted, minlength=self.n)
        return made


def pair(config: dict[str, Any], stream: Columns) -> Columns:
    """The columns of a recording of two engines."""
    both = Pair(config, stream)
    both.run()
    return both.columns()
