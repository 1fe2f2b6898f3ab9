"""Checkers of queues at the end, when all queues are empty.

Pure. The records in the topics of queues are compared with the whole history.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple, final

from tests.simulation.queues.plans import QueueSetup
from tests.simulation.queues.run_history import (
    Delivered,
    FinalMessage,
    FinalTopic,
    Outcome,
    Place,
    QueueChecker,
    Sent,
    Settlement,
)
from tidelog.wire.messages.queues import (
    FIRST_SENT_HEADER,
    LAST_RECEIVED_HEADER,
    ORIGIN_OFFSET_HEADER,
    ORIGIN_PARTITION_HEADER,
    ORIGIN_QUEUE_HEADER,
    REASON_HEADER,
    RECEIVE_COUNT_HEADER,
    SettleAction,
)

_Key = tuple[str, Place]
"""A queue, and the place of one of its messages."""
_TOO_OFTEN = "max_receive_count"


def is_redriven(message: FinalMessage) -> bool:
    """Return whether a record was redriven: it was moved, and is no dead letter."""
    headers = message.headers
    return FIRST_SENT_HEADER in headers and ORIGIN_QUEUE_HEADER not in headers


class _DeadLetter(NamedTuple):
    place: Place
    message: FinalMessage

    @property
    def origin(self) -> _Key:
        """The original message."""
        headers = self.message.headers
        partition, offset = headers[ORIGIN_PARTITION_HEADER], headers[ORIGIN_OFFSET_HEADER]
        return headers[ORIGIN_QUEUE_HEADER].decode(), (int(partition), int(offset))

    @property
    def reason(self) -> str:
        """Reason of the move to the dead-letter queue."""
        return self.message.headers[REASON_HEADER].decode()

    @property
    def receive_count(self) -> int:
        """Receive count at the move."""
        return int(self.message.headers[RECEIVE_COUNT_HEADER])

    @property
    def last_received_ms(self) -> int:
        """Time of the last receive; 0 if there was none."""
        return int(self.message.headers[LAST_RECEIVED_HEADER])


def _dead_letters(topic: FinalTopic) -> Iterator[_DeadLetter]:
    for place, message in topic.items():
        if ORIGIN_QUEUE_HEADER in message.headers:
            yield _DeadLetter(place, message)


def _all_dead_letters(topics: Mapping[str, FinalTopic]) -> Iterator[_DeadLetter]:
    for topic in topics.values():
        yield from _dead_letters(topic)


@final
class SentIsThere(QueueChecker):
    """An acknowledged send is in the topic at its place, and no message is in it twice.

    Every delivered message is in the topic.
    """

    heeds_seeks = False

    def __init__(self) -> None:
        """Start without sends."""
        self._acknowledged: dict[tuple[str, Place], Sent] = {}
        self._topics: dict[bytes, str] = {}
        self._delivered: list[Delivered] = []

    def sent(self, sent: Sent) -> None:
        """See `QueueChecker`."""
        self._topics[sent.value] = sent.topic

    def acknowledged(self, sent: Sent, place: Place) -> None:
        """See `QueueChecker`."""
        self._acknowledged[sent.topic, place] = sent

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        self._delivered.append(delivered)

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """See `QueueChecker`."""
        for (topic, place), sent in self._acknowledged.items():
            found = topics[topic].get(place)
            if found is None or (found.value, found.group) != (sent.value, sent.group):
                self.fail(f"acknowledged at {place} of {topic} is {sent}, found is {found}")
        for name, messages in topics.items():
            counts = Counter(
                each.value
                for each in messages.values()
                if self._topics.get(each.value) == name and not is_redriven(each)
            )
            twice = [value for value, count in counts.items() if count > 1]
            if twice:
                self.fail(f"twice in {name}: {twice}")
        for delivered in self._delivered:
            found = topics[self.setups[delivered.queue].topic].get(delivered.place)
            if found is None or (found.value, found.group) != (delivered.value, delivered.group):
                self.fail(f"delivered was {delivered}, but the topic has {found}")


@final
class AllAccountedFor(QueueChecker):
    """Every message is deleted, dead or purged: accepted sends = deleted + dead + remaining.

    A dead letter may have been redriven, once: then it is in the topic again.

    No message remains, because at the end a user receives and deletes all messages. A message that
    is gone without a request is lost.
    """

    heeds_seeks = False

    def __init__(self) -> None:
        """Start without messages."""
        self._deleted: set[_Key] = set()
        self._sent_at: dict[bytes, float] = {}
        self._disturbed: dict[str, float] = {}

    def sent(self, sent: Sent) -> None:
        """See `QueueChecker`."""
        self._sent_at[sent.value] = sent.asked_at

    def settlement_asked(self, settlement: Settlement) -> None:
        """See `QueueChecker`."""
        if settlement.action is SettleAction.DELETE:
            self._deleted.add((settlement.delivered.queue, settlement.delivered.place))

    def purged(self, queue: str, until: float) -> None:
        """See `QueueChecker`."""
        self._disturbed[queue] = until

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """See `QueueChecker`."""
        dead = {letter.origin for letter in _all_dead_letters(topics)}
        for setup in self.setups.values():
            if setup.is_passing:
                continue  # The queue is gone, or it has no senders.
            purged_until = self._disturbed.get(setup.name, -inf)
            brought_back = self._brought_back(setup, topics)
            for place, message in topics[setup.topic].items():
                key = (setup.name, place)
                sent_at = self._sent_at.get(message.value, -inf)
                if key in self._deleted or key in dead or sent_at < purged_until:
                    continue
                brought_back[message.value] -= 1
                if brought_back[message.value] < 0:
                    self.fail(f"{place} of {setup.name} is gone without a request: {message}")

    def _brought_back(self, setup: QueueSetup, topics: Mapping[str, FinalTopic]) -> Counter[bytes]:
        """Return how often each message of a dead-letter queue was redriven."""
        sources = {
            source.topic
            for source in self.setups.values()
            if source.dead_letter_queue == setup.name
        }
        found = Counter(
            message.value
            for topic in sources
            for message in topics[topic].values()
            if is_redriven(message)
        )
        letters = Counter(message.value for message in topics[setup.topic].values())
        for value, count in found.items():
            if count > letters[value]:
                self.fail(f"{value!r} came back from {setup.name} {count} times: {letters[value]}")
        return found


@final
class DeadOnce(QueueChecker):
    """A dead letter equals its message, exists once, and has its counts, times and reason."""

    def __init__(self) -> None:
        """Start without messages."""
        self._deliveries: defaultdict[_Key, set[bytes]] = defaultdict(set)
        self._rejected: dict[_Key, str] = {}
        self._deleted: set[_Key] = set()
        """Messages that a user asked to delete: a later rejection may have no effect."""
        self._reasons: defaultdict[_Key, set[str]] = defaultdict(set)

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        self._deliveries[delivered.queue, delivered.place].add(delivered.receipt)

    def settlement_asked(self, settlement: Settlement) -> None:
        """See `QueueChecker`."""
        if settlement.action is SettleAction.DELETE:
            self._deleted.add((settlement.delivered.queue, settlement.delivered.place))
        if settlement.reason:
            self._reasons[settlement.delivered.queue, settlement.delivered.place].add(
                settlement.reason
            )

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """See `QueueChecker`."""
        del at
        if settlement.action is SettleAction.REJECT and outcome is Outcome.DONE:
            self._rejected[settlement.delivered.queue, settlement.delivered.place] = (
                settlement.reason
            )

    def forgot(self, queue: str) -> None:
        """See `QueueChecker`."""
        for key in [key for key in self._rejected if key[0] == queue]:
            del self._rejected[key]

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """See `QueueChecker`."""
        found: dict[_Key, _DeadLetter] = {}
        for letter in _all_dead_letters(topics):
            if letter.origin in found:
                self.fail(f"{letter.origin} is dead twice: {found[letter.origin]} and {letter}")
            found[letter.origin] = letter
            self._check(letter, topics)
        for (queue, place), reason in self._rejected.items():
            if self.setups[queue].dead_letter_queue is None:
                continue
            if (queue, place) not in found and (queue, place) not in self._deleted:
                self.fail(f"{place} of {queue} was rejected for {reason!r}, but is in no queue")

    def _check(self, letter: _DeadLetter, topics: Mapping[str, FinalTopic]) -> None:
        queue, place = letter.origin
        setup = self.setups[queue]
        source = topics[setup.topic].get(place)
        message = letter.message
        if source is None:
            self.fail(f"{letter} has no original")
        if (source.value, source.group) != (message.value, message.group):
            self.fail(f"{letter} is of {source}")
        first_sent = source.headers.get(FIRST_SENT_HEADER, b"%d" % source.timestamp_ms)
        if message.headers.get(FIRST_SENT_HEADER) != first_sent:
            self.fail(f"first sent at {first_sent.decode()}: {letter}")
        if message.timestamp_ms < letter.last_received_ms - 2000 * self.lead_s:
            self.fail(f"received after its move: {letter}")
        if not setup.is_strict:
            return
        told_count = len(self._deliveries[queue, place])
        if letter.receive_count < told_count:
            self.fail(f"there were {told_count} deliveries: {letter}")
        if letter.reason == _TOO_OFTEN and letter.receive_count != setup.max_deliveries:
            self.fail(f"dies after {setup.max_deliveries} deliveries: {letter}")
        if letter.reason not in {_TOO_OFTEN, *self._reasons[queue, place]}:
            self.fail(f"no worker gave this reason: {letter}")


@final
class GroupsInOrder(QueueChecker):
    """A FIFO queue delivers a message only after all earlier ones of its group are settled.

    Or together with them, unless a worker of the library has them: its handlers process the
    messages of a group in sequence.
    """

    def __init__(self) -> None:
        """Start without messages."""
        self._deliveries: list[Delivered] = []
        self._done: dict[_Key, float] = {}
        """Time of the first request to delete or reject a message."""

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        if self.setups[delivered.queue].is_fifo:
            self._deliveries.append(delivered)

    def settlement_asked(self, settlement: Settlement) -> None:
        """See `QueueChecker`."""
        if settlement.action in (SettleAction.DELETE, SettleAction.REJECT):
            self._done.setdefault(
                (settlement.delivered.queue, settlement.delivered.place), settlement.asked_at
            )

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """See `QueueChecker`."""
        dead = {letter.origin for letter in _all_dead_letters(topics)}
        back = self._brought_back(topics)
        together = {(each.queue, each.place, each.receipt) for each in self._deliveries}
        groups = {
            setup.name: _groups(topics[setup.topic])
            for setup in self.setups.values()
            if setup.is_fifo
        }
        for delivered in self._deliveries:
            partition, offset = delivered.place
            for earlier in groups[delivered.queue][partition, delivered.group]:
                if earlier >= offset:
                    break
                key = (delivered.queue, (partition, earlier))
                is_together = (*key, delivered.receipt) in together and not delivered.is_handled
                if is_together or key in dead or key in back:
                    continue
                if self._done.get(key, inf) > delivered.told_at:
                    self.fail(f"{earlier} of its group was not settled: {delivered}")

    def _brought_back(self, topics: Mapping[str, FinalTopic]) -> set[_Key]:
        """Return dead letters that may have been redriven, at an unknown time."""
        values = {
            message.value
            for topic in topics.values()
            for message in topic.values()
            if is_redriven(message)
        }
        queues = {setup.dead_letter_queue for setup in self.setups.values()}
        return {
            (setup.name, place)
            for setup in self.setups.values()
            if setup.name in queues
            for place, message in topics[setup.topic].items()
            if message.value in values
        }


def _groups(topic: FinalTopic) -> defaultdict[tuple[int, bytes | None], list[int]]:
    """Return the offsets of each group of each partition, ascending."""
    groups: defaultdict[tuple[int, bytes | None], list[int]] = defaultdict(list)
    for (partition, offset), message in sorted(topic.items(), key=lambda item: item[0]):
        groups[partition, message.group].append(offset)
    return groups
