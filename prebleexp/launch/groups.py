"""Groups of a cluster as they are written, each with how its GPUs differ, made whole: each with all of its hardware,
and of its engine, if that differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prebleexp.errors import InvalidInput
from prebleexp.launch.parts import key_of

GROUP = "prebleexp.cluster.groups.Group"
SIZES = ("gpus", "replicas")
"""how many a group has, by either"""


def made_whole(
    values: dict[str, Any], overrides: Sequence[str], of: Callable[[str, Sequence[str]], Mapping[str, Any]]
) -> None:
    """Put in place of each group one with the `hardware` that the overrides and its own words make together.

    Likewise the router of outputs, if it has words, and the hardware that slowdowns are against. Raises InvalidInput,
    naming the group, for what is no group.
    """
    slo = values.get("slo")
    if isinstance(slo, Mapping) and slo.get("alone_on") is not None:
        values["slo"] = {**slo, "alone_on": _alone_on(slo["alone_on"], overrides, of)}
    cluster = values.get("cluster")
    if isinstance(cluster, Mapping) and cluster.get("decode_policy") is not None:
        cluster = {**cluster, "decode_policy": _policy(cluster["decode_policy"], overrides, of)}
        values["cluster"] = cluster
    if not isinstance(cluster, Mapping) or not cluster.get("groups"):
        return
    groups = cluster["groups"]
    if not isinstance(groups, list):
        raise InvalidInput(f"cluster.groups={groups} is not valid; it must be a list of groups")
    whole = []
    for i, group in enumerate(groups):
        words = _words(f"cluster.groups[{i}]", group)
        hardware = _hardware({key: one for key, one in words.items() if _is_of(key, "hardware")}, overrides, of)
        engine = _engine({key: one for key, one in words.items() if _is_of(key, "engine")}, overrides, of)
        role = {} if group.get("role") is None else {"role": group["role"]}
        sizes = {name: group.get(name) for name in SIZES}
        whole.append({"_target_": GROUP, **sizes, "hardware": hardware, **role, **engine})
    values["cluster"] = {**cluster, "groups": whole}


def _hardware(
    words: Mapping[str, Any], overrides: Sequence[str], of: Callable[[str, Sequence[str]], Mapping[str, Any]]
) -> Any:
    given = words.get("hardware")
    if isinstance(given, Mapping):
        if "_target_" not in given:
            said = ", ".join(f"{key}: {value}" for key, value in given.items())
            raise InvalidInput(f"hardware={{{said}}} of a group is not valid; say it in the group: {{gpus: 4, {said}}}")
        return given  # as it is in the cache: whole
    others = [line for line in overrides if key_of(line) not in words and not _is_of(line, "cluster")]
    return of("hardware", [*others, *(f"{key}={_text(value)}" for key, value in words.items())])


def _engine(
    words: Mapping[str, Any], overrides: Sequence[str], of: Callable[[str, Sequence[str]], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """What a group has of it, if anything."""
    if not words:
        return {}
    given = words.get("engine")
    if isinstance(given, Mapping) and "_target_" in given:  # as it is in the cache: whole
        return {"engine": given}
    others = [line for line in overrides if key_of(line) not in words and not _is_of(line, "cluster")]
    return {"engine": of("engine", [*others, *(f"{key}={_text(value)}" for key, value in words.items())])}


def _alone_on(given: object, overrides: Sequence[str], of: Callable[[str, Sequence[str]], Mapping[str, Any]]) -> Any:
    if isinstance(given, Mapping) and "_target_" in given:  # as it is in the cache: whole
        return given
    if not isinstance(given, Mapping) or not given or not all(_is_of(str(key), "hardware") for key in given):
        raise InvalidInput(f"slo.alone_on={given} is not valid; it must be hardware, as {{hardware/gpu: a100}}")
    return _hardware({str(key): value for key, value in given.items()}, overrides, of)


def _policy(given: object, overrides: Sequence[str], of: Callable[[str, Sequence[str]], Mapping[str, Any]]) -> Any:
    if isinstance(given, Mapping) and "_target_" in given:  # as it is in the cache: whole
        return given
    words = given if isinstance(given, Mapping) else {"policy": given}
    if not isinstance(words.get("policy"), str) or not all(_is_of(str(key), "policy") for key in words):
        example = "a policy such as lor, or {policy: random, policy.seed: 3}"
        raise InvalidInput(f"cluster.decode_policy={given} is not valid; it must be {example}")
    others = [line for line in overrides if not _is_of(line, "policy") and not _is_of(line, "cluster")]
    return of("policy", [*others, *(f"{key}={_text(value)}" for key, value in words.items())])


def _words(name: str, group: object) -> dict[str, Any]:
    """What is said of the hardware and the engine."""
    example = "a group such as {gpus: 8, hardware/gpu: h200}"
    if not isinstance(group, Mapping) or not set(SIZES) & set(group):
        raise InvalidInput(f"{name}={group} is not valid; it must be {example}")
    words = {str(key): value for key, value in group.items() if key not in (*SIZES, "role")}
    for key in words:
        if not _is_of(key, "hardware") and not _is_of(key, "engine"):
            raise InvalidInput(f"unknown key {key!r} in {name}; it must be {example}")
    return words


def _is_of(key: str, group: str) -> bool:
    return key.lstrip("+~").replace("/", ".").partition("=")[0].split(".")[0] == group


def _text(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
