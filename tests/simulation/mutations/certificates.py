"""Mutations of certificates."""

# Reads private parts of the broker.
# pyright: reportPrivateUsage=false

from typing import Final

from tests.simulation.mutations.mutation import Mutation
from tidelog.broker.security.node_certificates import NodeCertificates
from tidelog.wire.env.env import Certificate
from tidelog.wire.errors import ConfigError


def _end_with_the_certificate(
    self: NodeCertificates, own: Certificate, authority_expires_at_ms: int
) -> None:
    del authority_expires_at_ms
    if own.expires_at_ms <= self._env.clock.now_ms():
        raise ConfigError("the certificate has expired")


def _end_with_the_reload(self: NodeCertificates, reason: str) -> None:
    del self
    raise ConfigError(reason)


MUTATIONS: Final = (
    Mutation(
        "an-expired-certificate-ends-the-broker",
        "a broker ends when its certificate has expired",
        (NodeCertificates, "_warn", _end_with_the_certificate),
    ),
    Mutation(
        "an-unusable-certificate-ends-the-broker",
        "a broker ends when the new certificate in its files cannot be used",
        (NodeCertificates, "_tell_failed", _end_with_the_reload),
    ),
)
"""Each ends a broker that must go on."""
