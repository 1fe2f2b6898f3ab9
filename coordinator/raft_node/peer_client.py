"""Requests to other nodes.

Shell: owns a connection to each node with a recent request.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeVar, final

import trio

from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import BrokerError, ConnectionLostError, WireFormatError
from tidelog.wire.messages.division import divided
from tidelog.wire.protocol.api import Api
from tidelog.wire.transport.node_rpc import NodeDialer
from tidelog.wire.transport.rpc import RpcConnection

Request = TypeVar("Request")
Reply = TypeVar("Reply")
Item = TypeVar("Item")

CONNECT_TIMEOUT_S: Final = 1.0

AddressOf = Callable[[int], "tuple[str, int] | None"]


@final
class PeerClient:
    """A client of the other nodes."""

    def __init__(
        self, nursery: trio.Nursery, dialer: NodeDialer, *, name: str, address_of: AddressOf
    ) -> None:
        """Connect as `name` to nodes at `address_of` their ids; tasks run in `nursery`."""
        self._nursery = nursery
        self._dialer = dialer
        self._name = name
        self._address_of = address_of
        self._connections: dict[int, RpcConnection] = {}
        self._connecting: dict[int, trio.Lock] = {}

    async def ask(
        self,
        node_id: int,
        api_: Api[Request, Reply],
        request: Request,
        *,
        timeout_s: float,
        attachment: Sequence[BytesLike] = (),
    ) -> Reply:
        """Return a node's answer to a request, with its attachment.

        If cancelled, the request may be carried out, or not.

        Raises:
            BrokerError: The node refused.
            ConnectionLostError: The node cannot be reached, did not answer in time, or sent an
                invalid answer, perhaps after a bit flip. The request may be carried out, or not.
        """
        try:
            connection = await self._connection(node_id)
            with trio.move_on_after(timeout_s):
                return await connection.call(
                    api_, request, take=lambda reply, _: reply, attachment=attachment
                )
        except WireFormatError as error:
            raise ConnectionLostError(f"node {node_id} sent an invalid answer: {error}") from error
        # After a partition a new connection works at once, the old one after a long while.
        connection.close()
        raise ConnectionLostError(f"node {node_id} did not answer for {timeout_s:g} s")

    async def ask_each(
        self,
        items: Mapping[int, Collection[Item]],
        api_: Api[Request, Reply],
        request_of: Callable[[list[Item]], Request],
        *,
        take: Callable[[int, Reply], None],
        timeout_s: float,
    ) -> None:
        """Ask several nodes at once about items of theirs, in requests of a legal length.

        A node that refuses or does not answer is asked no more; the others are not affected.

        Args:
            items: What to ask about, by node id.
            api_: API.
            request_of: Returns the request for some items.
            take: Is called with a node and each of its answers.
            timeout_s: Seconds to wait for each answer.
        """

        async def ask(node_id: int, asked: Collection[Item]) -> None:
            with suppress(BrokerError, ConnectionLostError):
                for part in divided(list(asked)):
                    request = request_of(part)
                    take(node_id, await self.ask(node_id, api_, request, timeout_s=timeout_s))

        async with trio.open_nursery() as nursery:
            for node_id, asked in items.items():
                nursery.start_soon(ask, node_id, asked)

    async def _connection(self, node_id: int) -> RpcConnection:
        async with self._connecting.setdefault(node_id, trio.Lock()):
            known = self._connections.get(node_id)
            if known is not None and not known.is_lost:
                return known
            address = self._address_of(node_id)
            if address is None:
                raise ConnectionLostError(f"the address of node {node_id} is not known")
            with trio.move_on_after(CONNECT_TIMEOUT_S):
                connection = await self._connect(node_id, *address)
                self._connections[node_id] = connection
                return connection
        raise ConnectionLostError(f"node {node_id} at {address[0]}:{address[1]} does not answer")

    async def _connect(self, node_id: int, host: str, port: int) -> RpcConnection:
        connection = await self._dialer.connect(self._nursery, host, port, name=self._name)
        assert connection.hello is not None
        found_id = connection.hello.node_id
        if found_id != node_id:
            connection.close()
            raise ConnectionLostError(f"node {found_id} is at {host}:{port}, not node {node_id}")
        return connection
