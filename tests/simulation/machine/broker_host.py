"""The machine of a broker, and the restarts of its process.

All crashes go through here, so that the run history learns the records that each may lose.
"""

from collections.abc import Mapping
from math import inf
from typing import final

import trio

from tests.cluster_secret import SECRET
from tests.simulation.broker.bit_rot import visible_log_ends
from tests.simulation.broker.plans import Plan
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.broker_checkers import CleanStopKeeps, DurableStays
from tests.simulation.checkers.run_history import DamageReported, RunHistory, ViolationError
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import World
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.server import open_broker
from tidelog.wire.errors import DataDirectoryError, LogOfflineError

HOST, PORT = "broker", 8433
TOPIC = "flights"
_OFFLINE_MEAN_S = 0.5


@final
class BrokerHost:
    """A broker's machine, which restarts the broker after a crash."""

    def __init__(
        self, world: World, plan: Plan, run_history: RunHistory, *, sometimes: Sometimes
    ) -> None:
        """Create the machine; `run` must run in a task of its own."""
        self.node = world.add_node(HOST)
        self.crash_count = 0
        self.lost: dict[int, list[range]] = {}
        """By partition: offsets that crashes may have lost, and that were reused since."""
        self._world = world
        self._plan = plan
        self._run_history = run_history
        self._sometimes = sometimes
        self._random = world.streams.stream("operator")
        self._stop_wanted = trio.Event()
        self._is_cache_wrong = False
        self._has_stopped_cleanly = False
        self._cuts_after_stop = False
        self._clean = run_history.checker(CleanStopKeeps)
        self._durable = run_history.checker(DurableStays)
        self.node.disk_speed.sync_mean_s = plan.sync_mean_s
        world.observe(self._observe)

    async def run(self) -> None:
        """Start the broker whenever it is down; work until cancelled."""
        while True:
            if self.node.process is None:
                self._stop_wanted = trio.Event()
                self._has_stopped_cleanly = self._cuts_after_stop = False
                self._run_history.process_began()
                self.node.start(self._serve)
            await trio.sleep(self._random.expovariate(1 / self._plan.restart_mean_s))

    def kill(self) -> None:
        """Kill the process, if one runs."""
        if self.node.process is not None:
            self._crashed(may_lose=self._is_cache_wrong)
            self._run_history.held_up(inf)
            self.node.kill()

    def cut_power(self) -> None:
        """Cut the power of the machine."""
        self._crashed(may_lose=True)
        self._run_history.held_up(inf)
        self.node.cut_power()
        self._sometimes.cut(self.node.disk.survivals)

    def stop(self, *, cuts_power: bool) -> None:
        """Stop the broker cleanly; the power may be cut as soon as it has stopped."""
        self._cuts_after_stop = cuts_power
        self._stop_wanted.set()

    def keep_power(self) -> None:
        """Cancel a power cut after a stop."""
        self._cuts_after_stop = False

    def sync_failed(self) -> None:
        """Record that the page cache shows bytes that never reached the disk."""
        self._is_cache_wrong = True

    async def _serve(self, process: Process) -> None:
        limits = self._plan.broker_settings
        config = BrokerConfig(listen=f"{HOST}:{PORT}", **limits)  # type: ignore[arg-type]  # numbers
        stop_wanted = self._stop_wanted
        try:
            async with open_broker(config, process.env, process.disk, secret=SECRET):
                await stop_wanted.wait()
        except (OSError, DataDirectoryError, LogOfflineError) as error:
            process.env.probe("broker_failed", reason=str(error))
        self._run_history.held_up(inf)
        if self._is_cache_wrong:
            self._crashed(may_lose=True)

    def _crashed(self, *, may_lose: bool) -> None:
        self.crash_count += 1
        self._sometimes.crashed()
        if may_lose and not self._plan.is_durable and not self._has_stopped_cleanly:
            log_ends = visible_log_ends(self.node.disk, TOPIC)
            count = max(self._plan.partition_count, max(log_ends, default=0) + 1)
            ends = {
                partition: self._durable.durable_ends.get(partition, 0)
                for partition in range(count)
            }
            for partition, end in ends.items():
                lost = range(end, log_ends.get(partition, 0))
                self.lost.setdefault(partition, []).append(lost)
            if self._clean.is_owed():
                self._sometimes.reached("lost in memory")
            self._run_history.forgotten(ends)

    def _observe(self, node: str, event: str, fields: Mapping[str, object]) -> None:
        if node != HOST:
            return
        self._sometimes.probed(event, fields)
        self._run_history.probed(event, fields)
        if event == "broker_started":
            self._is_cache_wrong = False
        elif event == "broker_stopping" and self._clean.is_owed():
            self._sometimes.reached("stop owes")
        elif event == "broker_stopped" and fields["is_clean"]:
            self._has_stopped_cleanly = True
            if self._cuts_after_stop:
                self._sometimes.reached("cut after stop")
                self._world.clock.call_later(0, self.cut_power)
        elif event == "log_damaged":
            partition, offset, end = fields["partition"], fields["offset"], fields["end_offset"]
            assert isinstance(partition, int)
            if fields["topic"] != TOPIC:
                raise ViolationError("DamageIsReal", f"nothing is corrupt in {fields['topic']}")
            assert isinstance(offset, int)
            assert isinstance(end, int)
            self._run_history.damage_reported(DamageReported(partition, offset, end))
        elif event == "metadata_offline" or fields.get("status") == "offline":
            self._kill_later()

    def _kill_later(self) -> None:
        """Schedule a kill of this process, as an operator would, unless it ends before."""
        process = self.node.process

        def kill() -> None:
            if self.node.process is process:
                self.kill()

        self._world.clock.call_later(self._random.expovariate(1 / _OFFLINE_MEAN_S), kill)
