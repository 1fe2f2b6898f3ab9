"""Receipts: a lease and its messages, in a form that only the queue can make.

Pure: no clock, no I/O. A receipt holds no leader epoch: every leader of the partition accepts it.
"""

from hashlib import blake2b
from hmac import compare_digest
from typing import Annotated, Final, final

import msgspec

from tidelog.wire.errors import InvalidReceiptError
from tidelog.wire.messages.queues import Run

VERSION: Final = 1
MAC_SIZE: Final = 16


class ReceiptContent(msgspec.Struct, frozen=True):
    """Content of a receipt that was checked."""

    lease_id: int
    runs: list[Run]
    """Runs of messages, ascending, without overlap."""


class _Content(msgspec.Struct, frozen=True, array_like=True):
    version: int
    queue_id: bytes
    partition: int
    lease_id: Annotated[int, msgspec.Meta(ge=1)]
    runs: list[Run]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(_Content)


@final
class Receipts:
    """Makes and checks the receipts of one partition of a queue."""

    def __init__(self, *, queue_id: bytes, partition: int, key: bytes) -> None:
        """Use a secret of the queue, 16 to 64 bytes, that all its leaders know."""
        assert 16 <= len(key) <= 64, "the key of a queue has 16 to 64 bytes"  # noqa: PLR2004
        self._queue_id = queue_id
        self.partition = partition
        self._key = key

    def make(self, lease_id: int, runs: list[Run]) -> bytes:
        """Return the receipt of a receive."""
        content = _Content(VERSION, self._queue_id, self.partition, lease_id, runs)
        data = _ENCODER.encode(content)
        return data + blake2b(data, digest_size=MAC_SIZE, key=self._key).digest()

    def check(self, receipt: bytes) -> ReceiptContent:
        """Return the content of a receipt.

        Raises:
            InvalidReceiptError: It was forged or corrupted, or is of another queue or partition.
        """
        data, mac = receipt[:-MAC_SIZE], receipt[-MAC_SIZE:]
        try:
            content = _DECODER.decode(data)
        except msgspec.MsgspecError as error:
            raise InvalidReceiptError(
                "these bytes are no receipt; use the receipt of a receive"
            ) from error
        if content.queue_id != self._queue_id:
            raise InvalidReceiptError(
                f"this receipt is of another queue, with the id {content.queue_id.hex()}"
            )
        if content.partition != self.partition:
            raise InvalidReceiptError(
                f"this receipt is of partition {content.partition}, not of {self.partition}"
            )
        expected = blake2b(data, digest_size=MAC_SIZE, key=self._key).digest()
        if content.version != VERSION or not compare_digest(mac, expected):
            raise InvalidReceiptError("this receipt is corrupt, or was not made by this queue")
        return ReceiptContent(content.lease_id, content.runs)
