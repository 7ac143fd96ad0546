"""How many GPUs so many replicas take. A replica is what serves one copy of the model: one GPU, or several with tensor
parallelism. What is counted, priced and compared is GPUs; what is simulated, and routed to, is replicas."""

from __future__ import annotations

from dataclasses import dataclass

from prebleexp.checks import integer
from prebleexp.errors import InvalidInput

MOST_GPUS = 4096


@dataclass(frozen=True)
class Size:
    """GPUs of one kind, in replicas of `each`."""

    gpus: int
    replicas: int
    together: int = 1
    """replicas of a deployment, ranks that come and go together"""

    @property
    def each(self) -> int:
        return self.gpus // self.replicas

    @property
    def unit(self) -> int:
        """GPUs by which there can be more."""
        return self.each * self.together

    @property
    def split(self) -> str:
        """ "2 replicas of 4", "1 replica of 8" """
        return f"{self.replicas:,} replica{'' if self.replicas == 1 else 's'} of {self.each}"


def size_of(gpus: object, replicas: object, each: int, *, by: str, together: int = 1, where: str = "") -> Size:
    """What `gpus`, `replicas` or both say, None where one is not given. `by` says what makes a replica of `each` GPUs,
    and a deployment of so many replicas `together`, such as "hardware.tensor_parallel=2"; no matter where these are 1.
    Raises InvalidInput for what is not valid, and what does not divide."""
    if replicas is None:
        total, least = integer(f"{where}gpus", gpus, 1, MOST_GPUS), each * together
        if total % least:
            raise InvalidInput(f"{where}gpus={total} is not valid with {by}; it must be {_near(total, least)}")
        return Size(total, total // each, together)
    count = integer(f"{where}replicas", replicas, 1, MOST_GPUS // each)
    if count % together:
        raise InvalidInput(f"{where}replicas={count} is not valid with {by}; it must be {_near(count, together)}")
    if gpus is not None and gpus != count * each:
        said = f"replicas={count}" + (f" and {by}" if each > 1 else "")
        raise InvalidInput(
            f"{where}gpus={gpus} is not valid with {said}: these are {count * each}; give one of the two"
        )
    return Size(count * each, count, together)


def _near(total: int, each: int) -> str:
    """Which numbers divide, next to one that does not."""
    below = total - total % each
    near = [str(one) for one in (below, below + each) if 0 < one <= MOST_GPUS]
    return f"a multiple of {each}, such as {' or '.join(near)}"
