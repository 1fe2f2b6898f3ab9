"""Receipts: only the queue makes them, and every leader of the partition accepts them."""

from contextlib import nullcontext
from hashlib import blake2b

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_layer.driver import KEY, QUEUE_ID
from tidelog.queue_layer.receipts import ReceiptContent, Receipts
from tidelog.wire.errors import InvalidReceiptError


def receipts(*, queue_id: bytes = QUEUE_ID, partition: int = 7, key: bytes = KEY) -> Receipts:
    return Receipts(queue_id=queue_id, partition=partition, key=key)


def test_a_receipt_has_its_lease_and_messages() -> None:
    receipt = receipts().make(12, [(3, 4), (9, 1)])

    assert receipts().check(receipt) == ReceiptContent(12, [(3, 4), (9, 1)])


@pytest.mark.statement("b12")
def test_no_byte_of_a_receipt_can_be_changed() -> None:
    receipt = receipts().make(12, [(3, 4)])

    for place in range(len(receipt)):
        for bit in range(8):
            forged = bytearray(receipt)
            forged[place] ^= 1 << bit
            with pytest.raises(InvalidReceiptError):
                receipts().check(bytes(forged))


def test_a_receipt_that_was_cut_is_refused() -> None:
    receipt = receipts().make(12, [(3, 4)])

    for length in range(len(receipt)):
        with pytest.raises(InvalidReceiptError):
            receipts().check(receipt[:length])


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_no_receipt(data: bytes) -> None:
    with pytest.raises(InvalidReceiptError):
        receipts().check(data)


@pytest.mark.statement("b12")
def test_a_receipt_of_another_partition_or_queue_is_foreign() -> None:
    receipt = receipts().make(12, [(3, 4)])

    with pytest.raises(InvalidReceiptError, match="is of partition 7"):
        receipts(partition=8).check(receipt)
    with pytest.raises(InvalidReceiptError, match=QUEUE_ID.hex()):
        receipts(queue_id=bytes(16)).check(receipt)


def test_a_receipt_made_with_another_key_is_refused() -> None:
    forged = receipts(key=b"another secret of 32 bytes or so").make(12, [(3, 4)])

    with pytest.raises(InvalidReceiptError, match="corrupt, or was not made"):
        receipts().check(forged)


def test_a_receipt_of_a_newer_version_is_refused() -> None:
    newer = msgspec.msgpack.encode((2, QUEUE_ID, 7, 12, [(3, 4)]))

    with pytest.raises(InvalidReceiptError):
        receipts().check(newer + blake2b(newer, digest_size=16, key=KEY).digest())


def test_a_receipt_without_a_lease_is_refused() -> None:
    forged = msgspec.msgpack.encode((1, QUEUE_ID, 7, 0, [(3, 4)]))

    with pytest.raises(InvalidReceiptError, match="no receipt"):
        receipts().check(forged + blake2b(forged, digest_size=16, key=KEY).digest())
    assert receipts().check(receipts().make(1, [])) == ReceiptContent(1, [])


@pytest.mark.parametrize(("size", "is_legal"), [(15, False), (16, True), (64, True), (65, False)])
def test_the_key_of_a_queue_has_16_to_64_bytes(size: int, *, is_legal: bool) -> None:
    with nullcontext() if is_legal else pytest.raises(AssertionError, match="16 to 64 bytes"):
        receipts(key=bytes(size)).make(1, [])
