"""Leader's side of replication: reports of followers, and the batches sent to them.

Shell: owns the sessions of followers, and the task that answers waiting fetches.
"""

from typing import Final, final

import msgspec
import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext, now_ms
from tidelog.broker.replication.isr_updater import IsrUpdater
from tidelog.broker.replication.repair_reads import RepairReader
from tidelog.broker.replication.throttle import CatchUpThrottle
from tidelog.broker.requests.purgatory import Purgatory
from tidelog.broker.requests.response import RequestContext, ResponseHandle
from tidelog.isr.divergence import find_divergence, find_stale
from tidelog.isr.fetch_session import LeaderSession, SessionPartition
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.leader import PartitionLeader
from tidelog.logstore.log import PartitionLog
from tidelog.logstore.segments.log_slice import LogSlice
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    LeaderNotAvailableError,
    NotLeaderError,
)
from tidelog.wire.messages.replication import (
    Diverging,
    FollowedPartition,
    ReplicaDurableReply,
    ReplicaDurableRequest,
    ReplicaFetched,
    ReplicaFetchReply,
    ReplicaFetchRequest,
    ReplicaIdentity,
)
from tidelog.wire.transport.write_buffer import FileRegion

_MAX_WAIT_MS_MAX: Final = 10_000
_PARTITION_BYTES_MAX: Final = 1 << 20
_BYTES_MAX: Final = 8 << 20
_COPY_BELOW_BYTES: Final = 32 << 10
"""Size in bytes below which a slice is read and sent with the reply's header."""


class ReplicaBatches(msgspec.Struct):
    """Reply for one partition."""

    number: int
    """Number of the partition in the session."""
    high_watermark: int = 0
    log_start_offset: int = 0
    part: LogSlice | None = None
    diverging: Diverging | None = None
    error: BrokerError | None = None
    partition: Partition | None = None
    is_counted: bool = False
    """Whether the sent bytes count against the allowance of replicas that are being added."""
    is_held_up: bool = False
    """Whether there are batches to send, but that allowance is used up."""
    is_awaited: bool = False
    """Whether the high watermark is above the follower's, and the follower has readers."""

    @property
    def awaits_report(self) -> bool:
        """Whether the follower reports its log end offset after this reply."""
        return self.part is not None or self.diverging is not None or self.error is not None

    @property
    def is_urgent(self) -> bool:
        """Whether the follower waits for this reply."""
        return self.awaits_report or self.is_awaited


@final
class _Watch:
    """An observer that passes changes of one partition to a session."""

    __slots__ = ("_number", "_session", "partition")

    def __init__(self, session: "ReplicaSession", number: int, partition: Partition) -> None:
        self._session = session
        self._number = number
        self.partition = partition

    def changed(self, partition: Partition) -> None:
        """See `broker.partitions.partition.Watcher`."""
        self._session.touched(self._number, partition)


@final
class ReplicaSession:
    """One follower, on one connection.

    Invariant: at most one fetch waits.
    """

    def __init__(self, server: "FetchServer", connection: RequestContext, node_id: int) -> None:
        """Start without partitions; end with the connection, or with a newer session."""
        self._server = server
        self._connection = connection
        self.node_id = node_id
        self.core = LeaderSession()
        self.watches: dict[int, _Watch] = {}
        self.is_held_up = False
        """Whether batches were held back by the throttle."""
        self._waiting: tuple[ReplicaFetchRequest, ResponseHandle] | None = None
        connection.delayed[self] = None

    def wait(self, request: ReplicaFetchRequest, response: ResponseHandle) -> None:
        """Answer when there is something to send, or when time is over."""
        self._waiting = (request, response)
        response.parked()
        max_wait_ms = min(request.max_wait_ms, _MAX_WAIT_MS_MAX)
        if self.is_held_up:
            max_wait_ms = min(max_wait_ms, self._server.throttle.wait_ms())
        self._server.purgatory.add(self, trio.current_time() + max_wait_ms / 1000)

    def touched(self, number: int, partition: Partition) -> None:
        """Mark a partition as changed."""
        self.core.touch(number)
        if self._waiting is None:
            return
        known = self.core.partitions.get(number)
        has_more = (
            known is None
            or known.position is None
            or partition.leader is None
            or known.position.fetch_offset < partition.log.log_end_offset
            or (
                self._waiting[0].has_readers
                and known.told_high_watermark < partition.leader.high_watermark
            )
        )
        if has_more:
            self._server.wake(self)

    def look_again(self, *, is_last: bool) -> None:
        """Answer the waiting fetch, if there is something to send or `is_last`."""
        if self._waiting is None:
            return
        request, response = self._waiting
        with response:
            found = self._server.collect(self, request)
            if is_last or any(item.is_urgent for item in found):
                self._end_wait()
                self._server.answer(self, found, response)
            return
        self._end_wait()  # A defect raised an error, which was sent as the reply.

    def expire(self) -> None:
        """See `broker.requests.purgatory.Waiter`."""
        self.look_again(is_last=True)

    def close(self) -> None:
        """See `broker.requests.purgatory.Waiter`: a live follower asks again."""
        self.look_again(is_last=True)

    def drop(self) -> None:
        """See `broker.requests.response.DelayedRequest`: the follower is gone."""
        if self._waiting is not None:
            _, response = self._waiting
            self._end_wait()
            response.nothing()
        self._end()

    def supersede(self) -> None:
        """End, because the follower has begun a newer session on another connection."""
        if self._waiting is not None:
            _, response = self._waiting
            self._end_wait()
            response.fail(
                InvalidRequestError(
                    f"broker {self.node_id} began a newer fetch session on another connection;"
                    " begin one"
                )
            )
        self._end()

    def _end(self) -> None:
        self._connection.delayed.pop(self, None)
        self.unwatch(list(self.watches))
        self._server.forget(self._connection)

    def unwatch(self, numbers: list[int]) -> None:
        """Stop observing partitions."""
        for number in numbers:
            watch = self.watches.pop(number, None)
            if watch is not None:
                watch.partition.watchers.pop(watch, None)

    def watch(self, number: int, partition: Partition) -> None:
        """Observe a partition."""
        known = self.watches.get(number)
        if known is None or known.partition is not partition:
            self.unwatch([number])
            self.watches[number] = watch = _Watch(self, number, partition)
            partition.watchers[watch] = None

    def _end_wait(self) -> None:
        self._waiting = None
        self._server.purgatory.done(self)


@final
class FetchServer:
    """Serves followers of the partitions that this broker leads."""

    def __init__(
        self, context: ReplicationContext, in_sync: IsrUpdater, purgatory: Purgatory
    ) -> None:
        """Report followers outside the ISR to `in_sync`; `run` must run in a task."""
        self._context = context
        self._in_sync = in_sync
        self.purgatory = purgatory
        self.throttle = CatchUpThrottle(context)
        self.reader = RepairReader(context, self.led)
        self._sessions: dict[RequestContext, ReplicaSession] = {}
        self._woken: dict[ReplicaSession, None] = {}
        self._has_woken = trio.Event()

    async def run(self) -> None:
        """Answer woken sessions, all that were woken together at once."""
        while True:
            await self._has_woken.wait()
            self._has_woken = trio.Event()
            woken, self._woken = self._woken, {}
            for session in woken:
                session.look_again(is_last=False)

    def wake(self, session: ReplicaSession) -> None:
        """Schedule another check of a session."""
        self._woken[session] = None
        self._has_woken.set()

    def forget(self, connection: RequestContext) -> None:
        """Remove a session that has ended."""
        self._sessions.pop(connection, None)

    def fetch(self, request: ReplicaFetchRequest, response: ResponseHandle) -> None:
        """Process a follower's report, and reply now or when there is something to send.

        Raises:
            BrokerError: The request as a whole is refused.
        """
        self._context.check_identity(request.identity)
        connection = response.context
        session = self._sessions.get(connection)
        if session is None:
            if not request.begins_session:
                raise InvalidRequestError("there is no session on this connection; begin one")
            session = self._begin_session(connection, request.identity.node_id)
        session.look_again(is_last=True)
        session.unwatch(session.core.take(request))
        found = self.collect(session, request)
        if request.max_wait_ms <= 0 or any(item.is_urgent for item in found):
            self.answer(session, found, response)
        else:
            session.wait(request, response)

    def _begin_session(self, connection: RequestContext, node_id: int) -> ReplicaSession:
        """Begin the only session of a follower.

        On an older connection, a request that the network delayed would report an old position. An
        idle follower would never correct it.
        """
        for session in list(self._sessions.values()):
            if session.node_id == node_id:
                session.supersede()
        session = self._sessions[connection] = ReplicaSession(self, connection, node_id)
        return session

    def durable(self, request: ReplicaDurableRequest, response: ResponseHandle) -> None:
        """Process the durable end offsets of a follower.

        Raises:
            BrokerError: The request as a whole is refused.
        """
        self._context.check_identity(request.identity)
        session = self._sessions.get(response.context)
        known_count = 0
        for report in request.partitions:
            entry = None
            if session is not None:
                entry = session.core.partitions.get(report.number_in_session)
            if entry is not None and entry.is_reported:
                known_count += self._became_durable(
                    entry, request.identity, report.durable_end_offset
                )
        if response.version == 1:
            response.reply(ReplicaDurableReply(known_count))
        else:
            response.nothing()
        if request.ends_wait and session is not None:
            session.look_again(is_last=True)

    def collect(
        self, session: ReplicaSession, request: ReplicaFetchRequest
    ) -> list[ReplicaBatches]:
        """Collect replies for all partitions that may have one."""
        core = session.core
        for number in list(core.due):
            entry = core.partitions[number]
            if not entry.is_reported:
                self._report(session, number, entry, identity=request.identity)
        remaining = min(request.max_bytes, _BYTES_MAX)
        is_first = True
        session.is_held_up = False
        found: list[ReplicaBatches] = []
        for number in list(core.due):
            entry = core.partitions[number]
            item = self._look(number, entry, request.identity, remaining=remaining)
            is_news = item.high_watermark > entry.told_high_watermark
            item.is_awaited = request.has_readers and is_news
            if item.part is not None:
                if not is_first and item.part.length > remaining:
                    # The reply is full. Partitions that are still due come first in the next one.
                    break
                remaining -= item.part.length
                is_first = False
                if item.is_counted:
                    self.throttle.sent(item.part.length)
            elif item.is_held_up:
                session.is_held_up = True
                continue  # The partition stays due.
            elif not item.is_urgent and core.is_told(
                number,
                high_watermark=item.high_watermark,
                log_start_offset=item.log_start_offset,
            ):
                core.due.pop(number)
                continue
            found.append(item)
        return found

    def answer(
        self, session: ReplicaSession, found: list[ReplicaBatches], response: ResponseHandle
    ) -> None:
        """Send the batches; a task first reads those that must come from the disk."""
        for item in found:
            session.core.told(
                item.number,
                high_watermark=item.high_watermark,
                log_start_offset=item.log_start_offset,
                awaits_report=item.awaits_report,
            )
        if any(item.part is not None and not item.part.is_ready() for item in found):
            self._context.nursery.start_soon(self._load_and_reply, found, response)
        else:
            self._reply(found, response)

    def led(self, followed: FollowedPartition, node_id: int) -> tuple[Partition, PartitionLeader]:
        """Return a partition that this broker leads in the follower's leader epoch.

        Raises:
            BrokerError: This broker does not lead it, or not for this follower.
        """
        partition = self._context.partitions.led(followed.topic_id, followed.partition)
        leader = partition.leader
        assert leader is not None, "`led` returns only partitions that are led here"
        if followed.leader_epoch < leader.leader_epoch:
            raise FencedLeaderEpochError(
                f"partition {followed.partition} has leader epoch {leader.leader_epoch}, later than"
                f" {followed.leader_epoch}"
            )
        if followed.leader_epoch > leader.leader_epoch:
            raise NotLeaderError(
                f"this broker leads partition {followed.partition} in leader epoch"
                f" {leader.leader_epoch}, and does not know epoch {followed.leader_epoch} yet"
            )
        if node_id not in leader.replicas.assigned_replicas:
            raise IneligibleReplicaError(
                f"broker {node_id} has no replica of partition {followed.partition} in the"
                " metadata of this broker"
            )
        return partition, leader

    def _report(
        self,
        session: ReplicaSession,
        number: int,
        entry: SessionPartition,
        *,
        identity: ReplicaIdentity,
    ) -> None:
        """Compare a follower's log with this one, and record its position."""
        position = entry.position
        if position is None:
            raise InvalidRequestError(f"partition {number} of the session has no position")
        try:
            partition, leader = self.led(entry.followed, identity.node_id)
            if self._divergence(partition, entry) is not None:
                return
        except BrokerError:
            return  # `_look` reports the error.
        entry.is_compared = True
        session.watch(number, partition)
        entry.is_reported = True
        report = FollowerReport(
            identity.node_id,
            identity.broker_epoch,
            position.fetch_offset,
            position.durable_end_offset,
            position.is_whole,
        )
        if position.is_suspect:
            self.reader.doubt(partition, position.fetch_offset)
        leader.follower_reported(report, now_ms=now_ms())
        self._in_sync.reported(partition)
        partition.progressed()

    def _became_durable(
        self, entry: SessionPartition, identity: ReplicaIdentity, durable_end_offset: int
    ) -> bool:
        try:
            partition, leader = self.led(entry.followed, identity.node_id)
        except BrokerError:
            return False
        leader.follower_became_durable(
            identity.node_id, identity.broker_epoch, durable_end_offset, now_ms=now_ms()
        )
        self._in_sync.reported(partition)
        partition.progressed()
        return True

    @staticmethod
    def _divergence(partition: Partition, entry: SessionPartition) -> Diverging | None:
        position, shape = entry.position, partition.shape
        assert position is not None
        found = find_divergence(
            shape,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
        )
        if found is not None or entry.is_compared or shape.damage:
            return found
        epochs = entry.followed.leader_epochs
        return find_stale(shape, epochs, fetch_offset=position.fetch_offset)

    def _look(
        self,
        number: int,
        entry: SessionPartition,
        identity: ReplicaIdentity,
        *,
        remaining: int,
    ) -> ReplicaBatches:
        position = entry.position
        assert position is not None
        item = ReplicaBatches(number)
        try:
            item.partition, leader = self.led(entry.followed, identity.node_id)
            log = item.partition.log
            item.high_watermark = leader.high_watermark
            item.log_start_offset = log.log_start_offset
            if not entry.is_reported:
                item.diverging = self._divergence(item.partition, entry)
            elif position.fetch_offset < log.log_end_offset:
                allowance = self.throttle.allowance(item.partition, identity.node_id)
                item.is_counted = allowance is not None
                item.is_held_up = allowance == 0
                if not item.is_held_up:
                    limit = _PARTITION_BYTES_MAX if allowance is None else allowance
                    item.part = _read(log, position.fetch_offset, min(remaining, limit))
        except BrokerError as error:
            item.error = error
            if item.partition is not None:
                item.partition.note_status(str(error))
        except OSError as error:
            assert item.partition is not None
            item.part, item.error = None, item.partition.reading_failed(error)
        return item

    async def _load_and_reply(self, found: list[ReplicaBatches], response: ResponseHandle) -> None:
        with response:
            for item in found:
                if item.part is not None and not item.part.is_ready():
                    await self._load(item, item.part)
            self._reply(found, response)

    async def _load(self, item: ReplicaBatches, part: LogSlice) -> None:
        assert item.partition is not None
        try:
            item.part = await self._context.env.run_in_thread(part.load)
        except CorruptRecordError as error:
            item.partition.damage_found(error)
            item.part, item.error = None, error
        except OSError as error:
            item.part, item.error = None, item.partition.reading_failed(error)

    def _reply(self, found: list[ReplicaBatches], response: ResponseHandle) -> None:
        pieces: list[BytesLike | FileRegion] = []
        results: list[ReplicaFetched] = []
        for item in found:
            length = 0
            if item.part is not None:
                piece = _piece(item.part)
                length = item.part.length
                if isinstance(piece, bytes) and len(piece) < length:
                    # The log was truncated or the file is damaged; the follower asks again.
                    length, item.error = 0, LeaderNotAvailableError("the log cannot be read now")
                else:
                    pieces.append(piece)
            results.append(
                ReplicaFetched(
                    item.number,
                    length,
                    item.high_watermark,
                    item.log_start_offset,
                    item.diverging,
                    None if item.error is None else item.error.to_wire(),
                )
            )
        response.reply(ReplicaFetchReply(results), pieces)


def _read(log: PartitionLog, offset: int, max_bytes: int) -> LogSlice | None:
    max_bytes = max(min(max_bytes, _PARTITION_BYTES_MAX), 0)
    part = log.read(offset, max_bytes=max_bytes, high_watermark=log.log_end_offset)
    if part is not None:
        part.begin_at(offset)
        part.is_unsynced = offset >= log.durable_end_offset
    return part


def _piece(part: LogSlice) -> bytes | FileRegion:
    if part.length >= _COPY_BELOW_BYTES:
        return FileRegion(part.file, part.position, part.length)
    return part.read()
