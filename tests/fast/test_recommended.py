"""What a recommendation says: its table, points and routers by name, why a kind of GPU is not in it; and which designs
need no run, as another serves in the very same way."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from prebleexp.experiment import runs
from prebleexp.experiment.cell import Cell
from prebleexp.launch import configure, places
from prebleexp.planning.answer import Alone
from prebleexp.recommending import asked, halving, not_run, page, recommender, space, table, words
from prebleexp.recommending.candidates import Candidate, Point, other_kinds
from prebleexp.recommending.deployment import files, model_names
from prebleexp.recommending.designs import Design
from prebleexp.recommending.halving import Found, Priced
from prebleexp.report import pareto

LOAD = ["rps=20", "slo.ttft_s=1", "slo.tpot_s=50ms", "slo.target=0.9", "hardware/model=llama_3_1_8b"]
SEQS = ["engine.max_num_batched_tokens=null", "engine.max_num_seqs=null,128"]


def made_of(lines: list[str], prices: dict[str, float]) -> recommender.Recommender:
    values = {"price_per_gpu_hour": prices, "most_gpus": 8, "whole": True, "tol": 0.2, "seeds": 3, "most_seeds": 3}
    of = asked.asked(lines, {**values, "requests": 600})
    return recommender.Recommender(recommender.settings_of(lines), space.space(lines, of), of)


# ---------------------------------------------------------------- who needs no run
def test_a_limit_that_did_not_bind_makes_no_other_design() -> None:
    """A limit of requests at a time tells nothing apart where no step came near to it, and everything where one did."""
    made = made_of([*LOAD, *SEQS, "policy=lor,e2", "hardware.tensor_parallel=1"], {"h100": 2.5})
    free, tight = (
        next(one for one in made.space.designs if one.at["policy"] == "lor" and one.at["max_num_seqs"] == limit)
        for limit in (None, "128")
    )
    assert not made._is_needless(tight), "nothing is known"
    for peak, needless in ((100, True), (115, True), (116, False), (128, False), (300, False)):
        made._peaks = {free.but_limit: {free.limit: peak}}
        assert made._is_needless(tight) == needless
        assert not made._is_needless(free), "which was tried itself"
        assert not made._is_needless(next(one for one in made.space.designs if one.at["policy"] == "e2"))
    larger = replace(tight, at={**tight.at, "max_num_seqs": "1024"})
    made._peaks = {free.but_limit: {free.limit: 256}}
    assert not made._is_needless(larger), "as the engine's own limit may have been 256"


@pytest.mark.thorough
@pytest.mark.parametrize("rps", [20, 60, 90, 120])
def test_a_limit_changes_nothing_where_no_step_had_more_requests(rps: int) -> None:
    """By the runs themselves: the same metrics as long as the largest step was far below both limits."""
    (cell,) = configure.cells([*LOAD, "policy=lor", "gpus=2", "hardware/gpu=h100", f"rps={rps}", "duration_s=20"])
    free = runs.run(cell).metrics
    for limit in (math.ceil(free["peak_running"] / recommender.NEAR), 2 * int(free["peak_running"])):
        tight = runs.run(replace(cell, engine=replace(cell.engine, max_num_seqs=limit))).metrics
        assert {k: v for k, v in tight.items() if v == v} == {k: v for k, v in free.items() if v == v}


def test_whoever_is_needless_takes_no_run_and_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(halving, "AT_ONCE", 1)
    tried: list[str] = []
    done: list[int] = []

    def find(of: object) -> dict[str, Found]:
        tried.extend(of)  # type: ignore[call-overload]
        return {name: Found(2, 2.0, 0.95) for name in of}  # type: ignore[attr-defined]

    designs = {name: Priced(1.0, 1, 8, 1) for name in ("free", "tight", "other")}
    judged = halving.round_of(
        designs, lambda name: None, find, on_done=done.append, needless=lambda name: name == "tight" and "free" in tried
    )
    assert tried == ["free", "other"] == [one.name for one in judged]
    assert done[-1] == 3


# ---------------------------------------------------------------- what is said
def test_a_kind_of_gpu_without_any_design_gives_its_own_reason() -> None:
    lines = [*LOAD[:-1], "hardware/model=llama_3_1_70b", "hardware.precision=fp8", "policy=lor", *SEQS[:1]]
    made = made_of([*lines, "hardware.tensor_parallel=2,4"], {"a100": 1.6, "h100": 2.5})
    made.candidates = []
    said = words.other_kinds(SimpleNamespace(space=made.space, candidates=[SimpleNamespace(design=_of("h100"))]))
    assert [one for one in said if "A100" in one] == [
        "No A100 was tried: hardware.precision=fp8 is not valid; it must be one of bf16, int4 on a100."
    ]


def _of(kind: str) -> SimpleNamespace:
    return SimpleNamespace(at={"gpu": kind, "policy": "lor"})


@pytest.fixture(autouse=True)
def _all_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "shown", lambda made: made.candidates)


def test_a_precision_that_was_named_is_not_offered() -> None:
    made = made_of(
        [*LOAD[:-1], "hardware/model=llama_3_1_70b", "hardware.precision=bf16,fp8", "policy=lor", *SEQS[:1]],
        {"h100": 2.5},
    )
    (fits_not,) = [one for one in words.left_out(made) if "the weights do not fit" in one]
    assert "; on some of them hardware.precision=int4 fits, which is tried if you name it" in fits_not
    assert "hardware.precision=fp8 or int4 fits" in not_run.lines(made.space.left_out)[0], "as nobody says what was"


def _candidates() -> list[Candidate]:
    found = []
    for i, (policy, kind) in enumerate((("lor", "h100"), ("production_stack_prefixaware", "h200"))):
        cell = configure.cells([*LOAD, f"policy={policy}", "gpus=2", f"hardware/gpu={kind}"])[0]
        design = Design({"gpu": kind, "tensor_parallel": 1, "roles": "whole", "policy": policy}, cell, 2.5 + i, 8)
        seen = dict.fromkeys(("kept", "ttft_p95_s", "tpot_p95_s"), (0.9, None))
        answer = SimpleNamespace(alone=None, low=2, high=2, target=0.9, curve=(), verdict=None, bracket=None)
        found.append(Candidate(design, answer, Point(design, 2, seen, True)))  # type: ignore[arg-type]
    return found


def test_the_table_has_routers_and_a_terminal_of_80_columns_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from prebleexp.launch.narrow import narrowed

    of = _candidates()
    at = table.heads(of).index("router")
    assert [line[at] for line in table.lines(of, of)] == ["lor", "production_stack_prefixaware"]
    monkeypatch.setenv("COLUMNS", "80")
    heads, rows, gone = narrowed(table.heads(of), table.lines(of, of), table.SPARE)
    assert {"GPUs", "router", "price/h", "all limits"} <= set(heads)
    wide = [max(len(line[i]) for line in (heads, *rows)) for i in range(len(heads))]
    assert sum(wide) + 2 * (len(wide) - 1) <= 80
    assert gone, "which is said"


def test_a_router_is_said_in_words_once() -> None:
    of = _candidates()
    assert words.routers([of[0], of[0]]) == [
        "lor is this router: Least outstanding requests: the GPU with the fewest requests that were sent to it and are "
        "not finished."
    ]
    for name in space.ROUTERS:
        assert len(places.words("policy", name)) > 20, name
    assert places.words("policy", "of_nobody") == ""


def test_points_have_the_numbers_of_the_table_and_the_colours_of_their_kinds() -> None:
    of = _candidates()
    made = SimpleNamespace(candidates=of, points=[one.point for one in of])
    labels = {(one.design.name, one.replicas): str(i) for i, one in enumerate(of, 1)}
    points = [page._priced(one, "kept", labels) for one in made.points]
    assert [(one.kind, one.label) for one in points] == [("H100", "1"), ("H200", "2")]
    figure = pareto.figure("fronts", "Title", "Sentence.", [pareto.Front("Kept", points, points[:1])])
    assert [(one.name, one.line) for one in figure.legend] == [("H100", False), ("H200", False)]
    drawn = str(figure.panels[0].svg)
    assert len(set(re.findall(r"var\(--(blue|green)", drawn))) == 2, "a colour for each kind"
    assert "Numbers are those of the table" in figure.caption
    assert "Bars are" not in figure.caption, "there are none"


def test_others_that_are_as_cheap_have_their_numbers() -> None:
    """ "1 more" read as a GPU."""
    assert words._equal(1) == "1 other candidate (2* in the table)"
    assert words._equal(3) == "3 other candidates (2* to 4* in the table)"


def test_brackets_are_said_to_leave_step_times_out() -> None:
    """Those of an A100 rest on times of kernels, and of an H100 on runs of this model's like."""
    of = _candidates()
    said = words.marks(SimpleNamespace(candidates=of, strain=None))  # type: ignore[arg-type]
    off = f"{of[0].cell.hardware.off:.0%}".replace("%", " %")
    assert said[-1] == (
        f"Brackets, (sure) too, are of the request streams alone. Steps of the first may be off by {off}, and plan "
        "says how many GPUs it takes then"
    )


def test_few_misses_are_not_sure() -> None:
    """ "2.50 (sure)" was of a recording whose misses fell into one of 20 batches."""
    of = _candidates()[0]
    alone = Alone(0.99, (0.97, 1.0), 5, 0.0)
    for missed, said in ((5, "5.00 (sure)"), (4, "5.00 (few misses)"), (0, "5.00 (few misses)")):
        mine = SimpleNamespace(**{**vars(of.answer), "alone": alone._replace(missed=missed)})
        assert table._price(replace(of, answer=mine)) == said  # type: ignore[arg-type]
    mine = SimpleNamespace(**{**vars(of.answer), "alone": alone._replace(ends=None)})
    assert table._price(replace(of, answer=mine)) == "5.00 (no interval)"  # type: ignore[arg-type]


def test_the_best_of_other_kinds_are_asked_what_survives_a_loss() -> None:
    first, h200 = _candidates()
    dearer = replace(h200, point=replace(h200.point, replicas=3))
    split = replace(h200, design=replace(h200.design, split=SimpleNamespace()))  # type: ignore[arg-type]
    assert other_kinds([first, first, split, h200, dearer]) == [h200]
    assert other_kinds([first, first]) == []


def test_the_cheapest_of_another_kind_has_its_evidence_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    of = _candidates()
    monkeypatch.setattr(words, "shown", lambda made: of[:1])
    made = SimpleNamespace(space=SimpleNamespace(designs=[one.design for one in of], left_out=()), candidates=of)
    (said,) = words.other_kinds(made)  # type: ignore[arg-type]
    assert said == (
        "The cheapest of H200: 2 H200 with production_stack_prefixaware at 7.00 an hour (7.00 or more) (step times: "
        "not measured itself, other models were)."
    )


def test_one_recorded_stream_is_said_to_be_one() -> None:
    """As a plan says it: the answer for a recording had no word on other days."""
    made = made_of([*LOAD, *SEQS[:1], "policy=lor", "hardware.tensor_parallel=1"], {"h100": 2.5})
    made.candidates = _candidates()
    said = "This is one recorded stream: how other days would be is not known."
    for is_recorded in (True, False):
        of = SimpleNamespace(contender=SimpleNamespace(is_recorded=is_recorded), answer=SimpleNamespace(alone=None))
        made.strain = SimpleNamespace(of=of)  # type: ignore[assignment]
        assert (said in words.caveats(made)) == is_recorded


def test_the_loss_of_the_only_replica_names_the_router_of_two() -> None:
    """One replica has no router, so none was named, and 80.8 % were those of one of four that did the same before."""
    of = _candidates()
    design = of[0].design
    one = replace(of[0], point=replace(of[0].point, replicas=1))
    strain = SimpleNamespace(spare=SimpleNamespace(requests=354), others=())
    space_of = SimpleNamespace(designs=[design, of[1].design])
    made = SimpleNamespace(candidates=[one], strain=strain, space=space_of)
    assert words._routed(made) == [  # type: ignore[arg-type]
        "One replica needs no router, two do: the loss is told with lor, and another may keep more or less, which plan "
        "tells of those that policy= names."
    ]
    made.space = SimpleNamespace(designs=[design])
    assert words._routed(made) == ["One replica needs no router, two do: the loss is told with lor."]  # type: ignore[arg-type]
    made.space = space_of
    strain.others = ((SimpleNamespace(name=of[1].design.at["policy"]), None),)
    assert words._routed(made) == ["One replica needs no router, two do: the loss is told with lor."], (
        "what the other takes is said"
    )  # type: ignore[arg-type]
    made.candidates = of
    assert words._routed(made) == [], "the answer names it"  # type: ignore[arg-type]


def test_a_folder_is_called_by_a_router_only_where_there_is_one() -> None:
    (first, *_) = _candidates()
    assert files.slug(first) == "2-h100-tp1-lor"
    assert files.slug(replace(first, point=replace(first.point, replicas=1))) == "1-h100-tp1"


def _of_log(path: Path, *models: str | None) -> Cell:
    rows = [{"timestamp": i, "input_length": 90, "output_length": 4, "model": one} for i, one in enumerate(models)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (cell,) = configure.cells([*LOAD[1:], "workload=request_log", f"workload.path={path}", "gpus=1", "policy=lor"])
    return cell


def _served_as(cell: Cell) -> list[str]:
    """In the script and in the manifest."""
    written = files.of(cell, "about")
    (pod,) = [one for one in yaml.safe_load_all(written["kubernetes.yaml"]) if one["kind"] == "StatefulSet"]
    command = pod["spec"]["template"]["spec"]["containers"][0]["command"]
    script = written["serve.sh"].replace("\\\n", " ").split()
    return [words[words.index("--served-model-name") + 1] for words in (command, script)]


def test_scripts_start_what_the_manifest_does() -> None:
    """A server of its own is not told that it is one of a pair."""
    pair = "cluster.groups=[{replicas: 1, role: prefill}, {replicas: 1, role: decode}]"
    for line, roles in (("gpus=2", [""]), (pair, ["prefill", "decode"])):
        written = files.of(configure.cells([*LOAD[1:], "hardware/gpu=h100", "policy=lor", line])[0], "about")
        pods = [one for one in yaml.safe_load_all(written["kubernetes.yaml"]) if one["kind"] == "StatefulSet"]
        assert len(pods) == len(roles)
        for role in roles:
            (pod,) = [one for one in pods if one["metadata"]["name"].endswith(role)]
            command = pod["spec"]["template"]["spec"]["containers"][0]["command"]
            script = written[f"serve-{role}.sh" if role else "serve.sh"]
            assert shlex.split(script.replace("\\\n", " "), comments=True) == ["exec", *command]
            assert ("--kv-transfer-config" in command) is (role != "")


def test_clients_are_told_the_name_of_the_model() -> None:
    (first, *_) = _candidates()
    said = (
        "lients must ask for the model as llama-3.1-8b, which is --served-model-name: to another name vLLM answers 404"
    )
    assert model_names.sentence([first.cell]) == f"C{said}"
    written = files.of(first.cell, "about")
    assert "Clients must ask for the model as `llama-3.1-8b`, which is `--served-model-name`" in written["README.md"]
    assert _served_as(first.cell) == ["llama-3.1-8b", "llama-3.1-8b"]


def test_servers_have_the_name_that_the_log_asks_for(tmp_path: Path) -> None:
    """All requests of the log would have got 404: they ask for another name than the simulator has for the model."""
    asked = "meta-llama/Llama-3.1-8B-Instruct"
    cell = _of_log(tmp_path / "log.jsonl", asked, None, asked)
    assert _served_as(cell) == [asked, asked]
    assert model_names.sentence([cell]) == (
        f"The log's requests ask for {asked}, so that is --served-model-name: clients go on asking for it"
    )
    assert f"The log's requests ask for `{asked}`" in files.of(cell, "about")["README.md"]


def test_another_model_under_the_name_of_the_log_is_said(tmp_path: Path) -> None:
    """70B was served as llama-3.1-8b, and "clients go on asking for it"."""
    cell = _of_log(tmp_path / "log.jsonl", "llama-3.1-70b")
    assert _served_as(cell) == ["llama-3.1-70b"] * 2
    said = "The log's requests ask for {0}llama-3.1-70b{0}, and these servers have llama-3.1-8b: by {0}--served-model"
    assert model_names.sentence([cell]).startswith(said.format(""))
    assert said.format("`") in files.of(cell, "about")["README.md"]
    for name in ("Meta Llama 3.1 8B", "bedrock/us.meta.llama3-1-8b-instruct-v1:0", "llama"):
        assert model_names.is_called("llama-3.1-8b", name)
    for name in ("llama-3-8b", "llama-3.1-70b", "chat"):
        assert not model_names.is_called("llama-3.1-8b", name)
    assert not model_names.is_called("gpt-oss-20b", "gpt-oss-120b")


def test_of_a_log_of_several_models_clients_are_told_what_to_ask_for(tmp_path: Path) -> None:
    cell = _of_log(tmp_path / "log.jsonl", "a", "b", "b", "c", "d")
    assert _served_as(cell) == ["llama-3.1-8b", "llama-3.1-8b"]
    said = model_names.sentence([cell])
    assert said.startswith("The log's requests ask for 4 models (b, a, c and 1 more), and these servers have one.")
    assert said.endswith(
        "ask for the model as llama-3.1-8b, which is --served-model-name: to another name vLLM answers 404"
    )


@pytest.mark.parametrize("name", ["--host=elsewhere", "a b", "$(reboot)", "a\nb", "x" * 300])
def test_a_name_that_is_none_is_not_written_into_a_command(name: str, tmp_path: Path) -> None:
    assert _served_as(_of_log(tmp_path / "log.jsonl", name, name)) == ["llama-3.1-8b", "llama-3.1-8b"]
