"""Leader election: the leader and the in-sync replicas of a partition after an event.

Pure: no clock, no I/O. One function, `elect`, is the only place where leaders, in-sync
replicas (ISR) and eligible leader replicas (ELR) change. In its order:

1. Replicas that are alive and have lost nothing stay in the ISR. A broker that is shutting down
   leaves it as soon as another replica in the ISR can lead (KIP-841).
2. A reassignment is complete when all replicas that stay are in the ISR (KIP-455). A topic and its
   journals wait for each other with that, see `partition_changes`.
3. The leader stays if it is in the ISR and can lead. Otherwise the first of these becomes leader:
   the first replica in the ISR that can lead (for a journal, replicas that are also in the ISR of
   the source partition come first); the first eligible replica that can lead and whose process has
   run since it was in the ISR, and the ISR is then this replica alone; a replica in the ISR that is
   shutting down; an unverified replica, see 5. Without any of these the partition has no leader.
   Only if an administrator accepts the loss of data, another live replica leads, the one with the
   greatest reported log end first, then the last known leader; a replica that has lost its files
   leads only if there is no other. A replica with an offline log leads nothing until its broker
   restarts.
   A leader that lacks committed records steps down for a replica that has them all, see
   `truncation_refusal`.
4. While the ISR has fewer than `min_insync_replicas` members nothing is committed, so a replica
   that leaves it has all committed records: it becomes eligible (KIP-966). With a large enough ISR
   no replica is eligible.
5. A process that ended uncleanly leaves a log whose tail may be damaged, and nothing on that disk
   needs to show it. So such replicas are unverified, and compared: when all eligible replicas have
   reported the ends of their logs, the replica with the greatest (leader epoch, log end) leads. Of
   two logs of one partition, the greater end has all records of the other. A log without records
   may not know the epoch of the last one. All records below its end were committed and deleted, so
   it is greater than a log that ends below, and less than all others. A replica that left
   a large enough ISR is unverified as well, and may lead: the disks of those that stayed may be
   damaged later. With a single eligible replica, which has no other to be compared with, the
   election waits for it. The controller limits the wait for missing
   replicas (`recovery_election_wait_ms`); then the greatest of the reported ends leads.
6. The leader epoch rises with a change of leader. It also rises when a replica is removed from the
   assignment, which fences later requests of that replica. The partition epoch rises with every
   change.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from msgspec.structs import replace

from tidelog.coordinator.metadata.records import (
    BrokerRegistration,
    LogEnd,
    PartitionRegistration,
    RefusingReplica,
    UnverifiedReplica,
)


class Election(Enum):
    """Which replica may become leader (Kafka's `PartitionChangeBuilder.Election`)."""

    PREFERRED = "preferred"
    """As `ONLINE`, but the first replica takes over if it is in sync."""
    ONLINE = "online"
    """A replica that has all committed records; the leader stays if it can."""
    RECOVERY = "recovery"
    """As `ONLINE`, but without waiting for eligible replicas that have not reported."""
    UNCLEAN = "unclean"
    """As `ONLINE`, but without such a replica any live one: committed records may be lost."""


@dataclass(frozen=True, slots=True)
class ElectionContext:
    """The facts that an election rests on besides the partition itself."""

    brokers: Mapping[int, BrokerRegistration]
    """Registrations after the event, by node id."""
    min_insync_replicas: Callable[[int], int]
    """The minimum in force for a partition with this replication factor."""
    may_complete: bool = True
    """Whether a reassignment is complete as soon as this partition is ready."""
    source_in_sync: Collection[int] | None = None
    """For a journal's partition: the ISR of the source partition; `None` for other topics."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Current and target replicas; fields as in `PartitionRegistration`."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEvent:
    """A change of a partition, its replicas or its brokers, or a request of an administrator."""

    in_sync_replicas: Collection[int] | None = None
    """The ISR that the leader proposes, `None` for no change."""
    lost: Collection[int] = ()
    """Replicas that may have lost committed records."""
    wiped: Collection[int] = ()
    """The subset of `lost` that has lost files or its disk, and not only records in memory."""
    offline: Collection[int] = ()
    """Replicas with an offline log: they serve nothing until their broker restarts, then all."""
    started: Collection[int] = ()
    """Replicas whose broker has restarted: their logs are opened again."""
    unclean: Collection[int] = ()
    """The subset of `started` whose last process ended uncleanly."""
    log_ends: Mapping[int, LogEnd] = field(default_factory=dict[int, LogEnd])
    """Reported log ends of unverified replicas, by node id."""
    assignment: Assignment | None = None
    """The new assignment, `None` for no change."""
    whole_leader: int | None = None
    """The replica that has all committed records, and replaces the leader because that has not."""
    refusing: RefusingReplica | None = None
    """A replica outside the ISR that refuses to truncate records which the leader lacks."""
    has_lost_memory: bool = False
    """Whether the only replica has lost committed records in memory; its partition is about to get
    more replicas, which may have them."""
    election: Election = Election.ONLINE


@dataclass(frozen=True, slots=True)
class _Candidates:
    """The assigned replicas after an event, by what an election needs to know of them."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    relied_on: tuple[int, ...]
    """Each of these had all committed records: the ISR and the ELR before the event."""
    unverified: Mapping[int, LogEnd | None]
    """Replicas to be compared, with the log ends that they have reported."""
    offline: Collection[int]
    wiped: Collection[int]


_UNKNOWN_END = LogEnd(-1, -1, is_whole=False)
NO_EVENT = PartitionEvent()
"""No event of the partition: only the brokers or the minimum have changed."""


def elect(
    partition: PartitionRegistration, event: PartitionEvent, context: ElectionContext
) -> PartitionRegistration:
    """Return the partition after an event: the same object if nothing changes."""
    assignment = event.assignment or Assignment(
        partition.replicas, partition.adding_replicas, partition.removing_replicas
    )
    in_sync = _in_sync(partition, event, assignment.replicas, context=context)
    if context.may_complete:
        assignment, in_sync = _completed(assignment, in_sync)
    candidates = _candidates(partition, event, assignment, in_sync=in_sync, context=context)
    leader = _elect_with_records(partition, event, candidates, context=context)
    is_loss_known = _is_loss_known(partition, event, leader)
    is_unclean = leader is None and event.election is Election.UNCLEAN
    if is_unclean:
        leader = _elect_unclean(partition, candidates, context)
        is_unclean = leader is not None
    if leader is not None and leader not in in_sync:
        in_sync = (leader,)
        if context.may_complete:
            assignment, in_sync = _completed(assignment, in_sync)
    eligible = (
        ()
        if is_unclean
        else _eligible(partition, event, assignment, in_sync=in_sync, context=context)
    )
    changed = replace(
        partition,
        replicas=assignment.replicas,
        in_sync_replicas=in_sync,
        eligible_leader_replicas=eligible,
        leader=leader,
        adding_replicas=assignment.adding_replicas,
        removing_replicas=assignment.removing_replicas,
        offline_replicas=tuple(node for node in eligible if node in candidates.offline),
        wiped_replicas=tuple(
            node for node in assignment.replicas if node in candidates.wiped and node not in in_sync
        ),
        unverified_replicas=tuple(
            # A log changes under a leader, so an earlier report is of no use later.
            UnverifiedReplica(node, None if leader is not None else log_end)
            for node, log_end in candidates.unverified.items()
            if node in assignment.replicas and node not in in_sync
        ),
    )
    is_loss = is_unclean or is_loss_known
    changed = replace(
        changed,
        refusing_replicas=() if is_loss else _refusing(partition, event, changed),
    )
    return _with_epochs(partition, changed, is_loss=is_loss)


def _in_sync(
    partition: PartitionRegistration,
    event: PartitionEvent,
    replicas: tuple[int, ...],
    *,
    context: ElectionContext,
) -> tuple[int, ...]:
    wanted = event.in_sync_replicas
    if wanted is None:
        wanted = partition.in_sync_replicas
    gone = {*event.lost, *event.offline}
    alive = tuple(
        node
        for node in replicas
        if node in wanted and node not in gone and _is_alive(node, context)
    )
    can_lead = tuple(node for node in alive if _can_lead(node, context))
    return can_lead or alive


def _completed(
    assignment: Assignment, in_sync: tuple[int, ...]
) -> tuple[Assignment, tuple[int, ...]]:
    staying = tuple(
        node for node in assignment.replicas if node not in assignment.removing_replicas
    )
    if not all(node in in_sync for node in staying):
        return assignment, in_sync
    return Assignment(staying), tuple(node for node in in_sync if node in staying)


def _elect_clean(
    partition: PartitionRegistration, candidates: _Candidates, context: ElectionContext
) -> int | None:
    leader, in_sync = partition.leader, candidates.in_sync
    if leader is not None and leader in in_sync and _can_lead(leader, context):
        return leader
    # Stable sort: replicas in the source's ISR first, each part in the order of the assignment.
    rather = sorted(in_sync, key=lambda node: not _is_source_in_sync(node, context))
    verified = [
        node
        for node in candidates.relied_on
        if node in partition.eligible_leader_replicas
        and node not in candidates.offline
        and node not in candidates.unverified
    ]
    for node in (*rather, *verified):
        if _can_lead(node, context):
            return node
    if leader in in_sync:
        return leader
    return in_sync[0] if in_sync else None


def _candidates(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> _Candidates:
    return _Candidates(
        assignment.replicas,
        in_sync,
        tuple(
            node
            for node in assignment.replicas
            if node in partition.in_sync_or_eligible and node not in event.lost
        ),
        _unverified(partition, event, assignment, in_sync=in_sync, context=context),
        {*partition.offline_replicas, *event.offline}.difference(event.started),
        {*partition.wiped_replicas, *event.wiped},
    )


def _elect_with_records(
    partition: PartitionRegistration,
    event: PartitionEvent,
    candidates: _Candidates,
    *,
    context: ElectionContext,
) -> int | None:
    """Return the leader, which has all committed records as far as the cluster can know."""
    leader = _elect_clean(partition, candidates, context)
    if leader is None:
        leader = _elect_by_log_end(event, candidates, context)
    return _instead_of(leader, event, candidates, context=context)


def _unverified(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> dict[int, LogEnd | None]:
    """Return the unverified replicas after an event, with the log ends that they have reported."""
    if len(assignment.replicas) == 1:
        return {}  # There is nothing to compare with.
    known = {each.node_id: each.log_end for each in partition.unverified_replicas}
    ends = {node: None if node in event.started else end for node, end in known.items()}
    ends |= {node: None for node in event.unclean if node in partition.in_sync_or_eligible}
    ends |= {node: end for node, end in event.log_ends.items() if node in ends}
    if len(in_sync) >= _minimum(assignment, context):
        left = [node for node in partition.in_sync_replicas if node not in in_sync]
        ends |= {node: None for node in left if node not in ends}
    failed = {*event.lost}.difference(event.started) | {*event.wiped}
    return {node: ends[node] for node in assignment.replicas if node in ends and node not in failed}


def replicas_to_compare(relied_on: Collection[int], unverified: Collection[int]) -> tuple[int, ...]:
    """Return the replicas whose log ends complete a comparison.

    Args:
        relied_on: Each of these had all committed records.
        unverified: Unverified replicas. Only a single replica that is relied on needs them.
    """
    others = [node for node in unverified if node not in relied_on]
    return (*relied_on, *(others if len(relied_on) == 1 else ()))


def _elect_by_log_end(
    event: PartitionEvent, candidates: _Candidates, context: ElectionContext
) -> int | None:
    """Return the unverified replica with the greatest log end, `None` while others are awaited."""
    relied_on, unverified = candidates.relied_on, candidates.unverified
    awaited = replicas_to_compare(relied_on, unverified)
    ends = {node: end for node, end in unverified.items() if end is not None}
    is_wait_over = event.election is Election.RECOVERY
    is_complete = all(node in ends for node in awaited)
    if not ends.keys() & {*relied_on} or not (is_complete or is_wait_over):
        return None
    can_lead = [
        node for node in ends if node not in candidates.offline and _can_lead(node, context)
    ]
    best = greatest_log_end(can_lead if is_wait_over else ends, ends, relied_on=relied_on)
    return best if best in can_lead else None


def greatest_log_end(
    nodes: Iterable[int], ends: Mapping[int, LogEnd], *, relied_on: Collection[int]
) -> int | None:
    """Return the replica among `nodes` whose log has all records of the others, `None` if empty.

    Args:
        nodes: Replicas that have reported, in the order of the assignment.
        ends: All reported log ends.
        relied_on: Replicas that are preferred to others with an equal end.
    """
    deleted_to = _deleted_to(ends.values())
    return max(
        nodes,
        key=lambda node: (ends[node].log_end_offset >= deleted_to, ends[node], node in relied_on),
        default=None,
    )


def _deleted_to(ends: Iterable[LogEnd]) -> int:
    """Return the offset below which all records were committed and deleted, as far as is shown.

    Logs without a known epoch show it: they are empty, and deletion stops at the high watermark.
    """
    return max(
        (end.log_end_offset for end in ends if end.is_whole and end.leader_epoch < 0), default=0
    )


def _instead_of(
    leader: int | None, event: PartitionEvent, candidates: _Candidates, *, context: ElectionContext
) -> int | None:
    """Return the preferred leader, or the replica for which a leader steps down, if that is due."""
    if event.whole_leader is not None:
        return event.whole_leader
    first = candidates.replicas[0]
    is_preferred = (
        event.election is Election.PREFERRED
        and first in candidates.in_sync
        and _is_source_in_sync(first, context)
        and _can_lead(first, context)
    )
    return first if is_preferred else leader


def _is_loss_known(
    partition: PartitionRegistration, event: PartitionEvent, leader: int | None
) -> bool:
    """Return whether committed records are lost for good without an unclean election."""
    if leader is None:
        return event.has_lost_memory
    return event.election is Election.UNCLEAN and bool(partition.refusing_replicas)


def _elect_unclean(
    partition: PartitionRegistration, candidates: _Candidates, context: ElectionContext
) -> int | None:
    """Return the live replica that is likely to have most; of equals, the first assigned one."""
    deleted_to = _deleted_to(end for end in candidates.unverified.values() if end is not None)

    def likely(node: int) -> tuple[bool, bool, LogEnd, bool]:
        end = candidates.unverified.get(node) or _UNKNOWN_END
        is_later = end.log_end_offset >= deleted_to
        return node not in candidates.wiped, is_later, end, node == partition.last_known_leader

    live = [
        node
        for node in candidates.replicas
        if node not in candidates.offline and _can_lead(node, context)
    ]
    return max(live, key=likely, default=None)


def _eligible(
    partition: PartitionRegistration,
    event: PartitionEvent,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    context: ElectionContext,
) -> tuple[int, ...]:
    if len(in_sync) >= _minimum(assignment, context):
        return ()
    before = (*partition.in_sync_replicas, *partition.eligible_leader_replicas)
    return tuple(
        node
        for node in assignment.replicas
        if node in before and node not in in_sync and node not in event.lost
    )


def _refusing(
    partition: PartitionRegistration, event: PartitionEvent, changed: PartitionRegistration
) -> tuple[RefusingReplica, ...]:
    known = {each.node_id: each for each in partition.refusing_replicas}
    if event.refusing is not None:
        known[event.refusing.node_id] = event.refusing
    over = {*changed.in_sync_replicas, *changed.wiped_replicas}
    return tuple(known[node] for node in changed.replicas if node in known and node not in over)


def _with_epochs(
    partition: PartitionRegistration, changed: PartitionRegistration, *, is_loss: bool
) -> PartitionRegistration:
    is_removal = any(node not in changed.replicas for node in partition.replicas)
    leader_epoch = partition.leader_epoch + (changed.leader != partition.leader or is_removal)
    last_known_leader = None
    if changed.leader is None:
        last_known_leader = (
            partition.last_known_leader if partition.leader is None else partition.leader
        )
    changed = replace(
        changed,
        leader_epoch=leader_epoch,
        last_known_leader=last_known_leader,
        data_loss_epoch=leader_epoch if is_loss else partition.data_loss_epoch,
    )
    if changed == partition:
        return partition
    return replace(changed, partition_epoch=partition.partition_epoch + 1)


def _minimum(assignment: Assignment, context: ElectionContext) -> int:
    replication_factor = len(assignment.replicas) - len(assignment.adding_replicas)
    return context.min_insync_replicas(replication_factor)


def _is_alive(node: int, context: ElectionContext) -> bool:
    return not context.brokers[node].is_fenced


def _can_lead(node: int, context: ElectionContext) -> bool:
    return context.brokers[node].can_lead


def _is_source_in_sync(node: int, context: ElectionContext) -> bool:
    return context.source_in_sync is None or node in context.source_in_sync
