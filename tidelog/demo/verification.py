"""Judging what came out against what went in.

Pure: no clock, no I/O.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, final

_EXAMPLES_MAX = 3


class Place(NamedTuple):
    """Where a record is."""

    partition: int
    offset: int | None
    """`None` when the producer was not told."""


class Consumed(NamedTuple):
    """One record as it was read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@final
class Verdict:
    """What is wrong; each list holds one line for each record concerned."""

    def __init__(self) -> None:
        """Begin without any fault."""
        self.missing: list[str] = []
        """Acknowledged, and not read where the acknowledgement says it is."""
        self.duplicated: list[str] = []
        """Read more than once."""
        self.disordered: list[str] = []
        """Read after a record of the same key that was produced later."""
        self.foreign: list[str] = []
        """Read and never produced like this."""

    @property
    def is_flawless(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.missing or self.duplicated or self.disordered or self.foreign)

    def summary(self) -> str:
        """Return one line with counts and the first examples."""
        kinds = {
            "acknowledged records are missing": self.missing,
            "records came twice": self.duplicated,
            "records are out of order": self.disordered,
            "records were never produced": self.foreign,
        }
        parts = [
            f"{len(lines):,} {kind} ({'; '.join(lines[:_EXAMPLES_MAX])})"
            for kind, lines in kinds.items()
            if lines
        ]
        return ", ".join(parts) or "nothing is missing, duplicated or out of order"


def verify(
    keys: Sequence[bytes | None],
    values: Sequence[bytes],
    acknowledged: Mapping[int, Place],
    *,
    consumed: Sequence[Consumed],
) -> Verdict:
    """Compare what was produced, what was acknowledged, and what was read.

    Args:
        keys: The keys of all records in the order in which they were produced.
        values: Their values, no two of them equal.
        acknowledged: Which of them were acknowledged, by their number, and where they are said
            to be.
        consumed: All records that were read, those of one partition in the order of reading.
    """
    verdict = Verdict()
    number_of = {value: number for number, value in enumerate(values)}
    assert len(number_of) == len(values) == len(keys), "values tell records apart"
    seen: dict[int, Consumed] = {}
    # Records without a key are in the order of their partition; those with one have only one.
    last_of: dict[tuple[bytes | None, int | None], int] = {}
    partition_of: dict[bytes, int] = {}
    for record in consumed:
        number = number_of.get(record.value or b"")
        if number is None or record.key != keys[number]:
            verdict.foreign.append(_where(record))
            continue
        what = f"{_who(number, record.key)} at {_where(record)}"
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
            verdict.missing.append(f"{_who(number, keys[number])}, acknowledged at {_at(place)}")
    return verdict


def _who(number: int, key: bytes | None) -> str:
    return f"number {number}" + ("" if key is None else f" of {key.decode('utf-8', 'replace')}")


def _where(record: Consumed) -> str:
    return f"{record.partition}/{record.offset}"


def _at(place: Place) -> str:
    return f"{place.partition}/{'?' if place.offset is None else place.offset}"
