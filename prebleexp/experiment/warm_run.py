"""Caches are as another run of the cache left them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from prebleexp.errors import InvalidInput
from prebleexp.experiment.cache import Cache
from prebleexp.sim.types import Workload
from prebleexp.sim.warmth import Before
from prebleexp.warm.base import Warm
from prebleexp.warm.prefixes import Prefixes


@dataclass(frozen=True)
class OfRun(Warm):
    """What another run's requests left in caches: the prompts that they had, in order of their ends, on the GPUs that
    served them (see `Prefixes`). Of a run of this very stream, those are whole prompts; of another one what prompts of
    a prefix_group begin with. Answers are not among them.

    Raises InvalidInput if there is no such run, or its requests were not kept.
    """

    run: str | None = None
    """its key, of which the first letters will do"""
    cache_dir: str = "cache"
    """where it is; which folder that is changes no result"""

    changes_nothing: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not isinstance(self.run, str) or not self.run:
            raise InvalidInput(f"warm.run={self.run} is not valid; warm=run needs warm.run=KEY, as output=json has it")

    def identity(self) -> dict[str, object]:
        """The whole key, which stands for all of the run."""
        return {"run": self._file.stem}

    def before(self, stream: Workload) -> Before:
        return Prefixes(str(self._file)).before(stream)

    @property
    def _file(self) -> Path:
        folder = Path(self.cache_dir).expanduser()
        if not folder.is_dir():
            raise InvalidInput(f"warm.cache_dir={self.cache_dir} is not a folder")
        cache = Cache(folder, make=False)
        key = cache.run(str(self.run)).key
        path = cache.requests_path(key)
        if not path.is_file():
            raise InvalidInput(f"warm.run={self.run}: its requests were not kept; compute it with keep_requests=all")
        return path
