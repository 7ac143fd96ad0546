"""The command line's own options and its help; everything else on it is Hydra's grammar."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from prebleexp.errors import InvalidInput
from prebleexp.launch import places

USAGE = """\
prebleexp: to which GPU should an LLM request go?

  python -m prebleexp [key=value ...]       one configuration: a table of metrics
  python -m prebleexp -m key=a,b,c ...      every combination of the values: tables and a report
  python -m prebleexp +sweeps=NAME ...      a sweep from sweeps/
  python -m prebleexp status ...            how much of that is done, failed and missing; runs nothing
  python -m prebleexp compare A B ...       two policies, lines, sweeps or exports: paired differences
  python -m prebleexp plan gpus=8|rps=64 ...  the load a cluster bears, or the GPUs a load takes, with intervals
  python -m prebleexp recommend ...         what to deploy for the least money, and the files that deploy it
  python -m prebleexp open [NAME]           a report, or the list of all, in the browser
  python -m prebleexp trace KEY|key=value ...   one run step by step: a page, and a trace for Perfetto
  python -m prebleexp hindsight ...         how much better an assignment is that knows all that comes
  python -m prebleexp workload describe ... what a stream of requests looks like
  python -m prebleexp hardware [gpu=h100 ...]   GPUs and models, what fits, what steps take, how well that is known
  python -m prebleexp composes [A B]        which features go together
  python -m prebleexp live url=... ...      the same load at real endpoints, beside its simulation (docs/live.md)
  python -m prebleexp route upstream=... ...  a policy as a router that runs; pick: behind Envoy
  python -m prebleexp mock gpus=4 ...       simulated GPUs in real time, as OpenAI-style servers
  python -m prebleexp bench-serve ... -- vllm bench serve ...   what that benchmark would print
  python -m prebleexp compare-bench FILE ...  its measured result beside a simulated one
  python -m prebleexp published ...         what others measured, beside the simulation of it
  python -m prebleexp calibrate overhead    fit what a decision costs in conf/overhead/; calibrate --help: step times
  python -m prebleexp predict ...           train and try predictors of output lengths (docs/predictors.md)
  python -m prebleexp sql "select ..."      ask the tables of all results (docs/tables.md)
  python -m prebleexp cache ls|show|verify|gc|index|export|import ...   care of the cache (docs/cache.md)
  python -m prebleexp why KEY KEY           what differs between two cached runs
  python -m prebleexp bench [TABLE]         how fast it is; against=PATH: and than another checkout

options:
  -m, --multirun    sweep; values may be lists (a,b), range(start,stop,step) or glob(*)
  --dry             list what would be computed, and how long it would take
  --cfg job         print the composed configuration and stop (--resolve, --package PACKAGE)
  --info [WHAT]     how it is composed: all, config, defaults, defaults-tree, plugins or searchpath
  -cd, --config-dir DIR     a folder with more choices, as conf/ has them
  -cn, --config-name NAME   begin with that configuration instead of conf/config.yaml
  -sc, --shell-completion install=bash   print what makes a shell complete names and values (bash, zsh, fish)
  --version
  -h, --help        this; COMMAND --help: what that takes
"""

EXAMPLES = """\
examples:
  python -m prebleexp gpus=8 rps=64 policy=lor
  python -m prebleexp rps=128 replications=10 output=json
  python -m prebleexp -m gpus=4,8,16 rps=1,2,4,8,16,32,64,128 policy=random,round_robin,lor
  python -m prebleexp +sweeps=fig1a replications=3
"""


INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InvalidInput(f"{message}; see python -m prebleexp --help")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options, and as `overrides` all the rest. Raises InvalidInput for an option that does not exist."""
    parser = _Parser(prog="prebleexp", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("-c", "--cfg", choices=("job", "hydra", "all"))
    parser.add_argument("-i", "--info", nargs="?", const="all", choices=INFO)
    parser.add_argument("-cd", "--config-dir", type=Path)
    parser.add_argument("-cn", "--config-name", default=places.CONFIG)
    parser.add_argument("-sc", "--shell-completion", action="store_true")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument("-p", "--package")
    parser.add_argument("overrides", nargs="*")
    return parser.parse_intermixed_args(list(arguments))


def help_text() -> str:
    """Usage, what every config group offers, and every key with its default, from conf/config.yaml itself."""
    defaults = re.findall(r"^  - (\w+): (\w+)", _config(), re.MULTILINE)
    groups = [f"  {group:14} {', '.join(_marked(group, chosen))}" for group, chosen in defaults]
    sweeps = f"  {'+sweeps':14} {', '.join(places.options('sweeps'))}"
    keys = [f"  {f'{key}={default}':22} {meaning}" for key, default, meaning in documented_keys()]
    choices = "choices (a file each in conf/, yours in ./conf/; * is the default, (…) the version that is followed):"
    sections = (choices, *groups, sweeps, "", "keys and defaults:", *keys)
    return "\n".join((USAGE, *sections, "", EXAMPLES))


def _marked(group: str, chosen: str) -> list[str]:
    """What may be chosen, the default with a star; with the version in the first comment of its file, if there is one:
    what an engine was checked against."""
    versions = {
        file.stem: found[1]
        for file in (places.HOME / "conf" / group).glob("*.yaml")
        if (found := re.match(r"#[^\n]*\((\d+(?:\.\d+)+)\)", file.read_text(encoding="utf-8")))
    }
    return [
        f"{name}{'*' if name == chosen else ''}{f' ({versions[name]})' if name in versions else ''}"
        for name in places.options(group)
    ]


def documented_keys() -> list[tuple[str, str, str]]:
    """(key, default, meaning) of every top-level key, from conf/config.yaml itself."""
    found = []
    for line in _config().splitlines():
        value, _, meaning = line.partition("  # ")
        if meaning and not line.startswith((" ", "#")):
            key, _, default = value.partition(": ")
            found.append((key, default, meaning))
    return found


def _config() -> str:
    return (places.HOME / "conf" / f"{places.CONFIG}.yaml").read_text(encoding="utf-8")
