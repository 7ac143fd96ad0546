"""A mock of a cell, ready to serve: everything is compiled before anybody is let in."""

from __future__ import annotations

import numpy as np

from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.live.mock.cluster import Cluster
from prebleexp.live.mock.serving import Mock, Terms
from prebleexp.live.mock.tickets import Ticket
from prebleexp.sim.types import Ints, State


def served_name(cell: Cell) -> str:
    """The name by which clients ask for the cell's model."""
    model = getattr(cell.hardware, "model", None)
    return str(getattr(model, "name", None) or cell.names["hardware"])


def made(cell: Cell, terms: Terms) -> Mock:
    """Raises InvalidInput for a cell that cannot be one."""
    listens = terms.kv_events_port is not None
    _warm(cell, listens)
    return Mock(Cluster(cell, listens=listens), lengths(cell), terms)


def lengths(cell: Cell) -> Ints:
    """Tokens of answers whose length nobody says: those of the cell's stream."""
    drawn = runs.draw(cell).output_tokens
    return drawn if len(drawn) else np.ones(1, np.int32)


class _Nobody:
    def token(self, ticket: Ticket, at_s: float) -> None: ...
    def ended(self, ticket: Ticket, state: State, at_s: float) -> None: ...


def _warm(cell: Cell, listens: bool) -> None:
    """Serve some requests that nobody asked for."""
    cluster = Cluster(cell, rows=16, listens=listens)
    some = np.arange(cluster.block + 2, dtype=np.int32)
    cluster.come(0, some, some, len(some), 0.0, _Nobody())
    left = cluster.come(0, some, some, len(some), 0.0, _Nobody())
    cluster.to(1e-3)
    cluster.leave(left, 1e-3)
    cluster.to(3600.0)
