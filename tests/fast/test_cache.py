"""An entry of the cache is whole and what was written, or it is set aside and computed again."""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import cache as cache_module
from prebleexp.experiment import durable
from prebleexp.experiment.cache import Cache, Entry
from tests.support.counted import calls

KEY = "ab" * 32
REQUESTS = b"PAR1 many requests PAR1" * 20


def entry(key: str = KEY, requests: bytes | None = REQUESTS) -> Entry:
    digest = None if requests is None else hashlib.sha256(requests).hexdigest()
    metrics = {"third": 1 / 3, "tiny": 5e-324, "large": 1.7976931348623157e308, "none": None, "count": 2**62}
    return Entry(key, {"gpus": 4}, metrics, {"seconds": 0.5}, digest)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    made = Cache(tmp_path / "cache")
    made.put(entry(), REQUESTS)
    return made


def test_what_is_put_comes_back_exactly(cache: Cache) -> None:
    assert cache.get(KEY, requests=True) == entry()
    assert cache.requests_path(KEY).read_bytes() == REQUESTS
    assert cache.get("cd" * 32) is None


def test_an_entry_without_requests_is_no_entry_for_who_wants_them(cache: Cache) -> None:
    other = "cd" * 32
    cache.put(entry(other, None))
    assert cache.get(other) is not None
    assert cache.get(other, requests=True) is None


def damage(cache: Cache, path: Path, data: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(data)
    assert cache.get(KEY, requests=True) is None
    said = capsys.readouterr().err
    assert str(cache.folder) in said
    assert "damaged" in said
    assert said.count("\n") == 1
    assert not cache.requests_path(KEY).exists()
    assert len(list((cache.folder / "bad").iterdir())) == 2
    cache.put(entry(), REQUESTS)
    assert cache.get(KEY, requests=True) == entry()


def json_of(cache: Cache) -> Path:
    return cache.requests_path(KEY).with_suffix(".json")


def test_a_truncated_entry_is_set_aside(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (json_of(cache), cache.requests_path(KEY)):
        whole = path.read_bytes()
        for length in range(0, len(whole), 17):
            damage(cache, path, whole[:length], capsys)


def test_a_flipped_bit_is_noticed(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (json_of(cache), cache.requests_path(KEY)):
        whole = path.read_bytes()
        for position in range(0, len(whole), 11):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << position % 8
            damage(cache, path, bytes(flipped), capsys)


def test_foreign_files_are_noticed(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    other = "ab" + "cd" * 31
    cache.put(entry(other), REQUESTS)
    for data in (b"{}", b"null", b"\xff\xfe", cache.requests_path(other).with_suffix(".json").read_bytes()):
        damage(cache, json_of(cache), data, capsys)


def test_missing_requests_are_noticed(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    cache.requests_path(KEY).unlink()
    assert cache.get(KEY, requests=True) is None
    assert "its requests are missing" in capsys.readouterr().err


def test_damaged_requests_are_noticed_also_by_who_does_not_want_them(
    cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.requests_path(KEY).write_bytes(REQUESTS[:-1])
    assert cache.get(KEY) is None
    assert "its requests are not those that were written" in capsys.readouterr().err


def test_an_entry_of_another_shape_is_noticed(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    for body in (b"[]", b'{"key":"' + KEY.encode() + b'"}'):
        digest = hashlib.sha256(body).hexdigest().encode()
        damage(cache, json_of(cache), b'{"sha256":"' + digest + b'","entry":' + body + b"}\n", capsys)


def test_an_entry_that_cannot_be_read_is_bad_input(cache: Cache) -> None:
    json_of(cache).unlink()
    json_of(cache).mkdir()
    with pytest.raises(InvalidInput, match=r"cache entry .*\.json cannot be read: Is a directory"):
        cache.get(KEY)


def test_not_a_number_is_not_written(cache: Cache) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        cache.put(Entry("cd" * 32, {}, {"ttft_mean_s": float("nan")}, {}))
    assert cache.get("cd" * 32) is None


def test_many_threads_read_write_and_set_aside_the_same_entry(cache: Cache) -> None:
    def work(i: int) -> Entry | None:
        if i % 10 == 0:
            json_of(cache).write_bytes(b"damage")
        found = cache.get(KEY, requests=True)
        if found is None:
            cache.put(entry(), REQUESTS)
        return found

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(work, range(200)))
    assert {one for one in map(repr, found) if one != "None"} == {repr(entry())}


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cache folder .*file/cache cannot be made: Not a directory"):
        Cache(tmp_path / "file" / "cache")


def test_a_full_disk_leaves_no_half_entry(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    other = "cd" * 32
    with pytest.raises(PrebleexpError, match="No space left"):
        cache.put(entry(other), REQUESTS)
    monkeypatch.undo()
    assert cache.get(other) is None
    assert not list(cache.folder.rglob("*.tmp"))


def test_a_disk_that_fills_between_the_two_files_leaves_what_was_there(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "cd" * 32
    cache.put(entry(other, None))
    sync, calls = os.fsync, []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 2:  # the Parquet file and its folder are on the disk
            raise OSError(28, "No space left on device")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PrebleexpError, match="No space left"):
        cache.put(entry(other), REQUESTS)
    monkeypatch.undo()
    assert cache.requests_path(other).exists()
    assert cache.get(other) == entry(other, None)
    assert cache.get(other, requests=True) is None
    assert capsys.readouterr().err == ""


def write_often(folder: Path) -> None:
    cache = Cache(folder)
    for _ in range(30):
        cache.put(entry(), REQUESTS)


@pytest.mark.slow
def test_writers_of_one_entry_do_not_disturb_each_other_or_readers(
    cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_often, args=(cache.folder,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert cache.get(KEY, requests=True) == entry()
        time.sleep(0.001)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert cache.get(KEY, requests=True) == entry()
    assert not list(cache.folder.rglob("*.tmp"))
    assert capsys.readouterr().err == ""


def write_for_ever(folder: Path) -> None:
    cache = Cache(folder)
    while True:
        for i in range(16):
            cache.put(entry(f"{i:02x}" * 32), REQUESTS)


@pytest.mark.slow
def test_killed_writers_leave_no_half_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "cache"
    Cache(folder)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_for_ever, args=(folder,)) for _ in range(2)]
    for writer in writers:
        writer.start()
    while len(list(folder.glob("v1/*/*.json"))) < 16:
        time.sleep(0.01)
    for writer in writers:
        time.sleep(0.05)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
    cache = Cache(folder)
    for i in range(16):
        assert cache.get(f"{i:02x}" * 32, requests=True) == entry(f"{i:02x}" * 32)
    assert capsys.readouterr().err == ""


def test_what_a_dead_writer_left_is_removed_after_an_hour(cache: Cache) -> None:
    old, new = (json_of(cache).with_name(f".{name}.tmp") for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    Cache(cache.folder)
    assert not old.exists()
    assert new.exists()


def test_an_entry_is_read_in_few_calls(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    names = [hashlib.sha256(str(i).encode()).hexdigest() for i in range(50)]
    for name in names:
        cache.put(entry(name, None))
    assert all(cache.get(name) for name in names)
    each = calls(lambda: [cache.get(name) for name in names]) / len(names)
    print(f"{each:.0f} calls an entry")
    assert each < 110


def test_a_new_folder_says_its_format_and_an_unmarked_one_is_of_the_first(tmp_path: Path) -> None:
    Cache(tmp_path)
    assert json.loads((tmp_path / "format.json").read_bytes()) == {"files": 1, "keys": 2}
    (tmp_path / "format.json").unlink()
    Cache(tmp_path)
    assert (tmp_path / "format.json").exists()


@pytest.mark.parametrize("format", [{"files": 2, "keys": 2}, {"files": 1, "keys": 3}])
def test_a_folder_of_a_later_program_is_left_alone(tmp_path: Path, format: dict[str, int]) -> None:
    (tmp_path / "format.json").write_text(json.dumps(format))
    with pytest.raises(InvalidInput, match=r"was written by a later prebleexp \(format .*this one knows 1\.2\); use"):
        Cache(tmp_path)
    assert json.loads((tmp_path / "format.json").read_text()) == format


def test_a_folder_of_an_older_program_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Cache(tmp_path).put(entry(), REQUESTS)
    monkeypatch.setattr(cache_module, "FORMATS", (1, 3))
    newer = Cache(tmp_path)
    said = capsys.readouterr().err
    assert f"cache folder {tmp_path} was of an older format (1.2, now 1.3); its runs are not found any more" in said
    assert newer.read_only is None
    Cache(tmp_path)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"files": "x", "keys": 1}', '{"files": null, "keys": 1}'])
def test_a_format_that_cannot_be_understood_is_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "format.json").write_text(text)
    with pytest.raises(InvalidInput, match=r"format.json does not say a format; .* is not a cache folder"):
        Cache(tmp_path)


def test_a_folder_that_cannot_be_written_can_be_read(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(durable, "write", refuse)
    (cache.folder / "format.json").unlink()
    again = Cache(cache.folder)
    assert again.read_only == "Read-only file system"
    assert again.get(KEY) == entry()
    with pytest.raises(PrebleexpError, match=r"cannot be written: Read-only file system"):
        again.put(entry("cd" * 32, None))


def test_a_damaged_entry_is_moved_between_file_systems(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The runs on one, the folder on another."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.fail("this test needs a second file system at /dev/shm")
    with tempfile.TemporaryDirectory(dir=memory) as other:
        (tmp_path / "v1").symlink_to(other)
        cache = Cache(tmp_path)
        cache.put(entry(), REQUESTS)
        assert cache.get(KEY, requests=True) == entry()
        cache.path(KEY).write_bytes(b"{}")
        assert cache.get(KEY) is None
        assert "set aside" in capsys.readouterr().err
        assert sorted(path.suffix for path in (tmp_path / "bad").iterdir()) == [".json", ".parquet"]
        assert not cache.path(KEY).exists()
