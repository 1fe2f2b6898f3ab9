"""Error texts of failed connection attempts.

Pure: no clock, no I/O. A host may be text of another program, such as the metadata of a broker.
"""

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
    (b"\x15\x03", "a TLS server"),
)
"""First bytes of servers to which clients connect by mistake."""


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
