"""Labels of points in a figure: they cover neither points nor one another."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.report.labels import HEIGHT, LETTER, Box, placed
from tests.support.sampled import examples

INSIDE = Box(0, 0, 250, 180)
SIZE, MARK = 9.0, 4.0


def boxes(points: list[tuple[float, float]], texts: list[str]) -> list[Box]:
    corners = placed([(*at, text) for at, text in zip(points, texts, strict=False)], points, INSIDE, SIZE, MARK)
    wide = [LETTER * SIZE * len(text) for text in texts]
    return [Box(x, y, x + w, y + HEIGHT * SIZE) for (x, y), w in zip(corners, wide, strict=True)]


def test_labels_of_points_one_above_another_stand_apart() -> None:
    """As in a recommendation: "5, 4" stood on the triangle of 6, and 8 at the point of 7."""
    points = [(200.0, 100.0), (200.0, 94.0), (205.0, 97.0)]
    found = boxes(points, ["5", "4", "6"])
    assert not any(one.covers(other) for one, other in combinations(found, 2))
    marks = [Box(x - 2, y - 2, x + 2, y + 2) for x, y in points]
    assert not any(label.covers(mark) for label in found for mark in marks)


def test_a_label_at_the_edge_stays_in_the_picture() -> None:
    (found,) = boxes([(249.0, 179.0)], ["12"])
    assert INSIDE.holds(found)


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.tuples(st.floats(20, 230), st.floats(20, 160)), min_size=1, max_size=5, unique=True))
def test_a_few_labels_never_cover_one_another(points: list[tuple[float, float]]) -> None:
    found = boxes(points, [str(i) for i in range(len(points))])
    assert not any(one.covers(other) for one, other in combinations(found, 2))
