"""What is wrong with a trace is said in one line that names the file and, where there is one, the row."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from prebleexp.errors import InvalidInput
from prebleexp.workloads.agents import Agents
from prebleexp.workloads.azure import Azure
from prebleexp.workloads.bailian import Bailian
from prebleexp.workloads.bench_log import BenchLog
from prebleexp.workloads.burstgpt import BurstGPT
from prebleexp.workloads.mooncake import Mooncake
from prebleexp.workloads.output_length import OutputLength
from prebleexp.workloads.replayed import Replayed
from prebleexp.workloads.request_log import RequestLog
from prebleexp.workloads.servegen import ServeGen

OUTPUT = OutputLength((1,), (1.0,))
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.68,374,44\n"
ZONED = "TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,374,44\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,API log\n"
PARQUET = pa.BufferOutputStream()
pa.parquet.write_table(pa.table({"TIMESTAMP": ["2023-11-16 18:15:46"], "ContextTokens": [1]}), PARQUET)


def jsonl(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def mooncake(**other: Any) -> dict[str, Any]:
    return {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]} | other


def chat(**other: Any) -> dict[str, Any]:
    head = {"chat_id": 1, "parent_chat_id": -1, "timestamp": 0, "input_length": 20, "output_length": 5}
    return head | {"hash_ids": [1, 2]} | other


def asked(**other: Any) -> dict[str, Any]:
    return {"created": 5, "messages": [{"role": "user", "content": "hello"}], "completion_tokens": 3} | other


def bench(**other: Any) -> dict[str, Any]:
    return {"input_lens": [5, 6], "output_lens": [3, 3], "start_times": [0.0, 1.0], "errors": ["", ""]} | other


QUANTILES = [*range(1, 25)]


def client(**other: Any) -> dict[str, Any]:
    lengths = {"0": {"input": QUANTILES, "output": QUANTILES}}
    return {"windows": [[0, 1.0, 1.0, "G", 0.5]], "lengths": lengths} | other


CASES: dict[str, tuple[type[Any], bytes, str]] = {
    # what is packed
    "gzip cut short": (Azure, gzip.compress(AZURE.encode(), mtime=0)[:-6], "not a gzip file that can be read: "),
    "gzip damaged": (Azure, b"\x1f\x8b" + b"?" * 40, "not a gzip file that can be read: "),
    "zstd cut short": (Azure, bytes(pa.compress(AZURE.encode() * 99, "zstd"))[:-9], "not a Zstandard file that"),
    "zstd damaged": (Azure, b"\x28\xb5\x2f\xfd" + b"?" * 40, "not a Zstandard file that can be read: "),
    "parquet cut short": (Azure, bytes(PARQUET.getvalue())[:-9], "not a Parquet file that can be read: "),
    "parquet without a column": (Azure, bytes(PARQUET.getvalue()), "there is no column GeneratedTokens; it has TIMEST"),
    "nothing": (Azure, b"", "there are no requests"),
    "a header alone": (Azure, AZURE.split("\n")[0].encode() + b"\n", "there are no requests"),
    "no text": (Azure, b"\xfc\xfe\x00\x01", "row 1: neither JSON nor CSV in UTF-8: "),
    "CSV in Latin-1": (Azure, "TIMESTAMP,é\n1,2\n".encode("latin-1"), "row 1: neither JSON nor CSV in UTF-8: "),
    # CSV
    "another header": (Azure, b"time,in,out\n1,2,3\n", "there is no column TIMESTAMP; it has time, in, out"),
    "a column twice": (Azure, b"TIMESTAMP,TIMESTAMP\n1,2\n", "there are 2 columns TIMESTAMP; it has TIMESTAMP, TIMEST"),
    "a cell too many": (Azure, f"{AZURE}1,2,3,4\n".encode(), "not a CSV file that can be read: CSV parse error: "),
    "no date": (Azure, f"{AZURE}yesterday,5,5\n".encode(), "row 3: TIMESTAMP=yesterday is not valid; it must be a dat"),
    "no such day": (Azure, f"{AZURE}2023-02-30 00:00:00,5,5\n".encode(), "row 3: TIMESTAMP=2023-02-30 00:00:00 is not"),
    "no time": (Azure, f"{AZURE},5,5\n".encode(), "row 3: TIMESTAMP=nothing is not valid; it must be a number of sec"),
    "a zone too many": (
        Azure,
        f"{AZURE}2023-11-16 18:15:47+00:00,5,5\n".encode(),
        "row 3: TIMESTAMP=2023-11-16 18:15:47+00:00 is not valid; it must be a time without a time zone, as the first",
    ),
    "a zone too few": (
        Azure,
        f"{ZONED}2024-05-10 00:00:01,5,5\n".encode(),
        "row 3: TIMESTAMP=2024-05-10 00:00:01 is not valid; it must be a time with a time zone, as that of the first",
    ),
    "a prompt of 0 tokens": (Azure, f"{AZURE}\n2023-11-16 18:15:47,0,5\n".encode(), "row 4: ContextTokens=0 is not va"),
    "a prompt of no tokens": (Azure, f"{AZURE}2023-11-16 18:15:47,,5\n".encode(), "row 3: ContextTokens=nothing is no"),
    "a prompt of NaN tokens": (Azure, f"{AZURE}2023-11-16 18:15:47,NaN,5\n".encode(), "row 3: ContextTokens=nothing i"),
    "half a token": (Azure, f"{AZURE}2023-11-16 18:15:47,5,1.5\n".encode(), "row 3: GeneratedTokens=1.5 is not valid;"),
    "a word for tokens": (Azure, f"{AZURE}2023-11-16 18:15:47,five,5\n".encode(), "row 3: ContextTokens=five is not v"),
    "too many tokens": (Azure, f"{AZURE}2023-11-16 18:15:47,5,9999999999\n".encode(), "row 3: GeneratedTokens=9999999"),
    "a negative time": (BurstGPT, BURST.replace("\n5,", "\n-5,").encode(), "row 2: Timestamp=-5 is not valid; it must"),
    "an endless time": (BurstGPT, f"{BURST}inf,GPT-4,5,5,10,API log\n".encode(), "row 3: Timestamp=inf is not valid;"),
    "an answer to nothing": (BurstGPT, f"{BURST}6,GPT-4,0,5,5,API log\n".encode(), "row 3: Request tokens=0 is not va"),
    "failures alone": (BurstGPT, BURST.replace(",18,", ",0,").encode(), "there are no requests with a response"),
    # JSON lines
    "broken JSON": (Mooncake, jsonl(mooncake()) + b'{"timestamp":\n', "row 2: not valid JSON: "),
    "a list for an object": (Mooncake, jsonl(mooncake(), [1]), "row 2: not a JSON object"),
    "a field less": (Mooncake, jsonl(mooncake(), {"timestamp": 0}), "row 2: there is no field input_length"),
    "null": (Mooncake, jsonl(mooncake(), mooncake(timestamp=None)), "row 2: there is no field timestamp; it must be"),
    "NaN": (Mooncake, jsonl(mooncake(), mooncake(timestamp=float("nan"))), "row 2: timestamp=nan is not valid; it mus"),
    "a time as text": (Mooncake, jsonl(mooncake(timestamp="noon")), "row 1: timestamp='noon' is not valid; it must b"),
    "hashes too few": (Mooncake, jsonl(mooncake(hash_ids=[1])), "row 1: hash_ids has 1 elements; input_length=600 nee"),
    "a hash that is half": (Mooncake, jsonl(mooncake(hash_ids=[1, 0.5])), "row 1: hash_ids is not valid; it mu"),
    "a chat twice": (Bailian, jsonl(chat(), chat()), "row 2: chat_id=1 is not valid; row 1 has it already"),
    "its own parent": (Bailian, jsonl(chat(parent_chat_id=1)), "row 1: parent_chat_id=1 is not valid; it is itself"),
    "parents in a circle": (
        Bailian,
        jsonl(chat(parent_chat_id=2), chat(chat_id=2, parent_chat_id=1)),
        "row 1: parent_chat_id=2 is not valid; it is row 2, which comes later",
    ),
    # logs
    "a log without times": (RequestLog, jsonl({"prompt_tokens": 3}), "there is no field arrival_time, nor anoth"),
    "a log without answers": (RequestLog, jsonl({"created": 1, "prompt_tokens": 3}), "there is no field completion_to"),
    "no list of messages": (RequestLog, jsonl(asked(messages={})), "row 1: messages is not valid; it must be a list o"),
    "messages as broken text": (RequestLog, jsonl(asked(messages="[")), "row 1: messages is not valid; it must be a l"),
    "choices of nothing": (
        RequestLog,
        jsonl({"created": 1, "messages": [{"content": "a"}], "choices": [3]}),
        "row 1: choices is not valid; it must be a list of objects with message or text",
    ),
    "a benchmark without details": (BenchLog, jsonl({"duration": 3}), "there is no list input_lens; write it with vll"),
    "lists of two lengths": (BenchLog, jsonl(bench(errors=[""])), "errors is not valid; it must be a list as long as"),
    "a benchmark of nobody": (BenchLog, jsonl(bench(errors=["x", "x"])), "there are no requests that were served"),
    "no rate": (BenchLog, jsonl(bench(start_times=None)), "request_rate=None is not valid; it must be a number > 0"),
    "an input of 0": (BenchLog, jsonl(bench(input_lens=[5, 0])), "row 2: input_lens=0 is not valid; it must be at lea"),
    # sessions of agents
    "a session without turns": (Agents, jsonl({"turns": []}), "row 1: turns is not valid; it must be a list of [t, th"),
    "a turn of another size": (Agents, jsonl({"turns": [[0, 0, 5, 5]]}), "row 1: turns[0] is not valid; it must be [t"),
    "a negative think time": (
        Agents,
        jsonl({"turns": [[0, 0, 5, 5, -1, 0, 1, 0], [9, -3, 5, 5, 0, 5, 1, 0]]}),
        "row 1: turns[1]: think=-3 is not valid; it must be a number >= 0",
    ),
    "a think time of NaN": (
        Agents,
        jsonl({"turns": [[0, float("nan"), 5, 5, -1, 0, 1, 0]]}),
        "row 1: turns[0]: think=nan is not valid; it must be a number >= 0",
    ),
    "a prompt from itself": (
        Agents,
        jsonl({"turns": [[0, 0, 5, 5, 0, 0, 1, 0]]}),
        "row 1: turns[0]: from=0 is not valid; it must be an integer from -1 to -1",
    ),
    "a prompt from the future": (
        Agents,
        jsonl({"turns": [[0, 0, 5, 5, 1, 0, 1, 0], [1, 0, 5, 5, 0, 0, 1, 0]]}),
        "row 1: turns[0]: from=1 is not valid; it must be an integer from -1 to -1",
    ),
    "more kept than there is": (
        Agents,
        jsonl({"turns": [[0, 0, 5, 5, -1, 0, 1, 0], [9, 3, 9, 5, 0, 6, 1, 0]]}),
        "row 1: turns[1]: keep=6 is not valid; it must be an integer from 0 to 5, what both prompts have",
    ),
    "an agent that starts before it is called": (
        Agents,
        jsonl({"turns": [[0, 0, 5, 5, -1, 0, 1, 0]], "agents": [{"after": 0, "start": -1, "turns": []}]}),
        "row 1: agents.start=-1 is not valid; it must be a number of seconds >= 0",
    ),
    "hashes of another kind": (
        Agents,
        jsonl({"requests": [{"t": 0, "in": 5, "out": 5, "hash_ids": "none"}]}),
        "row 1: hash_ids is not valid; it must be a list of integers",
    ),
    # clients
    "clients as CSV": (ServeGen, AZURE.encode(), "not JSON lines"),
    "a window of another kind": (
        ServeGen,
        jsonl(client(), client(windows=[[0, 1.0, 1.0, "Z", 1]])),
        "row 2: windows is not valid; it must be a list of [second, requests/s, CV, G or W, shape]",
    ),
    "windows that overlap": (
        ServeGen,
        jsonl(client(windows=[[0, 1, 1, "G", 1], [300, 1, 1, "G", 1]])),
        "row 1: windows is not valid; each must begin 600 s after the one before it, or later",
    ),
    "quantiles that fall": (
        ServeGen,
        jsonl(client(lengths={"0": {"input": QUANTILES, "output": QUANTILES[::-1]}})),
        "row 1: lengths is not valid; it must be {second: {input, output}} with 24 rising quantiles",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_wrong_is_named_in_one_line(name: str, tmp_path: Path) -> None:
    kind, data, says = CASES[name]
    path = tmp_path / "trace"
    path.write_bytes(data)
    options = {"load": "recorded"} if issubclass(kind, Replayed) and kind is not Agents else {}
    with pytest.raises(InvalidInput) as caught:
        kind(str(path), **options).draw(rps=1, duration_s=1, seed=0, output_length=OUTPUT)
    assert str(caught.value).startswith(f"{path}: {says}")
    assert "\n" not in str(caught.value)


def test_forty_kinds_and_more() -> None:
    assert len(CASES) >= 40
