"""What Envoy is answered: messages of its external processing filter, from gRPC's own package (xds-protos)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as of
from envoy.type.v3 import http_status_pb2

from prebleexp.live.http.exchange import problem
from prebleexp.live.router.upstreams import Upstream

DESTINATION = "x-gateway-destination-endpoint"
NAMESPACE = "envoy.lb"
SUBSET = "x-gateway-destination-endpoint-subset"
SUBSETS = "envoy.lb.subset_hint"
PIECE = 62_000
"""bytes of a body in one message: some proxies take 64 KiB at most"""
_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD
Mode = processing_mode_pb2.ProcessingMode


def field(headers: Any, name: str) -> bytes | None:
    """Of an HttpHeaders, the first value of a field: Envoy's names are in lower case."""
    for one in headers.headers.headers:
        if one.key == name:
            return bytes(one.raw_value or one.value.encode())
    return None


def subset(message: Any) -> list[str] | None:
    """The endpoints that the gateway leaves to choose from; None: it does not say."""
    metadata = message.metadata_context.filter_metadata
    if SUBSETS not in metadata or SUBSET not in metadata[SUBSETS].fields:
        return None
    given = metadata[SUBSETS].fields[SUBSET]
    if given.HasField("list_value"):
        return [one.string_value.strip() for one in given.list_value.values]
    return [one.strip() for one in given.string_value.split(",") if one.strip()]


def _common(fields: Sequence[tuple[str, bytes]], removed: Sequence[str] = ()) -> Any:
    options = [
        base_pb2.HeaderValueOption(
            header=base_pb2.HeaderValue(key=name, raw_value=value),
            append_action=_OVERWRITE,  # a client may have sent such a field
        )
        for name, value in fields
    ]
    return of.CommonResponse(header_mutation=of.HeaderMutation(set_headers=options, remove_headers=removed))


def endpoint(upstream: Upstream) -> str:
    """An upstream's address as Envoy's header has it: "10.0.0.1:8000"."""
    assert upstream.origin is not None
    return upstream.origin.authority.decode()


def chosen(kind: str, upstream: Upstream) -> Any:
    """The request goes there. `kind`: to which message this is the answer, request_headers or request_body."""
    there = endpoint(upstream)
    common = _common([(DESTINATION, there.encode())], ["accept-encoding"])  # what is compressed cannot be read
    inner = of.HeadersResponse if kind == "request_headers" else of.BodyResponse
    made = of.ProcessingResponse(**{kind: inner(response=common)})
    made.dynamic_metadata.update({NAMESPACE: {DESTINATION: there}})
    return made


def headers_pass(kind: str, fields: Sequence[tuple[str, bytes]] = ()) -> Any:
    return of.ProcessingResponse(**{kind: of.HeadersResponse(response=_common(fields))})


def body_passes(kind: str) -> Any:
    """As it is: Envoy has it, and goes on."""
    return of.ProcessingResponse(**{kind: of.BodyResponse()})


def body_again(kind: str, body: bytes, end: bool) -> Iterator[Any]:
    """Where bodies stream both ways, Envoy sends on what it is sent back, and nothing else."""
    for at in range(0, max(len(body), 1), PIECE):
        last = end and at + PIECE >= len(body)
        piece = of.StreamedBodyResponse(body=body[at : at + PIECE], end_of_stream=last)
        common = of.CommonResponse(body_mutation=of.BodyMutation(streamed_response=piece))
        yield of.ProcessingResponse(**{kind: of.BodyResponse(response=common)})


def trailers_pass(kind: str) -> Any:
    return of.ProcessingResponse(**{kind: of.TrailersResponse()})


def refusal(status: int, message: str) -> Any:
    """The client is answered at once, as OpenAI-style servers answer errors."""
    return of.ProcessingResponse(
        immediate_response=of.ImmediateResponse(
            status=http_status_pb2.HttpStatus(code=status),
            headers=_common([("content-type", b"application/json")]).header_mutation,
            body=problem(status, message),
            details="prebleexp",
        )
    )
