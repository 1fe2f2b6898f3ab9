"""Fetcher of the partitions of one leader: one connection, one session, one fetch at a time.

Shell: owns the connection. Batches are checked and written to the logs straight from the
connection's buffer, in plain calls; steps that must wait for the disk run in tasks of their own.
"""

from collections.abc import Callable
from typing import Final, final

import trio

from tidelog.broker.partitions.partition import Partition
from tidelog.broker.replication.context import ReplicationContext
from tidelog.broker.replication.loss_reports import LossReports
from tidelog.broker.replication.refused_truncations import RefusedTruncations
from tidelog.isr.fetch_session import FollowerPosition, FollowerSession, Key
from tidelog.isr.follower import (
    Append,
    Drop,
    LeaderAnswer,
    PartitionFollower,
    Refuse,
    Restart,
    Truncate,
)
from tidelog.logstore.segments.batch_run import check_run, fitted
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    CorruptBatchError,
    CorruptRecordError,
    DiskFullError,
    ErrorDetail,
    InvalidBatchError,
    LogOfflineError,
    OffsetOutOfRangeError,
    OverloadedError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.replication import (
    ReplicaDurable,
    ReplicaDurableRequest,
    ReplicaFetched,
    ReplicaFetchReply,
    ReplicaFetchRequest,
    ReplicaIdentity,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection

_CONNECT_TIMEOUT_S: Final = 1.0
_RETRY_S: Final = 0.1
_LATER_S: Final = 0.1
"""Time in seconds after which a partition is fetched again for which the leader returned an
error."""
_MUCH_LATER_S: Final = 1.0
"""The same after an error that lasts longer."""
_MAX_WAIT_MS: Final = 500
_SILENCE_S: Final = 2.0
"""Time in seconds beyond `_MAX_WAIT_MS` after which a silent leader counts as unreachable."""
_BYTES_MAX: Final = 8 << 20
_EPOCHS_MAX: Final = 1000
"""Maximum number of leader epochs of a log that are compared with those of the leader."""
_NO_APPEND: Final = (DiskFullError, LogOfflineError, OverloadedError)
"""Reasons for which a log accepts no appends, for good or for now."""


@final
class ReplicaFetcher:
    """Follows one broker.

    Invariant: a partition is in the session only while its log accepts appends.
    """

    def __init__(
        self,
        context: ReplicationContext,
        leader_id: int,
        released: Callable[[Partition], None],
        *,
        losses: LossReports,
    ) -> None:
        """Follow broker `leader_id`; `run` must run in a task.

        `released` is called when a log that had to be truncated is usable again; it then chooses
        the leader to follow. `losses` gets truncated records that were committed.
        """
        self._context = context
        self._leader_id = leader_id
        self._released = released
        self._losses = losses
        self._session = FollowerSession()
        self._partitions: dict[Key, Partition] = {}
        self._durable: dict[Key, int] = {}
        """Durable end offsets that the leader knows."""
        self._told_whole: dict[Key, bool] = {}
        """Whether the leader knows a replica to be whole."""
        self._doubtful: dict[Key, None] = {}
        """Partitions whose last received batches were damaged."""
        self._later: dict[Key, float] = {}
        """Partitions to fetch again, with the time (seconds of trio's clock)."""
        self._refused_truncations = RefusedTruncations(context)
        self._connection: RpcConnection | None = None
        self._identity: ReplicaIdentity | None = None
        self._is_waiting = False
        self._has_work = trio.Event()

    def follow(self, partition: Partition, leader_epoch: int) -> None:
        """Follow a partition from now on, or in another leader epoch."""
        self.unfollow(partition.key)
        self._partitions[partition.key] = partition
        partition.watchers[self] = None
        self._session.follow(partition.key, leader_epoch)
        self._has_work.set()
        if self._is_waiting:
            self._report([], ends_wait=True)

    def unfollow(self, key: Key) -> None:
        """Stop following a partition."""
        partition = self._partitions.pop(key, None)
        if partition is not None:
            partition.watchers.pop(self, None)
            self._session.unfollow(key)
            self._durable.pop(key, None)
            self._told_whole.pop(key, None)
            self._doubtful.pop(key, None)
            self._later.pop(key, None)

    def changed(self, partition: Partition) -> None:
        """See `broker.partitions.partition.Watcher`: report the durable end to the leader."""
        key = partition.key
        number = self._session.number_of(key)
        durable = partition.log.durable_end_offset
        if partition.is_whole is not self._told_whole.get(key, partition.is_whole):
            self._session.is_due(key)
            if self._is_waiting:
                self._report([], ends_wait=True)
        if number is not None and durable > self._durable.get(key, durable):
            self._durable[key] = durable
            self._report([ReplicaDurable(number, durable)], ends_wait=False)

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            if not len(self._session):
                self._has_work = trio.Event()
                await self._has_work.wait()
            reason = await self._connect()
            self._context.env.probe(
                "replica_fetch_ended", severity="debug", leader_id=self._leader_id, reason=reason
            )
            await trio.sleep(_RETRY_S)

    async def _connect(self) -> str:
        """Fetch over one connection as long as it lasts; return why it ended."""
        address = self._context.cluster.addresses.address_of(self._leader_id)
        identity = self._context.own_identity()
        if address is None or identity is None:
            return "its address is not known" if address is None else "not registered yet"
        name = f"replicas of node {self._context.node_id}"
        try:
            with trio.CancelScope(deadline=trio.current_time() + _CONNECT_TIMEOUT_S) as connecting:
                async with self._context.cluster.dialer.open(*address, name=name) as connection:
                    connecting.deadline = float("inf")
                    assert connection.hello is not None
                    if connection.hello.node_id != self._leader_id:
                        return f"another node, {connection.hello.node_id}, is at its address"
                    await self._fetch_over(connection, identity)
        except (ConnectionLostError, WireFormatError, BrokerError) as error:
            return str(error)
        finally:
            self._connection = None
        return "no answer" if connecting.cancelled_caught else "no partition is followed any more"

    async def _fetch_over(self, connection: RpcConnection, identity: ReplicaIdentity) -> None:
        self._connection, self._identity = connection, identity
        self._session.begin()
        self._durable.clear()
        self._later.clear()
        begins_session = True
        while len(self._session) and self._context.own_identity() == identity:
            max_wait_ms = self._wake_later()
            request = ReplicaFetchRequest(
                identity,
                begins_session,
                max_wait_ms,
                _BYTES_MAX,
                *self._session.next_delta(self._position_of, self._epochs_of),
                self._context.partitions.has_readers,
            )
            begins_session = False
            self._is_waiting = True
            try:
                with trio.move_on_after(max_wait_ms / 1000 + _SILENCE_S) as silence:
                    await connection.call(api.REPLICA_FETCH, request, take=self._take)
            finally:
                self._is_waiting = False
            if silence.cancelled_caught:
                connection.close()
                raise ConnectionLostError(f"no answer for {_SILENCE_S:g} s")

    def _position_of(self, key: Key) -> FollowerPosition:
        partition = self._partitions[key]
        follower = partition.follower
        assert follower is not None, "only followed partitions are in the session"
        durable = self._durable[key] = partition.log.durable_end_offset
        is_whole = self._told_whole[key] = partition.is_whole
        is_suspect = key in self._doubtful
        self._doubtful.pop(key, None)
        return FollowerPosition(follower.position(partition.shape), durable, is_whole, is_suspect)

    def _epochs_of(self, key: Key) -> list[tuple[int, int]]:
        """Return the epochs by which the leader can detect that this disk went back.

        None while this log must not be recreated: in the ISR, eligible, or damaged.
        """
        log = self._partitions[key].log
        known = self._context.state.partition(*key)
        if known is None or self._context.node_id in known.in_sync_or_eligible or log.damage:
            return []
        return list(log.leader_epochs.entries[-_EPOCHS_MAX:])

    def _report(self, partitions: list[ReplicaDurable], *, ends_wait: bool) -> None:
        connection, identity = self._connection, self._identity
        if connection is not None and identity is not None:
            request = ReplicaDurableRequest(identity, partitions, ends_wait)
            is_answered = connection.version_of(api.REPLICA_DURABLE) == 1
            connection.submit(api.REPLICA_DURABLE, request, _take_nothing if is_answered else None)

    def _wake_later(self) -> int:
        """Mark partitions that are due for another fetch; return the next fetch's wait time."""
        now = trio.current_time()
        for key in [key for key, at in self._later.items() if at <= now]:
            del self._later[key]
            self._session.is_due(key)
        until_next_s = min(self._later.values(), default=now + _MAX_WAIT_MS) - now
        return min(_MAX_WAIT_MS, int(until_next_s * 1000) + 1)

    def _take(self, reply: ReplicaFetchReply, attachment: memoryview) -> None:
        position = 0
        for result in reply.results:
            end = position + result.batch_bytes
            if end > len(attachment):
                raise WireFormatError("a reply announces more batches than it carries")
            self._take_one(result, attachment[position:end])
            position = end

    def _take_one(self, result: ReplicaFetched, batches: memoryview) -> None:
        asked = self._session.asked(result.number_in_session)
        if asked is None:
            return
        key, leader_epoch, asked_at = asked
        partition = self._partitions[key]
        follower = partition.follower
        assert follower is not None, "only followed partitions are in the session"
        try:
            if result.error is not None:
                error = from_wire(result.error)
                bounds = _bounds_in(error)
                if bounds is None:
                    self._refused(partition, result.error)
                    return
                start, end = bounds
                step = follower.out_of_range(
                    partition.shape, asked_at, leader_start=start, leader_end=end
                )
            else:
                answer = LeaderAnswer(
                    leader_epoch,
                    asked_at,
                    result.high_watermark,
                    result.log_start_offset,
                    result.diverging,
                )
                step = follower.answered(partition.shape, answer)
                if isinstance(step, Append):
                    self._append(partition, follower, answer, batches=batches)
            if isinstance(step, Truncate | Restart):
                self._begin_repair(partition, step)
            elif isinstance(step, Refuse):
                self._refused_truncations.add(partition, step, shape=partition.shape)
                self._later[key] = trio.current_time() + _MUCH_LATER_S
            elif isinstance(step, Drop):
                self._session.is_due(key)
        except (CorruptBatchError, InvalidBatchError, *_NO_APPEND) as error:
            self._failed(partition, error)

    def _append(
        self,
        partition: Partition,
        follower: PartitionFollower,
        answer: LeaderAnswer,
        *,
        batches: memoryview,
    ) -> None:
        log = partition.log
        if batches:
            batches = fitted(batches, log_end_offset=log.log_end_offset)
            headers = check_run(
                batches,
                log_end_offset=log.log_end_offset,
                last_epoch=log.leader_epochs.latest or 0,
                leader_epoch=answer.leader_epoch,
            )
            if partition.cipher is None and any(header.is_sealed for header in headers):
                self._require_keys(partition)
            now_ms = self._context.env.clock.now_ms()
            log.append_replicated(headers, batches, now_ms=now_ms)
            self._session.is_due(partition.key)
            self._context.group_commit.appended(partition)
        follower.appended(answer, log_end_offset=log.log_end_offset)
        start = min(answer.log_start_offset, log.log_end_offset)
        if start > log.log_start_offset:
            log.delete_records(start, high_watermark=log.log_end_offset)
            follower.high_watermark = max(follower.high_watermark, start)
        partition.progressed()

    @staticmethod
    def _require_keys(partition: Partition) -> None:
        """Raise unless this broker knows that the topic has keys: it would send sealed batches.

        Raises:
            OverloadedError: The metadata here is older than the batches.
        """
        if partition.update_cipher() is None:
            raise OverloadedError("the data keys of the topic are not known here yet")

    def _refused(self, partition: Partition, detail: ErrorDetail) -> None:
        """Fetch again after a while; most likely newer metadata is about to arrive."""
        error = from_wire(detail)
        delay_s = _LATER_S if error.is_retriable else _MUCH_LATER_S
        self._later[partition.key] = trio.current_time() + delay_s
        partition.probe(
            "replica_fetch_refused",
            severity="debug" if error.is_retriable else "warning",
            leader_id=self._leader_id,
            reason=str(error),
        )

    def _failed(self, partition: Partition, error: BrokerError) -> None:
        """Drop the received batches; stop following if the disk failed."""
        partition.note_status(str(error))
        partition.probe(
            "replica_append_failed",
            severity="error",
            leader_id=self._leader_id,
            reason=str(error),
        )
        if isinstance(error, LogOfflineError):
            self.unfollow(partition.key)
            return
        if isinstance(error, CorruptBatchError | InvalidBatchError):
            self._doubtful[partition.key] = None
        self._later[partition.key] = trio.current_time() + _MUCH_LATER_S

    def _begin_repair(self, partition: Partition, step: Truncate | Restart) -> None:
        self.unfollow(partition.key)
        partition.is_held = True
        self._context.nursery.start_soon(self._repair, partition, step)

    async def _repair(self, partition: Partition, step: Truncate | Restart) -> None:
        """Truncate or recreate a log; then release it to be followed again.

        If the replica is closed before or meanwhile, nothing is changed.
        """
        log = partition.log
        before = (log.log_end_offset, partition.high_watermark)
        error: BrokerError | None = None
        async with self._context.group_commit.hold(partition):
            if self._context.is_open(partition):
                error = await self._carry_out(partition, step)
        if not self._context.is_open(partition):
            return
        partition.probe(
            "replica_truncated" if error is None else "replica_not_truncated",
            # Below the high watermark only after an election that accepted a loss of data.
            severity="info" if error is None and step.offset >= before[1] else "warning",
            leader_id=self._leader_id,
            offset=step.offset,
            log_end_offset=before[0],
            reason=str(error or "the leader's log differs from there on"),
        )
        if error is None and step.offset < before[1]:
            self._losses.truncated(partition, step.offset, before[1], leader_id=self._leader_id)
        if error is not None:
            partition.note_status(str(error))
            if isinstance(error, LogOfflineError):
                return
            await trio.sleep(_MUCH_LATER_S)
        self._released(partition)

    async def _carry_out(
        self, partition: Partition, step: Truncate | Restart
    ) -> BrokerError | None:
        """Repair a held log; return the error if that was not possible."""
        try:
            if isinstance(step, Truncate):
                await self._truncate(partition, step)
            else:
                await self._context.partitions.restart(partition, step.offset)
        except (CorruptRecordError, *_NO_APPEND) as error:
            return error
        _note_repaired(partition, step)
        return None

    async def _truncate(self, partition: Partition, step: Truncate) -> None:
        """Truncate a log, or recreate it if damage prevents that: others have all of it.

        Raises:
            CorruptRecordError: Damage prevents it, and this replica is still in the ISR or eligible
                with the records there. Its removal is under way.
        """
        context, log = self._context, partition.log
        known = context.state.partition(*partition.key)
        is_needed = known is not None and context.node_id in known.in_sync_or_eligible
        try:
            await context.env.run_in_thread(lambda: log.truncate(step.offset))
        except CorruptRecordError:
            if is_needed:
                raise
        else:
            if log.log_end_offset <= step.offset:
                return
            # The segments below are missing, and an empty log ends at its first segment.
            if is_needed:
                raise CorruptRecordError(
                    f"the log cannot end at offset {step.offset}: its files begin at offset"
                    f" {log.log_end_offset}"
                )
        await context.partitions.restart(partition, log.log_start_offset)


def _note_repaired(partition: Partition, step: Truncate | Restart) -> None:
    follower = partition.follower
    if follower is None:
        return
    if isinstance(step, Truncate):
        follower.truncated(partition.log.log_end_offset)
    else:
        follower.restarted(partition.log.log_end_offset)


def _bounds_in(error: BrokerError) -> tuple[int, int] | None:
    """Return start and end of the leader's log, if an error has both.

    An error without them has no effect: a log is not truncated on a guess.
    """
    if not isinstance(error, OffsetOutOfRangeError):
        return None
    start, end = error.log_start_offset, error.log_end_offset
    return None if start is None or end is None else (start, end)


def _take_nothing(outcome: object) -> None:
    """Ignore an answer: the next fetch reports the same positions."""
