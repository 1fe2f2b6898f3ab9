"""History of the users of queues, message by message, and the base class of its checkers.

Pure: no clock of its own, no I/O. It is independent of the run history of records and of the
history of the cluster.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from math import inf
from typing import NoReturn, final

import msgspec

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.queues.plans import QueueSetup
from tidelog.wire.messages.queues import SettleAction

Place = tuple[int, int]
"""Partition and offset."""


class Sent(msgspec.Struct, frozen=True):
    """A message that a client is about to send."""

    topic: str
    value: bytes
    """Value, unique in the run."""
    group: bytes | None
    asked_at: float
    """Time of the send, in simulated seconds."""
    delay_s: float = 0.0
    """Seconds before which no receive may return it."""


class Delivered(msgspec.Struct, frozen=True):
    """A message that a user received."""

    queue: str
    place: Place
    value: bytes
    group: bytes | None
    receive_count: int
    receipt: bytes
    """Receipt of the receive; the same for all of its messages in this partition."""
    visibility_s: float
    """Visibility timeout in seconds."""
    asked_at: float
    """Time of the receive request, in simulated seconds."""
    told_at: float
    """Time of the reply."""
    is_handled: bool = False
    """Whether a handler got it, from a worker that processes the messages of a group in order."""


class Settlement(msgspec.Struct, frozen=True, eq=False):
    """A user's request to settle a message."""

    delivered: Delivered
    action: SettleAction
    asked_at: float
    seconds: float | None = None
    """New visibility timeout, or time until it is visible, in seconds."""
    reason: str = ""


class Outcome(Enum):
    """Reply to a settlement."""

    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class FinalMessage(msgspec.Struct, frozen=True):
    """A record of a queue's topic at the end."""

    value: bytes
    group: bytes | None
    headers: Mapping[str, bytes]
    timestamp_ms: int = 0


class JournalAppended(msgspec.Struct, frozen=True):
    """Records that a leader has written to a journal."""

    partition: tuple[bytes, int]
    epoch: int
    offset: int
    """Offset of the first value."""
    values: Sequence[bytes]
    at: float = 0.0
    """Time in simulated seconds."""


class JournalLoaded(msgspec.Struct, frozen=True):
    """State of a broker that has read a journal."""

    partition: tuple[bytes, int]
    end_offset: int
    """End of the read part of the journal (exclusive)."""
    committed_end: int
    """End of the part that is known there to be committed."""
    cursor: int
    open: Mapping[int, Sequence[object]]
    """The state of each message below the cursor that is not deleted."""
    pending: Mapping[tuple[bytes, int], list[int]]
    """Messages that are to be moved, by target, in order."""
    epochs: Sequence[tuple[int, int]] = ()
    """Leader epochs of the journal there, each with its first offset."""


class Moving(msgspec.Struct, frozen=True):
    """Messages that a broker is about to move to a target."""

    partition: tuple[bytes, int]
    """Partition of the journal with their entries."""
    target: tuple[bytes, int]
    offsets: Sequence[int]
    committed_end: int
    """End of the part of the journal that is known there to be committed (exclusive)."""
    epochs: Sequence[tuple[int, int]]
    """As for `JournalLoaded`."""


FinalTopic = Mapping[Place, FinalMessage]


class QueueChecker:
    """One promise of queues. A subclass ignores events that it does not need.

    In a queue with a seek, it gets no events that may be from before, and a call to `forgot`;
    unless it heeds no seeks.
    """

    heeds_seeks = True
    """Whether its promise ends at a seek in a queue."""

    setups: Mapping[str, QueueSetup]
    """All queues by name; set by the run history."""
    lead_s: float
    """Maximum difference between the wall clocks of two brokers; set by the run history."""

    def fail(self, what: str) -> NoReturn:
        """Report that the promise is broken.

        Raises:
            ViolationError: Always.
        """
        raise ViolationError(type(self).__name__, what)

    def created(self, queue: str, queue_id: bytes) -> None:
        """Handle a created queue."""

    def journal_appended(self, appended: JournalAppended) -> None:
        """Handle records that a leader has written to a journal."""

    def journal_loaded(self, loaded: JournalLoaded) -> None:
        """Handle a broker that has read a journal, and is about to serve."""

    def moving(self, moving: Moving) -> None:
        """Handle messages that a broker is about to move."""

    def sent(self, sent: Sent) -> None:
        """Handle a message that a user is about to send."""

    def acknowledged(self, sent: Sent, place: Place) -> None:
        """Handle an acknowledged send with its place."""

    def delivered(self, delivered: Delivered) -> None:
        """Handle a message that a user has received."""

    def settlement_asked(self, settlement: Settlement) -> None:
        """Handle a settlement that a user is about to request."""

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """Handle the reply to a settlement, at this time."""

    def forgot(self, queue: str) -> None:
        """Forget a queue at a seek or a purge."""

    def purged(self, queue: str, until: float) -> None:
        """Handle a purge: messages sent before this time may be gone."""

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """Handle the final topics; all queues are empty."""


@final
class QueueRunHistory:
    """Passes events of the users of queues on to checkers."""

    def __init__(
        self,
        checkers: Sequence[QueueChecker],
        setups: Iterable[QueueSetup],
        *,
        lead_s: float,
        goes_on: bool = False,
    ) -> None:
        """Start without events.

        Args:
            checkers: All checkers of queues.
            setups: The queues.
            lead_s: Maximum difference between the wall clocks of two brokers, in seconds.
            goes_on: Whether the run continues after an objection.
        """
        self.checkers = checkers
        self.objections: dict[str, ViolationError] = {}
        """The first objection of each checker, if the run continues."""
        self.setups = {setup.name: setup for setup in setups}
        self.sent_count = 0
        self.delivered_count = 0
        self.deleted_count = 0
        self.on_objection: Callable[[BaseException], None] = lambda _: None
        """Callback with an objection before it is raised, perhaps in the middle of a broker."""
        self.on_appended: Callable[[JournalAppended], None] = lambda _: None
        """Callback with records of journals, after the checkers."""
        self._goes_on = goes_on
        self._known_from: dict[str, float] = {}
        """By queue: time before which deliveries do not count."""
        self._disturbed_until: dict[str, float] = {}
        for checker in checkers:
            checker.setups = self.setups
            checker.lead_s = lead_s

    def came(self, setup: QueueSetup) -> None:
        """Add a queue."""
        self.setups[setup.name] = setup

    def created(self, queue: str, queue_id: bytes) -> None:
        """See `QueueChecker`."""
        self.tell(lambda checker: checker.created(queue, queue_id))

    def journal_appended(self, appended: JournalAppended) -> None:
        """See `QueueChecker`."""
        self.tell(lambda checker: checker.journal_appended(appended))
        self.on_appended(appended)

    def journal_loaded(self, loaded: JournalLoaded) -> None:
        """See `QueueChecker`."""
        self.tell(lambda checker: checker.journal_loaded(loaded))

    def moving(self, moving: Moving) -> None:
        """See `QueueChecker`."""
        self.tell(lambda checker: checker.moving(moving))

    def sent(self, sent: Sent) -> None:
        """See `QueueChecker`."""
        self.tell(lambda checker: checker.sent(sent))

    def acknowledged(self, sent: Sent, place: Place) -> None:
        """See `QueueChecker`."""
        self.sent_count += 1
        self.tell(lambda checker: checker.acknowledged(sent, place))

    def delivered(self, delivered: Delivered) -> None:
        """See `QueueChecker`."""
        self.delivered_count += 1
        self._tell_of(delivered, lambda checker: checker.delivered(delivered))

    def settlement_asked(self, settlement: Settlement) -> None:
        """See `QueueChecker`."""
        self._tell_of(settlement.delivered, lambda checker: checker.settlement_asked(settlement))

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """See `QueueChecker`."""
        if settlement.action is SettleAction.DELETE and outcome is Outcome.DONE:
            self.deleted_count += 1
        self._tell_of(settlement.delivered, lambda checker: checker.told(settlement, outcome, at))

    def disturbed(self, queue: str, until: float) -> None:
        """Record a seek or purge; deliveries before `until` may be from before that."""
        self._disturbed_until[queue] = self._known_from[queue] = until
        self.tell(lambda checker: checker.forgot(queue))

    def is_certain(self, queue: str) -> bool:
        """Return whether no seek or purge is in flight in a queue."""
        return self._disturbed_until.get(queue, 0.0) < inf

    def purged(self, queue: str, until: float) -> None:
        """See `QueueChecker`."""
        self._disturbed_until[queue] = until
        self.tell(lambda checker: checker.purged(queue, until))

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """See `QueueChecker`."""
        self.tell(lambda checker: checker.ended(topics))

    def _tell_of(self, delivered: Delivered, tell: Callable[[QueueChecker], None]) -> None:
        """Call the checkers that may draw conclusions from a delivery."""
        is_known = delivered.asked_at >= self._known_from.get(delivered.queue, 0.0)
        self.tell(lambda checker: tell(checker) if is_known or not checker.heeds_seeks else None)

    def tell(self, tell: Callable[[QueueChecker], None]) -> None:
        """Call all checkers."""
        for checker in self.checkers:
            try:
                tell(checker)
            except ViolationError as objection:
                if not self._goes_on:
                    self.on_objection(objection)
                    raise
                self.objections.setdefault(objection.checker, objection)
