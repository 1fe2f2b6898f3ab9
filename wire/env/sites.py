"""Sites: what the addresses of one machine or household have in common.

Pure: no clock, no I/O.
"""

import ipaddress
from typing import Final

_SITE_BITS: Final = 64
"""Bits of an IPv6 address that one site has alike."""


def site_of(address: str) -> str:
    """Return the site of an address: the /64 network of IPv6, an address of IPv4 itself."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # The name of a host in a simulation.
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:  # A socket of IPv6 serves clients of IPv4 as well.
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _SITE_BITS), strict=False))
