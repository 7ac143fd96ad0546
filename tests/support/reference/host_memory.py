"""The host's memory of vLLM's native offloading connector (0.33.0, vllm/v1/kv_offload/cpu): which copies it has, and
which it drops where it is full."""

from __future__ import annotations

from collections import ChainMap, OrderedDict
from typing import Any


class Used:
    """Which copies a request has used: offered and stored, offered and found, or loaded."""

    def __init__(self) -> None:
        self.rank = 0
        self.positions: dict[Any, int] = {}  # by key, in the order of their first use
        self.stored: set[Any] = set()
        self.found: set[Any] = set()
        self.missed: set[Any] = set()


class Copy:
    def __init__(self) -> None:
        self.ready, self.loads = False, 0
        self.note: Any = None
        """of whoever has it stored"""


class LRU:
    """First dropped is what requests used that came to it first; of one request's, the last positions, and of these the
    first group's."""

    def __init__(self, capacity: int) -> None:
        self.copies: dict[Any, Copy] = {}
        self.ranks: dict[Any, tuple[int, int]] = {}
        self.last = 0
        self.dropped: list[Copy] = []

    def _rank(self, used: Used) -> int:
        if not used.rank:
            self.last += 1
            used.rank = self.last
        return used.rank

    def insert(self, key: Any, used: Used, position: int) -> None:
        self.copies[key] = Copy()
        self.ranks[key] = (self._rank(used), -position)

    def use(self, keys: list[tuple[Any, int]], used: Used) -> None:
        rank = self._rank(used)
        for key, position in keys:
            if key in self.copies:
                self.ranks[key] = max(self.ranks[key], (rank, -position))

    def miss(self, keys: list[Any]) -> None:
        pass

    def finish(self, used: Used) -> None:
        for key in sorted(used.positions, key=lambda key: (used.positions[key], key[0]))[::-1]:
            if key in self.copies:
                self.last += 1
                self.ranks[key] = (self.last, 0)

    def drop(self, count: int, kept: set[Any]) -> bool:
        idle = [key for key, one in self.copies.items() if one.ready and not one.loads and key not in kept]
        if len(idle) < count:
            return False
        for key in sorted(idle, key=lambda key: (self.ranks[key], key[0]))[:count]:  # vLLM: then by its hash
            self.dropped.append(self.copies[key])
            self.remove(key)
        return True

    def remove(self, key: Any) -> None:
        del self.copies[key], self.ranks[key]

    def touch(self, key: Any) -> None:
        self.last += 1
        self.ranks[key] = (self.last, 0)


class ARC:
    """Adaptive: copies used once and more than once, and keys that were dropped of either lately."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.target = capacity, 0.0
        self.once: OrderedDict[Any, Copy] = OrderedDict()
        self.often: OrderedDict[Any, Copy] = OrderedDict()
        self.copies = ChainMap(self.once, self.often)
        self.dropped: list[Copy] = []
        self.gone: tuple[OrderedDict[Any, None], OrderedDict[Any, None]] = (OrderedDict(), OrderedDict())

    def insert(self, key: Any, used: Used, position: int) -> None:
        self.once[key] = Copy()
        for gone in self.gone:
            gone.pop(key, None)

    def use(self, keys: list[tuple[Any, int]], used: Used) -> None:
        pass

    def miss(self, keys: list[Any]) -> None:
        once, often = self.gone
        for key in reversed(keys):
            if key in once:
                self.target = min(self.target + max(1, len(often) / len(once)), self.capacity)
                once.move_to_end(key)
            elif key in often:
                self.target = max(self.target - max(1, len(once) / len(often)), 0)
                often.move_to_end(key)

    def finish(self, used: Used) -> None:
        for key in sorted(used.positions, key=lambda key: (used.positions[key], key[0]))[::-1]:
            if key in used.stored and key not in used.found:
                for of in (self.once, self.often):
                    if key in of:
                        of.move_to_end(key)
            elif key in used.found and key in self.once:
                self.often[key] = self.once.pop(key)
            elif key in used.found and key in self.often:
                self.often.move_to_end(key)

    def drop(self, count: int, kept: set[Any]) -> bool:
        idle = [
            [key for key, one in of.items() if one.ready and not one.loads and key not in kept]
            for of in (self.once, self.often)
        ]
        size, gone = len(self.once), []
        for _ in range(count):
            of = 0 if idle[0] and (size >= int(self.target) or not idle[1]) else 1
            if not idle[of]:
                return False
            gone.append((of, idle[of].pop(0)))
            size -= of == 0
        for of, key in gone:
            self.dropped.append((self.once, self.often)[of].pop(key))
            self.gone[of][key] = None
        for ghosts in self.gone:
            while len(ghosts) > self.capacity:
                ghosts.popitem(last=False)
        return True

    def remove(self, key: Any) -> None:
        for of in (self.once, self.often):
            of.pop(key, None)

    def touch(self, key: Any) -> None:
        for of in (self.once, self.often):
            if key in of:
                of.move_to_end(key)


class Host:
    """The host's memory: copies of blocks by key."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.capacity = config["host_blocks"]
        self.policy = {"lru": LRU, "arc": ARC}[config.get("eviction_policy", "lru")](self.capacity)
        self.threshold = config.get("store_threshold", 0)
        self.offers: OrderedDict[Any, int] = OrderedDict()
        self.dropped = self.refused = 0

    def find(self, key: Any) -> Copy | None:
        return self.policy.copies.get(key)

    def _count(self, keys: list[Any]) -> None:
        for key in keys:
            if key in self.offers:
                self.offers.move_to_end(key)
            elif len(self.offers) >= 64_000:
                self.offers.popitem(last=False)
            self.offers[key] = self.offers.get(key, 0) + 1

    def _use(self, keys: list[tuple[Any, int]], used: Used) -> None:
        new = [(key, position) for key, position in keys if key not in used.positions]
        used.positions |= dict(new)
        if new:
            self.policy.use(new, used)

    def offer(self, keys: list[tuple[Any, int]], used: Used) -> list[Any] | None:
        """Which of them are to be stored; None: there is no room for these, and nothing is."""
        if self.threshold >= 2:
            self._count([key for key, _ in keys])
        copies = self.policy.copies
        missing = [key for key, _ in keys if key not in copies]
        ready = [key for key, _ in keys if key in copies and copies[key].ready]
        if self.threshold >= 2:
            missing = [key for key in missing if self.offers[key] >= self.threshold]
        self.policy.miss([key for key in missing if key not in used.missed])
        used.missed |= set(missing)
        told = {*missing, *ready}
        self._use([one for one in keys if one[0] in told], used)
        used.found |= set(ready) - used.stored
        excess = len(copies) + len(missing) - self.capacity
        if missing and excess > 0:
            if not self.policy.drop(excess, {key for key, _ in keys}):
                self.refused += 1
                return None
            self.dropped += excess
        position = dict(keys)
        for key in missing:
            self.policy.insert(key, used, position[key])
        used.stored |= set(missing)
        return missing

    def load(self, keys: list[tuple[Any, int]], used: Used) -> None:
        copies = self.policy.copies
        for key, _ in keys:
            copies[key].loads += 1
        self._use(keys, used)
        used.found |= {key for key, _ in keys} - used.stored
