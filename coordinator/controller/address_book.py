"""The addresses of the other nodes, from announcements, metadata and configuration.

Pure: no clock, no I/O.
"""

from collections.abc import Callable, Mapping
from typing import final

from tidelog.coordinator.metadata.state import ClusterState

Address = tuple[str, int]
"""Host and port."""


@final
class AddressBook:
    """Addresses of nodes by id.

    The address of a start announcement comes first, until the node has registered again; then the
    address of its registration, then the configured one.
    """

    def __init__(
        self, configured: Mapping[int, Address], state: Callable[[], ClusterState]
    ) -> None:
        """Start with configured addresses; `state` returns the current metadata."""
        self._configured = configured
        self._state = state
        self._announced: dict[int, tuple[Address, int | None]] = {}
        """Announced address, with the broker epoch of the registration before."""

    def announced(self, node_id: int, address: Address) -> None:
        """Record the address that a node has announced."""
        self._announced[node_id] = (address, self._broker_epoch(node_id))

    def address_of(self, node_id: int) -> Address | None:
        """Return the address of a node, `None` if it is unknown."""
        announced, broker_epoch = self._announced.get(node_id, (None, None))
        if announced is not None and broker_epoch == self._broker_epoch(node_id):
            return announced
        broker = self._state().brokers.get(node_id)
        if broker is not None:
            return broker.host, broker.port
        return self._configured.get(node_id)

    def _broker_epoch(self, node_id: int) -> int | None:
        broker = self._state().brokers.get(node_id)
        return None if broker is None else broker.broker_epoch
