"""What hindered a new user in the first hour, again: on the command line."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import prebleexp
from prebleexp.__main__ import main
from prebleexp.errors import PrebleexpError, unknown
from tests.support.places import ROOT

TINY = ("gpus=1", "rps=1", "duration_s=2")
OWN_POLICY = """
from dataclasses import dataclass
from prebleexp.policies.base import Policy

@dataclass(frozen=True)
class Mine(Policy):
    reads_lengths = False

    def route(self, mine, view, request, now):
        return view.candidates[0]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def logs() -> Iterator[None]:
    """As they were, after Hydra's --info has configured logging."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


def command(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


# ---------------------------------------------------------------- Hydra's own flags
def extra(folder: Path) -> str:
    """A folder of configurations that is not ./conf."""
    made = folder / "extra"
    (made / "policy").mkdir(parents=True)
    (made / "mine.yaml").write_text("defaults: [config, _self_]\ngpus: 3\nrps: 1\nduration_s: 2\n")
    (made / "policy" / "also.yaml").write_text("_target_: prebleexp.policies.lor.LeastOutstanding\n")
    return str(made)


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-cd", "--config-dir"])
def test_a_folder_of_configurations_may_be_given(here: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag, extra(here), *TINY, "policy=also"]) == 0
    assert capsys.readouterr().out.startswith("also on 1 GPU ")
    assert main([flag, str(here / "extra"), "-m", "policy=also,e2", *TINY, "report=none", "output=json"]) == 0
    assert [row["policy"] for row in json.loads(capsys.readouterr().out)] == ["also", "e2"]
    assert main([flag, "nowhere", *TINY]) == 2
    assert capsys.readouterr().err == "prebleexp: --config-dir=nowhere is not a folder\n"


@pytest.mark.slow
@pytest.mark.parametrize("flag", ["-cn", "--config-name"])
def test_another_configuration_may_be_the_first(here: Path, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-cd", extra(here), flag, "mine"]) == 0
    assert capsys.readouterr().out.startswith("lor on 3 GPUs at 1 requests/s for 2 s")
    assert main(["-cd", str(here / "extra"), flag, "mine", "-m", "seed=1,2", "report=none", "output=json"]) == 0
    assert [(row["gpus"], row["seed"]) for row in json.loads(capsys.readouterr().out)] == [(3, 1), (3, 2)]
    assert main([flag, "nothing"]) == 2
    assert "Cannot find primary config 'nothing'" in capsys.readouterr().err


@pytest.mark.usefixtures("logs")
def test_hydra_says_how_a_configuration_is_composed(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--info", "defaults", "policy=e2"]) == 0
    assert "policy/e2 " in capfd.readouterr().out
    assert main(["--info", "searchpath"]) == 0
    assert "prebleexp" in capfd.readouterr().out
    assert main(["--info", "everything"]) == 2
    assert "defaults-tree" in capfd.readouterr().err


def test_a_shell_completes_names(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["prebleexp"])
    assert main(["-sc", "install=bash"]) == 0
    assert "prebleexp" in capsys.readouterr().out.splitlines()[-1]
    monkeypatch.setenv("COMP_LINE", "prebleexp policy=e2")
    assert main(["-sc", "query=bash"]) == 0
    assert capsys.readouterr().out.split() == ["policy=e2", "policy=e2_released"]
    assert main(["-sc", "install=nosh"]) == 2
    assert "bash fish zsh" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("said", "meant"),
    [("LOR", "lor"), ("Roundrobin", "round_robin"), ("h100", "h100_tp2"), ("ROUNDROBN", "round_robin")],
)
def test_who_says_it_otherwise_is_told_the_name(said: str, meant: str) -> None:
    assert str(unknown("name", said, ["round_robin", "lor", "h100_tp2"])).endswith(f"Did you mean {meant!r}?")


# ---------------------------------------------------------------- tables
def on_a_terminal(folder: Path, *arguments: str) -> str:
    """What a command prints on a terminal, standard output and error."""
    lead, follow = pty.openpty()
    variables = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "100"}
    words = [sys.executable, "-m", "prebleexp", *arguments]
    with subprocess.Popen(words, cwd=folder, env=variables, stdout=follow, stderr=follow) as process:
        os.close(follow)
        said = b""
        while True:
            try:
                more = os.read(lead, 65536)
            except OSError:  # of a terminal that nobody writes to any more
                break
            said += more
        assert process.wait() == 0, said
    os.close(lead)
    return said.decode()


@pytest.mark.slow
def test_a_long_table_ends_with_how_many_more_and_where(here: Path) -> None:
    many = ("-m", f"seed={','.join(map(str, range(30)))}", *TINY)
    said = on_a_terminal(here, *many, "report=none")
    assert "… 10 more: output=csv prints all" in said
    assert "seed" in said.split("norm_latency_mean_s")[0], "rows that differ in the seed alone show it"
    piped = command(sys.executable, "-m", "prebleexp", *many, "report=none", cwd=here)
    assert len(piped.stdout.splitlines()) == 31, "who reads it by a program gets all"


def test_values_given_twice_are_one_row(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-m", "rps=1,1,1", "gpus=1", "duration_s=2", "report=none"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.slow
def test_the_page_of_a_sweep_can_be_clicked_and_long_work_is_said(here: Path) -> None:
    said = on_a_terminal(here, "-m", "seed=1,2", *TINY, "sweep.name=two")
    assert (here / "reports" / "two" / "index.html").as_uri() in said
    assert "drawing the report two" in said


@pytest.mark.slow
def test_sweeps_and_comparisons_end_with_their_answer_in_words(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = ("gpus=2", "rps=4,8", "policy=lor,random", "duration_s=4", "replications=3", "sweep.name=two")
    assert main(["-m", *sweep]) == 0
    answer, page = capsys.readouterr().err.splitlines()[-2:]
    assert page == "reports/two/index.html"
    about, _, sentence = answer.partition(": ")
    assert about == "average normalised latency, gpt-oss-120b in bf16 with experts in fp4 on 2 H200, vllm, react"
    assert "random" in sentence
    assert "lor" in sentence
    assert sentence in Path(page).read_text(encoding="utf-8")
    assert main(["-m", *sweep, "engine=vllm,preble", "report.metrics=[ttft_p99_s]"]) == 0
    answer = capsys.readouterr().err.splitlines()[-2]
    assert answer.startswith("p99 time to first token, gpt-oss-120b in bf16 with experts in fp4 on 2 H200, react: ")
    assert main(["compare", "lor", "random", "sweep=two"]) == 0
    said = capsys.readouterr().err
    assert "B (random) " in said
    assert "A (lor)" in said


@pytest.mark.slow
def test_a_page_that_says_all_there_is_to_say_is_left_alone(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = ["-m", "policy=lor,random", *TINY]
    page = here / "reports" / "sweep" / "index.html"

    def made() -> int:
        assert main(sweep) == 0
        return page.stat().st_mtime_ns

    first = made()
    said = capsys.readouterr().err.splitlines()[-2:]
    assert made() == first
    assert capsys.readouterr().err.splitlines()[-2:] == said, "the sentence and the page"
    page.unlink()
    assert (second := made()) != first
    sweep.append("replications=2")
    assert (third := made()) != second
    with monkeypatch.context() as broken:
        broken.setattr("prebleexp.report.page.render", interrupted)
        assert main([*sweep, "retry=all"]) == 130
    assert made() != third, "what was not finished is made again"


def interrupted(report: object) -> str:
    raise KeyboardInterrupt


# ---------------------------------------------------------------- policies of one's own
@pytest.mark.slow
def test_the_installed_command_finds_what_python_m_finds(here: Path) -> None:
    (here / "conf" / "policy").mkdir(parents=True)
    (here / "conf" / "policy" / "mine.yaml").write_text("_target_: mine_here.Mine\n")
    (here / "mine_here.py").write_text(OWN_POLICY)
    script = here / "bin" / "prebleexp"
    script.parent.mkdir()
    script.write_text("from prebleexp.__main__ import script\nscript()\n")
    for words in ([sys.executable, "-m", "prebleexp"], [sys.executable, str(script)]):
        done = command(*words, "policy=mine", *TINY, "output=json", cwd=here)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)[0]["policy"] == "mine"


@pytest.mark.slow
def test_an_error_in_a_policy_says_file_and_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "conf" / "policy").mkdir(parents=True)
    (here / "conf" / "policy" / "wrong.yaml").write_text("_target_: wrong_here.Mine\n")
    (here / "wrong_here.py").write_text(OWN_POLICY.replace("view.candidates[0]", "view.candidates[99]"))
    done = command(sys.executable, "-m", "prebleexp", "policy=wrong", *TINY, cwd=here)
    assert done.returncode == 1
    assert "wrong_here.py" in done.stderr
    assert "line 10" in done.stderr
    assert "99" in done.stderr


@pytest.mark.parametrize(
    ("wrong", "compiled", "valid"),
    [
        (
            "view.candidate[0]",
            True,
            "candidates, costs, gpus, prompts, reports, requests, sent, touched, work. Did you mean 'candidates'",
        ),
        ("int(view.sent[0].outstandin)", True, "outstanding, requests, tokens. Did you mean 'outstanding'"),
        ("int(view.sent.tokns[0])", True, "outstanding, requests, tokens. Did you mean 'tokens'"),
        (
            "view.candidate[0]",
            False,
            "candidates, costs, gpus, prompts, reports, requests, sent, touched, work. Did you mean 'candidates'",
        ),
        ("int(view.gpus[0].load)", False, "ahead, evictable, generated, kv_free, kv_tokens, queued, running"),
    ],
)
def test_a_policy_that_reads_a_wrong_field_is_told_the_valid_ones(
    here: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, compiled: bool, valid: str
) -> None:
    text = OWN_POLICY.replace("view.candidates[0]", wrong).replace("reads_lengths", f"compiled = {compiled}; reads")
    name = f"wrong_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    (here / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(here)
    policy = importlib.import_module(name).Mine()
    with pytest.raises(PrebleexpError) as raised:
        prebleexp.run(gpus=1, rps=1, duration_s=2, policy=policy, cache_dir=None)
    said = str(raised.value)
    assert f"{name}.py, line 10: unknown field '" in said
    assert valid in said
    assert len(said.splitlines()) == 1


@pytest.mark.slow
def test_leaving_says_nothing(here: Path) -> None:
    """A process ends without freeing all it imported; what libraries say about that is not for users."""
    done = command(sys.executable, "-m", "prebleexp", "-m", "seed=1,2", *TINY, "report=none", cwd=here)
    assert done.returncode == 0
    assert "leak" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("2 runs: 2 computed")
