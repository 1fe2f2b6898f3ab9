"""Administration of the names of transactions, in requests of a limited number of names."""

from collections.abc import Iterable
from typing import Final

from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import BrokerError, from_wire
from tidelog.wire.messages.division import divided, divided_names
from tidelog.wire.messages.transactions import (
    ForgetTransactionsRequest,
    ListTransactionsRequest,
    TransactionDescription,
)
from tidelog.wire.protocol import api

_FORGOTTEN_AT_ONCE: Final = 250
"""Maximum names of one request, which fit into its header at any length."""


async def list_transactions(
    cluster: ClusterClient, names: Iterable[str] | None
) -> list[TransactionDescription]:
    """See `Admin.list_transactions`."""
    found: list[TransactionDescription] = []
    for part in divided_names(names if names is None else sorted(names)):
        request = ListTransactionsRequest(part)
        reply = await cluster.call_any(api.LIST_TRANSACTIONS, request, is_repeatable=True)
        found += reply.transactions
    return found


async def forget_transactions(
    cluster: ClusterClient, names: Iterable[str], *, unused_for: float
) -> dict[str, BrokerError]:
    """See `Admin.forget_transactions`."""
    kept: dict[str, BrokerError] = {}
    for part in divided(list(dict.fromkeys(names)), _FORGOTTEN_AT_ONCE):
        request = ForgetTransactionsRequest(part, round(unused_for * 1000))
        # A repeated request forgets nothing more.
        reply = await cluster.call_any(api.FORGET_TRANSACTIONS, request, is_repeatable=True)
        for name, result in zip(part, reply.results, strict=True):
            if result.error is not None:
                kept[name] = from_wire(result.error)
    return kept
