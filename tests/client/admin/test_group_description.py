"""Descriptions of groups with names of topics."""

from tidelog.client.admin.groups import describe
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.messages import groups

ORDERS, GONE = b"o" * 16, b"g" * 16


def test_ids_become_names_and_the_order_is_theirs() -> None:
    member = groups.MemberDescription(
        "m", "app", None, 0, 7, "unrevoked", groups.Subscription(pattern="ord.*"),
        [groups.TopicPartitions(ORDERS, [2, 1])], [groups.TopicPartitions(GONE, [0])], [],
    )  # fmt: skip
    progress = [
        groups.PartitionProgress(ORDERS, number, "m", 5, 0, 9, 4, 1_000, 7) for number in (2, 1)
    ]
    found = groups.GroupDescription("billing", "stable", "range", 8, 7, [member], progress)

    described = describe(found, {ORDERS: "orders"})

    assert (described.group_epoch, described.target_epoch, described.assignor) == (8, 7, "range")
    assert [each.at for each in described.partitions] == [("orders", 1), ("orders", 2)]
    assert described.partitions[0].lag_records == 4
    assert described.members[0].assigned == (
        TopicPartition("orders", 1),
        TopicPartition("orders", 2),
    )
    assert described.members[0].revoking == (TopicPartition(GONE.hex(), 0),)
    assert (described.members[0].pattern, described.members[0].topics) == ("ord.*", ())
