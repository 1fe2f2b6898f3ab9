"""Checkers of queues during a run, from the view of their users.

Pure. A user knows when it sent a request and when it got the reply: the decision came in between.
So a checker objects only if no moment in between makes the reply valid.
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
"""A queue, and the place of one of its messages."""
_SHORT_S = 0.005
"""Tolerance in seconds, because times on the wire are whole milliseconds."""


def _key(delivered: Delivered) -> _Key:
    return delivered.queue, delivered.place


@final
class DeletedIsGone(QueueChecker):
    """An acknowledged delete is final: no later receive returns the message, under any leader."""

    def __init__(self) -> None:
        """Start without deletes."""
        self._deleted: dict[_Key, float] = {}

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        deleted_at = self._deleted.get(_key(delivered))
        if deleted_at is not None and delivered.asked_at >= deleted_at:
            self.fail(f"deleted at {deleted_at:.3f}, but delivered: {delivered}")

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """See `QueueChecker`."""
        if settlement.action is SettleAction.DELETE and outcome is Outcome.DONE:
            self._deleted.setdefault(_key(settlement.delivered), at)

    def forgot(self, queue: str) -> None:
        """See `QueueChecker`."""
        self._deleted = {key: at for key, at in self._deleted.items() if key[0] != queue}


@final
class OneHolder(QueueChecker):
    """A message has one holder at a time, in a strict queue.

    A lease may be shorter by the difference between the clocks of brokers.
    """

    def __init__(self) -> None:
        """Start without leases."""
        self._leases: dict[_Key, tuple[Delivered, float]] = {}
        """The last delivery of a message, and the earliest possible end of its lease."""

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        if not self.setups[delivered.queue].is_strict:
            return
        key = _key(delivered)
        before = self._leases.get(key)
        if before is not None and delivered.receipt != before[0].receipt:
            free_at = before[1] - 2 * self.lead_s - _SHORT_S
            if delivered.told_at < free_at:
                self.fail(f"another holder has it until {free_at:.3f}, {before[0]}: {delivered}")
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
    """In a strict queue receive counts are exact across leaders, and never exceed the maximum."""

    def __init__(self) -> None:
        """Start without deliveries."""
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
            self.fail(f"the receive count was reached before: {delivered}")
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
    """An outdated receipt does not settle a message after a later delivery.

    In a queue without fencing it may still delete the message. A repeated delete is no error. Nor
    is a release or a reject of a message that is gone, if the reply to a first request was lost: a
    user cannot tell these cases apart.
    """

    def __init__(self) -> None:
        """Start without deliveries."""
        self._last: dict[_Key, Delivered] = {}
        self._deleted: set[_Key] = set()
        """Messages that the current holder has asked to delete or reject."""

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
        self.fail(f"acknowledged at {at:.3f}, though {last} came before: {settlement}")

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
    """No receive returns a message before its delay is over, up to clock errors."""

    def __init__(self) -> None:
        """Start without messages."""
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
            self.fail(f"delivered before its delay was over, {sent}: {delivered}")
