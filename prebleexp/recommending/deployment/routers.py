"""A policy as a router that is deployed: its command or settings, and how near they are to what was simulated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import yaml

from prebleexp.experiment.cell import Cell
from prebleexp.recommending.designs import WHOLE


class How(Enum):
    SAME = "the same rule"
    NEAREST = "the nearest there is, and another rule"
    NONE = "no router that we know has it"


@dataclass(frozen=True)
class Router:
    """What is put in front of the replicas. Its `command` runs in a container of `image`; {workers} stands for what
    follows from the replicas' names."""

    product: str
    how: How
    says: str
    command: tuple[str, ...] = ()
    image: str = ""
    port: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    """by their names, what else it reads"""

    @property
    def sentence(self) -> str:
        return f"{self.product}: {self.how.value}. {self.says}".strip()


Fields = Mapping[str, Any]
SGLANG, VLLM = "SGLang's router (sglang-router 0.3.2)", "vLLM's router (vllm-router 0.1.17)"
IMAGES = {"sglang": "lmsysorg/sgl-model-gateway:v0.3.2", "vllm": "vllm/vllm-router:v0.1.17"}
TREE = ("cache_threshold", "balance_abs_threshold", "balance_rel_threshold", "eviction_interval_secs", "max_tree_size")
FIELDS_OF_SGLANG: Mapping[str, Mapping[str, str]] = {
    "cache_aware": {name: f"--{name.replace('_', '-')}" for name in TREE},
    "manual": {
        "assignment_mode": "--assignment-mode",
        "max_idle_secs": "--max-idle-secs",
        "eviction_interval_secs": "--eviction-interval-secs",
    },
}
"""that are flags of the router"""
OF_THE_BINARY = ("prefix_hash", "consistent_hashing")
PORT = 30_000
LISTENS = ("--host", "0.0.0.0", "--port", str(PORT))  # noqa: S104 -- within a pod
AIBRIX = {
    "aibrix_least_kv_cache": "least-kv-cache",
    "aibrix_least_request": "least-request",
    "aibrix_prefix_cache": "prefix-cache",
    "aibrix_prefix_cache_preble": "prefix-cache-preble",
}
CLOSED = (
    "It asks vLLM for a prompt's tokens, which vLLM gives only with --enable-scale-out. Without that flag the router "
    "sends by load alone, and logs nothing."
)
LIKE_LOR = "of the requests that were sent and are not finished, as lor does"
RESEARCH = {
    "e2": "PREBLE's scheduler is a research release",
    "e2_released": "PREBLE's scheduler is a research release",
    "mooncake": "Mooncake's conductor is not public",
}


def router(cell: Cell) -> Router:
    """What has a cell's policy, or is nearest to it."""
    name, split = cell.called("policy"), cell.cluster.has_roles
    if cell.replicas == 1:
        return Router("the Service in kubernetes.yaml", How.SAME, "There is one replica, so there is nothing to route.")
    fields = cell.columns()
    own = {key.removeprefix("policy."): value for key, value in fields.items() if key.startswith("policy.")}
    for prefix, make in MADE.items():
        if name == prefix or (prefix.endswith("_") and name.startswith(prefix)):
            return make(name, own, cell, split)
    why = RESEARCH.get(name, f"{name} is a rule of research, or your own")
    says = (
        f"{why}. Dynamo's KV router weighs cached prefixes against load too, and is started here; simulate it first: "
        "policy=dynamo_kv."
    )
    return replace(_dynamo("dynamo_kv", {}, cell, split), how=How.NONE, says=says)


def _sglang(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    policy = name.removeprefix("sglang_")
    flags = _flags(own, FIELDS_OF_SGLANG.get(policy, {}))
    parts = ["--pd-disaggregation", "{workers}"] if split else ["{workers}"]
    start: tuple[str, ...] = ("python3", "-m", "sglang_router.launch_router")
    says = ""
    if policy in OF_THE_BINARY:
        start = ("smg", "launch")
        says = f"The Python launcher of 0.3.2 does not take {policy}: this is the router's own binary."
    command = (*start, "--policy", policy, *flags, *parts, *LISTENS)
    return Router(SGLANG, How.SAME, says, command, IMAGES["sglang"], PORT)


def _plain(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    return _sglang(f"sglang_{name}", own, cell, split)


def _vllm(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    policy = name.removeprefix("vllm_")
    flags = _flags(own, {one: f"--{one.replace('_', '-')}" for one in TREE} if policy == "cache_aware" else {})
    parts = ["--vllm-pd-disaggregation", "{workers}"] if split else ["{workers}"]
    command = ("vllm-router", "--policy", policy, *flags, *parts, *LISTENS)
    says = CLOSED if policy == "cache_aware" else ""
    return Router(VLLM, How.SAME, says, command, IMAGES["vllm"], PORT)


def _dplb(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    count = cell.replicas
    return Router(
        "vLLM's own balancer of data-parallel engines",
        How.SAME,
        f"Start one server with --data-parallel-size {count} in place of {count} servers.",
    )


def _service(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    if split:
        says = "A Service alone cannot send a prompt to one pod and its output to another: the router draws both."
        return replace(_vllm("vllm_random", {}, cell, split), how=How.NEAREST, says=says)
    return Router("the Service in kubernetes.yaml", How.SAME, "Nothing else is started: kube-proxy draws a pod.")


def _lor(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    return Router(
        "AIBrix's gateway, least-request",
        How.SAME,
        f"It takes the pod with the fewest {LIKE_LOR}; of equals one is drawn.",
        files={"request-header.txt": "routing-strategy: least-request\n"},
    )


def _aibrix(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    strategy = AIBRIX[name]
    names = {
        "block_size": "AIBRIX_PREFIX_CACHE_BLOCK_SIZE",
        "block_number": "AIBRIX_PREFIX_CACHE_BLOCK_NUMBER",
        "eviction_duration_mins": "AIBRIX_PREFIX_CACHE_EVICTION_DURATION_MINS",
        "imbalance_abs_count": "AIBRIX_PREFIX_CACHE_POD_RUNNING_REQUEST_IMBALANCE_ABS_COUNT",
        "standard_deviation_factor": "AIBRIX_PREFIX_CACHE_STANDARD_DEVIATION_FACTOR",
    }
    env = [f"{names[one]}={own[one]:g}" for one in names if one in own and strategy == "prefix-cache"]
    files = {"request-header.txt": f"routing-strategy: {strategy}\n"}
    if env:
        files["gateway-plugins.env"] = "\n".join(env) + "\n"
    return Router(
        "AIBrix's gateway",
        How.SAME,
        "Requests name the strategy in a header; the gateway's plugins read the environment.",
        files=files,
    )


def _kubeai(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    balancing: dict[str, Any] = {"strategy": "LeastLoad"}
    if name == "kubeai_chwbl":
        balancing = {
            "strategy": "PrefixHash",
            "prefixHash": {
                "meanLoadFactor": int(own["mean_load_percentage"]),
                "replication": int(own["replication"]),
                "prefixCharLength": int(own["prefix_char_length"]),
            },
        }
    patch = {"apiVersion": "kubeai.org/v1", "kind": "Model", "metadata": {"name": "model"}}
    text = yaml.safe_dump({**patch, "spec": {"loadBalancing": balancing}}, sort_keys=False)
    says = "KubeAI starts the servers itself: put spec.loadBalancing into the Model that it has of them."
    return Router("KubeAI", How.SAME, says, files={"kubeai-model.yaml": text})


def _production_stack(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    logic = name.removeprefix("production_stack_")
    flags = ["--session-key", "x-user-id"] if logic == "session" else []
    command = ("vllm-router", "--service-discovery", "k8s", "--routing-logic", logic, *flags, "--port", str(PORT))
    says = "The session is read from a header, x-user-id here." if flags else ""
    return Router("vLLM production-stack's router", How.SAME, says, command, "lmcache/lmstack-router:v0.1.9", PORT)


def _dynamo(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    flags = {
        "overlap_score_credit": "--router-kv-overlap-score-credit",
        "prefill_load_scale": "--router-prefill-load-scale",
        "router_temperature": "--router-temperature",
        "block_size": "--kv-cache-block-size",
    }
    given = [part for key, flag in flags.items() if key in own for part in (flag, _text(own[key]))]
    given += ["--no-router-kv-events"] if own.get("use_kv_events") is False else []
    command = ("python3", "-m", "dynamo.frontend", "--router-mode", "kv", *given, "--http-port", str(PORT))
    says = (
        "Its workers are started by Dynamo: python3 -m dynamo.vllm, or dynamo.sglang, with the flags of serve.sh. "
        "Check the flags against the version that you run: they change names."
    )
    image = "nvcr.io/nvidia/ai-dynamo/dynamo-frontend:1.6.1"
    return Router("NVIDIA Dynamo's frontend (1.6.1)", How.SAME, says, command, image, PORT)


def _llmd(name: str, own: Fields, cell: Cell, split: bool) -> Router:
    return Router(
        "llm-d's endpoint picker (0.10.0)",
        How.SAME,
        "endpoint-picker.yaml is its configuration: put it into the chart of llm-d's router; its InferencePool selects "
        "the pods of kubernetes.yaml by their label app.",
        files={"endpoint-picker.yaml": _picker(cell, split, precise=name == "llmd_precise")},
    )


def _picker(cell: Cell, split: bool, *, precise: bool) -> str:
    policy: Any = cell.policy
    weights = {scorer: weight for scorer, weight in policy.scorers if weight}
    prefix = {
        "blockSizeTokens": policy.block_size,
        "maxPrefixBlocksToMatch": policy.max_prefix_blocks,
        "lruCapacityPerServer": policy.lru_capacity,
    }
    called = {"prefix-cache-scorer": "precise-prefix-cache-scorer"} if precise else {}
    plugins: list[dict[str, Any]] = []
    for scorer in weights:
        plugin: dict[str, Any] = {"type": called.get(scorer, scorer)}
        if scorer == "prefix-cache-scorer":
            events = {"tokenProcessorConfig": {"blockSize": policy.block_size}}
            plugin["parameters"] = {"indexerConfig": events} if precise else prefix
        plugins.append(plugin)
    filters = []
    if policy.affinity_threshold:
        affinity = {
            "affinityThreshold": policy.affinity_threshold,
            "maxTokensInFlightPenalty": policy.max_tokens_in_flight_penalty,
        }
        plugins.append({"type": "prefix-cache-affinity-filter", "parameters": affinity})
        filters.append({"pluginRef": "prefix-cache-affinity-filter"})
    picker = f"{policy.picker}-picker"
    plugins.append({"type": picker})
    scored = [{"pluginRef": called.get(scorer, scorer), "weight": weight} for scorer, weight in weights.items()]
    chosen = [*filters, *scored, {"pluginRef": picker}]
    profiles = [{"name": "default", "plugins": chosen}]
    if split:
        plugins = [{"type": "prefill-filter"}, {"type": "decode-filter"}, *plugins, {"type": "pd-profile-handler"}]
        profiles = [
            {"name": role, "plugins": [{"pluginRef": f"{role}-filter"}, *chosen]} for role in ("prefill", "decode")
        ]
    else:
        plugins.append({"type": "single-profile-handler"})
    config = {
        "apiVersion": "inference.networking.x-k8s.io/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": profiles,
    }
    return yaml.safe_dump(config, sort_keys=False)


def _flags(own: Fields, names: Mapping[str, str]) -> list[str]:
    return [part for key, flag in names.items() if own.get(key) is not None for part in (flag, _text(own[key]))]


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) and value < 1e6 else str(value)


MADE: Mapping[str, Callable[[str, Fields, Cell, bool], Router]] = {
    "kubernetes_service": _service,
    "lor": _lor,
    "random": _plain,
    "round_robin": _plain,
    "vllm_dplb": _dplb,
    "sglang_": _sglang,
    "vllm_": _vllm,
    "aibrix_": _aibrix,
    "kubeai_": _kubeai,
    "production_stack_": _production_stack,
    "dynamo_": _dynamo,
    "llmd": _llmd,
    "llmd_": _llmd,
}
"""by the name of an option, or how it begins"""


def with_workers(command: Sequence[str], urls: Mapping[str, Sequence[str]]) -> list[str]:
    """A router's command with the addresses of replicas, by their role, in place of {workers}."""
    if WHOLE in urls:
        found = ["--worker-urls", *urls[WHOLE]]
    else:
        found = [part for role in ("prefill", "decode") for url in urls[role] for part in (f"--{role}", url)]
    return [part for word in command for part in (found if word == "{workers}" else [word])]
