"""`python -m prebleexp why KEY KEY`: what differs between two cached runs."""

from __future__ import annotations

from dataclasses import replace

from prebleexp.commands import cache
from prebleexp.commands.arguments import Commands

COMMANDS: Commands = {"": replace(cache.COMMANDS["why"], example="python -m prebleexp why 0f3a 17bc")}
