"""What users of queues are promised while they work, as far as they can tell themselves.

Pure. A user knows when it began to ask and when it was told: what was decided was decided in
between. So a checker objects only if no moment in between makes it right.
"""

from collections import defaultdict
from typing import final

from tests.simulation.queues.run_history import (
    Delivered,
    Outcome,
    Place,
    QueueChecker,
    Sent,
    Settlement,
)
from tidelog.wire.messages.queues import SettleAction

_Key = tuple[str, Place]
"""A queue, and where one of its messages is."""
_SHORT_S = 0.005
"""Times travel in whole milliseconds."""


def _key(delivered: Delivered) -> _Key:
    return delivered.queue, delivered.place


@final
class DeletedIsGone(QueueChecker):
    """What is said to be deleted is handed out to nobody who asks later, whoever serves."""

    def __init__(self) -> None:
        """Know of nothing that is deleted."""
        self._deleted: dict[_Key, float] = {}

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        deleted_at = self._deleted.get(_key(delivered))
        if deleted_at is not None and delivered.asked_at >= deleted_at:
            self.fail(f"deleted at {deleted_at:.3f}, and handed out: {delivered}")

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """See `QueueChecker`."""
        if settlement.action is SettleAction.DELETE and outcome is Outcome.DONE:
            self._deleted.setdefault(_key(settlement.delivered), at)

    def forgot(self, queue: str) -> None:
        """See `QueueChecker`."""
        self._deleted = {key: at for key, at in self._deleted.items() if key[0] != queue}


@final
class OneHolder(QueueChecker):
    """Nobody gets a message while somebody has it, in a strict queue.

    By how much the clocks of brokers differ, a lease may be shorter.
    """

    def __init__(self) -> None:
        """Know of no lease."""
        self._leases: dict[_Key, tuple[Delivered, float]] = {}
        """The last delivery of a message, and until when it is its holder's for certain."""

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        if not self.setups[delivered.queue].is_strict:
            return
        key = _key(delivered)
        before = self._leases.get(key)
        if before is not None and delivered.receipt != before[0].receipt:
            free_at = before[1] - 2 * self.lead_s - _SHORT_S
            if delivered.told_at < free_at:
                self.fail(f"until {free_at:.3f} somebody else has it, {before[0]}: {delivered}")
        self._leases[key] = delivered, delivered.asked_at + delivered.visibility_s

    def settlement_asked(self, settlement: Settlement) -> None:
        """See `QueueChecker`."""
        key = _key(settlement.delivered)
        lease = self._leases.get(key)
        if lease is None or lease[0].receipt != settlement.delivered.receipt:
            if settlement.action is SettleAction.DELETE:
                self._leases.pop(key, None)
            return
        free_at = 0.0
        if settlement.action is SettleAction.EXTEND:
            assert settlement.seconds is not None
            free_at = min(lease[1], settlement.asked_at + settlement.seconds)
        self._leases[key] = lease[0], free_at

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """See `QueueChecker`."""
        del at
        lease = self._leases.get(_key(settlement.delivered))
        if (
            settlement.action is not SettleAction.EXTEND
            or outcome is not Outcome.DONE
            or lease is None
        ):
            return
        assert settlement.seconds is not None
        if lease[0].receipt == settlement.delivered.receipt and lease[1]:
            self._leases[_key(settlement.delivered)] = (
                lease[0],
                settlement.asked_at + settlement.seconds,
            )

    def forgot(self, queue: str) -> None:
        """See `QueueChecker`."""
        self._leases = {key: lease for key, lease in self._leases.items() if key[0] != queue}


@final
class CountsAreExact(QueueChecker):
    """In a strict queue every delivery counts, across leaders, and there are never too many."""

    def __init__(self) -> None:
        """Know of no delivery."""
        self._deliveries: defaultdict[_Key, dict[bytes, Delivered]] = defaultdict(dict)
        """By message and receipt."""

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        setup = self.setups[delivered.queue]
        if not setup.is_strict:
            return
        if setup.max_deliveries is not None and delivered.receive_count > setup.max_deliveries:
            self.fail(f"more than {setup.max_deliveries} deliveries: {delivered}")
        before = self._deliveries[_key(delivered)]
        others = [each for each in before.values() if each.receipt != delivered.receipt]
        if any(each.receive_count == delivered.receive_count for each in others):
            self.fail(f"so many deliveries were there before: {delivered}")
        earlier = sum(each.told_at <= delivered.asked_at for each in others)
        if delivered.receive_count < earlier + 1:
            self.fail(f"there were {earlier} deliveries before: {delivered}")
        before[delivered.receipt] = delivered

    def forgot(self, queue: str) -> None:
        """See `QueueChecker`."""
        for key in [key for key in self._deliveries if key[0] == queue]:
            del self._deliveries[key]


@final
class StaleIsFenced(QueueChecker):
    """Who had a message before somebody else got it does not settle it any more.

    In a queue that is not fenced it may delete it still. To delete what is deleted is no error.
    Nor is it to release or reject what is gone, if the answer to a first request was lost: so of
    these a user cannot tell.
    """

    def __init__(self) -> None:
        """Know of no delivery."""
        self._last: dict[_Key, Delivered] = {}
        self._deleted: set[_Key] = set()
        """Somebody who was not stale has asked for it to be deleted or rejected."""

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        last = self._last.get(_key(delivered))
        if last is None or last.receive_count < delivered.receive_count:
            self._last[_key(delivered)] = delivered

    def settlement_asked(self, settlement: Settlement) -> None:
        """See `QueueChecker`."""
        if settlement.action in (SettleAction.DELETE, SettleAction.REJECT) and not self._is_stale(
            settlement
        ):
            self._deleted.add(_key(settlement.delivered))

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """See `QueueChecker`."""
        setup = self.setups[settlement.delivered.queue]
        if outcome is not Outcome.DONE or not setup.is_strict or not self._is_stale(settlement):
            return
        if settlement.action is not SettleAction.EXTEND:
            if settlement.action is not SettleAction.DELETE:
                return
            may_be_done = (
                _key(settlement.delivered) in self._deleted or setup.max_deliveries is not None
            )
            if not setup.is_fenced or may_be_done:
                return
        last = self._last[_key(settlement.delivered)]
        self.fail(f"told at {at:.3f} that it is done, though {last} came before: {settlement}")

    def _is_stale(self, settlement: Settlement) -> bool:
        last = self._last.get(_key(settlement.delivered))
        is_later = last is not None and last.receive_count > settlement.delivered.receive_count
        return last is not None and is_later and last.told_at <= settlement.asked_at

    def forgot(self, queue: str) -> None:
        """See `QueueChecker`."""
        self._last = {key: each for key, each in self._last.items() if key[0] != queue}
        self._deleted = {key for key in self._deleted if key[0] != queue}


@final
class DelayIsKept(QueueChecker):
    """Nobody gets a message before its delay is over, by as much as clocks differ."""

    def __init__(self) -> None:
        """Know of no message."""
        self._not_before: dict[bytes, Sent] = {}

    def sent(self, sent: Sent) -> None:
        """See `QueueChecker`."""
        if sent.delay_s:
            self._not_before[sent.value] = sent

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        sent = self._not_before.get(delivered.value)
        bound = 2 * self.lead_s + _SHORT_S
        if sent is None or self.setups[delivered.queue].topic != sent.topic:
            return
        if delivered.told_at < sent.asked_at + sent.delay_s - bound:
            self.fail(f"it was to wait, {sent}: {delivered}")
