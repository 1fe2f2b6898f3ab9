"""How a partition goes on when something happened to its replicas: who leads, who is in sync.

Pure: no clock, no I/O. One function, `next_partition`, is the only place where leaders, in-sync
replicas (ISR) and eligible leader replicas (ELR) change. In its order:

1. In sync stay those who are alive and have not lost anything. Who is about to stop leaves as soon
   as somebody else in sync can lead (KIP-841).
2. A reassignment is complete when everybody who shall stay is in sync (KIP-455); a topic and its
   journals wait for each other with that, see `changes`.
3. The leader stays if it is in sync and can lead. Else: the first in sync who can lead, for a
   journal the first of those who are in sync with the messages as well; the first eligible one who
   can (it is then alone in sync); one in sync who is about to stop; nobody. Only when somebody
   accepted the loss of data: the last known leader, or any live replica, and one that has lost its
   files only if there is no other. Nobody leads whose log is offline, before its broker is started
   anew.
4. While fewer than `min_insync_replicas` are in sync nothing is committed, so whoever leaves now
   has everything that is: it becomes eligible (KIP-966). With enough in sync nobody is.
5. The leader epoch rises with another leader, and when a replica is removed, so that nothing that
   the removed one still asks for is heard. The partition epoch rises with every change.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from msgspec.structs import replace

from tidelog.coordinator.metadata.records import Broker, Partition


class Election(Enum):
    """Who may become leader."""

    CLEAN = "clean"
    """Whoever has all committed records; the leader stays if it can."""
    PREFERRED = "preferred"
    """As clean, but the first replica takes over if it is in sync."""
    UNCLEAN = "unclean"
    """As clean, but if there is nobody, any live replica: committed records may be lost."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choice rests on besides the partition itself."""

    brokers: Mapping[int, Broker]
    """As they are after what happened."""
    min_insync_replicas: Callable[[int], int]
    """What is in force for a partition with this replication factor."""
    may_complete: bool = True
    """Whether a reassignment is complete as soon as this partition is ready."""
    readers: Collection[int] | None = None
    """Of a journal's partition: who is in sync where the messages are; `None` for others."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where replicas are and shall be; as in `Partition`."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """What happened to a partition, or what somebody wants of it."""

    in_sync_replicas: Collection[int] | None = None
    """What the leader takes to be in sync, `None` for no change."""
    lost: Collection[int] = ()
    """Replicas that may have lost committed records."""
    bereft: Collection[int] = ()
    """Those of them that have lost files or their disk, and not only what was in memory."""
    offline: Collection[int] = ()
    """Replicas that serve nothing before their broker is started anew, and then have all."""
    started: Collection[int] = ()
    """Replicas whose broker is started anew: their logs are opened again."""
    assignment: Assignment | None = None
    """Other replicas, `None` for no change."""
    election: Election = Election.CLEAN


NOTHING = Happening()
"""Only the brokers or the minimum have changed."""


def next_partition(partition: Partition, happening: Happening, facts: Facts) -> Partition:
    """Return the partition as it goes on: the same object when nothing changes."""
    assignment = happening.assignment or Assignment(
        partition.replicas, partition.adding_replicas, partition.removing_replicas
    )
    in_sync = _in_sync(partition, happening, assignment.replicas, facts=facts)
    if facts.may_complete:
        assignment, in_sync = _completed(assignment, in_sync)
    eligible = tuple(
        node
        for node in assignment.replicas
        if node in partition.eligible_leader_replicas and node not in happening.lost
    )
    bereft = {*partition.bereft_replicas, *happening.bereft}
    offline = {*partition.offline_replicas, *happening.offline}.difference(happening.started)
    leader = _clean_leader(
        partition, in_sync, tuple(node for node in eligible if node not in offline), facts=facts
    )
    first = assignment.replicas[0]
    if happening.election is Election.PREFERRED and first in in_sync and _can_read(first, facts):
        leader = first if _can_lead(first, facts) else leader
    is_unclean = leader is None and happening.election is Election.UNCLEAN
    if is_unclean:
        leader = _any_leader(
            partition,
            [node for node in assignment.replicas if node not in offline],
            bereft,
            facts=facts,
        )
        is_unclean = leader is not None
    if leader is not None and leader not in in_sync:
        in_sync = (leader,)
        if facts.may_complete:
            assignment, in_sync = _completed(assignment, in_sync)
    eligible = (
        ()
        if is_unclean
        else _eligible(partition, happening, assignment, in_sync=in_sync, facts=facts)
    )
    changed = replace(
        partition,
        replicas=assignment.replicas,
        in_sync_replicas=in_sync,
        eligible_leader_replicas=eligible,
        leader=leader,
        adding_replicas=assignment.adding_replicas,
        removing_replicas=assignment.removing_replicas,
        offline_replicas=tuple(node for node in eligible if node in offline),
        bereft_replicas=tuple(
            node for node in assignment.replicas if node in bereft and node not in in_sync
        ),
    )
    return _with_epochs(partition, changed, is_unclean=is_unclean)


def _in_sync(
    partition: Partition, happening: Happening, replicas: tuple[int, ...], *, facts: Facts
) -> tuple[int, ...]:
    wanted = happening.in_sync_replicas
    if wanted is None:
        wanted = partition.in_sync_replicas
    gone = {*happening.lost, *happening.offline}
    alive = tuple(
        node for node in replicas if node in wanted and node not in gone and _is_alive(node, facts)
    )
    can_lead = tuple(node for node in alive if _can_lead(node, facts))
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


def _clean_leader(
    partition: Partition, in_sync: tuple[int, ...], eligible: tuple[int, ...], *, facts: Facts
) -> int | None:
    leader = partition.leader
    if leader is not None and leader in in_sync and _can_lead(leader, facts):
        return leader
    # Stable: in the order of the replicas among those who can read, then among the others.
    rather = sorted(in_sync, key=lambda node: not _can_read(node, facts))
    for node in (*rather, *eligible):
        if _can_lead(node, facts):
            return node
    if leader in in_sync:
        return leader
    return in_sync[0] if in_sync else None


def _any_leader(
    partition: Partition, replicas: Sequence[int], bereft: Collection[int], *, facts: Facts
) -> int | None:
    last = partition.last_known_leader
    # Stable: the last known leader, then in the order of the replicas; the bereft ones after all.
    rather = sorted(replicas, key=lambda node: (node in bereft, node != last))
    return next((node for node in rather if _can_lead(node, facts)), None)


def _eligible(
    partition: Partition,
    happening: Happening,
    assignment: Assignment,
    *,
    in_sync: tuple[int, ...],
    facts: Facts,
) -> tuple[int, ...]:
    replication_factor = len(assignment.replicas) - len(assignment.adding_replicas)
    if len(in_sync) >= facts.min_insync_replicas(replication_factor):
        return ()
    before = (*partition.in_sync_replicas, *partition.eligible_leader_replicas)
    return tuple(
        node
        for node in assignment.replicas
        if node in before and node not in in_sync and node not in happening.lost
    )


def _with_epochs(partition: Partition, changed: Partition, *, is_unclean: bool) -> Partition:
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
        data_loss_epoch=leader_epoch if is_unclean else partition.data_loss_epoch,
    )
    if changed == partition:
        return partition
    return replace(changed, partition_epoch=partition.partition_epoch + 1)


def _is_alive(node: int, facts: Facts) -> bool:
    return not facts.brokers[node].is_fenced


def _can_lead(node: int, facts: Facts) -> bool:
    return facts.brokers[node].can_lead


def _can_read(node: int, facts: Facts) -> bool:
    return facts.readers is None or node in facts.readers
