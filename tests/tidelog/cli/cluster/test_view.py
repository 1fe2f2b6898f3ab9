"""The output of `tidelog cluster`."""

import json

import msgspec
import pytest

from tests.wire.cluster_samples import DESCRIBE, ELECT
from tidelog.cli.cluster.view import (
    cluster_as_json,
    elections_as_json,
    print_cluster,
    print_elections,
)
from tidelog.client.admin.cluster import MovingReplica
from tidelog.wire.messages.cluster_admin import DamagedReplica, DescribeClusterReply, LeaderElected
from tidelog.wire.messages.keys import BrokerKeys
from tidelog.wire.messages.reassignment import ReplicaProgress

Printed = pytest.CaptureFixture[str]

STALE = DESCRIBE[1]
CLUSTER = msgspec.structs.replace(
    STALE,
    nodes=[
        msgspec.structs.replace(node, status="alive", last_known_status="") for node in STALE.nodes
    ],
    metadata_age_ms=400,
)
HEALTHY = msgspec.structs.replace(
    CLUSTER,
    leaderless_count=0,
    unavailable_count=0,
    under_replicated_count=0,
    not_preferred_count=0,
    reassigning_count=0,
    data_losses=[],
    partitions=[],
    events=[],
    event_count=0,
    dropped_event_count=0,
    leaderless=[],
    below_default_count=0,
    damaged_count=0,
    damaged=[],
    nodes=[
        msgspec.structs.replace(node, is_drained=False, clock_skew_ms=-5, damaged_count=0)
        for node in CLUSTER.nodes
    ],
)


def words_of(printed: Printed) -> list[list[str]]:
    """Return the words of each line."""
    return [line.split() for line in printed.readouterr().out.splitlines()]


def test_json_has_every_field() -> None:
    found = json.loads(json.dumps(cluster_as_json(CLUSTER, with_partitions=True)))

    assert set(found) == {*DescribeClusterReply.__struct_fields__, "health", "moves", "locked"}
    assert found["nodes"][0]["rack"] == "rack-a"
    assert found["data_losses"][0]["topic_id"] == CLUSTER.data_losses[0].topic_id.hex()
    assert found["partitions"][0]["in_sync_replicas"] == [2]
    assert found["events"][0]["topic_id"] == CLUSTER.events[0].topic_id.hex()
    assert found["leaderless"][0]["kind"] == "log_offline"


def test_damaged_replicas_are_named_with_and_without_partitions(capsys: Printed) -> None:
    cluster = msgspec.structs.replace(
        HEALTHY,
        damaged_count=3,
        damaged=[DamagedReplica("orders", 3, 1)],
        nodes=[msgspec.structs.replace(node, damaged_count=3) for node in HEALTHY.nodes],
        partitions=CLUSTER.partitions,
    )
    print_cluster(cluster, with_partitions=True)

    lines = words_of(capsys)
    assert ["partitions", "12:", "3", "damaged", "replicas"] in lines
    assert ["health", "degraded:", "damaged", "replicas:", "3"] in lines
    assert [line[-1] for line in lines if line[:1] == ["NODE"]] == ["DAMAGED"]
    assert ["1", "10.0.0.1:8433", "rack-a", "voter", "alive", "5", "9", "3"] in lines
    assert ["orders/3", "on", "node", "1"] in lines
    assert ["and", "2", "more", "replicas"] in lines
    assert any("DAMAGED" in line and "PARTITION" in line for line in lines)

    found = cluster_as_json(cluster, with_partitions=False)
    assert found["damaged"] == [{"topic": "orders", "partition": 3, "node_id": 1}]


def test_brokers_that_cannot_use_data_keys_are_named(capsys: Printed) -> None:
    locked = [BrokerKeys(2, [], ["bills", "orders"], "this broker has no master key")]

    print_cluster(HEALTHY, (), locked, with_partitions=False)

    assert "node 2 can neither read nor write 2 topics: tidelog key list" in capsys.readouterr().out
    assert cluster_as_json(HEALTHY, (), locked, with_partitions=False)["locked"] == [
        {"node_id": 2, "topics": ["bills", "orders"], "reason": "this broker has no master key"}
    ]


def test_json_without_partitions_has_no_partitions_field() -> None:
    assert "partitions" not in cluster_as_json(HEALTHY, with_partitions=False)


def test_elections_in_json_have_every_field() -> None:
    found = elections_as_json(ELECT[1].results)

    assert all(set(each) == set(LeaderElected.__struct_fields__) for each in found)
    assert [each["error"] for each in found] == [None, "no replica of partition 0 is alive"]


def test_a_healthy_cluster_is_a_few_lines(capsys: Printed) -> None:
    print_cluster(HEALTHY, with_partitions=False)

    lines = words_of(capsys)
    assert ["controller", "node", "2", "in", "term", "7"] in lines
    assert ["partitions", "12:", "all", "healthy"] in lines
    assert ["1", "10.0.0.1:8433", "rack-a", "voter", "alive", "5", "9"] in lines
    assert [
        "contacted",
        "node",
        "1,",
        "with",
        "metadata",
        "of",
        "less",
        "than",
        "1",
        "s",
        "ago",
    ] in lines
    assert ["available", "12", "of", "12", "to", "write,", "12", "of", "12", "to", "read"] in lines
    assert ["health", "healthy"] in lines
    assert len(lines) == 10


@pytest.mark.parametrize(("count", "topics"), [(1, "1 topic"), (9, "9 topics")])
def test_topics_with_fewer_replicas_than_new_topics_are_shown_with_the_remedy(
    count: int, topics: str, capsys: Printed
) -> None:
    cluster = msgspec.structs.replace(HEALTHY, below_default_count=count)

    print_cluster(cluster, with_partitions=False)

    (line,) = (line for line in capsys.readouterr().out.splitlines() if "replicas" in line[:8])
    assert line.split(maxsplit=1)[1] == (
        f"{topics} with fewer than new topics get (3):"
        " tidelog topic alter --all --replication-factor 3"
    )


@pytest.mark.parametrize(
    ("skew_ms", "expected"),
    [
        (None, "no majority agrees on the time; nothing is deleted by time"),
        (691_200_000, "node 1 is 691,200 s ahead; it deletes nothing by time"),
        (-45_000, "node 1 is 45 s behind; it deletes nothing by time"),
    ],
)
def test_wrong_clocks_are_a_line(capsys: Printed, skew_ms: int | None, *, expected: str) -> None:
    nodes = [msgspec.structs.replace(node, clock_skew_ms=skew_ms) for node in HEALTHY.nodes]

    print_cluster(msgspec.structs.replace(HEALTHY, nodes=nodes), with_partitions=False)

    assert ["clocks", *expected.split()] in words_of(capsys)


def test_a_healthy_cluster_with_partitions_says_that_all_are_healthy(capsys: Printed) -> None:
    print_cluster(HEALTHY, with_partitions=True)

    assert capsys.readouterr().out.endswith("\n\nall partitions are healthy\n")


def test_unhealthy_partitions_are_counted_and_listed(capsys: Printed) -> None:
    print_cluster(CLUSTER, with_partitions=True)

    printed = capsys.readouterr().out
    assert "12: 1 without a leader, 2 below min_insync_replicas, 4 with replicas" in printed
    assert "3 without their preferred leader, 6 being moved" in printed
    lines = [line.split() for line in printed.splitlines()]
    assert ["orders", "3", "2", "9", "1,2,3", "2", "3", "4", "1", "3", "1", "1"] in lines
    assert ["2023-11-14", "22:13:20", "orders", "3", "2", "9", "1", "1,4"] in lines


def test_columns_in_which_nothing_is_are_left_out(capsys: Printed) -> None:
    (partition,) = CLUSTER.partitions
    plain = msgspec.structs.replace(
        partition,
        eligible_leader_replicas=[],
        adding_replicas=[],
        removing_replicas=[],
        offline_replicas=[],
        wiped_replicas=[],
        damaged_replicas=[],
    )

    print_cluster(msgspec.structs.replace(HEALTHY, partitions=[plain]), with_partitions=True)

    lines = words_of(capsys)
    assert ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN", "SYNC"] in lines


def test_the_controller_is_marked_and_a_missing_controller_is_reported(capsys: Printed) -> None:
    (node,) = HEALTHY.nodes
    print_cluster(msgspec.structs.replace(HEALTHY, controller_id=1), with_partitions=False)
    assert ["1", "10.0.0.1:8433", "rack-a", "leader", "alive", "5", "9"] in words_of(capsys)

    unknown = msgspec.structs.replace(node, host="", port=0, rack="", status="unknown")
    lonely = msgspec.structs.replace(HEALTHY, controller_id=None, nodes=[unknown])
    print_cluster(lonely, with_partitions=False)

    printed = capsys.readouterr().out
    assert "controller  unknown to the contacted node; a majority" in printed
    assert ["1", "-", "-", "voter", "unknown", "5", "9"] in [
        line.split() for line in printed.splitlines()
    ]


def test_each_election_has_a_result(capsys: Printed) -> None:
    results = [
        LeaderElected("orders", 0, 2, 1),
        LeaderElected("orders", 1, 1, 1),
        *ELECT[1].results,
    ]

    print_elections(results)

    lines = words_of(capsys)
    assert lines[1:3] == [
        ["orders", "0", "2", "1", "elected"],
        ["orders", "1", "1", "1", "already", "the", "leader"],
    ]
    assert " ".join(lines[3]) == "orders 3 - 2 elected; committed records may be lost"
    assert " ".join(lines[4]) == "payments 0 - - no replica of partition 0 is alive"


PROGRESS = ReplicaProgress("orders", 3, 4, 1000, 250, 4 << 20, 1 << 20, is_in_sync=False)
MOVES = [
    MovingReplica("orders", 3, 4, 1, PROGRESS),
    MovingReplica("orders", 5, 4, None, None),
]


def test_replicas_that_are_being_added_are_shown_with_what_is_left(capsys: Printed) -> None:
    print_cluster(HEALTHY, MOVES, with_partitions=False)

    *_, title, head, known, unknown = words_of(capsys)
    assert title == ["replicas", "that", "are", "being", "added:"]
    assert head == ["TOPIC", "PARTITION", "FROM", "TO", "DONE", "LEFT", "RECORDS", "LEFT"]
    assert known == ["orders", "3", "1", "4", "75%", "1.0", "MiB", "250"]
    assert unknown == ["orders", "5", "-", "4", "-", "-", "-"]


def test_a_replica_is_not_done_before_it_is_in_sync(capsys: Printed) -> None:
    all_copied = msgspec.structs.replace(PROGRESS, records_left=0, bytes_left=0)
    done = msgspec.structs.replace(all_copied, is_in_sync=True)

    moves = [MovingReplica("orders", 3, 4, 1, each) for each in (all_copied, done)]
    print_cluster(HEALTHY, moves, with_partitions=False)

    assert [line[4] for line in words_of(capsys)[-2:]] == ["99%", "100%"]


def test_programs_get_moves_with_what_is_left() -> None:
    found = json.loads(json.dumps(cluster_as_json(CLUSTER, MOVES, with_partitions=False)))

    known, unknown = found["moves"]
    assert known == {
        "topic": "orders",
        "partition": 3,
        "node_id": 4,
        "leader_id": 1,
        "record_count": 1000,
        "records_left": 250,
        "size_bytes": 4 << 20,
        "bytes_left": 1 << 20,
        "is_in_sync": False,
    }
    assert (unknown["leader_id"], unknown["bytes_left"]) == (None, None)


def test_a_drained_node_says_so(capsys: Printed) -> None:
    print_cluster(CLUSTER, with_partitions=False)

    assert "alive, drained" in capsys.readouterr().out


def test_events_are_counted_and_the_newest_are_listed(capsys: Printed) -> None:
    print_cluster(CLUSTER, with_partitions=False)

    lines = capsys.readouterr().out.splitlines()
    assert "events      1 not acknowledged, 7 in all, 2 dropped unacknowledged" in lines
    assert "events that are not acknowledged, all; see tidelog cluster events:" in lines
    assert lines[-1].split()[:2] == ["7", "2023-11-14"]
    assert lines[-1].split()[4:11] == ["records_lost", "orders", "3", "1", "585", "600", "15"]


def test_acknowledged_events_are_only_counted(capsys: Printed) -> None:
    print_cluster(msgspec.structs.replace(HEALTHY, event_count=3), with_partitions=False)

    printed = capsys.readouterr().out
    assert "events      0 not acknowledged, 3 in all\n" in printed
    assert "tidelog cluster events" not in printed


def test_each_kind_of_reason_for_no_leader_is_shown_once_with_a_count(capsys: Printed) -> None:
    (first,) = CLUSTER.leaderless
    many = msgspec.structs.replace(first, partition_count=5)

    print_cluster(
        msgspec.structs.replace(CLUSTER, partitions=[], leaderless=[many]), with_partitions=False
    )

    printed = capsys.readouterr().out
    assert (
        "\nwhy partitions have no leader:\n"
        "  5 partitions, first orders/3: the log of broker 3 is offline after an error of the"
        " disk\n"
    ) in printed


def test_with_partitions_each_partition_has_its_reason(capsys: Printed) -> None:
    print_cluster(CLUSTER, with_partitions=True)

    printed = capsys.readouterr().out
    assert "\n  orders/3: the log of broker 3 is offline after an error of the disk\n" in printed
    assert "1 partition, first" not in printed


def test_stale_metadata_are_shown_as_the_past(capsys: Printed) -> None:
    print_cluster(msgspec.structs.replace(STALE, node_id=2), with_partitions=True)

    printed = capsys.readouterr().out
    assert (
        "health      unavailable: node 2 has no contact to a majority of the voters for 45 s"
        in (printed)
    )
    assert "contacted   node 2, with metadata of 45 s ago" in printed
    assert "partitions  unknown for 45 s; was 12: 1 without a leader" in printed
    assert "available   unknown for 45 s; was 9 of 12 to write, 11 of 12 to read" in printed
    assert "unknown for 45 s; was alive, drained" in printed
    assert "\nunhealthy partitions, as known 45 s ago:\nTOPIC" in printed


def test_a_broker_without_a_majority_since_its_start_says_so(capsys: Printed) -> None:
    never = msgspec.structs.replace(STALE, metadata_age_ms=None, partitions=[], leaderless=[])
    print_cluster(never, with_partitions=True)

    printed = capsys.readouterr().out
    assert "no contact to a majority of the voters since its start\n" in printed
    assert "contacted   node 1, with metadata from before its start" in printed
    assert "partitions  unknown; was 12: " in printed
    assert "unknown; was alive, drained" in printed
    assert "all partitions are healthy" not in printed


def test_a_broker_of_an_earlier_version_has_metadata_of_unknown_age(capsys: Printed) -> None:
    old = msgspec.structs.replace(HEALTHY, metadata_age_ms=None, metadata_age_max_ms=None)
    print_cluster(old, with_partitions=False)

    printed = capsys.readouterr().out
    assert "contacted   node 1, with metadata of unknown age" in printed
    assert "health      healthy" in printed


def test_stale_counts_are_not_given_to_programs_as_the_present() -> None:
    found = json.loads(json.dumps(cluster_as_json(STALE, with_partitions=False)))

    assert (found["leaderless_count"], found["partition_count"]) == (None, None)
    assert (found["nodes"][0]["status"], found["nodes"][0]["last_known_status"]) == (
        "unknown",
        "alive",
    )
    health = found["health"]
    assert (health["severity"], health["unknown_for_ms"]) == ("unavailable", 45_000)
    assert (health["writable_count"], health["last_known"]["leaderless_count"]) == (None, 1)
