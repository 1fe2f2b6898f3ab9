"""Broker processes, each in a network namespace, which can be killed, paused and restarted.

A broker that ends by itself is a problem, whatever the reason.
"""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

import trio

from tests.paths import ROOT
from tests.system.integration.processes import DEADLINE_S, BrokerProcess, environment
from tests.system.netns.network import address_of, inside

PORT: Final = 8433
_SETTINGS: Final = """\
replica_lag_time_max_ms = "3s"
group_consumer_session_timeout_ms = "8s"
group_consumer_heartbeat_interval_ms = "1s"
group_initial_rebalance_delay_ms = "0s"
"""
"""Shorter than the defaults, so that a minute has more events."""


@final
class Broker:
    """One broker, over all of its processes."""

    def __init__(
        self, node_id: int, node_ids: tuple[int, ...], directory: Path, *, program: Sequence[str]
    ) -> None:
        """Keep data and settings in `directory`."""
        self.node_id = node_id
        self.directory = directory
        self.problems: list[str] = []
        self._peers = ",".join(f"{each}={address_of(each)}:{PORT}" for each in node_ids)
        self._process: BrokerProcess | None = None
        self._program = program
        self._is_to_end = False
        self._ended = trio.Event()

    @property
    def data_directory(self) -> Path:
        """Its data directory."""
        return self.directory / "data"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run one process, from its start to its end; started when it serves."""
        assert self._process is None, "it runs"
        await trio.Path(self.directory).mkdir(exist_ok=True)
        settings = self.directory / "tidelog.toml"
        await trio.Path(settings).write_text(_SETTINGS)
        self._is_to_end, self._ended = False, trio.Event()
        process = await trio.lowlevel.open_process(
            [
                *inside(self.node_id),
                *(*self._program, "serve", "--log-format", "json", "--config", str(settings)),
                *("--node-id", str(self.node_id), "--listen", f"{address_of(self.node_id)}:{PORT}"),
                "--insecure-listen",
                *("--peers", self._peers, "--data-dir", str(self.data_directory)),
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            env=environment(),
        )
        self._process = BrokerProcess(process)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._process.read_log)
                # A restart does not wait: without other brokers it may be unable to serve.
                task_status.started()
                await self._watch(self._process)
        finally:
            with trio.CancelScope(shield=True):
                process.kill()
                await process.wait()
            self._process = None
            self._ended.set()

    async def wait_ended(self) -> None:
        """Wait until the current process has ended."""
        await self._ended.wait()

    async def wait_serving(self) -> None:
        """Wait until it serves.

        Raises:
            trio.TooSlowError: It does not serve in time.
        """
        assert self._process is not None, "the broker was started"
        with trio.fail_after(DEADLINE_S):
            await self._process.wait_event("broker_started")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if there is one."""
        if self._process is not None:
            self._is_to_end |= number in (signal.SIGKILL, signal.SIGTERM)
            self._process.signal(number)

    async def _watch(self, process: BrokerProcess) -> None:
        status = await process.wait_ended()
        with (self.directory / "log").open("a", encoding="utf-8") as log:
            log.writelines(f"{event}\n" for event in [*process.other_lines, *process.events])
        wanted = {0, -signal.SIGKILL} if self._is_to_end else set[int]()
        if status not in wanted:
            said = process.other_lines[-20:] or process.events[-3:]
            self.problems.append(f"broker {self.node_id} ended with status {status}: {said}")
        self.problems += [
            f"broker {self.node_id} says {event}"
            for event in process.events
            if event.get("level") in ("error", "critical")
        ]
