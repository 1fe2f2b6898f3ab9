"""Handler of SETTLE: deletes, extends, releases, rejects or returns messages by their receipts.

RECEIVE settles, too, before it receives.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, final

import trio

from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.requests.commit_wait import COMMIT_TIMEOUT_S, DECISION_TIMEOUT_S, deciding_until
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.response import ResponseHandle
from tidelog.broker.requests.steps import Steps, finish
from tidelog.queue_layer.commands.receive import RUNS_MAX
from tidelog.queue_layer.commands.settle import divided, merged
from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    RequestTimedOutError,
    UnknownQueueError,
)
from tidelog.wire.messages.field_types import LONG_LIST_LENGTH_MAX
from tidelog.wire.messages.produce import AckLevel
from tidelog.wire.messages.queues import (
    SettleAction,
    Settled,
    Settlement,
    SettleReply,
    SettleRequest,
)

_TO_DEAD_LETTERS: Final = (
    SettleAction.RELEASE,
    SettleAction.REJECT,
    SettleAction.CHANGE_VISIBILITY,
)
_MESSAGES_AT_ONCE: Final = 100
"""Settled messages after which other tasks run, if there are more."""


@final
class PendingSettle:
    """Settlements of a request whose decisions are made, and not all committed."""

    def __init__(
        self,
        server: QueueServer,
        purgatory: Purgatory,
        *,
        on_committed: Callable[[], None],
        on_decided: Callable[[], None] | None = None,
    ) -> None:
        """Wait for the results that `expect` adds.

        Args:
            server: Serves the partitions.
            purgatory: Limits the wait.
            on_committed: Called when all results are final.
            on_decided: Called when all decisions are made, before that; `None` for nothing.
        """
        self.results: list[Settled] = []
        """The result of each settlement so far; one may change until all are final."""
        self.is_done = False
        """Whether all results are final."""
        self._server = server
        self._purgatory = purgatory
        self._on_committed = on_committed
        self._on_decided = on_decided
        self._open: set[int] = set()
        """Indexes of results that are not committed; inverted, of those with dead letters that are
        not moved."""
        self._is_decided = False
        self._is_parked = False

    def expect(self, hosted: HostedPartition, index: int, action: int) -> None:
        """Wait until the decisions at a partition are committed, and new dead letters moved."""
        self._open.add(index)
        hosted.journal.when_committed(self, index)
        if action in _TO_DEAD_LETTERS and hosted.letters.are_on_the_way:
            self._open.add(~index)
            hosted.when_moved(self, ~index)

    def decided(self) -> None:
        """Wait until all decisions are committed: no further one is made."""
        if self._on_decided is not None:
            self._on_decided()
        self._is_decided = True
        if self._open:
            self._server.decided(self)
        else:
            self.is_done = True
            self._on_committed()

    def park(self) -> None:
        """See `broker.queues.queue_server.NewRequest`."""
        self._is_parked = True
        self._purgatory.add(self, trio.current_time() + COMMIT_TIMEOUT_S)

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        del level
        self._open.discard(index)
        if not self._open:
            self._complete_if_final()

    def failed(self, index: int, error: BrokerError) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        if index in self._open:
            self.results[index] = Settled(error=error.to_wire())
            self._open -= {index, ~index}
            self._complete_if_final()

    def expire(self) -> None:
        """Answer that the outcome of uncommitted settlements is unknown."""
        error = RequestTimedOutError("not committed in time; it may be settled or not")
        for index in self._open:
            if index >= 0:
                self.results[index] = Settled(error=error.to_wire())
        self._open.clear()
        self._complete_if_final()

    def close(self) -> None:
        """Keep waiting: a shutdown waits for decisions."""

    def _complete_if_final(self) -> None:
        if self._is_decided and not self._open and not self.is_done:
            self.is_done = True
            if self._is_parked:
                self._purgatory.done(self)
            self._on_committed()


@final
class SettleHandler:
    """Settles messages."""

    def __init__(self, server: QueueServer, purgatory: Purgatory, nursery: trio.Nursery) -> None:
        """Settle at partitions of `server`; tasks run in `nursery`."""
        self._server = server
        self._purgatory = purgatory
        self._nursery = nursery

    def handle(self, request: SettleRequest, response: ResponseHandle) -> Steps | None:
        """Reply when the settlements are committed; return the rest of many as steps.

        Raises:
            InvalidRequestError: The request is too long.
            UnknownQueueError: The queue does not exist.
        """

        def reply() -> None:
            try:  # As `with response`, which takes two calls more.
                response.reply(SettleReply(pending.results))
            except Exception as error:  # noqa: BLE001  (the supervisor)
                response.caught(error)

        pending = PendingSettle(self._server, self._purgatory, on_committed=reply)
        return self.settle(request.queue_id, request.settlements, response, pending=pending)

    def settle(
        self,
        queue_id: bytes,
        settlements: Sequence[Settlement],
        response: ResponseHandle,
        *,
        pending: PendingSettle,
    ) -> Steps | None:
        """Decide settlements one after the other; return the rest of many as steps.

        `pending` gets the results. An error of the decisions is the answer of `response`.

        Raises:
            InvalidRequestError: There are too many.
            UnknownQueueError: The queue does not exist.
        """
        if response.context.is_handling:
            self._server.begin_turn()
        run_count = 0
        for settlement in settlements:
            run_count += len(settlement.runs)
        if run_count > LONG_LIST_LENGTH_MAX:
            raise InvalidRequestError(
                f"a request settles at most {LONG_LIST_LENGTH_MAX:,} runs of messages,"
                f" not {run_count:,}"
            )
        found: dict[int, HostedPartition | BrokerError] = {}
        is_known = True
        for settlement in settlements:
            hosted = found.get(settlement.partition)
            if hosted is None:
                try:
                    hosted = self._server.find(queue_id, settlement.partition)
                except UnknownQueueError:
                    raise
                except BrokerError as error:
                    hosted = error
                found[settlement.partition] = hosted
            is_known = is_known and _is_known(hosted, settlement)
        if is_known:
            steps = _decisions(settlements, found, pending)
            for _ in steps:
                return steps
            return None
        work = partial(_catch_up_and_settle, settlements, found, response, pending=pending)
        self._nursery.start_soon(work, name=_catch_up_and_settle)
        return None


async def _catch_up_and_settle(
    settlements: Sequence[Settlement],
    found: dict[int, HostedPartition | BrokerError],
    response: ResponseHandle,
    *,
    pending: PendingSettle,
) -> None:
    with response:
        deadline = trio.current_time() + DECISION_TIMEOUT_S
        for settlement in settlements:
            hosted = found[settlement.partition]
            try:
                with deciding_until(deadline):
                    await _catch_up_for(hosted, settlement)
            except BrokerError as error:
                found[settlement.partition] = error
        await finish(_decisions(settlements, found, pending))


def _decisions(
    settlements: Sequence[Settlement],
    found: dict[int, HostedPartition | BrokerError],
    pending: PendingSettle,
) -> Steps:
    results = pending.results
    settled_count = 0
    """Settled messages since other tasks ran."""
    for index, settlement in enumerate(settlements):
        hosted = found[settlement.partition]
        parts: list[Settled] = []
        try:
            if isinstance(hosted, BrokerError):
                raise hosted
            is_short = len(settlement.runs) <= RUNS_MAX
            for part in (settlement,) if is_short else divided(settlement):
                if settled_count >= _MESSAGES_AT_ONCE:
                    yield
                    settled_count = 0
                hosted.require()
                parts.append(hosted.decide(hosted.core.settle(part, now_ms=hosted.now_ms())))
                for _, count in part.runs:
                    settled_count += count
        except BrokerError as error:
            results.append(Settled(error=error.to_wire()))
            continue
        results.append(parts[0] if len(parts) == 1 else merged(parts))
        if results[index].error is None:
            pending.expect(hosted, index, settlement.action)
    pending.decided()


def _is_known(hosted: HostedPartition | BrokerError, settlement: Settlement) -> bool:
    """Return whether enough is known to decide about a settlement at once, as of now.

    For most queues the journal suffices, as soon as few enough leases end now. But a delete by a
    lost lease may concern fresh messages, and then the records before them have to be read.
    """
    if isinstance(hosted, BrokerError):
        return True
    if not hosted.is_loaded:
        return False
    core, state = hosted.core, hosted.core.state
    if state.has_many_timers and not state.advance_in_part(hosted.now_ms()):
        return False
    if settlement.action != SettleAction.DELETE or core.config.is_fenced:
        return True
    known_to = max(state.cursor, state.unreceived.end)
    end = 0
    for first, count in settlement.runs:
        end = max(end, first + count)
    return end <= known_to


async def _catch_up_for(hosted: HostedPartition | BrokerError, settlement: Settlement) -> None:
    """Wait until enough committed records are known to decide about a settlement."""
    if isinstance(hosted, BrokerError):
        raise hosted
    if not hosted.is_loaded:
        await hosted.wait_loaded()
    await hosted.advance_to_now()
    if not _is_known(hosted, settlement):
        core, records = hosted.core, hosted.records
        end = max((first + count for first, count in settlement.runs), default=0)
        await hosted.trim_all()
        await records.drive(records.feed(core, lambda: core.state.records_from >= end))
