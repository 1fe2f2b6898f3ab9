"""What users of queues were told, message by message, and who looks whether that may be so.

Pure: no clock of its own, no I/O. It stands beside the run history of records and the history of
the cluster.
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
    """A message that was handed over to be sent."""

    topic: str
    value: bytes
    """No two messages have the same."""
    group: bytes | None
    asked_at: float
    """When, in simulated seconds."""
    delay_s: float = 0.0
    """Nobody is to get it before so long has passed."""


class Delivered(msgspec.Struct, frozen=True):
    """A message that a user was handed."""

    queue: str
    place: Place
    value: bytes
    group: bytes | None
    receive_count: int
    receipt: bytes
    """Of the receive; the same for all of its messages in this partition."""
    visibility_s: float
    """For how long nobody else is to get it."""
    asked_at: float
    """When the user began to receive, in simulated seconds."""
    told_at: float
    """When it had the message."""
    is_handled: bool = False
    """Whether a handler was given it, by a worker that has the messages of a group in order."""


class Settlement(msgspec.Struct, frozen=True, eq=False):
    """What a user asked to become of a message."""

    delivered: Delivered
    action: SettleAction
    asked_at: float
    seconds: float | None = None
    """For how long it is to be kept, or to be hidden."""
    reason: str = ""


class Outcome(Enum):
    """What a user was told of a settlement."""

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
    """What a leader has written to a journal."""

    partition: tuple[bytes, int]
    epoch: int
    offset: int
    """Of the first of the values."""
    values: Sequence[bytes]
    at: float = 0.0
    """When, in simulated seconds."""


class JournalLoaded(msgspec.Struct, frozen=True):
    """What a broker knows when it has read a journal."""

    partition: tuple[bytes, int]
    end_offset: int
    """Up to which offset of the journal (exclusive)."""
    committed_end: int
    """Up to which offset it is known there to be committed."""
    cursor: int
    open: Mapping[int, Sequence[object]]
    """The state of each message below the cursor that is not done."""
    pending: Mapping[tuple[bytes, int], list[int]]
    """What is to be moved to each target, in order."""
    epochs: Sequence[tuple[int, int]] = ()
    """Which leader epoch wrote the journal here, each with its first offset."""


class Moving(msgspec.Struct, frozen=True):
    """What a broker is about to send to where it is to be moved."""

    partition: tuple[bytes, int]
    """Of the journal that says so."""
    target: tuple[bytes, int]
    offsets: Sequence[int]
    committed_end: int
    """Up to which offset the journal is known there to be committed (exclusive)."""
    epochs: Sequence[tuple[int, int]]
    """As for `JournalLoaded`."""


FinalTopic = Mapping[Place, FinalMessage]


class QueueChecker:
    """One promise of queues. What it does not care for it ignores.

    Of a queue that somebody seeks in it is told nothing that may be from before, and that it must
    forget all that it knew; unless it heeds no seeks.
    """

    heeds_seeks = True
    """Whether what it promises ends when somebody goes back in a queue."""

    setups: Mapping[str, QueueSetup]
    """All queues by name; set by the run history."""
    lead_s: float
    """How far the time of day of any two brokers is apart, at most; set by the run history."""

    def fail(self, what: str) -> NoReturn:
        """Say that the promise is broken.

        Raises:
            ViolationError: Always.
        """
        raise ViolationError(type(self).__name__, what)

    def created(self, queue: str, queue_id: bytes) -> None:
        """A queue was created."""

    def journal_appended(self, appended: JournalAppended) -> None:
        """A leader has written records to a journal."""

    def journal_loaded(self, loaded: JournalLoaded) -> None:
        """A broker has read a journal, and is about to serve."""

    def moving(self, moving: Moving) -> None:
        """A broker is about to send messages to where they are to be moved."""

    def sent(self, sent: Sent) -> None:
        """A user hands over a message."""

    def acknowledged(self, sent: Sent, place: Place) -> None:
        """And is told where it is."""

    def delivered(self, delivered: Delivered) -> None:
        """A user has got a message."""

    def settlement_asked(self, settlement: Settlement) -> None:
        """A user is about to ask for something to become of a message."""

    def told(self, settlement: Settlement, outcome: Outcome, at: float) -> None:
        """And is told at this time what came of it."""

    def forgot(self, queue: str) -> None:
        """Somebody seeks in a queue, or purges it."""

    def purged(self, queue: str, until: float) -> None:
        """Somebody purges it: what was sent before this time may be gone."""

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """At the end all queues are empty, and this is in their topics."""


@final
class QueueRunHistory:
    """Passes on to checkers what users of queues were told."""

    def __init__(
        self,
        checkers: Sequence[QueueChecker],
        setups: Iterable[QueueSetup],
        *,
        lead_s: float,
        goes_on: bool = False,
    ) -> None:
        """Know nothing yet.

        Args:
            checkers: All that are to be told.
            setups: The queues.
            lead_s: How far the time of day of any two brokers is apart, at most.
            goes_on: Whether the run goes on when a checker objects.
        """
        self.checkers = checkers
        self.objections: dict[str, ViolationError] = {}
        """The first objection of each checker, if the run goes on."""
        self.setups = {setup.name: setup for setup in setups}
        self.sent_count = 0
        self.delivered_count = 0
        self.deleted_count = 0
        self.on_objection: Callable[[BaseException], None] = lambda _: None
        """Is given an objection before it is raised, maybe in the midst of a broker."""
        self.on_appended: Callable[[JournalAppended], None] = lambda _: None
        """Is told what was written to journals, after the checkers."""
        self._goes_on = goes_on
        self._known_from: dict[str, float] = {}
        """By queue: what was received before this time counts for nothing."""
        self._disturbed_until: dict[str, float] = {}
        for checker in checkers:
            checker.setups = self.setups
            checker.lead_s = lead_s

    def came(self, setup: QueueSetup) -> None:
        """There is one queue more."""
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
        """Somebody seeks or purges; what is received before a time may be from before that."""
        self._disturbed_until[queue] = self._known_from[queue] = until
        self.tell(lambda checker: checker.forgot(queue))

    def is_certain(self, queue: str) -> bool:
        """Return whether nobody tries to seek in a queue, or to purge it, who may do so later."""
        return self._disturbed_until.get(queue, 0.0) < inf

    def purged(self, queue: str, until: float) -> None:
        """See `QueueChecker`."""
        self._disturbed_until[queue] = until
        self.tell(lambda checker: checker.purged(queue, until))

    def ended(self, topics: Mapping[str, FinalTopic]) -> None:
        """See `QueueChecker`."""
        self.tell(lambda checker: checker.ended(topics))

    def _tell_of(self, delivered: Delivered, tell: Callable[[QueueChecker], None]) -> None:
        """Tell those who may draw conclusions from it."""
        is_known = delivered.asked_at >= self._known_from.get(delivered.queue, 0.0)
        self.tell(lambda checker: tell(checker) if is_known or not checker.heeds_seeks else None)

    def tell(self, tell: Callable[[QueueChecker], None]) -> None:
        """Tell all checkers something."""
        for checker in self.checkers:
            try:
                tell(checker)
            except ViolationError as objection:
                if not self._goes_on:
                    self.on_objection(objection)
                    raise
                self.objections.setdefault(objection.checker, objection)
