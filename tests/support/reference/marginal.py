"""The price of a decision in plain Python, from the formulas of docs/policies.md: no sums are kept, each is made anew
of the requests that are there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MEMORY_S, SETTLED_S = 10.0, 60.0


class Line(NamedTuple):
    """A cost model: a step of so many seconds, a token, a token of context, a prefill."""

    step_s: float
    token_s: float
    context_token_s: float
    prefill_s: float

    def step(self, prefills: int, new: int, length: int, running: int, context: int) -> float:
        tokens, contexts = new + running, length + context
        return self.step_s + self.token_s * tokens + self.context_token_s * contexts + self.prefill_s * prefills

    def decode(self, running: int, context: int) -> float:
        return self.step(0, 0, 0, running, context)


@dataclass
class There:
    """A request on a GPU."""

    prompt: int
    new: int
    output: float
    weight: float
    path: Sequence[int] = ()
    """the prompt's segments"""
    needs: int = 0
    waits: bool = True


@dataclass
class Weights:
    ttft_weight: float = 2.0
    norm_latency_weight: float = 5.0
    latency_weight: float = 0.1
    tail_weight: float = 5.0
    others_weight: float = 3.0
    others_decode_weight: float = 4.0
    copy_weight: float = 3.0
    memory_weight: float = 6.0
    settle_weight: float = 300.0
    rent_weight: float = 0.4


class Model:
    """Of `costs`, one for each GPU; `seen` are rows of what GPUs report, `limit` the tokens that each request may
    generate."""

    def __init__(self, costs: Sequence[Line], seen: Any, weights: Weights, limit: int, mixed: bool = True) -> None:
        self.costs, self.seen, self.weights, self.limit, self.mixed = costs, seen, weights, limit, mixed
        self.kept, self.stays = 1.0, list[tuple[float, float]]()
        self.there: list[dict[int, There]] = [{} for _ in costs]
        self.until = [0.0] * len(costs)
        self.arrivals: list[float] = []
        self.prompts: list[tuple[float, int, int]] = []
        self.sent_there: list[list[tuple[float, int, int]]] = [[] for _ in costs]
        self.rents: dict[int, tuple[float, float]] = {}
        self.turnovers = 0.0
        self.waits: list[tuple[float, float]] = []
        self.path: Sequence[tuple[int, int]] = ()

    def rate(self, now: float, candidates: int) -> float:
        """Of arrivals so far, this one among them, a second and GPU."""
        faded = math.fsum(math.exp((at - now) / MEMORY_S) for at in self.arrivals)
        return faded / (MEMORY_S * (1 - math.exp(-now / MEMORY_S)) + MEMORY_S / 20) / candidates

    def found(self, now: float) -> float:
        """Share of prompts' tokens of late that some GPU had."""
        faded = [(math.exp((at - now) / MEMORY_S), tokens, held) for at, tokens, held in self.prompts]
        return math.fsum(f * held for f, _, held in faded) / math.fsum(f * tokens for f, tokens, _ in faded)

    def usual(self, now: float) -> float:
        """Tokens of a prompt, in the mean of late."""
        faded = [(math.exp((at - now) / MEMORY_S), tokens) for at, tokens, _ in self.prompts]
        return math.fsum(f * tokens for f, tokens in faded) / math.fsum(f for f, _ in faded)

    def late(self, now: float) -> float:
        """Two standard deviations above the mean of the seconds that first tokens were to take of late."""
        faded = [(math.exp((at - now) / SETTLED_S), wait) for at, wait in self.waits]
        if not faded:
            return 0.0
        count = math.fsum(f for f, _ in faded)
        mean = math.fsum(f * wait for f, wait in faded) / count
        return mean + 2 * math.sqrt(math.fsum(f * (wait - mean) ** 2 for f, wait in faded) / count)

    def free(self, g: int) -> int:
        return int(self.seen[g].kv_free) + int(self.seen[g].evictable)

    def stay(self) -> float:
        """Seconds that requests decoded for, in the mean of late; 0: none has ended."""
        if not self.stays:
            return 0.0
        last = self.stays[-1][0]
        faded = [(math.exp((at - last) / SETTLED_S), stay) for at, stay in self.stays]
        return math.fsum(f * stay for f, stay in faded) / math.fsum(f for f, _ in faded)

    def needs(self, prompt: int, new: int) -> int:
        """Tokens of the prompt in hand that are in memory for it alone: to compute, or in nobody else's prompt."""
        in_use = {name for there in self.there for one in there.values() for name in one.path}
        shared = 0
        for name, end in self.path:
            if self.mixed or name not in in_use:
                break
            shared = end
        return max(new, prompt - shared)

    def room(self, g: int, waiting: list[There], running: list[There], needs: int) -> float:
        """Seconds until one that needs so many tokens has room."""
        if self.mixed or not running:
            return 0.0
        may = (len(running) + len(waiting) + 1) * self.limit
        lack = needs + sum(one.needs for one in waiting) + self.kept * may - self.free(g)
        return self.stay() * min(1.0, max(0.0, lack) / max(1, int(self.seen[g].kv_tokens) - self.free(g)))

    def terms(self, prompt: int, output: float, hits: Sequence[int], now: float, g: int) -> tuple[list[float], float]:
        """The terms of GPU g's price, and the seconds until the first token."""
        w, cost, seen = self.weights, self.costs[g], self.seen[g]
        weight = w.norm_latency_weight / output + w.latency_weight
        waiting = [one for one in self.there[g].values() if one.waits]
        running = [one for one in self.there[g].values() if not one.waits]
        new = max(1, prompt - hits[g])
        unknown = max(0, int(seen.queued) + int(seen.running) - len(self.there[g]))
        decodes = len(running) + unknown
        context = sum(one.prompt for one in running) + int(seen.generated) + round(unknown * self.usual(now))
        everybody = len(waiting) + decodes, context + sum(one.prompt for one in waiting)

        def step(more: Sequence[There]) -> float:
            prefills = [*waiting, *more]
            lengths = sum(one.prompt for one in prefills)
            beside = (decodes, context) if self.mixed else (0, 0)
            return cost.step(len(prefills), sum(one.new for one in prefills), lengths, *beside)

        decode = cost.decode(*everybody) if everybody[0] else 0.0
        decode_with = cost.decode(everybody[0] + 1, everybody[1] + prompt)
        nobody_waits = decode if decodes and self.mixed else 0.0
        before, after = step([]) if waiting else nobody_waits, step([There(prompt, new, output, weight)])
        longer, slower = max(0.0, after - before), max(0.0, decode_with - decode) if everybody[0] else 0.0
        ahead = min(max(0.0, self.until[g] - now), before) if self.mixed else before
        wait = ahead + longer if waiting else decode / 2 + after
        wait += self.room(g, waiting, running, self.needs(prompt, new))
        first = w.ttft_weight + weight
        # those who are there
        until_first = math.fsum(w.ttft_weight + one.weight for one in waiting)
        decoding = math.fsum([*(one.weight for one in running), unknown * weight])
        of_latency = math.fsum([*(one.weight for one in waiting), decoding])
        # memory
        copied = max(0, max(hits) - hits[g]) / new
        computed = math.fsum(math.exp((at - now) / MEMORY_S) * tokens for at, tokens, _ in self.sent_there[g])
        settled = math.fsum(
            math.exp((at - now) / SETTLED_S) * tokens for at, tokens, of in self.sent_there[g] if 2 * tokens > of
        )
        room = max(new, self.free(g) - sum(one.new for one in waiting))
        missed = computed / MEMORY_S * self.stay() / room
        settles = self.found(now) if 2 * max(hits) < prompt else 0.0
        return [
            first * wait,
            weight * (output - 1) * decode_with,
            w.tail_weight * max(0.0, wait - self.late(now)),
            longer * (w.others_weight * until_first + decoding),
            w.others_decode_weight * slower * output * of_latency,
            w.others_weight * w.ttft_weight * self.rate(now, len(self.costs)) * longer * (wait - longer / 2),
            w.copy_weight * first * longer * copied,
            w.memory_weight * (first + w.others_weight * (until_first + decoding)) * longer * copied * missed,
            w.settle_weight * settles * first * longer * settled / int(seen.kv_tokens),
        ], wait

    def arrive(
        self, prompt: int, output: float, hits: Sequence[int], path: Sequence[tuple[int, int]], now: float
    ) -> list[list[float]]:
        """The terms of all GPUs' prices; `path` has the prompt's segments and where each ends."""
        self.arrivals.append(now)
        self.prompts.append((now, prompt, max(hits)))
        self.path = path
        gpus, most = range(len(self.costs)), max(hits)
        prices = [[*self.terms(prompt, output, hits, now, g)[0], 0.0] for g in gpus]
        had = []  # what each would cost if it had what that GPU has that has most
        for g in gpus:
            everywhere = [most if other == g else held for other, held in enumerate(hits)]
            had.append(sum(self.terms(prompt, output, everywhere, now, g)[0]))
        without = [g for g in gpus if hits[g] < most]
        if without:
            heir = min(without, key=lambda g: had[g])
            lacks = self.parts(path, hits[heir], most)
            copy = (sum(prices[heir]) - had[heir]) / (most - hits[heir])
            prices[heir][-1] = -sum(min(copy * tokens, self.left(name)) for name, tokens in lacks)
            best = min(gpus, key=lambda g: sum(prices[g]))
            if hits[best] < most:
                self.rents.update((name, (0.0, self.turnovers)) for name, _ in self.parts(path, hits[best], most))
            else:
                each = max(1.0, sum(map(len, self.there)) / len(self.there))  # requests on a GPU
                free = (1 + 1 / math.sqrt(each)) * sum(had) / len(had)
                rent = self.weights.rent_weight * (sum(prices[best]) - free) / (most - hits[heir])
                for name, tokens in lacks:
                    self.rents[name] = max(0.0, self.left(name) + rent * tokens), self.turnovers
        return prices

    def parts(self, path: Sequence[tuple[int, int]], low: int, high: int) -> list[tuple[int, int]]:
        """The segments between two tokens of a prompt, and how many tokens of each lie there."""
        begins = [0, *(end for _, end in path)]
        cut = [(name, min(end, high) - max(begin, low)) for begin, (name, end) in zip(begins, path, strict=False)]
        return [(name, tokens) for name, tokens in cut if tokens > 0]

    def left(self, name: int) -> float:
        """Of what was paid for a segment: less, the more the GPUs' memory has turned over since."""
        paid, at = self.rents.get(name, (0.0, 0.0))
        return paid * math.exp(at - self.turnovers)

    def sent(self, request: int, g: int, prompt: int, output: float, hits: Sequence[int], now: float) -> None:
        wait = self.terms(prompt, output, hits, now, g)[1]
        self.until[g] = now + wait
        self.waits.append((now, wait))
        weight = self.weights.norm_latency_weight / output + self.weights.latency_weight
        new = max(1, prompt - hits[g])
        path, needs = [name for name, _ in self.path], self.needs(prompt, new)
        self.there[g][request] = There(prompt, new, output, weight, path, needs)
        self.sent_there[g].append((now, new, prompt))
        self.turnovers += new / sum(int(seen.kv_tokens) for seen in self.seen)

    def first(self, request: int, g: int) -> None:
        self.there[g][request].waits = False
        if not self.mixed:
            decode = sum(not one.waits for one in self.there[g].values())
            self.kept = min(self.kept, self.free(g) / (decode * self.limit))

    def finished(self, request: int, g: int, stay: float, now: float) -> None:
        """Once it has had its first token for so long; NaN: it has had none."""
        del self.there[g][request]
        if not math.isnan(stay):
            self.stays.append((now, stay))
