"""Settler of messages: sends settlements to the leaders of their partitions.

A worker that wants more messages gets them in the same request: see `Companion`.

Shell: two requests to each broker are in flight at a time, and settlements that arrive meanwhile
share the next one, so requests grow by themselves under load. The task of the connection that
brings a reply handles it. A settlement that failed is sent again to the current leader of the
partition.

A settlement whose reply was lost may have been executed. The retry may be refused for that reason:
then it has succeeded.
"""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Final, NamedTuple, Protocol, final

import msgspec
import trio

from tidelog.client.admin.queue_metadata import QueueMetadata, leader_of
from tidelog.client.cluster.background_tasks import ParkedTask
from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.cluster.coalescer import Coalescer
from tidelog.client.cluster.metadata import PASSING_ERRORS
from tidelog.client.cluster.reply_shapes import excess
from tidelog.client.queue.receive.message import Disposition, Lease, Message
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace
from tidelog.client.queue.receive.settled_messages import SettledMessages
from tidelog.wire.errors import (
    BatchError,
    BrokerError,
    ConnectError,
    InvalidReceiptError,
    MessageGoneError,
    NotLeaderError,
    ReceiptExpiredError,
    RequestTimedOutError,
    TidelogError,
    UnknownQueueError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.queue_admin import QueueDescription
from tidelog.wire.messages.queues import (
    ReceiveReply,
    ReceiveRequest,
    Run,
    SettleAction,
    Settled,
    Settlement,
    SettleReply,
    SettleRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import Outcome, RpcConnection

_FLIGHTS_MAX: Final = 2
"""Maximum requests in flight to one broker: one is executed while the next one is sent. With more,
each would have fewer settlements, and need as many syncs."""
_SETTLEMENTS_MAX: Final = 500
"""Maximum settlements of one request."""
_MESSAGES_MAX: Final = 10_000
"""Maximum messages of one request, unless they are of a single receive: brokers accept so many runs
at most."""
_REFUSED_BECAUSE_DONE: Final = {
    SettleAction.DELETE: (),  # A repeated delete succeeds; a refusal means a dead letter.
    SettleAction.EXTEND: (),
    SettleAction.RELEASE: (MessageGoneError, ReceiptExpiredError),
    SettleAction.REJECT: (MessageGoneError,),
    SettleAction.RETURN: (MessageGoneError, ReceiptExpiredError),
    SettleAction.CHANGE_VISIBILITY: (),
}
"""Errors of a retry that mean that the first attempt was executed."""

_UNTRACED: Final = {SettleAction.EXTEND, SettleAction.RETURN}
"""Settlements without a span: workers extend leases, and return messages that nothing has seen."""


Errors = dict[int, TidelogError]
"""Errors of messages that could not be settled, by index in the caller's list."""


@final
class Along(NamedTuple):
    """A request that settles messages and asks for others."""

    request: ReceiveRequest
    on_outcome: Callable[[Outcome], None]
    """Gets the outcome, also that of the settlements."""


Behind = Callable[[], bool]
"""Submits a request behind the settlements, in the same write; returns whether it could."""


class Companion(Protocol):
    """A receiver that wants messages, and asks for them in requests that settle others."""

    def along(
        self, node_queue: "NodeQueue", connection: RpcConnection, settlements: list[Settlement]
    ) -> "Along | Behind | None":
        """Return how to ask the broker of these settlements for messages; `None` if not now."""
        ...


@final
class _Call(msgspec.Struct, eq=False):
    """Settlement of some messages, all alike, for one caller."""

    on_done: Callable[[Errors], None] | None = None
    """Called when all operations have ended."""
    deadline: float = math.inf
    open_count: int = 0
    errors: Errors = {}
    is_return: bool = False
    """Whether the close of the client waits for it."""


@final
class _Operation(msgspec.Struct, eq=False):
    """Messages of one receive with the same settlement, from one caller."""

    call: _Call
    partition: int
    receipt: bytes
    verdict: Disposition
    offsets: list[int] = []
    indexes: list[int] = []
    """Index of each message in the caller's list."""
    failure_count: int = 0
    is_done_perhaps: bool = False

    def places(self) -> dict[int, list[int]]:
        """Return the indexes of each offset in the caller's list."""
        found: dict[int, list[int]] = {}
        for offset, index in zip(self.offsets, self.indexes, strict=True):
            found.setdefault(offset, []).append(index)
        return found


@final
class NodeQueue(msgspec.Struct, eq=False):
    """Operations for one queue at one broker; a recreated queue of its name is another queue."""

    node_id: int
    queue_id: bytes
    waiting: deque[_Operation] = msgspec.field(default_factory=deque[_Operation])
    in_flight_count: int = 0

    @property
    def may_send(self) -> bool:
        """Whether an operation waits, and a request may be sent now."""
        return bool(self.waiting) and self.in_flight_count < _FLIGHTS_MAX

    def take(self) -> list[_Operation]:
        """Remove and return the operations of the next request, at least one."""
        operations = [self.waiting.popleft()]
        message_count = len(operations[0].offsets)
        while self.waiting and len(operations) < _SETTLEMENTS_MAX:
            message_count += len(self.waiting[0].offsets)
            if message_count > _MESSAGES_MAX:
                break
            operations.append(self.waiting.popleft())
        return operations


@final
class _InFlight(msgspec.Struct, eq=False):
    """Request in flight."""

    node_queue: NodeQueue
    connection: RpcConnection
    alike: list[list[_Operation]]
    """Operations of each settlement."""
    expires_at: float
    """When the connection counts as dead."""
    on_outcome: Callable[[Outcome], None] | None
    """Gets the messages that were asked for along with the settlements."""
    correlation_id: int = 0
    is_late: bool = False
    """Whether this request has caused that."""


@final
class QueueSettler:
    """Settles messages of one queue."""

    def __init__(
        self,
        cluster: ClusterClient,
        queue_metadata: QueueMetadata,
        settled: SettledMessages,
        *,
        name: str,
    ) -> None:
        """Settle messages of the queue `name`."""
        self.settled = settled
        """Settlements of messages that workers have."""
        self.counters = cluster.counters.queues.of(name)
        """Counters of the queue."""
        self._cluster = cluster
        self._open_work = cluster.open_work
        self._now = cluster.counters.now
        self._queue_metadata = queue_metadata
        self.name = name
        """Name of the queue."""
        self.companions: dict[Companion, None] = {}
        """Receivers that may want messages along with settlements."""
        self._node_queues: dict[tuple[int, bytes], NodeQueue] = {}
        self._in_flight: dict[_InFlight, None] = {}
        """Requests in the order in which they were sent, which is that of their expiry."""
        self._sends = Coalescer(self._drain_all)
        self._was_alone = False
        """Whether the last requests had one operation: then others are not likely to come."""
        self._is_watching = False

    async def settle(
        self,
        places: Sequence[ReceivedPlace | Message | InvalidReceiptError],
        verdict: Disposition,
        *,
        deadline: float = math.inf,
        in_span: bool = False,
    ) -> None:
        """Settle messages, all alike.

        If cancelled, each of them may be settled or not.

        Args:
            places: Messages; an error stands for a message whose receipt handle is wrong.
            verdict: Settlement.
            deadline: End of retries, in seconds of trio's clock; at most `request_timeout` from
                now.
            in_span: Whether this call has a span.

        Raises:
            BrokerError: The only message could not be settled.
            BatchError: Some of several messages could not be settled; it has their errors.
            UnknownQueueError: There is no such queue.
            ConnectionLostError: No broker answers; the messages may or may not be settled.
        """
        if not places:
            await trio.lowlevel.checkpoint()
            return
        tracing = self._cluster.tracing
        if tracing is not None and not in_span and verdict.action not in _UNTRACED:
            operation, count = verdict.action.name.lower(), len(places)
            messages = [place for place in places if isinstance(place, Message)]
            with tracing.settle(self.name, operation, messages, count=count):
                await self.settle(places, verdict, deadline=deadline, in_span=True)
            return
        await trio.lowlevel.checkpoint_if_cancelled()
        call = _Call(is_return=verdict.action is SettleAction.RETURN)
        operations = _operations(places, verdict, call)
        if operations:
            metadata = self._queue_metadata
            description = metadata.known(self.name) or await metadata.find(self.name)
            is_alone = self._was_alone and not self._node_queues
            self._open_work.count += call.is_return
            self._enqueue_all(call, operations, description, deadline=deadline)
            try:
                # As the last time: others are not likely to come in this turn.
                sent = self._send_only() if is_alone else None
                if sent is not None:
                    await sent.connection.wait_answered(sent.correlation_id)
                elif self._may_send():
                    await self._sends.request()
                if call.open_count:
                    waiter = ParkedTask()
                    call.on_done = waiter.wake
                    await self._cluster.tasks.park(waiter)
            except BaseException:
                if verdict.action is SettleAction.CHANGE_VISIBILITY:
                    # A late retry would hide messages again, after the caller has released them.
                    call.deadline = -math.inf
                raise
        if call.errors:
            raise _error_of(call.errors, len(places))

    def _enqueue_all(
        self,
        call: _Call,
        operations: list[_Operation],
        description: QueueDescription,
        *,
        deadline: float = math.inf,
    ) -> None:
        """Enqueue the operations of a call at the leaders of their partitions."""
        call.deadline = min(deadline, self._now() + self._cluster.config.request_timeout)
        # All at once: one of them may end before the next is enqueued.
        call.open_count = len(operations)
        for operation in operations:
            self._enqueue(operation, description)

    def enqueue(
        self,
        places: Sequence[ReceivedPlace | Message],
        verdict: Disposition,
        on_done: Callable[[Errors], None],
    ) -> None:
        """Settle messages, all alike, by the next `flush`, or an earlier request.

        `on_done` gets the errors of those that could not be settled. It is not called if the client
        is closed before.
        """
        call = _Call(on_done, is_return=verdict.action is SettleAction.RETURN)
        operations = _operations(places, verdict, call)
        self._open_work.count += call.is_return
        description = self._queue_metadata.known(self.name)
        if description is None:
            call.open_count = len(operations)
            self._cluster.tasks.start_soon(self._find_and_enqueue, call, operations)
        else:
            self._enqueue_all(call, operations, description)

    def flush(self) -> None:
        """Send what is enqueued, as far as requests in flight leave room."""
        for node_queue in list(self._node_queues.values()):
            self._drain(node_queue)

    async def _find_and_enqueue(self, call: _Call, operations: list[_Operation]) -> None:
        try:
            description = await self._queue_metadata.find(self.name)
        except TidelogError as error:
            for operation in operations:
                self._abandon(operation, error)
            return
        self._enqueue_all(call, operations, description)
        await self._sends.request()

    def settle_soon(self, places: Sequence[ReceivedPlace], verdict: Disposition) -> None:
        """Settle messages in a task of the client; failures are only traced."""
        if places:
            self._open_work.count += 1
            self._cluster.tasks.start_soon(self._try_to_settle, list(places), verdict)

    async def _try_to_settle(self, places: list[ReceivedPlace], verdict: Disposition) -> None:
        try:
            await self.settle(places, verdict)
        except TidelogError as error:
            self._cluster.env.probe("client.not_settled", queue=self.name, error=str(error))
        finally:
            self._open_work.ended()

    def _send_only(self) -> _InFlight | None:
        """Send the operations, for a task that receives the reply; `None` if there are several."""
        node_queues = list(self._node_queues.values())
        if len(node_queues) == 1 and len(node_queues[0].waiting) == 1:
            operation = node_queues[0].waiting.popleft()
            return self._send(node_queues[0], [operation], is_awaited=True)
        self._drain_all()
        return None

    def _enqueue(self, operation: _Operation, description: QueueDescription) -> None:
        """Enqueue an operation at the leader of its partition."""
        try:
            leader_id = leader_of(description, operation.partition)
        except TidelogError as error:
            self._abandon(operation, error)
            return
        if leader_id is None:
            self._queue_metadata.invalidate(description)
            no_leader = NotLeaderError(
                f"partition {operation.partition} of the queue has no leader now"
            )
            self._failed(operation, no_leader)
            return
        queue_id = description.queue_id
        node_queue = self._node_queues.get((leader_id, queue_id))
        if node_queue is None:
            node_queue = self._node_queues[leader_id, queue_id] = NodeQueue(leader_id, queue_id)
        node_queue.waiting.append(operation)

    def _may_send(self) -> bool:
        """Return whether operations wait, and a request may be sent now."""
        return any(node_queue.may_send for node_queue in self._node_queues.values())

    def _drain_all(self) -> None:
        """Send waiting operations."""
        self._was_alone = len(self._node_queues) == 1
        for node_queue in list(self._node_queues.values()):
            self._was_alone = self._was_alone and len(node_queue.waiting) == 1
            self._drain(node_queue)

    def _drain(self, node_queue: NodeQueue) -> None:
        while node_queue.waiting and node_queue.in_flight_count < _FLIGHTS_MAX:
            self._send(node_queue, node_queue.take())
        if not (node_queue.waiting or node_queue.in_flight_count):
            self._node_queues.pop((node_queue.node_id, node_queue.queue_id), None)

    def _send(
        self, node_queue: NodeQueue, operations: list[_Operation], *, is_awaited: bool = False
    ) -> _InFlight | None:
        """Send operations to a broker, if there is a connection to it."""
        node_id = node_queue.node_id
        connection = self._cluster.live_connection(node_id)
        connection = connection or self._cluster.connection_nowait(node_id)
        if connection is None:
            what = f"node {node_queue.node_id}, which serves the queue, cannot be reached"
            self._all_failed([operations], ConnectError(what))
            return None
        alike = [operations] if len(operations) == 1 else _alike(operations)
        settlements = list(map(_settlement, alike))
        companion: Along | Behind | None = None
        for each in self.companions:
            companion = companion or each.along(node_queue, connection, settlements)
        expires_at = self._now() + self._cluster.config.request_timeout
        on_outcome = companion.on_outcome if isinstance(companion, Along) else None
        in_flight = _InFlight(node_queue, connection, alike, expires_at, on_outcome)
        self._in_flight[in_flight] = None
        node_queue.in_flight_count += 1
        if not self._is_watching:
            self._is_watching = True
            self._cluster.tasks.start_soon(self._watch)
        on_complete = partial(self._on_complete, in_flight)
        if isinstance(companion, Along):
            in_flight.correlation_id = connection.submit(
                api.RECEIVE, companion.request, on_complete, is_awaited=is_awaited
            )
            return in_flight
        in_flight.correlation_id = connection.submit(
            api.SETTLE,
            SettleRequest(node_queue.queue_id, settlements),
            on_complete,
            is_awaited=is_awaited and companion is None,
            is_followed=companion is not None,
        )
        if companion is not None and not companion():
            connection.flush()
        return in_flight

    def _on_complete(self, in_flight: _InFlight, outcome: Outcome) -> None:
        """Handle the outcome of a request, and send operations that wait."""
        del self._in_flight[in_flight]
        in_flight.node_queue.in_flight_count -= 1
        if in_flight.is_late:
            patience = self._cluster.config.request_timeout
            what = f"the broker did not answer SETTLE in {patience:g} s"
            self._all_failed(in_flight.alike, RequestTimedOutError(what))
        elif isinstance(outcome, Exception):
            self._all_failed(in_flight.alike, outcome)
        else:
            reply = outcome[0]
            assert isinstance(reply, (SettleReply, ReceiveReply)), "no other request was sent"
            results = reply.results if isinstance(reply, SettleReply) else reply.settled
            problem = _problem(in_flight.alike, results)
            if problem is None:
                for each, result in zip(in_flight.alike, results, strict=True):
                    for operation in each:
                        self._answered(operation, result)
            else:
                reject = in_flight.connection.reject
                is_alone = in_flight.on_outcome is None
                outcome = reject(api.SETTLE, problem) if is_alone else reject(api.RECEIVE, problem)
                self._all_failed(in_flight.alike, outcome)
        if in_flight.on_outcome is not None:
            in_flight.on_outcome(outcome)
        self._drain(in_flight.node_queue)

    def _all_failed(self, groups: Iterable[Sequence[_Operation]], error: Exception) -> None:
        assert isinstance(error, TidelogError), "a connection raises no other errors"
        for operations in groups:
            for operation in operations:
                self._failed(operation, error)

    async def _watch(self) -> None:
        """Close connections on which a request is overdue, while requests are in flight."""
        try:
            while self._in_flight:
                oldest = next(iter(self._in_flight))
                await trio.sleep_until(oldest.expires_at)
                if oldest in self._in_flight:
                    oldest.is_late = True
                    oldest.connection.close()
        finally:
            self._is_watching = False

    def _answered(self, operation: _Operation, result: Settled) -> None:
        if result.error is not None:
            self._failed(operation, from_wire(result.error))
            return
        if not result.refused:
            self._note(operation, operation.offsets)
            self._finish(operation)
            return
        again: list[int] = []
        failure: BrokerError | None = None
        places = operation.places()
        done = set(places)
        for refused in result.refused:
            error = from_wire(refused.error)
            offsets = [each for each in _offsets(refused.runs) if each in places]
            if _is_done(operation, error):
                continue
            done.difference_update(offsets)
            if error.is_retriable:
                again, failure = [*again, *offsets], error
            else:
                for offset in offsets:
                    operation.call.errors.update(dict.fromkeys(places[offset], error))
        self._note(operation, done)
        if failure is None:
            self._finish(operation)
        else:
            left = [(offset, index) for offset in again for index in places[offset]]
            operation.offsets = [offset for offset, _ in left]
            operation.indexes = [index for _, index in left]
            self._failed(operation, failure)

    def _note(self, operation: _Operation, offsets: Collection[int]) -> None:
        self.counters.settled[operation.verdict.action] += len(offsets)
        self.settled.note(
            operation.partition, operation.receipt, offsets, action=operation.verdict.action
        )

    def _abandon(self, operation: _Operation, error: TidelogError) -> None:
        """Fail the rest of an operation."""
        if _is_done(operation, error):
            self._note(operation, operation.offsets)
        else:
            operation.call.errors.update(dict.fromkeys(operation.indexes, error))
        self._finish(operation)

    def _finish(self, operation: _Operation) -> None:
        call = operation.call
        call.open_count -= 1
        if call.open_count:
            return
        if call.is_return:
            self._open_work.ended()
        if call.on_done is not None:
            call.on_done(call.errors)

    def _failed(self, operation: _Operation, error: TidelogError) -> None:
        """Retry an operation later, if that may help."""
        may_help = isinstance(error, (*PASSING_ERRORS, UnknownQueueError, WireFormatError))
        delay = self._cluster.backoff.delay(operation.failure_count + 1)
        if not may_help or self._now() + delay >= operation.call.deadline:
            self._abandon(operation, error)
            return
        if not isinstance(error, (ConnectError, UnknownQueueError)):
            # A deposed leader may have had it committed, too.
            operation.is_done_perhaps = True
        operation.failure_count += 1
        self._cluster.tasks.start_soon(self._enqueue_again, operation, error, delay)

    async def _enqueue_again(
        self, operation: _Operation, error: TidelogError, delay: float
    ) -> None:
        is_stale = isinstance(error, (*STALE_METADATA_ERRORS, UnknownQueueError, WireFormatError))
        try:
            if is_stale:
                self._queue_metadata.invalidate(await self._queue_metadata.find(self.name))
            await trio.sleep(delay)
            description = await self._queue_metadata.find(self.name)
        except TidelogError as failure:
            self._abandon(operation, failure)
            return
        if operation.call.deadline == -math.inf:
            self._abandon(operation, error)
            return
        self._enqueue(operation, description)
        if self._may_send():
            await self._sends.request()


def _error_of(errors: Errors, count: int) -> TidelogError:
    """Return the error of a call for `count` messages."""
    if count == 1:
        return copy(errors[0])  # Callers may share it, and it would grow with each raise.
    return BatchError(
        f"{len(errors)} of {count} messages could not be settled, the first one"
        f" because: {errors[min(errors)]}",
        errors,
    )


def _operations(
    places: Sequence[ReceivedPlace | Message | InvalidReceiptError],
    verdict: Disposition,
    call: _Call,
) -> list[_Operation]:
    operations: dict[tuple[int, bytes], _Operation] = {}
    operation: _Operation | None = None
    last: Lease | None = None
    for index, place in enumerate(places):
        if isinstance(place, InvalidReceiptError):
            call.errors[index] = place
            continue
        if isinstance(place, Message):
            lease: Lease | None = place.lease
            partition, offset, receipt = place.partition, place.offset, place.lease.receipt
        else:
            lease = None
            partition, offset, receipt = place
        if operation is None or lease is None or lease is not last:
            last = lease
            operation = operations.get((partition, receipt))
            if operation is None:
                operation = _Operation(call, partition, receipt, verdict)
                operations[partition, receipt] = operation
        operation.offsets.append(offset)
        operation.indexes.append(index)
    return list(operations.values())


def _alike(operations: Sequence[_Operation]) -> list[list[_Operation]]:
    """Return operations grouped by receive and verdict: one settlement each."""
    found: dict[tuple[int, bytes, Disposition], list[_Operation]] = {}
    for operation in operations:
        found.setdefault((operation.partition, operation.receipt, operation.verdict), []).append(
            operation
        )
    return list(found.values())


def _problem(groups: Sequence[Sequence[_Operation]], results: Sequence[Settled]) -> str | None:
    """Return in which way the results of settlements are wrong, `None` if they are right."""
    if len(results) != len(groups):
        return f"{len(results)} results for {len(groups)} settlements"
    for operations, result in zip(groups, results, strict=True):
        if not result.refused:
            continue
        offset_count = sum(len(operation.offsets) for operation in operations)
        counts = (count for refused in result.refused for _, count in refused.runs)
        problem = excess(counts, offset_count)
        if problem is not None:
            return problem
    return None


def _settlement(operations: Sequence[_Operation]) -> Settlement:
    operation = operations[0]
    verdict = operation.verdict
    offsets = operation.offsets
    if len(operations) > 1:
        offsets = [offset for each in operations for offset in each.offsets]
    return Settlement(
        operation.partition,
        operation.receipt,
        [(offsets[0], 1)] if len(offsets) == 1 else runs_of(offsets),
        int(verdict.action),
        verdict.delay_ms,
        verdict.reason,
    )


def _is_done(operation: _Operation, error: TidelogError) -> bool:
    """Return whether an error means that an earlier attempt was executed."""
    expected = _REFUSED_BECAUSE_DONE[operation.verdict.action]
    return operation.is_done_perhaps and isinstance(error, expected)


def runs_of(offsets: Iterable[int]) -> list[Run]:
    """Return offsets as runs."""
    ascending = sorted(set(offsets))
    if ascending and ascending[-1] - ascending[0] == len(ascending) - 1:
        return [(ascending[0], len(ascending))]
    runs: list[Run] = []
    for offset in ascending:
        if runs and sum(runs[-1]) == offset:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((offset, 1))
    return runs


def _offsets(runs: Iterable[Run]) -> Iterator[int]:
    for first, count in runs:
        yield from range(first, first + count)
