"""The command line: `python -m prebleexp`. Results on standard output, everything else on standard error.

Exit codes: 0 done, 1 some work failed, 2 bad input, 130 interrupted, 143 terminated.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from prebleexp import commands
from prebleexp.commands import simulate
from prebleexp.errors import InvalidInput, PrebleexpError, unknown


class _Terminated(KeyboardInterrupt):
    """SIGTERM. Like an interrupt, it must not be taken for a failure of the run that it hits."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        code = _command(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
        return code
    except InvalidInput as error:
        return _say(error, 2)
    except PrebleexpError as error:
        return _say(error, 1)
    except BrokenPipeError:
        # whoever read our output has seen enough; what Python would flush at exit must not fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt as stop:
        done = stop.args[0] if stop.args else "finished runs are kept"
        return _say(f"terminated; {done}", 143) if isinstance(stop, _Terminated) else _say(f"interrupted; {done}", 130)
    finally:
        signal.signal(signal.SIGTERM, before)


def _command(arguments: list[str]) -> int:
    first = arguments[0] if arguments else ""
    if first and first[0] not in "-+~" and "=" not in first:
        if first not in commands.NAMES:
            raise InvalidInput(f"{unknown('command', first, commands.NAMES)} Settings are written key=value.")
        return commands.run(first, arguments[1:])
    return simulate.run(arguments)


def _say(message: object, code: int) -> int:
    print("prebleexp:", " ".join(str(message).split("\n")), file=sys.stderr)
    return code


def _terminate(signum: int, frame: object) -> None:
    raise _Terminated


def script() -> NoReturn:
    """The command, in a process of its own."""
    here = str(Path.cwd())
    if here not in sys.path and not sys.flags.safe_path:
        sys.path.insert(0, here)  # as `python -m` does: policies of one's own are found by either name
    code = main()
    # Nothing is left but to free, one by one, all objects that were imported: a tenth of a short command. What Python
    # does before that is done here, in its order: joblib's workers end with the threads, and are joined at exit.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    script()
