"""Places of a broker's connections, by principal.

Pure: no clock, no I/O. Each call looks at a bounded number of connections, or at each connection
once in its life: so strangers that connect again and again cost no more than their connections.
"""

from typing import Final, Generic, Protocol, TypeVar, final

_LOOKS_MAX: Final = 64
"""Connections of the largest principal that one search looks at; the next one continues there."""


class Placed(Protocol):
    """A connection, as far as its place is concerned."""

    @property
    def share_key(self) -> str:
        """Name of its principal, or its address."""
        ...

    @property
    def node_id(self) -> int | None:
        """The node at its other end; `None` for a client."""
        ...

    @property
    def is_admitted(self) -> bool:
        """Whether it has sent its hello, and a proof if it must."""
        ...

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        ...

    @property
    def has_ended(self) -> bool:
        """Whether it serves no further request."""
        ...


ConnectionType = TypeVar("ConnectionType", bound=Placed)


@final
class ConnectionPlaces(Generic[ConnectionType]):
    """The connections of a broker, in the order of their arrival."""

    def __init__(self, limit: int) -> None:
        """Share `limit` places; `limit` is at least 1."""
        self._half = limit // 2
        self._key_of: dict[ConnectionType, str] = {}
        self._by_key: dict[str, dict[ConnectionType, None]] = {}
        self._silent: dict[ConnectionType, None] = {}
        """Connections that were not admitted when they were last looked at."""
        self._largest = ""
        """The last principal that had more than half of the places."""

    def add(self, connection: ConnectionType) -> None:
        """Add a connection that has just arrived."""
        self._silent[connection] = None
        self._file(connection)

    def refile(self, connection: ConnectionType) -> None:
        """Count a connection for the principal that it has now; no effect if it was discarded."""
        if self._unfile(connection):
            self._file(connection)

    def discard(self, connection: ConnectionType) -> None:
        """Remove a connection."""
        self._silent.pop(connection, None)
        self._unfile(connection)

    @property
    def principal_count(self) -> int:
        """Number of principals with connections; each address of anonymous clients is one."""
        return len(self._by_key)

    def drop_nodes(self) -> None:
        """Count connections no longer that have proved to be of nodes; looks at all."""
        for connection in [each for each in self._key_of if each.node_id is not None]:
            self._unfile(connection)

    def oldest_silent(self) -> ConnectionType | None:
        """Return the oldest connection that is not admitted, `None` if all are."""
        while self._silent:
            connection = next(iter(self._silent))
            if not (connection.is_admitted or connection.has_ended):
                return connection
            del self._silent[connection]
        return None

    def excess(self, *, newcomer: str) -> ConnectionType | None:
        """Return an idle connection of a principal with more than half of the places.

        `None` if no principal has so many, if none of its connections is found idle, or if that
        principal is a newcomer's address.
        """
        filed = self._by_key.get(self._largest, {})
        if newcomer == self._largest:
            return None
        for _ in range(min(_LOOKS_MAX, len(filed))):
            if len(filed) <= self._half:
                return None
            connection = next(iter(filed))
            if connection.node_id is not None:
                self._unfile(connection)  # It has proved to be a node since.
                continue
            if connection.is_idle and not connection.has_ended:
                return connection
            filed[connection] = filed.pop(connection)
        return None

    def _file(self, connection: ConnectionType) -> None:
        key = connection.share_key
        filed = self._by_key.setdefault(key, {})
        filed[connection] = None
        self._key_of[connection] = key
        if len(filed) > self._half:
            self._largest = key

    def _unfile(self, connection: ConnectionType) -> bool:
        """Count a connection for no principal; return whether it was counted."""
        key = self._key_of.pop(connection, None)
        if key is None:
            return False
        filed = self._by_key[key]
        del filed[connection]
        if not filed:
            del self._by_key[key]
        return True
