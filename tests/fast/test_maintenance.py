"""`python -m prebleexp cache …`: listing, checking, removing, and taking runs elsewhere."""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prebleexp.__main__ import main
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import archive, maintenance
from prebleexp.experiment.cache import Cache, Entry
from prebleexp.experiment.results import run_all
from prebleexp.experiment.sealed import seal
from prebleexp.launch import configure
from tests.support.policies.plain import Nowhere
from tests.support.sampled import sampled

SMALL = ("gpus=2", "rps=4", "duration_s=3")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    """Four runs of two policies, of two of which requests are kept, and a failure."""
    monkeypatch.chdir(tmp_path)
    made = Cache(Path("cache"))
    cells = [
        one for policy in ("lor", "random") for one in configure.cells([*SMALL, f"policy={policy}", "replications=2"])
    ]
    run_all([*cells, replace(cells[0], policy=Nowhere())], made)
    return made


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert main(["cache", *arguments]) == code
    out, err = capsys.readouterr()
    return out, err


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    return list(json.loads(said(capsys, "ls", "output=json", *arguments)[0]))


@pytest.mark.slow
def test_ls_lists_runs(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    rows = listed(capsys)
    assert sorted(row["policy"] for row in rows) == ["lor", "lor", "plain", "random", "random"]
    assert [row["policy"] for row in listed(capsys, "state=failed")] == ["plain"]
    assert [row["seed"] for row in listed(capsys, "policy=lor", "seed=1", "rps=4.0")] == [1]
    assert listed(capsys, "policy=lor", "gpus=3") == []
    assert listed(capsys, "code=unused") == []
    sizes = [row["bytes"] for row in listed(capsys, "sort=size")]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == sum(
        path.stat().st_size for path in cache.runs.glob(f"??/{listed(capsys, 'sort=size')[0]['key']}*")
    )
    assert len(listed(capsys, "limit=2")) == 2
    table, total = said(capsys, "ls")
    assert table.splitlines()[0].split()[:3] == ["key", "policy", "workload"]
    assert total.startswith("5 runs, ")


@pytest.mark.slow
def test_show_tells_all_of_a_run(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    key = listed(capsys, "policy=lor", "seed=0")[0]["key"]
    about = json.loads(said(capsys, "show", key[:10])[0])
    assert about["key"] == key
    assert about["configuration"]["gpus"] == 2
    assert about["metrics"]["n_requests"] == 12
    assert len(about["files"]) == 3
    failed = listed(capsys, "state=failed")[0]["key"]
    out, _ = said(capsys, "show", failed)
    assert "to GPU 99" in out
    assert "Traceback" in out


@pytest.mark.slow
def test_why_says_which_field_differs(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (row["key"] for row in listed(capsys, "policy=lor"))
    for command in (["cache", "why"], ["why"]):
        assert main([*command, first[:12], second]) == 0
        assert capsys.readouterr().out in ("cell.seed: 0 and 1\n", "cell.seed: 1 and 0\n")


def some(cache: Cache, requests: bool = True) -> Path:
    return next(path for path in map(cache.path, cache.keys()) if path.with_suffix(".parquet").exists() == requests)


def swap_metrics(path: Path) -> None:
    """Sealed anew, but of another run."""
    entry = json.loads(path.read_bytes())["entry"]
    path.write_bytes(seal(entry | {"content": entry["content"] | {"format": 0}}))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "its bytes are not those": lambda path: path.write_bytes(path.read_bytes()[:-5]),
    "its key is not the hash of what it stands for": swap_metrics,
    "its requests are not those": lambda path: path.with_suffix(".parquet").write_bytes(b"PAR1"),
    "its requests are missing": lambda path: path.with_suffix(".parquet").unlink(),
    "it has no entry": lambda path: path.unlink(),
    "it is nothing of this cache's": lambda path: path.with_name("notes.txt").write_text("mine"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_verify_finds_what_is_wrong_and_repairs_it(what: str, cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "verify")[1].startswith("5 runs, all sound")
    DAMAGE[what](some(cache))
    out, err = said(capsys, "verify", code=1)
    assert what in out
    assert out.count("\n") == 1
    assert "one thing is wrong" in err
    said(capsys, "verify", "repair=true", code=1)
    out, _ = said(capsys, "verify", code=1 if what.startswith("it is nothing") else 0)
    assert what.startswith("it is nothing") or not out, "what is not ours stays"


def test_gc_without_a_choice_removes_nothing(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = said(capsys, "gc")
    assert out.splitlines()[1].split()[:2] == ["failed", "1"]
    assert err.startswith("nothing is removed; say what")
    assert len(listed(capsys)) == 5


def test_gc_removes_what_was_chosen(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys, "gc", "failed=true", "dry=true")
    assert len(listed(capsys)) == 5
    said(capsys, "gc", "failed=true")
    assert len(listed(capsys)) == 4
    old = some(cache)
    for path in (old, old.with_suffix(".parquet")):
        os.utime(path, (time.time() - 86400 * 3,) * 2)
    said(capsys, "gc", "older_than=4d")
    assert len(listed(capsys)) == 4
    said(capsys, "gc", "older_than=2d")
    assert len(listed(capsys)) == 3
    assert not old.with_suffix(".parquet").exists()
    sizes = sorted(row["bytes"] for row in listed(capsys))
    said(capsys, "gc", f"keep={sum(sizes) - 1}B")
    assert len(listed(capsys)) == 2
    said(capsys, "gc", "code=unused")
    assert len(listed(capsys)) == 2
    assert maintenance.verify(cache) == []


def test_gc_removes_runs_of_other_code(
    cache: Cache, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "code" not in said(capsys, "export", "runs.tar")[1]
    monkeypatch.setattr(maintenance, "code", lambda: {"sources": "new"})
    assert "; 4 of them by code that has changed since" in said(capsys, "export", "runs.tar")[1]
    out, err = said(capsys, "gc", "code=unused")
    assert "of unused code     5" in out
    assert "cache index takes them out of the database" in err
    assert listed(capsys) == []


def test_set_aside_files_may_go(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    cache.set_aside(some(cache), some(cache).stem, "a test")
    said(capsys, "gc", "bad=true")
    assert list((cache.folder / "bad").iterdir()) == []


def test_an_archive_brings_the_same_bytes_elsewhere(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = said(capsys, "export", "runs.tar")
    assert err.startswith("4 runs, ")
    _, err = said(capsys, "import", "runs.tar", "cache_dir=other")
    assert err == "4 runs imported, 0 already there\n"
    other = Cache(Path("other"))
    assert list(other.keys()) == list(cache.keys())
    for key in list(cache.keys()):
        assert other.path(key).read_bytes() == cache.path(key).read_bytes()
        assert other.requests_path(key).exists() == cache.requests_path(key).exists()
    assert maintenance.verify(other) == []
    assert said(capsys, "import", "runs.tar", "cache_dir=other")[1] == "0 runs imported, 4 already there\n"
    said(capsys, "export", "again.tar", "cache_dir=other")
    assert Path("again.tar").read_bytes() == Path("runs.tar").read_bytes()
    said(capsys, "export", "lor.tar", "policy=lor")
    Path("keys.txt").write_text("\n".join(row["key"] for row in listed(capsys, "policy=lor")))
    said(capsys, "export", "keys.tar", "keys=keys.txt")
    assert Path("keys.tar").read_bytes() == Path("lor.tar").read_bytes()


def crafted(path: Path, *members: tuple[tarfile.TarInfo, bytes], runs: int = 1) -> None:
    manifest = json.dumps({"files": 1, "keys": 2, "runs": runs}).encode()
    first = tarfile.TarInfo(archive.MANIFEST)
    with tarfile.open(path, "w") as tar:
        for member, data in ((first, manifest), *members):
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data))


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


KEY = "ab" * 32
HOSTILE = {
    "up": member("../../evil.json"),
    "absolute": member("/tmp/evil.json"),
    "deep": member(f"v1/ab/../../../{KEY}.json"),
    "link": member(f"{KEY}.json", tarfile.SYMTYPE, "/etc/passwd"),
    "hard link": member(f"{KEY}.parquet", tarfile.LNKTYPE, "../x"),
    "device": member(f"{KEY}.json", tarfile.CHRTYPE),
    "folder": member(KEY, tarfile.DIRTYPE),
    "other name": member("notes.txt"),
    "database": member("prebleexp.duckdb"),
    "upper": member(f"{KEY.upper()}.json"),
    "newline": member(f"{KEY}.json\n"),
}


@pytest.mark.parametrize("how", sampled(HOSTILE, 3))
def test_nothing_is_unpacked_under_a_name_of_the_archives(
    how: str, cache: Cache, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    key = next(iter(cache.keys()))
    good = member(f"{key}.json"), cache.path(key).read_bytes()
    parquet = member(f"{key}.parquet"), cache.requests_path(key).read_bytes() if some(cache).stem == key else b""
    crafted(tmp_path / "evil.tar", (HOSTILE[how], b"evil"), *([parquet] if parquet[1] else []), good, runs=2)
    before = {path for path in tmp_path.rglob("*") if "other" not in path.parts}
    out, err = said(capsys, "import", "evil.tar", "cache_dir=other", code=1)
    assert out.count("\n") == 1
    assert "1 runs imported, 0 already there, 1 refused" in err
    assert {path for path in tmp_path.rglob("*") if "other" not in path.parts} == before
    assert [path.name for path in Path("other").rglob("*.json")] in (
        ["format.json", f"{key}.json"],
        [f"{key}.json", "format.json"],
    )
    assert not Path("/tmp/evil.json").exists()


def test_what_is_not_what_it_says_is_refused(cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    path = some(cache)
    good, requests = path.read_bytes(), path.with_suffix(".parquet").read_bytes()
    entry = json.loads(good)["entry"]
    forged = seal(entry | {"content": entry["content"] | {"format": 0}})
    other = seal(entry | {"key": KEY})
    crafted(
        Path("evil.tar"),
        (member(path.name), good),
        (member(path.with_suffix(".parquet").name), b"PAR1"),
        (member(path.name), good),
        (member(path.name), forged),
        (member(path.name), b"{}"),
        (member(f"{KEY}.json"), other),
        (member(path.with_suffix(".parquet").name), requests),
        (member(path.name), good),
        runs=6,
    )
    out, err = said(capsys, "import", "evil.tar", "cache_dir=other", code=1)
    assert [line.split(": ", 1)[1] for line in out.splitlines()] == [
        "its requests are missing",
        "its requests are not those that were written",
        "its key is not the hash of what it stands for",
        "its bytes are not those that were written",
        "its key is not the hash of what it stands for",
    ]
    assert err == "1 runs imported, 0 already there, 5 refused\n"
    assert maintenance.verify(Cache(Path("other"))) == []


def test_an_entry_that_is_too_large_is_not_read(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.export(cache, all_of(cache), Path("runs.tar"))
    monkeypatch.setattr(archive, "LARGEST_ENTRY", 1000)
    done = archive.take_in(Cache(Path("other")), Path("runs.tar"))
    assert len(done.refused) == 4
    assert "bytes are too many" in done.refused[0]


def all_of(cache: Cache) -> list[Entry]:
    return [item.run for item in maintenance.items(cache) if isinstance(item.run, Entry)]


def test_a_truncated_archive_gives_what_it_has(cache: Cache) -> None:
    archive.export(cache, all_of(cache), Path("runs.tar"))
    whole = Path("runs.tar").read_bytes()
    end = len(whole.rstrip(b"\0"))
    for length in range(0, end, 2999):
        Path("short.tar").write_bytes(whole[:length])
        other = Cache(Path(f"other{length}"))
        with pytest.raises(PrebleexpError, match=r"short.tar (ends too early|is no archive of runs|is damaged)"):
            archive.take_in(other, Path("short.tar"))
        assert maintenance.verify(other) == []


@pytest.mark.parametrize(
    ("formats", "says"), [((2, 2), "a later prebleexp"), ((1, 3), "a later"), ((1, 1), "an older prebleexp")]
)
def test_archives_of_other_formats_say_so(
    cache: Cache, formats: tuple[int, int], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(archive, "FORMATS", formats)
        archive.export(cache, all_of(cache), Path("runs.tar"))
    with pytest.raises(InvalidInput, match=rf"was exported by {says}"):
        archive.take_in(Cache(Path("other")), Path("runs.tar"))


@pytest.mark.parametrize(
    ("place", "why"),
    [("none/x.tar", "No such file or directory"), ("keys.txt/x.tar", "Not a directory"), ("cache", "Is a directory")],
)
def test_an_export_that_cannot_be_written_says_so_before_any_work(
    cache: Cache, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: str, why: str
) -> None:
    Path("keys.txt").write_text("")
    monkeypatch.setattr(maintenance, "items", lambda cache: pytest.fail("runs are read"))
    assert said(capsys, "export", place, code=1)[1] == f"prebleexp: {place} cannot be written: {why}\n"
    assert sorted(path.name for path in Path().iterdir()) == ["cache", "keys.txt"]


def test_a_damaged_run_is_not_exported(cache: Cache) -> None:
    entries = all_of(cache)
    some(cache).with_suffix(".parquet").write_bytes(b"PAR1")
    with pytest.raises(PrebleexpError, match=r"cannot be exported: its requests are not those"):
        archive.export(cache, entries, Path("runs.tar"))
    assert not list(Path().glob("*runs.tar*"))


BAD = {
    "": "unknown cache command ''; valid: export, gc, import, index, ls, show, verify, why",
    "list": "unknown cache command 'list'",
    "ls cache_dir=none": "cache_dir=none is not a folder",
    "gc cache_dir= keep=0GB": "cache_dir= is not valid; it must be a path",
    "ls colour=red": "unknown setting 'colour'; valid: cache_dir, code,",
    "ls all": "cache ls does not know 'all'",
    "ls sort=name": "sort=name is not valid; it must be one of age, size, seconds",
    "ls limit=-1": "limit=-1 is not valid",
    "show": "cache show takes a key, not 0: nothing",
    "show xyz": "'xyz' is not a key",
    "show abcd": "has no run abcd",
    "why abcd": "cache why takes two keys",
    "gc older_than=3": "older_than=3 is not valid; it is like 30d, 12h or 90s",
    "gc keep=much": "keep=much is not valid; it is like 10GB, 500MB or 1GiB",
    "gc code=old": "code=old is not valid; it must be unused",
    "gc failed=yes": "failed=yes is not valid; it must be one of false, true",
    "export": "export takes a file to write",
    "export x.tar policy=none": "unknown policy of a run: 'none'; valid: lor, plain, random",
    "export x.tar keys=none.txt": "keys=none.txt cannot be read",
    "import none.tar": "none.tar cannot be read: No such file or directory",
    "import conf.txt": "conf.txt is no archive of runs",
}


@pytest.mark.parametrize("line", sampled(BAD, 4))
def test_bad_input_is_one_line(line: str, cache: Cache, capsys: pytest.CaptureFixture[str]) -> None:
    Path("conf.txt").write_text("no archive")
    out, err = said(capsys, *line.split(), code=2)
    assert out == ""
    assert BAD[line] in err
    assert err.count("\n") == 1


def test_a_folder_that_cannot_be_written_can_be_looked_at(
    cache: Cache, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said(capsys, "export", "runs.tar")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    for command in ("ls", "verify", "export again.tar"):
        said(capsys, *command.split())
    for command in ("gc failed=true", "verify repair=true", "import runs.tar"):
        assert "cache folder cache cannot be written: Permission denied" in said(capsys, *command.split(), code=2)[1]
