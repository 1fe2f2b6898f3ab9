"""Traps on every way out of a simulation: the real clock, entropy, sockets, files, threads.

Inside of `guarded()`, whoever calls one of them gets an error that names the seam to use instead.
What was imported by name before escapes the traps; the linter forbids that.
"""

import builtins
import inspect
import os
import random
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, final

import trio


@final
class RealWorldError(BaseException):
    """Simulated code touched the real world.

    Not an `Exception`, so that no supervisor takes it for a failed request.
    """


class _Exit(NamedTuple):
    """Names of one object that lead out of the simulation."""

    owner: Any
    names: str
    instead: str


_CLOCK = "take the time of day from env.clock, and monotonic time from trio.current_time()"
_ENTROPY = "draw from env.random"
_NETWORK = "connect and listen through env.network"
_DISK = "use the disk that the process was given"
_THREAD = "run it through env.offload"

_EXITS = (
    _Exit(time, "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns", _CLOCK),
    _Exit(time, "localtime gmtime strftime", _CLOCK),
    _Exit(time, "sleep", "wait with trio"),
    _Exit(os, "urandom getrandom getpid", _ENTROPY),
    _Exit(os, "open fsync fdatasync", _DISK),
    _Exit(os, "fork system", "a simulated process is started by its node"),
    _Exit(
        random,
        "betavariate choice choices expovariate gauss getrandbits normalvariate randbytes"
        " randint random randrange sample seed shuffle triangular uniform _urandom",
        _ENTROPY,
    ),
    _Exit(uuid, "uuid1 uuid4", _ENTROPY),
    _Exit(secrets, "choice randbelow randbits token_bytes token_hex token_urlsafe", _ENTROPY),
    _Exit(socket.socket, "__init__", _NETWORK),
    _Exit(socket, "create_connection create_server getaddrinfo gethostname socketpair", _NETWORK),
    _Exit(builtins, "open", _DISK),
    _Exit(threading.Thread, "start", _THREAD),
    _Exit(trio.to_thread, "run_sync", _THREAD),
    _Exit(trio.lowlevel, "start_thread_soon", _THREAD),
    _Exit(trio, "open_file", _DISK),
)

_MAY_LEAVE = frozenset(
    {
        "linecache",  # reads the source, for tracebacks
        "logging",  # stamps what it writes, which no code reads back
        "tests.simulation.blocking_call",  # has threads, of which one runs at a time
        "tokenize",
    }
)
"""Modules whose calls change nothing that a simulated process could see."""


@contextmanager
def guarded(on_leak: Callable[[BaseException], None]) -> Generator[None]:
    """Set the traps while the block runs; `on_leak` is told too, should the error be swallowed."""
    saved: list[tuple[Any, str, Any]] = []
    try:
        for exit_ in _EXITS:
            for name in exit_.names.split():
                original = getattr(exit_.owner, name)
                saved.append((exit_.owner, name, original))
                setattr(exit_.owner, name, _trap(exit_, name, original, on_leak))
        saved.append((random.Random, "seed", random.Random.seed))
        random.Random.seed = _trap_for_unseeded(random.Random.seed, on_leak)  # type: ignore[method-assign]
        yield
    finally:
        for owner, name, original in reversed(saved):
            setattr(owner, name, original)


def _trap(
    exit_: _Exit, name: str, original: Callable[..., Any], on_leak: Callable[[BaseException], None]
) -> Callable[..., Any]:
    owner = exit_.owner
    label = f"{owner.__name__}.{name}"

    def trap(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401  (stands in for anything)
        caller = _caller(1)
        if caller.f_globals.get("__name__") in _MAY_LEAVE:
            return original(*arguments, **options)
        error = _leak(label, exit_.instead, caller)
        on_leak(error)
        raise error

    return trap


def _trap_for_unseeded(
    original: Callable[..., None], on_leak: Callable[[BaseException], None]
) -> Callable[..., None]:
    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:  # noqa: ANN401
        if a is None:
            error = _leak("random.Random()", _ENTROPY, _caller(2))  # Past `Random.__init__`.
            on_leak(error)
            raise error
        original(self, a, version)

    return seed


def _caller(depth: int) -> FrameType:
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        assert frame is not None
        frame = frame.f_back
    assert frame is not None
    return frame


def _leak(label: str, instead: str, caller: FrameType) -> RealWorldError:
    place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    return RealWorldError(f"{place} called {label} inside of a simulation; {instead}")
