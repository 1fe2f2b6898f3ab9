"""What a few nodes of Raft go through: clients, and somebody who is after them."""

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
    """Wait for a state of the world, in its time, which costs nothing to look at often."""
    with trio.fail_after(seconds):
        while not holds():  # noqa: ASYNC110  (nodes tell nobody when they change)
            await trio.sleep(0.01)


@final
class Client:
    """Has values committed, one after the other, by whoever it takes for the leader."""

    def __init__(self, group: list[Host], number: int, random: Random) -> None:
        """Write values that name it by `number`."""
        self.done: dict[int, bytes] = {}
        """What was said to be committed, by index."""
        self._group = group
        self._number = number
        self._random = random
        self._count = 0

    async def run(self) -> None:
        """Work until cancelled."""
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
            except (
                ProposalRefusedError,
                LostProposalError,
                OvertakenProposalError,
                LogOfflineError,
            ):
                return


@final
class FaultInjector:
    """Does something bad every now and then."""

    def __init__(self, world: World, group: list[Host], random: Random) -> None:
        """Be after `group`."""
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
        """Attack so many times; then make all good that was made bad."""
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
