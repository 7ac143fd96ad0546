"""`prebleexp bench`: every table is declared and printed, and two checkouts are compared row by row. No time is
asserted."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from prebleexp import sources
from prebleexp.__main__ import main
from prebleexp.bench import against, checkouts, gaps, made_up, pages, parts, processes, scaling, terminal
from prebleexp.bench.table import LESS, MORE, Row, Table
from prebleexp.commands import bench
from prebleexp.errors import InvalidInput, PrebleexpError
from prebleexp.experiment import runs
from prebleexp.launch import configure
from prebleexp.sim.ticks import ticks

TABLE = Table(lambda: [], {"seconds": LESS, "speed": MORE})
ABOUT = {"measured", "here", "there", "ratio", "least", "greatest", "better"}


def compared(*pairs: tuple[list[Row], list[Row]], **before: str) -> tuple[list[Row], list[str]]:
    return against.ratios(replace(TABLE, before=before), pairs)


# ---------------------------------------------------------------- rows of two checkouts
def test_ratios_are_of_pairs_and_the_median_is_shown_with_its_ends() -> None:
    pairs = [([{"policy": "lor", "seconds": ours}], [{"policy": "lor", "seconds": 2.0}]) for ours in (1.0, 4.0, 3.0)]
    (row,), left_out = compared(*pairs)
    assert left_out == []
    assert row == {
        **{"policy": "lor", "measured": "seconds", "here": 3.0, "there": 2.0},
        **{"ratio": 1.5, "least": 0.5, "greatest": 2.0, "better": "less"},
    }


def test_a_pair_is_of_one_round() -> None:
    """A machine that is half as fast in the second round changes no ratio."""
    first, second = ([{"seconds": 1.0}], [{"seconds": 2.0}]), ([{"seconds": 2.0}], [{"seconds": 4.0}])
    (row,), _ = compared(first, second)
    assert (row["ratio"], row["least"], row["greatest"]) == (0.5, 0.5, 0.5)


def test_rows_that_one_side_alone_has_are_named() -> None:
    ours, theirs = ([{"policy": name, "seconds": 1.0} for name in names] for names in (("lor", "e2"), ("e2", "llmd")))
    rows, left_out = compared((ours, theirs))
    assert [row["policy"] for row in rows] == ["e2"]
    assert left_out == ["only here: policy=lor", "only there: policy=llmd"]


def test_a_row_must_be_there_in_every_round() -> None:
    row = {"policy": "lor", "seconds": 1.0}
    assert compared(([row], [row]), ([row], [])) == ([], ["only here: policy=lor"])


def test_rows_are_matched_by_the_columns_that_both_have() -> None:
    ours, theirs = {"policy": "lor", "setup": "default", "speed": 6}, {"policy": "lor", "speed": 2, "colour": "red"}
    (row,), left_out = compared(([ours], [theirs]))
    assert (row["setup"], row["ratio"], row["better"], left_out) == ("default", 3.0, "more", [])


def test_what_could_be_either_of_two_rows_is_left_out() -> None:
    ours = [{"policy": "lor", "setup": setup, "seconds": 1.0} for setup in ("new", "old")]
    rows, left_out = compared((ours, [{"policy": "lor", "seconds": 1.0}]))
    assert (rows, left_out) == ([], ["left out, since there is more than one: policy=lor"])


def test_unless_the_table_knows_what_the_older_one_measured() -> None:
    ours = [{"policy": "lor", "setup": setup, "seconds": 1.0} for setup in ("new", "old")]
    rows, left_out = compared((ours, [{"policy": "lor", "seconds": 4.0}]), setup="old")
    assert [(row["setup"], row["ratio"]) for row in rows] == [("old", 0.25)]
    assert left_out == ["only here: policy=lor setup=new"]


def test_what_was_not_measured_is_not_compared() -> None:
    ours, theirs = {"what": "x", "seconds": 1.0, "speed": None}, {"what": "x", "seconds": 1.0}
    assert [row["measured"] for row in compared(([ours], [theirs]))[0]] == ["seconds"]


@pytest.mark.parametrize(("here", "there", "ratio"), [(0, 0, 1.0), (3, 0, None), (0, 3, 0.0), (3, 2, 1.5)])
def test_counts_may_be_nothing(here: int, there: int, ratio: float | None) -> None:
    (row,), _ = compared(([{"seconds": here}], [{"seconds": there}]))
    assert (row["ratio"], row["least"], row["greatest"]) == (ratio, ratio, ratio)
    json.dumps(row, allow_nan=False)


POLICIES = st.lists(st.sampled_from(["lor", "e2", "llmd", "random"]), unique=True)
SECONDS = st.floats(1e-6, 1e6)


@st.composite
def rounds(draw: st.DrawFn) -> list[tuple[list[Row], list[Row]]]:
    ours, theirs = draw(POLICIES), draw(POLICIES)

    def rows(names: Sequence[str]) -> list[Row]:
        return [{"policy": name, "seconds": draw(SECONDS), "speed": draw(SECONDS)} for name in names]

    return [(rows(ours), rows(theirs)) for _ in range(draw(st.sampled_from([1, 3])))]


@given(rounds())
@settings(max_examples=50)
def test_nothing_is_dropped_in_silence(pairs: list[tuple[list[Row], list[Row]]]) -> None:
    rows, left_out = against.ratios(TABLE, pairs)
    names = {row["policy"] for side in pairs[0] for row in side}
    assert {row["policy"] for row in rows} | {one.rpartition("=")[2] for one in left_out} == names
    assert len(rows) == 2 * (len(names) - len(left_out))
    for row in rows:
        assert row.keys() == {"policy"} | ABOUT
        assert row["least"] <= row["ratio"] <= row["greatest"]


@given(rounds())
@settings(max_examples=50)
def test_there_against_here_is_the_other_way_round(pairs: list[tuple[list[Row], list[Row]]]) -> None:
    rows, _ = against.ratios(TABLE, pairs)
    others, _ = against.ratios(TABLE, [(theirs, ours) for ours, theirs in pairs])
    found = {(row["policy"], row["measured"]): row for row in others}
    for row in rows:
        other = found[row["policy"], row["measured"]]
        assert (row["here"], row["there"]) == (other["there"], other["here"])
        assert row["ratio"] * other["ratio"] == pytest.approx(1)
        assert row["least"] * other["greatest"] == pytest.approx(1)


@given(rounds())
@settings(max_examples=20)
def test_against_itself_every_ratio_is_one(pairs: list[tuple[list[Row], list[Row]]]) -> None:
    rows, left_out = against.ratios(TABLE, [(ours, ours) for ours, _ in pairs])
    assert left_out == []
    assert all(row["ratio"] == row["least"] == row["greatest"] == 1 for row in rows)


def test_both_are_measured_by_turns(capsys: pytest.CaptureFixture[str]) -> None:
    turns = []

    def measure(where: str) -> list[Row]:
        turns.append(where)
        return [{"what": "x", "seconds": float(len(turns))}, {"what": where, "seconds": 1.0}]

    rows = against.measured(TABLE, partial(measure, "here"), partial(measure, "there"), 3)
    assert turns == ["here", "there"] * 3
    assert [row["ratio"] for row in rows] == [3 / 4]
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["prebleexp: measuring here, 1 of 3", "prebleexp: measuring there, 1 of 3"]
    assert said[6:8] == ["prebleexp: only here: what=here", "prebleexp: only there: what=there"]
    assert said[8].startswith("prebleexp: ratio is here / there")


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(PrebleexpError, match="no row is in both"):
        against.measured(TABLE, lambda: [{"what": "x"}], lambda: [{"what": "y"}], 1)


def test_compiled_code_can_ask_the_processors_clock() -> None:
    @njit
    def now() -> int:
        return int(ticks())

    assert now() > 0


def test_a_decision_takes_what_a_run_takes_more_without_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made up: a run takes 3, one that is told where requests go 1, and the policy's start 0.5. So all decisions take
    1.5."""
    (cell,) = configure.cells(["policy=lor", "gpus=2", "rps=4", "duration_s=3"])
    workload = runs.draw(cell)
    monkeypatch.setattr(scaling, "run_s", lambda one, _: 1.0 if isinstance(one.policy, scaling.Told) else 3.0)
    monkeypatch.setattr(scaling, "used_s", lambda _: 0.5)
    assert scaling.decision_s(cell, workload) == pytest.approx(1.5 / len(workload))


# ---------------------------------------------------------------- the command
def command_with(name: str, rows: Callable[..., list[Row]]) -> Callable[..., int]:
    """A command of `bench` whose table measures as `rows` does."""
    command = bench.COMMANDS[name]
    assert isinstance(command.run, partial)
    run = partial(command.run.func, name, replace(command.run.args[1], rows=rows))
    return lambda *arguments: run(command.read(f"bench {name}", arguments))


def table_of(name: str) -> Table:
    run: Any = bench.COMMANDS[name].run
    table: Table = run.args[1]
    return table


@pytest.mark.parametrize("name", bench.COMMANDS)
def test_every_table_is_printed_and_has_a_json_form(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of(name)
    found = [{"what": what, **dict.fromkeys(table.better, 1.5)} for what in ("one", "two")]

    def rows(**given: Any) -> list[Row]:
        inspect.signature(table.rows).bind(**given)
        return found

    run = command_with(name, rows)
    assert run() == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert [head.split()[0], *(line.split()[0] for line in lines)] == ["what", "one", "two"]
    assert all(column in head for column in table.better)
    assert run("output=json") == 0
    assert json.loads(capsys.readouterr().out) == found


def test_every_file_with_a_table_is_a_command() -> None:
    files = (sources.PACKAGE / "bench").glob("*.py")
    declaring = {one.stem for one in files if re.search("^TABLE = ", one.read_text(encoding="utf-8"), re.MULTILINE)}
    assert declaring == {name or "throughput" for name in bench.COMMANDS}


def test_what_is_better_is_said_of_columns_that_are_measured() -> None:
    for name in bench.COMMANDS:
        assert table_of(name).better
        assert set(table_of(name).better.values()) <= {LESS, MORE}
        assert not ABOUT - {"ratio"} & set(table_of(name).better)


def test_no_other_command_loads_any_of_it() -> None:
    others = [one for one in sources.PACKAGE.rglob("*.py") if one.parent.name != "bench"]
    using = {one.name for one in others if "prebleexp.bench" in one.read_text(encoding="utf-8")}
    assert using == {"bench.py", "calibrate.py"}


# ---------------------------------------------------------------- another checkout
FAKE = """
import json, os, sys
from pathlib import Path

if "--help" in sys.argv:
    print("python -m prebleexp bench [key=value …]\\n\\npython -m prebleexp bench hardware [key=value …]\\n    ...")
elif "policy=wrong" in sys.argv:
    print("prebleexp: measuring\\nprebleexp: unknown policy 'wrong'", file=sys.stderr)
    sys.exit(2)
elif "policy=broken" in sys.argv:
    sys.exit("it broke")
elif "policy=mute" in sys.argv:
    print("a table")
else:
    with Path(ROOT, "asked").open("a") as file:
        print(*sys.argv[1:], file=file)
    row = {"hardware": "x", "ns": NS} if "hardware" in sys.argv else {"policy": "lor", "cpu_seconds": NS}
    print(json.dumps([row]))
"""


def checkout(folder: Path, ns: float) -> Path:
    """One whose bench measures the same always."""
    (folder / "prebleexp").mkdir(parents=True)
    (folder / "conf").mkdir()
    (folder / "prebleexp" / "__init__.py").touch()
    script = f"ROOT, NS = {str(folder)!r}, {ns}\n{FAKE}"
    (folder / "prebleexp" / "__main__.py").write_text(script, encoding="utf-8")
    return folder


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The other checkout; what is here takes half the time."""
    monkeypatch.setattr(checkouts, "OURS", checkout(tmp_path / "ours", 2.0))
    monkeypatch.chdir(tmp_path)
    return checkout(tmp_path / "theirs", 4.0)


def test_a_table_is_measured_in_processes_of_their_own(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "hardware", f"against={there}", "rounds=2", "output=json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["hardware"], row["here"], row["there"], row["ratio"]) == ("x", 2.0, 4.0, 0.5)
    for side in (there, there.with_name("ours")):
        assert (side / "asked").read_text() == 2 * "bench hardware output=json\n"


def test_both_are_asked_what_the_command_was(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "policy=lor,e2", "against=theirs", "rounds=1"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["setup", "policy", "measured", "here", "there", "ratio", "least", "greatest", "better"]
    assert re.split("  +", line)[:5] == ["as of 2024", "lor", "cpu_seconds", "2.000000", "4.000000"]
    assert (there / "asked").read_text() == "bench policy=lor,e2 output=json\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["against=nowhere"], 2, "against=nowhere is not valid; it must be a checkout of this repository, a folder "),
        (["against=."], 2, "against=. is not valid; it must be a checkout of this repository"),
        (["starting", "against=."], 2, "against=. is not valid; it must be a checkout of this repository"),
        (
            ["scaling", "against=theirs"],
            2,
            "against=theirs is not valid; it must be a checkout that has the table scaling; the tables of that one: "
            "hardware",
        ),
        (["against="], 2, "against= is not valid; it must be a path"),
        (["rounds=2"], 2, "rounds=2 is not valid; it must be left out without against="),
        (["against=theirs", "rounds=0"], 2, "rounds=0 is not valid; it must be an integer from 1 to 1000"),
        (["against=theirs", "policy=wrong"], 2, "ours: unknown policy 'wrong'"),
        (["against=theirs", "policy=broken"], 1, "ours: it broke (exit code 1)"),
        (["against=theirs", "policy=mute"], 1, "ours: prebleexp bench policy=mute output=json printed no JSON"),
    ],
)
def test_what_is_not_valid_is_one_line(
    there: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, said: str
) -> None:
    assert main(["bench", *words]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err.splitlines()[-1]
    if "against=theirs" not in words:
        assert printed.err.count("\n") == 1


def test_whole_commands_are_those_of_either_checkout(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = []

    def rows(root: Path) -> list[Row]:
        measured.append(root.name)
        return [{"what": "x", "cpu_seconds": 1.0 if root == there else 3.0}]

    assert command_with("starting", rows)("against=theirs", "rounds=2", "output=json") == 0
    assert [row["ratio"] for row in json.loads(capsys.readouterr().out)] == [3.0]
    assert measured == ["ours", "theirs"] * 2


def test_what_a_process_took_and_said(tmp_path: Path) -> None:
    script = "import os, sys; print(os.environ['NUMBA_CACHE_DIR'], sys.path[1]); print('so', file=sys.stderr)"
    done = processes.python(["-c", script], tmp_path, tmp_path / "first", numba=tmp_path / "numba")
    assert (done.out, done.err) == (f"{tmp_path}/numba {tmp_path}/first\n", "so\n")
    assert done.cpu_s > 0
    with pytest.raises(InvalidInput, match="it is not"):
        processes.python(["-c", "import sys; print('it is not', file=sys.stderr); sys.exit(2)"], tmp_path, tmp_path)
    with pytest.raises(PrebleexpError, match="nothing"):
        processes.python(["-c", "import os; os._exit(3)"], tmp_path, tmp_path)


def test_a_checkout_that_says_nothing_on_a_terminal_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "prebleexp").mkdir()
    (tmp_path / "prebleexp" / "__init__.py").write_text("")
    main_of_it = tmp_path / "prebleexp" / "__main__.py"
    main_of_it.write_text("import sys; print('words', file=sys.stderr)")
    first, silence = terminal.silences(tmp_path, tmp_path, tmp_path)
    assert first > 0 <= silence
    main_of_it.write_text("")
    with pytest.raises(PrebleexpError, match=r"prebleexp gpus=2 .* failed \(exit code 0\)"):
        terminal.silences(tmp_path, tmp_path, tmp_path)


# ---------------------------------------------------------------- what is measured
def test_made_up_files_are_traces(tmp_path: Path) -> None:
    made_up.trace(tmp_path / "trace.jsonl")
    made_up.chats(tmp_path / "chats.jsonl")
    recorded = ["workload=mooncake", "workload.load=recorded", f"workload.path={tmp_path}/trace.jsonl"]
    assert len(runs.draw(configure.cells(recorded)[0])) == 12_031
    lanes = ["workload=agents", "workload.load=population", "workload.growth=accumulate", "workload.lanes=10"]
    assert len(runs.draw(configure.cells([*lanes, f"workload.path={tmp_path}/chats.jsonl", "duration_s=100"])[0])) > 10


@pytest.mark.slow
def test_every_part_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """But pages, which need libraries that take seconds to import."""
    for name in ("MANY", "FILES", "TIMES", "OFTEN"):
        monkeypatch.setattr(parts, name, 1)
    quick = {name: part for name, part in parts.PARTS.items() if part.__module__ == parts.__name__}
    assert len(parts.PARTS) - len(quick) == 2
    monkeypatch.setattr(parts, "PARTS", quick)
    found = parts.parts()
    assert [row["part"] for row in found] == list(quick)
    assert all(row["microseconds"] > 0 for row in found)


@pytest.mark.slow
def test_a_page_is_drawn_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages, "rows", partial(pages.rows, (2, 4), 1))
    pages.again_s(tmp_path)
    drawn = sorted(tmp_path.iterdir())
    assert len(drawn) == 4
    pages.again_s(tmp_path)
    assert sorted(tmp_path.iterdir()) == drawn


@pytest.mark.slow
def test_the_cost_of_counting_gaps_has_an_interval() -> None:
    cost, half = gaps.cost_percent([1.01, 2.06, 3.06], [1.0, 2.0, 3.0])
    assert cost == pytest.approx(2)
    assert half == pytest.approx(4.303 / 3**0.5, rel=1e-3)


@pytest.mark.thorough
def test_the_copy_that_counts_no_gaps_serves_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    code = (
        "from prebleexp.experiment import runs; from prebleexp.launch import configure; "
        "made = runs.run(configure.cells(['gpus=1', 'rps=1', 'duration_s=3'])[0]).outcome; "
        "print(made.gaps_counts.sum(), made.finish_s.tolist())"
    )
    root = gaps.uncounted(tmp_path)
    here, there = (processes.python(["-c", code], tmp_path, one).out.split(" ", 1) for one in (gaps.OURS, root))
    assert int(here[0]) > 0
    assert int(there[0]) == 0
    assert here[1] == there[1]
