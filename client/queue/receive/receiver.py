"""Receiving messages from all partitions of a queue, wherever they are served.

Shell: asks one broker after the other for what is there; if that is nothing, waits at all of them
at once until one has something. No task of its own: an answer is taken over in the task of the
connection that brought it. Requests that are still under way when a call ends are left to the next
call that wants the same; what they bring while nobody asks is given back at once, and does not
count as received. So the requests under way are no more than those of the calls that were made at
the same time.

Invariant: an empty answer means that every partition was asked after the call began, and had
nothing. While some cannot be asked, that is tried again for up to `request_timeout`.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, cast, final

import trio

from tidelog.client.admin.queue_metadata import QueueMetadata
from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.cluster.durations import seconds_of
from tidelog.client.cluster.metadata import PASSING_ERRORS
from tidelog.client.queue.receive.chunk_reader import ChunkReader
from tidelog.client.queue.receive.message import (
    DELETE,
    RETURN,
    Disposition,
    Lease,
    Message,
    messages_of,
    missing_places,
    places_of,
)
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.large_messages import is_chunk
from tidelog.wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    CorruptRecordError,
    NotLeaderError,
    ShuttingDownError,
    TidelogError,
    UnknownQueueError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.queue_admin import QueueDescription
from tidelog.wire.messages.queues import (
    PartitionReceived,
    ReceiveReply,
    ReceiveRequest,
    SettleAction,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.rpc import Outcome, RpcConnection

_GIVING_BACK_S: Final = 1.0
"""How long somebody who was cancelled stays to give back what nobody saw."""
_CONNECTING_S: Final = 0.25
"""How long others have to wait for a broker to which there is no connection yet."""
_SLOW_S: Final = 0.25
"""How long messages that are in hand wait for a broker that may have some as well."""
_SILENT_S: Final = 2.0
"""How long the others are not asked while a broker has not said what is there."""
_EARLY_S: Final = 0.5
"""A broker that says so much too early that there is nothing is about to stop."""
_BELIEVED_S: Final = 20.0
"""How long a broker that has nothing to say is believed to be there; then others are asked who
serves in its place."""
_GRACE_S: Final = 1.0
"""How much longer than the caller wants to wait a broker may take to say that there is nothing."""


class ReceiveOptions(NamedTuple):
    """What one call is to receive."""

    max_messages: int
    max_bytes: int
    visibility_timeout_ms: int | None
    holder: str
    attempt_id: bytes | None
    """FIFO queues: by which a repeated request is known."""


@final
@dataclass(slots=True, eq=False)
class _Poll:
    """One request under way."""

    opener: Final["_Call"]
    """Who began it: what was not there before others began says nothing to them."""
    call: "_Call"
    """Who gets what it brings, unless that is over."""
    node_id: int
    connection: RpcConnection
    description: QueueDescription
    partitions: list[int]
    ends_at: float
    """When the broker says at the latest that there is nothing."""
    expires_at: float
    """When the connection counts as dead."""


@final
class QueueReceiver:
    """Receives messages of one queue, for any number of callers at once."""

    def __init__(
        self,
        cluster: ClusterClient,
        queue_metadata: QueueMetadata,
        settler: QueueSettler,
        *,
        name: str,
    ) -> None:
        """Receive from the queue `name`; what comes too late is given back through `settler`."""
        self.cluster = cluster
        self.queue_metadata = queue_metadata
        self.settler = settler
        self.reader = ChunkReader(cluster)
        self.name = name
        self.left_polls: dict[_Poll, None] = {}
        """Requests under way whose callers are gone."""
        self.turn = 0
        """Which broker and which partition is asked first next time."""
        self.was_empty = False
        """Whether the last call found nothing: then the next one waits everywhere at once."""

    async def receive(self, options: ReceiveOptions, *, wait_s: float) -> list[Message]:
        """Return some messages; none if there are none for `wait_s` seconds.

        If cancelled, nothing stays leased, as far as brokers can be told so.

        Raises:
            UnknownQueueError: There is no such queue.
            TidelogError: A partition could not be asked, and the others had nothing.
        """
        self.turn += 1
        call = _Call(self, options, wait_s)
        try:
            messages = await call.run()
        except BaseException:
            with trio.move_on_after(_GIVING_BACK_S, shield=True):
                await call.give_back_all()
            raise
        finally:
            call.leave()
        self.was_empty = not messages
        return messages

    def on_complete(self, poll: _Poll, outcome: Outcome) -> None:
        """Give what a request has brought to whoever asks now."""
        self.left_polls.pop(poll, None)
        poll.call.on_complete(poll, outcome)


@final
class _Call:
    """One receive."""

    def __init__(self, receiver: QueueReceiver, options: ReceiveOptions, wait_s: float) -> None:
        now = trio.current_time()
        self.options = options
        self.is_over = False
        """Whether what comes now comes too late."""
        self._receiver = receiver
        self._cluster = receiver.cluster
        self._ends_at = now + wait_s
        # Who was asked to wait for so long says a moment later that there is nothing.
        self._gives_up_at = now + max(wait_s + _GRACE_S, receiver.cluster.config.request_timeout)
        self._is_leasing = True
        """Whether nobody else is to have what is received, for a while at least."""
        self._messages: list[Message] = []
        self._polls: dict[_Poll, None] = {}
        self._answered: set[int] = set()
        """Partitions that had nothing."""
        self._failures: dict[int, TidelogError] = {}
        """Why partitions could not be asked that have not answered since; the latest is last."""
        self._failure_count = 0
        self._retry_at = -math.inf
        self._arrival = trio.Event()

    async def run(self) -> list[Message]:
        """Receive."""
        await trio.lowlevel.checkpoint_if_cancelled()
        description = await self._find()
        by_default = description.config["visibility_timeout_ms"]
        timeout_ms = self.options.visibility_timeout_ms
        self._is_leasing = bool(seconds_of(by_default) if timeout_ms is None else timeout_ms)
        self._take_over(description)
        by_node = await self._by_node()
        if len(by_node) > 1 and not self._receiver.was_empty:
            await self._sweep(by_node)
        while not self._has_messages():
            partitions = self._partitions(await self._find())
            now = trio.current_time()
            is_all_empty = self._answered.issuperset(partitions)
            if is_all_empty and (now >= self._ends_at + _GRACE_S or self._is_nothing_left(now)):
                return []
            self._raise_failure(now)
            if now >= self._retry_at:
                await self._ask_where_idle(partitions)
            await self._wait()
        return self._messages

    def _has_messages(self) -> bool:
        """Return whether there are any, without those that somebody else may have by now.

        An answer may come later than the end of the lease that it speaks of.
        """
        if self._is_leasing:
            now = trio.current_time()
            self._messages = [each for each in self._messages if each.lease.expires_at > now]
        return bool(self._messages)

    async def give_back_all(self) -> None:
        """Give back what the caller does not get."""
        places = [message.place for message in self._messages]
        self.leave()
        with suppress(TidelogError, trio.ClosedResourceError):  # Then their time has to pass.
            await self._receiver.settler.settle(places, RETURN)

    def leave(self) -> None:
        """Leave to others what is under way."""
        self.is_over = True
        self._messages = []
        self._receiver.left_polls.update(self._polls)
        self._polls.clear()

    # -- asking -----------------------------------------------------------------------------------

    async def _find(self) -> QueueDescription:
        return await self._receiver.queue_metadata.find(self._receiver.name)

    def _partitions(self, description: QueueDescription) -> list[int]:
        """Return all partitions, beginning with another one each time."""
        count = len(description.partitions)
        leader_count = len({each.leader_id for each in description.partitions}) or 1
        start = self._receiver.turn // leader_count
        return [(start + step) % count for step in range(count)]

    async def _by_node(self, among: Sequence[int] | None = None) -> dict[int, list[int]]:
        """Return the partitions of each broker, beginning with another one each time."""
        description = await self._find()
        found: dict[int, list[int]] = {}
        for partition in self._partitions(description) if among is None else among:
            leader_id = description.partitions[partition].leader_id
            if leader_id is None:
                error = NotLeaderError(
                    f"nobody serves partition {partition} of queue {self._receiver.name!r} now"
                )
                self._failed(description, [partition], error)
            else:
                found.setdefault(leader_id, []).append(partition)
        nodes = sorted(found)
        start = self._receiver.turn % (len(nodes) or 1)
        return {node_id: found[node_id] for node_id in nodes[start:] + nodes[:start]}

    def _take_over(self, description: QueueDescription) -> None:
        """Take over requests that others left, unless somebody is being asked for the same."""
        asked = {partition for poll in self._polls for partition in poll.partitions}
        for poll in list(self._receiver.left_polls):
            if asked.isdisjoint(poll.partitions) and self._is_wanted(poll, description):
                del self._receiver.left_polls[poll]
                self._polls[poll] = None
                poll.call = self
                asked.update(poll.partitions)

    def _is_wanted(self, poll: _Poll, description: QueueDescription) -> bool:
        """Return whether a request that somebody left asks for what this call wants.

        It may ask for more messages: what is too much is given back. An attempt is not repeated
        by others, so its id does not matter.
        """
        mine, theirs = self.options, poll.opener.options
        return (
            (theirs.visibility_timeout_ms, theirs.max_bytes, theirs.holder)
            == (mine.visibility_timeout_ms, mine.max_bytes, mine.holder)
            and poll.description.queue_id == description.queue_id
            and self._cluster.live_connection(poll.node_id) is poll.connection
            and all(
                description.partitions[partition].leader_id == poll.node_id
                for partition in poll.partitions
            )
        )

    async def _sweep(self, by_node: dict[int, list[int]]) -> None:
        """Ask for what is there, one broker after the other.

        Those who have been asked already have had nothing. Nobody waits long for one that is
        silent: the lease of what is in hand is running.
        """
        for node_id, partitions in by_node.items():
            if len(self._messages) >= self.options.max_messages:
                return
            asked = {partition for poll in self._polls for partition in poll.partitions}
            idle = [partition for partition in partitions if partition not in asked]
            if not idle:
                continue
            poll = await self._ask(node_id, idle, max_wait_ms=0)
            asked_at = trio.current_time()
            while poll in self._polls:
                goes_on_at = asked_at + (_SLOW_S if self._messages else _SILENT_S)
                if trio.current_time() >= goes_on_at:
                    if self._messages:
                        return
                    break
                await self._wait(goes_on_at)

    async def _ask_where_idle(self, partitions: Sequence[int]) -> None:
        """Ask for partitions that nobody is being asked for; once more only while there is time."""
        self._take_over(await self._find())
        wait_ms = max(0, round((self._ends_at - trio.current_time()) * 1000))
        polls = [poll for poll in self._polls if wait_ms or poll.opener is self]
        asked = {partition for poll in polls for partition in poll.partitions}
        if wait_ms == 0:
            asked |= self._answered
        idle = [partition for partition in partitions if partition not in asked]
        by_node = await self._by_node(idle)
        for node_id in sorted(
            by_node, key=lambda each: self._cluster.live_connection(each) is None
        ):
            await self._ask(node_id, by_node[node_id], max_wait_ms=wait_ms)

    async def _ask(self, node_id: int, partitions: list[int], *, max_wait_ms: int) -> _Poll | None:
        """Ask a broker, unless it cannot be reached, or nothing is wanted any more."""
        description = await self._find()
        connection = await self._connection(node_id)
        if connection is None:
            error = ConnectError(f"node {node_id} cannot be reached now")
            self._failed(description, partitions, error)
            return None
        options = self.options
        room = options.max_messages - len(self._messages)
        # Some may have come since it was decided to ask. A repeated attempt would bring them again,
        # and too late: then they would be given back, though the caller has them.
        in_hand = {message.partition for message in self._messages}
        partitions = [each for each in partitions if each not in in_hand]
        if room <= 0 or not partitions:
            return None
        request = ReceiveRequest(
            description.queue_id,
            partitions,
            room,
            options.max_bytes,
            max_wait_ms,
            options.visibility_timeout_ms,
            options.holder,
            options.attempt_id,
        )
        ends_at = trio.current_time() + max_wait_ms / 1000
        expires_at = ends_at + self._cluster.config.request_timeout
        poll = _Poll(self, self, node_id, connection, description, partitions, ends_at, expires_at)
        self._polls[poll] = None
        connection.submit(
            api.RECEIVE,
            request,
            partial(self._receiver.on_complete, poll),
            kept_until=min(ends_at, trio.current_time() + _BELIEVED_S) + _GRACE_S,
        )
        return poll

    async def _connection(self, node_id: int) -> RpcConnection | None:
        """Return the connection to a broker, `None` if it takes long to make one."""
        connection = self._cluster.live_connection(node_id)
        if connection is not None:
            return connection
        with trio.move_on_after(_CONNECTING_S):
            with suppress(TidelogError):
                return await self._cluster.connection_to(node_id)
        return None

    async def _wait(self, until: float = math.inf) -> None:
        """Wait until something arrived, or it is time to do something."""
        if not self._arrival.is_set():
            now = trio.current_time()
            moments = [until, self._ends_at + _GRACE_S, self._gives_up_at, self._retry_at]
            if any(poll.opener is not self for poll in self._polls):
                moments.append(self._ends_at)  # Then others have to be made instead of them.
            expiries = (poll.expires_at for poll in self._polls)
            # All of them may have passed while others were asked.
            wake_at = min((*(each for each in moments if each > now), *expiries), default=now)
            with trio.CancelScope(deadline=wake_at):
                await self._cluster.tasks.wait(self._arrival)
        self._arrival = trio.Event()
        now = trio.current_time()
        for poll in list(self._polls):
            if poll.expires_at <= now:
                poll.connection.close()

    def _is_nothing_left(self, now: float) -> bool:
        return now >= self._ends_at and not any(poll.opener is self for poll in self._polls)

    # -- answers ----------------------------------------------------------------------------------

    def on_complete(self, poll: _Poll, outcome: Outcome) -> None:
        """Take what a request has brought, or give it back if this call is over."""
        self._polls.pop(poll, None)
        if isinstance(outcome, Exception):
            self._failed(poll.description, poll.partitions, outcome)
        else:
            self._take(poll, cast("ReceiveReply", outcome[0]), outcome[1])
        self._arrival.set()

    def _take(self, poll: _Poll, reply: ReceiveReply, attachment: memoryview) -> None:
        start = 0
        failed: set[int] = set()
        for partition in poll.partitions:
            self._failures.pop(partition, None)
        for received in reply.results:
            end = start + received.batch_bytes
            content = bytes(attachment[start:end])
            start = end
            if received.error is not None:
                failed.add(received.partition)
                self._failed(poll.description, [received.partition], from_wire(received.error))
            elif received.runs:
                self._take_messages(poll, received, content, now_ms=reply.now_ms)
        if not failed and poll.opener is self:
            self._answered.update(poll.partitions)
        if not reply.results and trio.current_time() < poll.ends_at - _EARLY_S:
            error = ShuttingDownError("a broker does not let anybody wait any more")
            self._failed(poll.description, poll.partitions, error)

    def _take_messages(
        self, poll: _Poll, received: PartitionReceived, content: bytes, *, now_ms: int
    ) -> None:
        settler = self._receiver.settler
        room = 0 if self.is_over else self.options.max_messages - len(self._messages)
        if room <= 0:
            settler.settle_soon(places_of(received), RETURN)
            return
        expires_at = trio.current_time() + (received.deadline_ms - now_ms) / 1000
        lease = Lease(
            received.receipt,
            expires_at,
            settler.settle,
            reader=self._receiver.reader,
            is_fifo=poll.description.is_fifo,
        )
        tp = TopicPartition(poll.description.topic, received.partition)
        try:
            messages = messages_of(tp, received, content, lease=lease)
        except CorruptRecordError as error:
            # It counts, so that messages which nobody can read are dead letters some day.
            verdict = Disposition(SettleAction.RELEASE, reason=str(error))
            settler.settle_soon(places_of(received), verdict)
            self._failed(poll.description, [received.partition], error)
            return
        missing = missing_places(received, messages)
        parts = [each.place for each in messages if each.headers and is_chunk(each.headers)]
        if parts:
            # Brokers could not see what they are, for they were damaged then.
            settler.settle_soon(parts, DELETE)
            messages = [each for each in messages if not is_chunk(each.headers)]
        late = [message.place for message in messages[room:]]
        settler.settle_soon(late + missing, RETURN)
        self._messages += messages[:room]

    def _failed(
        self, description: QueueDescription, partitions: Sequence[int], error: Exception
    ) -> None:
        """Take note that partitions could not be asked; they will be asked again."""
        if isinstance(error, WireFormatError):
            error = ConnectionLostError(f"a broker's reply cannot be understood: {error}")
        assert isinstance(error, TidelogError), "a connection says nothing else"
        for partition in partitions:
            self._failures.pop(partition, None)
            self._failures[partition] = error
        self._failure_count += 1
        self._retry_at = trio.current_time() + self._cluster.backoff.delay(self._failure_count)
        if isinstance(error, (*STALE_METADATA_ERRORS, UnknownQueueError)):
            self._receiver.queue_metadata.invalidate(description)

    def _raise_failure(self, now: float) -> None:
        """Raise what is in the way, if it stays there."""
        is_late = now >= self._gives_up_at
        for failure in reversed(self._failures.values()):
            is_passing = isinstance(failure, (*PASSING_ERRORS, UnknownQueueError)) or (
                isinstance(failure, BrokerError) and failure.is_retriable
            )
            if is_late or not is_passing:
                raise failure
