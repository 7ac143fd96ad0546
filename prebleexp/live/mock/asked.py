"""What a client asks for: bodies of `/v1/completions` and `/v1/chat/completions`, with OpenAI's fields and vLLM's."""

from __future__ import annotations

from typing import Any

import msgspec

from prebleexp.live.mock import tokens

USUAL_TOKENS = 16
"""of a completion that names no max_tokens, as OpenAI and vLLM have it; a chat may go on to the context's end"""


class Wrong(Exception):
    """A request that cannot be answered: why, and with which status."""

    def __init__(self, message: str, status: int = 400, kind: str | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.kind = message, status, kind


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Asked(msgspec.Struct):
    """What both have. Fields that are not here are passed over."""

    model: str | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    best_of: int | None = None
    ignore_eos: bool | None = None
    return_token_ids: bool | None = None
    stop: Any = None
    echo: bool | None = None
    logprobs: Any = None

    @property
    def prompt_ids(self) -> list[int]:
        raise NotImplementedError

    def most(self, context_length: int, prompt_tokens: int) -> int:
        """Tokens of the answer, at most. Raises Wrong as vLLM does."""
        asked = self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens
        if asked is None:
            asked = self.usual(context_length - prompt_tokens)
        if asked < 1:
            raise Wrong(f"max_tokens must be at least 1, got {asked}.")
        if prompt_tokens >= context_length or (prompt_tokens + asked > context_length):
            raise Wrong(
                f"This model's maximum context length is {context_length} tokens. However, you requested "
                f"{prompt_tokens + asked} tokens ({prompt_tokens} in the messages, {asked} in the completion). Please "
                "reduce the length of the messages or completion."
            )
        if self.min_tokens is not None and self.min_tokens > asked:
            raise Wrong(f"min_tokens must be less than or equal to max_tokens={asked}, got {self.min_tokens}.")
        return asked

    def usual(self, left: int) -> int:
        """Of one that says nothing of it."""
        raise NotImplementedError

    @property
    def ignored(self) -> list[str]:
        """Fields that say how the text is to be, of which there is none."""
        return [name for name in ("stop", "echo", "logprobs") if getattr(self, name)]

    def check(self) -> None:
        for name in ("n", "best_of"):
            value = getattr(self, name)
            if value is not None and value != 1:
                raise Wrong(f"{name}={value} is not served here; it must be 1.")


class Completion(Asked):
    prompt: str | list[int | str | list[int]] | None = None

    @property
    def prompt_ids(self) -> list[int]:
        prompt: Any = self.prompt
        if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise Wrong("prompt has several prompts; a request has one here.")
            prompt = prompt[0]
        found: list[int] = tokens.encode(prompt) if isinstance(prompt, str) else prompt
        if not found:
            raise Wrong("Either prompt or prompt_embeds must be provided and non-empty.")
        if {*map(type, found)} != {int}:
            raise Wrong("prompt must be a text or a list of token ids.")
        if min(found) < 0 or max(found) >= 1 << 31:
            raise Wrong("prompt has token ids out of the vocabulary.")
        return found

    def usual(self, left: int) -> int:
        return USUAL_TOKENS


class Chat(Asked):
    messages: list[dict[str, Any]] | None = None

    @property
    def prompt_ids(self) -> list[int]:
        if not self.messages:
            raise Wrong("messages must be a list of at least one message.")
        return tokens.encode_chat(self.messages)

    def usual(self, left: int) -> int:
        return max(1, left)


_COMPLETION, _CHAT = msgspec.json.Decoder(Completion), msgspec.json.Decoder(Chat)


def read(body: bytes, chat: bool) -> Asked:
    """The request of a body. Raises Wrong."""
    try:
        asked: Asked = (_CHAT if chat else _COMPLETION).decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Wrong(f"the body is not valid: {error}") from None
    except RecursionError:
        raise Wrong("the body is nested too deeply") from None
    asked.check()
    return asked
