"""Crashes that are aimed at whoever serves a queue: right after it has written something.

Between a decision and its effect lie milliseconds: a dead letter is decided and not moved, or moved
and that is not written; a lease that may be lost is handed out, and not on any disk.
"""

from collections.abc import Callable, Mapping
from typing import Final, final

from tests.simulation.broker.plans import Fault
from tests.simulation.cluster.actors import Host
from tests.simulation.cluster.machines import Machine
from tests.simulation.cluster.return_faults import Injector
from tests.simulation.queues.plans import CRASH_ON_ENTRY
from tests.simulation.queues.run_history import JournalAppended
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    DeadLettered,
    Deleted,
    Moved,
    Received,
    Redriven,
    RedriveStarted,
    Released,
    SnapshotEnded,
    decode,
)

_AIM_S: Final = 8.0
"""How long a fault waits for the moment that it is aimed at."""
_ENTRIES: Final[tuple[type[AnyEntry], ...]] = (
    Received,
    Received,
    Deleted,
    DeadLettered,
    DeadLettered,
    Moved,
    Released,
    Redriven,
    RedriveStarted,
    SnapshotEnded,
)


@final
class EntryFaults:
    """Carries them out."""

    def __init__(self, host: Host) -> None:
        """Strike at the machines of `host`."""
        self._host = host
        self._injector: Injector | None = None
        self._aims: list[Fault] = []

    def effects(self, injector: Injector) -> Mapping[str, Callable[[Fault], None]]:
        """Return what strikes by means of `injector`, by kind."""
        self._injector = injector
        return {CRASH_ON_ENTRY: self._aim}

    def appended(self, appended: JournalAppended) -> None:
        """Strike if somebody waits for that: a leader has written to a journal."""
        for fault in self._aims:
            wanted = _entry_of(fault)
            if any(
                isinstance(entry, wanted)
                for value in appended.values
                for entry in decode(value).entries
            ):
                self._strike(fault, appended.partition)
                return

    def _aim(self, fault: Fault) -> None:
        def give_up() -> None:
            if fault in self._aims:
                self._aims.remove(fault)

        assert self._injector is not None, "somebody has drawn this fault"
        self._aims.append(fault)
        self._injector.later(_AIM_S, give_up)

    def _strike(self, fault: Fault, partition: tuple[bytes, int]) -> None:
        machine = self._server_of(partition)
        if machine is None or self._injector is None:
            return
        self._aims.remove(fault)
        self._host.sometimes.reached("crash on entry")
        # From before anybody else has it to after it is committed.
        seconds = 10 ** (-4.5 + 3 * (fault.dice * 100 % 1))
        self._injector.crash_within(machine, seconds, fault.dice)

    def _server_of(self, partition: tuple[bytes, int]) -> Machine | None:
        known = self._host.cluster_history.image.state.partition(*partition)
        return next(
            (
                machine
                for machine in self._host.machines.all
                if known is not None and machine.node_id == known.leader
            ),
            None,
        )


def _entry_of(fault: Fault) -> type[AnyEntry]:
    return _ENTRIES[int(fault.dice * len(_ENTRIES))]
