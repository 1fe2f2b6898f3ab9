"""Settling messages: what is to become of them is told to those who serve them.

Shell: two requests to each broker are under way at a time, and what comes meanwhile goes together
in the next one, so requests grow by themselves under load. Answers are taken over in the task of
the connection that brought them. What could not be told is told again, and again, to whoever serves
the partition then.

A settlement whose answer was lost may have been carried out. Told again, it may be refused because
it was: then that is success.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import Final, cast, final

import trio

from tidelog.client.admin.queue_metadata import QueueMetadata, leader_of
from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.cluster.coalescer import Coalescer
from tidelog.client.cluster.metadata import PASSING_ERRORS
from tidelog.client.queue.receive.message import Lease, Message, Verdict
from tidelog.client.queue.receive.receipt_handle import ReceivedPlace
from tidelog.client.queue.receive.settled_messages import SettledMessages
from tidelog.wire.errors import (
    BatchError,
    BrokerError,
    ConnectError,
    ConnectionLostError,
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
    Run,
    SettleAction,
    Settled,
    Settlement,
    SettleReply,
    SettleRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.rpc import Outcome, RpcConnection

_FLIGHTS_MAX: Final = 2
"""Requests to one broker at a time: one is carried out while the next one is on its way. With more,
each would have less in it, and need as many syncs."""
_SETTLEMENTS_MAX: Final = 500
"""In one request."""
_MESSAGES_MAX: Final = 50_000
"""In one request, unless they are of a single receive: brokers take so many runs at most."""
_REFUSED_BECAUSE_DONE: Final = {
    SettleAction.DELETE: (),  # What is deleted may be deleted: what is refused is a dead letter.
    SettleAction.EXTEND: (),
    SettleAction.RELEASE: (MessageGoneError, ReceiptExpiredError),
    SettleAction.REJECT: (MessageGoneError,),
    SettleAction.RETURN: (MessageGoneError, ReceiptExpiredError),
}
"""What may be said the second time because of the first."""


@final
@dataclass(eq=False, slots=True)
class _Call:
    """What one caller waits for."""

    errors: dict[int, TidelogError] = field(default_factory=dict[int, TidelogError])
    """By place in what the caller gave."""
    gives_up_at: float = math.inf
    open_count: int = 0
    is_done: trio.Event = field(default_factory=trio.Event)


@final
@dataclass(eq=False, slots=True)
class _Order:
    """Messages of one receive that a caller wants settled alike."""

    call: _Call
    partition: int
    receipt: bytes
    verdict: Verdict
    offsets: list[int] = field(default_factory=list[int])
    indexes: list[int] = field(default_factory=list[int])
    """Where the caller named each of them."""
    failure_count: int = 0
    is_done_perhaps: bool = False

    def places(self) -> dict[int, list[int]]:
        """Return by offset where the caller named it."""
        found: dict[int, list[int]] = {}
        for offset, index in zip(self.offsets, self.indexes, strict=True):
            found.setdefault(offset, []).append(index)
        return found


@final
@dataclass(eq=False, slots=True)
class _Lane:
    """What one broker is to be told of one queue: another one of this name is another queue."""

    node_id: int
    queue_id: bytes
    waiting: deque[_Order] = field(default_factory=deque[_Order])
    flight_count: int = 0

    @property
    def may_send(self) -> bool:
        """Whether something waits, and a request may leave now."""
        return bool(self.waiting) and self.flight_count < _FLIGHTS_MAX

    def take(self) -> list[_Order]:
        """Remove and return what goes together; there is something."""
        orders = [self.waiting.popleft()]
        message_count = len(orders[0].offsets)
        while self.waiting and len(orders) < _SETTLEMENTS_MAX:
            message_count += len(self.waiting[0].offsets)
            if message_count > _MESSAGES_MAX:
                break
            orders.append(self.waiting.popleft())
        return orders


@final
@dataclass(eq=False, slots=True)
class _Flight:
    """One request under way."""

    lane: _Lane
    connection: RpcConnection
    alike: list[list[_Order]]
    """What each of its settlements is for."""
    expires_at: float
    """When the connection counts as dead."""
    is_late: bool = False
    """Whether it does, because of this one."""


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
        """What has become of messages that workers have."""
        self._cluster = cluster
        self._queue_metadata = queue_metadata
        self._name = name
        self._lanes: dict[tuple[int, bytes], _Lane] = {}
        self._flights: dict[_Flight, None] = {}
        """In the order of their departure, which is that of their expiry."""
        self._sends = Coalescer(self._depart_all)
        self._is_watching = False

    async def settle(
        self,
        places: Sequence[ReceivedPlace | Message],
        verdict: Verdict,
        *,
        gives_up_at: float = math.inf,
    ) -> None:
        """Settle messages, all alike.

        If cancelled, each of them may be settled or not.

        Args:
            places: Which messages.
            verdict: What is to become of them.
            gives_up_at: Until when, in seconds of trio's clock, what fails is tried again; at most
                for `request_timeout`.

        Raises:
            BrokerError: The only message could not be settled.
            BatchError: Some of several messages could not be settled; it says which, and why.
            UnknownQueueError: There is no such queue.
            ConnectionLostError: Nobody answers; it may be settled or not.
        """
        if not places:
            await trio.lowlevel.checkpoint()
            return
        await trio.lowlevel.checkpoint_if_cancelled()
        description = await self._queue_metadata.find(self._name)
        call = _Call()
        patience_ends_at = trio.current_time() + self._cluster.config.request_timeout
        call.gives_up_at = min(gives_up_at, patience_ends_at)
        orders = _orders(places, verdict, call)
        for order in orders:
            leader_of(description, order.partition)
        call.open_count = len(orders)  # All at once: one of them may be over before the next goes.
        for order in orders:
            self._put(order, description)
        await self._send_all()
        await self._cluster.tasks.wait(call.is_done)
        if not call.errors:
            return
        if len(places) == 1:
            raise copy(call.errors[0])  # Others may have the same, and it would grow each time.
        raise BatchError(
            f"{len(call.errors)} of {len(places)} messages could not be settled, the first one"
            f" because: {next(iter(call.errors.values()))}",
            call.errors,
        )

    def settle_soon(self, places: Sequence[ReceivedPlace], verdict: Verdict) -> None:
        """Settle messages in a task of the client; nobody learns of failures."""
        if places:
            self._cluster.tasks.start_soon(self._try_to_settle, list(places), verdict)

    async def _try_to_settle(self, places: list[ReceivedPlace], verdict: Verdict) -> None:
        try:
            await self.settle(places, verdict)
        except TidelogError as error:
            self._cluster.env.probe("client.not_settled", queue=self._name, error=str(error))

    def _put(self, order: _Order, description: QueueDescription) -> None:
        """Have an order wait for its turn."""
        try:
            leader_id = leader_of(description, order.partition)
        except TidelogError as error:
            self._give_up(order, error)
            return
        if leader_id is None:
            self._queue_metadata.invalidate(description)
            nobody = NotLeaderError(f"nobody serves partition {order.partition} of the queue now")
            self._failed(order, nobody)
            return
        queue_id = description.queue_id
        lane = self._lanes.get((leader_id, queue_id))
        if lane is None:
            lane = self._lanes[leader_id, queue_id] = _Lane(leader_id, queue_id)
        lane.waiting.append(order)

    async def _send_all(self) -> None:
        """Send what waits and may leave, with all that comes in this turn of the loop."""
        if any(lane.may_send for lane in self._lanes.values()):
            await self._sends.request()

    def _depart_all(self) -> None:
        for lane in list(self._lanes.values()):
            self._depart(lane)

    def _depart(self, lane: _Lane) -> None:
        while lane.may_send:
            self._send(lane, lane.take())
        if not (lane.waiting or lane.flight_count):
            self._lanes.pop((lane.node_id, lane.queue_id), None)

    def _send(self, lane: _Lane, orders: list[_Order]) -> None:
        connection = self._cluster.connection_nowait(lane.node_id)
        if connection is None:
            what = f"node {lane.node_id}, which serves the queue, cannot be reached"
            self._all_failed([orders], ConnectError(what))
            return
        alike = _alike(orders)
        request = SettleRequest(lane.queue_id, [_settlement(each) for each in alike])
        patience = self._cluster.config.request_timeout
        flight = _Flight(lane, connection, alike, trio.current_time() + patience)
        self._flights[flight] = None
        lane.flight_count += 1
        if not self._is_watching:
            self._is_watching = True
            self._cluster.tasks.start_soon(self._watch)
        connection.submit(api.SETTLE, request, partial(self._landed, flight))

    def _landed(self, flight: _Flight, outcome: Outcome) -> None:
        """Take over what came of a request, and send what has come meanwhile."""
        del self._flights[flight]
        flight.lane.flight_count -= 1
        if flight.is_late:
            patience = self._cluster.config.request_timeout
            what = f"the broker did not answer SETTLE in {patience:g} s"
            self._all_failed(flight.alike, RequestTimedOutError(what))
        elif isinstance(outcome, Exception):
            self._all_failed(flight.alike, outcome)
        else:
            results = cast("SettleReply", outcome[0]).results
            if len(results) == len(flight.alike):
                for each, result in zip(flight.alike, results, strict=True):
                    for order in each:
                        self._answered(order, result)
            else:
                flight.connection.close()
                what = f"{len(results)} results for {len(flight.alike)} settlements"
                self._all_failed(flight.alike, WireFormatError(what))
        self._depart(flight.lane)

    def _all_failed(self, groups: Iterable[Sequence[_Order]], error: Exception) -> None:
        assert isinstance(error, TidelogError), "a connection says nothing else"
        for orders in groups:
            for order in orders:
                self._failed(order, error)

    async def _watch(self) -> None:
        """Close connections on which a request has no answer in time, while some are under way."""
        try:
            while self._flights:
                oldest = next(iter(self._flights))
                await trio.sleep_until(oldest.expires_at)
                if oldest in self._flights:
                    oldest.is_late = True
                    oldest.connection.close()
        finally:
            self._is_watching = False

    def _answered(self, order: _Order, result: Settled) -> None:
        if result.error is not None:
            self._failed(order, from_wire(result.error))
            return
        if not result.refused:
            self._note(order, order.offsets)
            _finish(order)
            return
        again: list[int] = []
        failure: BrokerError | None = None
        places = order.places()
        done = set(places)
        for refused in result.refused:
            error = from_wire(refused.error)
            offsets = [each for each in _offsets(refused.runs) if each in places]
            if _is_done(order, error):
                continue
            done.difference_update(offsets)
            if error.is_retriable:
                again, failure = [*again, *offsets], error
            else:
                for offset in offsets:
                    order.call.errors.update(dict.fromkeys(places[offset], error))
        self._note(order, done)
        if failure is None:
            _finish(order)
        else:
            left = [(offset, index) for offset in again for index in places[offset]]
            order.offsets = [offset for offset, _ in left]
            order.indexes = [index for _, index in left]
            self._failed(order, failure)

    def _note(self, order: _Order, offsets: Iterable[int]) -> None:
        self.settled.note(order.partition, order.receipt, offsets, action=order.verdict.action)

    def _give_up(self, order: _Order, error: TidelogError) -> None:
        """Have no part of an order carried out any more."""
        if _is_done(order, error):
            self._note(order, order.offsets)
        else:
            order.call.errors.update(dict.fromkeys(order.indexes, error))
        _finish(order)

    def _failed(self, order: _Order, error: TidelogError) -> None:
        """Have an order carried out later, if that may help."""
        if isinstance(error, WireFormatError):
            error = ConnectionLostError(f"a broker's reply cannot be understood: {error}")
        may_help = isinstance(error, (*PASSING_ERRORS, UnknownQueueError))
        delay = self._cluster.backoff.delay(order.failure_count + 1)
        if not may_help or trio.current_time() + delay >= order.call.gives_up_at:
            self._give_up(order, error)
            return
        if not isinstance(error, (ConnectError, UnknownQueueError)):
            # Also a broker that is deposed may have had it committed.
            order.is_done_perhaps = True
        order.failure_count += 1
        self._cluster.tasks.start_soon(self._put_again, order, error, delay)

    async def _put_again(self, order: _Order, error: TidelogError, delay: float) -> None:
        is_stale = isinstance(error, (*STALE_METADATA_ERRORS, UnknownQueueError))
        try:
            if is_stale:
                self._queue_metadata.invalidate(await self._queue_metadata.find(self._name))
            await trio.sleep(delay)
            description = await self._queue_metadata.find(self._name)
        except TidelogError as failure:
            self._give_up(order, failure)
            return
        self._put(order, description)
        await self._send_all()


def _orders(
    places: Sequence[ReceivedPlace | Message], verdict: Verdict, call: _Call
) -> list[_Order]:
    orders: dict[tuple[int, bytes], _Order] = {}
    order: _Order | None = None
    last: Lease | None = None
    for index, place in enumerate(places):
        if isinstance(place, Message):
            lease: Lease | None = place.lease
            partition, offset, receipt = place.partition, place.offset, place.lease.receipt
        else:
            lease = None
            partition, offset, receipt = place
        if order is None or lease is None or lease is not last:
            last = lease
            order = orders.get((partition, receipt))
            if order is None:
                order = _Order(call, partition, receipt, verdict)
                orders[partition, receipt] = order
        order.offsets.append(offset)
        order.indexes.append(index)
    return list(orders.values())


def _alike(orders: Iterable[_Order]) -> list[list[_Order]]:
    """Return orders by what is to become of messages of which receive: one settlement each."""
    found: dict[tuple[int, bytes, Verdict], list[_Order]] = {}
    for order in orders:
        found.setdefault((order.partition, order.receipt, order.verdict), []).append(order)
    return list(found.values())


def _settlement(orders: Sequence[_Order]) -> Settlement:
    order = orders[0]
    verdict = order.verdict
    return Settlement(
        order.partition,
        order.receipt,
        runs_of(offset for each in orders for offset in each.offsets),
        int(verdict.action),
        verdict.delay_ms,
        verdict.reason,
    )


def _finish(order: _Order) -> None:
    order.call.open_count -= 1
    if not order.call.open_count:
        order.call.is_done.set()


def _is_done(order: _Order, error: TidelogError) -> bool:
    """Return whether an error says that what was asked for before has happened."""
    expected = _REFUSED_BECAUSE_DONE[order.verdict.action]
    return order.is_done_perhaps and isinstance(error, expected)


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
