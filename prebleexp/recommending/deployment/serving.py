"""How an engine is started that serves as a simulated replica does: flags of vLLM (0.33.0) or SGLang (0.5.23)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prebleexp.engines.sglang.engine import SGLang
from prebleexp.engines.vllm.engine import VLLM
from prebleexp.errors import InvalidInput
from prebleexp.experiment.cell import Cell
from prebleexp.hardware.composed import Composed
from prebleexp.recommending.deployment.model_names import FLAG, called
from prebleexp.report.stored import serves_kv

PORT = 8000
HUB = {
    "bloom-176b": "bigscience/bloom",
    "deepseek-r1": "deepseek-ai/DeepSeek-R1",
    "gemma-3-12b": "google/gemma-3-12b-it",
    "gemma-3-27b": "google/gemma-3-27b-it",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "gpt-oss-20b": "openai/gpt-oss-20b",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "llama-2-7b": "meta-llama/Llama-2-7b-chat-hf",
    "llama-3.1-70b": "meta-llama/Llama-3.1-70B-Instruct",
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B-Instruct",
    "llama-4-scout": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "llama2-70b": "meta-llama/Llama-2-70b-chat-hf",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "mistral-nemo": "mistralai/Mistral-Nemo-Instruct-2407",
    "opt-13b": "facebook/opt-13b",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B-Instruct",
    "qwen3-235b": "Qwen/Qwen3-235B-A22B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "yi-34b": "01-ai/Yi-34B-Chat",
}
"""Hugging Face's names of the models"""
ASKS_FOR_TOKENS = "vllm_cache_aware"
"""a router that asks engines which tokens a prompt has, at a path that vLLM closes unless it is told otherwise"""
WEIGHTS = {
    "fp8": "a checkpoint that is FP8 itself needs no --quantization",
    "fp4": "the checkpoint must be NVFP4: none is made when it is loaded",
    "int4": "the checkpoint must be 4 bits, by AWQ or GPTQ: none is made when it is loaded",
}


@dataclass(frozen=True)
class Server:
    """The image and command that serve one replica."""

    image: str
    command: tuple[str, ...]
    health: str
    """path that answers once it serves"""
    notes: tuple[str, ...]

    @property
    def script(self) -> str:
        """The command, as a shell script has it."""
        return shell(self.command)


def server(cell: Cell, role: str | None = None) -> Server:
    """One of a cell's replicas, or of those that have a role. Raises InvalidInput for engines and hardware that are
    nobody's product."""
    name, hardware = called(cell), cell.hardware
    assert isinstance(hardware, Composed)
    if isinstance(cell.engine, VLLM):
        return _vllm(cell.engine, hardware, name, role, cell.called("policy"))
    if isinstance(cell.engine, SGLang):
        return _sglang(cell.engine, hardware, name, role)
    raise InvalidInput(f"engine={cell.called('engine')} is not deployed; take engine=vllm or engine=sglang")


def _vllm(engine: VLLM, hardware: Composed, name: str, role: str | None, policy: str) -> Server:
    model, notes = _model(hardware)
    if hardware.data_parallel_size > 1:
        raise InvalidInput(
            f"hardware.data_parallel_size={hardware.data_parallel_size} is not deployed: a router would have to know "
            "each rank; take 1"
        )
    flags = [
        *("--port", str(PORT), FLAG, name),
        *("--tensor-parallel-size", str(hardware.tensor_parallel)),
        *(("--pipeline-parallel-size", str(hardware.stages)) if hardware.stages > 1 else ()),
        *(("--enable-expert-parallel",) if hardware.enable_expert_parallel else ()),
        *("--max-model-len", str(hardware.context_length)),
        *("--gpu-memory-utilization", f"{hardware.utilisation:g}"),
        *("--block-size", str(engine.block_size)),
        *_quantised(hardware, "--quantization"),
        *(("--kv-cache-dtype", "fp8") if hardware.kv_precision == "fp8" and serves_kv(hardware) else ()),
    ]
    for flag, value in (
        ("--max-num-batched-tokens", engine.max_num_batched_tokens),
        ("--max-num-seqs", engine.max_num_seqs),
    ):
        if value is None:
            notes.append(f"{flag} is left to vLLM, whose own default for this GPU was simulated")
        else:
            flags += [flag, str(value)]
    flags += [] if engine.enable_prefix_caching else ["--no-enable-prefix-caching"]
    flags += [] if engine.enable_chunked_prefill else ["--no-enable-chunked-prefill"]
    flags += [] if engine.async_scheduling else ["--no-async-scheduling"]
    flags += [] if engine.scheduling_policy == "fcfs" else ["--scheduling-policy", engine.scheduling_policy]
    if engine.long_prefill_token_threshold:
        flags += ["--long-prefill-token-threshold", str(engine.long_prefill_token_threshold)]
    flags += ["--enable-scale-out"] if policy == ASKS_FOR_TOKENS else []
    if role is not None:
        flags += ["--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_both"}']
    return Server("vllm/vllm-openai:v0.33.0", ("vllm", "serve", model, *flags), "/health", tuple(notes))


def _sglang(engine: SGLang, hardware: Composed, name: str, role: str | None) -> Server:
    model, notes = _model(hardware)
    flags = [
        *("--model-path", model, "--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104 -- within a pod
        *(FLAG, name, "--tp-size", str(hardware.tensor_parallel)),
        *(("--ep-size", str(hardware.tensor_parallel)) if hardware.enable_expert_parallel else ()),
        *("--context-length", str(hardware.context_length)),
        *("--mem-fraction-static", f"{hardware.utilisation:g}"),
        *("--schedule-policy", engine.schedule_policy),
        *("--schedule-conservativeness", f"{engine.schedule_conservativeness:g}"),
        *_quantised(hardware, "--quantization"),
        *(("--kv-cache-dtype", "fp8_e4m3") if hardware.kv_precision == "fp8" and serves_kv(hardware) else ()),
    ]
    for flag, value in (
        ("--chunked-prefill-size", engine.chunked_prefill_size),
        ("--max-running-requests", engine.max_running_requests),
    ):
        if value is None:
            notes.append(f"{flag} is left to SGLang, whose own default for this GPU was simulated")
        else:
            flags += [flag, str(value)]
    flags += ["--disable-overlap-schedule"] if engine.disable_overlap_schedule else []
    flags += [] if role is None else ["--disaggregation-mode", role]
    command = ("python3", "-m", "sglang.launch_server", *flags)
    return Server("lmsysorg/sglang:v0.5.23", command, "/health", tuple(notes))


def _model(hardware: Composed) -> tuple[str, list[str]]:
    name = hardware.model.name
    notes = [WEIGHTS[hardware.precision]] if hardware.precision in WEIGHTS else []
    if name not in HUB:
        notes.append(f"say where {name} is to be had, in place of its name")
    return HUB.get(name, name), notes


def _quantised(hardware: Composed, flag: str) -> tuple[str, ...]:
    return (flag, "fp8") if hardware.precision == "fp8" else ()


def shell(command: Sequence[str]) -> str:
    """A command for a shell, a flag a line."""
    import shlex

    lines: list[list[str]] = [[]]
    for word in command:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    return " \\\n    ".join(" ".join(line) for line in lines if line)
