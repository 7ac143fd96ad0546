"""From names and numbers to cells: what `python -m prebleexp` and `prebleexp.run` mean by their arguments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prebleexp.checks import flag, integer, one_of, positive
from prebleexp.errors import InvalidInput, unknown
from prebleexp.experiment import counting
from prebleexp.experiment.backends import Backend
from prebleexp.experiment.cell import Cell
from prebleexp.experiment.itself import once_of_itself
from prebleexp.experiment.results import RETRIES
from prebleexp.launch import at_once, specs
from prebleexp.launch.loads import asked_of
from prebleexp.launch.parts import FigureSpec, Part, figures_of, parts_of
from prebleexp.launch.plans import Plans, plans_of
from prebleexp.launch.units import in_seconds
from prebleexp.launch.written import Composition
from prebleexp.metrics import METRICS
from prebleexp.planning.prices import Prices
from prebleexp.precision import Precision

if TYPE_CHECKING:
    from hydra._internal.config_loader_impl import ConfigLoaderImpl

    from prebleexp.launch.compose import Composer

GROUPS = (
    *("policy", "workload", "output_length", "lengths", "hardware", "engine", "overhead", "slo", "cluster", "faults"),
    *("gateway", "autoscaler", "arrivals", "profile", "adapters", "warm"),
)
NUMBERS = (
    "gpus",
    "replicas",
    "rps",
    "rps_per_gpu",
    "duration_s",
    "horizon",
    "seed",
    "reports_ms",
    "replications",
    "ci",
    "ci_metric",
    "max_replications",
)
CHOICES = {
    "keep_requests": ("first", "all", "none"),
    "retry": RETRIES,
    "output": ("table", "json", "csv", "vllm_bench"),
}
FINDINGS = ("cases", "claims", "clusters", "frontier", "hardware", "ladders", "sessions", "survival", "together")
KEYS = (
    *NUMBERS,
    *GROUPS,
    "workers",
    "backend",
    "time_limit_s",
    "check",
    "cache_dir",
    "reports_dir",
    *CHOICES,
    "report",
    "price_per_gpu_hour",
    "objective",
    "job_dirs",
    "sweep",
)
_KEYS = frozenset(KEYS)
_OF_PRECISION = ("replications", "ci", "ci_metric", "max_replications")
_OF_SETTINGS = (*(key for key in KEYS if key not in (*GROUPS, *NUMBERS)), *_OF_PRECISION)
MOST_REPLICATIONS = 100_000


@dataclass(frozen=True)
class Settings:
    """How cells are run and shown. Nothing here can change a result."""

    workers: int | None
    """runs at a time; None: as many as there are cores"""
    backend: Backend
    time_limit_s: float | None
    """for each run"""
    check: bool
    """whether plugs that are not the package's look at every index"""
    retry: str
    """what is computed although there is a result"""
    precision: Precision | None
    """how well means are to be known, if that says how many replications there are"""
    cache_dir: Path
    reports_dir: Path
    keep_requests: str
    report: str
    metrics: tuple[str, ...]
    """that the report draws in place of its own figures"""
    about: str
    """the line that its sentence is about; empty: those that are the user's own, or the best"""
    output: str
    prices: Prices | None
    """of an hour of a GPU"""
    objective: str | tuple[str, ...] | None
    """the metric, or metrics, that a sweeper gets of a job; None: all by name"""
    job_dirs: bool
    """whether each job of a sweep leaves a folder with what Hydra records of it"""
    sweep: str
    """its name, also that of its report's folder"""
    title: str | None
    parts: tuple[Part, ...]
    figures: tuple[FigureSpec, ...]
    findings: str | None
    """claims: the report says what became of the paper's; clusters: who is first in each kind of cluster; hardware:
    both, of the claims those that every kind of cluster can say something of; sessions: clusters, and what their ids
    are worth; frontier: how far each is from the best everywhere, and where the first one loses; survival: who takes
    the loss of a GPU best, and who is back soonest; together: what a cluster's features are worth alone and together"""
    plans: Plans | None
    """how loads are searched for, where the parts of a sweep are plans"""


@dataclass(frozen=True)
class Job:
    """One configuration: a cell per replication, in order of seeds; of replications=auto only the first. Where nothing
    is drawn, all are one."""

    cells: tuple[Cell, ...]
    settings: Settings
    several: bool = False
    """whether several seeds were asked for; there is one cell, too, if nothing is drawn"""


def cells(overrides: Sequence[str]) -> list[Cell]:
    """The cells of one configuration, one per replication, from overrides such as "gpus=4".

    Raises InvalidInput, with one line, if the overrides name something that does not exist or is not valid.
    """
    return list(job(overrides).cells)


def job(overrides: Sequence[str], loader: ConfigLoaderImpl | None = None) -> Job:
    """As `cells`, with its settings. A `loader` is for commands, which compose once and have one already."""
    from prebleexp.launch import standing
    from prebleexp.launch.compose import Composer

    return job_of(_by_hydra(standing.composer(overrides) if loader is None else Composer(loader), overrides))


def job_of_command(overrides: Sequence[str]) -> Job:
    """As `job`, for a command that composes nothing else: where it can, without Hydra."""
    return job_of(composed(at_once.Plain(), overrides))


def composed(plain: at_once.Plain, overrides: Sequence[str]) -> Composition:
    """Without Hydra where that can be. Raises InvalidInput, with one line, for overrides that are not valid."""
    made = plain.composed(overrides)
    return _by_hydra(plain.composer, overrides) if made is None else made


def _by_hydra(composer: Composer, overrides: Sequence[str]) -> Composition:
    from prebleexp.launch.messages import understood

    with understood(composer.loader, overrides):
        return composer.compose(overrides)


def job_of(composition: Composition) -> Job:
    values, choices = in_seconds(composition.values), composition.choices
    if "sweeps" in values:
        raise InvalidInput("a file of sweeps/ is not valid without its first line, which must be '# @package _global_'")
    if values.keys() != _KEYS:
        for key in values:
            if key not in _KEYS:
                raise unknown("key", key, KEYS)
        missing = next(key for key in KEYS if key not in values)
        raise InvalidInput(f"{missing} has no value; set {missing}=...")
    return Job(tuple(cells_of(values, choices)), settings_of(values), several=values["replications"] != 1)


def cells_of(values: Mapping[str, Any], choices: Mapping[str, str]) -> list[Cell]:
    """The cells of a composed configuration, given which option each config group has."""
    precision = precision_of(values)
    count = _count(values["replications"]) if precision is None else precision.looks[0]
    for group in GROUPS:
        if group not in choices:
            raise InvalidInput(f"{group} is a list of options; it must be one")
    names = {group: str(choices[group]) for group in GROUPS}
    built = {group: specs.built(group, names[group], values[group]) for group in GROUPS}
    gpus = built["cluster"].gpus
    if not gpus:
        gpus = counting.size(built["engine"], built["hardware"], values["gpus"], values["replicas"]).gpus
    if built["cluster"].groups:
        built["hardware"] = built["cluster"].groups[0].hardware
        names["cluster"] = "groups" if names["cluster"] == "one_kind" else names["cluster"]
    asked = asked_of(built["workload"], built["profile"], _rps(values, gpus), values["duration_s"])
    same = {key: values[key] for key in ("horizon", "reports_ms")} | built | asked._asdict() | {"gpus": gpus}
    first = Cell(seed=values["seed"], names=names, **same)
    if count > 1 and not first.draws:  # all seeds are one run
        count = 1
    return [first, *(first.with_seed(first.seed + i) for i in range(1, count))]


def _rps(values: Mapping[str, Any], gpus: int) -> Any:
    """Of all GPUs, of which each may have its share."""
    each = values["rps_per_gpu"]
    if each is None:
        return values["rps"]
    return positive("rps_per_gpu", each, "null or a finite number > 0") * gpus


def axes_of(keys: Iterable[str]) -> list[str]:
    """What cells call the keys that were swept, each once; a group within a group is a field."""
    called = {"rps_per_gpu": "rps", "replicas": "gpus"}
    return list(dict.fromkeys(called.get(key, key.replace("/", ".")) for key in keys))


def precision_of(values: Mapping[str, Any]) -> Precision | None:
    """What replications=auto asks for; None if their number is given."""
    if values["replications"] != "auto":
        return None
    most = integer("max_replications", values["max_replications"], 2, MOST_REPLICATIONS)
    ci = values["ci"]
    if isinstance(ci, bool) or not isinstance(ci, int | float) or not 0 < ci < 1:
        raise InvalidInput(f"ci={ci} is not valid; it must be a share of the mean, between 0 and 1")
    if values["ci_metric"] not in METRICS:
        raise unknown("metric in ci_metric:", str(values["ci_metric"]), METRICS)
    return Precision(float(ci), values["ci_metric"], most)


def settings_of(values: Mapping[str, Any]) -> Settings:
    """The settings of a composed configuration: the same object of the same values, which most jobs share."""
    return _settings(*map(values.get, _OF_SETTINGS))


@once_of_itself
def _settings(*given: Any) -> Settings:
    values = dict(zip(_OF_SETTINGS, given, strict=True))
    for key, valid in CHOICES.items():
        one_of(key, values[key], valid)
    sweep = values["sweep"]
    fields = ("name", "title", "parts", "figures", "findings", "plan")
    if not isinstance(sweep, Mapping):
        raise InvalidInput(f"sweep={sweep} is not valid; it has the fields {', '.join(fields)}")
    for field in sweep:
        if field not in fields:
            raise unknown("field of sweep", str(field), fields)
    workers = values["workers"]
    title = sweep.get("title")
    report, metrics, about = _report(values["report"])
    parts = parts_of(sweep)
    return Settings(
        workers=None if workers is None else integer("workers", workers, 1, 4096),
        backend=_backend(values["backend"]),
        time_limit_s=None if values["time_limit_s"] is None else _seconds("time_limit_s", values["time_limit_s"]),
        check=flag("check", values["check"]),
        retry=values["retry"],
        cache_dir=_folder("cache_dir", values["cache_dir"]),
        precision=precision_of(values),
        reports_dir=_folder("reports_dir", values["reports_dir"]),
        keep_requests=values["keep_requests"],
        report=report,
        metrics=metrics,
        about=about,
        output=values["output"],
        prices=None if (price := values["price_per_gpu_hour"]) is None else Prices(price),
        objective=_objective(values["objective"]),
        job_dirs=flag("job_dirs", values["job_dirs"]),
        sweep=_folder_name(sweep.get("name", "sweep")),
        title=None if title is None else str(title),
        parts=parts,
        figures=figures_of(sweep),
        findings=_findings(sweep.get("findings")),
        plans=plans_of(sweep, parts),
    )


def _findings(value: object) -> str | None:
    if value is None:
        return None
    one_of("sweep.findings", value, FINDINGS)
    return str(value)


def _count(value: object) -> int:
    if isinstance(value, str):
        raise InvalidInput(f"replications={value} is not valid; it must be a number or auto")
    return integer("replications", value, 1, MOST_REPLICATIONS)


def _seconds(key: str, value: object) -> float:
    return float(positive(key, value, "a number of seconds > 0"))


def _backend(value: object) -> Backend:
    name = value.get("_target_", "") if isinstance(value, Mapping) else value
    built = specs.build("backend", str(name).rpartition(".")[2].lower(), value)
    if not isinstance(built, Backend):
        raise InvalidInput(f"backend {name!r} is not a backend")
    return built


def _objective(value: Any) -> str | tuple[str, ...] | None:
    if value is None:
        return None
    names = value if isinstance(value, list) else [value]
    if not names:
        raise InvalidInput("objective=[] is not valid; it must be a metric, a list of metrics, or null")
    for name in names:
        if name not in METRICS:
            raise unknown("objective", str(name), METRICS)
    return tuple(value) if isinstance(value, list) else str(value)


def _report(value: object) -> tuple[str, tuple[str, ...], str]:
    """Its format, the metrics that it draws, and the line that it is about; report=none is short for
    report.format=none."""
    given = value if isinstance(value, Mapping) else {"format": value}
    fields = ("format", "metrics", "about")
    for field in given:
        if field not in fields:
            raise unknown("field of report", str(field), fields)
    one_of("report", given.get("format"), ("html", "none"))
    metrics, about = given.get("metrics"), given.get("about")
    if metrics is not None and (not isinstance(metrics, list) or not metrics):
        raise InvalidInput(f"report.metrics={metrics} is not valid; it must be a list of metrics, such as [ttft_p99_s]")
    for name in metrics or ():
        if name not in METRICS:
            raise unknown("metric in report.metrics:", str(name), METRICS)
    return str(given["format"]), tuple(metrics or ()), "" if about is None else str(about)


def _folder(key: str, value: object) -> Path:
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidInput(f"{key}={value} is not valid; it must be the path of a folder")
    return Path(value).expanduser()


def _folder_name(value: object) -> str:
    name = str(value)
    if not name or name.startswith(".") or any(c in '/\\:*?"<>|' or not c.isprintable() for c in name):
        raise InvalidInput(f"sweep.name={name} is not valid; it names the report's folder, such as fig1a")
    return name
