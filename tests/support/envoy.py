"""What Envoy does, as its external processing filter does it: shows a request and its answer, one message at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import grpc
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as of
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc

from prebleexp.live.picker.messages import DESTINATION, NAMESPACE, SUBSET, SUBSETS, Mode

DUPLEX, BUFFERED, STREAMED = Mode.FULL_DUPLEX_STREAMED, Mode.BUFFERED, Mode.STREAMED


def headers(kind: str, fields: dict[str, str], end: bool = False) -> Any:
    values = [base_pb2.HeaderValue(key=name, raw_value=value.encode()) for name, value in fields.items()]
    made = of.HttpHeaders(headers=base_pb2.HeaderMap(headers=values), end_of_stream=end)
    return of.ProcessingRequest(**{kind: made})


class Shown:
    """A request that a picker is shown."""

    def __init__(self, channel: Any, mode: int = DUPLEX, back: int = DUPLEX) -> None:
        self._call = external_processor_pb2_grpc.ExternalProcessorStub(channel).Process()
        self._mode, self._back = mode, back
        self.endpoint = self.sent_on = b""

    async def send(self, message: Any) -> None:
        await self._call.write(message)

    async def hear(self) -> Any:
        message = await self._call.read()
        assert message is not grpc.aio.EOF
        return message

    async def begins(self, end: bool = False, among: Sequence[str] | None = None, **fields: str) -> None:
        fields = {":method": "POST", ":path": "/v1/completions", **fields}
        first = headers("request_headers", fields, end)
        first.protocol_config.request_body_mode = self._mode
        first.protocol_config.response_body_mode = self._back
        if among is not None:
            first.metadata_context.filter_metadata[SUBSETS].update({SUBSET: list(among)})
        await self.send(first)

    async def body(self, body: bytes, pieces: int = 1, trailers: bool = False) -> None:
        if self._mode == BUFFERED:
            assert self._passes(await self.hear(), "request_headers") == b""
        size = -(-len(body) // pieces)
        for at in range(0, len(body), size):
            piece = of.HttpBody(body=body[at : at + size], end_of_stream=at + size >= len(body) and not trailers)
            await self.send(of.ProcessingRequest(request_body=piece))
        if trailers:
            await self.send(of.ProcessingRequest(request_trailers=of.HttpTrailers()))

    async def asks(self, session: str | None = None, among: Sequence[str] | None = None, **given: Any) -> bytes:
        """All of a request; the endpoint, or the status with which it is refused."""
        body = json.dumps({"model": "tiny", "prompt": "once upon a time", "max_tokens": 3, **given}).encode()
        await self.begins(among=among, **({} if session is None else {"x-session-id": session}))
        await self.body(body)
        found = await self.goes(len(body))
        if not found.isdigit() and self._mode == DUPLEX:
            assert self.sent_on == body
        return found

    async def goes(self, size: int) -> bytes:
        """Where; of a body that streams both ways, all of it comes back."""
        first = await self.hear()
        if first.HasField("immediate_response"):
            assert json.loads(first.immediate_response.body)["error"]["code"] == first.immediate_response.status.code
            return b"%d" % first.immediate_response.status.code
        found = self._passes(first, "request_body" if self._mode == BUFFERED else "request_headers")
        assert first.dynamic_metadata[NAMESPACE][DESTINATION].encode() == found
        while self._mode == DUPLEX and len(self.sent_on) < size:
            piece = (await self.hear()).request_body.response.body_mutation.streamed_response
            self.sent_on += piece.body
            assert piece.end_of_stream == (len(self.sent_on) == size)
        return found

    async def answered(self, *pieces: bytes, status: int = 200, kind: str = "text/event-stream") -> Any:
        """The server's answer so far, and what of the header is changed."""
        await self.send(headers("response_headers", {":status": str(status), "content-type": kind}))
        said = await self.hear()
        for piece in pieces:
            await self.token(piece)
        return said.response_headers.response.header_mutation

    async def token(self, piece: bytes, end: bool = False) -> None:
        await self.send(of.ProcessingRequest(response_body=of.HttpBody(body=piece, end_of_stream=end)))
        said = (await self.hear()).response_body.response
        if self._back == DUPLEX:
            assert said.body_mutation.streamed_response.body == piece
            assert said.body_mutation.streamed_response.end_of_stream == end
        else:
            assert not said.HasField("body_mutation")

    async def over(self) -> None:
        """Envoy has nothing more to show; the picker ends too."""
        await self._call.done_writing()
        assert await self._call.read() is grpc.aio.EOF
        assert await self._call.code() == grpc.StatusCode.OK

    def leaves(self) -> None:
        self._call.cancel()

    async def code(self) -> Any:
        return await self._call.code()

    @staticmethod
    def _passes(message: Any, kind: str) -> bytes:
        """The endpoint in a message of this kind."""
        assert message.WhichOneof("response") == kind
        options = getattr(message, kind).response.header_mutation.set_headers
        assert all(one.append_action == one.OVERWRITE_IF_EXISTS_OR_ADD for one in options)
        return next((one.header.raw_value for one in options if one.header.key == DESTINATION), b"")


def event(text: str = "t1 ", usage: dict[str, int] | None = None) -> bytes:
    """A piece of a stream of tokens."""
    made = {"choices": [{"text": text}] if text else [], **({} if usage is None else {"usage": usage})}
    return b"data: " + json.dumps(made).encode() + b"\n\n"
