"""Messages about the certificates of nodes.

Pure: declarations.
"""

import msgspec


class ListCertificatesRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a broker for its own certificate."""


class ListCertificatesReply(msgspec.Struct, frozen=True, array_like=True):
    """The certificate that the broker uses now."""

    node_id: int
    tls: str
    """The setting `tls` of the broker: `off`, `accept` or `require`."""
    name: str = ""
    """Name in the certificate, such as `tidelog://CLUSTER/node/1`, or else its subject; empty
    without TLS."""
    serial: str = ""
    """Serial number, in hexadecimal digits."""
    expires_at_ms: int = 0
    """Unix milliseconds at which the certificate ends; 0 without TLS."""
    authority_expires_at_ms: int = 0
    """The same of the first of the trusted CAs; 0 if there are none in the files."""
