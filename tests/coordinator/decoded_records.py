"""What a leader hands to its own state machine is what decoding its entry gives."""

from collections.abc import Sequence

from tidelog.coordinator.controller.log_entries import decode_entry, encode_entry
from tidelog.coordinator.groups.records import GroupRecord
from tidelog.coordinator.metadata.records import Record


def check_decodes_to_itself(records: Sequence[Record] | Sequence[GroupRecord]) -> None:
    """Check that records are exactly equal to what decoding their entry gives, types included."""
    decoded = decode_entry(encode_entry(records))
    both = [*decoded.cluster, *decoded.groups]
    assert both == list(records)
    # Equal values of other types, such as a flag for a number, and another order of a dict.
    assert repr(both) == repr(list(records))
