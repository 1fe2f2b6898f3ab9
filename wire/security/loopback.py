"""Addresses of this machine: their bytes never leave it, so credentials may go without TLS.

Pure: no clock, no I/O.
"""

import ipaddress


def host_of(peer: str) -> str:
    """Return the host of an address with a port, such as `127.0.0.1:8433` or `::1:8433`."""
    return peer.rpartition(":")[0].strip("[]")


def is_loopback(host: str) -> bool:
    """Return whether an address is one of the machine itself; a name is not."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (address if mapped is None else mapped).is_loopback
