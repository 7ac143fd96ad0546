"""What a command takes, declared once: its arguments are read, what is wrong with them is said, and its --help is made
from that. Raises InvalidInput for what is not valid."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prebleexp.checks import not_valid, one_of
from prebleexp.commands import line
from prebleexp.errors import InvalidInput, unknown

HELP = ("-h", "--help")
SETTING = re.compile(r"[\w./@]+=|[-+~]")
"""how a setting begins, or an option of Hydra's; all else is a word"""


@dataclass(frozen=True)
class Setting:
    """`name=`. `like` is what may stand behind it, `read` makes the value of a text that was given."""

    name: str
    meaning: str
    like: str = "…"
    default: Any = None
    read: Callable[[str, str], Any] = lambda name, value: value


def text(name: str, meaning: str, default: str | None = None) -> Setting:
    """A setting that takes any text."""
    return Setting(name, meaning, default or "…", default)


def choice(name: str, meaning: str, *valid: str) -> Setting:
    """One of these, the first if it is not given."""

    def read(name: str, value: str) -> str:
        one_of(name, value, valid)
        return value

    return Setting(name, meaning, "|".join(valid), valid[0], read)


def flag(name: str, meaning: str) -> Setting:
    """False if it is not given."""
    texts = choice(name, meaning, "false", "true")
    return Setting(name, meaning, texts.like, False, lambda name, value: texts.read(name, value) == "true")


def path(name: str, meaning: str, default: str | None = None) -> Setting:
    """`~` stands for the home folder. An empty one, as an unset variable leaves it, is not the default."""

    def read(name: str, value: str) -> Path:
        if not value:
            raise not_valid(name, value, "a path")
        return Path(value).expanduser()

    return Setting(name, meaning, default or "PATH", None if default is None else Path(default), read)


def integer(
    name: str, meaning: str, default: int | None = None, least: float = -math.inf, most: float = math.inf
) -> Setting:
    """A setting that is an integer from `least` to `most`, both included. Reading another raises InvalidInput."""
    ends = (f" from {least}" if least > -math.inf else "") + (f" to {most}" if most < math.inf else "")

    def read(name: str, value: str) -> int:
        found = _as(int, name, value, f"an integer{ends}")
        if not least <= found <= most:
            raise not_valid(name, found, f"an integer{ends}")
        return int(found)

    return Setting(name, meaning, "N" if default is None else str(default), default, read)


def number(name: str, meaning: str, default: float | None = None) -> Setting:
    """A setting that is any number. Reading something else raises InvalidInput."""
    like = "X" if default is None else str(default)
    return Setting(name, meaning, like, default, lambda name, value: _as(float, name, value, "a number"))


CACHE_DIR = path("cache_dir", "where runs are", "cache")
REPORTS_DIR = path("reports_dir", "where pages are", "reports")


@dataclass(frozen=True)
class Given:
    """The arguments of a command: `given["name"]` is a setting's value, or its default."""

    words: Sequence[str]
    values: Mapping[str, Any]
    others: Sequence[str]
    """as they were written: settings that the command does not declare"""
    arguments: Sequence[str]
    """all of them"""
    line: str
    """what to type for the same again"""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]


@dataclass(frozen=True)
class Command:
    """A command of the shell: its help, its words and settings, and `run`, which returns the exit code."""

    does: str
    run: Callable[[Given], int]
    example: str
    words: str = ""
    """as they are written in the help: KEY KEY; those in brackets may be left out, and with … there may be more"""
    takes: str = ""
    """what these are, in an error: two keys"""
    settings: tuple[Setting, ...] = ()
    others: str = ""
    """what settings are that are not declared; empty: nothing, they are refused"""
    is_word: Callable[[str, Sequence[str]], bool] = lambda one, arguments: SETTING.match(one) is None
    """whether one of the arguments is a word"""

    def read(self, name: str, arguments: Sequence[str]) -> Given:
        """`name` is what the command is called."""
        words = [one for one in arguments if self.is_word(one, arguments)]
        settings = {one.name: one for one in self.settings}
        values = {one.name: one.default for one in self.settings}
        seen, others = set[str](), []
        for argument in (one for one in arguments if not self.is_word(one, arguments)):
            key, equals, value = argument.partition("=")
            if key in seen and key in settings:
                raise InvalidInput(f"{key} is given twice")
            seen.add(key)
            if key in settings and equals:
                values[key] = settings[key].read(key, value)
            elif self.others:
                others.append(argument)
            elif equals and settings:
                raise unknown("setting", key, settings)
            else:
                words.append(argument)
        self._count(name, words)
        return Given(words, values, others, arguments, line(*name.split(), *arguments))

    def _count(self, name: str, words: Sequence[str]) -> None:
        most = math.inf if "…" in self.words else len(self.words.split())
        if not most and words:
            raise InvalidInput(f"{name} does not know {words[0]!r}; see prebleexp {name} --help")
        if not len(re.sub(r"\[.*?\]", "", self.words).split()) <= len(words) <= most:
            raise InvalidInput(f"{name} takes {self.takes}, not {len(words)}: {' '.join(words) or 'nothing'}")

    def usage(self, name: str) -> str:
        key_value = "[key=value …]" if self.settings or self.others else ""
        return " ".join(filter(None, ("python -m prebleexp", name, self.words, key_value)))

    def help(self, name: str) -> str:
        """Usage, what it does, what it takes, and an example."""
        rows = [(self.words, self.takes)] if self.words else []
        rows += [(f"{one.name}={one.like}", one.meaning) for one in self.settings]
        rows += [("key=value", self.others)] if self.others else []
        wide = max((len(left) for left, _ in rows), default=0)
        listed = [
            textwrap.fill(right, 110, initial_indent=f"  {left:{wide}}  ", subsequent_indent=" " * (wide + 4))
            for left, right in rows
        ]
        does = textwrap.fill(f"{self.does[0].upper()}{self.does[1:]}.", 110)
        parts = (self.usage(name), "", does, "", *listed, *([""] if rows else []), "example:", f"  {self.example}")
        return "\n".join(parts)


Commands = Mapping[str, Command]
"""those of a file by their second word; "": without one"""


def run(name: str, commands: Commands, arguments: Sequence[str]) -> int:
    """The command that the arguments begin with, or its help."""
    second = arguments[0] if arguments else ""
    if second and second in commands:
        name, commands, arguments = f"{name} {second}", {"": commands[second]}, arguments[1:]
    if any(one in HELP for one in arguments):
        print(_help(name, commands))
        return 0
    if "" not in commands:
        raise unknown(f"{name} command", second, commands)
    return commands[""].run(commands[""].read(name, arguments))


def _help(name: str, commands: Commands) -> str:
    parts = [commands[""].help(name)] if "" in commands else []
    others = [(f"{name} {second}", one) for second, one in commands.items() if second]
    if others:
        does = [
            f"{one.usage(called)}\n{textwrap.indent(textwrap.fill(one.does, 106), '    ')}" for called, one in others
        ]
        parts.append("\n".join(does))
        parts.append(f"more of each:\n  python -m prebleexp {others[0][0]} --help")
    return "\n\n".join(parts)


def _as(kind: Callable[[str], Any], name: str, value: str, valid: str) -> Any:
    try:
        return kind(value)
    except ValueError:
        raise not_valid(name, value, valid) from None
