"""Administration of the keys of encryption at rest.

Shell: sends requests to any broker.
"""

from collections.abc import Iterable

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.messages.keys import (
    AlterKeysRequest,
    ChangedKeys,
    KeyAction,
    ListKeysReply,
    ListKeysRequest,
)
from tidelog.wire.protocol import api


async def list_keys(cluster: ClusterClient, topic: str | None) -> ListKeysReply:
    """See `SecurityAdmin.list_keys`."""
    return await cluster.call_any(api.LIST_KEYS, ListKeysRequest(topic or ""), is_repeatable=True)


async def alter_keys(
    cluster: ClusterClient, action: KeyAction, topic: str | None, *, key_ids: Iterable[int] = ()
) -> list[ChangedKeys]:
    """See `SecurityAdmin.rotate_data_key`, `rewrap_data_keys` and `shred_data_keys`."""
    request = AlterKeysRequest(action, topic or "", list(key_ids))
    # A repeated rotation would add a second key.
    is_repeatable = action is KeyAction.REWRAP
    return (await cluster.call_any(api.ALTER_KEYS, request, is_repeatable=is_repeatable)).topics
