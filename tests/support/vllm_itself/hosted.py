"""One of vLLM's engines with its offloading connector, whose loads and stores are copied one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from vllm.distributed.kv_transfer.kv_connector.v1.offloading.common import OffloadingWorkerMetadata
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.outputs import KVConnectorOutput

from tests.support.recordings.columns import Columns
from tests.support.vllm_itself.engine import ROW, Copy, Engine, Step, run

LOADS = ("load_request", "load_hit_tokens", "load_tokens", "load_start_ns", "load_end_ns")
STORES = ("store_request", "store_blocks", "store_start_ns", "store_end_ns")


class Hosted(Engine):
    columns_of_steps = (*ROW, "step_loads", "step_flush_ns", "step_host_dropped", "step_host_refused", "step_host_held")

    def __init__(self, config: dict[str, Any], stream: Columns) -> None:
        of = {
            "cpu_bytes_to_use": config["host_blocks"] * SharedOffloadRegion.BLOCK_SIZE_ALIGNMENT,
            "eviction_policy": config.get("eviction_policy", "lru"),
            "offload_prompt_only": config.get("offload_prompt_only", True),
            "store_threshold": config.get("store_threshold", 0),
        }
        offloading = {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": of}
        super().__init__(config, stream, offloading)
        self.manager = self.scheduler.connector.scheduler.manager
        self.unsent: list[tuple[int, Any]] = []
        """stores, by number, that the next launch begins"""
        self.ready: dict[int, int] = {}
        """when what they copy is computed, in ns"""
        self.copying: dict[int, Copy] = {}
        self.free_ns = {"load": 0, "store": 0}
        self.lists |= {name: [] for name in (*LOADS, *STORES)}
        self._watch_host()

    def _watch_host(self) -> None:
        prepare = self.manager.prepare_store
        self.dropped = self.refused = self.flushed = 0

        def preparing(*given: Any, **more: Any) -> Any:
            made = prepare(*given, **more)
            self.refused += made is None
            self.dropped += 0 if made is None else len(made.evicted_keys)
            return made

        self.manager.prepare_store = preparing

    def _schedule(self, now: int) -> Step:
        self.dropped = self.refused = 0
        return super()._schedule(now)

    def _is_sending(self) -> bool:
        return bool(self.unsent)

    def _launch(self, step: Step, now: int) -> int:
        meta = step.output.kv_connector_metadata
        flush = meta.jobs_to_flush or set()
        sent = [*self.unsent, *(one for one in meta.store_jobs.items() if one[0] in flush)]
        self.unsent = [one for one in meta.store_jobs.items() if one[0] not in flush]
        for number, job in sent:
            self._send("store", number, job, now)
        self.flushed = max([0, *(self.copying[number].end_ns - now for number in flush if number in self.copying)])
        found = {load[0]: load for load in step.loads}
        for number, job in meta.load_jobs.items():
            self._send("load", number, job, now + self.flushed)
            index, here, tokens, _ = found[int(job.req_id)]
            ends = self.copying[number].end_ns
            for name, value in zip(LOADS, (index, here, tokens, self._began("load", ends, job), ends), strict=True):
                self.lists[name].append(value)
            self._first(index, here, tokens)
        for index, computed in step.admitted:
            self._first(index, computed, 0)
        return self.flushed

    def _first(self, index: int, here: int, loaded: int) -> None:
        self._set("first_cached_tokens", index, here)
        self._set("first_loaded_tokens", index, loaded)

    def _blocks(self, job: Any) -> int:
        return max(len(one.block_ids) for one in (job.src_spec, job.dst_spec))

    def _takes_ns(self, kind: str, job: Any) -> int:
        return int(self.config[f"{kind}_latency_ns"] + self._blocks(job) * self.config[f"{kind}_block_ns"])

    def _began(self, kind: str, ends: int, job: Any) -> int:
        return ends - self._takes_ns(kind, job)

    def _send(self, kind: str, number: int, job: Any, now: int) -> None:
        start = max(now, self.free_ns[kind], self.ready.pop(number, 0))
        ends = self.free_ns[kind] = start + self._takes_ns(kind, job)
        self.copying[number] = Copy(ends, int(job.req_id), (kind, number))
        self.coming.append(self.copying[number])
        if kind == "store":
            for name, value in zip(STORES, (int(job.req_id), self._blocks(job), start, ends), strict=True):
                self.lists[name].append(value)

    def _launched(self, step: Step) -> None:
        for number, _ in self.unsent:
            self.ready[number] = step.ends_ns

    def _heard(self, news: list[Copy]) -> KVConnectorOutput | None:
        if not news:
            return None
        meta = OffloadingWorkerMetadata()
        for one in news:
            meta.mark_completed(one.name[1])
            del self.copying[one.name[1]]
        loaded = {f"{one.request:09}" for one in news if one.name[0] == "load"}
        return KVConnectorOutput(finished_recving=loaded, kv_connector_worker_meta=meta)

    def _of_step(self, step: Step) -> list[int]:
        held = self.manager._num_allocated_chunks - len(self.manager._free_list)
        return [len(step.loads), self.flushed, self.dropped, self.refused, held]


def hosted(config: dict[str, Any], stream: Columns) -> Columns:
    """The columns of a recording of one engine with a host's memory behind its cache."""
    engine = Hosted(config, stream)
    run(engine, stream)
    made = engine.columns()
    del made["step_heard"]
    made["admitted_computed_tokens"] = made.pop("admitted_hit_tokens")
    preempted = np.array(engine.lists["preempted_request"], np.int64)
    return made | engine.per_request | {"preemptions": np.bincount(preempted, minlength=len(engine.requests))}
