"""Partition of which this broker has a replica: its log, its high watermark, its waiters.

Plain calls only: no method awaits, so no other task runs between a decision and its effect.
"""

import heapq
from collections.abc import Callable
from functools import cached_property
from itertools import count
from typing import NamedTuple, Protocol, final

from tidelog.broker.encryption.keyring import Keyring
from tidelog.broker.encryption.partition_cipher import PartitionCipher
from tidelog.broker.metrics.object_counts import ObjectCounts
from tidelog.broker.metrics.topic_totals import TopicTotals
from tidelog.broker.partitions.traffic import PartitionTraffic
from tidelog.coordinator.metadata.catalog import topic_of_staging
from tidelog.coordinator.metadata.topic_config import TopicConfig
from tidelog.isr.divergence import LogShape
from tidelog.isr.durability import Durability, ack_level
from tidelog.isr.follower import PartitionFollower
from tidelog.isr.followers import Followers
from tidelog.isr.leader import PartitionLeader
from tidelog.isr.replica_set import ReplicaSet
from tidelog.logstore.disk.availability import no_descriptor, offline
from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS
from tidelog.logstore.log import LogStatus, PartitionLog
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.env.env import BytesLike, Probe
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    DiskFullError,
    KeyUnavailableError,
    LeaderNotAvailableError,
    LogOfflineError,
    NotLeaderError,
)
from tidelog.wire.messages.produce import AckLevel, Acks
from tidelog.wire.security.audit_topic import AUDIT_TOPIC

_PASSING = (CorruptRecordError, DiskFullError, LogOfflineError)
"""Errors of one replica that another replica in the ISR does not have."""


class AckWaiter(Protocol):
    """A produce request that waits for acknowledgements."""

    def acknowledged(self, index: int, level: AckLevel) -> None:
        """The batch at `index` of the request has reached `level`."""
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
    """An observer of the changes of a replica, for as long as the replica exists."""

    def changed(self, partition: "Partition") -> None:
        """The log, its durable end or the high watermark advanced, or the leader changed."""
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

    Invariant: every waiter below the acknowledged offset has been called.
    """

    storage_refusal: Callable[[], BrokerError] | None = None
    """Returns the error for appends, while the owner of the topic has used up its quota of storage;
    else `None`."""
    keyring: Keyring | None = None
    """Data keys of all topics; only a partition of an encrypted topic needs them."""
    cipher: PartitionCipher | None = None
    """Keys of the topic; `None` while it has none, and all of its batches are plain."""
    is_closed = False
    """Whether the broker has closed this replica: it may have another one of the partition."""

    def __init__(
        self,
        topic_id: bytes,
        number: int,
        log: PartitionLog,
        *,
        topic: str,
        config: TopicConfig,
        probe: Probe,
        traffic: PartitionTraffic | None = None,
    ) -> None:
        """Create a replica of the topic `topic` with `log`; report its events to `probe`.

        Clients' records are counted in `traffic`.
        """
        self._probe = probe
        self.topic = topic
        """Name of the topic; a journal and a staging log have names of their own."""
        self.topic_id = topic_id
        self.number = number
        self.log = log
        self.config = config
        """Current settings of the topic."""
        self.queue_name = ""
        """Name of the queue of which it is the journal, which clients do not read or write; else
        empty."""
        self.is_staging = False
        """Whether it is a staging log, which clients only use by staging."""
        self.leader: PartitionLeader | None = None
        """State as the leader; `None` while another broker leads, or while there is no leader."""
        self.follower: PartitionFollower | None = None
        """State as a follower; `None` while this broker leads."""
        self.traffic = traffic or PartitionTraffic(ObjectCounts(TopicTotals), topic)
        self.watchers: dict[Watcher, None] = {}
        """Observers that are called for every change; they remove themselves."""
        self.is_held = False
        """Whether the log is being truncated or recreated: no task may use it, and the broker takes
        no other role before that is done."""
        self.is_stalled = False
        """Whether the disk has not answered for too long."""
        self.status_changed: Callable[[Partition], None] | None = None
        """Called when the status of the log has changed."""
        self._high_watermark = log.high_watermark
        """The high watermark that was known when this broker took its role."""
        self.is_flushing = False
        self.is_checkpointing = False
        """Whether a checkpoint is being written that a flush deferred."""
        self.is_flush_wanted = False
        """Whether another flush must follow the one under way."""
        self.is_removing = False
        """Whether segments are being removed that retention has taken out of the log."""
        self.flushes_begun = self.flushes_ended = 0
        self._ticket = count()
        self._ack_waiters: dict[Acks, list[_AckEntry]] = {
            Acks.LEADER: [],
            Acks.ALL: [],
        }
        self._data_waiters: dict[DataWaiter, None] = {}
        self._known_status = log.status

    @cached_property
    def resource(self) -> str:
        """The topic of its records, as audit records name it: a staging log is of its topic."""
        return f"topic:{topic_of_staging(self.topic) or self.topic}"

    @cached_property
    def is_audit(self) -> bool:
        """Whether it is a partition of the audit topic, which only brokers write."""
        return self.topic == AUDIT_TOPIC

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and number."""
        return self.topic_id, self.number

    def probe(self, event: str, **fields: object) -> None:
        """Report an event of this replica, with its topic, number and directory."""
        place = {"topic": self.topic, "partition": self.number, "directory": self.log.directory}
        self._probe(event, **place, **fields)

    @property
    def durability(self) -> Durability:
        """What an acknowledgement guarantees."""
        return self.config.durability

    @property
    def high_watermark(self) -> int:
        """First offset that is not known to be committed (exclusive end)."""
        if self.leader is not None:
            return self.leader.high_watermark
        return self._high_watermark if self.follower is None else self.follower.high_watermark

    @property
    def shape(self) -> LogShape:
        """The part of the log that replicas and readers compare."""
        log = self.log
        return LogShape(log.log_start_offset, log.log_end_offset, log.leader_epochs, log.damage)

    @property
    def is_whole(self) -> bool:
        """Whether this replica may be in the ISR."""
        return self.log.status is LogStatus.ONLINE and not self.is_stalled

    @property
    def waiter_count(self) -> int:
        """Number of batches and fetches that wait here."""
        return len(self._data_waiters) + sum(map(len, self._ack_waiters.values()))

    def lead(self, leader_epoch: int, followers: Followers | None = None) -> None:
        """Lead from now on, in this leader epoch; without `followers`, alone."""
        self.resign(NotLeaderError("this broker leads the partition again, in a later epoch"))
        assert not self.is_held, "the log is held for a repair"
        log = self.log
        self.leader = PartitionLeader(
            leader_epoch=leader_epoch,
            durability=self.durability,
            log_end_offset=log.log_end_offset,
            durable_end_offset=log.durable_end_offset,
            high_watermark=None if followers is None else self._high_watermark,
            followers=followers,
        )

    def follow(
        self, leader_id: int | None, leader_epoch: int, *, data_loss_epoch: int | None = None
    ) -> None:
        """Follow another broker from now on, or no leader, in this leader epoch.

        `data_loss_epoch` is that of the partition's registration.
        """
        reason = "the partition has no leader now"
        if leader_id is not None:
            reason = f"broker {leader_id} leads the partition now"
        self.resign(NotLeaderError(reason))
        self.follower = PartitionFollower(
            leader_id=leader_id,
            leader_epoch=leader_epoch,
            high_watermark=self._high_watermark,
            data_loss_epoch=data_loss_epoch,
        )

    def resign(self, error: BrokerError) -> None:
        """Stop leading or following; waiting requests get `error`."""
        self._high_watermark = self.high_watermark
        was_leader = self.leader is not None
        self.leader = self.follower = None
        if was_leader:
            self.failed(error)
        else:
            self._wake_fetches()

    def close(self, error: BrokerError) -> None:
        """Close the replica; waiting requests get `error`, and no task begins anything new.

        Holds and flushes under way still end.
        """
        self.is_closed = True
        self.log.close()
        # The close is intended, so its status is not reported.
        self._known_status = self.log.status
        self.resign(error)
        self.failed(error)

    def reconfigure(self, config: TopicConfig) -> None:
        """Apply new settings."""
        self.log.config = config.log
        self.config = config
        self.update_cipher()
        if self.leader is not None:
            self.leader.durability = config.durability
        self.progressed()

    def update_cipher(self) -> PartitionCipher | None:
        """Seal and open batches from now on as the metadata says; return the keys, if any."""
        keyring, is_encrypted = self.keyring, self.config.is_encrypted
        if keyring is None:
            assert not is_encrypted, "an encrypted topic needs a keyring"
            return None
        if self.cipher is None and (is_encrypted or keyring.has_keys(self.topic_id)):
            self.cipher = PartitionCipher(keyring, self.topic_id, self.number)
        self.log.cipher = self.cipher
        if self.cipher is not None:
            self.cipher.is_on = is_encrypted
        return self.cipher

    @property
    def why_locked(self) -> str | None:
        """Why records of the topic cannot be read or written here for lack of a key, if so."""
        if self.cipher is None or self.keyring is None:
            return None
        return self.keyring.why_locked(self.topic_id)

    def opened(self, header: BatchHeader, batch: BytesLike) -> tuple[BatchHeader, BytesLike]:
        """Return the plain form of a stored batch; a broken seal is recorded as damage.

        Raises:
            KeyUnavailableError: The data key cannot be used here; nothing is damaged.
            CorruptRecordError: The seal is broken.
        """
        if not header.is_sealed:
            return header, batch
        cipher = self.cipher or self.update_cipher()
        if cipher is None:
            raise KeyUnavailableError("the data keys of the topic are not known here yet")
        try:
            return cipher.open(header, batch)
        except CorruptRecordError as error:
            self.damage_found(error)
            raise

    def wait_for_ack(self, acks: Acks, offset: int, waiter: AckWaiter, *, index: int) -> None:
        """Tell `waiter` when everything below `offset` is acknowledged at this level."""
        entry = _AckEntry(offset, next(self._ticket), waiter, index)
        heapq.heappush(self._ack_waiters[acks], entry)

    def wait_for_data(self, waiter: DataWaiter) -> None:
        """Call `waiter` when the high watermark advances."""
        self._data_waiters[waiter] = None

    def stop_waiting(self, waiter: DataWaiter) -> None:
        """Remove a fetch that no longer waits."""
        self._data_waiters.pop(waiter, None)

    def progressed(self) -> None:
        """Advance the high watermark by the state of the log, and call the waiters."""
        log, leader = self.log, self.leader
        if leader is None:
            before = log.high_watermark
            log.high_watermark = self.high_watermark
            if self._data_waiters and log.high_watermark > before:
                self._wake_fetches()
            self._tell_watchers()
            return
        # Reports of followers move the leader's high watermark at once.
        before = log.high_watermark
        log.high_watermark = high_watermark = leader.progressed(
            log_end_offset=log.log_end_offset, durable_end_offset=log.durable_end_offset
        )
        for acks, waiters in self._ack_waiters.items():
            if waiters:
                # The current durability: it may have been another one when the waiters began to
                # wait.
                level = ack_level(acks, leader.durability)
                acknowledged = leader.acknowledged_offset(acks)
                while waiters and waiters[0].offset <= acknowledged:
                    entry = heapq.heappop(waiters)
                    entry.waiter.acknowledged(entry.place, level)
        if self._data_waiters and high_watermark > before:
            self._wake_fetches()
        for watcher in list(self.watchers) if self.watchers else ():
            watcher.changed(self)

    def replicas_changed(self, replicas: ReplicaSet, *, now_ms: int) -> None:
        """Keep leading with a changed assignment, ISR, or minimum.

        Requests with acks=all fail while the ISR is too small: their wait might never end.
        """
        leader = self.leader
        assert leader is not None, "only the leader calls this"
        leader.replicas_changed(replicas, now_ms=now_ms)
        self.progressed()
        error = leader.why_not_to_wait(Acks.ALL)
        if error is not None:
            self._fail_acks(self._ack_waiters[Acks.ALL], error)

    def damage_found(self, error: CorruptRecordError) -> None:
        """Record damage that a reader found."""
        self.log.note_damage(error)
        self.note_status(str(error))

    def reading_failed(self, error: OSError) -> BrokerError:
        """Take the log offline, for it cannot be read; return the error for the reader.

        If only file descriptors are lacking, the log stays online: that passes.
        """
        if error.errno in NO_DESCRIPTOR_ERRNOS:
            return no_descriptor(self.log.directory)
        reason = f"reading failed: {error}"
        self.log.fail(reason)
        self.note_status(reason)
        return offline(self.log.directory, reason)

    def passing(self, error: BrokerError) -> BrokerError:
        """Return the error for a client: one that names another replica, if that is better."""
        if self.follower is not None and isinstance(error, _PASSING):
            return NotLeaderError(f"{error}; the leader may have it")
        if self._has_others and isinstance(error, _PASSING):
            return LeaderNotAvailableError(
                f"{error}; another replica will take over partition {self.number}"
            )
        return error

    def require_disk(self) -> None:
        """Raise if the disk does not answer and other replicas could lead meanwhile.

        Raises:
            LeaderNotAvailableError: The disk has not answered for a while.
            QuotaExceededError: The owner of the topic has used up its quota of storage.
        """
        if self.is_stalled and self._has_others:
            raise self._disk_error()
        if self.storage_refusal is not None:
            raise self.storage_refusal()

    def _disk_error(self) -> LeaderNotAvailableError:
        return LeaderNotAvailableError(
            f"the disk under {self.log.directory} does not answer; another replica will take"
            f" over partition {self.number}"
        )

    def stalled(self) -> None:
        """Mark the disk as stalled; waiting requests fail if other replicas could lead."""
        self.is_stalled = True
        if self._has_others:
            self.failed(self._disk_error())

    @property
    def _has_others(self) -> bool:
        leader = self.leader
        return leader is not None and len(leader.replicas.in_sync_replicas) > 1

    def note_status(self, reason: str) -> None:
        """Report a changed status of the log to the operator, and to requests that wait in vain.

        `reason` describes the last event of the log.
        """
        status = self.log.status
        if status is self._known_status:
            return
        self._known_status = status
        self.probe(
            "log_status_changed",
            severity="info" if status is LogStatus.ONLINE else "error",
            status=status.value,
            reason=reason,
        )
        if status is LogStatus.OFFLINE:
            is_whole = reason.startswith(f"{self.log.directory} is offline: ")
            error = LogOfflineError(reason) if is_whole else offline(self.log.directory, reason)
            self.failed(self.passing(error))
        if self.status_changed is not None:
            self.status_changed(self)

    def failed(self, error: BrokerError) -> None:
        """Fail all waiting acknowledgements, and wake fetches and watchers."""
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
