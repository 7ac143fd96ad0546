"""The files of a recommendation: a folder for each candidate, with what starts its servers and its router."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from prebleexp.errors import InvalidInput
from prebleexp.experiment import durable
from prebleexp.experiment.cell import Cell
from prebleexp.recommending.candidates import Candidate
from prebleexp.recommending.deployment import kubernetes, model_names, routers, serving
from prebleexp.recommending.designs import WHOLE
from prebleexp.report import stored

MANIFEST = "kubernetes.yaml"


def of(cell: Cell, about: str) -> dict[str, str]:
    """By their names. Raises InvalidInput for what is no product."""
    router = routers.router(cell)
    found: dict[str, str] = {}
    notes: list[str] = []
    for role in kubernetes.pools(cell):
        server = serving.server(cell, None if role == WHOLE else role)
        notes += [one for one in server.notes if one not in notes]
        found["serve.sh" if role == WHOLE else f"serve-{role}.sh"] = f"#!/bin/sh\n# one replica\nexec {server.script}\n"
    if router.command:
        command = routers.with_workers(router.command, kubernetes.urls(cell))
        found["router.sh"] = f"#!/bin/sh\n# in front of all replicas\nexec {serving.shell(command)}\n"
    found |= router.files
    found[MANIFEST] = kubernetes.manifest(cell, router)
    found["README.md"] = _readme(cell, about, router, notes, sorted(found))
    return found


def _readme(cell: Cell, about: str, router: routers.Router, notes: Sequence[str], names: Sequence[str]) -> str:
    parts = [_servers(role, count) for role, count in kubernetes.pools(cell).items()]
    said = stored.formats(cell.hardware)
    kept = f": {said}" if said else ""
    refused = stored.refused(cell.hardware)
    notes = [*([refused] if refused else []), *notes]
    lines = [
        f"# {about}",
        "",
        f"{' and '.join(parts)} of {cell.hardware.title}{kept}.",
        "",
        f"Router: policy={cell.called('policy')}. {router.sentence}",
        "",
        f"    kubectl apply -f {MANIFEST}",
        "",
        "It was written from a simulation and never applied: look at the images, the labels of nodes and the secret "
        "`hf-token` first.",
        "",
        f"{model_names.sentence([cell], '`')}.",
    ]
    if notes:
        lines += ["", *(f"- {one[0].upper() if not one.startswith('--') else one[0]}{one[1:]}." for one in notes)]
    return "\n".join([*lines, "", f"Files: {', '.join(names)}.", ""])


def _servers(role: str, count: int) -> str:
    """ "4 servers", "1 prefill server" """
    return f"{count} {'' if role == WHOLE else f'{role} '}server{'' if count == 1 else 's'}"


def write(folder: Path, candidates: Sequence[Candidate]) -> list[Path]:
    """A folder in `folder` for each candidate, numbered as they are ordered; what was there is replaced. Raises
    InvalidInput if it cannot be written."""
    written = []
    try:
        if folder.is_dir():
            shutil.rmtree(folder)
        for i, one in enumerate(candidates, 1):
            own = folder / f"{i}-{slug(one)}"
            own.mkdir(parents=True)
            for name, text in of(one.cell, one.point.name).items():
                durable.write(own / name, text.encode())
            written.append(own)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be written: {error}") from None
    return written


def slug(one: Candidate) -> str:
    """A folder's name, such as 4-h100-tp2-split-llmd; without a router its last part is missing."""
    at = one.design.at
    roles, router = "" if at["roles"] == WHOLE else "-split", f"-{one.router}" if one.router else ""
    return f"{one.cell.gpus}-{at['gpu']}-tp{at['tensor_parallel']}{roles}{router}".replace("_", "-")
