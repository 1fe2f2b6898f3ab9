"""Traps for access to the real world: clock, entropy, sockets, files, threads, processes.

While they are set, a caller of one of them gets an error that names the seam to use instead.
Threads outside of the simulation are exempt: those of a broker or a JVM that other tests share.
Simulated code cannot have started them, because that is trapped as well. Names that were imported
before escape the traps, and so do methods of types that are written in C, like `datetime.now`; the
linter forbids both, with the list of `banned-api` in `pyproject.toml`.
"""

import builtins
import inspect
import io
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, final

import trio

from tests.simulation.machine.blocking_call import current_blocking_call


@final
class RealWorldError(BaseException):
    """Simulated code touched the real world.

    Not an `Exception`, so that no supervisor takes it for a failed request.
    """


class _Exit(NamedTuple):
    """Names of one object that give access to the real world."""

    owner: Any
    names: str
    instead: str


_CLOCK = "take the time of day from env.clock, and monotonic time from trio.current_time()"
_ENTROPY = "draw from env.random"
_NETWORK = "connect and listen through env.network"
_DISK = "use the disk that the process was given"
_PROCESS = "a simulated process is started by its node"
_THREAD = "run it through env.run_in_thread"

_EXITS = (
    _Exit(time, "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns", _CLOCK),
    _Exit(time, "localtime gmtime strftime ctime asctime", _CLOCK),
    _Exit(time, "clock_gettime clock_gettime_ns process_time process_time_ns", _CLOCK),
    _Exit(time, "thread_time thread_time_ns", _CLOCK),
    _Exit(time, "sleep", "wait with trio"),
    _Exit(os, "urandom getrandom getpid", _ENTROPY),
    _Exit(os, "open fsync fdatasync", _DISK),
    _Exit(os, "listdir scandir stat lstat statvfs access mkdir rmdir", _DISK),
    _Exit(os, "remove unlink rename replace link symlink truncate", _DISK),
    _Exit(os, "fork system posix_spawn posix_spawnp execv execve", _PROCESS),
    _Exit(subprocess.Popen, "__init__", _PROCESS),
    _Exit(
        random,
        "betavariate choice choices expovariate gammavariate gauss getrandbits lognormvariate"
        " normalvariate paretovariate randbytes randint random randrange sample seed shuffle"
        " triangular uniform vonmisesvariate weibullvariate _urandom",
        _ENTROPY,
    ),
    _Exit(uuid, "uuid1 uuid4", _ENTROPY),
    _Exit(secrets, "choice randbelow randbits token_bytes token_hex token_urlsafe", _ENTROPY),
    _Exit(socket.socket, "__init__", _NETWORK),
    _Exit(socket, "create_connection create_server getaddrinfo gethostname socketpair", _NETWORK),
    _Exit(builtins, "open", _DISK),
    _Exit(io, "open", _DISK),
    _Exit(threading.Thread, "start", _THREAD),
    _Exit(trio.to_thread, "run_sync", _THREAD),
    _Exit(trio.lowlevel, "start_thread_soon", _THREAD),
    _Exit(trio, "open_file", _DISK),
)


def trapped_names() -> list[str]:
    """Return the full names of all traps."""
    return [f"{_full_name(exit_.owner)}.{name}" for exit_ in _EXITS for name in exit_.names.split()]


def _full_name(owner: Any) -> str:  # noqa: ANN401  (a module or a class)
    module = getattr(owner, "__module__", None)
    return owner.__name__ if module is None else f"{module}.{owner.__name__}"


_MAY_LEAVE = frozenset(
    {
        "importlib._bootstrap",  # runs the top level of a module
        "linecache",  # reads the source, for tracebacks
        "logging",  # adds timestamps that no code reads back
    }
)
"""Exempt modules and their callees: simulated code sees no effect of them."""

_OUR_THREADS = "tests.simulation.machine.blocking_call"


@final
class Guard:
    """The traps of one run, set once trio has started and lifted before it ends."""

    def __init__(self, on_leak: Callable[[BaseException], None]) -> None:
        """Call `on_leak` for every leak, in case its error is swallowed."""
        self._on_leak = on_leak
        self._saved: list[tuple[Any, str, Any]] = []
        self._thread_id = threading.get_ident()
        """The thread of the simulation, besides those of its blocking calls."""

    def set(self) -> None:
        """Set the traps."""
        for exit_ in _EXITS:
            for name in exit_.names.split():
                original = getattr(exit_.owner, name)
                self._replace(exit_.owner, name, self._trap(exit_, name, original))
        self._replace(random.Random, "seed", self._trap_for_unseeded(random.Random.seed))

    def lift(self) -> None:
        """Remove the traps; a second call is allowed."""
        while self._saved:
            owner, name, original = self._saved.pop()
            setattr(owner, name, original)

    def _replace(self, owner: Any, name: str, trap: Callable[..., Any]) -> None:  # noqa: ANN401
        self._saved.append((owner, name, getattr(owner, name)))
        setattr(owner, name, trap)

    def _is_called_by_a_stranger(self) -> bool:
        return threading.get_ident() != self._thread_id and current_blocking_call() is None

    def _trap(self, exit_: _Exit, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        label = f"{exit_.owner.__name__}.{name}"

        def trap(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  (stands in for anything)
            if self._is_called_by_a_stranger():
                return original(*arguments, **options)
            caller = _caller(1)
            if _may_leave(caller):
                return original(*arguments, **options)
            error = _leak(label, exit_.instead, caller)
            self._on_leak(error)
            raise error

        return trap

    def _trap_for_unseeded(self, original: Callable[..., None]) -> Callable[..., None]:
        def seed(generator: random.Random, a: Any = None, version: int = 2) -> None:  # noqa: ANN401
            if a is None and not self._is_called_by_a_stranger():
                error = _leak("random.Random()", _ENTROPY, _caller(2))  # Past `Random.__init__`.
                self._on_leak(error)
                raise error
            original(generator, a, version)

        return seed


def _caller(depth: int) -> FrameType:
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        assert frame is not None
        frame = frame.f_back
    assert frame is not None
    return frame


def _may_leave(caller: FrameType) -> bool:
    if caller.f_globals.get("__name__") == _OUR_THREADS:
        return True
    frame: FrameType | None = caller
    while frame is not None:
        if frame.f_globals.get("__name__") in _MAY_LEAVE:
            return True
        frame = frame.f_back
    return False


def _leak(label: str, instead: str, caller: FrameType) -> RealWorldError:
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    return RealWorldError(f"{place} called {label} inside of a simulation; {instead}")
