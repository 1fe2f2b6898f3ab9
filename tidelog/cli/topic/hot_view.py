"""The output of `tidelog topic hot`, as text and JSON."""

import sys

from tidelog.cli.output.keys import key_text
from tidelog.cli.output.record_format import text_of
from tidelog.cli.output.tables import counted, print_fields, print_table, size_text
from tidelog.client.admin.hot_keys import HotKeys
from tidelog.wire.messages.hot_keys import PartitionHotKeys

_TRAFFIC = ("partition", "received_bytes_per_s", "received_records_per_s", "sent_bytes_per_s")
_STATE = ("is_hot", "is_sampled", "keyless_share")


def hot_keys_as_json(found: HotKeys) -> dict[str, object]:
    """Return the traffic and the keys of a topic; keys that are no UTF-8 as base64."""
    return {
        "topic": found.topic,
        "partition_count": found.partition_count,
        "partitions": [
            {name: getattr(each, name) for name in (*_TRAFFIC, *_STATE)}
            for each in found.partitions
        ],
        "keys": [
            {
                "partition": each.partition,
                "key": text_of(each.key),
                "key_bytes": each.key_bytes,
                "share": each.share,
                "error_bound": each.error_bound,
            }
            for each in found.keys
        ],
    }


def print_hot_keys(found: HotKeys) -> None:
    """Print the partitions of a topic with their traffic, and its most frequent keys."""
    facts: dict[str, object] = {"topic": found.topic}
    missing = found.partition_count - len(found.partitions)
    if missing:
        facts["no answer"] = f"from the leaders of {counted(missing, 'partition')}"
    unsampled = sum(not each.is_sampled for each in found.partitions)
    if unsampled:
        facts["not sampled"] = f"{counted(unsampled, 'partition')} (hot_keys_sampling = off)"
    print_fields(facts)
    print_table(
        ["PARTITION", "RECORDS/S", "RECEIVED/S", "SENT/S", "WITHOUT KEY", "HOT"],
        [_row(each) for each in found.partitions],
        right=("PARTITION", "RECORDS/S", "RECEIVED/S", "SENT/S", "WITHOUT KEY"),
    )
    if not found.keys:
        return
    sys.stdout.write("\n")
    print_table(
        ["PARTITION", "SHARE", "OFF BY", "KEY"],
        [
            (
                each.partition,
                f"{each.share:.1%}",
                f"{each.error_bound:.1%}",
                key_text(each.key, each.key_bytes),
            )
            for each in found.keys
        ],
        right=("PARTITION", "SHARE", "OFF BY"),
    )


def _row(each: PartitionHotKeys) -> tuple[object, ...]:
    return (
        each.partition,
        f"{each.received_records_per_s:,.0f}",
        size_text(round(each.received_bytes_per_s)),
        size_text(round(each.sent_bytes_per_s)),
        f"{each.keyless_share:.0%}" if each.is_sampled else None,
        "hot" if each.is_hot else None,
    )
