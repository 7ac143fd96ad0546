"""Instructions from files, their split, and output lengths as bins."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.predict.bins import bins
from prebleexp.predict.data import TEST, TRAIN, VALIDATION, Instructions, read
from tests.support.predictors import SUBSET, instructions, require_extra

require_extra()
ROW = {"instruction": "Say hello", "input": "", "output": "Hello there, my friend"}


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def line(**changed: object) -> bytes:
    return (json.dumps({name: value for name, value in (ROW | changed).items() if value is not None}) + "\n").encode()


def test_lines_lists_and_gz_are_read_alike(tmp_path: Path) -> None:
    lines = line() + b"\n" + line(input="in French")
    ways = {
        "a.jsonl": lines,
        "a.json": b"[" + line() + b"," + line(input="in French") + b"]",
        "a.jsonl.gz": gzip.compress(lines, mtime=0),
    }
    for name, content in ways.items():
        found = read(written(tmp_path / name, content))
        assert found.prompts == ("Say hello", "Say hello\nin French")
        assert found.output_tokens.tolist() == [5, 5]  # Hello, there, a comma, my, friend
        assert found.prompt_tokens[1] > found.prompt_tokens[0]
    assert len({read(tmp_path / name).sha256 for name in ("a.jsonl", "a.jsonl.gz")}) == 1  # of what is inside


def test_rows_with_an_empty_output_are_left_out_and_counted(tmp_path: Path) -> None:
    found = read(written(tmp_path / "a.jsonl", line() + line(output="  ")))
    assert (len(found), found.left_out) == (1, 1)


BAD = {
    "is empty": b" \n",
    "not UTF-8": b'{"instruction": "\xff"}',
    "row 2: not JSON": line() + b"{\n",
    "row 1: it has no output": line(output=None),
    "row 2: it has no instruction": line() + line(instruction=None),
    "row 1: it has no output, which must be a text": line(output=7),
    "row 1: its input is not a text": line(input=[1]),
    "row 1: not an object": b"[1, 2]\n",
    "is not JSON": b"[1, 2",
    "has no row with an output": line(output=""),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_file_is_one_line_that_names_it(message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=message) as error:
        read(written(tmp_path / "rows.jsonl", BAD[message]))
    assert "rows.jsonl" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("content", [gzip.compress(line(), mtime=0)[:-9], b"\x1f\x8bno"])
def test_a_damaged_gz_is_one_line(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"rows\.gz is a damaged \.gz"):
        read(written(tmp_path / "rows.gz", content))


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read: No such file"):
        read(tmp_path / "none")


def test_a_prompt_is_on_one_side_wherever_it_comes(tmp_path: Path) -> None:
    """Also twice, also in another file: what is held back was never trained on."""
    many = read(instructions(tmp_path / "a.jsonl", 400))
    split = many.split(0)
    twice = Instructions(
        many.prompts[::-1] * 2, *(np.tile(one[::-1], 2) for one in (many.prompt_tokens, many.output_tokens)), "", 0
    )
    assert twice.split(0).tolist() == [*split[::-1], *split[::-1]]
    assert many.split(1).tolist() != split.tolist()


def test_parts_are_60_20_and_20_percent() -> None:
    found = read(SUBSET)
    shares = np.bincount(found.split(0)) / len(found)
    for part, share in ((TRAIN, 0.6), (VALIDATION, 0.2), (TEST, 0.2)):
        assert shares[part] == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / len(found)))


LENGTHS = st.lists(st.integers(1, 2000), min_size=30, max_size=400, unique=True)


@given(LENGTHS, st.integers(2, 20), st.sampled_from(["frequency", "width"]))
def test_every_length_is_in_the_bin_that_its_edges_say(lengths: list[int], count: int, kind: str) -> None:
    array = np.array(lengths)
    try:
        found = bins(array, count, kind)
    except InvalidInput:
        return  # lengths too close for so many edges
    place = found.of(array)
    edges = np.array(found.edges)
    assert (edges[place] <= array).all()
    assert (array < edges[place + 1]).all()
    assert found.of(np.array([0, 10**6])).tolist() == [0, count - 1]  # the outer bins take what lies beyond
    for i in range(count):
        if (place == i).any():
            assert found.values[i] == pytest.approx(array[place == i].mean())
        assert edges[i] <= found.values[i] <= edges[i + 1]


def test_bins_of_equal_frequency_hold_as_many_and_of_equal_width_are_as_wide() -> None:
    lengths = np.random.default_rng(3).permutation(np.arange(1, 2001))
    assert set(np.bincount(bins(lengths, 20, "frequency").of(lengths))) <= {99, 100, 101}
    assert np.ptp(np.diff(bins(lengths, 20, "width").edges)) < 1e-9


def test_too_many_bins_are_one_line() -> None:
    with pytest.raises(InvalidInput, match="bins=20 are too many for 3 different output lengths"):
        bins(np.array([1, 2, 3] * 10), 20, "frequency")


def test_expected_lengths_are_means_of_the_bins() -> None:
    found = bins(np.arange(1, 101), 4, "frequency")
    assert found.mean(np.eye(4)).tolist() == list(found.values)
