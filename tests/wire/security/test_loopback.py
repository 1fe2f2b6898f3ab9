"""Addresses of this machine, to which credentials may go without TLS."""

import pytest

from tidelog.wire.security.loopback import host_of, is_loopback


@pytest.mark.parametrize(
    ("peer", "is_own"),
    [
        ("127.0.0.1:8433", True),
        ("127.9.9.9:1", True),
        ("::1:8433", True),
        ("[::1]:8433", True),
        ("::ffff:127.0.0.1:8433", True),
        ("::ffff:192.0.2.1:8433", False),
        ("192.0.2.1:8433", False),
        ("128.0.0.1:8433", False),
        ("localhost:8433", False),
        ("127.0.0.1.example.com:8433", False),
        ("a disconnected peer", False),
    ],
)
def test_only_addresses_of_the_machine_are_loopback(peer: str, *, is_own: bool) -> None:
    assert is_loopback(host_of(peer)) is is_own
