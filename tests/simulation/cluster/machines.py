"""Machines of brokers, and the restarts of their processes."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final, final

import trio

from tests.cluster_secret import SECRET
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.run_history import RunHistory, ViolationError
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.plans import ClusterPlan
from tests.simulation.machine.process import Process
from tests.simulation.machine.world import World
from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.server import Broker, open_broker
from tidelog.coordinator.metadata.records import BrokerChanged, PartitionChanges
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.wire.errors import DataDirectoryError, DuplicateBrokerError, LogOfflineError

PORT = 8433
_REACHED: Final = {
    "metadata_damaged": "damage found",
    "metadata_offline": "metadata offline",
    "replica_repaired": "replica repaired",
    "replica_removed": "replica removed",
    "replica_truncated": "replica truncated",
    "truncation_refused": "truncation refused",
    "directory_is_old": "old directory recognised",
    "metadata_is_old": "old vote set aside",
}
"""Probes that a broker's event reaches."""
_OFFLINE_MEAN_S = 0.5
_HURRIED_S = 0.5
_OUTAGE_MEAN_S = 12.0
"""Mean seconds of an outage; longer than the session of a broker."""


def host_of(node_id: int) -> str:
    """Return the name of a node's machine."""
    return f"node{node_id}"


def addresses(plan: ClusterPlan) -> str:
    """Return the bootstrap addresses of the cluster."""
    return ",".join(f"{host_of(node_id)}:{PORT}" for node_id in plan.node_ids)


@final
class Machine:
    """One broker's machine, which restarts the broker after a crash."""

    def __init__(
        self,
        world: World,
        plan: ClusterPlan,
        node_id: int,
        *,
        random: Random,
    ) -> None:
        """Create the machine; `run` must run in a task of its own."""
        self.node_id = node_id
        self.node = world.add_node(host_of(node_id))
        self.node.disk_speed.sync_mean_s = plan.sync_mean_s
        self.crash_count = 0
        self.has_failing_disk = False
        """Whether a disk call has failed in the current process."""
        self.is_disk_full = False
        """Whether the disk is full now."""
        self.was_damaged = False
        """Whether the node may have to come back under another identity."""
        self.has_kept_cache = True
        """Whether all bytes that the last started process wrote are still there."""
        self.lost_caches = 0
        """Number of page caches that were lost, wholly or in part."""
        self.is_beyond_repair = False
        """Whether its disk is to be replaced when a broker reports that it is unusable."""
        self.is_hurried = False
        """Whether it always restarts at once."""
        self.next_down_s: float | None = None
        """Seconds of the next downtime; `None` for the plan's value."""
        self.is_serving = False
        """Whether the current process has reported its start."""
        self._broker: Broker | None = None
        self._world = world
        self._plan = plan
        self._random = random
        self._gets_new_disk = False
        self._stop_wanted = trio.Event()
        self._starts = trio.Event()

    @property
    def is_up(self) -> bool:
        """Whether a process runs."""
        return self.node.process is not None

    async def run(self) -> None:
        """Start the broker whenever it is down; work until cancelled."""
        while True:
            self._stop_wanted = trio.Event()
            self._starts = trio.Event()
            self.is_serving = False
            self._broker = None
            process = self.node.start(self._serve)
            await process.ended.wait()
            if self._gets_new_disk:
                self._gets_new_disk = self.is_beyond_repair = False
                self.node.wipe_disk()
            down_s, self.next_down_s = self.next_down_s, None
            if down_s is None:
                down_s = self._random.expovariate(1 / self._restart_mean_s())
            with trio.move_on_after(down_s):
                await self._starts.wait()

    def start_now(self) -> None:
        """Start the broker at once if it is down."""
        if not self.is_up:
            self._starts.set()

    def kill(self) -> None:
        """Kill the process, if one runs."""
        if self.is_up:
            self.crash_count += 1
            self._end_process()
            self.node.kill()

    def cut_power(self) -> None:
        """Cut the power of the machine."""
        self.crash_count += 1
        self.has_kept_cache = self.has_failing_disk = False
        self.lost_caches += 1
        self.node.cut_power()

    def stop(self) -> None:
        """Stop the broker cleanly."""
        self._stop_wanted.set()

    def open_logs(self) -> None:
        """Have the broker open the logs that its start has left closed."""
        partitions = None if self._broker is None else self._broker._partitions
        if self.is_up and partitions is not None:
            for key, _ in list(partitions.idle.items()):
                partitions.replica(*key)

    def offline(self) -> None:
        """Schedule a kill of this process, as an operator would, unless it ends before."""
        process = self.node.process

        def kill() -> None:
            if self.node.process is process:
                self.kill()

        self._world.clock.call_later(self._random.expovariate(1 / _OFFLINE_MEAN_S), kill)

    def _restart_mean_s(self) -> float:
        if self.is_hurried:
            return _HURRIED_S
        is_outage = self._random.random() < self._plan.outage_rate
        return _OUTAGE_MEAN_S if is_outage else self._plan.restart_mean_s

    async def _serve(self, process: Process) -> None:
        settings: dict[str, Any] = {
            **self._plan.broker_settings,
            "node_id": self.node_id,
            "listen": f"{host_of(self.node_id)}:{PORT}",
            "peers": ",".join(f"{each}={host_of(each)}:{PORT}" for each in self._plan.node_ids),
        }
        config = BrokerConfig(**settings)
        stop_wanted = self._stop_wanted
        try:
            async with open_broker(config, process.env, process.disk, secret=SECRET) as broker:
                self._broker = broker
                await stop_wanted.wait()
        except (OSError, DataDirectoryError, LogOfflineError, DuplicateBrokerError) as error:
            # A broker with a new identity must wait until its old one is fenced.
            is_expected = self.has_failing_disk or self.is_disk_full
            if isinstance(error, DuplicateBrokerError):
                is_expected = self.was_damaged
            elif isinstance(error, DataDirectoryError) and self.is_beyond_repair:
                is_expected = self._gets_new_disk = True
            if not is_expected:
                raise ViolationError(
                    "HonestStatus", f"{process.name} ends for no reason: {error}"
                ) from error
            process.env.probe("broker_failed", reason=str(error))
        self._end_process()

    def _end_process(self) -> None:
        if self.has_failing_disk:
            self.has_kept_cache = self.has_failing_disk = False
            self.lost_caches += 1


@final
class Machines:
    """All machines, and the leader of their nodes."""

    def __init__(
        self,
        world: World,
        plan: ClusterPlan,
        run_history: RunHistory,
        *,
        cluster_history: ClusterHistory,
        sometimes: Sometimes,
    ) -> None:
        """Create the machines."""
        random = world.streams.stream("operator")
        self.all = [Machine(world, plan, node_id, random=random) for node_id in plan.node_ids]
        self._by_host = {machine.node.name: machine for machine in self.all}
        self._run_history = run_history
        self._cluster_history = cluster_history
        self._sometimes = sometimes
        self.on_truncated: list[Callable[[str], None]] = []
        """Callbacks with the directory of a replica that was just truncated."""
        self._was_fenced: set[int] = set()
        world.observe(self._observe)
        cluster_history.on_elected.append(self._elected)
        cluster_history.on_committed.append(self._committed)
        cluster_history.on_restored.append(lambda _: sometimes.reached("snapshot sent"))

    @property
    def names(self) -> list[str]:
        """Their names in the network."""
        return list(self._by_host)

    @property
    def crash_count(self) -> int:
        """Number of crashes of all machines."""
        return sum(machine.crash_count for machine in self.all)

    def has_kept_cache(self, node_id: int) -> bool:
        """Return whether a node has all bytes that its last started process wrote."""
        return self._by_host[host_of(node_id)].has_kept_cache

    def lost_caches(self, node_id: int) -> int:
        """Return how often a node has lost bytes that a process wrote and did not sync."""
        return self._by_host[host_of(node_id)].lost_caches

    def of(self, node: RaftNode) -> Machine:
        """Return the machine of a node."""
        return self._by_host[host_of(node.identity.node_id)]

    def leader(self) -> Machine | None:
        """Return the machine whose node leads, in the latest term if several do."""
        leading = [
            (node.term, node_id)
            for node_id, node in self._cluster_history.nodes.items()
            if node.is_leader and self._by_host[host_of(node_id)].is_up
        ]
        return self._by_host[host_of(max(leading)[1])] if leading else None

    def run(self, nursery: trio.Nursery) -> None:
        """Keep all brokers running, in tasks of `nursery`."""
        for machine in self.all:
            nursery.start_soon(partial(machine.run), name=machine.node.name)

    def are_of_one_mind(self) -> bool:
        """Return whether one node leads, all others know it, and no broker is fenced."""
        nodes = self._cluster_history.nodes
        if len(nodes) < len(self.all) or not all(machine.is_up for machine in self.all):
            return False
        leader_ids = {node.leader_id for node in nodes.values()}
        brokers = self._cluster_history.image.state.brokers
        return (
            len(leader_ids) == 1
            and None not in leader_ids
            and all(machine.node_id in brokers for machine in self.all)
            and not any(broker.is_fenced for broker in brokers.values())
            and all(machine.is_serving for machine in self.all)
        )

    def _observe(self, host: str, event: str, fields: Mapping[str, object]) -> None:
        machine = self._by_host.get(host)
        if machine is None:
            return
        self._run_history.probed(event, fields)
        if event in _REACHED:
            self._sometimes.reached(_REACHED[event])
        if event == "broker_started":
            machine.is_serving = machine.has_kept_cache = True
        elif event == "broker_stopped" and fields["is_clean"]:
            self._sometimes.reached("clean stop")
        elif event == "replica_truncated":
            for listener in self.on_truncated:
                listener(str(fields["directory"]))
        if event == "metadata_offline" or fields.get("status") == "offline":
            machine.offline()

    def _elected(self, node: RaftNode) -> None:
        self._sometimes.reached("leader elected")
        for other_id, other in self._cluster_history.nodes.items():
            if other is not node and other.is_leader and self._by_host[host_of(other_id)].is_up:
                self._sometimes.reached("leader deposed")

    def _committed(self, records: Sequence[object]) -> None:
        for record in records:
            if isinstance(record, PartitionChanges):
                if any(partition.leader is None for _, _, partition in record.changes()):
                    self._sometimes.reached("partition without leader")
            elif isinstance(record, BrokerChanged) and record.is_fenced:
                self._sometimes.reached("broker fenced")
                self._was_fenced.add(record.node_id)
            elif isinstance(record, BrokerChanged) and record.node_id in self._was_fenced:
                self._sometimes.reached("broker let in again")
