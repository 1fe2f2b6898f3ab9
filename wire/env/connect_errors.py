"""Error texts of failed connection attempts.

Pure: no clock, no I/O. A host may be text of another program, such as the metadata of a broker.
"""

from typing import Final

from tidelog.wire.errors import printable

_SHOWN_BYTES = 40
_OTHER_SERVERS = (
    (b"SSH-", "an SSH server"),
    (b"HTTP/", "an HTTP server"),
    (b"+PONG", "Redis"),
    (b"-ERR", "Redis"),
    (b"-NOAUTH", "Redis"),
    (b"AMQP", "an AMQP broker such as RabbitMQ"),
    (b"INFO {", "a NATS server"),
    (b"220", "a mail or FTP server"),
)
"""First bytes of servers to which clients connect by mistake."""
_TLS_ALERT: Final = b"\x15\x03"
"""First bytes of the answer of a TLS server to a client without TLS."""


NOT_TLS: Final = (
    "the client does not speak TLS, which this broker requires (tls = require); set tls_ca of the"
    " client"
)
"""Refusal of a client without TLS, for the log of the broker."""

TLS_TO_PLAIN: Final = (
    "the client speaks TLS, this broker does not; give the broker a certificate (tls_directory),"
    " or remove tls_ca from the settings of the client"
)
"""Refusal of a client with TLS by a broker without, for its log."""

_UNKNOWN_AUTHORITY: Final = frozenset((2, 18, 19, 20, 21))
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_WRONG_NAME: Final = frozenset((62, 64))
"""Results of OpenSSL's verification of a certificate, X509_V_ERR_*."""

_RENEW: Final = "; replace cert.pem and key.pem there, which are read again without a restart"
_ALERTS: Final = {
    "TLSV1_ALERT_UNKNOWN_CA": "its CA is not known there; the same ca.pem belongs to both sides",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it has expired; issue a new one",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it is not valid there; check names, dates and clocks",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it is not valid there; check names, dates and clocks",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": (
        "it is for another purpose; issue one with `tidelog cluster issue-cert`"
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "there is none; set tls_certificate and tls_key",
}
"""What the other side says about our certificate, by the alert that it sent."""
_OLD_VERSIONS: Final = frozenset(
    ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "NO_PROTOCOLS_AVAILABLE")
)
_NO_TLS: Final = frozenset(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"))
CLOSED: Final = "closed"
"""Reason of a handshake during which the other side closed the connection."""


def tls_failure(reason: str, detail: str, *, is_server: bool) -> tuple[str, bool]:
    """Return one line about a failed handshake, and whether the other side seems to have no TLS.

    Args:
        reason: OpenSSL's name of the error, `verify NUMBER` or `CLOSED`.
        detail: Words of OpenSSL or the system, for a reason that is not known here.
        is_server: Whether this is the side that was connected to.
    """
    other = "client" if is_server else "broker"
    kind, _, number = reason.partition(" ")
    if kind == "verify":
        return f"the certificate of the {other} {_why_invalid(int(number), detail, other)}", False
    if reason in _ALERTS:
        return f"the {other} refused the certificate of this side: {_ALERTS[reason]}", False
    if reason in _OLD_VERSIONS:
        return f"the {other} does not speak TLS 1.3; use a newer version of it", False
    if reason == CLOSED or reason in _NO_TLS:
        why = f"the {other} does not seem to speak TLS"
        advice = "connect without tls_ca, or give the broker a certificate (tls_directory)"
        return f"{why} ({detail}); {advice}", True
    return f"the TLS handshake with the {other} failed: {detail}", False


def _why_invalid(number: int, detail: str, other: str) -> str:
    if number == _EXPIRED:
        return f"has expired{_RENEW}"
    if number == _NOT_YET_VALID:
        return "is not valid yet; check the clocks of both machines"
    if number in _UNKNOWN_AUTHORITY:
        mine = "ca.pem of this broker" if other == "client" else "tls_ca"
        return f"is not signed by a CA in {mine}; use the ca.pem of the cluster"
    if number in _WRONG_NAME:
        words = detail.rstrip(".").removeprefix("Hostname mismatch, certificate ")
        words = words.removeprefix("IP address mismatch, certificate ")
        return f"{words}; connect by a name in it, or issue one with this name"
    return f"is not valid: {detail}"


def diagnose(host: str, port: int, error: OSError) -> str:
    """Return one line with the address, the failure and a remedy."""
    if isinstance(error, ConnectionRefusedError):
        advice = "nothing listens there; is the broker running (`tidelog serve`)?"
    elif type(error).__name__ == "gaierror":
        advice = "the host name is not known; check its spelling and the name service"
    elif isinstance(error, TimeoutError):
        advice = "no answer; check the address and any firewall between here and there"
    else:
        advice = "check the address and the network"
    return f"cannot connect to {printable(host)}:{port}: {error.strerror or error}; {advice}"


def another_service(address: str, first_bytes: bytes, why: str) -> str:
    """Return one line about a server that accepts connections and is no tidelog broker.

    Args:
        address: Host and port.
        first_bytes: The first bytes that it sent; empty if it sent nothing.
        why: What is wrong with the answer, for a server that its first bytes do not tell.
    """
    if first_bytes.startswith(_TLS_ALERT):
        return (
            f"connected to {printable(address)}, and it is a TLS server; set tls_ca to the ca.pem"
            " of the cluster"
        )
    for start, name in _OTHER_SERVERS:
        if first_bytes.startswith(start):
            why = f"the answer is that of {name}"
    if first_bytes:
        text = first_bytes[:_SHOWN_BYTES].split(b"\r\n")[0].split(b"\n")[0]
        why += f" ({printable(text.decode('ascii', 'backslashreplace'))})"
    return (
        f"connected to {printable(address)}, but it does not answer as a tidelog broker does:"
        f" {why}; is it another service? check host and port"
    )
