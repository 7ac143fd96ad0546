"""A manifest for Kubernetes: a StatefulSet of servers for each role, whose pods have names of their own, their
Services, and the router where it is a container."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from prebleexp.experiment.cell import Cell
from prebleexp.hardware.composed import Composed
from prebleexp.recommending.deployment import routers, serving
from prebleexp.recommending.deployment.routers import Router
from prebleexp.recommending.deployment.serving import Server
from prebleexp.recommending.designs import WHOLE

NAME = "llm"
PRODUCTS = {
    "a100": "NVIDIA-A100-SXM4-80GB",
    "a40": "NVIDIA-A40",
    "b200": "NVIDIA-B200",
    "b300": "NVIDIA-B300",
    "h100": "NVIDIA-H100-80GB-HBM3",
    "h200": "NVIDIA-H200",
    "l40s": "NVIDIA-L40S",
    "rtxpro6000": "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition",
}
"""what NVIDIA's GPU feature discovery labels nodes with"""
LABEL = "app.kubernetes.io/name"
START_S = 10
TRIES = 180
"""half an hour, in which weights are loaded"""


def pools(cell: Cell) -> dict[str, int]:
    """Replicas by role, prefill or decode; of a cluster without roles all under one name."""
    if not cell.cluster.has_roles:
        return {WHOLE: cell.replicas}
    return {str(group.role): group.replicas for group in cell.cluster.groups}


def name_of(role: str) -> str:
    return NAME if role == WHOLE else f"{NAME}-{role}"


def urls(cell: Cell) -> dict[str, list[str]]:
    """Of each pod, within the cluster."""
    return {
        role: [f"http://{name_of(role)}-{i}.{name_of(role)}-pods:{serving.PORT}" for i in range(count)]
        for role, count in pools(cell).items()
    }


def manifest(cell: Cell, router: Router) -> str:
    """YAML, an object after the other."""
    return yaml.safe_dump_all(list(_objects(cell, router)), sort_keys=False)


def _objects(cell: Cell, router: Router) -> Iterator[dict[str, Any]]:
    for role, count in pools(cell).items():
        server = serving.server(cell, None if role == WHOLE else role)
        name = name_of(role)
        yield _service(f"{name}-pods", name, serving.PORT, headless=True)
        yield _service(name, name, serving.PORT)
        yield _servers(cell, server, name, count)
    if router.command:
        name = f"{NAME}-router"
        yield _service(name, name, router.port)
        yield _router(router, name, routers.with_workers(router.command, urls(cell)))


def _service(name: str, selects: str, port: int, *, headless: bool = False) -> dict[str, Any]:
    spec: dict[str, Any] = {"clusterIP": "None", "publishNotReadyAddresses": True} if headless else {}
    spec |= {"selector": {LABEL: selects}, "ports": [{"name": "http", "port": port, "targetPort": "http"}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(name), "spec": spec}


def _servers(cell: Cell, server: Server, name: str, count: int) -> dict[str, Any]:
    hardware = cell.hardware
    assert isinstance(hardware, Composed)
    gpus = str(hardware.gpus_per_replica)
    probe = {"httpGet": {"path": server.health, "port": "http"}}
    container = {
        "name": "server",
        "image": server.image,
        "command": list(server.command),
        "env": [
            {
                "name": "HF_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "HF_TOKEN", "optional": True}},
            }
        ],
        "ports": [{"name": "http", "containerPort": serving.PORT}],
        "resources": {"requests": {"nvidia.com/gpu": gpus}, "limits": {"nvidia.com/gpu": gpus}},
        "startupProbe": {**probe, "periodSeconds": START_S, "failureThreshold": TRIES},
        "readinessProbe": {**probe, "periodSeconds": START_S},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 -- where NCCL's processes meet
    }
    pod: dict[str, Any] = {
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}}],
    }
    product = PRODUCTS.get(hardware.gpu_name)
    if product is not None:
        pod["nodeSelector"] = {"nvidia.com/gpu.product": product}
    spec = {
        "serviceName": f"{name}-pods",
        "replicas": count,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": {LABEL: name}},
        "template": {"metadata": {"labels": _labels(name)}, "spec": pod},
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": _metadata(name), "spec": spec}


def _router(router: Router, name: str, command: list[str]) -> dict[str, Any]:
    container = {
        "name": "router",
        "image": router.image,
        "command": command,
        "ports": [{"name": "http", "containerPort": router.port}],
    }
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": {LABEL: name}},
        "template": {"metadata": {"labels": _labels(name)}, "spec": {"containers": [container]}},
    }
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(name), "spec": spec}


def _metadata(name: str) -> dict[str, Any]:
    return {"name": name, "labels": _labels(name)}


def _labels(name: str) -> Mapping[str, str]:
    return {LABEL: name, "app": NAME}
