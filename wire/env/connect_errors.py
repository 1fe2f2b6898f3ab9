"""Error texts of failed connection attempts.

Pure: no clock, no I/O. A host may be text of another program, such as the metadata of a broker.
"""

from tidelog.wire.errors import printable


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
