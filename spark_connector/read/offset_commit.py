"""Commit of a stream's offsets to a consumer group, which makes its lag visible.

Shell: sends requests to the controller. A stream never reads these offsets: its position is in
Spark's checkpoint. The stream is no member of the group, so the group must have no members.
"""

from crc32c import crc32c

from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.spark_connector.read.offset_ranges import StreamOffset
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.wire.errors import from_wire
from tidelog.wire.messages.division import divided
from tidelog.wire.messages.groups import (
    NO_MEMBER_EPOCH,
    CommitOffsetsRequest,
    PartitionCommit,
    PartitionCommitted,
)
from tidelog.wire.protocol import api


def group_of(options: ReadOptions) -> str | None:
    """Return the group to which a stream commits, or `None`.

    With a prefix, the name ends with a checksum of the selection, which never changes.
    """
    if options.group_id_prefix is not None:
        read = str(options.selection)
        if options.selection.numbers:
            read += " " + ",".join(map(str, options.selection.numbers))
        return f"{options.group_id_prefix}-{crc32c(read.encode()):08x}"
    return options.group_id


def commit_group(options: ReadOptions, position: StreamOffset) -> None:
    """Commit the position of a stream; do nothing without a group.

    Raises:
        TidelogError: The controller rejected the commit, or no broker answered.
    """
    group_id = group_of(options)
    if group_id is not None:
        commit_position(options.connection, group_id, position)


def commit_position(connection: ConnectionOptions, group_id: str, position: StreamOffset) -> None:
    """Commit a position to a group.

    Raises:
        TidelogError: The controller rejected the commit, or no broker answered.
    """
    commits = [
        PartitionCommit(
            position.topic_ids[at.topic], at.partition, offset, position.epochs.get(at), "spark"
        )
        for at, offset in position.offsets.items()
    ]
    results: list[PartitionCommitted] = []
    with borrowed(connection) as cluster:
        for part in divided(commits):
            request = CommitOffsetsRequest(group_id, "", NO_MEMBER_EPOCH, 0, part)
            results += cluster.call_controller(api.COMMIT_OFFSETS, request).results
    for result in results:
        if result.error is not None:
            raise from_wire(result.error)
