"""Names of nodes and users in certificates."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.wire.env.env import Certificate
from tidelog.wire.errors import HandshakeFailedError
from tidelog.wire.security.certificate_name import (
    CertificateName,
    certificate_name,
    certified_principal,
)
from tidelog.wire.security.principal import ANONYMOUS, parse_principal

EXPIRES_MS = 2_000


def a_certificate(*uris: str) -> Certificate:
    return Certificate("a subject", uris, "0a", 1_000, EXPIRES_MS)


@given(
    cluster=st.text(min_size=1, max_size=20),
    name=st.from_regex(r"[A-Za-z0-9._@+/=-]{1,128}", fullmatch=True),
)
def test_a_name_survives_its_certificate(cluster: str, name: str) -> None:
    written = CertificateName(cluster, parse_principal(f"user:{name}"))

    assert certificate_name(a_certificate("https://a.example", written.uri)) == written
    assert written.node_id is None


def test_a_node_has_an_id() -> None:
    name = certificate_name(a_certificate("tidelog://blue/node/7"))

    assert name is not None
    assert name.node_id == 7


@pytest.mark.parametrize(
    "uris",
    [
        ("tidelog://blue/node/x",),
        ("tidelog://blue/node/-1",),
        ("tidelog://blue/node/99999999999",),
        ("tidelog://blue/anonymous",),
        ("tidelog://blue/anonymous/",),
        ("tidelog://blue/user/",),
        ("tidelog://blue/user/a%20b",),
        ("tidelog:///node/1",),
        ("tidelog://blue",),
        ("tidelog://blue/node/1", "tidelog://blue/user/alice"),
    ],
)
def test_a_malformed_or_ambiguous_name_is_refused(uris: tuple[str, ...]) -> None:
    with pytest.raises(HandshakeFailedError, match="it must have one"):
        certificate_name(a_certificate(*uris))


def test_a_certificate_proves_a_principal_of_its_cluster_until_it_expires() -> None:
    alice = a_certificate("tidelog://blue/user/alice")

    assert certified_principal(alice, cluster="blue", now_ms=1_999) == parse_principal("user:alice")
    with pytest.raises(HandshakeFailedError, match="is of the cluster 'blue', and this one is"):
        certified_principal(alice, cluster="green", now_ms=1_999)
    with pytest.raises(HandshakeFailedError, match="has expired; issue a new one"):
        certified_principal(alice, cluster="blue", now_ms=EXPIRES_MS)


def test_a_certificate_without_a_name_proves_nothing() -> None:
    other = a_certificate("https://a.example")

    assert certified_principal(other, cluster="blue", now_ms=0) == ANONYMOUS
