"""Records of a task before they are staged, and their places afterwards.

Pure: no clock, no I/O.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, final

import msgspec

from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.wire.errors import TransactionGoneError
from tidelog.wire.messages.transactions import StagedPart, StagedPiece

Key = tuple[bytes, int]
"""Topic id and partition."""


class StagedPlace(msgspec.Struct, frozen=True):
    """Records of one task in one staging log."""

    topic_id: bytes
    partition: int
    producer_id: int
    first_offset: int
    end_offset: int
    """Exclusive end."""
    record_count: int


class PlainColumns(NamedTuple):
    """Values and keys of records that have nothing else."""

    values: list[bytes | None]
    keys: list[bytes | None] | None


def columns_of(records: Sequence[ProducerRecord]) -> PlainColumns | None:
    """Return the columns of records, `None` if one has a partition, headers or a time."""
    for record in records:
        if record.headers or record.partition is not None or record.timestamp_ms is not None:
            return None
    keys = [record.key for record in records]
    has_keys = any(key is not None for key in keys)
    return PlainColumns([record.value for record in records], keys if has_keys else None)


def grouped_by_topic(records: Iterable[ProducerRecord]) -> dict[str, list[ProducerRecord]]:
    """Return the records of each topic, in their order."""
    found: dict[str, list[ProducerRecord]] = {}
    for record in records:
        found.setdefault(record.topic, []).append(record)
    return found


def require_same_transaction(
    name: str, transaction_id: int, *, staged_for: int | None, number: int
) -> None:
    """Check that a transaction is still the one that a task has staged for.

    Args:
        name: Name of the transaction.
        transaction_id: Id of the transaction.
        staged_for: Its number at the start of the task.
        number: Its number now; 0 if it was committed.

    Raises:
        TransactionGoneError: The numbers differ.
        TransactionGoneError: It is not.
    """
    if number != staged_for:
        raise TransactionGoneError(
            f"transaction {transaction_id} of {name!r} was"
            f" {'begun again' if number else 'committed'} while this task staged for it"
        )


@final
class Places:
    """All places of one task, which grow with each receipt."""

    def __init__(self) -> None:
        """Start without places."""
        self._places: dict[Key, StagedPlace] = {}

    def add(self, key: Key, producer_id: int, offset: int, *, count: int) -> None:
        """Add consecutive records.

        Raises:
            TransactionGoneError: Their producer id differs from that of earlier records: their
                places are not known any more.
        """
        known = self._places.get(key)
        if known is None:
            self._places[key] = StagedPlace(*key, producer_id, offset, offset + count, count)
            return
        if known.producer_id != producer_id:
            raise TransactionGoneError("the producer has another identity now; do the task again")
        self._places[key] = msgspec.structs.replace(
            known,
            first_offset=min(known.first_offset, offset),
            end_offset=max(known.end_offset, offset + count),
            record_count=known.record_count + count,
        )

    def as_tuple(self) -> tuple[StagedPlace, ...]:
        """Return the current places."""
        return tuple(self._places.values())


def merged(places: Iterable[StagedPlace]) -> list[StagedPart]:
    """Return the pieces to append to each partition, in the order of the places."""
    pieces: dict[Key, list[StagedPiece]] = {}
    for place in places:
        piece = StagedPiece(
            place.producer_id, place.first_offset, place.end_offset, place.record_count
        )
        pieces.setdefault((place.topic_id, place.partition), []).append(piece)
    return [StagedPart(*key, found) for key, found in pieces.items()]
