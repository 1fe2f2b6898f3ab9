"""Where the other nodes are, from all who say so.

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

    What a node has said when it started comes first, as long as it has not registered since; then
    what it is registered with, then what this node was started with.
    """

    def __init__(
        self, configured: Mapping[int, Address], state: Callable[[], ClusterState]
    ) -> None:
        """Know what is configured, and what the metadata has; `state` returns it as it is now."""
        self._configured = configured
        self._state = state
        self._announced: dict[int, tuple[Address, int | None]] = {}
        """Address, and the broker epoch of the registration before."""

    def announced(self, node_id: int, address: Address) -> None:
        """Take note of where a node says that it is."""
        self._announced[node_id] = (address, self._broker_epoch(node_id))

    def address_of(self, node_id: int) -> Address | None:
        """Return where a node is, `None` when nobody has said."""
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
