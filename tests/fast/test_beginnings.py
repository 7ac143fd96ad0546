"""Texts that begin alike are cut where they part."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.workloads.beginnings import LEAST, PLAIN, Said, cut

SYSTEM = "You are a helpful assistant of a shop, who answers in one short sentence. "
assert len(SYSTEM) > LEAST


def shared(one: Said, other: Said) -> int:
    """Letters of equal first pieces."""
    letters = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        letters += len(a[1])
    return letters


def test_a_system_prompt_within_one_text_is_a_piece() -> None:
    texts = [SYSTEM + "When do you open?", SYSTEM + "What does it cost?", "Something else"]
    first, second, third = cut([[(PLAIN, text)] for text in texts])
    assert [text for _, text in first] == [SYSTEM[:-1], " When do you open?"]
    assert shared(first, second) == len(SYSTEM) - 1
    assert third == [(PLAIN, "Something else")]


def test_pieces_end_between_words() -> None:
    one, other = cut([[(PLAIN, SYSTEM + "openers" * 20)], [(PLAIN, SYSTEM + "opening" * 20)]])
    assert one[0] == other[0] == (PLAIN, SYSTEM[:-1])


@pytest.mark.parametrize(("letters", "kept"), [(LEAST, LEAST), (LEAST - 1, 0)])
def test_the_shortest_piece_is_counted_to_the_end_of_its_last_word(letters: int, kept: int) -> None:
    word = "x" * letters
    assert shared(*cut([[(PLAIN, f"{word} alpha")], [(PLAIN, f"{word} alps")]])) == kept


def test_a_plain_prompt_may_be_the_beginning_of_another_and_a_message_may_not() -> None:
    longer = SYSTEM + "And then?"
    assert shared(*cut([[(PLAIN, SYSTEM)], [(PLAIN, longer)]])) == len(SYSTEM)
    assert shared(*cut([[("user", SYSTEM)], [("user", longer)]])) == 0


def test_only_texts_at_the_same_place_are_compared() -> None:
    one = [("system", "a"), ("user", SYSTEM + "x")]
    other = [("system", "b"), ("user", SYSTEM + "y")]
    assert cut([one, other]) == [one, other]


WORDS = st.sampled_from(["river ", "stone ", "cloud ", "x" * 80 + " "])
TEXTS = st.lists(WORDS, max_size=12).map("".join)


@given(st.lists(st.lists(st.tuples(st.sampled_from([PLAIN, "user"]), TEXTS), min_size=1, max_size=3), max_size=8))
def test_nothing_is_lost_and_what_is_alike_is_shared(said: list[Said]) -> None:
    made = cut(said)
    for before, after in zip(said, made, strict=True):
        assert "".join(text for _, text in before) == "".join(text for _, text in after)
    for i, one in enumerate(said):
        for j, other in enumerate(said[:i]):
            whole = shared(one, other)
            assert shared(made[i], made[j]) >= whole, "equal texts stay equal"
            first, second = one[0], other[0]
            if whole == 0 and first[0] == second[0]:
                common = next((k for k, (a, b) in enumerate(zip(first[1], second[1], strict=False)) if a != b), None)
                if common is not None and common >= 3 * LEAST:
                    assert shared(made[i], made[j]) >= LEAST
                assert shared(made[i], made[j]) <= (len(first[1]) if common is None else common)
