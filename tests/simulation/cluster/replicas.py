"""State of all replicas of a cluster, and the high watermarks that leaders have shown.

Running processes are asked; for an ended process the last known state is kept.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import final

import msgspec

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster import cluster_history
from tests.simulation.cluster.replica_difference import MayLack, difference
from tests.simulation.cluster.replica_log import (
    Asked,
    Cut,
    Joined,
    Lost,
    Opened,
    ReplicaLog,
    Shown,
    Waits,
)
from tests.simulation.cluster.replica_witness import batches_of
from tidelog.broker.partitions.partition import Partition as Replica
from tidelog.coordinator.metadata.catalog import topic_of_staging
from tidelog.coordinator.metadata.records import (
    BrokerChanged,
    BrokerRegistered,
    PartitionChanges,
    PartitionRegistration,
)
from tidelog.isr.durability import Durability
from tidelog.isr.leader import PartitionLeader
from tidelog.wire.errors import CorruptRecordError, LogOfflineError
from tidelog.wire.messages.produce import Acks


@final
class PageCaches:
    """Page caches of nodes, between the opens of each replica."""

    def __init__(self) -> None:
        """Start with caches that are not kept."""
        self.is_kept: Callable[[int], bool] = lambda _: False
        """Returns whether a node's cache is unchanged since a process ran there."""
        self.lost_count: Callable[[int], int] = lambda _: 0
        """Returns how many caches a node has lost."""
        self._at_open: dict[tuple[cluster_history.Partition, int], int] = {}

    def opened(self, partition: cluster_history.Partition, node_id: int) -> bool:
        """Return whether the cache is kept since a replica was opened before.

        A process may leave an idle one closed, after its start or for ever.
        """
        count, place = self.lost_count(node_id), (partition, node_id)
        before = self._at_open.get(place, count)
        self._at_open[place] = count
        return before == count and self.is_kept(node_id)


@final
class Replicas:
    """Follows all replicas, and reports their events to the history.

    Invariant: of each replica, the process that opened it last is known. The process of a node
    without the replica is kept, because the node may get the replica back before it learns of the
    removal; meanwhile it does not count.
    """

    def __init__(self, kept: cluster_history.ClusterHistory) -> None:
        """Start without replicas; report to the checkers of `kept`."""
        self._cluster_history = kept
        self._opened: dict[cluster_history.Partition, dict[int, Replica]] = {}
        self._taken: set[tuple[cluster_history.Partition, int]] = set()
        """Replicas that were removed from nodes that have not opened them again since."""
        self._shown: dict[cluster_history.Partition, tuple[int, int | None]] = {}
        """The highest high watermark, and the leader epoch of the record below it."""
        self._seen: dict[Replica, tuple[object, int, bool]] = {}
        """The last high watermark of each leader."""
        self._disk_ids: dict[int, str] = {}
        self._in_sync: dict[cluster_history.Partition, tuple[int, ...]] = {}
        """ISR of each partition, as far as it has changed."""
        self._before: dict[tuple[cluster_history.Partition, int], ReplicaLog] = {}
        """Logs of replicas that may lose their memory, until the cluster knows of the restart."""
        self._unknown: set[int] = set()
        """Nodes whose processes are not registered yet."""
        self._counted_on: dict[cluster_history.Partition, dict[int, int]] = {}
        """Members of the ISR and eligible replicas, with their broker epochs."""
        self._damaged: set[int] = set()
        """Nodes that have lost files, until they are unfenced; by then they must have detected
        it."""
        self._cut: set[tuple[cluster_history.Partition, int]] = set()
        """Replicas that may lack the end of the log, which nothing on their disk needs to show,
        until they are in the ISR."""
        self._proven: set[tuple[cluster_history.Partition, int]] = set()
        """Replicas with a damaged end that their checkpoint proves, until they are opened."""
        self._open: set[tuple[cluster_history.Partition, int]] = set()
        """Replicas that the last process of their node has opened."""
        self._returned: set[int] = set()
        """Damaged nodes that have registered since."""
        self._left_with_new_disk: set[int] = set()
        """Unregistered nodes whose process left and whose disk was then replaced."""
        self._loss_epochs: dict[cluster_history.Partition, int | None] = {}
        self.page_caches = PageCaches()
        """What the nodes have of the bytes that were written and not synced."""
        kept.on_began.append(self._began)
        kept.on_committed.append(self._committed)
        kept.on_disk_changed.append(self._forget)
        kept.on_disk_damaged.append(self._damaged.add)
        kept.on_tail_damaged.append(self._tail_damaged)

    def _began(self, node_id: int) -> None:
        self._unknown.add(node_id)
        self._open = {each for each in self._open if each[1] != node_id}

    # See `ReplicaListener`.

    def opened(self, node_id: int, replica: Replica) -> None:
        """See `ReplicaListener`."""
        known = self._opened.setdefault(replica.key, {})
        before = known.get(node_id)
        known[node_id] = replica
        self._open.add((replica.key, node_id))
        # A node that has learned of the removal has deleted the replica.
        is_reassigned = (replica.key, node_id) in self._taken
        assigned = self._cluster_history.image.state.partition(*replica.key)
        if assigned is None or node_id in assigned.replicas:
            self._taken.discard((replica.key, node_id))
        else:
            self._taken.add((replica.key, node_id))
        has_less = node_id in self._damaged and (replica.key, node_id) not in self._proven
        self._proven.discard((replica.key, node_id))
        opened = Opened(
            node_id,
            replica.key,
            _look(replica),
            None if before is None or is_reassigned or has_less else _look(before),
            self.page_caches.opened(replica.key, node_id),
        )
        if before is not None:
            self._seen.pop(before, None)
            is_known = is_reassigned or node_id not in self._unknown
            if not is_known and replica.durability is not Durability.FSYNC:
                # The node has not yet reported that it restarted, and what that implies.
                self._before.setdefault((replica.key, node_id), _look(before))
        self._cluster_history.tell(lambda checker: checker.opened(opened))
        if assigned is not None and replica.durability is not Durability.FSYNC:
            # The cluster set its current state before the loss was known.
            shown = self._as_shown(replica.key, assigned, self._shown.get(replica.key, (0, None)))
            self._cluster_history.tell(lambda checker: checker.shown(shown))

    def progressed(self, replica: Replica) -> None:
        """See `ReplicaListener`."""
        leader = replica.leader
        if leader is None:
            return
        high_watermark = leader.high_watermark
        has_enough = leader.replicas.has_enough
        if self._seen.get(replica) == (leader, high_watermark, has_enough):
            return
        self._seen[replica] = (leader, high_watermark, has_enough)
        logs = self._logs(replica.key)
        node_id = self._node_of(replica)
        known = self._cluster_history.image.state.partition(*replica.key)
        if node_id is None or known is None:
            return
        if leader.leader_epoch < (known.data_loss_epoch or 0):
            return  # The leader has not learned that its records do not count any more.
        epoch = logs[node_id].epoch_of(high_watermark - 1)
        shown = self._as_shown(replica.key, known, (high_watermark, epoch))
        shown = msgspec.structs.replace(
            shown, leader=(node_id, leader.leader_epoch), has_enough=has_enough
        )
        if high_watermark >= self._shown.get(replica.key, (0, None))[0]:
            self._shown[replica.key] = (high_watermark, epoch)
        self._cluster_history.tell(lambda checker: checker.shown(shown))

    def cuts(self, replica: Replica, offset: int) -> None:
        """See `ReplicaListener`."""
        node_id = self._node_of(replica)
        if node_id is not None:
            cut = Cut(node_id, replica.key, offset, replica.high_watermark)
            self._cluster_history.tell(lambda checker: checker.cut(cut))
            for listener in self._cluster_history.on_cut:
                listener(cut)

    def waits(self, replica: Replica, acks: Acks) -> None:
        """See `ReplicaListener`.

        A request at the journal of a queue may wait for records that were appended long ago. So may
        an append of staged records, if an earlier leader has appended them already.
        """
        node_id, leader = self._node_of(replica), replica.leader
        catalog = self._cluster_history.image.state.catalog
        topic = catalog.topic_by_id(replica.key[0])
        if topic is not None and topic.queue is not None:
            return
        if any(topic_of_staging(each.name) for each in catalog.internal_topics_of(replica.key[0])):
            return
        if node_id is not None and leader is not None and acks is Acks.ALL:
            waits = Waits(node_id, replica.key, leader.replicas.has_enough)
            self._cluster_history.tell(lambda checker: checker.waits(waits))

    def asks(
        self,
        node_id: int,
        replica: Replica,
        leader: PartitionLeader,
        *,
        in_sync: Sequence[tuple[int, int]],
    ) -> None:
        """See `ReplicaListener`.

        A process that has stopped cleanly need have no records any more: the cluster refuses it,
        also if its leader has not learned of the stop (seed 8200025).
        """
        state = self._cluster_history.image.state
        known = state.partition(*replica.key)
        if known is None:
            return
        joining = [each for each in in_sync if each[0] not in leader.replicas.in_sync_replicas]
        logs = self._logs(replica.key)
        leads = (known.leader, known.leader_epoch) == (node_id, leader.leader_epoch)
        asked = Asked(
            node_id,
            replica.key,
            [node for node, _ in joining],
            list(in_sync),
            self.high_watermark(replica.key),
            {
                node: logs.get(node, ReplicaLog(0, 0))
                for node, epoch in joining
                if leads
                and node not in self._left_with_new_disk
                and node in state.brokers
                and state.brokers[node].broker_epoch == epoch
            },
            leader.durability is Durability.FSYNC,
        )
        self._cluster_history.tell(lambda checker: checker.asked(asked))
        for listener in self._cluster_history.on_asked:
            listener(asked)

    def truncated(self, directory: str) -> None:
        """Report a partition one of whose replicas, in this directory, was truncated."""
        for key in self._opened:
            if key[0].hex() in directory and directory.endswith(f"/{key[1]}"):
                known = self._cluster_history.image.state.partition(*key)
                if known is not None:
                    self._changed(key, known)
                return

    def settled_logs(self, node_id: int) -> dict[cluster_history.Partition, ReplicaLog]:
        """Return the logs of a node whose records are all durable, committed and intact."""
        found = {key: of[node_id] for key, of in self._assigned().items() if node_id in of}
        logs = {key: _look(each) for key, each in found.items()}
        return {
            key: log
            for key, log in logs.items()
            if (key, node_id) in self._open
            and log.log_start_offset < log.end_offset == log.durable_end_offset
            and log.end_offset == found[key].high_watermark
            and not (log.is_held or log.is_damaged)
        }

    def high_watermark(self, partition: cluster_history.Partition) -> int:
        """Return the highest high watermark that any leader ever showed."""
        return self._shown.get(partition, (0, None))[0]

    def are_in_sync(self) -> bool:
        """Return whether all replicas of all partitions are in sync."""
        state = self._cluster_history.image.state
        return all(
            sorted(partition.in_sync_replicas) == sorted(partition.replicas)
            for topic in state.catalog.topics
            for partition in state.partitions(topic.topic_id)
        )

    def are_level(self) -> bool:
        """Return whether all logs end at the high watermark; no client may write any more."""
        return all(
            len({*ends}) == 1
            for replicas in self._assigned().values()
            for ends in [
                [each.log.log_end_offset for each in replicas.values()]
                + [each.high_watermark for each in replicas.values()]
            ]
        )

    def are_whole(self) -> bool:
        """Return whether all replicas are open and have the same end, and none is damaged."""
        assigned = self._assigned()
        if not self._open.issuperset((key, node) for key in assigned for node in assigned[key]):
            return False  # Those of an ended process tell nothing about the files of now.
        if not self.are_level():
            return False
        try:
            for replicas in assigned.values():
                for each in replicas.values():
                    batches_of(each.log, each.log.log_start_offset)
        except (CorruptRecordError, LogOfflineError):
            return False
        return True

    def compare(self, may_lack: Mapping[cluster_history.Partition, MayLack] | None = None) -> None:
        """Check that all replicas of each partition have the same batches, to the last byte.

        Each replica applies retention on its own, and compaction as well. So for the partitions in
        `may_lack` the same records suffice; its function returns whether other replicas may lack a
        record that one replica has.

        Raises:
            ViolationError: Replicas differ.
        """
        for partition, replicas in self._assigned().items():
            start = max((each.log.log_start_offset for each in replicas.values()), default=0)
            found = {node_id: batches_of(each.log, start) for node_id, each in replicas.items()}
            wrong = difference(found, (may_lack or {}).get(partition))
            if wrong is not None:
                raise ViolationError(
                    "ReplicasAgree", f"replicas of {_name(partition)} differ: {wrong}"
                )

    def _committed(self, entries: Sequence[object]) -> None:
        for record in entries:
            if isinstance(record, BrokerRegistered):
                self._registered(record.broker.node_id, record.broker.disk_id)
        let_in = [
            record.node_id
            for record in entries
            if isinstance(record, BrokerChanged)
            and not record.is_fenced
            and self._is_let_in(record.node_id)
        ]
        for record in entries:
            if isinstance(record, PartitionChanges):
                for topic_id, number, partition in record.changes():
                    self._changed((topic_id, number), partition)
        for node_id in let_in:
            self._look_at_counted_on(node_id)
        state = self._cluster_history.image.state
        for key in [key for key in self._opened if state.partition(*key) is None]:
            del self._opened[key]

    def _forget(self, node_id: int) -> None:
        """Set the state of a node's replicas to unknown; they must be in no ISR."""
        for replicas in self._opened.values():
            replicas.pop(node_id, None)
        self._is_known_now(node_id)
        self._left_with_new_disk.add(node_id)

    def _tail_damaged(self, node_id: int, proven: Collection[cluster_history.Partition]) -> None:
        """Expect fewer records of a node than it had, except where a checkpoint proves them."""
        self._damaged.add(node_id)
        self._cut.update((key, node_id) for key in self._opened)
        self._proven.update((key, node_id) for key in proven)

    def _is_let_in(self, node_id: int) -> bool:
        """Return whether a node that lost files is back: it must have detected the loss by now."""
        is_back = node_id in self._returned
        if is_back:
            self._returned.discard(node_id)
            self._damaged.discard(node_id)
        return is_back

    def _look_at_counted_on(self, node_id: int) -> None:
        """Report all partitions in whose ISR a node is."""
        for key in self._opened:
            known = self._cluster_history.image.state.partition(*key)
            if known is not None and node_id in known.in_sync_or_eligible:
                self._tell_shown(key, known)

    def _registered(self, node_id: int, disk_id: str) -> None:
        """Forget the replicas of a node's earlier disk, and of its memory."""
        self._is_known_now(node_id)
        self._left_with_new_disk.discard(node_id)
        self._returned |= self._damaged & {node_id}
        if self._disk_ids.setdefault(node_id, disk_id) != disk_id:
            self._disk_ids[node_id] = disk_id
            for key, replicas in self._opened.items():
                if replicas.pop(node_id, None) is None:
                    continue
                known = self._cluster_history.image.state.partition(*key)
                if known is not None:
                    self._changed(key, known)  # The replica must be in no ISR any more.

    def _is_known_now(self, node_id: int) -> None:
        self._unknown.discard(node_id)
        for key in [each for each in self._before if each[1] == node_id]:
            del self._before[key]

    def _lost(self, key: cluster_history.Partition, known: PartitionRegistration) -> None:
        """Report an accepted loss, and the remaining records."""
        assert known.leader is not None, "an accepted loss elects a leader"
        leader = self._assigned_of(key).get(known.leader)
        log = ReplicaLog(0, 0) if leader is None else _look(leader)
        logs = self._logs(key).values()
        committed, epoch = self._shown.get(key, (0, None))
        # It may have as many records or more, but of another leader's epoch: never committed.
        holders = [
            each for each in logs if epoch is not None and each.epoch_of(committed - 1) == epoch
        ]
        end = min([log.end_offset, *(log.agreed_end(each) for each in holders)])
        if end >= committed:
            return
        lost_end = max(committed, *(each.end_offset for each in logs))
        self._shown[key] = (end, log.epoch_of(end - 1))
        brokers = self._cluster_history.image.state.brokers
        lost = Lost(
            key,
            end,
            lost_end,
            [
                node_id
                for node_id, epoch in self._counted_on.get(key, {}).items()
                if node_id in brokers and brokers[node_id].broker_epoch == epoch
            ],
            leader is None or leader.durability is Durability.FSYNC,
        )
        self._cluster_history.lost(lost)

    def _note_counted_on(
        self, key: cluster_history.Partition, known: PartitionRegistration
    ) -> None:
        brokers = self._cluster_history.image.state.brokers
        in_sync_or_eligible = {
            node_id: brokers[node_id].broker_epoch for node_id in known.in_sync_or_eligible
        }
        if in_sync_or_eligible:
            self._counted_on[key] = in_sync_or_eligible

    def _changed(self, key: cluster_history.Partition, known: PartitionRegistration) -> None:
        opened = self._opened.setdefault(key, {})
        self._taken.update((key, node_id) for node_id in opened if node_id not in known.replicas)
        if known.data_loss_epoch != self._loss_epochs.get(key):
            self._loss_epochs[key] = known.data_loss_epoch
            self._lost(key, known)
        self._note_counted_on(key, known)
        self._cut.difference_update(
            (key, node_id) for node_id in known.in_sync_replicas if node_id not in self._damaged
        )
        self._tell_shown(key, known)
        before = self._in_sync.get(key, known.in_sync_replicas)
        self._in_sync[key] = known.in_sync_replicas
        for node_id in known.in_sync_replicas:
            if node_id not in before and node_id != known.leader:
                self._joined(node_id, key)

    def _tell_shown(self, key: cluster_history.Partition, known: PartitionRegistration) -> None:
        shown = self._as_shown(key, known, self._shown.get(key, (0, None)))
        self._cluster_history.tell(lambda checker: checker.shown(shown))

    def _joined(self, node_id: int, key: cluster_history.Partition) -> None:
        epoch = self._cluster_history.image.state.brokers[node_id].broker_epoch
        joined = Joined(node_id, key, epoch)
        self._cluster_history.tell(lambda checker: checker.joined(joined))

    def _as_shown(
        self,
        key: cluster_history.Partition,
        known: PartitionRegistration,
        committed: tuple[int, int | None],
    ) -> Shown:
        return Shown(
            key,
            None,
            *committed,
            tuple(
                node_id
                for node_id in known.in_sync_or_eligible
                if node_id not in self._damaged
                and (node_id in known.in_sync_replicas or (key, node_id) not in self._cut)
            ),
            self._logs(key),
            all(each.durability is Durability.FSYNC for each in self._assigned_of(key).values()),
            known.leader,
        )

    def _node_of(self, replica: Replica) -> int | None:
        known = self._assigned_of(replica.key)
        return next((node_id for node_id, each in known.items() if each is replica), None)

    def _logs(self, key: cluster_history.Partition) -> dict[int, ReplicaLog]:
        return {
            node_id: self._before.get((key, node_id)) or _look(replica)
            for node_id, replica in self._assigned_of(key).items()
        }

    def _assigned(self) -> dict[cluster_history.Partition, dict[int, Replica]]:
        return {key: self._assigned_of(key) for key in self._opened}

    def _assigned_of(self, key: cluster_history.Partition) -> dict[int, Replica]:
        """Return the replicas that count: those of assigned nodes, by the committed metadata."""
        known = self._cluster_history.image.state.partition(*key)
        assigned = () if known is None else known.replicas
        opened = self._opened.get(key, {})
        return {node_id: each for node_id, each in opened.items() if node_id in assigned}


def _look(replica: Replica) -> ReplicaLog:
    log = replica.log
    return ReplicaLog(
        log.log_end_offset,
        log.durable_end_offset,
        log.leader_epochs.entries,
        log.log_start_offset,
        replica.is_held,
        bool(log.damage),
    )


def _name(partition: cluster_history.Partition) -> str:
    return f"{partition[0].hex()}/{partition[1]}"
