"""A broker that acts on deltas only, compared with the metadata."""

from random import Random

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tests.simulation.metadata.invariants import all_partitions, check_same
from tests.simulation.metadata.moves import NODES, drawn_moves, run
from tidelog.coordinator.metadata import partition_changes
from tidelog.coordinator.metadata.broker_delta import BrokerDelta, Key
from tidelog.coordinator.metadata.catalog import AlterTopic, DeleteTopic
from tidelog.coordinator.metadata.commands import Reassignment, ReassignReplicas
from tidelog.coordinator.metadata.records import PartitionRegistration, Record
from tidelog.coordinator.metadata.state import ClusterState

ME = 1


class Follower:
    """An image, and the state of a broker that follows it."""

    def __init__(self, node_id: int) -> None:
        """Start empty."""
        self.node_id = node_id
        self.state = ClusterState()
        self.leads: dict[Key, PartitionRegistration] = {}
        self.follows: dict[Key, PartitionRegistration] = {}
        self.deleted: set[Key] = set()

    def follow(self, records: list[Record]) -> BrokerDelta:
        delta = BrokerDelta.from_records(self.state, records, self.node_id)
        self._act(delta)
        return delta

    def install(self, state: ClusterState) -> BrokerDelta:
        """Install an image from a snapshot."""
        delta = BrokerDelta.from_states(self.state, state, self.node_id)
        self.state = state
        self._act(delta)
        return delta

    def _act(self, delta: BrokerDelta) -> None:
        for key, partition in delta.lead.items():
            self.follows.pop(key, None)
            assert key not in self.leads or self.leads[key].leader_epoch < partition.leader_epoch
            self.leads[key] = partition
        for key, partition in delta.lead_on.items():
            assert self.leads[key].leader_epoch == partition.leader_epoch
            self.leads[key] = partition
        for key, partition in delta.follow.items():
            self.leads.pop(key, None)
            self.follows[key] = partition
        for key in (*delta.remove, *delta.delete):
            assert (key in self.leads) != (key in self.follows)
            self.leads.pop(key, None)
            self.follows.pop(key, None)
            self.deleted.add(key)

    def check(self) -> None:
        """Compare with the whole image."""
        there = all_partitions(self.state)
        leads = {key: part for key, part in there.items() if part.leader == self.node_id}
        has = {key: part for key, part in there.items() if self.node_id in part.replicas}
        assert self.leads == leads
        assert self.follows == {key: part for key, part in has.items() if key not in leads}


def at_broker_1(cluster: Cluster) -> Follower:
    follower = Follower(ME)
    follower.follow(cluster.records)
    cluster.records.clear()
    return follower


def test_a_broker_leads_and_follows_created_partitions() -> None:
    cluster = Cluster(1, 2, 3)
    follower = at_broker_1(cluster)
    topic_id = cluster.create("orders", [1, 2], [2, 1], [2, 3])

    delta = follower.follow(cluster.records)

    assert list(delta.lead) == [(topic_id, 0)]
    assert list(delta.follow) == [(topic_id, 1)]
    assert (delta.lead_on, delta.remove, delta.delete) == ({}, {}, {})
    assert not delta.has_changed_brokers


def test_an_isr_change_is_no_new_leadership() -> None:
    cluster = Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2])
    follower = at_broker_1(cluster)
    cluster.fence(2)

    delta = follower.follow(cluster.records)

    assert list(delta.lead_on) == [(topic_id, 0)]
    assert delta.lead == {}
    assert delta.has_changed_brokers


def test_a_leadership_that_moves_and_comes_back_has_a_new_epoch() -> None:
    cluster = Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2])
    follower = at_broker_1(cluster)
    cluster.in_sync(1)
    cluster.start(1)

    delta = follower.follow(cluster.records)

    assert list(delta.lead) == [(topic_id, 0)]
    assert delta.lead[topic_id, 0].leader_epoch == 2


def test_a_replica_that_moved_away_is_removed_and_one_of_a_deleted_topic_is_deleted() -> None:
    cluster = Cluster(1, 2)
    orders = cluster.create("orders", [1])
    ticks = cluster.create("ticks", [1], [2])
    follower = at_broker_1(cluster)
    cluster.do(ReassignReplicas([Reassignment(orders, 0, [2])]))
    cluster.in_sync(1, 2)
    cluster.do(DeleteTopic("ticks"))

    delta = follower.follow(cluster.records)

    assert list(delta.remove) == [(orders, 0)]
    assert list(delta.delete) == [(ticks, 0)]


def test_a_topic_created_and_deleted_in_one_delta_is_only_named() -> None:
    cluster = Cluster(1)
    follower = at_broker_1(cluster)
    topic_id = cluster.create("orders", [1])
    cluster.do(DeleteTopic("orders"))

    assert follower.follow(cluster.records) == BrokerDelta(reshaped_topics={topic_id: "orders"})


def test_created_and_deleted_topics_are_named_in_the_delta() -> None:
    cluster = Cluster(1)
    orders = cluster.create("orders", [1])
    follower = at_broker_1(cluster)
    before = ClusterState.from_snapshot(follower.state.snapshot())
    cluster.do(DeleteTopic("orders"))
    ticks = cluster.create("ticks", [1])

    delta = follower.follow(cluster.records)

    assert delta.reshaped_topics == {orders: "orders", ticks: "ticks"}
    assert (
        BrokerDelta.from_states(before, follower.state, ME).reshaped_topics == delta.reshaped_topics
    )


def test_changed_topic_settings_are_in_the_delta() -> None:
    cluster = Cluster(1)
    topic_id = cluster.create("orders", [1])
    follower = at_broker_1(cluster)
    cluster.do(AlterTopic("orders", {"retention_ms": "1h"}, []))

    assert list(follower.follow(cluster.records).altered_topics) == [topic_id]


@pytest.mark.invariant("I65")
def test_replicas_missing_in_a_snapshot_are_not_deleted() -> None:
    """I65: replicas are deleted when the log says that their topic is."""
    cluster = Cluster(1)
    cluster.create("orders", [1])
    follower = at_broker_1(cluster)

    delta = BrokerDelta.from_states(follower.state, ClusterState(), ME)

    assert (delta.delete, delta.remove) == ({}, {})


@pytest.mark.parametrize("seed", range(40))
def test_a_broker_that_applies_deltas_follows_the_metadata(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(partition_changes, "_VERY_MANY", 2)
    random = Random(seed)
    cluster = run(drawn_moves(seed)).cluster
    followers = [Follower(node_id) for node_id in range(1, NODES + 1)]
    records = list(cluster.records)

    while records:
        size = random.randint(1, 12)
        batch, records = records[:size], records[size:]
        for follower in followers:
            if random.random() < 0.2:
                # It was away, and gets a snapshot.
                newer = ClusterState.from_snapshot(follower.state.snapshot())
                for record in batch:
                    newer.apply(record)
                follower.install(newer)
            else:
                follower.follow(batch)
            follower.check()

    for follower in followers:
        check_same(follower.state, cluster.state)
