"""Injector of faults in a network and in brokers, which also heals them."""

import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import final

import trio

from tests.system.netns.brokers import Broker
from tests.system.netns.network import Network
from tests.system.netns.plan import Fault, FaultKind, Roles, directions, victims


@final
class FaultInjector:
    """Concurrent faults.

    Invariant: every killed broker is restarted, and every paused one is resumed.
    """

    def __init__(
        self, network: Network, brokers: Mapping[int, Broker], machines: trio.Nursery
    ) -> None:
        """Inject faults into brokers in `machines`."""
        self.roles = Roles()
        """Roles of the brokers; the owner keeps them up to date."""
        self.counts: Counter[str] = Counter()
        """Number of times that each fault has happened."""
        self._network = network
        self._brokers = brokers
        self._machines = machines
        self._pauses: Counter[int] = Counter()
        self._down: set[int] = set()

    async def make(self, faults: Iterator[Fault], rest: Callable[[], Awaitable[None]]) -> None:
        """Inject one fault after the other, without end; when cancelled, heal all.

        `rest` is awaited whenever all faults are healed in between.
        """
        while True:
            async with trio.open_nursery() as nursery:
                for fault in faults:
                    await trio.sleep(fault.after_s)
                    nursery.start_soon(self._suffer, fault)
                    if fault.waits:
                        break
            await rest()

    async def _suffer(self, fault: Fault) -> None:
        hit = victims(fault, self.roles)
        self.counts[fault.name] += 1
        match fault.kind:
            case FaultKind.KILL:
                await self._kill(hit, fault.duration_s)
            case FaultKind.PAUSE:
                await self._pause(hit, fault.duration_s)
            case FaultKind.CUT | FaultKind.CUT_FROM_HIM | FaultKind.CUT_TO_HIM:
                lost = directions(fault, hit)
                await self._network.cut(lost)
                try:
                    await trio.sleep(fault.duration_s)
                finally:
                    await self._network.heal(lost)

    async def _kill(self, hit: list[int], duration_s: float) -> None:
        brokers = [self._brokers[node_id] for node_id in hit if node_id not in self._down]
        for broker in brokers:
            self._down.add(broker.node_id)
            broker.signal(signal.SIGKILL)
        try:
            await trio.sleep(duration_s)
        finally:
            with trio.CancelScope(shield=True):
                for broker in brokers:
                    await broker.wait_ended()
                    await self._machines.start(broker.run)
                    self._down.remove(broker.node_id)

    async def _pause(self, hit: list[int], duration_s: float) -> None:
        for node_id in hit:
            self._pauses[node_id] += 1
            self._brokers[node_id].signal(signal.SIGSTOP)
        try:
            await trio.sleep(duration_s)
        finally:
            for node_id in hit:
                self._pauses[node_id] -= 1
                if not self._pauses[node_id]:
                    self._brokers[node_id].signal(signal.SIGCONT)
