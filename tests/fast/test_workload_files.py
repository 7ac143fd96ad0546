"""Workloads from files: what was written is read back, and what is not valid is named in one line."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prebleexp.errors import InvalidInput
from prebleexp.sim.types import COLUMNS, Workload
from prebleexp.workloads import files
from prebleexp.workloads.base import WorkloadSource
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.react import React
from prebleexp.workloads.recorded import Recorded, save
from tests.support.places import ROOT
from tests.support.sampled import examples

OUTPUT = OutputLength((1, 300), (0.5, 0.5))
TRACE = ROOT.parent / "shared" / "data" / "conversation_trace.jsonl.gz"


def draw(source: WorkloadSource, n: int = 50) -> Workload:
    return source.draw(rps=10, duration_s=n / 10, seed=0, output_length=OUTPUT)


def message(call: Callable[[], object]) -> str:
    with pytest.raises(InvalidInput) as caught:
        call()
    text = str(caught.value)
    assert "\n" not in text
    return text


def columns() -> dict[str, Any]:
    workload = draw(React())
    return {name: getattr(workload, name) for name in COLUMNS}


def npz(path: Path, arrays: dict[str, Any]) -> Recorded:
    np.savez(path, **arrays)
    return Recorded(str(path))


def assert_equal(one: Workload, other: Workload) -> None:
    for name in COLUMNS:
        assert getattr(one, name).dtype == getattr(other, name).dtype
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


# Recorded


def test_a_saved_workload_is_read_back(tmp_path: Path) -> None:
    workload = draw(React(), 500)
    save(workload, tmp_path / "w.parquet")
    assert_equal(draw(Recorded(str(tmp_path / "w.parquet"))), workload)


def test_an_npz_workload_is_read_back_also_from_wider_integers(tmp_path: Path) -> None:
    arrays = columns()
    wide = {name: values.astype(np.int64) if values.dtype == np.int32 else values for name, values in arrays.items()}
    assert_equal(draw(npz(tmp_path / "w.npz", wide | {"other": np.ones(3)})), Workload(**arrays))


def test_a_relative_path_is_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npz(tmp_path / "w.npz", columns())
    monkeypatch.chdir(tmp_path)
    assert len(draw(Recorded("w.npz"))) == 50


def test_contents_stand_for_the_file(tmp_path: Path) -> None:
    one, copy = npz(tmp_path / "a.npz", columns()), tmp_path / "b.npz"
    copy.write_bytes((tmp_path / "a.npz").read_bytes())
    assert one.identity() == Recorded(str(copy)).identity()
    copy.write_bytes(b"other")
    assert one.identity() != Recorded(str(copy)).identity()


def test_a_file_that_is_as_it_was_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And one that has changed again, also if it is as long and its time is the same but for the clock's tick."""
    path = tmp_path / "log.jsonl"
    path.write_text("one")
    reads: list[str] = []

    def read(name: str | None) -> bytes:
        reads.append(str(name))
        return Path(str(name)).read_bytes()

    monkeypatch.setattr(files, "read", read)
    fresh = [files.digest(str(path)) for _ in range(2)]
    assert len(reads) == 2, "it was written just now, and may be written again"
    monkeypatch.setattr(files, "SETTLED_NS", 0)
    assert [files.digest(str(path)) for _ in range(3)] == [fresh[0]] * 3
    assert len(reads) == 3
    path.replace(tmp_path / "old")
    path.write_text("two")
    assert files.digest(str(path)) == hashlib.sha256(b"two").hexdigest()


def test_no_path_says_how_to_give_one() -> None:
    assert "workload.path=FILE" in message(lambda: Recorded(None))
    assert "workload.path=FILE" in message(lambda: Mooncake(None))
    assert "https://github.com/kvcache-ai/Mooncake" in message(lambda: Mooncake(None))


@pytest.mark.parametrize("kind", [Recorded, Mooncake])
def test_a_missing_file_is_named_when_it_is_read(kind: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "none")
    source = kind(path)
    for read in (source.identity, lambda: draw(source)):
        assert message(read) == f"workload.path={path} cannot be read: No such file or directory"


def test_a_missing_file_says_what_is_there_instead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "log.jsonl").touch()
    missing = str(tmp_path / "logs.jsonl")
    assert message(Recorded(missing).identity).endswith("No such file or directory; log.jsonl is there")
    monkeypatch.chdir(tmp_path)
    said = message(Recorded("data/other.jsonl").identity)
    assert said.endswith(f"No such file or directory; relative paths begin at {tmp_path}")


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    path.write_text("arrival_s,prompt_tokens\n")
    assert message(lambda: draw(Recorded(str(path)))) == f"{path}: neither an .npz nor a Parquet file"


@pytest.mark.parametrize("name", COLUMNS)
def test_a_missing_npz_column_is_named(name: str, tmp_path: Path) -> None:
    arrays = columns()
    del arrays[name]
    assert message(lambda: draw(npz(tmp_path / "w.npz", arrays))) == f"{tmp_path / 'w.npz'}: there is no column {name}"


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("prompt_tokens", lambda v: v + 0.5, "column prompt_tokens is float64; it must be integers"),
        ("arrival_s", lambda v: v.astype(str), "column arrival_s is <U32; it must be numbers"),
        (
            "output_tokens",
            lambda v: np.where(np.arange(len(v)) == 7, 2**40, v.astype(np.int64)),
            "column output_tokens, row 7: 1099511627776 is not valid; it must fit in 32 bits",
        ),
        ("segment_ids", lambda v: -1 - v, "workload column segment_ids, row 0"),
        ("arrival_s", lambda v: v[::-1], "workload column arrival_s, row 1"),
        ("prompt_tokens", lambda v: v[:, None], "workload column prompt_tokens has 2 dimensions; it must have 1"),
        ("prefix_group", lambda v: v[:-1], "workload column prefix_group has 49 rows; 50 were expected"),
    ],
)
def test_values_that_do_not_fit_name_file_column_and_row(name: str, change: Any, reason: str, tmp_path: Path) -> None:
    arrays = columns()
    arrays[name] = change(arrays[name])
    path = tmp_path / "w.npz"
    assert message(lambda: draw(npz(path, arrays))).startswith(f"{path}: {reason}")


def test_pickled_columns_are_not_loaded(tmp_path: Path) -> None:
    arrays = columns()
    arrays["arrival_s"] = np.array([{"a": 1}], dtype=object)
    assert "allow_pickle=False" in message(lambda: draw(npz(tmp_path / "w.npz", arrays)))


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("output_tokens", lambda v: None, "there is no column output_tokens"),
        ("output_tokens", lambda v: [None, *v[1:]], "column output_tokens, row 0: null is not valid"),
        ("output_tokens", lambda v: [[x] for x in v], "column output_tokens is list<"),
        ("segment_ids", lambda v: [x[0] for x in v], "column segment_ids is int64; it must be lists"),
        ("segment_ids", lambda v: [*v[:3], None, *v[4:]], "column segment_ids, row 3: null is not valid"),
        (
            "segment_tokens",
            lambda v: [*v[:2], [5], *v[3:]],
            "column segment_tokens, row 2: 1 elements; segment_ids has",
        ),
    ],
)
def test_parquet_that_does_not_fit_names_file_column_and_row(
    name: str, change: Any, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "w.parquet"
    save(draw(React()), path)
    values = pq.read_table(path).to_pydict()
    values[name] = change(values[name])
    if values[name] is None:
        del values[name]
    pq.write_table(pa.table(values), path)
    assert message(lambda: draw(Recorded(str(path)))).startswith(f"{path}: {reason}")


def test_a_column_that_is_there_twice_is_named(tmp_path: Path) -> None:
    path = tmp_path / "w.parquet"
    save(draw(React()), path)
    table = pq.read_table(path)
    pq.write_table(table.append_column("arrival_s", table["arrival_s"]), path)
    assert message(lambda: draw(Recorded(str(path)))) == f"{path}: there are 2 columns arrival_s"


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_damaged_bytes_are_refused_in_one_line_or_do_not_matter(
    suffix: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / f"damaged{suffix}"
    workload = draw(React(), 5)
    if suffix == ".npz":
        np.savez(path, **{name: getattr(workload, name) for name in COLUMNS})
    else:
        save(workload, path)
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[at] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[at:]
    path.write_bytes(content)
    try:
        draw(Recorded(str(path)))
    except InvalidInput as error:
        text = str(error)
    else:
        return
    assert str(path) in text
    assert "\n" not in text


# Mooncake


def line(timestamp: Any = 0, input_length: Any = 600, output_length: Any = 5, hash_ids: Any = (1, 2)) -> dict[str, Any]:
    ids = list(hash_ids) if isinstance(hash_ids, tuple) else hash_ids
    return {"timestamp": timestamp, "input_length": input_length, "output_length": output_length, "hash_ids": ids}


def trace(path: Path, *lines: dict[str, Any], **options: Any) -> Mooncake:
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return Mooncake(str(path), **{"load": "recorded"} | options)


def test_a_trace_becomes_arrivals_lengths_and_blocks(tmp_path: Path) -> None:
    first, second = line(0, 600, 5, (7, 8)), line(1500, 1024, 9, (7, 3))
    workload = draw(trace(tmp_path / "t", first, second))
    assert workload.arrival_s.tolist() == [0, 1.5]
    assert workload.prompt_tokens.tolist() == [600, 1024]
    assert workload.output_tokens.tolist() == workload.max_new_tokens.tolist() == [5, 9]
    assert workload.prefix_group.tolist() == [-1, -1]
    assert workload.segment_tokens.tolist() == [512, 88, 512, 512]
    a, b, c, d = workload.segment_ids.tolist()
    assert a == c
    assert len({a, b, d}) == 3


@pytest.mark.parametrize(
    "second",
    [line(0, 600, 5, (9, 2)), line(0, 601, 5, (1, 2)), line(0, 100, 5, (1,)), line(0, 600, 5, (2, 1))],
    ids=["another parent", "another remainder", "a short first block", "the other way round"],
)
def test_a_hash_with_another_parent_or_size_is_a_path_of_its_own(second: dict[str, Any], tmp_path: Path) -> None:
    workload = draw(trace(tmp_path / "t", line(), second))
    start = workload.segment_offsets[1]
    assert workload.segment_ids[1] not in workload.segment_ids[start:]


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.sampled_from([1, 100, 512])), min_size=1)
)
def test_equal_leading_blocks_and_only_they_have_equal_ids(
    tmp_path_factory: pytest.TempPathFactory, prompts: list[tuple[list[int], int]]
) -> None:
    lines = [line(0, 512 * (len(ids) - 1) + last, 1, ids) for ids, last in prompts]
    workload = draw(trace(tmp_path_factory.getbasetemp() / "law", *lines))
    paths: dict[Any, int] = {}
    for request, (ids, last) in enumerate(prompts):
        start = workload.segment_offsets[request]
        for depth in range(1, len(ids) + 1):
            path = (tuple(ids[:depth]), last if depth == len(ids) else 512)
            assert (
                paths.setdefault(path, int(workload.segment_ids[start + depth - 1]))
                == workload.segment_ids[start + depth - 1]
            )
    assert len(set(paths.values())) == len(paths)


def test_plain_and_gzipped_traces_are_told_apart_by_their_bytes(tmp_path: Path) -> None:
    plain = trace(tmp_path / "t", line(), line(5))
    (tmp_path / "z").write_bytes(gzip.compress((tmp_path / "t").read_bytes()))
    assert_equal(draw(Mooncake(str(tmp_path / "z"), load="recorded")), draw(plain))


def test_rate_limit_and_cut(tmp_path: Path) -> None:
    lines = [line(1000 * i) for i in range(4)]
    workload = draw(trace(tmp_path / "t", *lines, compress=2, limit=3, max_new_tokens=2))
    assert workload.arrival_s.tolist() == [0, 0.5, 1]
    assert workload.output_tokens.tolist() == [5, 5, 5]
    assert workload.max_new_tokens.tolist() == [2, 2, 2]


def test_an_output_length_of_zero_counts_as_one(tmp_path: Path) -> None:
    assert draw(trace(tmp_path / "t", line(output_length=0))).output_tokens.tolist() == [1]


def test_arrivals_too_late_for_a_number_are_refused(tmp_path: Path) -> None:
    source = trace(tmp_path / "t", line(), line(1000), compress=1e-320)
    assert message(lambda: draw(source)).startswith("workload column arrival_s, row 1: inf is not valid")


def test_parameters_of_a_trace_are_part_of_its_identity(tmp_path: Path) -> None:
    one = trace(tmp_path / "t", line())
    others = [Mooncake(one.path, compress=2), Mooncake(one.path, limit=1), Mooncake(one.path, max_new_tokens=1)]
    assert all(one.identity() != other.identity() for other in others)
    assert "path" not in one.identity()


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (line(-1), "timestamp=-1 is not valid"),
        (line(float("nan")), "timestamp=nan is not valid"),
        (line(10**400), "timestamp=1000"),
        (line("0"), "timestamp='0' is not valid"),
        (line(1000, 0, 5, ()), "input_length=0 is not valid; it must be an integer from 1 to 2147483647"),
        (line(1000, 600.5), "input_length=600.5 is not valid"),
        (line(1000, 600, -1), "output_length=-1 is not valid; it must be an integer from 0 to 2147483647"),
        (line(1000, 2**31), "input_length=2147483648 is not valid; it must be an integer from 1 to 2147483647"),
        (line(1000, 600, True), "output_length=True is not valid"),
        (line(1000, 600, 5, (1,)), "hash_ids has 1 elements; input_length=600 needs 2, one to 512 tokens"),
        (line(1000, 600, 5, (1, "2")), "hash_ids is not valid"),
        (line(1000, 600, 5, (1, 2.0)), "hash_ids is not valid"),
        (line(1000, 600, 5, 7), "hash_ids is not valid"),
        ({"timestamp": 1000}, "there is no field input_length"),
    ],
)
def test_a_row_that_is_not_valid_is_named_with_its_field(second: dict[str, Any], reason: str, tmp_path: Path) -> None:
    source = trace(tmp_path / "t", line(1000), second)
    assert message(lambda: draw(source)).startswith(f"{tmp_path / 't'}: row 2: {reason}")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{\n", "row 1: not valid JSON: "),
        (b"\n\n[1]\n", "row 3: not a JSON object"),
        (b"", "there are no requests"),
        (b"\xff\xfe", "there are no requests"),
        (b"\xfc\xfe", "row 1: neither JSON nor CSV in UTF-8: "),
        (b"\x1f\x8bnot gzip at all", "not a gzip file that can be read: "),
        (gzip.compress(b"{}", mtime=0)[:-4], "not a gzip file that can be read: "),
    ],
)
def test_a_file_that_is_no_trace_is_named(content: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_bytes(content)
    assert message(lambda: draw(Mooncake(str(path)))).startswith(f"{path}: {reason}")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"compress": 0}, "workload.compress=0 is not valid; it must be a finite number > 0"),
        ({"compress": float("inf")}, "workload.compress=inf is not valid; it must be a finite number > 0"),
        ({"limit": 0}, "workload.limit=0 is not valid; it must be null or an integer from 1 to 2147483647"),
        (
            {"max_new_tokens": 1.5},
            "workload.max_new_tokens=1.5 is not valid; it must be null or an integer from 1 to 2147483647",
        ),
        ({"compress": 10**400}, f"workload.compress={10**400} is not valid; it must be a finite number > 0"),
    ],
)
def test_options_that_are_not_valid_are_refused(options: dict[str, Any], reason: str) -> None:
    assert message(lambda: Mooncake("t", **options)) == reason


def test_the_public_trace_or_one_made_up_of_its_form(tmp_path: Path) -> None:
    if TRACE.exists():
        workload, n, blocks = draw(Mooncake(str(TRACE), load="recorded")), 12_031, 288_500
    else:
        workload, n, blocks = draw(trace(tmp_path / "t", *[line(i, hash_ids=(0, i)) for i in range(1, 100)])), 99, 198
    assert len(workload) == n
    assert len(workload.segment_ids) == blocks
    assert len(np.unique(workload.segment_ids)) < blocks
