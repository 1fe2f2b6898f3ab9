"""Records of the application, checked and with their sizes.

Pure: no clock, no I/O.
"""

from array import array
from collections.abc import Iterable, Sequence
from operator import countOf
from typing import cast, final

import msgspec

from tidelog.client.producer.producer_batch import RECORD_OVERHEAD_BYTES, ProducerBatch
from tidelog.wire.batch.record_batch import TIMESTAMP_END_MS, Headers


@final
class ProducerRecord(msgspec.Struct, frozen=True, gc=False):
    """One record."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    """Partition; `None` lets the key, or the producer, choose."""
    headers: Headers = ()
    timestamp_ms: int | None = None
    """Unix time in milliseconds; `None` means now."""

    @property
    def size(self) -> int:
        """Bytes of the record in the producer's buffer."""
        size = RECORD_OVERHEAD_BYTES + len(self.value or b"") + len(self.key or b"")
        return size + headers_size(self.headers) if self.headers else size


def headers_size(headers: Headers) -> int:
    """Return the bytes of the headers of one record in the producer's buffer."""
    size = 0
    for name, value in headers:
        size += RECORD_OVERHEAD_BYTES + len(name) + len(value)
    return size


def checked_record(
    topic: str,
    value: object,
    key: object,
    *,
    partition: int | None,
    headers: Iterable[tuple[str, bytes]],
    timestamp_ms: int | None,
) -> ProducerRecord:
    """Return a record that can be encoded, from any input of the application.

    Raises:
        TypeError: A part has a wrong type; the message names the right one.
        ValueError: The timestamp is before 1970, or a header's name is not Unicode.
    """
    if timestamp_ms is not None and not 0 <= timestamp_ms < TIMESTAMP_END_MS:
        raise ValueError(f"timestamp_ms is {timestamp_ms}; it must be Unix time in milliseconds")
    return ProducerRecord(
        topic,
        value if type(value) is bytes else _checked_bytes("value", value),
        None if key is None else _checked_bytes("key", key),
        partition,
        checked_headers(headers) if headers else (),
        timestamp_ms,
    )


def _checked_bytes(what: str, given: object) -> bytes | None:
    if given is None:
        return None
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", given))  # The same object if it is bytes already.
    advice = "; encode it, for instance with .encode()" if isinstance(given, str) else ""
    raise TypeError(f"a {what} must be bytes or None, not {type(given).__name__}{advice}")


def checked_headers(given: Iterable[tuple[str, bytes]]) -> Headers:
    """Return headers that can be encoded, from any input of the application.

    Raises:
        TypeError: One is not a pair of text and bytes.
        ValueError: A name is not Unicode.
    """
    headers: list[tuple[str, bytes]] = []
    for header in cast("Iterable[object]", given):
        match header:
            case (str() as name, bytes() as value):
                name.encode()  # Fails here rather than at the encoding of the batch.
                headers.append((name, value))
            case _:
                raise TypeError(f"headers must be pairs of str and bytes, not {header!r}")
    return tuple(headers)


@final
class ManyRecords:
    """Columns of values, and perhaps keys; each batch takes as many records as it has room for.

    All records have the same headers.

    Made and taken apart without a Python step, and without an object, for each record.
    """

    def __init__(
        self,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        headers: Headers = (),
    ) -> None:
        """Copy columns of equal length: the caller's may change while a call waits for memory.

        Raises:
            TypeError: A value or key is not bytes and not `None`.
        """
        assert keys is None or len(keys) == len(values)
        self._values = tuple(values)
        self._keys = None if keys is None else tuple(keys)
        self._headers = headers
        self._lengths = [_lengths("value", self._values)]
        if self._keys is not None:
            self._lengths.append(_lengths("key", self._keys))
        self._overhead = RECORD_OVERHEAD_BYTES + headers_size(headers)
        self.taken_count = 0
        self.remaining_bytes = self._size_of(0, len(values))
        """Bytes of the records that no batch has taken yet, in the producer's buffer."""
        self._mean_size = max(1, self.remaining_bytes // max(1, len(values)))

    @property
    def remaining_count(self) -> int:
        """Number of records that no batch has taken yet."""
        return len(self._values) - self.taken_count

    @property
    def next_size(self) -> int:
        """Bytes of the next record in the producer's buffer."""
        return self._size_of(self.taken_count, 1)

    def move_to(self, batch: ProducerBatch) -> int:
        """Append as many records as the batch has room for; return their number."""
        first = self.taken_count
        count, size = self._fitting(batch.room)
        after = first + count
        value_lengths, *key_lengths = (_known(each, first, after) for each in self._lengths)
        batch.extend(
            self._values[first:after],
            None if self._keys is None else self._keys[first:after],
            self._headers,
            value_lengths=value_lengths,
            key_lengths=key_lengths[0] if key_lengths else b"",
        )
        batch.room -= size
        self.taken_count = after
        self.remaining_bytes -= size
        return count

    def _fitting(self, room: int) -> tuple[int, int]:
        """Return how many of the next records fit into `room` bytes, and their bytes."""
        count = size = 0
        while step := min(
            self.remaining_count - count, max(1, _most_of(room - size) // self._mean_size)
        ):
            added = self._size_of(self.taken_count + count, step)
            while size + added > room and step:
                step //= 2
                added = self._size_of(self.taken_count + count, step)
            if not step:
                break
            count += step
            size += added
        return count, size

    def _size_of(self, first: int, count: int) -> int:
        size = self._overhead * count
        for lengths in self._lengths:
            size += sum(lengths[first : first + count])
        return size


def _known(lengths: Sequence[int], first: int, after: int) -> bytes:
    """Return some lengths in one byte each, none if they are not that short."""
    return lengths[first:after] if isinstance(lengths, bytes) else b""


def _most_of(room: int) -> int:
    """Return a room that records fill without a surplus, if their sizes vary little."""
    return room - room // 32


def _lengths(what: str, column: Sequence[bytes | None]) -> Sequence[int]:
    """Return the lengths of keys or values, in one byte each if none is longer than 255."""
    if countOf(map(type, column), bytes) == len(column):
        try:
            return bytes(map(len, cast("Sequence[bytes]", column)))
        except ValueError:
            return array("Q", map(len, cast("Sequence[bytes]", column)))
    for given in column:
        if given is not None and type(given) is not bytes:
            raise TypeError(
                f"each {what} of send_many must be bytes or None, not {type(given).__name__}"
            )
    return array("Q", [len(given or b"") for given in column])
