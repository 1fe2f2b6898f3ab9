"""Tests of the traps: code in a simulation that touches the real world gets an error."""

import gc
import io
import logging
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import tomllib
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import trio

from tests.paths import ROOT
from tests.simulation.machine.guard import RealWorldError, trapped_names
from tests.simulation.machine.world import Simulation, World

CALLS: list[tuple[str, Callable[[], object]]] = [
    ("time.time", lambda: time.time()),  # noqa: PLW0108, TID251  (looked up when it is called)
    ("time.time_ns", lambda: time.time_ns()),  # noqa: PLW0108
    ("time.monotonic", lambda: time.monotonic()),  # noqa: PLW0108, TID251
    ("time.perf_counter", lambda: time.perf_counter()),  # noqa: PLW0108
    ("time.sleep", lambda: time.sleep(0)),  # noqa: TID251
    ("os.urandom", lambda: os.urandom(1)),
    ("os.getpid", lambda: os.getpid()),  # noqa: PLW0108
    ("os.open", lambda: os.open("/dev/null", os.O_RDONLY)),
    ("os.fsync", lambda: os.fsync(0)),
    ("os.listdir", lambda: os.listdir("/")),  # noqa: PTH208
    ("os.scandir", lambda: os.scandir("/")),
    ("os.stat", lambda: os.stat("/")),  # noqa: PTH116
    ("os.stat", lambda: Path("/").exists()),
    ("os.mkdir", lambda: Path("/not-made").mkdir()),
    ("os.statvfs", lambda: os.statvfs("/")),
    ("os.posix_spawn", lambda: os.posix_spawn("/bin/true", ["true"], {})),
    ("Popen.__init__", lambda: subprocess.run(["/bin/true"], check=False)),
    ("time.clock_gettime", lambda: time.clock_gettime(time.CLOCK_MONOTONIC)),
    ("time.process_time", lambda: time.process_time()),  # noqa: PLW0108
    ("time.ctime", lambda: time.ctime()),  # noqa: PLW0108
    ("random.random", lambda: random.random()),  # noqa: PLW0108, TID251
    ("random.choice", lambda: random.choice([1])),  # noqa: TID251
    (r"random.Random\(\)", lambda: random.Random()),  # noqa: PLW0108
    ("random._urandom", lambda: random.SystemRandom().random()),
    ("uuid.uuid4", lambda: uuid.uuid4()),  # noqa: PLW0108
    ("secrets.token_hex", lambda: secrets.token_hex()),  # noqa: PLW0108
    ("socket.__init__", lambda: socket.socket()),  # noqa: PLW0108
    ("socket.getaddrinfo", lambda: socket.getaddrinfo("localhost", 1)),
    ("builtins.open", lambda: open("/dev/null")),  # noqa: PTH123, SIM115
    ("io.open", lambda: io.open("/dev/null")),  # noqa: SIM115, UP020
    ("io.open", lambda: Path("/dev/null").read_text()),
    ("Thread.start", lambda: threading.Thread(target=id).start()),
]

RUFF: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "ruff"
]["lint"]
BANNED = {
    name
    for name in RUFF["flake8-tidy-imports"]["banned-api"]
    if not (ROOT / name / "__init__.py").is_file()  # Rooms are banned by their bare names.
}
LEADS_TO_A_TRAP = {
    "random.SystemRandom": "random._urandom",
    "random.binomialvariate": "random.random",  # Since Python 3.12.
    "trio.Path": "trio.to_thread.run_sync",
    "trio.open_tcp_listeners": "socket.socket.__init__",
    "trio.open_tcp_stream": "socket.socket.__init__",
    "trio.run_process": "threading.Thread.start",
    "trio.serve_tcp": "socket.socket.__init__",
    "trio.socket": "socket.socket.__init__",
}
CANNOT_BE_TRAPPED = {"datetime", "trio.from_thread", "unittest.mock"}


def names_above(name: str) -> list[str]:
    """Return a name and its prefixes, as `a.b.c`, `a.b` and `a`."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


@pytest.mark.parametrize(("name", "call"), CALLS)
def test_access_to_the_real_world_is_trapped(name: str, call: Callable[[], object]) -> None:
    async def main(_: World) -> None:
        call()

    with pytest.raises(RealWorldError, match=rf"\.py:\d+ called .*{name} inside of"):
        Simulation(1).run(main)


def test_a_thread_of_trio_is_trapped() -> None:
    async def main(_: World) -> None:
        await trio.to_thread.run_sync(id, None)

    with pytest.raises(
        RealWorldError, match=r"run_sync inside of .*; run it through env.run_in_thread"
    ):
        Simulation(1).run(main)


def test_a_leak_ends_the_run_even_if_its_error_is_swallowed() -> None:
    async def main(_: World) -> None:
        with suppress(RealWorldError):
            time.time()  # noqa: TID251
        await trio.sleep_forever()

    with pytest.raises(RealWorldError, match=r"time\.time"):
        Simulation(1).run(main)


def test_a_seeded_random_is_no_leak() -> None:
    async def main(_: World) -> float:
        return random.Random(1).random()

    assert Simulation(1).run(main) == random.Random(1).random()


def test_threads_outside_of_the_simulation_are_exempt() -> None:
    """A broker that other tests share continues, in its thread and those that it starts."""
    asked: SimpleQueue[None] = SimpleQueue()
    answers: SimpleQueue[float] = SimpleQueue()

    def answer() -> None:
        answers.put(time.time() + random.Random().random())  # noqa: TID251

    def serve() -> None:
        asked.get()
        threading.Thread(target=answer).start()

    async def main(_: World) -> float:
        asked.put(None)
        return answers.get()

    thread = threading.Thread(target=serve)
    thread.start()
    assert Simulation(1).run(main) > 1e9
    thread.join()


def test_logs_are_no_leaks(caplog: pytest.LogCaptureFixture) -> None:
    async def main(_: World) -> None:
        try:
            int("to be logged")
        except ValueError:
            logging.getLogger("tidelog.test").exception("with a traceback")

    Simulation(1).run(main)

    assert "to be logged" in caplog.text


def test_the_traps_are_lifted_after_a_run() -> None:
    before = [time.time, os.open, socket.socket.__init__, random.Random.seed]  # noqa: TID251
    thresholds = gc.get_threshold()

    async def main(_: World) -> None:
        assert time.time is not before[0]  # noqa: TID251
        assert gc.get_threshold() > thresholds

    Simulation(1).run(main)

    assert [time.time, os.open, socket.socket.__init__, random.Random.seed] == before  # noqa: TID251
    assert gc.get_threshold() == thresholds


def test_the_linter_bans_every_trapped_name() -> None:
    allowed = [name for name in trapped_names() if BANNED.isdisjoint(names_above(name))]

    assert allowed == ["builtins.open"], "rule PTH123 bans it, as all of PTH is selected"
    assert RUFF["select"] == ["ALL"]
    assert not [code for code in RUFF["ignore"] if code.startswith("PTH")]


def test_every_name_banned_by_the_linter_is_trapped() -> None:
    trapped = {above for name in trapped_names() for above in names_above(name)}

    free = {
        name
        for name in BANNED
        if LEADS_TO_A_TRAP.get(name, name) not in trapped
        and CANNOT_BE_TRAPPED.isdisjoint(names_above(name))
    }

    assert not free


def test_every_function_of_the_shared_random_is_trapped() -> None:
    shared = {
        name
        for name in random.__all__
        if isinstance(getattr(getattr(random, name), "__self__", None), random.Random)
    }

    assert shared - {"getstate", "setstate", "binomialvariate"} <= {
        name.removeprefix("random.") for name in trapped_names()
    }
