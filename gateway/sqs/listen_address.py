"""Addresses at which a front listens.

Pure: no I/O; a name is not resolved, so that only `localhost` counts as this machine.
"""

import re
from typing import Final, NamedTuple

from tidelog.wire.errors import ConfigError
from tidelog.wire.security.loopback import is_loopback

DEFAULT_PORT: Final = 9324
"""Port of ElasticMQ, which programs for tests use already."""
_PORT_MAX: Final = 65_535
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<name>[^\[\]:/\s]+))(?::(?P<port>\d{1,5}))?"
)


class ListenAddress(NamedTuple):
    """Host and port of a front."""

    host: str
    port: int
    """0 takes a free port."""

    def __str__(self) -> str:
        """Return the form that `parse_listen` reads."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host.lower() == "localhost" or is_loopback(self.host)


def parse_listen(text: str) -> ListenAddress:
    """Return the address that `HOST:PORT` names; without a port, the default one.

    Raises:
        ConfigError: The text is no address.
    """
    found = _ADDRESS.fullmatch(text)
    port = DEFAULT_PORT if found is None or found["port"] is None else int(found["port"])
    if found is None or port > _PORT_MAX or text.isdigit():
        raise ConfigError(f"{text!r} is not an address; write HOST:PORT, such as 127.0.0.1:9324")
    return ListenAddress(found["bracketed"] or found["name"], port)
