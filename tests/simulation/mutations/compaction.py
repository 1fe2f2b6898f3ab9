"""Mutations of compaction."""

# A mutation replaces private parts of the code.
# pyright: reportPrivateUsage=false

from collections.abc import Sequence
from typing import Final
from zlib import crc32

import msgspec

import tidelog.logstore.compaction.batch_cleaner
import tidelog.logstore.compaction.cleaner_run
from tests.simulation.mutations.mutation import Mutation
from tidelog.logstore.compaction.batch_cleaner import CleaningRules, KeyRange
from tidelog.logstore.compaction.policy import CompactionConfig, SealedSegment
from tidelog.wire.batch.record_batch import BatchHeader, Columns
from tidelog.wire.batch.sparse_batch import encode_sparse


def _renumber_offsets(header: BatchHeader, columns: Columns, places: Sequence[int]) -> bytearray:
    return encode_sparse(header, msgspec.structs.replace(columns, offset_deltas=None), places)


def _first_of_all_keys(header: BatchHeader, columns: Columns, rules: CleaningRules) -> list[int]:
    """Treat records without a key as records of one key."""
    keys = columns.keys or [None] * columns.record_count
    living = set(_living(header, columns, rules))
    nameless = [place for place, key in enumerate(keys) if key is None]
    return sorted(living.difference(nameless[:-1]))


def _newest_is_superseded(self: KeyRange, key: bytes) -> int | None:
    newest = _newest(self, key)
    return None if newest is None else newest + 1


def _always(segment: SealedSegment, config: CompactionConfig, *, now_ms: int) -> bool:
    del segment, config, now_ms
    return True


def _deleted_stays(header: BatchHeader, columns: Columns, rules: CleaningRules) -> list[int]:
    """Keep one of three deleted records, and remove tombstones."""
    living = set(_living(header, columns, msgspec.structs.replace(rules, drops_tombstones=True)))
    values = columns.values or [None] * columns.record_count
    old = [place for place, value in enumerate(values) if value and crc32(value) % 3 == 0]
    return sorted(living.union(old))


_living = tidelog.logstore.compaction.batch_cleaner._living
_newest = KeyRange.newest

MUTATIONS: Final = (
    Mutation(
        "offsets-recounted",
        "the rest of a batch that was cleaned before is numbered from its first offset on",
        (tidelog.logstore.compaction.batch_cleaner, "encode_sparse", _renumber_offsets),
    ),
    Mutation(
        "no-key-is-a-key",
        "only the last record without a key of a batch is kept",
        (tidelog.logstore.compaction.batch_cleaner, "_living", _first_of_all_keys),
    ),
    Mutation(
        "newest-goes-too",
        "a record counts as superseded by itself",
        (KeyRange, "newest", _newest_is_superseded),
    ),
    Mutation(
        "deletions-go-at-once",
        "a tombstone is removed in the first round, without a wait for its readers",
        (tidelog.logstore.compaction.cleaner_run, "drops_tombstones", _always),
    ),
    Mutation(
        "deleted-comes-back",
        "a tombstone is removed before the records that it deletes",
        (tidelog.logstore.compaction.batch_cleaner, "_living", _deleted_stays),
    ),
)
