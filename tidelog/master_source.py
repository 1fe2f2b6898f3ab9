"""Source of a broker's master keys: a file, or the output of a command.

Neither the keys nor the output of the command are ever logged.
"""

import math
import shlex
import stat
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, final

from tidelog.wire.env.env import Env
from tidelog.wire.errors import ConfigError

_COMMAND_TIMEOUT_S: Final = 30.0
_COMMAND_PAUSE_S: Final = 60.0


def master_source_of(
    env: Env, *, master_key_file: str, master_key_command: str
) -> Callable[[], Awaitable[str]]:
    """Return the source that the settings of a broker name; it works in threads of `env`.

    Without both settings, it returns an empty text.
    """
    if master_key_file:
        path = Path(master_key_file)
        return lambda: env.run_in_thread(lambda: read_key_file(path))
    if master_key_command:
        command = _Command(master_key_command)
        return lambda: env.run_in_thread(command.output)
    return _no_key


async def _no_key() -> str:
    return ""


def read_key_file(path: Path) -> str:
    """Return the text of a key file, which only this user may read.

    Raises:
        ConfigError: It cannot be read, or others may use it.
    """
    try:
        mode = path.stat().st_mode
        text = path.read_text("ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise ConfigError(
            f"master_key_file {path} cannot be read: {reason}; copy it from another broker"
            " or its safe place, or create the first one of the cluster with: tidelog key"
            f" create-master {path}"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"master_key_file {path} has mode {stat.S_IMODE(mode):o}, so that others may use it;"
            f" run: chmod 600 {path}"
        )
    return text


@final
class _Command:
    """A command, which runs at most once in `_COMMAND_PAUSE_S`."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._output = ""
        self._due = -math.inf

    def output(self) -> str:
        if time.monotonic() >= self._due:
            self._output = _run(self._command)
            self._due = time.monotonic() + _COMMAND_PAUSE_S
        return self._output


def _run(command: str) -> str:
    try:
        ended = subprocess.run(  # noqa: S603 (the operator's command, without a shell)
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_TIMEOUT_S,
            check=False,
        )
        text = ended.stdout.decode("ascii")
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        reason = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise ConfigError(
            f"master_key_command failed: {reason}; it must print a key file within"
            f" {_COMMAND_TIMEOUT_S:g} s"
        ) from None
    if ended.returncode:
        raise ConfigError(
            f"master_key_command failed: its exit status is {ended.returncode}; run it by hand as"
            " the user of the broker"
        )
    return text
