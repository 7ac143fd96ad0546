"""What a terminal shows while something takes long that cannot say how far it is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def waiting(what: str, elsewhere: str | None = None) -> Iterator[None]:
    """What is done and for how many seconds so far, on standard error. Where that is no terminal, `elsewhere`, once."""
    if not sys.stderr.isatty():
        if elsewhere is not None:
            print(f"prebleexp: {elsewhere}", file=sys.stderr, flush=True)
        yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield
