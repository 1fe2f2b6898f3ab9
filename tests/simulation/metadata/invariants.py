"""Invariants of a cluster's metadata, in each state and between two entries."""

from collections.abc import Iterator, Mapping

import pytest

from tidelog.coordinator.metadata.catalog import AlterTopic, Catalog, QueueSpec, Topic
from tidelog.coordinator.metadata.cluster_config import min_insync_replicas
from tidelog.coordinator.metadata.commands import (
    AlterClusterConfig,
    AlterPartitions,
    Command,
    ElectLeaders,
    ElectRecovered,
    FenceBroker,
    ReassignReplicas,
    RefuseTruncation,
    RegisterBroker,
    RemoveFromIsr,
    ReportLogEnds,
)
from tidelog.coordinator.metadata.records import LogEnd, PartitionRegistration
from tidelog.coordinator.metadata.replica_index import NO_PARTITION, ReplicaIndex
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.wire.messages.features import SupportedLevels

Partitions = dict[tuple[bytes, int], PartitionRegistration]


def all_partitions(state: ClusterState) -> Partitions:
    return {
        (topic.topic_id, number): partition
        for topic in state.catalog.topics
        for number, partition in enumerate(state.partitions(topic.topic_id))
    }


def check_state(state: ClusterState) -> None:
    """Check the invariants of a state."""
    index = ReplicaIndex()
    for topic in state.catalog.topics:
        partitions = state.partitions(topic.topic_id)
        assert len(partitions) in {topic.partition_count, 0}
        if topic.queue is not None:
            _check_journal(state, topic, topic.queue)
        if topic.staging_of is not None:
            _check_staging(state, topic)
        for number, partition in enumerate(partitions):
            _check_members(state, topic, partition)
            index.moved(topic.topic_id, number, NO_PARTITION, after=partition)
        _check_reassignments(state, topic)
    _check_index(state, index)
    _check_catalog(state.catalog)
    _check_events(state)
    _check_levels(state)
    epochs = [broker.broker_epoch for broker in state.brokers.values()]
    assert len(set(epochs)) == len(epochs)
    assert all(epoch < state.next_broker_epoch for epoch in epochs)
    disks = [broker.disk_id for broker in state.brokers.values()]
    assert len(set(disks)) == len(disks)


def _check_catalog(catalog: Catalog) -> None:
    """Check that the indexes of the catalog equal those computed from its topics."""
    counted = [each for each in catalog.topics if each.staging_of is None and not each.is_audit]
    for owner in {each.owner for each in counted}:
        own = [each for each in counted if each.owner == owner]
        partitions = sum(each.partition_count for each in own)
        queues = sum(each.queue is not None for each in own)
        assert catalog.owned(owner) == (partitions, queues)
    targets = {
        each.queue_name: each.queue_config.dead_letter_queue
        for each in catalog.journals
        if each.queue_config is not None and each.queue_config.dead_letter_queue is not None
    }
    for name in {*targets.values(), *(each.queue_name for each in catalog.journals)}:
        sources = [each.queue_name for each in catalog.dead_letter_sources(name)]
        assert sources == sorted(each for each, target in targets.items() if target == name)


def _check_levels(state: ClusterState) -> None:
    level = state.feature_level
    assert state.used_level <= level, "a record was written too early, or the level fell too far"
    for broker in state.brokers.values():
        known = broker.supported_levels or SupportedLevels(0, 0)
        assert known.min_level <= level <= known.max_level, f"{broker.node_id} cannot be here"


def _check_events(state: ClusterState) -> None:
    """Check that events have rising ids, and that the last ones are kept until acknowledged."""
    events = state.events
    ids = [each.event_id for each in events.unacknowledged]
    assert ids == sorted(set(ids)), "ids do not rise"
    assert all(1 <= event_id <= events.total for event_id in ids)
    reports = {
        (each.topic_id, each.partition, each.node_id, each.leader_epoch, each.first_offset)
        for each in events.reports
    }
    assert len(reports) == len(events.reports), "one report is two events"


def _check_members(state: ClusterState, topic: Topic, partition: PartitionRegistration) -> None:
    replicas = partition.replicas
    in_sync = partition.in_sync_replicas
    eligible = partition.eligible_leader_replicas
    minimum = min_insync_replicas(topic, state.config, partition.replication_factor)
    assert replicas
    assert len(set(replicas)) == len(replicas)
    assert all(node in state.brokers for node in replicas)
    assert in_sync == tuple(node for node in replicas if node in in_sync)
    assert eligible == tuple(node for node in replicas if node in eligible)
    assert not set(in_sync) & set(eligible)
    assert partition.offline_replicas == tuple(
        node for node in eligible if node in partition.offline_replicas
    )
    assert partition.wiped_replicas == tuple(
        node for node in replicas if node in partition.wiped_replicas
    )
    assert not {*in_sync, *eligible}.intersection(partition.wiped_replicas), "wiped but counted"
    refusing = [each.node_id for each in partition.refusing_replicas]
    assert refusing == [node for node in replicas if node in refusing]
    assert not {*in_sync, *partition.wiped_replicas}.intersection(refusing), "it has joined"
    assert not eligible or len(in_sync) < minimum, "eligible although enough are in sync"
    assert (partition.leader is None) == (in_sync == ())
    assert partition.leader is None or partition.leader in in_sync
    assert partition.leader is None or partition.last_known_leader is None
    assert not any(state.brokers[node].is_fenced for node in in_sync), "fenced, but in sync"
    stopping = [node for node in in_sync if state.brokers[node].is_shutting_down]
    assert not stopping or len(stopping) == len(in_sync), "another replica could lead"
    if partition.leader is None:
        able = set(eligible).difference(partition.offline_replicas)
        able -= {each.node_id for each in partition.unverified_replicas}
        waiting = [node for node in able if state.brokers[node].can_lead]
        assert not waiting, "a replica could lead"
    _check_unverified(state, partition)


def _check_unverified(state: ClusterState, partition: PartitionRegistration) -> None:
    recovered = {each.node_id: each.log_end for each in partition.unverified_replicas}
    assert list(recovered) == [node for node in partition.replicas if node in recovered]
    assert not recovered.keys() & {*partition.in_sync_replicas}, "in sync, but not verified"
    if partition.leader is not None:
        assert not any(recovered.values()), "the report of an earlier leader epoch"
        return
    ends = {node: end for node, end in recovered.items() if end is not None}
    eligible = partition.eligible_leader_replicas
    awaited = {*eligible} if len(eligible) > 1 else {*eligible, *recovered}
    if eligible and awaited <= ends.keys():
        greatest = _with_most(ends)
        best = [node for node in greatest if node in eligible] or greatest
        node = best[0]
        assert node in partition.offline_replicas or not state.brokers[node].can_lead, (
            "the replica with the greatest log end could lead"
        )


def _with_most(ends: Mapping[int, LogEnd]) -> list[int]:
    """Return the replicas whose logs have all records of the others."""
    deleted = [end.log_end_offset for end in ends.values() if end.is_whole and end.leader_epoch < 0]
    later = {
        node: end
        for node, end in ends.items()
        if all(end.log_end_offset >= offset for offset in deleted)
    }
    return [node for node, end in later.items() if end == max(later.values())]


def _check_journal(state: ClusterState, journal: Topic, spec: QueueSpec) -> None:
    """Check that a journal has its topic's brokers and guarantees, and loses no dead letters."""
    source = state.catalog.topic_by_id(spec.source_topic_id)
    assert source is not None, "the topic of a queue is gone"
    assert source.queue is None
    assert journal in state.catalog.journals_of(source.topic_id)
    assert journal.partition_count == source.partition_count == len(spec.start_offsets)
    assert journal.config.durability is source.config.durability
    assert journal.config.min_insync_replicas == source.config.min_insync_replicas
    for ours, theirs in zip(
        state.partitions(journal.topic_id), state.partitions(source.topic_id), strict=True
    ):
        assert _place(ours) == _place(theirs), "a journal has other brokers than its topic"
    seen = {journal.topic_id}
    topics = {source.topic_id}
    target = _dead_letter_journal(state, journal)
    while target is not None:
        assert target.queue is not None
        assert target.queue.is_fifo == spec.is_fifo
        assert target.source_id not in topics, "dead letters come back"
        assert target.topic_id not in seen
        seen.add(target.topic_id)
        topics.add(target.source_id)
        target = _dead_letter_journal(state, target)


def _check_staging(state: ClusterState, staging: Topic) -> None:
    """Check that a staging log has its topic's brokers and guarantees."""
    source = state.catalog.topic_by_id(staging.source_id)
    assert source is not None, "the topic of a staging log is gone"
    assert not source.is_internal
    assert state.catalog.staging_of(source.topic_id) is staging
    assert staging.partition_count == source.partition_count
    assert staging.config.durability is source.config.durability
    assert staging.config.min_insync_replicas == source.config.min_insync_replicas
    assert staging.config.log.max_message_bytes == source.config.log.max_message_bytes
    for ours, theirs in zip(
        state.partitions(staging.topic_id), state.partitions(source.topic_id), strict=True
    ):
        assert _place(ours) == _place(theirs), "a staging log has other brokers than its topic"


def _dead_letter_journal(state: ClusterState, journal: Topic) -> Topic | None:
    assert journal.queue_config is not None
    name = journal.queue_config.dead_letter_queue
    return None if name is None else state.catalog.journal(name)


def _place(partition: PartitionRegistration) -> tuple[tuple[int, ...], ...]:
    return partition.replicas, partition.adding_replicas, partition.removing_replicas


def _check_reassignments(state: ClusterState, topic: Topic) -> None:
    """Check that a move lasts until the topic and all of its internal topics are ready."""
    if topic.is_internal:
        return
    together = [topic, *state.catalog.internal_topics_of(topic.topic_id)]
    for partitions in zip(*(state.partitions(each.topic_id) for each in together), strict=True):
        replicas = set(partitions[0].replicas)
        adding, removing = set(partitions[0].adding_replicas), set(partitions[0].removing_replicas)
        assert adding | removing <= replicas
        assert not adding & removing
        if partitions[0].is_reassigning:
            are_ready = [
                replicas - removing <= set(partition.in_sync_replicas) for partition in partitions
            ]
            assert not all(are_ready), "a complete reassignment is still in progress"


def _check_index(state: ClusterState, index: ReplicaIndex) -> None:
    assert set(state.index.not_preferred) == set(index.not_preferred)
    assert set(state.index.awaiting_reports) == set(index.awaiting_reports)
    for node_id in {*state.brokers, *range(8)}:
        assert state.index.load(node_id) == index.load(node_id)
        assert state.index.topic_ids(node_id) == index.topic_ids(node_id)


def check_step(before: Partitions, state: ClusterState, command: Command) -> None:
    """Check the invariants between the state before a command with records and after it."""
    for key, now in all_partitions(state).items():
        was = before.get(key)
        new = set(now.replicas) - set(() if was is None else was.replicas)
        topic = state.catalog.topic_by_id(key[0])
        assert topic is not None
        if topic.is_internal and was is None:
            new.clear()  # A new internal topic has its topic's brokers, even drained ones.
        assert not new & set(state.drained_node_ids), "a drained broker got a replica"
        if was is None:
            continue
        removed = not set(was.replicas) <= set(now.replicas)
        assert now.partition_epoch == was.partition_epoch + (was != now)
        assert now.leader_epoch >= was.leader_epoch
        assert (now.leader_epoch > was.leader_epoch) == (was.leader != now.leader or removed)
        if now.data_loss_epoch != was.data_loss_epoch and isinstance(command, ElectLeaders):
            events = state.events.unacknowledged
            places = [(each.topic_id, each.partition, each.leader_epoch) for each in events]
            assert (*key, now.data_loss_epoch) in places, "an accepted loss is no event"
        for reason in _unfounded_leader(was, now, command):
            raise AssertionError(f"{reason}: {was} became {now} by {command}")
        if removed and not isinstance(command, ReassignReplicas):
            assert now.replicas == now.in_sync_replicas, "replicas left before others joined"
        _check_reports(key, was, now=now, command=command)
        if isinstance(command, RemoveFromIsr):
            _check_removal(state, key, (was, now), command=command)
        elif isinstance(command, RefuseTruncation):
            _check_refusal(state, (was, now), command=command)
        elif not isinstance(
            command, RegisterBroker | AlterClusterConfig | AlterTopic | ElectLeaders
        ):
            _check_copies(state, key, was, now=now)


def _unfounded_leader(
    was: PartitionRegistration, now: PartitionRegistration, command: Command
) -> Iterator[str]:
    if now.leader in {None, was.leader}:
        return
    if now.data_loss_epoch != was.data_loss_epoch:
        if not (isinstance(command, ElectLeaders) and command.accept_data_loss):
            yield "records were lost and no loss was accepted"
        return
    if isinstance(command, RefuseTruncation):
        return  # See `_check_refusal`.
    if isinstance(command, AlterPartitions):
        return  # A leader that is about to stop hands over to a replica that has just caught up.
    if any(each.node_id == now.leader for each in was.unverified_replicas):
        yield from _unfounded_comparison(was, now, command)
    elif now.leader not in {*was.in_sync_replicas, *was.eligible_leader_replicas}:
        yield "the new leader may lack committed records"
    if now.leader in was.offline_replicas:
        yield "the log of the new leader is offline"


def _unfounded_comparison(
    was: PartitionRegistration, now: PartitionRegistration, command: Command
) -> Iterator[str]:
    """Yield what speaks against a recovered replica as the new leader."""
    assert now.leader is not None
    ends = {each.node_id: each.log_end for each in was.unverified_replicas}
    relied_on = {*was.in_sync_or_eligible}
    if isinstance(command, RegisterBroker | RemoveFromIsr):
        relied_on.discard(command.node_id)  # It has lost records.
        ends.pop(command.node_id, None)
    elif isinstance(command, ReportLogEnds):
        ends[command.node_id] = command.logs[0].log_end
    reported = {node: end for node, end in ends.items() if end is not None}
    if len(now.replicas) == 1 and now.leader in relied_on:
        return
    if not relied_on & reported.keys():
        yield "no replica with all committed records was compared"
    if isinstance(command, ElectRecovered):
        return
    relied_on &= {*now.replicas}
    awaited = relied_on if len(relied_on) > 1 else relied_on | ends.keys() & {*now.replicas}
    if awaited - reported.keys() or now.leader not in _with_most(reported):
        yield "another replica may have more committed records"


def _check_refusal(
    state: ClusterState,
    step: tuple[PartitionRegistration, PartitionRegistration],
    *,
    command: RefuseTruncation,
) -> None:
    """Check that a leader steps down only for a replica that has all committed records."""
    was, now = step
    node = command.node_id
    if now.leader == was.leader:
        assert now.in_sync_or_eligible == was.in_sync_or_eligible
        return
    assert (now.leader, now.in_sync_replicas) == (node, (node,))
    assert node in was.in_sync_or_eligible, "the new leader may lack committed records"
    assert state.brokers[node].can_lead
    assert now.data_loss_epoch == was.data_loss_epoch, "nothing is lost"
    assert {*now.eligible_leader_replicas} <= {*was.eligible_leader_replicas} - {node}


def _check_removal(
    state: ClusterState,
    key: tuple[bytes, int],
    step: tuple[PartitionRegistration, PartitionRegistration],
    *,
    command: RemoveFromIsr,
) -> None:
    """Check that a broker removes only its own replicas, and only when others can lead."""
    was, now = step
    node = command.node_id
    named = [each for each in command.replicas if (each.topic_id, each.partition) == key]
    is_lost = any(replica.is_lost for replica in named)
    may_lack = is_lost or any(replica.may_lack_records for replica in named)
    if was == now:
        in_sync_or_eligible = {*was.in_sync_replicas}
        if may_lack or any(replica.is_offline for replica in named):
            in_sync_or_eligible |= {*was.eligible_leader_replicas}
        others = [
            each
            for each in in_sync_or_eligible - {node, *was.offline_replicas}
            if state.brokers[each].can_lead
        ]
        if node in was.offline_replicas and not may_lack:
            in_sync_or_eligible.discard(node)
        assert not (is_lost and node in was.in_sync_or_eligible), "a lost replica counts"
        assert not (named and node in in_sync_or_eligible and others), "it still counts"
        return
    if not named:
        # The named partition and this one are of a topic and its journals: they move together.
        assert was.is_reassigning, "another replica was removed"
        assert not now.is_reassigning, "another replica was removed"
        return  # `check_step` checks the end of a move.
    assert now.leader != node, "the removed replica leads"
    is_comparing = any(
        each.node_id in now.eligible_leader_replicas for each in now.unverified_replicas
    )
    assert now.leader is not None or is_lost or is_comparing, "the partition has no leader any more"
    assert not is_lost or node in now.wiped_replicas, "the replica is not marked as wiped"
    assert node not in now.in_sync_replicas, "it was removed, but is in sync"
    topic = state.catalog.topic_by_id(key[0])
    assert topic is not None
    is_offline = any(replica.is_offline for replica in named)
    if may_lack or (is_offline and state.may_lose_committed(topic, state.brokers[node])):
        assert node not in now.eligible_leader_replicas, "it may lack records, but is eligible"
    else:
        _check_copies(state, key, was, now=now)
        is_eligible = node in now.eligible_leader_replicas
        assert not is_offline or is_eligible == (node in now.offline_replicas)
    left = {*was.in_sync_replicas, *was.eligible_leader_replicas} - {node}
    have = {*now.in_sync_replicas, *now.eligible_leader_replicas}
    # When no more replicas are awaited, the greatest reported log leads (`_unfounded_leader`).
    elected = {now.leader} if was.leader is None else set[int]()
    assert have <= left | {node} | elected, "a replica became eligible that was not"


def _check_reports(
    key: tuple[bytes, int],
    was: PartitionRegistration,
    *,
    now: PartitionRegistration,
    command: Command,
) -> None:
    """Check which replicas are compared, and which reports count."""
    ends = {each.node_id: each.log_end for each in now.unverified_replicas}
    match command:
        case RegisterBroker():
            assert ends.get(command.node_id) is None, "an earlier process has reported"
        case FenceBroker() if command.node_id in was.in_sync_replicas and len(now.replicas) > 1:
            assert command.node_id in {*now.in_sync_or_eligible, *ends}, (
                "a replica that left the ISR in silence is not compared"
            )
        case ReportLogEnds():
            epochs = {
                log.leader_epoch for log in command.logs if (log.topic_id, log.partition) == key
            }
            assert was == now or was.leader_epoch in epochs, "the report is of an earlier epoch"
        case _:
            pass


@pytest.mark.invariant("I61")
def _check_copies(
    state: ClusterState,
    key: tuple[bytes, int],
    was: PartitionRegistration,
    *,
    now: PartitionRegistration,
) -> None:
    topic = state.catalog.topic_by_id(key[0])
    assert topic is not None
    minimum = min_insync_replicas(topic, state.config, now.replication_factor)
    had = len({*was.in_sync_replicas, *was.eligible_leader_replicas})
    have = len({*now.in_sync_replicas, *now.eligible_leader_replicas})
    assert have >= min(had, minimum), "too few replicas with the committed records are left"


def check_same(one: ClusterState, other: ClusterState) -> None:
    """Check that two states are equal."""
    ours, theirs = dict(vars(one)), dict(vars(other))
    for part in ("catalog", "transactions", "events", "security", "_index"):
        assert vars(ours.pop(part)) == vars(theirs.pop(part))
    del ours["_pool"], theirs["_pool"]  # It only saves memory.
    assert ours == theirs
