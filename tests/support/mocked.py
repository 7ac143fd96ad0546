"""A mock without sockets: a clock that stands still until it is set, and what was written to a client and when."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from prebleexp.launch import configure
from prebleexp.live.http.exchange import Exchange
from prebleexp.live.http.sse import Events
from prebleexp.live.mock.cluster import Cluster
from prebleexp.live.mock.endpoint import Endpoint
from prebleexp.live.mock.metrics import Metrics
from prebleexp.live.mock.tickets import Ticket
from prebleexp.sim.types import Ints, State, Workload

MODEL = "tiny"


def cluster_of(*words: str, rows: int = 256, listens: bool = False) -> Cluster:
    return Cluster(configure.cells(["gpus=2", "engine=vllm", *words])[0], rows=rows, listens=listens)


class Client:
    """Hears of tokens."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.end: tuple[State, float] | None = None

    def token(self, ticket: Ticket, at_s: float) -> None:
        self.times.append(at_s)

    def ended(self, ticket: Ticket, state: State, at_s: float) -> None:
        self.end = state, at_s


class Connection:
    """What is written, and when; the exchange's other side."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.written = b""
        self.times: list[float] = []
        self.cut = self.over = False

    def write(self, data: bytes) -> bool:
        self.written += data
        self.times.append(self._site.at_s)
        return True

    def abort(self) -> None:
        self.cut = True

    def finished(self, keep_alive: bool) -> None:
        self.over = True

    @property
    def status(self) -> int:
        return int(self.written.split(b" ", 2)[1])

    @property
    def head(self) -> bytes:
        return self.written.partition(b"\r\n\r\n")[0]

    @property
    def body(self) -> bytes:
        """Without the framing of chunks."""
        rest = self.written.partition(b"\r\n\r\n")[2]
        if b"transfer-encoding: chunked" not in self.head:
            return rest
        found = b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            found, rest = found + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        return found

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        return [one if one == b"[DONE]" else json.loads(one) for one in Events().feed(self.body)]


class Site:
    """The servers of a cluster's GPUs, and their clock."""

    def __init__(self, cluster: Cluster, lengths: Iterable[int] = (3,), metrics: str = "vllm") -> None:
        self.cluster, self.at_s = cluster, 0.0
        self.due: list[float] = []
        self._metrics = Metrics(cluster, MODEL)
        cluster.watching = self._metrics
        said = getattr(self._metrics, metrics)
        self.endpoints = [
            Endpoint(cluster, gpu, MODEL, self, np.array([*lengths], np.int32), lambda gpu=gpu: said(gpu))  # type: ignore[misc]
            for gpu in range(cluster.gpus)
        ]

    # the clock
    def now(self) -> float:
        return self.at_s

    def wrote(self, due_s: float) -> None:
        self.due.append(due_s)
        assert due_s <= self.at_s + 1e-12

    def changed(self) -> None:
        self.cluster.to(self.at_s)

    # what a test does
    def ask(self, path: str, body: Any = None, gpu: int = 0, **headers: str) -> tuple[Connection, Exchange]:
        """GET, or POST where there is a body."""
        connection = Connection(self)
        fields = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        method = b"GET" if body is None else b"POST"
        exchange = Exchange(connection, method, path.encode(), fields, data, True, False)
        self.endpoints[gpu](exchange)
        return connection, exchange

    def pass_time(self, seconds: float) -> None:
        """Event by event, as the alarm rings."""
        until = self.at_s + seconds
        while self.cluster.next_s <= until:
            self.at_s = max(self.at_s, self.cluster.next_s)
            self.changed()
        self.at_s = until
        self.changed()


def tokens_of(workload: Workload, row: int, made: dict[int, Ints]) -> Ints:
    """Of a prompt: equal segments have equal tokens, and nothing else has. `made`: of segments, so far."""
    first, last = workload.segment_offsets[row : row + 2]
    pieces = []
    for one, size in zip(workload.segment_ids[first:last].tolist(), workload.segment_tokens[first:last], strict=True):
        if one not in made or len(made[one]) < size:
            made[one] = np.random.default_rng([1, one]).integers(0, 1 << 30, 1 << 14).astype(np.int32)
        pieces.append(made[one][:size])
    return np.concatenate(pieces)
