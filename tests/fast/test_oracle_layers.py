"""What holds of the layers of `tests.support.oracle.composed`, whichever of them a run has."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.support.oracle import composed
from tests.support.oracle.core import Oracle
from tests.support.oracle.pools import VllmGpu
from tests.support.reference.vllm import Blocks, Scheduler

assert composed, "imported for all layers that a run may have"


def derived(base: type) -> set[type]:
    return {base}.union(*map(derived, base.__subclasses__()))


def functions(one: type) -> set[str]:
    return {name for name, function in vars(one).items() if callable(function)}


@pytest.mark.parametrize("base", [Oracle, VllmGpu, Scheduler, Blocks])
def test_a_name_of_two_layers_is_one_of_a_layer_below_both(base: type) -> None:
    """Else one of the two would stand in for the other unseen, wherever both are in a run."""
    mine = {one for one in derived(base) if one is base or one.__module__.startswith("tests.support.oracle.")}
    for one, other in combinations(sorted(mine, key=lambda one: one.__name__), 2):
        if not issubclass(one, other) and not issubclass(other, one):
            below = set().union(*(functions(both) for both in one.__mro__ if issubclass(other, both)))
            assert functions(one) & functions(other) <= below, (one.__name__, other.__name__)
