"""Runs the code blocks of a page in order, as a reader would, in a directory of its own."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, final

import trio

from tests.paths import ROOT
from tests.system.docs.blocks import Block, Command, begins_like, commands_of, is_like

FIRST_PORT: Final = 8433
BROKER_COUNT: Final = 5
FIRST_FRONT_PORT: Final = 9324
PORT_COUNT: Final = BROKER_COUNT + 2
"""Brokers and fronts of SQS."""
_PORT: Final = re.compile(r"(?<=127\.0\.0\.[1-9]:)\d+")
_MACHINE: Final = re.compile(r"\b10\.0\.0\.([1-8])(?=:)")
"""Addresses of several machines: other addresses of this one replace them."""
_SERVE: Final = re.compile(r"^(?:exec )?tidelog (?:serve|sqs)\b", re.MULTILINE)
_DEADLINE_S: Final = 250.0
"""For a command that hangs; everything here takes a few seconds."""


def free_ports(start: int) -> int:
    """Return the first of `PORT_COUNT` ports in a row that are free."""
    for first in range(start, 60_000, PORT_COUNT):
        with ExitStack() as bound:
            try:
                for port in range(first, first + PORT_COUNT):
                    bound.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no ports are free")


def starts_a_broker(blocks: Iterable[Block]) -> bool:
    """Return whether a page starts brokers itself."""
    return any(
        _SERVE.search(re.sub(r"^\$ ", "", block.text, flags=re.MULTILINE))
        for block in blocks
        if block.is_run
    )


@final
class PageRunner:
    """The terminals of a reader: a directory, variables, and brokers that run meanwhile."""

    def __init__(self, directory: Path, first_port: int) -> None:
        self._directory = directory
        self._variables = directory.parent / f"{directory.name}.variables"
        self._first_port = first_port
        self._running: list[trio.Process] = []
        self._output = ""
        self._files: set[str] = set()
        directory.mkdir()
        self._variables.touch()

    @property
    def address(self) -> str:
        """Address at which a broker of the page listens."""
        return f"127.0.0.1:{self._first_port}"

    @property
    def unused_files(self) -> set[str]:
        """Files that the page shows and that no command has named."""
        return self._files

    async def run(self, block: Block) -> None:
        """Run one block, or compare an output.

        Raises:
            AssertionError: A command failed, or its output is not the one that the page shows.
        """
        if "fresh" in block.words:
            await self._clear()
        if block.file:
            (self._directory / block.file).write_text(self._moved(block.text), encoding="utf-8")
            self._files.add(block.file)
        elif block.is_output:
            order = _sorted if "unordered" in block.words else str
            _compare(order(block.text), order(self._output), "the block above")
        elif block.language == "sh":
            self._output = await self.script(block.text)
        elif block.language == "console":
            for command in commands_of(block.text):
                await self._command(command, block.words)
        elif block.language == "python":
            name = f"block_{block.line}.py"
            (self._directory / name).write_text(self._moved(block.text), encoding="utf-8")
            self._output = await self.script(f"python {name}")

    async def stop(self) -> None:
        """Kill all processes that the page has started, and wait for their end."""
        for process in self._running:
            for member in _session(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(member, signal.SIGKILL)
            await process.wait()
        self._running.clear()

    async def _clear(self) -> None:
        await self.stop()
        shutil.rmtree(self._directory)
        self._directory.mkdir()
        self._variables.write_text("", encoding="utf-8")

    async def _command(self, command: Command, words: frozenset[str]) -> None:
        if _SERVE.search(command.text) and not command.text.rstrip().endswith("&"):
            await self.serve(command.text, command.output)
            return
        self._output = await self.script(command.text)
        with trio.move_on_after(_DEADLINE_S):
            while "until" in words and not is_like(command.output, self._output):
                await trio.sleep(0.2)
                self._output = await self.script(command.text)
        if "unordered" in words:
            _compare(_sorted(command.output), _sorted(self._output), command.text)
        elif command.output:
            _compare(command.output, self._output, command.text)

    async def script(self, text: str) -> str:
        """Run shell commands, with the variables that earlier ones have set."""
        self._files = {file for file in self._files if file not in text}
        saved = f"set -aeo pipefail; . {self._variables}; cd {self._directory}\n"
        script = f"{saved}{self._moved(text)}\nexport -p > {self._variables}"
        with (self._directory.parent / f"{self._directory.name}.output").open("w+b") as output:
            process = await self._start(script, output.fileno())
            with trio.move_on_after(_DEADLINE_S):
                await process.wait()
            output.seek(0)
            said = self._moved_back(output.read().decode())
        assert process.returncode == 0, f"{text}\nended with {process.returncode}:\n{said}"
        return said

    async def serve(self, text: str, shown: str = "") -> None:
        """Start a broker; return when its output begins as the page shows."""
        self._files = {file for file in self._files if file not in text}
        path = self._directory.parent / f"{self._directory.name}-{len(self._running)}.log"
        with path.open("wb") as output:
            script = f"cd {self._directory}; exec {self._moved(text)}"
            process = await self._start(script, output.fileno())
        said = ""
        with trio.move_on_after(_DEADLINE_S):
            while process.poll() is None:
                said = self._moved_back(path.read_text("utf-8"))
                if begins_like(shown, said) if shown else "broker_started" in said:
                    return
                await trio.sleep(0.05)
        raise AssertionError(f"{text}\nshould say\n{shown}\nand said\n{said}")

    async def _start(self, script: str, output: int) -> trio.Process:
        process = await trio.lowlevel.open_process(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=self._environment(),
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def _environment(self) -> dict[str, str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith("TIDELOG_")}
        return {
            **own,
            "PATH": f"{Path(sys.executable).parent}:{own['PATH']}",
            "PYTHONPATH": str(ROOT),
            # Before an install of this version, the plugin of pytest is no entry point yet.
            "PYTEST_ADDOPTS": "-pno:tidelog -ptidelog.testing.plugin",
            "TIDELOG_BROKER": self.address,
            "TIDELOG_LISTEN": self.address,
            "TIDELOG_GROUP_INITIAL_REBALANCE_DELAY_MS": "100",
        }

    def _moved(self, text: str) -> str:
        """Return text with ports that are free."""
        text = text.replace(".venv/bin/tidelog", "tidelog")
        text = _MACHINE.sub(lambda machine: f"127.0.0.{int(machine[1]) + 1}", text)
        return _PORT.sub(lambda port: str(self._first_port + _place_of(int(port[0]))), text)

    def _moved_back(self, text: str) -> str:
        """Return text with the ports of the page."""
        return _PORT.sub(lambda port: str(_port_at(int(port[0]) - self._first_port)), text)


def _place_of(port: int) -> int:
    """Return the place of a port of a page among the ports that are free."""
    if port >= FIRST_FRONT_PORT:
        return port - FIRST_FRONT_PORT + BROKER_COUNT
    return port - FIRST_PORT


def _port_at(place: int) -> int:
    """Return the port of a page that has a place."""
    if BROKER_COUNT <= place < PORT_COUNT:
        return place - BROKER_COUNT + FIRST_FRONT_PORT
    return place + FIRST_PORT


def _session(leader: int) -> list[int]:
    """Return the processes of a session; the workers of a broker have groups of their own."""
    found: list[int] = []
    for name in os.listdir("/proc"):  # noqa: PTH208 (numbers, not paths)
        with suppress(ValueError, ProcessLookupError):
            if os.getsid(int(name)) == leader:
                found.append(int(name))
    return found


def _compare(shown: str, output: str, command: str) -> None:
    assert is_like(shown, output), f"{command}\nshould say\n{shown}\nand said\n{output}"


def _sorted(text: str) -> str:
    return "\n".join(sorted(text.splitlines()))
