"""What journals of queues must say, whoever wrote them, and what whoever serves them must know.

Pure. What is committed in a journal is one history, which a model follows message by message. To
that everything else is compared: what a broker knows that has read the journal, perhaps from a
snapshot on, and what users were told.
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
    """What of a receipt is looked at here."""

    version: int
    queue_id: bytes
    partition: int
    lease_id: int


def _fail(checker: str, what: str) -> NoReturn:
    raise ViolationError(checker, what)


def _committed(written: Mapping[int, bytes], epochs: Sequence[tuple[int, int]], offset: int) -> int:
    """Return by the leader of which epoch what is committed at an offset was written.

    Not that of the latest leader, who may have died with it: what an earlier one wrote may be on
    the replica that leads then (seed 9010). Below the start of that log nobody parts any more.
    """
    epoch = max((epoch for epoch, first in epochs if first <= offset), default=max(written))
    return epoch if epoch in written else max(written)


@final
class JournalIsKept(QueueChecker):
    """A broker that takes over knows what the journal says, from a snapshot on or not.

    And the journal says nothing that is impossible: that a message is handed out which is done,
    dead, or held by somebody; that it is handed out too often; that time runs backwards. Nothing is
    moved before it is committed there that it is to be moved, and what users were told to be
    deleted was gone there before.
    """

    heeds_seeks = False

    def __init__(self) -> None:
        """Know of no journal."""
        self._queues: dict[bytes, str] = {}
        self._values: defaultdict[_Partition, dict[int, dict[int, bytes]]] = defaultdict(dict)
        """By offset in the journal: what was written there, by leader epoch."""
        self._written_at: defaultdict[_Partition, dict[tuple[int, int], float]] = defaultdict(dict)
        """And when, by offset and leader epoch."""
        self._models: dict[_Partition, tuple[JournalModel, int]] = {}
        """And up to which offset of the journal it knows everything."""
        self._delivered: list[Delivered] = []
        self._deleted: list[tuple[Delivered, float]] = []
        """What users were told to be deleted, and when."""

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
            return  # Not everything that it has read is committed.
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
            self.fail(f"{moving}, and it is committed that {decided} are to be moved there")

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
            model.apply(decode(values[end][epoch]), self._written_at[partition][end, epoch])
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
                    f"it was said at {told_at:.3f} that it is deleted, and by the journal it is"
                    f" gone at {gone_at:.3f}: {delivered}"
                )
        for (queue, number), model in models.items():
            topic = topics[self.setups[queue].topic]
            for offset, received_ms in model.first_received_ms.items():
                headers = topic[number, offset].headers
                deliver_at_ms = int(headers.get(DELIVER_AT_HEADER, b"0"))
                if received_ms < deliver_at_ms:
                    self.fail(
                        f"{offset} of {queue} was handed out at {received_ms}, and was to wait"
                        f" until {deliver_at_ms}"
                    )
