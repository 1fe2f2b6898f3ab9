"""Turns of connections to handle requests, fair between their principals.

Shell around `round_robin`: parks the tasks of connections. Connections of nodes never wait for a
turn, so replication and Raft go first.
"""

from typing import Final, final

import trio

from tidelog.broker.quotas.round_robin import QUANTUM_S, DeficitRoundRobin

_IDLE_S: Final = QUANTUM_S
"""After so long without a turn, the loop is not busy, and a turn begins at once."""


@final
class FairTurns:
    """The turns of all connections of clients."""

    def __init__(self) -> None:
        """Start without connections; `run` must run in a task while `is_needed`."""
        self.is_needed = False
        """Whether connections of several principals are open."""
        self._turns: DeficitRoundRobin[trio.lowlevel.Task] = DeficitRoundRobin()
        self._last_turn = float("-inf")
        self._has_waiting = trio.Event()

    async def take(self, key: str) -> None:
        """Wait for a turn of a principal; other tasks may run meanwhile."""
        if not len(self._turns) and trio.current_time() - self._last_turn >= _IDLE_S:
            await trio.lowlevel.checkpoint()
            return
        task = trio.lowlevel.current_task()
        self._turns.add(key, task)
        self._has_waiting.set()

        def abort(_: object) -> trio.lowlevel.Abort:
            self._turns.discard(key, task)
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def took(self, key: str, began_at: float) -> None:
        """End a turn that began at a time of trio's clock."""
        self._last_turn = trio.current_time()
        self._turns.took(key, self._last_turn - began_at)

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
