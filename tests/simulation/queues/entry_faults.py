"""Crashes that are aimed at journal leaders, just after they have written an entry.

Between a decision and its effect lie milliseconds. A dead letter is decided and not moved, or moved
without the entry for the move. A lease that may be lost is delivered, and is on no disk.
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
"""Seconds that a fault waits for its moment."""
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
    """Injects crashes on journal entries."""

    def __init__(self, host: Host) -> None:
        """Strike at the machines of `host`."""
        self._host = host
        self._injector: Injector | None = None
        self._aims: list[Fault] = []

    def effects(self, injector: Injector) -> Mapping[str, Callable[[Fault], None]]:
        """Return the injectors, by kind; they strike by means of `injector`."""
        self._injector = injector
        return {CRASH_ON_ENTRY: self._aim}

    def appended(self, appended: JournalAppended) -> None:
        """Strike if a fault waits for this entry of a journal."""
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
        def cancel() -> None:
            if fault in self._aims:
                self._aims.remove(fault)

        assert self._injector is not None, "the plan has this fault"
        self._aims.append(fault)
        self._injector.later(_AIM_S, cancel)

    def _strike(self, fault: Fault, partition: tuple[bytes, int]) -> None:
        machine = self._server_of(partition)
        if machine is None or self._injector is None:
            return
        self._aims.remove(fault)
        self._host.sometimes.reached("crash on entry")
        # The crash comes between before replication and after the commit.
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
