"""Receiver of messages from all partitions of a queue, on all of its brokers.

Shell: asks one broker after the other for available messages; if there are none, long-polls all of
them at once. It has no task: the task of the connection that brings a reply stores it. Requests in
flight at the end of a call are left to the next call with the same options. Messages that arrive
without such a call are returned at once, and do not count as received. So the requests in flight
are no more than those of the concurrent calls.

Invariant: an empty result means that every partition was asked after the call began, and had
nothing. A partition that cannot be asked is retried for up to `request_timeout`.
"""

import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, final

import msgspec
import trio
from msgspec.structs import replace

from tidelog.client.admin.queue_metadata import QueueMetadata
from tidelog.client.cluster.background_tasks import ParkedTask
from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.cluster.metadata import PASSING_ERRORS
from tidelog.client.errors import ClosedError
from tidelog.client.queue.receive.chunk_reader import ChunkReader
from tidelog.client.queue.receive.message import (
    DELETE,
    RETURN,
    Disposition,
    Lease,
    Message,
    count_of,
    messages_of,
    missing_places,
    places_of,
)
from tidelog.client.queue.receive.queue_layout import QueueLayout
from tidelog.client.queue.receive.receive_options import ReceiveOptions, request_of
from tidelog.client.queue.receive.receive_reply import Ranked, problem_of, rank_of, ranked
from tidelog.client.queue.receive.settler import QueueSettler
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.large_messages import is_chunk
from tidelog.wire.errors import (
    BrokerError,
    ConnectError,
    CorruptRecordError,
    NotLeaderError,
    OverLimitError,
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
    Settlement,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import Outcome, RpcConnection

_GIVING_BACK_S: Final = 1.0
"""Seconds for which a cancelled call stays to return its messages."""
_CONNECTING_S: Final = 0.25
"""Seconds for which other brokers wait for a new connection."""
_SLOW_S: Final = 0.25
"""Seconds for which received messages wait for a broker that may have more."""
_SILENT_S: Final = 2.0
"""Seconds for which the other brokers wait for a reply of one broker."""
_EARLY_S: Final = 0.5
"""An empty reply that is so many seconds early means that the broker is about to stop."""
_BELIEVED_S: Final = 20.0
"""Seconds without a reply after which other brokers are asked for the leader."""
_REPETITION_VERSION: Final = 2
"""First version of RECEIVE with `is_repetition`."""
ALONG_VERSION: Final = 3
"""First version of RECEIVE with settlements."""
_GRACE_S: Final = 1.0
"""Seconds after the caller's wait for a broker to reply that there is nothing."""


OnEnd = Callable[[list[Message], TidelogError | None], None]
"""Gets the messages of a request, and the error of a partition, if one failed."""


@final
class _Poll(msgspec.Struct, eq=False):
    """Request in flight."""

    opener: "_Call"
    """Call that sent it: an empty reply means nothing to calls that began later."""
    call: "_Call"
    """Call that gets its messages, unless that has ended."""
    node_id: int
    connection: RpcConnection
    description: QueueDescription
    partitions: list[int]
    ends_at: float
    """Latest time of an empty reply."""
    expires_at: float
    """When the connection counts as dead."""
    correlation_id: int = 0

    @property
    def queue_id(self) -> bytes:
        """Id of the queue."""
        return self.description.queue_id


@final
class QueueReceiver:
    """Receives messages of one queue, for any number of concurrent callers."""

    def __init__(
        self,
        cluster: ClusterClient,
        queue_metadata: QueueMetadata,
        settler: QueueSettler,
        *,
        name: str,
    ) -> None:
        """Receive from the queue `name`; return late messages through `settler`."""
        self.cluster = cluster
        self.queue_metadata = queue_metadata
        self.settler = settler
        self.reader = ChunkReader(cluster)
        self.name = name
        self.left_polls: dict[_Poll, None] = {}
        """Requests in flight whose callers are gone."""
        self.turn = 0
        """Counter that rotates the first broker and the first partition of a call."""
        self.was_empty = False
        """Whether the last call found nothing: then the next one polls all brokers at once."""
        self.running_count = 0
        """Number of calls that wait."""
        self._layout: QueueLayout | None = None
        self._unsent: RpcConnection | None = None
        """Connection to which the requests of this turn of the loop leave at its end."""

    def known_layout(self) -> QueueLayout | None:
        """Return the layout of the queue, `None` if its description must be fetched."""
        description = self.queue_metadata.known(self.name)
        if description is None:
            return None
        layout = self._layout
        if layout is not None and layout.description is description:
            return layout
        return self._layout_of(description)

    async def layout(self) -> QueueLayout:
        """Return the layout of the queue.

        Raises:
            UnknownQueueError: There is no such queue.
            TidelogError: No broker answered within `request_timeout`; the last error.
        """
        return self._layout_of(await self.queue_metadata.find(self.name))

    def _layout_of(self, description: QueueDescription) -> QueueLayout:
        layout = self._layout
        if layout is None or layout.description is not description:
            layout = self._layout = QueueLayout(description)
        return layout

    def receive(
        self, options: ReceiveOptions, *, wait_s: float, layout: QueueLayout | None = None
    ) -> Coroutine[Any, Any, list[Message]]:
        """Return some messages; none if there are none for `wait_s` seconds.

        If cancelled, nothing stays leased, as far as brokers can be told; except for messages of a
        repeatable call, which the next one with its attempt id returns.

        Raises:
            UnknownQueueError: There is no such queue.
            TidelogError: A partition did not answer, and the others had nothing.
        """
        if options.is_repeatable:
            return self._repeat(options, wait_s)
        return self._run(_Call(self, options, wait_s), layout or self.known_layout())

    async def _repeat(self, options: ReceiveOptions, wait_s: float) -> list[Message]:
        layout = await self.layout()
        if layout.count > 1:
            # One broker may have new messages while another one has those of the attempt.
            repetition = _Call(self, replace(options, is_repetition=True), 0)
            if messages := await self._run(repetition):
                return messages
        return await self._run(_Call(self, options, wait_s), layout)

    async def _run(self, call: "_Call", layout: QueueLayout | None = None) -> list[Message]:
        self.turn += 1
        self.running_count += 1
        try:
            await trio.lowlevel.checkpoint_if_cancelled()
            # Receives of FIFO queues have a request each; those of one turn leave in one write.
            is_together = self.running_count > 1 and call.options.attempt_id is not None
            call.begin(layout, is_followed=is_together)
            if (poll := call.awaited_poll) is not None:
                if is_together and self._unsent is not poll.connection:
                    await self._send_together(poll.connection)
                await poll.connection.wait_answered(poll.correlation_id)
            messages = call.messages() or await call.run()
        except BaseException:
            if call.options.is_repeatable:
                call.is_to_be_repeated = True
            else:
                with trio.move_on_after(_GIVING_BACK_S, shield=True):
                    await call.give_back_all()
            raise
        finally:
            self.running_count -= 1
            call.leave()
        if not call.options.is_repetition:
            self.was_empty = not messages
        return messages

    async def _send_together(self, connection: RpcConnection) -> None:
        """Send the requests of this turn of the loop, when the others have had theirs."""
        self._unsent = connection
        await trio.lowlevel.cancel_shielded_checkpoint()
        self._unsent = None
        connection.flush()

    def along(
        self,
        options: ReceiveOptions,
        settlements: list[Settlement],
        on_end: OnEnd,
        *,
        layout: QueueLayout,
        node_id: int,
        connection: RpcConnection,
    ) -> tuple[ReceiveRequest, Callable[[Outcome], None]]:
        """Return a request that settles messages and receives what the broker has at once.

        The second result is the callback for its outcome, from which `on_end` gets the messages.
        The connection must offer `ALONG_VERSION`.
        """
        self.turn += 1
        call = _Call(self, options, 0, on_end=on_end)
        partitions = layout.partitions_of(node_id, self.turn)
        poll = call.poll_of(layout, node_id, connection, partitions=partitions, max_wait_ms=0)
        request = request_of(layout, partitions, options, settlements=settlements)
        return request, partial(call.on_complete, poll)

    def poll(
        self, options: ReceiveOptions, on_end: OnEnd, *, wait_s: float, layout: QueueLayout
    ) -> Callable[[], None] | None:
        """Send a request that waits for messages at the only broker of the queue, without a task.

        `on_end` gets the outcome, unless the result is called before, which leaves the request to
        later calls. `None` if it cannot be sent now, or requests of earlier calls are open.
        """
        if len(layout.nodes) != 1 or self.left_polls:
            return None
        self.turn += 1
        call = _Call(self, options, wait_s, on_end=on_end)
        call.begin(layout)
        return None if call.awaited_poll is None else call.leave

    def on_complete(self, poll: _Poll, outcome: Outcome) -> None:
        """Pass the reply of a request to the current call."""
        self.left_polls.pop(poll, None)
        poll.call.on_complete(poll, outcome)


@final
class _Call:
    """One receive."""

    def __init__(
        self,
        receiver: QueueReceiver,
        options: ReceiveOptions,
        wait_s: float,
        *,
        on_end: OnEnd | None = None,
    ) -> None:
        cluster = receiver.cluster
        self._now = cluster.counters.now
        now = self._now()
        self.options = options
        self._wait_s = wait_s
        self._on_end = on_end
        """Gets the outcome of the only request, if no task waits for it."""
        self.is_over = False
        """Whether messages that arrive now are too late."""
        self.is_to_be_repeated = False
        """Whether they stay leased nevertheless, for a call with the same attempt id."""
        self.awaited_poll: _Poll | None = None
        """The only request; its outcome is all that the caller waits for."""
        self._arrival: ParkedTask | None = None
        """Woken by replies, while the call waits for several."""
        self._has_news = False
        """Whether a reply has arrived since the last wait."""
        self._receiver = receiver
        self._cluster = cluster
        self._turn = receiver.turn
        self._ends_at = now + wait_s
        # A broker with this maximum wait sends its empty reply a moment later.
        self._gives_up_at = now + max(wait_s + _GRACE_S, cluster.config.request_timeout)
        self._is_leasing = True
        """Whether received messages are hidden from others, at least for a while."""
        self._has_begun = False
        """Whether brokers were asked, or do not have to be asked one after the other."""
        self._messages: list[Ranked] = []
        self._first_expiry = math.inf
        """Time before which no lease of the messages ends."""
        self._polls: dict[_Poll, None] = {}
        self._answered: set[int] = set()
        """Partitions that had nothing."""
        self._limits: dict[int, OverLimitError] = {}
        """Latest answers of partitions that are at their limit of messages in flight."""
        self._failures: dict[int, TidelogError] = {}
        """Errors of partitions that have not answered since; the latest is last."""
        self._failure_count = 0
        self._early_count = 0
        """Empty replies before the end of their wait."""
        self._retry_at = -math.inf

    def begin(self, layout: QueueLayout | None, *, is_followed: bool = False) -> None:
        """Ask the only broker of the queue, or all of them, if that is possible without a wait.

        If `is_followed`, a flush of the connection of `awaited_poll` is to follow.
        """
        self._turn = self._receiver.turn
        if layout is None or layout.leaderless or self.options.is_repetition:
            return
        if len(layout.by_node) > 1 and not self._receiver.was_empty:
            return
        connections: dict[int, RpcConnection] = {}
        cluster = self._cluster
        live = cluster.live_connection_for_poll if self._wait_s else cluster.live_connection
        for node_id in layout.nodes if len(layout.nodes) == 1 else layout.nodes_from(self._turn):
            connection = live(node_id)
            if connection is None:
                return
            connections[node_id] = connection
        self._note_layout(layout)
        wait_ms = round(self._wait_s * 1000)
        asked = self._asked() if wait_ms and self._polls else ()
        is_only = len(connections) == 1 and not self._polls
        for node_id, connection in connections.items():
            partitions = layout.partitions_of(node_id, self._turn)
            if asked:
                partitions = [each for each in partitions if each not in asked]
            poll = self._submit(
                layout,
                node_id,
                connection,
                partitions=partitions,
                max_wait_ms=wait_ms,
                is_awaited=is_only and self._on_end is None,
                is_followed=is_only and is_followed,
            )
            if is_only:
                self.awaited_poll = poll

    def messages(self) -> list[Message]:
        """Return the messages that have arrived, in the order of processing."""
        if self._messages:
            self._drop_late()
        if len(self._messages) > 1:
            # The sort is stable, so messages of a FIFO group, which have one rank, stay in order.
            self._messages.sort(key=rank_of)
        return [message for _, message in self._messages]

    async def run(self) -> list[Message]:
        """Receive messages until there are any, or the wait is over."""
        layout = await self._receiver.layout()
        is_repetition = self.options.is_repetition
        if not self._has_begun:
            self._note_layout(layout)
            by_node = self._by_node(layout)
            if len(by_node) > 1 and not self._receiver.was_empty and not is_repetition:
                await self._sweep(layout, by_node)
        else:
            self._settle_wait()
        while is_repetition or not self._has_messages():
            layout = await self._receiver.layout()
            partitions = layout.partitions(self._turn)
            now = self._now()
            is_all_asked = self._in_hand() | self._answered >= set(partitions)
            if is_all_asked and (now >= self._ends_at + _GRACE_S or self._is_nothing_left(now)):
                if self._limits:
                    raise next(iter(self._limits.values()))
                self._drop_late()
                break
            self._raise_failure(now)
            if now >= self._retry_at:
                await self._ask_where_idle(layout, partitions)
            await self._wait()
        return self.messages()

    def _note_layout(self, layout: QueueLayout) -> None:
        self._has_begun = True
        timeout_ms = self.options.visibility_timeout_ms
        self._is_leasing = bool(layout.visibility_timeout_s if timeout_ms is None else timeout_ms)
        if self._receiver.left_polls:
            self._take_over(layout.description)

    def _in_hand(self) -> set[int]:
        """Return the partitions of the messages."""
        return {message.partition for _, message in self._messages}

    def _asked(self) -> set[int]:
        """Return the partitions of the requests in flight."""
        return {partition for poll in self._polls for partition in poll.partitions}

    def _has_messages(self) -> bool:
        self._drop_late()
        return bool(self._messages)

    def _drop_late(self) -> None:
        """Drop messages whose lease is over: a reply may arrive after that."""
        if self._is_leasing and (now := self._now()) >= self._first_expiry:
            self._messages = [each for each in self._messages if each[1].lease.expires_at > now]

    async def give_back_all(self) -> None:
        """Return the messages that the caller does not get."""
        places = [message.place for _, message in self._messages]
        self.leave()
        with suppress(TidelogError, trio.ClosedResourceError):  # Then their leases must expire.
            await self._receiver.settler.settle(places, RETURN)

    def leave(self) -> None:
        """Leave requests in flight to other calls."""
        self.is_over = True
        self._on_end = None
        self._messages = []
        if self._polls:
            self._receiver.left_polls.update(self._polls)
            self._polls.clear()

    # -- requests ---------------------------------------------------------------------------------

    def _by_node(
        self, layout: QueueLayout, among: Sequence[int] | None = None
    ) -> dict[int, list[int]]:
        """Return the partitions of each broker, starting with another broker each time."""
        description = layout.description
        found: dict[int, list[int]] = {}
        for partition in layout.partitions(self._turn) if among is None else among:
            leader_id = description.partitions[partition].leader_id
            if leader_id is None:
                error = NotLeaderError(
                    f"partition {partition} of queue {self._receiver.name!r} has no leader now"
                )
                self._failed(description, [partition], error)
            else:
                found.setdefault(leader_id, []).append(partition)
        nodes = sorted(found)
        start = self._turn % (len(nodes) or 1)
        return {node_id: found[node_id] for node_id in nodes[start:] + nodes[:start]}

    def _take_over(self, description: QueueDescription) -> None:
        """Adopt requests of earlier calls for partitions without a request in flight."""
        asked = self._asked()
        for poll in list(self._receiver.left_polls):
            if asked.isdisjoint(poll.partitions) and self._is_wanted(poll, description):
                del self._receiver.left_polls[poll]
                self._polls[poll] = None
                poll.call = self
                asked.update(poll.partitions)

    def _is_wanted(self, poll: _Poll, description: QueueDescription) -> bool:
        """Return whether a request of an earlier call has the options of this call.

        It may ask for more messages: surplus ones are returned. Its attempt id does not matter,
        unless the caller may repeat the attempt.
        """
        mine, theirs = self.options, poll.opener.options
        return (
            replace(theirs, max_messages=0, attempt_id=None, is_repetition=False)
            == replace(mine, max_messages=0, attempt_id=None, is_repetition=False)
            and (theirs.attempt_id == mine.attempt_id or not mine.is_repeatable)
            and poll.description.queue_id == description.queue_id
            and not poll.connection.is_lost
            and all(
                description.partitions[partition].leader_id == poll.node_id
                for partition in poll.partitions
            )
        )

    async def _sweep(self, layout: QueueLayout, by_node: dict[int, list[int]]) -> None:
        """Ask for available messages, one broker after the other.

        Brokers that were asked already had nothing. A silent broker is not waited for long: the
        lease of received messages is running.
        """
        for node_id, partitions in by_node.items():
            if len(self._messages) >= self.options.max_messages:
                return
            asked = self._asked()
            idle = [partition for partition in partitions if partition not in asked]
            if not idle:
                continue
            poll = await self._ask(layout, node_id, idle, max_wait_ms=0)
            asked_at = self._now()
            while poll in self._polls:
                goes_on_at = asked_at + (_SLOW_S if self._messages else _SILENT_S)
                if self._now() >= goes_on_at:
                    if self._messages:
                        return
                    break
                await self._wait(goes_on_at)

    async def _ask_where_idle(self, layout: QueueLayout, partitions: Sequence[int]) -> None:
        """Ask for partitions without a request in flight; poll again only while there is time."""
        self._take_over(layout.description)
        wait_ms = max(0, round((self._ends_at - self._now()) * 1000))
        polls = [poll for poll in self._polls if wait_ms or poll.opener is self]
        asked = {partition for poll in polls for partition in poll.partitions}
        if wait_ms == 0:
            asked |= self._answered
        idle = [partition for partition in partitions if partition not in asked]
        by_node = self._by_node(layout, idle)
        for node_id in sorted(
            by_node, key=lambda each: self._cluster.live_connection(each) is None
        ):
            await self._ask(layout, node_id, by_node[node_id], max_wait_ms=wait_ms)

    async def _ask(
        self, layout: QueueLayout, node_id: int, partitions: list[int], *, max_wait_ms: int
    ) -> _Poll | None:
        """Send a request, unless the broker is unreachable or no messages are wanted any more."""
        connection = await self._connection(node_id, is_poll=max_wait_ms > 0)
        if connection is None:
            error = ConnectError(f"node {node_id} cannot be reached now, or by no more polls")
            self._failed(layout.description, partitions, error)
            return None
        # Messages may have arrived since the decision to ask. A repeated attempt would bring them
        # again, too late: then they would be returned to the queue, although the caller has them.
        in_hand = self._in_hand()
        partitions = [each for each in partitions if each not in in_hand]
        return self._submit(
            layout, node_id, connection, partitions=partitions, max_wait_ms=max_wait_ms
        )

    def _submit(
        self,
        layout: QueueLayout,
        node_id: int,
        connection: RpcConnection,
        *,
        partitions: list[int],
        max_wait_ms: int,
        is_awaited: bool = False,
        is_followed: bool = False,
    ) -> _Poll | None:
        options = self.options
        room = options.max_messages
        if not options.is_repetition:
            room -= len(self._messages)
        elif connection.version_of(api.RECEIVE) < _REPETITION_VERSION:
            self._answered.update(partitions)  # This broker would deliver other messages.
            return None
        if room <= 0 or not partitions:
            return None
        if self._cluster.open_work.is_ending:
            raise ClosedError("the client is closed")
        options = options if room == options.max_messages else replace(options, max_messages=room)
        poll = self.poll_of(
            layout, node_id, connection, partitions=partitions, max_wait_ms=max_wait_ms
        )
        wait_s = max_wait_ms / 1000
        poll.correlation_id = connection.submit(
            api.RECEIVE,
            request_of(layout, partitions, options, max_wait_ms=max_wait_ms),
            partial(self._receiver.on_complete, poll),
            kept_until=poll.ends_at - max(wait_s - _BELIEVED_S, 0) + _GRACE_S,
            patience=wait_s + self._cluster.config.request_timeout,
            is_awaited=is_awaited,
            is_followed=is_followed,
        )
        return poll

    def poll_of(
        self,
        layout: QueueLayout,
        node_id: int,
        connection: RpcConnection,
        *,
        partitions: list[int],
        max_wait_ms: int,
    ) -> _Poll:
        """Return a request of this call, which is about to be sent."""
        ends_at = self._now() + max_wait_ms / 1000
        expires_at = ends_at + self._cluster.config.request_timeout
        description = layout.description
        poll = _Poll(self, self, node_id, connection, description, partitions, ends_at, expires_at)
        self._polls[poll] = self._cluster.open_work.receives[poll] = None
        return poll

    async def _connection(self, node_id: int, *, is_poll: bool) -> RpcConnection | None:
        """Return a connection to a broker, `None` if it takes long to connect."""
        cluster = self._cluster
        live = cluster.live_connection_for_poll if is_poll else cluster.live_connection
        connection = live(node_id)
        if connection is not None:
            return connection
        with suppress(TidelogError):
            with trio.move_on_after(_CONNECTING_S):
                connection = await cluster.connection_to(node_id)
            if connection is not None and is_poll:
                # Not a failure of the broker: another connection for polls takes a moment.
                with trio.move_on_at(self._gives_up_at):
                    return await cluster.connection_to_poll(node_id)
                return None
        return connection

    async def _wait(self, until: float = math.inf) -> None:
        """Wait until a reply arrives or a time is reached."""
        if not self._has_news:
            self._arrival = self._arrival or ParkedTask()
            await self._cluster.tasks.park(self._arrival, self._wake_at(until))
        self._settle_wait()

    def _wake_at(self, until: float) -> float:
        """Return when a call without a reply goes on, at the latest at `until`."""
        now = self._now()
        wake_at = math.inf
        for at in (until, self._ends_at + _GRACE_S, self._gives_up_at, self._retry_at):
            # All of them may have passed while other brokers were asked.
            if now < at < wake_at:
                wake_at = at
        for poll in self._polls:
            if poll.opener is not self and now < self._ends_at < wake_at:
                wake_at = self._ends_at  # Then requests of this call must replace them.
            wake_at = min(wake_at, poll.expires_at)
        return now if wake_at == math.inf else wake_at

    def _settle_wait(self) -> None:
        """Go on after a wait; close the connections whose replies are overdue."""
        self._has_news = False
        now = self._now()
        for poll in list(self._polls):
            if poll.expires_at <= now:
                poll.connection.close()

    def _is_nothing_left(self, now: float) -> bool:
        return now >= self._ends_at and not any(poll.opener is self for poll in self._polls)

    # -- replies ----------------------------------------------------------------------------------

    def on_complete(self, poll: _Poll, outcome: Outcome) -> None:
        """Store the messages of a reply, or return them if this call has ended."""
        self._polls.pop(poll, None)
        open_work = self._cluster.open_work
        del open_work.receives[poll]
        if open_work.is_ending:
            open_work.look()
        if isinstance(outcome, Exception):
            self._failed(poll.description, poll.partitions, outcome)
        else:
            reply = outcome[0]
            assert isinstance(reply, ReceiveReply), "the connection decodes no other reply"
            problem = problem_of(reply, poll.partitions)
            if problem is None:
                self._take(poll, reply, outcome[1])
            else:
                wrong = poll.connection.reject(api.RECEIVE, problem)
                self._failed(poll.description, poll.partitions, wrong)
        self._has_news = True
        if self._arrival is not None:
            self._arrival.wake()
        if self._on_end is not None:
            self._on_end(self.messages(), next(iter(self._failures.values()), None))

    def _take(self, poll: _Poll, reply: ReceiveReply, attachment: memoryview) -> None:
        start = 0
        failed: set[int] = set()
        has_news = has_runs = False
        if self._failures or self._limits:
            for partition in poll.partitions:
                self._failures.pop(partition, None)
                self._limits.pop(partition, None)
        for received in reply.results:
            end = start + received.batch_bytes
            content = bytes(attachment[start:end])
            start = end
            if received.error is not None:
                has_news = True
                error = from_wire(received.error)
                if isinstance(error, OverLimitError):
                    self._limits[received.partition] = error
                    continue
                failed.add(received.partition)
                self._failed(poll.description, [received.partition], error)
            elif received.runs:
                has_news = has_runs = True
                self._take_messages(poll, received, content, now_ms=reply.now_ms)
        if not failed and poll.opener is self and not (self.options.is_repetition and has_runs):
            self._answered.update(poll.partitions)
        if not has_news:
            self._note_empty(poll)

    def _note_empty(self, poll: _Poll) -> None:
        """Check whether an empty reply came early, and delay the next request then."""
        now = self._now()
        if now < poll.ends_at:
            # Such a broker would be asked as fast as it can answer.
            self._early_count += 1
            self._retry_at = now + self._cluster.backoff.delay(self._early_count)
        if now < poll.ends_at - _EARLY_S:
            ended = ShuttingDownError("the broker ends long polls, because it is shutting down")
            self._failed(poll.description, poll.partitions, ended)

    def _take_messages(
        self, poll: _Poll, received: PartitionReceived, content: bytes, *, now_ms: int
    ) -> None:
        settler = self._receiver.settler
        options = self.options
        count = count_of(received.runs)
        is_late = self.is_over or self._cluster.open_work.is_ending
        room = 0 if is_late else options.max_messages - len(self._messages)
        if options.is_repeatable and not is_late:
            # The messages of an attempt stay together: a part of them could not be repeated.
            is_wanted = options.is_repetition or not self._messages or count <= room
            room = count if is_wanted else 0
        if room <= 0:
            if self.is_to_be_repeated:
                return
            settler.settle_soon(places_of(received), RETURN)
            return
        expires_at = self._now() + (received.deadline_ms - now_ms) / 1000
        self._first_expiry = min(self._first_expiry, expires_at)
        lease = Lease(
            received.receipt,
            expires_at,
            settler.settle,
            reader=self._receiver.reader,
            is_fifo=poll.description.is_fifo,
            topic_id=poll.description.topic_id,
        )
        tp = TopicPartition(poll.description.topic, received.partition)
        try:
            messages = messages_of(tp, received, content, lease=lease)
        except CorruptRecordError as error:
            # The release counts, so that unreadable messages become dead letters in the end.
            verdict = Disposition(SettleAction.RELEASE, reason=str(error))
            settler.settle_soon(places_of(received), verdict)
            self._failed(poll.description, [received.partition], error)
            return
        missing = missing_places(received, messages) if count != len(messages) else []
        parts = [each.place for each in messages if each.headers and is_chunk(each.headers)]
        if parts:
            # Brokers did not recognise them as chunks, because the batch was corrupt then.
            settler.settle_soon(parts, DELETE)
            messages = [each for each in messages if not is_chunk(each.headers)]
        in_order = ranked(received, messages)
        if missing or len(in_order) > room:
            late = [message.place for _, message in in_order[room:]]
            settler.settle_soon(late + missing, RETURN)
        self._messages += in_order[:room]

    def _failed(
        self, description: QueueDescription, partitions: Sequence[int], error: Exception
    ) -> None:
        """Record the errors of partitions, which are retried."""
        assert isinstance(error, TidelogError), "a connection raises no other errors"
        for partition in partitions:
            self._failures.pop(partition, None)
            self._failures[partition] = error
        self._failure_count += 1
        self._retry_at = self._now() + self._cluster.backoff.delay(self._failure_count)
        self._cluster.report_blocked(str(error))
        if isinstance(error, (*STALE_METADATA_ERRORS, UnknownQueueError, WireFormatError)):
            self._receiver.queue_metadata.invalidate(description)

    def _raise_failure(self, now: float) -> None:
        """Raise an error that does not pass, or that stayed for too long."""
        is_late = now >= self._gives_up_at
        for failure in reversed(self._failures.values()):
            is_passing = isinstance(
                failure, (*PASSING_ERRORS, UnknownQueueError, WireFormatError)
            ) or (isinstance(failure, BrokerError) and failure.is_retriable)
            if is_late or not is_passing:
                raise failure
