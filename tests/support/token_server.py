"""A server as OpenAI and SGLang have them, that streams a word every 4 ms: enough for a load generator.

    python -m tests.support.token_server PORT TOKENIZER_FOLDER LOG

It writes a line a request: when it came, its tokens, and those of the answer. It needs `tokenizers`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

GAP_S, FIRST_S, TOKEN_S = 4e-3, 1e-2, 2e-5


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, count: Callable[[str], int], log: str) -> None:
        self.count = count
        self.log = Path(log)
        super().__init__(("127.0.0.1", port), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 32768}]}
        info = {"model_path": "tiny", "max_total_num_tokens": 100000, "internal_states": [{}]}
        self._answer(models if self.path.endswith("/models") else info)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        native = self.path.endswith("/generate")
        if not native and "completions" not in self.path:
            self._answer({"ok": True})
            return
        prompt = _prompt_tokens(body, self.server.count)
        n = body["sampling_params"]["max_new_tokens"] if native else _most(body)
        with self.server.log.open("a") as log:
            log.write(json.dumps([time.time(), prompt, n]) + "\n")
        time.sleep(FIRST_S + prompt * TOKEN_S)
        events = _native(prompt, n) if native else _openai(body, "chat" in self.path, prompt, n)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i, event in enumerate(events):
            if 0 < i < n:
                time.sleep(GAP_S)
            self._chunk("data: " + json.dumps(event) + "\n\n")
        self._chunk("data: [DONE]\n\n")
        self._chunk("")

    def _chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n" % len(data) + data + b"\r\n")

    def _answer(self, data: Mapping[str, Any]) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _most(body: Mapping[str, Any]) -> int:
    return int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)


def _prompt_tokens(body: Mapping[str, Any], count: Callable[[str], int]) -> int:
    if "input_ids" in body:
        return len(body["input_ids"])
    if "messages" not in body:
        prompt = body.get("text", body.get("prompt", ""))
        return count(prompt) if isinstance(prompt, str) else len(prompt)
    texts = []
    for message in body["messages"]:
        content = message.get("content") or ""
        texts += [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    return sum(map(count, texts))


def _native(prompt: int, n: int) -> Iterator[dict[str, Any]]:
    for i in range(1, n + 1):
        meta = {"id": "x", "prompt_tokens": prompt, "completion_tokens": i}
        yield {"text": " word" * i, "meta_info": meta | {"finish_reason": {"type": "length"} if i == n else None}}


def _openai(body: Mapping[str, Any], chat: bool, prompt: int, n: int) -> Iterator[dict[str, Any]]:
    options = body.get("stream_options") or {}
    head = {"id": "c", "object": "chat.completion.chunk" if chat else "text_completion"}
    head |= {"created": int(time.time()), "model": "tiny"}

    def usage(i: int) -> dict[str, Any]:
        return {"usage": {"prompt_tokens": prompt, "completion_tokens": i, "total_tokens": prompt + i}}

    for i in range(1, n + 1):
        said: dict[str, Any] = {"delta": {"role": "assistant", "content": " word"}} if chat else {"text": " word"}
        choice = {"index": 0, "finish_reason": "length" if i == n else None} | said
        yield head | {"choices": [choice]} | (usage(i) if options.get("continuous_usage_stats") else {})
    if options.get("include_usage"):
        yield head | {"choices": []} | usage(n)


if __name__ == "__main__":
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(f"{sys.argv[2]}/tokenizer.json")
    Server(
        int(sys.argv[1]), lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), sys.argv[3]
    ).serve_forever()
