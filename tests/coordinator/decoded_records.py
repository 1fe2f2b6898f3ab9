"""Check that a leader's records equal the decoded records of its entry."""

from collections.abc import Sequence

from tidelog.coordinator.controller.log_entries import decode_entry, encode_entry
from tidelog.coordinator.groups.records import GroupRecord
from tidelog.coordinator.metadata.records import Record


def check_decodes_to_itself(records: Sequence[Record] | Sequence[GroupRecord]) -> None:
    """Check that records exactly equal the decoded records of their entry, types included."""
    decoded = decode_entry(encode_entry(records))
    both = [*decoded.cluster, *decoded.groups]
    assert both == list(records)
    # Equal values of other types, such as a flag for a number, and another order of a dict.
    assert repr(both) == repr(list(records))
