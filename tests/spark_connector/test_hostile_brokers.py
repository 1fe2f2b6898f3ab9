"""Brokers that send nonsense, or nothing, at once: tasks of Spark slow down and say what is wrong.

The connector waits by the clock of the machine, so these tests have short timeouts.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from time import perf_counter

import pytest

from tests.client.consumer.fetch.test_fetched_batches import encoded
from tests.client.hostile_broker import (
    EMPTY,
    TOPIC_ID,
    Answer,
    HostileBroker,
    always,
    hostile_broker_in_a_thread,
    http,
    in_turn,
    other_api,
    wrong_id,
)
from tidelog.client.cluster.address import Address
from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.spark_connector.read.fetcher import RangeFetcher
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.wire.errors import (
    ConnectError,
    ErrorCode,
    ErrorDetail,
    NotLeaderError,
    RequestTimedOutError,
    WireFormatError,
)
from tidelog.wire.messages.fetch import FetchReply, PartitionFetched
from tidelog.wire.messages.offset_ranges import ListOffsetsReply
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi

TIMEOUT_MS = 1000
LATE_S = 5
"""Seconds that a task with this timeout needs at most: it may wait for two backoffs in between."""
FEW = 12
"""Requests that are few in this time."""
LOST = ErrorDetail(int(ErrorCode.LOG_TRUNCATED), "lost", {"truncated_to": 0, "fetch_offset": 20})


@pytest.fixture
def broker() -> Iterator[HostileBroker]:
    with hostile_broker_in_a_thread() as broker:
        yield broker


@pytest.fixture
def cluster(broker: HostileBroker) -> Iterator[BlockingClusterClient]:
    options = ConnectionOptions(
        addresses=(Address(*broker.address),), request_timeout_ms=TIMEOUT_MS
    )
    with closing(BlockingClusterClient(options)) as cluster:
        yield cluster


def read(cluster: BlockingClusterClient, start: int, end: int) -> list[int]:
    """Return the offsets of the records of a range."""
    wanted = Slice("orders", TOPIC_ID, 0, start, end)
    fetcher = RangeFetcher(cluster, wanted, fail_on_data_loss=False, timeout_ms=TIMEOUT_MS)
    with closing(fetcher):
        return [offset for batch in fetcher.batches() for offset in batch.offsets]


def fetched(batches: bytes) -> Answer:
    return always(FetchReply([PartitionFetched(len(batches), 99, 0)]), batches)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (always(["none"]), "a message cannot be decoded: Expected `array`, got `str`"),
        (always(7), "a message cannot be decoded: Expected `array`, got `int`"),
        (wrong_id, "a reply to request [0-9]+, which is not open"),
        (other_api, "request [0-9]+ was FETCH, its reply is of API 1"),
        (http, "the bytes begin with b'HTTP"),
        (always(FetchReply([])), "0 results for 1 partitions"),
        (always(FetchReply([*EMPTY.results] * 2)), "2 results for 1 partitions"),
        (always(FetchReply([PartitionFetched(9, 1, 0)])), "9 bytes of batches in 0 bytes"),
        (fetched(encoded(10)), "orders/0: records before 12 were sent for offset 20"),
        (fetched(encoded(20) + encoded(10)), "orders/0: batches .* are not in the order"),
        (always(FetchReply([PartitionFetched(0, 0, 0, LOST)])), "orders/0: .* without an epoch"),
    ],
)
def test_a_task_with_wrong_replies_to_fetches_ends_with_one_error(
    broker: HostileBroker, cluster: BlockingClusterClient, answer: Answer, why: str
) -> None:
    broker.answer(api.FETCH, answer)
    began = perf_counter()

    here = Address(*broker.address)
    with pytest.raises(WireFormatError, match=rf"^{here} sent a wrong reply to FETCH: .*{why}"):
        read(cluster, 20, 100)

    assert TIMEOUT_MS / 1000 <= perf_counter() - began < LATE_S
    assert 2 <= broker.count(api.FETCH) <= FEW
    assert broker.count(api.HELLO) <= FEW


def test_a_broker_that_answers_empty_at_once_is_asked_a_few_times(
    broker: HostileBroker, cluster: BlockingClusterClient
) -> None:
    broker.answer(api.FETCH, always(EMPTY))

    with pytest.raises(
        RequestTimedOutError, match=r"orders/0 .* no record at offset 0 came in 1 s"
    ):
        read(cluster, 0, 100)

    assert 2 <= broker.count(api.FETCH) <= FEW


def test_a_broker_that_refuses_at_once_is_asked_a_few_times(
    broker: HostileBroker, cluster: BlockingClusterClient
) -> None:
    refused = ErrorDetail(int(ErrorCode.NOT_LEADER), "not me")
    broker.answer(api.FETCH, always(FetchReply([PartitionFetched(0, 0, 0, refused)])))

    with pytest.raises(NotLeaderError, match="not me"):
        read(cluster, 0, 100)

    assert 2 <= broker.count(api.FETCH) <= FEW


def test_a_wrong_reply_now_and_then_is_no_error(
    broker: HostileBroker, cluster: BlockingClusterClient, caplog: pytest.LogCaptureFixture
) -> None:
    wrong, first, second = always(7), fetched(encoded(0)), fetched(encoded(2))
    broker.answer(api.FETCH, in_turn(wrong, first, wrong, wrong, second))

    assert read(cluster, 0, 4) == [0, 1, 2, 3]
    assert caplog.text.count("sent a wrong reply to FETCH") == 1


def find_topic(cluster: BlockingClusterClient) -> object:
    return cluster.retry(lambda: cluster.topic("orders"))


def list_topics(cluster: BlockingClusterClient) -> object:
    return cluster.topic_offsets(None)


@pytest.mark.parametrize(
    ("served", "call"),
    [
        (api.METADATA, find_topic),
        (api.LIST_OFFSETS, list_topics),
    ],
)
def test_a_call_with_wrong_replies_ends_with_one_error(
    broker: HostileBroker,
    cluster: BlockingClusterClient,
    served: AnyApi,
    call: Callable[[BlockingClusterClient], object],
) -> None:
    broker.answer(served, always(7))
    began = perf_counter()

    with pytest.raises(WireFormatError, match=rf"{served.key.name}: a message cannot be decoded"):
        call(cluster)

    assert perf_counter() - began < LATE_S
    assert 2 <= broker.count(served) <= 2 * FEW


def test_a_broker_whose_hello_is_nonsense_is_asked_a_few_times(
    broker: HostileBroker, cluster: BlockingClusterClient
) -> None:
    broker.answer(api.HELLO, always(7))

    with pytest.raises(ConnectError, match="HELLO: a message cannot be decoded"):
        cluster.topic_offsets(None)

    assert 2 <= broker.count(api.HELLO) <= FEW


def test_a_broker_with_right_replies_is_asked_in_place_of_one_with_wrong_replies(
    broker: HostileBroker,
) -> None:
    broker.answer(api.LIST_OFFSETS, always(7))
    with hostile_broker_in_a_thread() as other:
        other.answer(api.LIST_OFFSETS, always(ListOffsetsReply([])))
        addresses = Address(*broker.address), Address(*other.address)
        options = ConnectionOptions(addresses=addresses, request_timeout_ms=TIMEOUT_MS)
        with closing(BlockingClusterClient(options)) as cluster:
            assert cluster.topic_offsets(None) == []

    assert broker.count(api.LIST_OFFSETS) == 1
