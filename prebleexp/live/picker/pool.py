"""The servers of an `InferencePool`: pods that it selects and that are ready, as the API of Kubernetes has them.

Pool and pods are read again and again, of the API server's own cache (`resourceVersion=0`), so that nothing is missed
where a watch would have broken off.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from prebleexp.errors import InvalidInput
from prebleexp.live.http.calls import Failed
from prebleexp.live.http.client import Client
from prebleexp.live.http.places import Origin, origin

LOG = logging.getLogger(__name__)
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""what a pod is given of its service account"""
VERSIONS = ("inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2")
"""of the API that has pools, the newest first"""
WITHIN_S = 10.0


class Unknown(Exception):
    """The API did not say who the pool's servers are."""


def api(given: str | None) -> Origin:
    """Of `kubernetes=`; by default of the cluster in which this runs. Raises InvalidInput outside of one."""
    if given:
        return origin("kubernetes", given)
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise InvalidInput("kubernetes= is missing, and this is no pod: give the API's URL, as that of kubectl proxy")
    return Origin("https", host, int(port))


def named(given: str) -> tuple[str, str]:
    """Namespace and name of `pool=`. Raises InvalidInput for what is none."""
    namespace, slash, name = given.rpartition("/")
    if not name or (slash and not namespace) or "/" in namespace:
        raise InvalidInput(f"pool={given} is not valid; it must be a name, or NAMESPACE/NAME")
    if not slash:
        file = ACCOUNT / "namespace"
        namespace = file.read_text(encoding="utf-8").strip() if file.exists() else "default"
    return namespace, name


class Pool:
    """`found` is called with the servers, in the order of their addresses, when they are others than before."""

    def __init__(
        self, client: Client, place: Origin, pool: tuple[str, str], found: Callable[[Sequence[Origin]], None]
    ) -> None:
        self._client, self._place, self._found = client, place, found
        self._namespace, self._name = map(quote, pool)
        self._known: Sequence[Origin] | None = None
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Once. Raises Unknown."""
        pool = await self._pool()
        try:
            port = pool["targetPorts"][0]["number"] if "targetPorts" in pool else pool["targetPortNumber"]
            labels = pool["selector"].get("matchLabels", pool["selector"])
            chosen = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            path = f"/api/v1/namespaces/{self._namespace}/pods?resourceVersion=0&labelSelector={quote(chosen)}"
            pods = (await self._get(path))["items"]
            servers = sorted(Origin("http", one["status"]["podIP"], int(port)) for one in pods if _is_ready(one))
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise Unknown(f"the API's answer is not understood: {error!r}") from None
        if servers != self._known:
            self._known = servers
            self._found(servers)

    def begin(self, every_s: float) -> None:
        self._task = asyncio.get_running_loop().create_task(self._go_on(every_s))

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _go_on(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            try:
                await self.look()
            except Unknown as error:
                if not self._failing:
                    LOG.warning("pool %s: %s; its servers stay as they were", self._name, error)
                self._failing = True
            else:
                self._failing = False

    async def _pool(self) -> Any:
        """Its `spec`."""
        for version in VERSIONS:
            path = f"/apis/{version}/namespaces/{self._namespace}/inferencepools/{self._name}"
            found = await self._get(path, missing=True)
            if found is not None:
                return found["spec"]
        raise Unknown(f"there is no InferencePool {self._name} in namespace {self._namespace}")

    async def _get(self, path: str, missing: bool = False) -> Any:
        token = ACCOUNT / "token"  # it is another after an hour
        fields = [(b"accept", b"application/json")]
        if token.exists():
            fields.append((b"authorization", b"Bearer " + token.read_bytes().strip()))
        try:
            reply = await self._client.fetch(self._place, path, headers=fields, within_s=WITHIN_S)
        except Failed as error:
            raise Unknown(f"{self._place} does not answer: {error}") from None
        if reply.status == 404 and missing:
            return None
        if reply.status != 200:
            raise Unknown(f"{self._place} says {reply.status} to {path}")
        try:
            return msgspec.json.decode(reply.body)
        except msgspec.DecodeError:
            raise Unknown(f"{self._place} says no JSON to {path}") from None


def _is_ready(pod: Any) -> bool:
    """Whether it serves, and is not about to end."""
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions") or ()}
    return bool(
        pod["status"].get("podIP")
        and conditions.get("Ready") == "True"
        and "deletionTimestamp" not in pod.get("metadata", {})
    )
