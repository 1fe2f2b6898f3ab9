"""Checkers of queue journals, and of the states that leaders load from them.

Pure. The committed entries of a journal are one history, which a model follows message by message.
The loaded state of a broker, perhaps from a snapshot on, and the replies to users are compared with
that model.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import inf
from typing import NoReturn, final

import msgspec

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.queues.journal_model import JournalModel
from tests.simulation.queues.run_history import (
    Delivered,
    FinalTopic,
    JournalAppended,
    JournalLoaded,
    Moving,
    Outcome,
    QueueChecker,
    Settlement,
)
from tidelog.wire.messages.queue_journal import decode
from tidelog.wire.messages.queues import DELIVER_AT_HEADER, SettleAction

_Partition = tuple[bytes, int]
_MAC_SIZE = 16


class _Receipt(msgspec.Struct, frozen=True, array_like=True):
    """The checked fields of a receipt."""

    version: int
    queue_id: bytes
    partition: int
    lease_id: int


def _fail(checker: str, what: str) -> NoReturn:
    raise ViolationError(checker, what)


def _committed(written: Mapping[int, bytes], epochs: Sequence[tuple[int, int]], offset: int) -> int:
    """Return the leader epoch of the committed entry at an offset.

    That is not the latest leader's, which may have died with its entry: the replica that leads then
    may have an earlier leader's entry (seed 9010). Below the start of that log no logs differ any
    more.
    """
    epoch = max((epoch for epoch, first in epochs if first <= offset), default=max(written))
    return epoch if epoch in written else max(written)


@final
class JournalIsKept(QueueChecker):
    """A new leader loads the state that the journal records, from a snapshot or without one.

    And the journal has no impossible entry: a delivery of a message that is deleted, dead, or in
    flight; a delivery beyond the maximum; a time that runs backwards. A message is dead soon after
    its last delivery. No message is moved before
    the entry for that is committed, and a message whose delete was acknowledged was gone in the
    journal before.
    """

    heeds_seeks = False

    def __init__(self) -> None:
        """Start without journals."""
        self._queues: dict[bytes, str] = {}
        self._values: defaultdict[_Partition, dict[int, dict[int, bytes]]] = defaultdict(dict)
        """By offset in the journal, its entries by leader epoch."""
        self._written_at: defaultdict[_Partition, dict[tuple[int, int], float]] = defaultdict(dict)
        """Time of each entry, by offset and leader epoch."""
        self._models: dict[_Partition, tuple[JournalModel, int]] = {}
        """The model, and the end of the journal's entries that it has applied."""
        self._delivered: list[Delivered] = []
        self._deleted: list[tuple[Delivered, float]] = []
        """Acknowledged deletes, with their times."""

    def created(self, queue: str, queue_id: bytes) -> None:
        """See `QueueChecker`."""
        self._queues[queue_id] = queue

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        setup = self.setups[delivered.queue]
        if setup.is_strict and not setup.is_passing:
            self._delivered.append(delivered)

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """See `QueueChecker`."""
        is_passing = self.setups[settlement.delivered.queue].is_passing
        if settlement.action is SettleAction.DELETE and outcome is Outcome.DONE and not is_passing:
            self._deleted.append((settlement.delivered, at))

    def journal_appended(self, appended: JournalAppended) -> None:
        """See `QueueChecker`."""
        known = self._values[appended.partition]
        for offset, value in enumerate(appended.values, appended.offset):
            known.setdefault(offset, {})[appended.epoch] = bytes(value)
            self._written_at[appended.partition][offset, appended.epoch] = appended.at

    def journal_loaded(self, loaded: JournalLoaded) -> None:
        """See `QueueChecker`."""
        model, end = self._follow(loaded.partition, loaded.committed_end, loaded.epochs)
        if end != loaded.end_offset:
            return  # Some of its entries are not committed.
        expected = {offset: tuple(state) for offset, state in sorted(model.open.items())}
        found = {offset: tuple(state) for offset, state in loaded.open.items()}
        if (found, loaded.cursor) != (expected, model.cursor):
            wrong = {
                offset: (found.get(offset), expected.get(offset))
                for offset in sorted(found.keys() | expected.keys())
                if found.get(offset) != expected.get(offset)
            }
            self.fail(
                f"{loaded.partition} at {end}, cursor {loaded.cursor}, must be {model.cursor}:"
                f" {dict(list(wrong.items())[:5])} (known, true)"
            )
        if loaded.pending != model.pending:
            self.fail(f"{loaded.partition} is to move {loaded.pending}, true is {model.pending}")

    def moving(self, moving: Moving) -> None:
        """See `QueueChecker`."""
        model, end = self._follow(moving.partition, moving.committed_end, moving.epochs)
        decided = model.pending.get(moving.target, [])
        if end == moving.committed_end and decided[: len(moving.offsets)] != [*moving.offsets]:
            self.fail(f"{moving}, but committed for that target are {decided}")

    def _follow(
        self, partition: _Partition, committed_end: int, epochs: Sequence[tuple[int, int]]
    ) -> tuple[JournalModel, int]:
        model, end = self._models.get(partition, (None, 0))
        if model is None:
            queue = self._queues.get(partition[0])
            max_deliveries = None if queue is None else self.setups[queue].max_deliveries
            model = JournalModel(_fail, max_deliveries=max_deliveries)
        values = self._values[partition]
        while end < committed_end and end in values:
            epoch = _committed(values[end], epochs, end)
            written_at = self._written_at[partition][end, epoch]
            model.apply(decode(values[end][epoch]), written_at, epoch=epoch)
            end += 1
        self._models[partition] = model, end
        return model, end

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """See `QueueChecker`."""
        models = {
            (self._queues[queue_id], number): model
            for (queue_id, number), (model, _) in self._models.items()
            if queue_id in self._queues
        }
        for delivered in self._delivered:
            number, offset = delivered.place
            receipt = msgspec.msgpack.decode(delivered.receipt[:-_MAC_SIZE], type=_Receipt)
            model = models[delivered.queue, number]
            count = model.received.get((receipt.lease_id, offset))
            if count != delivered.receive_count:
                self.fail(f"in the journal this is delivery {count}: {delivered}")
        for delivered, told_at in self._deleted:
            number, offset = delivered.place
            gone_at = models[delivered.queue, number].gone_at.get(offset, inf)
            if gone_at > told_at:
                self.fail(
                    f"the delete was acknowledged at {told_at:.3f}, but in the journal it is"
                    f" gone at {gone_at:.3f}: {delivered}"
                )
        for (queue, number), model in models.items():
            topic = topics[self.setups[queue].topic]
            for offset, received_ms in model.first_received_ms.items():
                headers = topic[number, offset].headers
                deliver_at_ms = int(headers.get(DELIVER_AT_HEADER, b"0"))
                if received_ms < deliver_at_ms:
                    self.fail(
                        f"{offset} of {queue} was delivered at {received_ms}, but its delay"
                        f" ends at {deliver_at_ms}"
                    )
