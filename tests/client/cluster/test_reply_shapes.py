"""Shape of replies: numbers of results, partitions in order, lengths of runs."""

import pytest

from tests.wire.samples import EXCHANGES
from tidelog.client.cluster.reply_shapes import excess, mismatch
from tidelog.wire.errors import ErrorDetail
from tidelog.wire.messages.fetch import FetchReply, FetchRequest, PartitionFetch, PartitionFetched
from tidelog.wire.messages.metadata import (
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.wire.messages.queue_admin import (
    CreateQueueRequest,
    CreateQueuesReply,
    CreateQueuesRequest,
    QueueCreated,
)

WANTED = PartitionFetch(b"i" * 16, 0, 5, 1000)
FETCHED = PartitionFetched(0, 5, 0)


def metadata(*partitions: int, name: str = "orders", error: bool = False) -> MetadataReply:
    found = [PartitionMetadata(each, 1, 1) for each in partitions]
    detail = ErrorDetail(8, "no such topic") if error else None
    return MetadataReply("cluster", [], [TopicMetadata(name, b"i" * 16, found, detail)])


@pytest.mark.parametrize(("asked", "answered"), [(1, 0), (0, 1), (2, 3)])
def test_a_reply_with_another_number_of_results_does_not_match(asked: int, answered: int) -> None:
    request = FetchRequest(500, 1, 1000, [WANTED] * asked)

    assert mismatch(request, FetchReply([FETCHED] * answered)) == (
        f"{answered} results for {asked} partitions"
    )
    assert mismatch(request, FetchReply([FETCHED] * asked)) is None


def test_each_queue_to_create_has_a_result() -> None:
    request = CreateQueuesRequest([CreateQueueRequest("work", "work", None, [], False, {}, {})])

    assert mismatch(request, CreateQueuesReply([])) == "0 results for 1 queues"
    assert mismatch(request, CreateQueuesReply([QueueCreated(b"q", b"t")])) is None


def test_a_request_for_all_matches_any_number_of_results() -> None:
    assert mismatch(MetadataRequest(None), metadata(0, 1)) is None


@pytest.mark.parametrize("partitions", [(), (1,), (0, 2), (1, 0), (0, 0)])
def test_a_topic_has_its_partitions_in_order(partitions: tuple[int, ...]) -> None:
    problem = "'orders' does not have all of its partitions, in order"

    assert mismatch(MetadataRequest(["orders"]), metadata(*partitions)) == problem
    assert mismatch(MetadataRequest(None), metadata(*partitions)) == problem
    assert mismatch(MetadataRequest(["orders"]), metadata(*partitions, error=True)) is None


def test_the_samples_of_all_apis_are_accepted_as_far_as_their_lists_are_equally_long() -> None:
    kinds = {type(exchange.request).__name__ for exchange in EXCHANGES}
    assert {"FetchRequest", "MetadataRequest", "DescribeQueuesRequest"} <= kinds
    for exchange in EXCHANGES:
        problem = mismatch(exchange.request, exchange.reply)
        assert problem is None or " for " in problem


@pytest.mark.parametrize(
    ("counts", "is_wrong"),
    [([], False), ([3], False), ([1, 2], False), ([4], True), ([2, 2], True), ([0], True)],
)
def test_runs_have_as_many_messages_as_are_possible(counts: list[int], is_wrong: bool) -> None:
    assert (excess(counts, 3) is not None) == is_wrong


def test_a_negative_run_does_not_make_room_for_a_long_one() -> None:
    assert (
        excess([-(1 << 40), 1 << 40], 3) == "a run of -1099511627776 messages, where 3 are possible"
    )
