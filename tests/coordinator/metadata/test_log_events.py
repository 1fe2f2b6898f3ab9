"""Tests of the log events of metadata records: few lines, with kind, cause and places."""

from tests.coordinator.metadata.clusters import Cluster
from tidelog.coordinator.metadata.commands import (
    AlterPartitions,
    BeginShutdown,
    Command,
    ElectLeaders,
    FenceBroker,
    Reassignment,
    ReassignReplicas,
    ReportedLog,
    ReportLogEnds,
    UnfenceBroker,
)
from tidelog.coordinator.metadata.log_events import NAMED_MAX, LogEvent, log_events
from tidelog.coordinator.metadata.records import LogEnd

PARTITION_COUNT = 300


def told(cluster: Cluster, command: Command, **options: str) -> list[LogEvent]:
    """Carry out a command; return its log events above `debug`."""
    events = log_events(cluster.state, cluster.handle(command).records, **options)
    cluster.do(command)
    return [event for event in events if event.severity != "debug"]


def fence(cluster: Cluster, node_id: int) -> FenceBroker:
    return FenceBroker(node_id, cluster.broker(node_id).broker_epoch)


def one(events: list[LogEvent], name: str) -> LogEvent:
    (found,) = [event for event in events if event.name == name]
    return found


def test_a_fenced_broker_is_named_with_the_cause_and_the_failover() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2], [2, 1], [1, 3])

    events = told(cluster, fence(cluster, 1), fenced_because="it is silent")

    assert one(events, "node_fenced") == (
        "node_fenced",
        "warning",
        {"node_id": 1, "reason": "it is silent"},
    )
    elected = [event.fields for event in events if event.name == "leaders_elected"]
    assert [(each["leader_id"], each["kind"], each["reason"]) for each in elected] == [
        (2, "failover", "broker 1 is fenced"),
        (3, "failover", "broker 1 is fenced"),
    ]
    assert [each["topic"] for each in elected] == ["orders", "orders"]
    assert [each["partition"] for each in elected] == [0, 2]
    shrunk = one(events, "isr_shrunk")
    assert shrunk.severity == "warning"
    assert (shrunk.fields["node_id"], shrunk.fields["count"]) == (1, 3)
    assert shrunk.fields["partitions"] == ["orders/0", "orders/1", "orders/2"]


def test_partitions_without_a_leader_are_named() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1])

    offline = one(told(cluster, fence(cluster, 1)), "partitions_offline")

    assert offline.severity == "warning"
    assert (offline.fields["topic"], offline.fields["partition"]) == ("orders", 0)
    assert offline.fields["last_known_leader"] == 1


def test_a_broker_that_is_back_is_information() -> None:
    cluster = Cluster(1, 2)
    cluster.fence(1)
    cluster.register(1)

    events = told(cluster, UnfenceBroker(1, cluster.broker(1).broker_epoch))

    assert events == [LogEvent("node_unfenced", "info", {"node_id": 1})]


def test_an_isr_below_the_replication_factor_is_a_warning_until_it_is_complete() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    leader_epoch = cluster.broker(1).broker_epoch
    isrs = [(1,), (1, 3), (1, 2, 3)]

    events = [
        told(cluster, AlterPartitions(1, leader_epoch, [cluster.change(*isr)])) for isr in isrs
    ]

    shrunk, grown, complete = events
    assert [(each.name, each.severity, each.fields["node_id"]) for each in shrunk] == [
        ("isr_shrunk", "warning", 2),
        ("isr_shrunk", "warning", 3),
    ]
    assert [(each.name, each.severity) for each in grown] == [("isr_grown", "warning")]
    assert complete == [
        LogEvent(
            "isr_grown",
            "info",
            {
                "node_id": 2,
                "topic": "orders",
                "partition": 0,
                "count": 1,
                "under_replicated_count": 0,
                "in_sync_replicas": [1, 2, 3],
                "replication_factor": 3,
            },
        )
    ]


def test_the_end_of_a_reassignment_is_no_shrunk_isr() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2])
    cluster.do(ReassignReplicas([Reassignment(topic_id, 0, [2, 3])]))
    command = AlterPartitions(1, cluster.broker(1).broker_epoch, [cluster.change(1, 2, 3)])

    events = told(cluster, command)

    assert [(each.name, each.severity) for each in events] == [
        ("leaders_elected", "info"),
        ("isr_grown", "info"),
    ]
    assert events[0].fields["reason"] == "the replica of broker 1 has moved"


def test_an_election_by_log_ends_is_a_recovery() -> None:
    cluster = Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2])
    cluster.register(1, unclean=True)
    cluster.register(2, unclean=True)
    cluster.unfence(1)
    cluster.unfence(2)
    cluster.report_log_end(1, 0, 5)
    log = ReportedLog(topic_id, 0, cluster.partition().leader_epoch, LogEnd(0, 7, is_whole=True))

    events = told(cluster, ReportLogEnds(2, cluster.broker(2).broker_epoch, [log]))

    elected = one(events, "leaders_elected")
    assert (elected.severity, elected.fields["kind"]) == ("warning", "recovery")
    assert elected.fields["leader_id"] == 2


def test_an_eligible_replica_that_is_back_leads_after_a_failover() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1])
    cluster.fence(1)
    cluster.register(1)

    events = told(cluster, UnfenceBroker(1, cluster.broker(1).broker_epoch))

    elected = one(events, "leaders_elected")
    assert (elected.severity, elected.fields["kind"]) == ("info", "failover")
    assert elected.fields["reason"] == "it has all committed records, and is back"
    grown = one(events, "isr_grown")
    assert grown.severity == "info"


def test_a_preferred_election_is_planned() -> None:
    cluster = Cluster(1, 2)
    topic_id = cluster.create("orders", [1, 2])
    cluster.fence(1)
    cluster.start(1)
    cluster.in_sync(1, 2)

    event = one(told(cluster, ElectLeaders([(topic_id, 0)])), "leaders_elected")

    assert event.severity == "info"
    assert event.fields["kind"] == "planned"
    assert event.fields["reason"] == "it is the preferred leader"


def test_a_stopping_broker_hands_over_by_plan() -> None:
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2])
    epoch = cluster.broker(1).broker_epoch

    events = told(cluster, BeginShutdown(1, epoch))

    assert one(events, "node_stopping").fields == {"node_id": 1}
    assert one(events, "leaders_elected").fields["kind"] == "planned"
    fenced = one(told(cluster, fence(cluster, 1)), "node_fenced")
    assert fenced.severity == "info"


def test_an_unclean_election_is_a_warning() -> None:
    cluster = Cluster(1, 2, 3)
    topic_id = cluster.create("orders", [1, 2, 3])
    cluster.fence(3, 2, 1)
    cluster.start(3)

    events = told(cluster, ElectLeaders([(topic_id, 0)], accept_data_loss=True))

    elected = one(events, "leaders_elected")
    assert (elected.severity, elected.fields["kind"]) == ("warning", "unclean")
    assert elected.fields["is_unclean"]


def test_very_many_partitions_are_one_event_for_each_broker() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", *([[1, 2, 3]] * PARTITION_COUNT))
    events = log_events(cluster.state, cluster.handle(fence(cluster, 1)).records)

    above_debug = [event for event in events if event.severity != "debug"]

    assert [event.name for event in above_debug] == ["node_fenced", "leaders_elected", "isr_shrunk"]
    named = [f"orders/{number}" for number in range(NAMED_MAX)]
    assert above_debug[1].fields["partitions"] == named
    assert above_debug[1].fields["count"] == PARTITION_COUNT
    single = [event for event in events if event.name == "leader_elected"]
    assert [event.fields["partition"] for event in single] == list(range(PARTITION_COUNT))
