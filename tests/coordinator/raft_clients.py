"""Clients and faults for a few nodes of Raft."""

from collections.abc import Callable
from random import Random
from typing import final

import trio

from tests.coordinator.raft_nodes import Host
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.world import World
from tidelog.coordinator.raft.errors import ProposalRefusedError
from tidelog.coordinator.raft_node.pending_proposals import (
    LostProposalError,
    OvertakenProposalError,
)
from tidelog.wire.errors import LogOfflineError


async def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    """Wait for a condition in simulated time, in which polling is free."""
    with trio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110  (nodes send no notice of a change)
            await trio.sleep(0.01)


@final
class Client:
    """Commits values, one after the other, through the node that it takes for the leader."""

    def __init__(self, group: list[Host], number: int, random: Random) -> None:
        """Write values with `number` in them."""
        self.done: dict[int, bytes] = {}
        """Acknowledged values, by index."""
        self._group = group
        self._number = number
        self._random = random
        self._count = 0

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            host = self._random.choice(self._group)
            with trio.move_on_after(2):
                await self._propose(host)
            await trio.sleep(0.02)

    async def _propose(self, host: Host) -> None:
        while host.raft is not None and host.raft.is_leader:
            self._count += 1
            value = b"%d.%d" % (self._number, self._count)
            try:
                self.done[await host.raft.propose(value)] = value
                await trio.sleep(0.02)
            except (
                ProposalRefusedError,
                LostProposalError,
                OvertakenProposalError,
                LogOfflineError,
            ):
                return


@final
class FaultInjector:
    """Injects faults every now and then."""

    def __init__(self, world: World, group: list[Host], random: Random) -> None:
        """Inject faults into `group`."""
        self._world = world
        self._group = group
        self._random = random
        self._heals: list[Callable[[], None]] = []
        self._attacks: list[Callable[[Host], None]] = [
            Host.kill,
            Host.cut_power,
            self._pause,
            self._stall_disk,
            self._partition,
            self._heal,
        ]

    async def run(self, attack_count: int) -> None:
        """Inject so many faults; then heal all of them."""
        self._world.network.set_quality(
            LinkQuality(delay_mean_s=0.005, loss=0.01, split=0.1, reset=0.001)
        )
        for _ in range(attack_count):
            await trio.sleep(self._random.expovariate(1.5))
            host = self._random.choice(self._group)
            if not host.is_up:
                host.start()
            else:
                self._random.choice(self._attacks)(host)
        while self._heals:
            self._heals.pop()()
        self._world.network.set_quality(LinkQuality())
        for host in self._group:
            if not host.is_up:
                host.start()

    def _pause(self, host: Host) -> None:
        host.machine.pause(self._random.expovariate(0.5))

    def _stall_disk(self, host: Host) -> None:
        host.machine.stall_disk(self._random.expovariate(1.0))

    def _partition(self, _: Host) -> None:
        names = [host.machine.name for host in self._group]
        self._random.shuffle(names)
        cut = self._random.randrange(1, len(names))
        one_way = self._random.random() < 0.5
        self._heals.append(self._world.network.partition(names[:cut], names[cut:], one_way=one_way))

    def _heal(self, _: Host) -> None:
        if self._heals:
            self._heals.pop()()
