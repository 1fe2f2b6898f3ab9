"""What passes between a follower and its leader costs nothing for partitions that are idle."""

from tests.wire.replication_samples import DURABLE, FETCH, IDENTITY
from tidelog.wire.messages.replication import ReplicaFetchRequest
from tidelog.wire.protocol import api


def test_a_fetch_with_nothing_new_is_small() -> None:
    idle = ReplicaFetchRequest(IDENTITY, False, 500, 8 << 20, [], [], [])

    assert len(api.REPLICA_FETCH.encode_request(idle, version=1, correlation_id=1)) < 120


def test_a_report_of_a_partition_takes_few_bytes() -> None:
    request, _ = DURABLE
    more = type(request)(IDENTITY, [*request.partitions] * 101, True)

    sizes = [
        len(api.REPLICA_DURABLE.encode_request(each, version=1, correlation_id=1))
        for each in (request, more)
    ]

    assert sizes[1] - sizes[0] < 100 * 8


def test_a_follower_asks_for_each_new_partition_from_a_position() -> None:
    request, _ = FETCH

    followed = {each.number_in_session for each in request.followed}
    assert followed <= {each.number_in_session for each in request.positions}
