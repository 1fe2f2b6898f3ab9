"""Pauses of `--strict-sqs` after purges and deletions."""

import pytest

from tidelog.gateway.sqs.protocol.errors import (
    PURGE_QUEUE_IN_PROGRESS,
    QUEUE_DELETED_RECENTLY,
    SqsError,
)
from tidelog.gateway.sqs.strict_pauses import StrictPauses


def test_a_queue_is_purged_once_a_minute() -> None:
    pauses = StrictPauses()
    pauses.check_purge("eu-west-1.orders", "orders", 100)
    pauses.purged("eu-west-1.orders", 100)
    pauses.check_purge("eu-west-1.bills", "bills", 100)

    with pytest.raises(SqsError, match="operation on orders is allowed every 60 s") as raised:
        pauses.check_purge("eu-west-1.orders", "orders", 159.9)

    assert raised.value.shape is PURGE_QUEUE_IN_PROGRESS
    pauses.check_purge("eu-west-1.orders", "orders", 160)


def test_a_name_is_free_a_minute_after_its_queue_was_deleted() -> None:
    pauses = StrictPauses()
    pauses.deleted("orders", 100)
    pauses.deleted("bills", 130)

    with pytest.raises(SqsError, match="You must wait 60 seconds") as raised:
        pauses.check_creation("orders", 159.9)

    assert raised.value.shape is QUEUE_DELETED_RECENTLY
    pauses.check_creation("orders", 160)
    pauses.deleted("more", 165)
    with pytest.raises(SqsError, match="You must wait"):
        pauses.check_creation("bills", 189.9)


def test_a_new_queue_has_no_purge_of_the_one_before() -> None:
    pauses = StrictPauses()
    pauses.purged("orders", 100)

    pauses.deleted("orders", 101)

    pauses.check_purge("orders", "orders", 102)
