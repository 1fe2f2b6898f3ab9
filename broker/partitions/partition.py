"""One partition of which this broker has a replica: its log, what is committed, who waits for it.

Plain calls only: nothing here awaits, so nothing comes between a decision and its effect.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import NamedTuple, Protocol, final

from tidelog.coordinator.metadata.topic_config import TopicConfig
from tidelog.isr.durability import Durability, ack_level
from tidelog.isr.follower import PartitionFollower
from tidelog.isr.followers import Followers
from tidelog.isr.leader import PartitionLeader
from tidelog.isr.replica_set import ReplicaSet
from tidelog.logstore.disk.availability import no_descriptor
from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS
from tidelog.logstore.log import LogStatus, PartitionLog
from tidelog.wire.env.env import Probe
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    DiskFullError,
    LeaderNotAvailableError,
    LogOfflineError,
    NotLeaderError,
)
from tidelog.wire.messages.produce import AckLevel, Acks

_PASSING = (CorruptRecordError, DiskFullError, LogOfflineError)
"""Errors of one replica, which another one in sync does not have."""


class AckWaiter(Protocol):
    """A produce that waits for records to be acknowledged."""

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """`level` is true of the batch at `index` of the request."""
        ...

    def failed(self, index: int, error: BrokerError) -> None:
        """The batch at `index` will never be acknowledged."""
        ...


class DataWaiter(Protocol):
    """A fetch that waits for data."""

    def wake(self) -> None:
        """There may be more to read, or an error."""
        ...


class Watcher(Protocol):
    """Somebody who follows what happens to a replica, for as long as it is there."""

    def changed(self, partition: "Partition") -> None:
        """There is more in the log, on the disk or committed, or somebody else leads."""
        ...


class _AckEntry(NamedTuple):
    """A batch that waits for its acknowledgement, in the order of offsets."""

    offset: int
    """Exclusive end of the batch."""
    ticket: int
    """Orders batches of the same offset, so that waiters are never compared."""
    waiter: AckWaiter
    place: int
    """Of the batch in the request of `waiter`."""


@final
class Partition:
    """A partition and its waiters.

    Invariant: every waiter below what is acknowledged has been told.
    """

    def __init__(
        self, topic_id: bytes, number: int, log: PartitionLog, *, config: TopicConfig, probe: Probe
    ) -> None:
        """Have a replica whose log is `log`; tell `probe` of changes of its status."""
        self._probe = probe
        self.topic_id = topic_id
        self.number = number
        self.log = log
        self.config = config
        """Of its topic, as it is now."""
        self.queue_name = ""
        """The queue of which it is the journal, which clients do not touch; empty for others."""
        self.is_staging = False
        """Whether it is a staging log, which clients touch only by staging."""
        self.leader: PartitionLeader | None = None
        """What this broker knows as the leader; `None` while another one leads, or nobody."""
        self.follower: PartitionFollower | None = None
        """What this broker knows as a follower; `None` while it leads."""
        self.watchers: dict[Watcher, None] = {}
        """Told of whatever happens; they take themselves out again."""
        self.is_held = False
        """Whether the log is being truncated or begun anew: nobody may touch it, and this broker
        does not take another role before that is done."""
        self.is_stalled = False
        """Whether its disk has not answered for too long."""
        self.status_changed: Callable[[Partition], None] | None = None
        """Called when the status of the log is another one."""
        self._high_watermark = log.high_watermark
        """As far as it was known when this broker took its role."""
        self.is_flushing = False
        """Whether a flush task is under way."""
        self.is_checkpointing = False
        """Whether a checkpoint is being written that a flush has left."""
        self.is_flush_wanted = False
        """Whether a flush must begin after the one that is under way."""
        self.is_removing = False
        """Whether segments that retention has taken out of the log are being removed."""
        self.flushes_begun = 0
        self.flushes_ended = 0
        self._ticket = count()
        self._ack_waiters: dict[Acks, list[_AckEntry]] = {
            Acks.LEADER: [],
            Acks.ALL: [],
        }
        self._data_waiters: dict[DataWaiter, None] = {}
        self._known_status = log.status

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and number."""
        return self.topic_id, self.number

    @property
    def durability(self) -> Durability:
        """What an acknowledgement means."""
        return self.config.durability

    @property
    def high_watermark(self) -> int:
        """First offset that is not known to be committed (exclusive end)."""
        if self.leader is not None:
            return self.leader.high_watermark
        return self._high_watermark if self.follower is None else self.follower.high_watermark

    @property
    def is_whole(self) -> bool:
        """Whether this replica can be counted on: it may be in sync."""
        return self.log.status is LogStatus.ONLINE and not self.is_stalled

    @property
    def waiter_count(self) -> int:
        """How many batches and fetches wait here."""
        return len(self._data_waiters) + sum(map(len, self._ack_waiters.values()))

    def lead(self, leader_epoch: int, followers: Followers | None = None) -> None:
        """Lead from now on, in this leader epoch; without `followers`, alone."""
        self.resign(NotLeaderError("this broker leads the partition anew, in a later epoch"))
        assert not self.is_held, "the log is not in order"
        log = self.log
        self.leader = PartitionLeader(
            leader_epoch=leader_epoch,
            durability=self.durability,
            log_end_offset=log.log_end_offset,
            durable_end_offset=log.durable_end_offset,
            high_watermark=None if followers is None else self._high_watermark,
            followers=followers,
        )

    def follow(self, leader_id: int | None, leader_epoch: int) -> None:
        """Follow another broker from now on, or nobody, in this leader epoch."""
        leader = "nobody" if leader_id is None else f"broker {leader_id}"
        self.resign(NotLeaderError(f"{leader} leads the partition now"))
        self.follower = PartitionFollower(
            leader_id=leader_id, leader_epoch=leader_epoch, high_watermark=self._high_watermark
        )

    def resign(self, error: BrokerError) -> None:
        """Neither lead nor follow any more; whoever waits for a leader here is told why."""
        self._high_watermark = self.high_watermark
        was_leader = self.leader is not None
        self.leader = self.follower = None
        if was_leader:
            self.failed(error)
        else:
            self._wake_fetches()

    def close(self, error: BrokerError) -> None:
        """Be no replica any more; whoever waits here is told why, and nobody does anything new.

        What somebody holds at the moment, or flushes, is over when he is done.
        """
        self.log.close()
        self._known_status = self.log.status  # It was meant to be, so it is no news.
        self.resign(error)
        self.failed(error)

    def reconfigure(self, config: TopicConfig) -> None:
        """Let other settings be in force from now on."""
        self.log.config = config.log
        self.config = config
        if self.leader is not None:
            self.leader.durability = config.durability
        self.progressed()

    def wait_for_ack(self, acks: Acks, offset: int, waiter: AckWaiter, *, index: int) -> None:
        """Tell `waiter` when everything below `offset` is acknowledged at this level."""
        entry = _AckEntry(offset, next(self._ticket), waiter, index)
        heapq.heappush(self._ack_waiters[acks], entry)

    def wait_for_data(self, waiter: DataWaiter) -> None:
        """Tell `waiter` when more is committed."""
        self._data_waiters[waiter] = None

    def stop_waiting(self, waiter: DataWaiter) -> None:
        """Forget a fetch that waits no more."""
        self._data_waiters.pop(waiter, None)

    def progressed(self) -> None:
        """Look at how far the log is, and tell those who waited for it."""
        log, leader = self.log, self.leader
        if leader is None:
            before = log.high_watermark
            log.high_watermark = self.high_watermark
            if self._data_waiters and log.high_watermark > before:
                self._wake_fetches()
            self._tell_watchers()
            return
        before = log.high_watermark  # Reports of followers move that of the leader at once.
        leader.progressed(
            log_end_offset=log.log_end_offset, durable_end_offset=log.durable_end_offset
        )
        log.high_watermark = leader.high_watermark
        for acks, waiters in self._ack_waiters.items():
            if waiters:
                # As it is now: it may have been another one when they began to wait.
                level = ack_level(acks, leader.durability)
                acknowledged = leader.acknowledged_offset(acks)
                while waiters and waiters[0].offset <= acknowledged:
                    entry = heapq.heappop(waiters)
                    entry.waiter.acknowledged(entry.place, level)
        if self._data_waiters and leader.high_watermark > before:
            self._wake_fetches()
        if self.watchers:
            self._tell_watchers()

    def replicas_changed(self, replicas: ReplicaSet, *, now_ms: int) -> None:
        """Lead on with other replicas, others in sync, or another minimum.

        Who waits for all of them, while too few are in sync, is told so: that may take for ever.
        """
        leader = self.leader
        assert leader is not None, "it is led here"
        leader.replicas_changed(replicas, now_ms=now_ms)
        self.progressed()
        error = leader.why_not_to_wait(Acks.ALL)
        if error is not None:
            self._fail_acks(self._ack_waiters[Acks.ALL], error)

    def damage_found(self, error: CorruptRecordError) -> None:
        """Take note of damage that a reader came upon."""
        self.log.note_damage(error)
        self.note_status(str(error))

    def reading_failed(self, error: OSError) -> BrokerError:
        """Take the log offline, for it cannot be read; return what to tell the reader.

        Not if only no more files can be open for now: that passes.
        """
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            return no_descriptor(self.log.directory)
        reason = f"reading failed: {error}"
        self.log.fail(reason)
        self.note_status(reason)
        return LogOfflineError(f"{self.log.directory} is offline: {reason}")

    def passing(self, error: BrokerError) -> BrokerError:
        """Return what to tell a client of an error: to ask another replica, if one is better."""
        if self.follower is not None and isinstance(error, _PASSING):
            return NotLeaderError(f"{error}; the leader may have it")
        if self._has_others and isinstance(error, _PASSING):
            return LeaderNotAvailableError(
                f"{error}; another replica is to lead partition {self.number}"
            )
        return error

    def require_disk(self) -> None:
        """Check that the disk answers, if there are others who could lead meanwhile.

        Raises:
            LeaderNotAvailableError: It does not, and has not for a while.
        """
        if self.is_stalled and self._has_others:
            raise LeaderNotAvailableError(
                f"the disk under {self.log.directory} does not answer; another replica is to lead"
                f" partition {self.number}"
            )

    def stalled(self) -> None:
        """Take note that the disk does not answer; nobody waits for it if others could lead."""
        self.is_stalled = True
        try:
            self.require_disk()
        except LeaderNotAvailableError as error:
            self.failed(error)

    @property
    def _has_others(self) -> bool:
        leader = self.leader
        return leader is not None and len(leader.replicas.in_sync_replicas) > 1

    def note_status(self, reason: str) -> None:
        """Tell the operator, and whoever waits in vain, if the status of the log is another one.

        `reason` is of the last thing that happened to it.
        """
        status = self.log.status
        if status is self._known_status:
            return
        self._known_status = status
        self._probe(
            "log_status_changed",
            severity="info" if status is LogStatus.ONLINE else "error",
            directory=self.log.directory,
            status=status.value,
            reason=reason,
        )
        if status is LogStatus.OFFLINE:
            error = LogOfflineError(
                f"{self.log.directory} is offline: {reason}; restart the broker once the disk is in"
                " order"
            )
            self.failed(self.passing(error))
        if self.status_changed is not None:
            self.status_changed(self)

    def failed(self, error: BrokerError) -> None:
        """Tell everybody that waits that it is in vain."""
        for waiters in self._ack_waiters.values():
            self._fail_acks(waiters, error)
        self._wake_fetches()
        self._tell_watchers()

    @staticmethod
    def _fail_acks(waiters: list[_AckEntry], error: BrokerError) -> None:
        while waiters:
            entry = heapq.heappop(waiters)
            entry.waiter.failed(entry.place, error)

    def _tell_watchers(self) -> None:
        for watcher in list(self.watchers):
            watcher.changed(self)

    def _wake_fetches(self) -> None:
        waiters, self._data_waiters = self._data_waiters, {}
        for waiter in waiters:
            waiter.wake()
