"""Consumer that fetches from followers, and falls back to the leader."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from tests.client.consumer.fetch.test_fetched_batches import encoded
from tests.client.fake_cluster import FakeCluster, fronted_client, fronted_cluster
from tests.coordinator.raft_clients import until
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.fetch.fetch_state import Fetch, FetchState
from tidelog.client.metrics.counters import ConsumerCounters
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    CorruptRecordError,
    LogOfflineError,
    LogTruncatedError,
    NotLeaderError,
    OffsetOutOfRangeError,
)
from tidelog.wire.messages.fetch import PartitionFetched
from tidelog.wire.protocol import api

AT = TopicPartition("orders", 0)
LEADER, FOLLOWER = 1, 2


def subscription() -> FetchState:
    """Return one partition with position 10."""
    made = FetchState(ConsumerConfig(), Backoff(0.1, 1.0, Random(1)), ConsumerCounters())
    made.assign({AT: b"i" * 16})
    made.seek(AT, 10)
    return made


def plan(made: FetchState, now: float = 0.0) -> Fetch:
    """Return the next fetch, with both replicas reachable."""
    (fetch,) = made.plan(now, lambda _: LEADER, lambda _: FOLLOWER)
    return fetch


def asked(fetch: Fetch) -> tuple[int, bool]:
    """Return the node of a fetch, and whether it is asked as a follower."""
    (part,) = fetch.request.partitions
    return fetch.node_id, part.from_follower


def land(
    made: FetchState,
    fetch: Fetch,
    content: bytes = b"",
    *,
    high_watermark: int = 99,
    error: BrokerError | None = None,
    now: float = 0.0,
) -> None:
    detail = None if error is None else error.to_wire()
    result = PartitionFetched(len(content), high_watermark, 0, detail)
    made.on_complete(fetch, [result], memoryview(content), now=now)


def test_records_fetched_from_a_follower_are_handed_out() -> None:
    made = subscription()
    fetch = plan(made)
    assert asked(fetch) == (FOLLOWER, True)

    land(made, fetch, encoded(10))

    batch = made.take(None, 0.0)
    assert batch is not None
    assert list(batch.offsets) == [10, 11]
    assert asked(plan(made)) == (FOLLOWER, True)


def test_without_a_follower_the_leader_is_fetched_from() -> None:
    made = subscription()

    (fetch,) = made.plan(0.0, lambda _: LEADER, lambda _: None)

    assert asked(fetch) == (LEADER, False)


def test_a_follower_without_new_records_is_fetched_from_again() -> None:
    made = subscription()
    land(made, plan(made), high_watermark=10, now=0.5)

    assert asked(plan(made, 0.5)) == (FOLLOWER, True)


def test_a_follower_behind_the_consumer_is_avoided_for_a_while() -> None:
    made = subscription()
    land(made, plan(made), high_watermark=9)

    again = plan(made)
    assert asked(again) == (LEADER, False)
    assert made.take_stale_topics() == {"orders"}
    land(made, again, encoded(10), now=1.0)
    later = plan(made, 4.9)
    assert asked(later) == (LEADER, False)
    land(made, later, encoded(12), now=4.9)
    assert asked(plan(made, 5.0)) == (FOLLOWER, True)


@pytest.mark.parametrize(
    "error",
    [
        OffsetOutOfRangeError("not here", log_start_offset=11, log_end_offset=20),
        LogTruncatedError("lost", truncated_to=9, fetch_offset=10),
        CorruptRecordError("damaged", offset=10, next_offset=12),
        LogOfflineError("offline"),
        NotLeaderError("another node leads"),
    ],
)
def test_an_error_of_a_follower_is_checked_with_the_leader(error: BrokerError) -> None:
    made = subscription()
    land(made, plan(made), error=error)

    assert made.take(None, 0.0) is None, "the application hears nothing of it"
    fetch = plan(made)
    assert asked(fetch) == (LEADER, False)
    land(made, fetch, encoded(10))
    assert made.take(None, 0.0) is not None


def test_an_error_of_the_leader_is_raised() -> None:
    made = subscription()
    error = OffsetOutOfRangeError("not here", log_start_offset=11, log_end_offset=20)
    land(made, plan(made), error=error)
    land(made, plan(made), error=error)

    with pytest.raises(OffsetOutOfRangeError):
        made.take(None, 0.0)


def test_a_lost_connection_to_a_follower_causes_no_backoff() -> None:
    made = subscription()
    made.on_failure(plan(made), ConnectionLostError("gone"), 0.0)

    assert asked(plan(made, 0.0)) == (LEADER, False)


def test_a_failing_follower_is_avoided_with_exponential_backoff() -> None:
    made = subscription()
    now, left_at, pauses, offset = 0.0, 0.0, list[float](), 10
    while len(pauses) < 8:
        fetch = plan(made, now)
        if asked(fetch) == (FOLLOWER, True):
            pauses.append(now - left_at)
            left_at = now
        is_of_use = asked(fetch) == (LEADER, False) or len(pauses) == 8
        if is_of_use:
            land(made, fetch, encoded(offset), high_watermark=999, now=now)
            offset += 2
        else:
            land(made, fetch, high_watermark=0, now=now)
        now += 1.0
    assert pauses == [0, 5, 10, 20, 40, 80, 80, 80]

    land(made, plan(made, now), high_watermark=0, now=now)
    land(made, plan(made, now + 4.0), encoded(offset), now=now + 4.0)
    assert asked(plan(made, now + 5.0)) == (FOLLOWER, True)


def follow(cluster: FakeCluster) -> None:
    """Make node 1 the leader of everything, and all nodes in sync."""
    cluster.in_sync = list(cluster.fronts)
    cluster.racks = {node_id: f"rack-{node_id}" for node_id in cluster.fronts}


async def test_records_are_fetched_from_the_nearest_replica(autojump_clock: MockClock) -> None:
    async with fronted_cluster(autojump_clock, [1, 2, 3]) as cluster:
        follow(cluster)
        async with (
            fronted_client(cluster) as client,
            client.producer() as producer,
            client.consumer(
                "orders",
                auto_offset_reset="earliest",
                read_from="nearest",
                client_rack="rack-3",
            ) as consumer,
        ):
            for number in range(10):
                await producer.send("orders", b"%d" % number, partition=0)
                record = await anext(consumer.records())
                assert record.value == b"%d" % number

        assert api.FETCH in cluster.fronts[3].asked
        assert api.FETCH not in cluster.fronts[2].asked


@pytest.mark.parametrize("trouble", ["killed", "frozen", "refusing"])
async def test_a_failed_follower_is_replaced_by_the_leader(
    autojump_clock: MockClock, trouble: str
) -> None:
    async with fronted_cluster(autojump_clock, [1, 2]) as cluster:
        follow(cluster)
        async with (
            fronted_client(cluster) as client,
            client.producer() as producer,
            client.consumer(
                "orders", auto_offset_reset="earliest", read_from="followers"
            ) as consumer,
        ):
            await producer.send("orders", b"before", partition=0)
            assert (await anext(consumer.records())).value == b"before"
            await until(lambda: api.FETCH in cluster.fronts[2].asked)

            if trouble == "killed":
                cluster.fronts[2].stop()
            elif trouble == "frozen":
                cluster.fronts[2].is_frozen = True
            else:
                cluster.fronts[2].refusal = LogOfflineError("its disk failed")
            await producer.send("orders", b"after", partition=0)
            with trio.fail_after(6.0 if trouble == "frozen" else 1.0):
                assert (await anext(consumer.records())).value == b"after"
