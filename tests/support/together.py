"""Sets of features, each tried on a small stream: the core gives the bytes of the layered oracle, every request and
token is accounted for, and every feature of the set has done something. `python -m tests.support.together 4 a+b b+c`
prints a line of JSON for each set, with seed 4; quickest with NUMBA_DISABLE_JIT=1, since every set would be compiled.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
from hypothesis.errors import UnsatisfiedAssumption

from prebleexp.sim.compatibility import FEATURES
from prebleexp.sim.types import Outcome, State, Workload
from tests.support.accounted import accounted
from tests.support.features_used import used
from tests.support.oracle import composed
from tests.support.oracle.compared import same
from tests.support.strategies import feature_sets

TRIES = 40
"""streams and clusters of a set until in one of them all of its features do something"""
ENDED = [State.FINISHED, State.REFUSED, State.EXPIRED, State.CANCELLED, State.LOST, State.NOT_DUE]


def tried(features: Iterable[str], seed: int) -> dict[str, Any]:
    """What came of a set: how many streams it took, and what each feature did; or what failed."""
    names = sorted(features)
    row: dict[str, Any] = {"set": "+".join(names)}
    idle: dict[str, int] = dict.fromkeys(names, 0)
    for attempt in range(TRIES):
        rng = np.random.default_rng([seed, attempt, *sorted(list(FEATURES).index(one) for one in names)])
        workload, given = feature_sets.made(names, rng)
        try:
            made = same(workload, given, composed.simulate)
            accounted(workload, made, requeues=True)
            _all_are_there(workload, given, made)
        except UnsatisfiedAssumption:  # its GPUs come and go too fast, which core and oracle say at the same time
            continue
        except Exception as error:
            said = " ".join(str(error).split())[:300]
            return row | {"tries": attempt + 1, "fails": f"{type(error).__name__}: {said}"}
        found = used(names, workload, given, made)
        if all(found.values()):
            return row | {"tries": attempt + 1, "used": found}
        idle |= {one: idle[one] + 1 for one, count in found.items() if not count}
    return row | {"tries": TRIES, "fails": f"in no run did all do something; idle in so many: {idle}"}


def _all_are_there(workload: Workload, given: dict[str, Any], made: Outcome) -> None:
    """Every request has an end where a run goes on to its end, every finished one all of its tokens, and each token of
    its prompt was found or computed."""
    assert given["horizon"] == "stop" or np.isin(made.state, ENDED).all() or "faults" in given or "autoscaler" in given
    finished = made.state == State.FINISHED
    wanted = np.minimum(workload.output_tokens, workload.max_new_tokens)
    assert (made.output_seen[finished] == wanted[finished]).all()
    found = made.hit_tokens + made.host_tokens + made.disk_tokens + made.shared_tokens + made.peer_tokens
    assert (found + made.prefilled_tokens >= workload.prompt_tokens)[finished].all()


if __name__ == "__main__":
    for some in sys.argv[2:]:
        print(json.dumps(tried(some.split("+"), int(sys.argv[1]))), flush=True)
