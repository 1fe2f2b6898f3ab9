"""Records as the application hands them over: checked, and with their sizes.

Pure: no clock, no I/O.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import add
from typing import cast, final

import msgspec

from client.producer_batch import RECORD_OVERHEAD_BYTES, ProducerBatch
from wire.record_batch import Headers


@final
class OutgoingRecord(msgspec.Struct, frozen=True, gc=False):
    """One record."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    """`None` lets the key, or the producer, choose."""
    headers: Headers = ()
    timestamp_ms: int | None = None
    """`None` means now."""

    @property
    def size(self) -> int:
        """Bytes that the record takes of the producer's buffer."""
        size = RECORD_OVERHEAD_BYTES + len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            size += RECORD_OVERHEAD_BYTES + len(name) + len(value)
        return size


def checked_bytes(what: str, given: object) -> bytes | None:
    """Return a key or value as bytes.

    Raises:
        TypeError: It is not bytes-like and not `None`.
    """
    if given is None:
        return None
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", given))  # The same object if it is bytes already.
    advice = "; encode it, for instance with .encode()" if isinstance(given, str) else ""
    raise TypeError(f"a {what} must be bytes or None, not {type(given).__name__}{advice}")


def checked_headers(given: Iterable[tuple[str, bytes]]) -> Headers:
    """Return the headers of a record.

    Raises:
        TypeError: They are not pairs of a string and bytes.
    """
    headers: list[tuple[str, bytes]] = []
    for header in cast("Iterable[object]", given):
        match header:
            case (str() as name, bytes() as value):
                headers.append((name, value))
            case _:
                raise TypeError(f"headers must be pairs of str and bytes, not {header!r}")
    return tuple(headers)


@final
class ManyRecords:
    """Values, and perhaps their keys, of which each batch takes as many as it has room for.

    Made and taken apart without a Python step for each record.
    """

    def __init__(
        self, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None
    ) -> None:
        """Take over columns, equally long, that must not change any more.

        Raises:
            TypeError: A value or key is not bytes and not `None`.
        """
        assert keys is None or len(keys) == len(values)
        lengths = _lengths("value", values)
        if keys is not None:
            lengths = map(add, lengths, _lengths("key", keys))
        self._values = values
        self._keys = keys
        self._lengths_before = list(accumulate(lengths, initial=0))
        self.taken_count = 0

    @property
    def remaining_count(self) -> int:
        """Records that no batch has taken yet."""
        return len(self._values) - self.taken_count

    @property
    def remaining_bytes(self) -> int:
        """What they take of the producer's buffer."""
        return self._size_before(len(self._values)) - self._size_before(self.taken_count)

    @property
    def next_size(self) -> int:
        """What the next record takes of the producer's buffer."""
        return self._size_before(self.taken_count + 1) - self._size_before(self.taken_count)

    def move_to(self, batch: ProducerBatch) -> int:
        """Append as many records as the batch has room for; return how many."""
        first = self.taken_count
        room_ends = self._size_before(first) + batch.room
        places = range(first, len(self._values) + 1)
        after = first - 1 + bisect_right(places, room_ends, key=self._size_before)
        keys = None if self._keys is None else self._keys[first:after]
        batch.extend(self._values[first:after], keys)
        batch.room -= self._size_before(after) - self._size_before(first)
        self.taken_count = after
        return after - first

    def _size_before(self, place: int) -> int:
        return self._lengths_before[place] + RECORD_OVERHEAD_BYTES * place


def _lengths(what: str, column: Sequence[bytes | None]) -> Iterable[int]:
    if set(map(type, column)) <= {bytes}:
        return map(len, cast("Sequence[bytes]", column))
    for given in column:
        if given is not None and type(given) is not bytes:
            raise TypeError(
                f"each {what} of send_many must be bytes or None, not {type(given).__name__}"
            )
    return [len(given or b"") for given in column]
