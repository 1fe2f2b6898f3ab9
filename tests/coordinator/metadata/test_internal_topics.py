"""Internal topics are colocated with their sources; the dead-letter graph has no cycle."""

import pytest

from tests.coordinator.metadata.clusters import Cluster
from tests.coordinator.metadata.queues import creation, make
from tidelog.coordinator.metadata.commands import AlterQueue, DeleteQueue
from tidelog.coordinator.metadata.dead_letter_graph import (
    check_dead_letter_queue,
)
from tidelog.coordinator.metadata.internal_topics import (
    colocated_leader,
    colocated_partitions,
    journal_overrides,
    listed_queues,
)
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.wire.errors import InvalidConfigError, LeaderNotAvailableError, UnknownQueueError


def test_an_internal_topic_is_colocated_with_its_source() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2], [2, 3], [3, 1])
    topic = cluster.state.catalog.topic("orders")

    every, last = (
        colocated_partitions(cluster.state, topic),
        colocated_partitions(cluster.state, topic, 2),
    )

    assert [each.replicas for each in every] == [(1, 2), (2, 3), (3, 1)]
    assert last == every[2:]


def test_the_leader_of_the_source_leads_the_internal_partition_if_it_can() -> None:
    source = PartitionRegistration((1, 2, 3), (2, 3), leader=2)

    assert colocated_leader(source, (1, 2, 3)) == 2
    assert colocated_leader(source, (1, 3)) == 3, "an ISR member before others"
    assert colocated_leader(source, (1,)) == 1


def test_an_internal_partition_without_a_live_replica_is_refused() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [2])
    cluster.fence(2)

    with pytest.raises(
        LeaderNotAvailableError, match="partition 0 of the internal topic of 'orders'"
    ):
        colocated_partitions(cluster.state, cluster.state.catalog.topic("orders"))


def test_a_journal_inherits_durability_settings_and_has_no_retention() -> None:
    overrides = journal_overrides(
        {"durability": "replicated", "min_insync_replicas": "2", "retention_ms": "1h"}
    )

    assert overrides == {
        "durability": "replicated",
        "min_insync_replicas": "2",
        "retention_ms": "unlimited",
        "segment_bytes": "16MiB",
    }
    assert "durability" not in journal_overrides({})


def test_the_source_queues_of_a_dead_letter_queue_are_listed() -> None:
    cluster = Cluster(1)
    make(cluster, creation(cluster, "dead"))
    for name in ("b", "a"):
        make(cluster, creation(cluster, name, dead_letter_queue="dead"))
    make(cluster, creation(cluster, "c"))

    assert listed_queues(cluster.state.catalog.dead_letter_sources("dead")) == "a, b"

    cluster.do(AlterQueue("a", {"dead_letter_queue": "c"}, []))
    cluster.do(DeleteQueue("b", None, with_topic=False))

    catalog = cluster.state.catalog
    found = {name: listed_queues(catalog.dead_letter_sources(name)) for name in ("dead", "c", "a")}
    assert found == {"dead": "", "c": "a", "a": ""}


@pytest.mark.statement("b58")
def test_the_dead_letter_graph_must_be_acyclic() -> None:
    cluster = Cluster(1)
    names = ("d", "c", "b", "a")
    for name, target in zip(names, ("none", *names), strict=False):
        make(cluster, creation(cluster, name, dead_letter_queue=target))
    topic_ids = {name: cluster.state.catalog.topic(name).topic_id for name in names}

    check_dead_letter_queue(cluster.state, "new", bytes(16), name="a", is_fifo=False)
    with pytest.raises(InvalidConfigError, match="from 'a' to 'b' to 'c' to 'd', which is on the"):
        check_dead_letter_queue(cluster.state, "d", topic_ids["d"], name="a", is_fifo=False)
    with pytest.raises(UnknownQueueError):
        check_dead_letter_queue(cluster.state, "d", topic_ids["d"], name="e", is_fifo=False)
