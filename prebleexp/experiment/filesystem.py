"""What to know about the file system that a cache folder is on."""

from __future__ import annotations

import os
from pathlib import Path

NETWORK = {"nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "ceph", "glusterfs", "beegfs", "gpfs", "afs", "fuse.sshfs"}


def remark(folder: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str | None:
    """A line for people, if there is something to say. `mounts` is Linux's list; elsewhere nothing is known."""
    kind = _kind(folder, mounts)
    if kind not in NETWORK:
        return None
    return (
        f"cache folder {folder} is on {kind}: runs are safe there; sweeps on several machines compute none twice if it "
        "has locks; keep the database prebleexp.duckdb to one machine"
    )


def _kind(folder: Path, mounts: Path) -> str | None:
    try:
        device = folder.stat().st_dev
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            return source.split()[0]
    return None
