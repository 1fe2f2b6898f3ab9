"""Administration of topics that takes more than one request."""

from collections.abc import Mapping
from typing import Final

import trio

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.metadata import partition_of
from tidelog.wire.errors import NotLeaderError
from tidelog.wire.messages.topics import DeleteRecordsReply, DeleteRecordsRequest
from tidelog.wire.protocol import api

Setting = str | int | float | bool
"""Value of a topic setting; requests carry it as text."""

_PATIENCE_S: Final = 5.0


def as_text(settings: Mapping[str, Setting]) -> dict[str, str]:
    """Return settings as text for a request; booleans are `true` and `false`."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in settings.items()
    }


async def learn_partitions(cluster: ClusterClient, name: str, count: int) -> None:
    """Wait until the metadata of this client have the new partitions, for a few seconds."""
    with trio.move_on_after(_PATIENCE_S):
        while (known := cluster.metadata.topic(name)) and len(known.partitions) < count:
            cluster.request_refresh([name])
            await cluster.wait_changed()


async def delete_records(
    cluster: ClusterClient, topic: str, partition: int, *, before_offset: int | None
) -> DeleteRecordsReply:
    """See `Admin.delete_records`."""

    async def attempt() -> DeleteRecordsReply:
        known = await cluster.topic(topic)
        leader_id = partition_of(known, partition).leader_id
        if leader_id is None:
            raise NotLeaderError(f"{topic}/{partition} has no leader now")
        connection = await cluster.connection_to(leader_id)
        request = DeleteRecordsRequest(known.topic_id, partition, before_offset)
        return await cluster.call_once(connection, api.DELETE_RECORDS, request)

    # With an offset, a repeated request changes nothing.
    return await cluster.retry(attempt, is_repeatable=before_offset is not None)
