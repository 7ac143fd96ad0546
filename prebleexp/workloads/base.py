"""What a workload is: something that draws a stream of requests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Self

from prebleexp.sim.types import Workload
from prebleexp.sources import Part
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.reading import Understood


class WorkloadSource(Part, ABC):
    """Subclass it as a frozen dataclass, give `draw`, and name the class in conf/workload/<name>.yaml.

    A source that reads files has a method `identity()` too: what stands for the files' contents in the cache key.
    """

    synthetic: ClassVar[bool] = True
    """false: the stream is recorded, so rate, duration, seed and output lengths asked for do not matter"""
    own_outputs: ClassVar[bool] = False
    """true: its output lengths are its own, so those asked for do not matter"""

    nested: ClassVar[bool] = False
    """true: in the same time a greater rate has the sessions that a lesser one has, and more; else they are the same
    requests, only quicker"""

    @property
    def retimed_by(self) -> tuple[str, ...]:
        """What may change when its requests come: `arrivals`, if gaps are drawn, and `profile`; of a recording the
        profile alone."""
        return ("arrivals", "profile") if self.synthetic else ("profile",)

    @property
    def in_sessions(self) -> bool:
        """Whether requests come after others, so that the load is that of sessions' starts."""
        return False

    @property
    def blocks_of(self) -> int:
        """Tokens of the blocks of which its prompts are made."""
        return 1

    @property
    def rates(self) -> tuple[float, ...]:
        """Requests/s of each stage, if it comes in stages; a warm-up is none."""
        return ()

    @property
    def staged(self) -> bool:
        """Whether there are several, or a warm-up, so that each has numbers of its own."""
        return False

    @property
    def users(self) -> int | None:
        """Who play at a time, where these are the load and not a rate."""
        return None

    @property
    def own_rps(self) -> float | None:
        """Requests a second of a recording that is replayed as it was; None where rate and users are asked for, or it
        has none."""
        return None

    @property
    def says(self) -> str | None:
        """What comes, in words, where these are not a rate for a time, users or a recording."""
        return None

    def with_users(self, users: int) -> Self:
        """The same stream's kind with so many, where they are the load."""
        raise AssertionError(f"{type(self).__name__} has no users")

    @property
    def understood(self) -> Understood | None:
        """What its file was taken for; None if there is none. Raises InvalidInput as `draw` does."""
        return None

    @property
    def asked_models(self) -> tuple[str, ...]:
        """The models that requests of a recording ask for, the one that most ask for first; none: it does not say."""
        return ()

    @property
    def obeys(self) -> tuple[str, ...]:
        """Which of rps, duration_s, seed and output_length its stream depends on."""
        if not self.synthetic:
            return ()
        return ("rps", "duration_s", "seed") if self.own_outputs else ("rps", "duration_s", "seed", "output_length")

    @property
    def predictors(self) -> tuple[str, ...]:
        """Whose predictions of output lengths its requests carry."""
        return ()

    @abstractmethod
    def draw(self, *, rps: float, duration_s: float, seed: int, output_length: OutputLength) -> Workload:
        """The requests of a run: a mean of `rps` a second during `duration_s` seconds. Same arguments, same bytes.

        Raises InvalidInput if a file cannot be read or does not hold a workload.
        """
