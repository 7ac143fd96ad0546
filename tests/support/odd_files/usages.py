"""How a log says how long prompts and answers were."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.support.odd_files.truth import Row

Usage = Callable[[int, int, int], Row]


def openai(prompt: int, output: int, cached: int) -> Row:
    details = {"prompt_tokens_details": {"cached_tokens": cached}, "total_tokens": prompt + output}
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": output} | details}


def responses(prompt: int, output: int, cached: int) -> Row:
    """OpenAI's later interface, whose answers have their reasoning among them."""
    details: Row = {"input_tokens_details": {"cached_tokens": cached}, "total_tokens": prompt + output}
    details |= {"output_tokens_details": {"reasoning_tokens": output // 3}}
    return {"response": {"usage": {"input_tokens": prompt, "output_tokens": output} | details}}


def anthropic(prompt: int, output: int, cached: int) -> Row:
    wrote = (prompt - cached) // 3
    parts = {"cache_read_input_tokens": cached, "cache_creation_input_tokens": wrote}
    return {"response": {"usage": {"input_tokens": prompt - cached - wrote, "output_tokens": output} | parts}}


def anthropic_parts(prompt: int, output: int, cached: int) -> Row:
    found = anthropic(prompt, output, cached)["response"]["usage"]
    wrote = found["cache_creation_input_tokens"]
    parts = {"ephemeral_5m_input_tokens": wrote // 2, "ephemeral_1h_input_tokens": wrote - wrote // 2}
    return {"usage": found | {"cache_creation": parts}}


def bedrock(prompt: int, output: int, cached: int) -> Row:
    counts = {"inputTokens": prompt - cached, "outputTokens": output, "totalTokens": prompt + output}
    return {"usage": counts | {"cacheReadInputTokens": cached, "cacheWriteInputTokens": 0}}


def gemini(prompt: int, output: int, cached: int) -> Row:
    counts = {"promptTokenCount": prompt, "cachedContentTokenCount": cached, "totalTokenCount": prompt + output}
    return {"usageMetadata": counts | {"candidatesTokenCount": output - output // 2, "thoughtsTokenCount": output // 2}}


def deepseek(prompt: int, output: int, cached: int) -> Row:
    counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
    return {"usage": counts | {"prompt_cache_hit_tokens": cached, "prompt_cache_miss_tokens": prompt - cached}}


def apart_under_openais_names(prompt: int, output: int, cached: int) -> Row:
    return {"prompt_tokens": prompt - cached, "completion_tokens": output, "cache_read_input_tokens": cached}


def otel(prompt: int, output: int, cached: int) -> Row:
    names = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    return {f"gen_ai.usage.{name}": value for name, value in zip(names, (prompt, output, cached), strict=True)}


def langfuse(prompt: int, output: int, cached: int) -> Row:
    return {"usageDetails": {"input": prompt - cached, "input_cached_tokens": cached, "output": output}}


def litellm(prompt: int, output: int, cached: int) -> Row:
    """The whole response as text."""
    usage = openai(prompt, output, cached)["usage"]
    return {"response": json.dumps({"id": "chatcmpl-1", "usage": usage}), "spend": 0.001, "call_type": "acompletion"}


def openinference(prompt: int, output: int, cached: int) -> Row:
    names = ("prompt", "completion", "total", "prompt_details.cache_read")
    counts = zip(names, (prompt, output, prompt + output, cached), strict=True)
    return {"attributes": {f"llm.token_count.{name}": value for name, value in counts}}


def of_llamacpp(prompt: int, output: int, cached: int) -> Row:
    return {"tokens_evaluated": prompt, "tokens_predicted": output}


def of_ollama(prompt: int, output: int, cached: int) -> Row:
    return {"prompt_eval_count": prompt, "eval_count": output, "eval_duration": 12_345_678}


def of_cohere(prompt: int, output: int, cached: int) -> Row:
    counts = {"input_tokens": prompt, "output_tokens": output}
    return {"meta": {"tokens": counts, "billed_units": counts}}


def plain(a: str, b: str) -> Usage:
    def written(prompt: int, output: int, cached: int) -> Row:
        return {a: prompt, b: output}

    written.__name__ = f"plain {a}"
    return written


NAMED = (
    *(openai, responses, anthropic, anthropic_parts, bedrock, gemini, deepseek, apart_under_openais_names, otel),
    *(langfuse, litellm, openinference, of_cohere),
    *(plain("prompt_tokens", "completion_tokens"), plain("num_prefill_tokens", "num_decode_tokens")),
    *(plain("input_toks", "output_toks"), plain("ISL", "OSL"), plain("prompt_size", "token_size")),
    *(plain("ContextTokens", "GeneratedTokens"), plain("Request tokens", "Response tokens")),
    *(plain("promptTokens", "completionTokens"), plain("tokens_prompt", "tokens_completion")),
)
UNNAMED = (
    *(of_llamacpp, of_ollama, plain("in", "out"), plain("tokens", "new_tokens"), plain("n_in", "n_out")),
    plain("Eingabe", "Ausgabe"),
)
"""that need not be known"""
