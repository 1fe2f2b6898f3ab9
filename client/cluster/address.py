"""Broker addresses in the notation of users.

Pure: no clock, no I/O.
"""

from typing import NamedTuple

from tidelog.wire.errors import ConfigError, printable

DEFAULT_PORT = 8433
_PORT_MAX = 65_535
_ADVICE = f"write host:port, for instance localhost:{DEFAULT_PORT}"


class Address(NamedTuple):
    """Host and port of a broker."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the form that `parse_addresses` reads; control characters are escaped."""
        known = printable(self.host)
        host = f"[{known}]" if ":" in known else known
        return f"{host}:{self.port}"


def parse_addresses(text: str) -> list[Address]:
    """Return the addresses of a comma-separated list; the port may be left out.

    Raises:
        ConfigError: An address is not of the form host:port.
    """
    addresses = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise ConfigError(f"no broker address is given; {_ADVICE}")
    return addresses


def _parse(text: str) -> Address:
    if text.startswith("["):  # An IPv6 address.
        host, bracket, rest = text[1:].partition("]")
        port_text = rest.removeprefix(":")
        is_wrong = not bracket or (rest != "" and not rest.startswith(":"))
    else:
        host, _, port_text = text.partition(":")
        is_wrong = ":" in port_text
    if is_wrong or not host or "/" in host:
        raise ConfigError(f"{text!r} is not a broker address; {_ADVICE}")
    if not port_text:
        return Address(host, DEFAULT_PORT)
    if not (port_text.isascii() and port_text.isdigit() and 0 < int(port_text) <= _PORT_MAX):
        raise ConfigError(
            f"{text!r} is not a broker address: the port must be a number from 1 to {_PORT_MAX}"
        )
    return Address(host, int(port_text))
