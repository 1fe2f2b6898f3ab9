"""Handler of RECEIVE: leases visible messages, and long polls for missing ones.

With settlements it decides these first. Then it takes what is there, so that the acknowledgement of
a delete never waits for messages.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, final

import trio
from msgspec.structs import replace

from tidelog.broker.queues.handlers.settle import PendingSettle, SettleHandler
from tidelog.broker.queues.partition.delivery import Delivery, EmptyReason
from tidelog.broker.queues.partition.hosted_partition import HostedPartition
from tidelog.broker.queues.queue_server import QueueServer
from tidelog.broker.requests.commit_wait import COMMIT_TIMEOUT_S
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.request_usage import usage_of
from tidelog.broker.requests.response import ResponseHandle
from tidelog.broker.requests.steps import Steps
from tidelog.queue_layer.commands.receive import ReceiveCommand
from tidelog.wire.config.queue_config import ReceiveAcks
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    LeaderNotAvailableError,
    OverLimitError,
    RequestTimedOutError,
    UnknownQueueError,
)
from tidelog.wire.messages.produce import AckLevel
from tidelog.wire.messages.queues import (
    EndReceivesReply,
    EndReceivesRequest,
    PartitionReceived,
    ReceiveReply,
    ReceiveRequest,
    SettleAction,
    Settlement,
)
from tidelog.wire.transport.write_buffer import FileRegion

_BOTH_FORMATS_VERSION: Final = 4
"""First version of the API whose clients read batches of format version 2."""
_MAX_WAIT_MS_MAX: Final = 10 * 60 * 1000
_LOADING_S: Final = 10.0
"""Time in seconds that a receive without a wait time waits for partitions that are loading."""


@final
class PendingReceive:
    """A receive that waits for messages or their commit.

    Invariant: while the receive waits for messages, from its first look on, it waits at every
    requested partition; after that, at those whose messages it has leased, until the leases are
    committed.
    """

    def __init__(
        self,
        server: QueueServer,
        purgatory: Purgatory,
        request: ReceiveRequest,
        *,
        response: ResponseHandle,
        max_bytes: int,
    ) -> None:
        """Create a receive, which `attempt` tries."""
        self._is_waiting = True
        self.queue_id = request.queue_id
        self.is_older = response.version < _BOTH_FORMATS_VERSION
        """See `broker.queues.partition.context.MessageWaiter`."""
        self.is_done = False
        """Whether it is answered, or needs no answer."""
        self._is_parked = False
        self._server = server
        self._purgatory = purgatory
        self._request = request
        self._response = response
        self._max_bytes = max_bytes
        self._hosted: list[HostedPartition] = []
        """The partitions that were looked at: all of them, unless it has messages."""
        self._is_new = True
        """Whether it has not looked yet."""
        self._results: list[PartitionReceived] = []
        self._pieces: dict[int, list[bytes | FileRegion]] = {}
        """Pieces of the reply, by the index of the result."""
        self._open: set[int] = set()
        """Results that are not committed; of a receive without messages, the inverted places of
        partitions whose new dead letters are not moved."""
        wait_ms = 0 if request.settlements else min(request.max_wait_ms, _MAX_WAIT_MS_MAX)
        self._is_immediate = wait_ms <= 0
        self._wait_s = wait_ms / 1000 or _LOADING_S
        self.settling: PendingSettle | None = None
        """The settlements of the request, `None` without any."""
        if request.settlements:
            self.settling = PendingSettle(
                server,
                purgatory,
                on_decided=partial(server.receive, self),
                on_committed=self._reply_if_complete,
            )
        self._whole = ReceiveCommand(
            max_messages=request.max_messages,
            visibility_timeout_ms=request.visibility_timeout_ms,
            holder=request.holder,
            attempt_id=request.attempt_id,
            is_repetition=request.is_repetition,
        )

    def is_waiting(self) -> bool:
        """See `broker.queues.partition.context.MessageWaiter`."""
        return self._is_waiting

    def attempt(self, ready_at: HostedPartition | None = None) -> None:
        """See `broker.queues.partition.context.MessageWaiter`."""
        if not self._is_parked and self._response.context.has_ended:
            # It ended before the first look: nothing is leased for it.
            self.drop()
        elif self._is_waiting:
            try:  # As `with self._response`, which takes two calls more.
                self._look(ready_at, is_last=False)
            except Exception as error:  # noqa: BLE001  (the supervisor)
                self._response.caught(error)
                self._end()

    def park(self) -> None:
        """See `broker.queues.queue_server.NewRequest`."""
        if self._is_parked:
            return
        self._is_parked = True
        wait_s = COMMIT_TIMEOUT_S
        if self._is_waiting:
            wait_s = self._wait_s
            for hosted in self._hosted:
                hosted.waiters[self] = None
                if self._is_immediate:
                    hosted.immediate_waiters[self] = None
        self._response.context.delayed[self] = None
        if self._is_waiting or self._open:
            self._purgatory.add(self, trio.current_time() + wait_s)

    def _found(self) -> Iterator[HostedPartition]:
        """Yield the partitions; the next one is found when those before it have too few messages.

        Raises:
            UnknownQueueError: The queue does not exist.
        """
        self._is_new = False
        for number in self._request.partitions:
            try:
                hosted = self._server.find(self._request.queue_id, number)
            except UnknownQueueError:
                raise
            except BrokerError as error:
                self._results.append(PartitionReceived(number, error=error.to_wire()))
            else:
                self._hosted.append(hosted)
                yield hosted

    def _look(self, ready_at: HostedPartition | None, *, is_last: bool) -> None:
        left, room = self._request.max_messages, self._max_bytes
        unknown: list[HostedPartition] = []
        command = self._whole
        for hosted in self._found() if self._is_new else self._in_order(ready_at):
            try:
                delivery = hosted.take(self, command, room)
            except BrokerError as error:
                if not self._is_waiting:
                    return  # `on_failure` of the partition has ended this receive.
                self._cannot_receive(hosted, error)
                continue
            if delivery is EmptyReason.NOT_KNOWN_YET:
                unknown.append(hosted)
            elif isinstance(delivery, Delivery):
                self._add(hosted, delivery)
                for run in delivery.received.runs:
                    left -= run.count
                room -= delivery.received.batch_bytes
                if left <= 0 or room <= 0:
                    break
                command = replace(command, max_messages=left)
            elif hosted is ready_at and not self._is_immediate:
                return  # The other partitions have not changed.
        if self._results:
            self._settle()
        else:
            self._settle_if_due(unknown, is_last=is_last)

    def _cannot_receive(self, hosted: HostedPartition, error: BrokerError) -> None:
        if isinstance(error, UnknownQueueError):
            raise error
        # The error of a failed disk is retriable: the next leader has another disk.
        told = hosted.journal.partition.passing(error)
        self._results.append(PartitionReceived(hosted.number, error=told.to_wire()))

    def _settle_if_due(self, unknown: Sequence[HostedPartition], *, is_last: bool) -> None:
        if is_last and self._is_immediate:
            for hosted in unknown:
                late = LeaderNotAvailableError(
                    f"partition {hosted.number} of the queue is not loaded yet; ask again"
                )
                self._results.append(PartitionReceived(hosted.number, error=late.to_wire()))
        if self._results or is_last or (self._is_immediate and not unknown):
            if self._request.fail_at_limit and not self._results:
                over = (hosted for hosted in self._hosted if hosted.core.is_over_limit)
                self._results.extend(map(_over_limit, over))
            self._settle()
        else:
            self.park()
            self._response.parked()

    def _in_order(self, ready_at: HostedPartition | None) -> Sequence[HostedPartition]:
        """Return the partitions, the changed one first: earlier attempts found the others empty."""
        if ready_at is None or self._hosted[0] is ready_at:
            return self._hosted
        return [ready_at, *(hosted for hosted in self._hosted if hosted is not ready_at)]

    def on_delivery(self, hosted: HostedPartition, delivery: Delivery) -> None:
        """See `broker.queues.partition.context.MessageWaiter`."""
        with self._response:
            self._add(hosted, delivery)
            self._settle()

    def on_failure(self, hosted: HostedPartition, error: BrokerError) -> None:
        """See `broker.queues.partition.context.MessageWaiter`."""
        if self._is_waiting:
            with self._response:
                if isinstance(error, UnknownQueueError):
                    self._end()
                    raise error
                self._results.append(PartitionReceived(hosted.number, error=error.to_wire()))
                self._settle()

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        del level
        self._open.discard(index)
        if not self._open:
            self._reply_if_complete()

    def failed(self, index: int, error: BrokerError) -> None:
        """See `broker.partitions.partition.AckWaiter`."""
        if index in self._open:
            self._open.discard(index)
            if index >= 0:
                self._fail(index, error)
            self._reply_if_complete()

    def expire(self) -> None:
        """Answer with the messages that are there; the outcome of uncommitted leases is unknown."""
        if self._is_waiting:
            with self._response:
                self._look(None, is_last=True)
                return
            self._end()  # A defect raised an error, which was sent as the reply.
        elif self._open:
            for index in self._open:
                if index >= 0:
                    self._fail(index, RequestTimedOutError("not committed in time"))
            self._open.clear()
            self._reply_if_complete()

    def close(self) -> None:
        """Answer without messages; with leases, the answer follows their commit."""
        if self._is_waiting:
            with self._response:
                self._settle()

    def drop(self) -> None:
        """See `broker.requests.response.DelayedRequest`: its messages are released.

        With an attempt id they are kept: the client may already have retried the same attempt on
        another connection, which then owns them.
        """
        self._end()
        if self._request.attempt_id is None:
            self._give_back()
        self._open.clear()
        self._response.nothing()

    def _give_back(self) -> None:
        by_number = {hosted.number: hosted for hosted in self._hosted}
        for index in self._pieces:
            received = self._results[index]
            hosted = by_number[received.partition]
            runs = [(run.first_offset, run.count) for run in received.runs]
            returned = Settlement(received.partition, received.receipt, runs, SettleAction.RETURN)
            with suppress(BrokerError):  # The messages then become visible after their timeout.
                hosted.require()
                hosted.decide(hosted.core.settle(returned, now_ms=hosted.now_ms()))

    def _add(self, hosted: HostedPartition, delivery: Delivery) -> None:
        index = len(self._results)
        self._results.append(delivery.received)
        self._pieces[index] = delivery.pieces
        self._open.add(index)
        config = hosted.core.config
        if config.receive_acks is ReceiveAcks.LEADER:
            hosted.journal.when_appended(self, index)
        else:
            hosted.journal.when_committed(self, index)

    def _fail(self, index: int, error: BrokerError) -> None:
        number = self._results[index].partition
        self._results[index] = PartitionReceived(number, error=error.to_wire())
        self._pieces.pop(index, None)

    def _settle(self) -> None:
        """Stop waiting for messages, and wait for the commit of the leases."""
        self._is_waiting = False
        if self._is_parked:
            self._stop_waiting()
        if not self._results:
            if self._hosted:
                self._server.counts.of(self._hosted[0].name).empty_receives += 1
            for place, hosted in enumerate(self._hosted):
                if hosted.letters.are_on_the_way:
                    self._open.add(~place)
                    hosted.when_moved(self, ~place)
        if self._open:
            if self._is_parked:
                self._purgatory.add(self, trio.current_time() + COMMIT_TIMEOUT_S)
        else:
            self._reply_if_complete()

    def _reply_if_complete(self) -> None:
        if self._open or self._is_waiting or self.is_done:
            return
        if self.settling is not None and not self.settling.is_done:
            return
        if self._is_parked:
            self._end()
        self.is_done = True
        pieces: list[BytesLike | FileRegion] = []
        for index in sorted(self._pieces):
            pieces.extend(self._pieces[index])
        settled = [] if self.settling is None else self.settling.results
        reply = ReceiveReply(self._results, self._server.env.clock.now_ms(), settled)
        try:  # As `with self._response`, which takes two calls more.
            self._response.reply(reply, pieces)
            if pieces and self._response.context.audit.usage is not None:
                self._count_usage()
        except BrokerError as error:
            # The client may not receive any more: others get its messages at once.
            self._give_back()
            self._response.caught(error)
        except Exception as error:  # noqa: BLE001  (the supervisor)
            self._response.caught(error)

    def _count_usage(self) -> None:
        usage = usage_of(self._response.context)
        if usage is not None:
            name = self._hosted[0].name
            for index in self._pieces:
                received = self._results[index]
                messages = sum(run.count for run in received.runs)
                usage.delivered(name, messages=messages, byte_count=received.batch_bytes)

    def _stop_waiting(self) -> None:
        for hosted in self._hosted:
            hosted.waiters.pop(self, None)
            hosted.immediate_waiters.pop(self, None)
        self._purgatory.done(self)

    def _end(self) -> None:
        self.is_done = True
        self._is_waiting = False
        if self._is_parked:
            self._stop_waiting()
            self._response.context.delayed.pop(self, None)


def _over_limit(hosted: HostedPartition) -> PartitionReceived:
    """Return the answer of a partition with as many messages in flight as it may have."""
    share, whole = hosted.core.config.max_in_flight, hosted.view.max_in_flight
    in_flight = hosted.core.state.counts().in_flight
    error = OverLimitError(
        f"partition {hosted.number} of queue {hosted.name!r} delivers no message: {in_flight:,} are"
        f" in flight, and its share of max_in_flight ({whole:,}) is {share:,}; settle messages, or"
        " raise max_in_flight",
        in_flight=in_flight,
        max_in_flight=share,
    )
    return PartitionReceived(hosted.number, error=error.to_wire())


@final
class EndOfReceives:
    """End of the receives of a connection; see `broker.queues.queue_server.NewRequest`."""

    def __init__(self, queue_id: bytes, response: ResponseHandle) -> None:
        """End the receives of a queue that came before this request."""
        self.is_done = False
        self._queue_id = queue_id
        self._response = response

    def park(self) -> None:
        """Answer the receives that wait: at the end of a tick, those of the tick wait as well."""
        self.is_done = True
        with self._response:
            receives = [
                each
                for each in self._response.context.delayed
                if isinstance(each, PendingReceive)
                and each.is_waiting()
                and each.queue_id == self._queue_id
            ]
            for receive in receives:
                receive.close()
            self._response.reply(EndReceivesReply(len(receives)))


@final
class ReceiveHandler:
    """Receives messages for clients."""

    def __init__(
        self,
        server: QueueServer,
        purgatory: Purgatory,
        *,
        settle: SettleHandler,
        max_bytes: int,
    ) -> None:
        """Receive from `server`, at most `max_bytes` in one reply; `settle` settles before."""
        self._server = server
        self._settle = settle
        self._purgatory = purgatory
        self._max_bytes = max_bytes

    def handle(self, request: ReceiveRequest, response: ResponseHandle) -> Steps | None:
        """Reply when there are messages, or when the time is over.

        With settlements, reply when these and the leases are committed; return the rest of many
        settlements as steps.

        Raises:
            InvalidRequestError: The request is malformed.
            UnknownQueueError: The queue does not exist.
        """
        if not request.partitions or len(set(request.partitions)) < len(request.partitions):
            raise InvalidRequestError("a receive names at least one partition, and none twice")
        if len(request.partitions) > 1:
            self._server.check_partition_count(request.queue_id, request.partitions)
        if response.context.is_handling:
            self._server.begin_turn()
        max_bytes = min(request.max_bytes, self._max_bytes)
        pending = PendingReceive(
            self._server, self._purgatory, request, response=response, max_bytes=max_bytes
        )
        if pending.settling is None:
            self._server.receive(pending)
            return None
        return self._settle.settle(
            request.queue_id, request.settlements, response, pending=pending.settling
        )

    def end_all(self, request: EndReceivesRequest, response: ResponseHandle) -> None:
        """Answer the receives of a connection that wait for messages of a queue."""
        if response.context.is_handling:
            self._server.begin_turn()
        self._server.decided(EndOfReceives(request.queue_id, response))
