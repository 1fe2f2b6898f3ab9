"""Labels of topics and queues in the metadata: limits, atomic changes, snapshots, feature level."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.coordinator.metadata.clusters import Cluster
from tests.coordinator.metadata.queues import creation, make
from tidelog.coordinator.metadata.catalog import (
    AlterTopic,
    Catalog,
    Topic,
    TopicAltered,
    TopicLabelsSet,
)
from tidelog.coordinator.metadata.commands import (
    AlterQueue,
    CreateReplicatedTopic,
    SetFeatureLevel,
)
from tidelog.coordinator.metadata.records import PartitionsAdded
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.wire.config.labels import check_labels
from tidelog.wire.errors import InvalidConfigError, InvalidRequestError, QueueExistsError
from tidelog.wire.messages.features import OWN_LEVELS

TEAM = {"team": "billing"}


def labelled_cluster() -> Cluster:
    """Return a cluster of one broker whose feature level admits labels."""
    return cluster_of_level(2)


def cluster_of_level(level: int) -> Cluster:
    cluster = Cluster()
    cluster.supported_levels = OWN_LEVELS
    cluster.start(1)
    cluster.do(SetFeatureLevel(level, [1]))
    return cluster


def topic_of(cluster: Cluster, name: str = "orders") -> Topic:
    return cluster.state.catalog.topic(name)


def create(cluster: Cluster, labels: dict[str, str], name: str = "orders") -> None:
    topic_id = cluster.draw().to_bytes(16, "big")
    cluster.do(CreateReplicatedTopic(name, topic_id, 1, {}, labels=labels))


def test_labels_have_at_most_64_kib_of_names_and_values_in_utf_8() -> None:
    check_labels({})
    check_labels({"a": "", "b": ""})
    check_labels({"n\u00e4me": "\u20ac" * 21_843, "bc": ""})  # 5 + 3 * 21,843 + 2 = 65,536

    wanted = "the labels have 65537 bytes of names and values, they must have at most 65536"
    with pytest.raises(InvalidConfigError, match=wanted):
        check_labels({"n\u00e4me": "\u20ac" * 21_843, "bcd": ""})
    with pytest.raises(InvalidConfigError, match="a label has an empty name"):
        check_labels({"": "x"})


def test_a_topic_is_created_with_labels_in_one_entry() -> None:
    cluster = labelled_cluster()
    command = CreateReplicatedTopic("orders", bytes(16), 1, {}, labels=TEAM)

    kinds = [type(record) for record in cluster.handle(command).records]
    cluster.do(command)

    assert kinds[1:] == [TopicLabelsSet, PartitionsAdded]
    assert topic_of(cluster).labels == TEAM


def test_settings_and_labels_change_together_or_not_at_all() -> None:
    cluster = labelled_cluster()
    create(cluster, {"team": "billing", "owner": "ann"})
    change = AlterTopic("orders", {"retention_ms": "1h"}, [])

    cluster.do(replace(change, set_labels={"cost": "7"}, remove_labels=["owner", "missing"]))

    assert topic_of(cluster).labels == {"team": "billing", "cost": "7"}
    assert topic_of(cluster).overrides == {"retention_ms": "1h"}
    assert cluster.handle(replace(change, set_labels=TEAM, remove_labels=["owner"])).records == []
    later = AlterTopic("orders", {"retention_ms": "2h"}, [])
    with pytest.raises(InvalidConfigError, match="the labels have 65553 bytes"):
        cluster.do(replace(later, set_labels={"x": "y" * 65_536}))
    with pytest.raises(InvalidConfigError, match="label 'x' cannot be set and removed"):
        cluster.do(replace(later, set_labels={"x": "y"}, remove_labels=["x"]))
    assert topic_of(cluster).overrides == {"retention_ms": "1h"}


def test_labels_of_a_queue_are_not_those_of_its_topic() -> None:
    cluster = labelled_cluster()
    create(cluster, {"of": "topic"})
    make(cluster, replace(creation(cluster, "billing", "orders"), labels=TEAM))

    cluster.do(AlterQueue("billing", {}, [], {"tier": "1"}, []))
    cluster.do(AlterQueue("billing", {"max_receive_count": "3"}, [], {}, ["team"]))

    journal = cluster.state.catalog.journal("billing")
    assert journal.labels == {"tier": "1"}
    assert journal.queue is not None
    assert journal.queue.overrides == {"max_receive_count": "3"}
    assert topic_of(cluster).labels == {"of": "topic"}


def test_a_repeated_creation_of_a_queue_compares_labels_if_it_has_any() -> None:
    cluster = labelled_cluster()
    make(cluster, replace(creation(cluster, "q"), labels={"team": "billing", "tier": "1"}))
    again = creation(cluster, "q")

    cluster.do(again)
    cluster.do(replace(again, labels={"tier": "1", "team": "billing"}))
    for labels, why in (
        ({"team": "sales", "tier": "1"}, "its label 'team' has another value"),
        ({"team": "billing"}, "it has a label 'tier'"),
        ({"team": "billing", "tier": "1", "owner": "ann"}, "it has no label 'owner'"),
    ):
        with pytest.raises(QueueExistsError, match=f"a queue 'q' already, and {why}"):
            cluster.do(replace(again, labels=labels))


def test_labels_are_in_the_snapshot_and_survive_other_changes() -> None:
    cluster = labelled_cluster()
    create(cluster, TEAM)
    topic_id = topic_of(cluster).topic_id
    cluster.do(AlterTopic("orders", {"retention_ms": "1h"}, []))

    restored = Catalog.from_snapshot(cluster.state.catalog.snapshot())

    assert restored.topic("orders") == topic_of(cluster)
    assert restored.topic("orders").labels == TEAM
    restored.apply(TopicAltered(topic_id, {}))
    assert restored.topic("orders").labels == TEAM
    assert cluster.state.used_level == 2


def test_labels_need_the_feature_level_that_all_nodes_know() -> None:
    cluster = cluster_of_level(1)

    create(cluster, {})
    with pytest.raises(InvalidRequestError, match="feature level 2 is needed, and the cluster has"):
        create(cluster, TEAM, "other")
    with pytest.raises(InvalidRequestError, match="feature level 2 is needed, and the cluster has"):
        cluster.do(AlterTopic("orders", {}, [], set_labels=TEAM))


def test_the_time_of_the_last_change_of_a_queue_is_kept_from_feature_level_7_on() -> None:
    cluster = cluster_of_level(6)
    make(cluster, creation(cluster, "billing"))

    def changed(at_ms: int | None, **settings: str) -> int | None:
        cluster.do(AlterQueue("billing", settings, [], altered_at_ms=at_ms))
        return cluster.state.catalog.journal("billing").modified_at_ms

    assert changed(1000, max_receive_count="3") is None
    cluster.do(SetFeatureLevel(7, [1]))
    assert changed(2000, max_receive_count="3") is None, "nothing changes"
    assert changed(3000, max_receive_count="4") == 3000
    assert changed(None, max_receive_count="5") == 3000, "a broker of an earlier version asks"
    cluster.do(AlterQueue("billing", {}, [], TEAM, altered_at_ms=4000))
    assert cluster.state.catalog.journal("billing").modified_at_ms == 4000
    restored = MetadataStateMachine.from_snapshot(cluster.machine.snapshot())
    assert restored.state.catalog.journal("billing").modified_at_ms == 4000


def test_owners_and_alerts_of_queues_need_feature_level_3() -> None:
    cluster = cluster_of_level(2)
    make(cluster, creation(cluster, "quiet"))
    needed = "feature level 3 is needed, and the cluster has level 2"

    with pytest.raises(InvalidRequestError, match=needed):
        make(cluster, replace(creation(cluster, "q"), overrides={"owner": "billing"}))
    with pytest.raises(InvalidRequestError, match=needed):
        cluster.do(AlterQueue("quiet", {"alert_age_ms": "5min"}, []))

    cluster.do(SetFeatureLevel(3, [1]))
    cluster.do(AlterQueue("quiet", {"alert_age_ms": "1h30m", "owner": "billing"}, []))
    assert cluster.state.used_level == 3
    queue = cluster.state.catalog.journal("quiet").queue
    assert queue is not None
    assert queue.overrides == {"alert_age_ms": "90min", "owner": "billing"}


def test_a_command_of_an_older_broker_has_no_labels() -> None:
    older = msgspec.msgpack.encode(["alter-queue", "q", {"max_receive_count": "3"}, []])

    assert msgspec.msgpack.decode(older, type=AlterQueue) == AlterQueue(
        "q", {"max_receive_count": "3"}, []
    )
