"""Events of the cluster: a loss of committed records is recorded until it is acknowledged."""

import pytest

from tests.coordinator.metadata.clusters import NOW_MS, Cluster
from tidelog.coordinator.metadata.catalog import DeleteTopic
from tidelog.coordinator.metadata.cluster_events import (
    EVENTS_KEPT_MAX,
    ClusterEventKind,
    ClusterEvents,
    EventOffsets,
    EventPlace,
    EventRecorder,
)
from tidelog.coordinator.metadata.commands import (
    AcknowledgeEvents,
    ElectLeaders,
    ReportedLoss,
    ReportLoss,
)
from tidelog.coordinator.metadata.records import ClusterEvent, EventsAcknowledged, EventsSnapshot
from tidelog.coordinator.metadata.state_machine import MetadataStateMachine
from tidelog.wire.errors import InvalidRequestError, StaleBrokerEpochError


def killed() -> Cluster:
    """Return a cluster whose brokers were killed at once; brokers 2 and 3 are eligible."""
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.fence(1, 2, 3)
    return cluster


def events_of(cluster: Cluster) -> list[ClusterEvent]:
    """Return the unacknowledged events."""
    return list(cluster.state.events.unacknowledged)


def report(cluster: Cluster, first: int = 585, *, node: int = 1, epoch: int = 4) -> None:
    """Report that a broker has removed committed records of the first partition."""
    topic_id = cluster.state.catalog.topic("orders").topic_id
    loss = ReportedLoss(topic_id, 0, epoch, first, 600, "a detail")
    cluster.do(ReportLoss(node, cluster.broker(node).broker_epoch, [loss]))


def with_losses(count: int) -> Cluster:
    """Return a cluster with so many events."""
    cluster = Cluster(1, 2)
    cluster.create("orders", [1, 2])
    for number in range(count):
        report(cluster, 500 + number)
    return cluster


def test_an_accepted_loss_is_an_event_with_the_first_offset_that_may_be_lost() -> None:
    cluster = killed()
    cluster.start(2, unclean=True)
    cluster.report_log_end(2, 0, 585)
    key = (cluster.state.catalog.topic("orders").topic_id, 0)

    cluster.do(ElectLeaders([key], accept_data_loss=True))

    (event,) = events_of(cluster)
    assert (event.event_id, event.at_ms, event.kind) == (1, NOW_MS, "data_loss_accepted")
    assert (event.topic_id, event.topic, event.partition) == (key[0], "orders", 0)
    assert (event.node_id, event.leader_epoch) == (2, cluster.partition().leader_epoch)
    assert (event.first_offset, event.end_offset, event.record_count) == (585, None, None)
    assert "broker 3 had all committed records" in event.detail
    assert len(cluster.state.data_losses) == 1, "the list of accepted losses stays"


def test_an_election_that_loses_nothing_is_no_event() -> None:
    cluster = killed()
    for node in (2, 3):
        cluster.start(node, unclean=True)
    cluster.report_log_end(2, 0, 585)
    assert cluster.report_log_end(3, 0, 600).leader == 3

    key = (cluster.state.catalog.topic("orders").topic_id, 0)
    cluster.do(ElectLeaders([key], accept_data_loss=True))

    assert events_of(cluster) == []


def test_an_election_without_a_silent_replica_is_an_event_that_names_it() -> None:
    cluster = killed()
    cluster.start(2, unclean=True)
    cluster.report_log_end(2, 0, 585)

    assert cluster.end_wait().leader == 2

    (event,) = events_of(cluster)
    assert (event.kind, event.node_id) == ("elected_without_replicas", 2)
    assert (event.first_offset, event.end_offset) == (585, None)
    assert "brokers 1, 3 did not report within the wait" in event.detail


def test_an_election_without_the_replica_with_most_records_counts_what_is_missing() -> None:
    cluster = killed()
    cluster.start(2, unclean=True)
    cluster.register(3, unclean=True)
    cluster.report_log_end(3, 0, 600)
    assert cluster.report_log_end(2, 0, 585).leader is None

    assert cluster.end_wait().leader == 2

    (event,) = events_of(cluster)
    assert (event.first_offset, event.end_offset, event.record_count) == (585, 600, 15)
    assert "broker 3 reported more records and could not lead" in event.detail


def test_the_end_of_a_wait_without_an_election_is_no_event() -> None:
    cluster = killed()
    cluster.register(2, unclean=True)
    cluster.report_log_end(2, 0, 585)

    assert cluster.end_wait().leader is None

    assert events_of(cluster) == []


def test_a_broker_reports_a_loss_once() -> None:
    cluster = with_losses(1)

    report(cluster, 500)
    report(cluster, 500, node=2)
    report(cluster, 500, epoch=5)

    found = [(event.event_id, event.node_id, event.leader_epoch) for event in events_of(cluster)]
    assert found == [(1, 1, 4), (2, 2, 4), (3, 1, 5)]
    assert events_of(cluster)[0].record_count == 100


def test_a_late_retry_of_an_acknowledged_report_is_no_new_event() -> None:
    cluster = with_losses(1)
    cluster.do(AcknowledgeEvents([1]))

    report(cluster, 500)

    assert events_of(cluster) == []
    assert cluster.state.events.total == 1


def test_a_report_of_an_earlier_process_is_refused_and_one_of_a_deleted_topic_skipped() -> None:
    cluster = with_losses(0)
    topic_id = cluster.state.catalog.topic("orders").topic_id
    loss = ReportedLoss(topic_id, 0, 4, 585, 600, "a detail")

    with pytest.raises(StaleBrokerEpochError):
        cluster.do(ReportLoss(1, cluster.broker(1).broker_epoch - 1, [loss]))
    cluster.do(DeleteTopic("orders"))
    cluster.do(ReportLoss(1, cluster.broker(1).broker_epoch, [loss]))

    assert events_of(cluster) == []


def test_acknowledged_events_are_gone_by_id_or_up_to_an_id() -> None:
    cluster = with_losses(5)

    cluster.do(AcknowledgeEvents([4], up_to_id=2))

    assert [event.event_id for event in events_of(cluster)] == [3, 5]
    assert cluster.handle(AcknowledgeEvents([4], up_to_id=2)).records == []
    assert cluster.state.events.total == 5


@pytest.mark.parametrize("unknown", [0, 3])
def test_an_event_that_never_was_cannot_be_acknowledged(unknown: int) -> None:
    cluster = with_losses(2)

    with pytest.raises(InvalidRequestError, match=f"no event {unknown}: the newest event is 2"):
        cluster.do(AcknowledgeEvents([1, unknown]))

    assert len(events_of(cluster)) == 2


def test_the_oldest_and_the_newest_event_can_be_acknowledged() -> None:
    cluster = with_losses(3)

    cluster.do(AcknowledgeEvents([1, 3]))

    assert [event.event_id for event in events_of(cluster)] == [2]
    with pytest.raises(InvalidRequestError, match="no event 1: the cluster has no events"):
        Cluster(1).do(AcknowledgeEvents([1]))


def test_a_report_is_recognized_among_the_last_thousand() -> None:
    events = ClusterEvents(EventsSnapshot())

    def reported(number: int) -> list[ClusterEvent]:
        recorder = EventRecorder(events, now_ms=NOW_MS)
        offsets = EventOffsets(number, number + 1)
        recorder.record("records_lost", "a detail", offsets=offsets, is_reported=True)
        return [each for each in recorder.records() if isinstance(each, ClusterEvent)]

    for number in range(1001):
        (event,) = reported(number)
        events.apply(event)

    assert reported(1) == []
    assert [event.event_id for event in reported(0)] == [1002]


def test_events_survive_their_topic_and_a_snapshot() -> None:
    cluster = with_losses(3)
    cluster.do(AcknowledgeEvents([2]))
    cluster.do(DeleteTopic("orders"))

    restored = MetadataStateMachine.from_snapshot(cluster.machine.snapshot())

    assert [event.topic for event in restored.state.events.unacknowledged] == ["orders", "orders"]
    assert restored.state.events.snapshot() == cluster.state.events.snapshot()


def test_the_oldest_events_are_dropped_and_counted() -> None:
    events = ClusterEvents(EventsSnapshot())
    place = EventPlace(b"?" * 16, "orders", 0, 4)

    for number in range(EVENTS_KEPT_MAX + 5):
        recorder = EventRecorder(events, now_ms=NOW_MS)
        offsets = EventOffsets(number, number + 1)
        recorder.record(ClusterEventKind.RECORDS_LOST, "a\ndetail", place=place, offsets=offsets)
        for record in recorder.records():
            assert isinstance(record, ClusterEvent)
            events.apply(record)

        assert events.dropped == max(0, number + 1 - 1000)
    assert (len(events.unacknowledged), events.total, events.dropped) == (1000, 1005, 5)
    assert (events.unacknowledged[0].event_id, events.unacknowledged[0].detail) == (6, "a detail")
    events.apply(EventsAcknowledged([6]))
    assert events.dropped == 5


def test_one_command_numbers_its_events_and_drops_repeated_reports() -> None:
    recorder = EventRecorder(ClusterEvents(EventsSnapshot(total=7)), now_ms=NOW_MS)

    for kind in ("one", "two", "one"):
        recorder.record(kind, "a detail", node_id=1, is_reported=True)

    found = [each for each in recorder.records() if isinstance(each, ClusterEvent)]
    assert [(each.event_id, each.kind, each.topic_id) for each in found] == [
        (8, "one", b""),
        (9, "two", b""),
    ]
