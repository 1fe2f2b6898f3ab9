"""Differences between the replicas of a partition.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Mapping, Sequence

from tests.simulation.broker.keys import value_sent
from tests.wire.batches import reseal
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import parse_header

_UNPACKED_MAX = 1 << 24

MayLack = Callable[[int, bytes], bool]
"""Returns, by offset and value, whether compaction may have removed a record from some."""
_Record = tuple[bytes | None, bytes | None]
"""Key and value."""


def difference(
    batches: Mapping[int, Sequence[bytes]], may_lack: MayLack | None = None
) -> str | None:
    """Return a difference that replicas must not have, `None` if there is none.

    Args:
        batches: Batches of each node, from the same offset on, without node-specific bytes.
        may_lack: If given, the same records suffice, in any batches; without it they must have
            the same bytes.
    """
    first_id = min(batches, default=0)
    if all(found == batches[first_id] for found in batches.values()):
        return None
    if may_lack is None:
        return _where(batches)
    logs = {node_id: _records(found) for node_id, found in batches.items()}
    everything = {offset: record for log in logs.values() for offset, record in log.items()}
    for offset, (key, value) in sorted(everything.items()):
        for node_id, log in sorted(logs.items()):
            found = log.get(offset)
            if found is None and (value is None or not may_lack(offset, value)):
                return f"node {node_id} has no {value!r:.40} at {offset}"
            if found is not None and found != (key, value):
                return f"node {node_id} has {found[1]!r:.40} at {offset}, not {value!r:.40}"
    return None


def _where(batches: Mapping[int, Sequence[bytes]]) -> str:
    first_id, *others = sorted(batches)
    one = batches[first_id]
    node_id = next(each for each in others if batches[each] != one)
    other = batches[node_id]
    at = next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )
    return (
        f"nodes {first_id} and {node_id} have other batches, from batch {at} of {len(one)} and"
        f" {len(other)} on"
    )


def _records(batches: Sequence[bytes]) -> dict[int, _Record]:
    found: dict[int, _Record] = {}
    for stripped in batches:
        batch = bytes(reseal(bytearray(stripped)))
        header = parse_header(batch)
        assert header is not None, "a replica has complete batches"
        columns = decode_columns(header, batch, uncompressed_length_max=_UNPACKED_MAX)
        count = columns.record_count
        deltas = columns.offset_deltas or range(count)
        nothing = [None] * count
        headers = columns.headers or [()] * count
        for delta, key, value, each in zip(
            deltas, columns.keys or nothing, columns.values or nothing, headers, strict=True
        ):
            found[header.base_offset + delta] = (key, value_sent(value, each))
    return found
