"""A policy in one run: compiled, or asked and told from Python; and what is said when it fails."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from prebleexp import sources
from prebleexp.errors import PrebleexpError
from prebleexp.sim import addresses, records, wrong_field
from prebleexp.sim.handles import Block, Unreadable
from prebleexp.sim.later import INTERPRETED, is_numbas
from prebleexp.sim.notices import FUNCTIONS, NOTICES, OF_CONTEXT, OF_GPU, OF_REQUEST
from prebleexp.sim.plug import FLOAT, INT, NOTHING, Plug, Signatures, plain
from prebleexp.sim.types import Setup
from prebleexp.sim.world import EXAMPLE

VIEW: Any = EXAMPLE.layout if INTERPRETED else EXAMPLE.seen.layout
_SUBJECT = (INT, FLOAT)
ASKED: Signatures = {"route": (INT, (VIEW, *_SUBJECT)), "lacks_room": (INT, (VIEW, INT))}
TOLD: Signatures = {
    name: (NOTHING, (VIEW, INT, INT, INT, FLOAT) if of == OF_CONTEXT else (VIEW, *_SUBJECT))
    for name, of in FUNCTIONS.items()
}
OPTIONAL = ("lacks_room", *TOLD)


class _Plug(Plug):
    """A policy: what it is told of has a place for each kind."""

    def _place(self, made: Mapping[str, Any]) -> None:
        super()._place({name: made[name] for name in ASKED if name in made})
        self.record.hears = [made.get(one.function, 0) for one in NOTICES]


class Routing:
    """The policy's record for compiled code, what it remembers, and both of what it is made of.

    Raises PrebleexpError, with the policy's name, file and line, if it does not compile or `start` fails.
    """

    def __init__(self, policy: Any, setup: Setup, check: bool = True) -> None:
        self._policy, self._kind = policy, type(policy)
        mine = self._try(policy.start, setup)
        if policy.compiled:
            self._plug = self._try(
                _Plug, policy, self._kind, mine, addresses.ROUTER, {**ASKED, **TOLD}, OPTIONAL, check
            )
            self.record = self._plug.record
            self.record.compiled = 1
        else:
            self._plug, self._mine = None, mine
            self.record = Plug(None, None, None, addresses.ROUTER, {}).record
            self.record.hears = [int(hasattr(self._kind, one.function)) for one in NOTICES]

    def repeated(self) -> Any:
        """The record, as an array of one."""
        if INTERPRETED:
            return [self.record]
        return np.full(1, self.record).view(np.recarray)

    @property
    def mine(self) -> Any:
        if self._plug is None:
            return self._mine
        return self._plug.mine if INTERPRETED else self._plug.block.mine

    # ---------------------------------------------------------------- from Python
    def ask(self, view: Block, request: int, now: float) -> int:
        """What a plain-Python policy answers. Raises PrebleexpError if that is no integer."""
        self._make_room(view, request)
        answer = self._try(self._kind.route, self._policy, self.mine, view, request, now)
        try:
            return int(answer.__index__())
        except (AttributeError, TypeError):
            raise PrebleexpError(self.bad_answer(view, request, now, answer)) from None

    def tell(
        self, view: Any, kind: int, request: int, gpu: int, tokens: int, now: float, form: Any = lambda one: one
    ) -> None:
        """Let a policy hear of something from Python, if it listens."""
        name, of = NOTICES[kind]
        if hasattr(self._kind, name):
            subject = {OF_REQUEST: (request,), OF_CONTEXT: (request, gpu, tokens), OF_GPU: (gpu,)}[of]
            self._try(form(getattr(self._kind, name)), self._policy, self.mine, view, *subject, now)

    def _make_room(self, view: Block, request: int) -> None:
        lacks = getattr(self._kind, "lacks_room", None)
        while lacks is not None and self._try(lacks, self._policy, self.mine, view, request):
            self.with_more_room(view, request)

    def with_more_room(self, view: Any, request: int) -> None:
        """Let the policy remember more: it has said that it lacks room for the next decision."""
        mine = self._try(self._policy.with_more_room, self.mine, view, request)
        if self._plug is None:
            self._mine = mine
        else:
            self._plug.replace(mine)

    def start_again(self, setup: Setup) -> None:
        """Forget all, as at the beginning."""
        mine = self._try(self._policy.start, setup)
        if self._plug is None:
            self._mine = mine
        else:
            self._plug.replace(mine)

    def named(self, request: int, names: Any) -> None:
        """Say what a request that comes from outside calls its session and its prompt, to a policy that asks for it."""
        if hasattr(self._kind, "named"):
            self._try(self._kind.named, self._policy, self.mine, request, names)

    # ---------------------------------------------------------------- errors
    def bad_answer(self, view: Any, request: int, now: float, answer: Any) -> str:
        """`answer`: an integer, or whatever a plain-Python policy has answered instead."""
        gpus, sent = len(view.sent), f"policy {self._kind.__name__} sent request {request} at {now:g} s to GPU {answer}"
        if hasattr(answer, "__index__") and 0 <= int(answer) < gpus:
            return (
                f"{sent}, which was no candidate then; it must be one of view.candidates: GPUs that are lost, drained "
                "or not up yet are not among them"
            )
        return f"{sent}; it must be an integer from 0 to {gpus - 1}"

    def explained(self, error: Exception, view: Any, request: int, news: Any, now: float) -> PrebleexpError:
        """What went wrong in compiled code, which says little: the same once more, in plain Python. `request`: the
        policy was asked about it, or -1; `news`: rows of `records.NEWS` that it was told."""
        return self.failing(view, request, news, now) or self.unexplained(error)

    def failing(self, view: Any, request: int, news: Any, now: float) -> PrebleexpError | None:
        """How the same goes wrong in plain Python; None if it does not."""
        try:
            if request != records.NONE:
                self._try(plain(self._kind.route), self._policy, self.mine, view, request, now)
            for one in news:
                self.tell(view, int(one.kind), int(one.request), int(one.gpu), int(one.tokens), now, plain)
        except PrebleexpError as same:
            return same
        return None

    def unexplained(self, error: Exception) -> PrebleexpError:
        return PrebleexpError(f"policy {self._kind.__name__}: {type(error).__name__}: {error}")

    def _try(self, function: Any, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (PrebleexpError, MemoryError):  # memory is the machine's
            raise
        except Exception as error:
            if is_numbas(error, "errors", "NumbaError"):
                said = _compile_error(error)
                raise PrebleexpError(f"policy {self._kind.__name__} does not compile: {said}") from error
            if isinstance(error, Unreadable):
                raise PrebleexpError(f"policy {self._kind.__name__}: {_unreadable(error)}; {PLAIN}") from error
            wrong = wrong_field.said_of(error)
            what = f"{_place(error)}{wrong or f'{type(error).__name__}: {error}'}"
            raise PrebleexpError(f"policy {self._kind.__name__}, {what}") from error


def _place(error: Exception) -> str:
    """The last line of somebody else's file that led to the error, or that numba was looking at."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        at: Any = getattr(frame.f_locals.get("self"), "loc", None)
        if is_numbas(at, "ir", "Loc"):
            return f"{at.filename}, line {at.line}: "
    frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).is_file()]
    others = [one for one in frames if not sources.is_own(one.filename)]
    theirs = [one for one in others if not sources.is_installed(Path(one.filename).parent)] or others or frames
    return f"{theirs[-1].filename}, line {theirs[-1].lineno}: " if theirs else ""


def _compile_error(error: Exception) -> str:
    """The place and the innermost cause, of numba's many lines."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines() if line.strip()]
    places = [found for line in lines if (found := re.match(r'File "([^"]+)", line (\d+)', line))]
    theirs = [found for found in places if not sources.is_own(found[1])]
    causes = [line for line in lines if not line.startswith(_NOISE)]
    ours = ["it must return an integer"] if "intrinsic _whole" in str(error) else []
    place = f"{Path(theirs[-1][1]).resolve()}, line {theirs[-1][2]}: " if theirs else ""
    cause = wrong_field.said_in((ours or causes or ["numba gives no reason"])[0]).rstrip(".")
    return f"{place}{cause}; {PLAIN}"


def _unreadable(error: Unreadable) -> str:
    """As whoever wrote the policy knows it: a run keeps what `start` returns as `mine`."""
    return str(error).replace("mine cannot", "what start returns cannot", 1)


PLAIN = "compiled = False in its class runs it as plain Python (docs/policy.md, Compiled, or plain Python)"
_NOISE = ("File", "During", "Failed in", "-", "[", "<", ">>>", "There are", "Overload", "With argument", "TypingError")
