"""Each format of traces in its own form: from the shared data where they are there, else from rows as documented."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prebleexp.described import dispersion, gamma_shape, quantiles
from prebleexp.errors import InvalidInput
from prebleexp.launch import configure
from prebleexp.sim.types import COLUMNS, Workload
from prebleexp.testing import check_workload
from prebleexp.workloads.azure import Azure
from prebleexp.workloads.bailian import Bailian
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.burstgpt import BurstGPT
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.request_log import RequestLog
from prebleexp.workloads.servegen import SHARES, ServeGen
from tests.support.places import ROOT

DATA = ROOT.parent / "shared" / "data"
OUTPUT = OutputLength((1,), (1.0,))


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (DATA / name).exists(), reason=f"{name} is not there")


def drawn(source: Replayed, seed: int = 0) -> Workload:
    return source.draw(rps=1, duration_s=1, seed=seed, output_length=OUTPUT)


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def lines(path: Path, rows: Sequence[object]) -> str:
    return written(path, "".join(json.dumps(row) + "\n" for row in rows))


def prompts(workload: Workload) -> list[list[tuple[int, int]]]:
    """(segment, tokens) of each."""
    pairs = list(zip(workload.segment_ids.tolist(), workload.segment_tokens.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(workload.segment_offsets, workload.segment_offsets[1:], strict=False)]


# ---------------------------------------------------------------- packed, and as JSON, CSV or Parquet
ROWS = [{"timestamp": 1000 * i, "input_length": 600, "output_length": 5, "hash_ids": [0, i]} for i in range(1, 6)]


def as_json(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    cells = [[f'"{value}"' if isinstance(value, list) else str(value) for value in row.values()] for row in rows]
    return "\r\n".join(map(",".join, [list(rows[0]), *cells])).encode()


def as_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows)), sink)
    return bytes(sink.getvalue())


def zst(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, zst], ids=["plain", "gz", "zst"])
@pytest.mark.parametrize("form", [as_json, as_csv, as_parquet])
def test_a_trace_is_the_same_in_every_form_and_packing(form: Any, pack: Any, tmp_path: Path) -> None:
    path, plain = tmp_path / "trace", tmp_path / "plain"
    path.write_bytes(pack(form(ROWS)))
    plain.write_bytes(as_json(ROWS))
    one, other = (drawn(Mooncake(str(at), load="recorded")) for at in (path, plain))
    for name in COLUMNS:
        assert getattr(one, name).tolist() == getattr(other, name).tolist()


SOURCES = {
    "mooncake": (Mooncake, as_json(ROWS)),
    "azure": (
        Azure,
        b"TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00+00:00,5,6\n2024-05-10 00:00:09+00:00,5,6\n",
    ),
    "burstgpt": (
        BurstGPT,
        b"Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        b"5,ChatGPT,4,3,7,API log\n9,GPT-4,4,3,7,API log\n",
    ),
    "bailian": (
        Bailian,
        as_json(
            [
                {
                    "chat_id": i,
                    "parent_chat_id": -1,
                    "timestamp": i,
                    "input_length": 5,
                    "output_length": 6,
                    "hash_ids": [i],
                }
                for i in range(9)
            ]
        ),
    ),
    "request_log": (
        RequestLog,
        as_json([{"created": i, "prompt_tokens": 5, "completion_tokens": 6} for i in range(9)]),
    ),
    "bench_log": (BenchLog, as_json([{"input_lens": [5] * 9, "output_lens": [3] * 9, "request_rate": 1.5}])),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_has_a_configuration_of_its_fields_and_keeps_the_contract(name: str, tmp_path: Path) -> None:
    kind, data = SOURCES[name]
    path = tmp_path / "trace"
    path.write_bytes(data)
    (cell,) = configure.cells([f"workload={name}", f"workload.path={path}"])
    assert cell.workload == kind(str(path), load="recorded")
    assert "rps" not in cell.identity()
    (cell,) = configure.cells([f"workload={name}", f"workload.path={path}", "rps=2"])
    assert cell.workload == kind(str(path), load="scaled")
    assert {"rps", "seed"} <= cell.identity().keys()
    (cell,) = configure.cells([f"workload={name}", f"workload.path={path}", "rps=2", "duration_s=3"])
    assert cell.workload == kind(str(path))
    assert {"rps", "duration_s", "seed"} <= cell.identity().keys()
    check_workload(kind(str(path), load="recorded"), OUTPUT)
    assert (
        drawn(kind(str(path), load="recorded", limit=1)).arrival_s.tolist()
        == drawn(kind(str(path), load="recorded")).arrival_s[:1].tolist()
    )


# ---------------------------------------------------------------- Azure
@needs("AzureLLMInferenceTrace_conv.csv.gz")
def test_azure_2023() -> None:
    workload = drawn(Azure(str(DATA / "AzureLLMInferenceTrace_conv.csv.gz"), load="recorded"))
    assert len(workload) == 19_366
    assert workload.arrival_s[:2].tolist() == [0.0, pytest.approx(4.314579, abs=1e-9)]
    assert (workload.prompt_tokens[-1], workload.output_tokens[-1]) == (197, 183)
    assert [round(dispersion(workload.arrival_s, window), 1) for window in (1, 10)] == [1.4, 3.9]
    assert dispersion(workload.arrival_s, 60) == pytest.approx(16, abs=0.5)
    gaps = np.diff(workload.arrival_s)
    assert gamma_shape(gaps) == pytest.approx(0.86, abs=0.005)
    assert (gaps.std() / gaps.mean(), len(workload) / workload.arrival_s[-1]) == pytest.approx((1.09, 5.53), abs=0.005)
    assert quantiles(workload.prompt_tokens).at == pytest.approx((181, 1020, 2734, 4142), abs=0.51)
    assert quantiles(workload.output_tokens).at == pytest.approx((41, 129, 424, 601), abs=0.51)
    assert (workload.prompt_tokens.mean(), workload.output_tokens.mean()) == pytest.approx((1155, 211), abs=0.5)


def test_azure_2024_has_a_time_zone_and_seconds_without_a_fraction(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n"
        "2024-05-10 00:00:01+00:00,2399,0\n2024-05-10 02:00:01.5+02:00,76,15\n",
    )
    workload = drawn(Azure(path, load="recorded"))
    assert workload.arrival_s.tolist() == pytest.approx([0, 0.99007, 1.49007], abs=1e-9)
    assert workload.prompt_tokens.tolist() == [2162, 2399, 76]
    assert workload.output_tokens.tolist() == [5, 1, 15]


def test_azure_2025_has_images_too(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens,NumImages\n2025-01-01 00:00:00,10,20,1\n"
    assert len(drawn(Azure(written(tmp_path / "t.csv", text), load="recorded"))) == 1


@pytest.mark.slow
def test_a_week_of_azure_is_read_a_million_rows_a_few_seconds(tmp_path: Path) -> None:
    times = np.datetime64("2024-05-10", "us") + np.arange(1_000_000) * 22_000
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "\n".join(
        f"{t.replace('T', ' ')}+00:00,1000,100" for t in times.astype(str)
    )
    assert len(Azure(written(tmp_path / "t.csv", text)).trace()) == 1_000_000


# ---------------------------------------------------------------- BurstGPT
def test_burstgpt_with_six_columns(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n"
        "45,ChatGPT,1087,230,1317,Conversation log\n118,GPT-4,417,0,417,API log\n120,GPT-4,417,276,693,API log\n",
    )
    workload = drawn(BurstGPT(path, load="recorded"))
    assert workload.arrival_s.tolist() == [0, 40, 115]
    assert workload.prompt_tokens.tolist() == [472, 1087, 417]
    assert workload.output_tokens.tolist() == [18, 230, 276]
    assert workload.session.tolist() == [0, 1, 2]


def test_burstgpt_with_eight_columns_has_sessions(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.csv",
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5.5,a,1.2,ChatGPT,10,5,15,Conversation log\n6,,1.2,GPT-4,10,5,15,API log\n"
        "7,b,1.2,ChatGPT,10,0,10,Conversation log\n"
        "8,a,1.2,ChatGPT,30,5,35,Conversation log\n9,,1.2,GPT-4,10,5,15,API log\n",
    )
    workload = drawn(BurstGPT(path, load="recorded"))
    session, turn = workload.session.tolist(), workload.turn.tolist()
    assert session[0] == session[2]
    assert len({session[0], session[1], session[3]}) == 3
    assert turn == [0, 0, 1, 0]


# ---------------------------------------------------------------- Bailian
def chat(chat_id: int, parent: int, at: float, tokens: int, hashes: list[int]) -> dict[str, Any]:
    turn = {"type": "text", "turn": 1 + (parent >= 0)}
    head = {"chat_id": chat_id, "parent_chat_id": parent, "timestamp": at, "input_length": tokens}
    return head | {"output_length": 7, **turn, "hash_ids": hashes}


def test_bailian_has_conversations_and_prompts_cut_where_they_part(tmp_path: Path) -> None:
    rows = [
        chat(4, -1, 0.0, 40, [0, 1, 2]),
        chat(9, 4, 61.114, 64, [0, 1, 3, 4]),
        chat(2, -1, 70, 48, [5, 6, 7]),
        chat(3, 77, 80, 20, [8, 9]),
        chat(5, 9, 90, 64, [0, 1, 3, 6]),
    ]
    workload = drawn(Bailian(lines(tmp_path / "t.jsonl", rows), load="recorded"))
    assert workload.arrival_s.tolist() == [0, 61.114, 70, 80, 90]
    assert workload.session.tolist() == [0, 0, 1, 2, 0]
    assert workload.turn.tolist() == [0, 1, 0, 0, 2]
    sizes = [[tokens for _, tokens in one] for one in prompts(workload)]
    assert sizes == [[32, 8], [32, 16, 16], [48], [20], [32, 16, 16]]
    first, second, last = (prompts(workload)[row] for row in (0, 1, 4))
    assert first[0] == second[0] == last[0]
    assert second[1] == last[1]
    assert second[2] != last[2]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([chat(1, -1, 0, 5, [0]), chat(1, -1, 0, 5, [0])], "row 2: chat_id=1 is not valid; row 1 has it already"),
        ([chat(1, 1, 0, 5, [0])], "row 1: parent_chat_id=1 is not valid; it is itself"),
        (
            [chat(1, 2, 0, 5, [0]), chat(2, 1, 0, 5, [0])],
            "row 1: parent_chat_id=2 is not valid; it is row 2, which comes later",
        ),
    ],
)
def test_conversations_that_go_round_are_refused(rows: list[Any], says: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "t.jsonl", rows)
    with pytest.raises(InvalidInput) as caught:
        Bailian(path).trace()
    assert str(caught.value) == f"{path}: {says}"


# ---------------------------------------------------------------- request logs
SYSTEM = {"role": "system", "content": "s" * 400}
FIRST = {"role": "user", "content": "a" * 80}
ANSWER = {"role": "assistant", "content": "b" * 40}
SECOND = {"role": "user", "content": "c" * 120}


def test_a_log_with_messages_shares_them_and_has_sessions(tmp_path: Path) -> None:
    rows = [
        {
            "created": 30,
            "messages": [SYSTEM, FIRST, ANSWER, SECOND],
            "usage": {"prompt_tokens": 160, "completion_tokens": 9},
        },
        {"created": 10, "messages": [SYSTEM, FIRST], "usage": {"prompt_tokens": 120, "completion_tokens": 10}},
        {"created": 20, "messages": [SYSTEM, SECOND], "usage": {"prompt_tokens": 130, "completion_tokens": 0}},
    ]
    workload = drawn(RequestLog(lines(tmp_path / "log.jsonl", rows), load="recorded"))
    assert workload.arrival_s.tolist() == [0, 10, 20]
    assert workload.output_tokens.tolist() == [10, 1, 9]
    assert workload.session.tolist() == [0, 1, 0]
    assert workload.turn.tolist() == [0, 0, 1]
    first, other, second = prompts(workload)
    assert [tokens for _, tokens in first] == [100, 20]  # 4 characters a token: 1,640 of 410
    assert [tokens for _, tokens in second] == [100, 20, 40]
    assert first == second[:2]
    assert first[0] == other[0]
    assert first[1] != other[1]


def test_a_log_may_have_requests_and_responses_and_texts_of_answers(tmp_path: Path) -> None:
    rows = [
        {
            "timestamp": "2026-01-01T00:00:05Z",
            "request": {"body": {"messages": [FIRST]}},
            "response": {"body": {"choices": [{"message": {"content": "x" * 44}}]}},
        },
        {
            "timestamp": "2026-01-01T00:00:07.5Z",
            "request": {"body": {"messages": [{"role": "user", "content": [{"type": "text", "text": "hm"}]}]}},
            "response": {"body": {"choices": [{"text": "x" * 8}]}},
        },
    ]
    workload = drawn(RequestLog(lines(tmp_path / "log.jsonl", rows), load="recorded", characters_per_token=8.0))
    assert workload.arrival_s.tolist() == [0, 2.5]
    assert workload.output_tokens.tolist() == [6, 1]
    assert workload.prompt_tokens.tolist() == [10, 1]


def test_answers_have_as_many_characters_a_token_as_prompts(tmp_path: Path) -> None:
    """Two prompts of 80 and 120 characters have 20 and 30 tokens: 4 characters each, also in answers that are texts."""
    rows = [
        {"created": at, "messages": [said], "usage": {"prompt_tokens": tokens}, "choices": [{"text": "x" * length}]}
        for at, (said, tokens, length) in enumerate([(FIRST, 20, 44), (SECOND, 30, 8)])
    ]
    workload = drawn(RequestLog(lines(tmp_path / "log.jsonl", rows), load="recorded"))
    assert workload.output_tokens.tolist() == [11, 2]


def test_a_log_of_counts_may_be_csv_with_sessions(tmp_path: Path) -> None:
    text = "start_time,session_id,input_tokens,output_tokens\n2.5,x,10,3\n1.5,y,20,4\n4.5,x,30,5\n"
    workload = drawn(RequestLog(written(tmp_path / "log.csv", text), load="recorded"))
    assert workload.arrival_s.tolist() == [0, 1, 3]
    assert workload.prompt_tokens.tolist() == [20, 10, 30]
    assert workload.output_tokens.tolist() == [4, 3, 5]
    assert (workload.session[1] == workload.session[2], workload.turn.tolist()) == (True, [0, 0, 1])


# ---------------------------------------------------------------- logs of load generators
def test_vllm_writes_when_requests_were_sent_and_which_failed(tmp_path: Path) -> None:
    log = {
        "date": "20260101-000000", "backend": "vllm", "num_prompts": 4, "request_rate": 2.0, "burstiness": 1.0,
        "input_lens": [100, 200, 300, 400], "output_lens": [10, 0, 30, 40], "start_times": [50.5, 51.0, 53.0, 52.0],
        "ttfts": [0.1, 0.0, 0.1, 0.1], "itls": [[0.01], [], [0.01], [0.01]], "errors": ["", "timeout", "", ""],
    }  # fmt: skip
    workload = drawn(BenchLog(written(tmp_path / "log.json", json.dumps(log, indent=1)), load="recorded"))
    assert workload.arrival_s.tolist() == [0, 1.5, 2.5]
    assert workload.prompt_tokens.tolist() == [100, 400, 300]
    assert workload.output_tokens.tolist() == [10, 40, 30]


def test_sglang_writes_a_run_a_line_and_no_starts(tmp_path: Path) -> None:
    n = 4000
    runs = [
        {"backend": "sglang", "request_rate": "inf", "input_lens": [1], "output_lens": [1], "errors": [""]},
        {"backend": "sglang", "request_rate": 8.0, "input_lens": [64] * n, "output_lens": [16] * n, "errors": [""] * n},
    ]
    workload = drawn(BenchLog(lines(tmp_path / "log.jsonl", runs), load="recorded"))
    assert len(workload) == n
    assert workload.arrival_s[0] == 0
    gaps = np.diff(workload.arrival_s)
    assert (gaps.mean(), gaps.std()) == pytest.approx((1 / 8, 1 / 8), rel=0.08)
    at_once = drawn(BenchLog(lines(tmp_path / "first.jsonl", runs[:1]), load="recorded"))
    assert at_once.arrival_s.tolist() == [0]


# ---------------------------------------------------------------- ServeGen
def clients(path: Path, *rates: float, kind: str = "G", shape: float = 0.5) -> str:
    lengths = {"0": {"input": [*range(100, 124)], "output": [*range(1000, 1240, 10)]}}
    windows = [[[600 * w, rate, 1.0, kind, shape] for w in range(24)] for rate in rates]
    return lines(path, [{"client": f"c{i}", "windows": one, "lengths": lengths} for i, one in enumerate(windows)])


def serve(source: ServeGen, seed: int = 0, rps: float = 20.0, duration_s: float = 1800.0) -> Workload:
    return source.draw(rps=rps, duration_s=duration_s, seed=seed, output_length=OUTPUT)


@pytest.mark.parametrize(("kind", "cv"), [("G", 2**0.5), ("W", 5**0.5)])
def test_clients_have_the_rate_and_gaps_of_their_windows(kind: str, cv: float, tmp_path: Path) -> None:
    workload = serve(ServeGen(clients(tmp_path / "t", 3.0, kind=kind)))
    gaps = np.diff(workload.arrival_s)
    assert len(workload) == pytest.approx(36_000, rel=0.02)
    assert workload.arrival_s[-1] < 1800
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)


def test_lengths_are_drawn_from_the_quantiles_independently_or_coupled(tmp_path: Path) -> None:
    path = clients(tmp_path / "t", 3.0)
    for coupled, expected in ((False, 0.0), (True, 1.0)):
        workload = serve(ServeGen(path, coupled=coupled))
        ranks = [np.argsort(np.argsort(one)) for one in (workload.prompt_tokens, workload.output_tokens)]
        assert np.corrcoef(*ranks)[0, 1] == pytest.approx(expected, abs=0.03)
        at = np.quantile(workload.output_tokens, SHARES[2:-2])
        assert at == pytest.approx(np.arange(1020, 1220, 10), abs=3)


def test_clients_keep_their_contract(tmp_path: Path) -> None:
    check_workload(ServeGen(clients(tmp_path / "t", 3.0, 1.0)), OUTPUT)
    (cell,) = configure.cells(["workload=servegen", f"workload.path={tmp_path / 't'}"])
    assert "output_length" not in cell.identity()
    assert {"rps", "duration_s", "seed"} <= cell.identity().keys()


def test_clients_last_from_their_first_window_to_the_end_of_their_last(tmp_path: Path) -> None:
    lengths = {"0": {"input": [1] * 24, "output": [1] * 24}}
    windows = [[at, 1.0, 1.0, "G", 0.5] for at in (7200, 7800)]
    source = ServeGen(lines(tmp_path / "t", [{"client": "c", "windows": windows, "lengths": lengths}]))
    assert serve(source, rps=1.0, duration_s=1200.0).arrival_s[-1] < 1200
    with pytest.raises(InvalidInput, match=r"^duration_s=1201.0 is not valid; .*/t lasts 1200 s$"):
        serve(source, rps=1.0, duration_s=1201.0)


@needs("servegen_mlarge_day3.jsonl.gz")
def test_the_clients_of_a_day() -> None:
    """128 requests/s on average, as data/README.md has it: with that for `rps`, rates are as recorded."""
    source = ServeGen(str(DATA / "servegen_mlarge_day3.jsonl.gz"))
    rates = [len(serve(source, seed, rps=128, duration_s=60)) / 60 for seed in range(12)]
    assert min(rates) < 100 < 150 < max(rates), "the day has its hours"
    assert np.mean(rates) == pytest.approx(128, rel=0.25)


@needs("servegen_r1_am.jsonl.gz")
def test_the_clients_of_a_reasoning_model() -> None:
    """Their mean output over half a day is that of each client's quantiles, by its rate."""
    path = DATA / "servegen_r1_am.jsonl.gz"
    workload = serve(ServeGen(str(path)), rps=17, duration_s=43_200)
    total = weight = 0.0
    with gzip.open(path, "rt") as file:
        for client in map(json.loads, file):
            for begin, rate, *_ in client["windows"]:
                period = max((at for at in client["lengths"] if int(at) <= begin), key=int, default=None)
                quantiles_of = client["lengths"][period or min(client["lengths"], key=int)]["output"]
                total += rate * np.trapezoid(quantiles_of, SHARES)
                weight += rate
    assert len(workload) == pytest.approx(17 * 43_200, rel=0.01)
    assert workload.output_tokens.mean() == pytest.approx(total / weight, rel=0.02)
