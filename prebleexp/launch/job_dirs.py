"""`job_dirs=true`: what Hydra records of every job (its configuration, Hydra's, its overrides), and what came out.

The folders are where `hydra.sweep.dir`, `hydra.sweep.subdir` and `hydra.output_subdir` say; a JSON file is added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from prebleexp.experiment.results import Result
from prebleexp.launch.compose import as_current
from prebleexp.launch.rows import means


def folder_of(cfg: DictConfig) -> Path:
    """The folder of a sweep, in which its jobs leave records."""
    return Path(str(cfg.hydra.sweep.dir)).expanduser()


def record(cfg: DictConfig, sweep: DictConfig, common: Mapping[str, Any]) -> Path:
    """Write the records of a job, as `hydra.core.utils.run_job` does, and return the job's folder.

    `common` are values of the configuration in place of those composed.
    """
    OmegaConf.copy_cache(from_config=sweep, to_config=cfg)  # the same time for all jobs
    for key, value in common.items():
        OmegaConf.update(cfg, key, value, merge=False, force_add=True)
    with as_current(cfg):
        folder = folder_of(cfg) / str(cfg.hydra.sweep.subdir)
    with read_write(cfg.hydra.runtime), open_dict(cfg.hydra.runtime):
        cfg.hydra.runtime.output_dir = str(folder.absolute())
    folder.mkdir(parents=True, exist_ok=True)
    if cfg.hydra.output_subdir is not None:
        records = folder / str(cfg.hydra.output_subdir)
        records.mkdir(parents=True, exist_ok=True)
        own = OmegaConf.masked_copy(cfg, [str(key) for key in cfg if key != "hydra"])
        OmegaConf.save(own, records / "config.yaml")
        OmegaConf.save(OmegaConf.masked_copy(cfg, "hydra"), records / "hydra.yaml")
        OmegaConf.save(cfg.hydra.overrides.task, records / "overrides.yaml")
    return folder


def conclude(folder: Path, results: Sequence[Result]) -> None:
    """Write what came out of a job: the keys of its runs, means over those that succeeded, errors of the others."""
    found = means([result.metrics for result in results if result.metrics is not None])
    outcome = {
        "keys": [result.key for result in results],
        "metrics": {metric: value and value[0] for metric, value in found.items()},
        "errors": [f"{result.error.type}: {result.error.message}" for result in results if result.error is not None],
    }
    (folder / "result.json").write_text(json.dumps(outcome, indent=1) + "\n", encoding="utf-8")
