"""The comparison of consumed records with produced and acknowledged records.

Pure: no clock, no I/O.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

_EXAMPLES_MAX = 3


class Place(NamedTuple):
    """Partition and offset of a record."""

    partition: int
    offset: int | None
    """`None` if the acknowledgement has no offset."""


class Consumed(NamedTuple):
    """A consumed record."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@final
class Verdict:
    """The violations, in lists with one line for each record."""

    def __init__(self) -> None:
        """Start without violations."""
        self.missing: list[str] = []
        """Acknowledged records that were not consumed at their acknowledged place."""
        self.duplicated: list[str] = []
        """Records that were consumed more than once."""
        self.disordered: list[str] = []
        """Records that were consumed after a later produced record of the same key."""
        self.foreign: list[str] = []
        """Consumed records that were never produced."""

    @property
    def is_flawless(self) -> bool:
        """Whether there is no violation."""
        return not (self.missing or self.duplicated or self.disordered or self.foreign)

    def summary(self) -> str:
        """Return one line with counts and the first examples."""
        kinds = {
            "acknowledged records are missing": self.missing,
            "records are duplicated": self.duplicated,
            "records are out of order": self.disordered,
            "records were never produced": self.foreign,
        }
        parts = [
            f"{len(lines):,} {kind} ({'; '.join(lines[:_EXAMPLES_MAX])})"
            for kind, lines in kinds.items()
            if lines
        ]
        return ", ".join(parts) or "no record is missing, duplicated or out of order"


def verify(
    keys: Sequence[bytes | None],
    values: Sequence[bytes],
    acknowledged: Mapping[int, Place],
    *,
    consumed: Sequence[Consumed],
) -> Verdict:
    """Compare produced, acknowledged and consumed records.

    Args:
        keys: The keys of all records, in the order of production.
        values: Their values, all different.
        acknowledged: The acknowledged places, by the number of the record.
        consumed: All consumed records; those of a partition in the order of consumption.
    """
    verdict = Verdict()
    number_of = {value: number for number, value in enumerate(values)}
    assert len(number_of) == len(values) == len(keys), "all values must differ"
    seen: dict[int, Consumed] = {}
    # Records without a key are ordered per partition. A key maps to a single partition.
    last_of: dict[tuple[bytes | None, int | None], int] = {}
    partition_of: dict[bytes, int] = {}
    for record in consumed:
        number = number_of.get(record.value or b"")
        if number is None or record.key != keys[number]:
            verdict.foreign.append(_where(record))
            continue
        what = f"{_name(number, record.key)} at {_where(record)}"
        if number in seen:
            verdict.duplicated.append(f"{what} and {_where(seen[number])}")
            continue
        seen[number] = record
        stream = (record.key, record.partition if record.key is None else None)
        later = last_of.get(stream, -1)
        if later > number:
            verdict.disordered.append(f"{what} after number {later}")
        elif record.key is not None and (
            partition_of.setdefault(record.key, record.partition) != record.partition
        ):
            verdict.disordered.append(f"{what}, others in partition {partition_of[record.key]}")
        last_of[stream] = max(later, number)
    for number, place in acknowledged.items():
        found = seen.get(number)
        if found is None or place not in (found[:2], (found.partition, None)):
            verdict.missing.append(f"{_name(number, keys[number])}, acknowledged at {_at(place)}")
    return verdict


def _name(number: int, key: bytes | None) -> str:
    return f"number {number}" + ("" if key is None else f" of {key.decode('utf-8', 'replace')}")


def _where(record: Consumed) -> str:
    return f"{record.partition}/{record.offset}"


def _at(place: Place) -> str:
    return f"{place.partition}/{'?' if place.offset is None else place.offset}"
