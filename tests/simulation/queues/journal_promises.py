"""What journals of queues must say, whoever wrote them, and what whoever serves them must know.

Pure. What is committed in a journal is one history, which a model follows message by message. To
that everything else is compared: what a broker knows that has read the journal, perhaps from a
snapshot on, and what users were told.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NoReturn, final

import msgspec

from queue_layer.entries import decode
from tests.simulation.checkers.book import ViolationError
from tests.simulation.queues.book import Delivered, FinalTopic, JournalLoaded, QueueChecker
from tests.simulation.queues.journal_model import JournalModel
from wire.queues import DELIVER_AT_HEADER

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


def _committed(
    written: Mapping[int, bytes], epochs: Sequence[tuple[int, int]], offset: int
) -> bytes:
    """Return which of the things that leaders wrote at an offset is the committed one.

    Not that of the latest leader, who may have died with it: what an earlier one wrote may be on
    the replica that leads then (seed 9010). Below the start of that log nobody parts any more.
    """
    epoch = max((epoch for epoch, first in epochs if first <= offset), default=max(written))
    return written.get(epoch, written[max(written)])


@final
class JournalIsKept(QueueChecker):
    """A broker that takes over knows what the journal says, from a snapshot on or not.

    And the journal says nothing that is impossible: that a message is handed out which is done,
    dead, or held by somebody; that it is handed out too often; that time runs backwards.
    """

    heeds_seeks = False

    def __init__(self) -> None:
        """Know of no journal."""
        self._queues: dict[bytes, str] = {}
        self._values: defaultdict[_Partition, dict[int, dict[int, bytes]]] = defaultdict(dict)
        """By offset in the journal: what was written there, by leader epoch."""
        self._models: dict[_Partition, tuple[JournalModel, int]] = {}
        """And up to which offset of the journal it knows everything."""
        self._delivered: list[Delivered] = []

    def created(self, queue: str, queue_id: bytes) -> None:
        """See `QueueChecker`."""
        self._queues[queue_id] = queue

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        if self.setups[delivered.queue].is_strict:
            self._delivered.append(delivered)

    def journal_appended(
        self, partition: _Partition, epoch: int, offset: int, values: Sequence[bytes]
    ) -> None:
        """See `QueueChecker`."""
        known = self._values[partition]
        for at, value in enumerate(values, offset):
            known.setdefault(at, {})[epoch] = bytes(value)

    def journal_loaded(self, loaded: JournalLoaded) -> None:
        """See `QueueChecker`."""
        model, end = self._follow(loaded)
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

    def _follow(self, loaded: JournalLoaded) -> tuple[JournalModel, int]:
        partition = loaded.partition
        model, end = self._models.get(partition, (None, 0))
        if model is None:
            queue = self._queues.get(partition[0])
            deliveries_max = None if queue is None else self.setups[queue].deliveries_max
            model = JournalModel(_fail, deliveries_max=deliveries_max)
        values = self._values[partition]
        while end < loaded.committed_end and end in values:
            model.apply(decode(_committed(values[end], loaded.epochs, end)))
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
