"""Certificates of all brokers of a cluster.

Shell: asks all brokers at the same time.
"""

from dataclasses import dataclass
from typing import Final, final

import trio

from tidelog.client.admin.cluster import describe_cluster
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.errors import RequestTimedOutError, TidelogError
from tidelog.wire.messages.certificates import ListCertificatesReply, ListCertificatesRequest
from tidelog.wire.protocol import api

_PATIENCE_S: Final = 6.0
"""Seconds for the answer of a broker."""


@final
@dataclass(frozen=True, slots=True)
class NodeCertificate:
    """The certificate that a broker uses now."""

    node_id: int
    tls: str = ""
    """The setting `tls` of the broker; empty if it did not answer."""
    name: str = ""
    """Name in the certificate, such as `tidelog://CLUSTER/node/1`; empty without TLS."""
    serial: str = ""
    """Serial number, in hexadecimal digits."""
    expires_at_ms: int | None = None
    """Unix milliseconds at which the certificate ends; `None` without TLS."""
    authority_expires_at_ms: int | None = None
    """The same of the first CA that the broker trusts."""
    error: TidelogError | None = None
    """The reason if the broker did not answer."""


async def list_certificates(cluster: ClusterClient) -> list[NodeCertificate]:
    """See `SecurityAdmin.list_certificates`."""
    found: dict[int, NodeCertificate] = {}
    described = await describe_cluster(cluster, with_partitions=False)

    async def ask(node_id: int) -> None:
        try:
            reply = await _ask(cluster, node_id)
        except TidelogError as error:
            found[node_id] = NodeCertificate(node_id, error=error)
        else:
            found[node_id] = _certificate(reply)

    async def ask_all() -> None:
        async with trio.open_nursery() as nursery:
            for node in described.nodes:
                nursery.start_soon(ask, node.node_id)

    await cluster.tasks.until_closed(ask_all)
    return [found[node_id] for node_id in sorted(found)]


async def _ask(cluster: ClusterClient, node_id: int) -> ListCertificatesReply:
    with trio.move_on_after(_PATIENCE_S):
        connection = await cluster.connection_to(node_id)
        request = ListCertificatesRequest()
        return await cluster.call_once(connection, api.LIST_CERTIFICATES, request)
    raise RequestTimedOutError(f"node {node_id} did not answer within {_PATIENCE_S:g} s")


def _certificate(reply: ListCertificatesReply) -> NodeCertificate:
    return NodeCertificate(
        reply.node_id,
        reply.tls,
        reply.name,
        reply.serial,
        reply.expires_at_ms or None,
        reply.authority_expires_at_ms or None,
    )
