"""Activity of a cluster between two readings."""

from msgspec.structs import replace

from tests.tidelog.cli.top.readings import NODE, broker, cluster_of, reading
from tests.wire.cluster_samples import DESCRIBE
from tidelog.cli.top.activity import FAMILIES, activity_of
from tidelog.client.admin.metrics import BrokerMetrics
from tidelog.wire.errors import ConnectError, UnsupportedVersionError


def test_a_broker_has_rates_quantiles_and_its_present_state() -> None:
    before = reading(
        broker(
            requests_total={("PRODUCE", "OK"): 100.0, ("FETCH", "OK"): 10.0},
            process_cpu_seconds_total=5.0,
            histograms={"request_duration_seconds": [0, 0, 0, 0]},
        )
    )
    after = reading(
        broker(
            time_s=102.0,
            requests_total={("PRODUCE", "OK"): 140.0, ("FETCH", "OK"): 10.0},
            process_cpu_seconds_total=6.0,
            process_resident_memory_bytes=1e6,
            connections={("client",): 3.0, ("node",): 2.0},
            disk_free_bytes=5e9,
            histograms={"request_duration_seconds": [0, 100, 100, 100]},
        ),
        at_s=2.0,
    )

    (found,) = activity_of(before, after).brokers

    assert tuple(found) == (
        *(1, "alive", True, NODE.leader_count, 20.0),
        *(found.request_p99_s, None, 0.5, 1e6, 5.0, 5e9, ""),
    )
    assert round(found.request_p99_s or 0, 5) == 0.00991


def test_brokers_that_do_not_answer_are_told_apart() -> None:
    nodes = [
        replace(NODE, node_id=1),
        replace(NODE, node_id=2, status="fenced"),
        replace(NODE, node_id=3),
        replace(NODE, node_id=4),
        replace(NODE, node_id=5, status="unknown", last_known_status="alive"),
        replace(NODE, node_id=6, status="unknown", last_known_status="alive"),
    ]
    cluster = replace(cluster_of(), nodes=nodes)
    brokers = [
        broker(requests_total={("PRODUCE", "OK"): 4.0}),
        BrokerMetrics(2, error=ConnectError("node 2 is fenced")),
        BrokerMetrics(3, error=ConnectError("refused")),
        BrokerMetrics(4, error=UnsupportedVersionError("too old")),
        broker(6),
    ]

    found = activity_of(None, reading(*brokers, cluster=cluster)).brokers

    assert [(each.state, each.reason) for each in found] == [
        ("alive", ""),
        ("fenced", "node 2 is fenced"),
        ("no answer", "refused"),
        ("no metrics", "too old"),
        ("no answer", "node 5 joined the cluster a moment ago"),
        ("alive", ""),
    ]
    assert all(each.requests_per_s is None for each in found)


def test_a_topic_is_the_sum_of_its_leaders_and_replicas() -> None:
    (state,) = DESCRIBE[1].partitions
    cluster = cluster_of((1, 2), partitions=[state, replace(state, in_sync_replicas=[1, 2, 3])])
    before = reading(
        broker(1, topic_received_bytes_total={("orders",): 0.0}),
        broker(2, topic_received_bytes_total={("orders",): 500.0, ("gone",): 5.0}),
        cluster=cluster,
    )
    after = reading(
        broker(
            1,
            time_s=101.0,
            topic_received_bytes_total={("orders",): 10.0, ("_other",): 0.0},
            topic_received_records_total={("orders",): 2.0},
            topic_sent_bytes_total={("orders",): 30.0},
            log_bytes={("orders",): 1000.0},
        ),
        broker(
            2,
            time_s=102.0,
            topic_received_bytes_total={("orders",): 540.0},
            log_bytes={("orders",): 900.0, ("idle",): 7.0},
        ),
        cluster=cluster,
    )

    orders, idle = activity_of(before, after).topics

    assert tuple(orders) == ("orders", 2.0, 10.0 + 20.0, 30.0, 1900.0, 1)
    assert tuple(idle) == ("idle", None, None, None, 7.0, 0)
    assert orders.traffic == 60.0


def test_a_restarted_broker_adds_nothing_to_rates() -> None:
    before = [
        broker(each, process_start_time_seconds=1.0, queue_sent_total={("q",): 100.0})
        for each in (1, 2)
    ]
    ready = {("q",): 1.0}
    after = [
        broker(
            1,
            time_s=102.0,
            process_start_time_seconds=1.0,
            queue_sent_total={("q",): 120.0},
            queue_ready=ready,
        ),
        broker(
            2,
            time_s=900.0,
            process_start_time_seconds=50.0,
            queue_sent_total={("q",): 3.0},
            queue_ready=ready,
        ),
    ]

    (queue,) = activity_of(reading(*before), reading(*after)).queues

    assert (queue.ready, queue.sent_per_s) == (2.0, 10.0)


def test_a_queue_has_sums_of_depths_the_highest_age_and_vanishes() -> None:
    before = reading(broker(1, queue_ready={("q",): 9.0, ("gone",): 1.0}))
    after = reading(
        broker(
            1,
            queue_ready={("q",): 2.0, ("_other",): 0.0},
            queue_leased={("q",): 1.0},
            queue_oldest_message_age_seconds={("q",): 5.0},
        ),
        broker(
            2,
            queue_ready={("q",): 3.0},
            queue_delayed={("q",): 4.0},
            queue_oldest_message_age_seconds={("q",): 60.0},
        ),
    )

    (queue,) = activity_of(before, after).queues

    assert queue[:5] == ("q", 5.0, 1.0, 4.0, 60.0)
    assert queue.sent_per_s is None


def test_others_together_are_shown_only_with_figures() -> None:
    after = reading(broker(queue_ready={("_other",): 1.0}, log_bytes={("_other",): 1.0}))

    found = activity_of(None, after)

    assert [each.name for each in found.queues] == ["_other"]
    assert [each.name for each in found.topics] == ["_other"]


def test_a_group_has_its_lag_over_all_topics_and_rebalances_by_its_epoch() -> None:
    before = reading(
        broker(1, group_epoch={("g",): 4.0, ("again",): 9.0}, group_members={("g",): 2.0})
    )
    after = reading(
        broker(1),  # Another broker is the controller now.
        broker(
            2,
            group_epoch={("g",): 6.0, ("again",): 1.0, ("new",): 3.0},
            group_members={("g",): 3.0, ("again",): 0.0, ("new",): 0.0},
            group_lag_records={("g", "a"): 5.0, ("g", "b"): 7.0},
            group_lag_seconds={("g", "a"): 50.0, ("g", "b"): 1.0},
        ),
        at_s=4.0,
    )

    found = activity_of(before, after).groups

    assert found == [
        ("g", 12.0, 50.0, 3.0, 0.5),
        ("again", None, None, 0.0, 0.0),
        ("new", None, None, 0.0, None),
    ]


def test_two_controllers_at_a_time_do_not_double_a_lag() -> None:
    both = [broker(each, group_lag_records={("g", "a"): 5.0}) for each in (1, 2)]

    (group,) = activity_of(None, reading(*both)).groups

    assert group.lag_records == 5.0


def test_each_panel_asks_only_for_its_families() -> None:
    assert not any(name.startswith(("queue", "group")) for name in FAMILIES["topics"])
    assert all(name.startswith("group") for name in FAMILIES["groups"])
