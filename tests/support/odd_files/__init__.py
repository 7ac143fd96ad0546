"""Logs and traces, right, odd and wrong, whose truth is known."""

from __future__ import annotations

import numpy as np

from tests.support.odd_files.formats import of_a_format, of_bench, of_mooncake, of_spans
from tests.support.odd_files.oddities import ODD
from tests.support.odd_files.shapes import SHAPES, packed
from tests.support.odd_files.times import TIMES
from tests.support.odd_files.truth import Truth, truth
from tests.support.odd_files.usages import NAMED, UNNAMED

FORMATS = ((of_mooncake, 0.12), (of_a_format, 0.06), (of_bench, 0.08), (of_spans, 0.04))
"""and how many of all files are of each"""


def made(seed: int) -> tuple[bytes, Truth, str]:
    """A file, its truth, and what it is called in a failure."""
    rng = np.random.default_rng([31, seed])
    of = truth(rng)
    kind = rng.random()
    for form, share in FORMATS:
        if kind < share:
            text, called = form(of, rng)
            data, way = packed(text, of, rng)
            return data, of, f"{called} {way}"
        kind -= share
    time = TIMES[int(rng.integers(len(TIMES)))]
    known = rng.random() < 0.9
    usages = NAMED if known else UNNAMED
    usage = usages[int(rng.integers(len(usages)))]
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    odd = ODD[int(rng.integers(len(ODD)))]
    name, at = time(of, rng)
    of.strange = of.strange or ("" if known else "names of counts")
    counts = zip(of.prompt, of.output, of.cached, strict=True)
    rows = [{name: at(start)} | usage(*one) for start, one in zip(of.start_s, counts, strict=True)]
    rows = odd(rows, name, of, rng)
    text = shape(rows, of, rng)
    data, way = packed(text, of, rng)
    return data, of, " ".join((*(one.__name__ for one in (time, usage, shape, odd)), way))
