"""Turns of connections to handle requests, fair between their principals.

Shell around `round_robin`: parks the tasks of connections. Connections of nodes never wait for a
turn, so replication and Raft go first. A turn costs steps of the scheduler, so a principal takes
one only when it has used up its millisecond of the round: that bounds the cost to a hundredth of
the work, unless many connections of one principal are ready at once.
"""

from typing import Final, final

import trio

from tidelog.broker.quotas.round_robin import QUANTUM_S, DeficitRoundRobin

_IDLE_S: Final = QUANTUM_S
"""After so long without work, the loop is not busy, and all principals have credit again."""


@final
class FairTurns:
    """The turns of all connections of clients."""

    def __init__(self) -> None:
        """Start without connections; `run` must run in a task while `is_needed`."""
        self.is_needed = False
        """Whether connections of several principals are open."""
        self._turns: DeficitRoundRobin[trio.lowlevel.Task] = DeficitRoundRobin()
        self._last_work = float("-inf")
        self._has_waiting = trio.Event()

    def may_go(self, key: str) -> bool:
        """Return whether a principal may go on without a turn."""
        if self._turns.has_credit(key):
            return True
        if not len(self._turns) and trio.current_time() - self._last_work >= _IDLE_S:
            self._turns.clear()
            return True
        return False

    async def take(self, key: str) -> None:
        """Wait for a turn of a principal; other tasks run meanwhile."""
        task = trio.lowlevel.current_task()
        self._turns.add(key, task)
        self._has_waiting.set()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._turns.discard(key, task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def took(self, key: str, began_at: float) -> None:
        """Charge the work of a principal since a time of trio's clock."""
        self._last_work = trio.current_time()
        self._turns.took(key, self._last_work - began_at)

    async def run(self) -> None:
        """Give turns until cancelled."""
        while True:
            granted = self._turns.next_round()
            if not granted:
                self._has_waiting = trio.Event()
                await self._has_waiting.wait()
                continue
            for task in granted:
                trio.lowlevel.reschedule(task)
            await trio.lowlevel.checkpoint()
