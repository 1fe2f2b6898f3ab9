"""Certificates of connections of this node: its own one, and those of clients and other nodes.

Shell: reads the files of the own certificate again, each maintenance interval and on request.
"""

from collections.abc import Callable
from typing import final

import trio

from tidelog.broker.security.own_certificate import ExpiryWatch
from tidelog.wire.env.env import Certificate, Env, Network
from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.certificates import ListCertificatesReply, ListCertificatesRequest
from tidelog.wire.security.certificate_name import certificate_name, certified_principal
from tidelog.wire.security.principal import Principal


@final
class NodeCertificates:
    """The certificates that a node with TLS uses and checks; without TLS there are none."""

    def __init__(self, env: Env, *, node_id: int, mode: str) -> None:
        """Use the certificate of `env.secure_network`; `mode` is the setting `tls`."""
        self._env = env
        self._node_id = node_id
        self._mode = mode
        self._secured = env.secure_network
        name = None if self._secured is None else certificate_name(self._secured.certificate)
        self._cluster = None if name is None else name.cluster
        self._expiry = ExpiryWatch()
        self._authority_expiry = ExpiryWatch()
        self._failure = ""
        """Reason for which the last new certificate was not used."""
        self._wanted = trio.Event()

    @property
    def network(self) -> Network:
        """The network between nodes, and for clients."""
        return self._secured or self._env.network

    @property
    def identify(self) -> Callable[[Certificate], Principal] | None:
        """Returns the principal of a certificate; `None` if certificates prove none here."""
        return None if self._cluster is None else self._principal_of

    @property
    def needs_secret(self) -> bool:
        """Whether nodes may prove themselves by the secret of the cluster."""
        return self._cluster is None or self._mode != "require"

    @property
    def expires_at_ms(self) -> int | None:
        """Unix milliseconds at which the own certificate ends; `None` without TLS."""
        return None if self._secured is None else self._secured.certificate.expires_at_ms

    def describe(
        self, request: ListCertificatesRequest, attachment: memoryview
    ) -> ListCertificatesReply:
        """Return the facts of the own certificate."""
        del request, attachment
        if self._secured is None:
            return ListCertificatesReply(self._node_id, self._mode)
        own = self._secured.certificate
        name = certificate_name(own)
        return ListCertificatesReply(
            self._node_id,
            self._mode,
            own.subject if name is None else name.uri,
            own.serial,
            own.expires_at_ms,
            self._secured.authority_expires_at_ms,
        )

    def request_reload(self) -> None:
        """Have the files looked at now."""
        self._wanted.set()

    async def run(self, interval_s: Callable[[], float]) -> None:
        """Look at the files and at the dates until cancelled."""
        while self._secured is not None:
            self._warn(self._secured.certificate, self._secured.authority_expires_at_ms)
            with trio.move_on_after(interval_s()):
                await self._wanted.wait()
            self._wanted = trio.Event()
            try:
                if await self._secured.reload():
                    self._tell_reloaded(self._secured.certificate)
                self._failure = ""
            except ConfigError as error:
                self._tell_failed(str(error))

    def _principal_of(self, certificate: Certificate) -> Principal:
        assert self._cluster is not None, "this node has a certificate"
        now_ms = self._env.clock.now_ms()
        return certified_principal(certificate, cluster=self._cluster, now_ms=now_ms)

    def _tell_reloaded(self, own: Certificate) -> None:
        self._env.probe(
            "certificate_reloaded",
            subject=own.subject,
            serial=own.serial,
            expires_at_ms=own.expires_at_ms,
        )

    def _tell_failed(self, reason: str) -> None:
        if reason != self._failure:
            self._failure = reason
            self._env.probe("certificate_not_reloaded", severity="warning", reason=reason)

    def _warn(self, own: Certificate, authority_expires_at_ms: int) -> None:
        now_ms = self._env.clock.now_ms()
        for what, watch, expires_at_ms in (
            ("certificate", self._expiry, own.expires_at_ms),
            ("authority", self._authority_expiry, authority_expires_at_ms),
        ):
            warning = watch.due(expires_at_ms, now_ms=now_ms) if expires_at_ms else None
            if warning is not None:
                self._env.probe(
                    "certificate_expires",
                    severity=warning.severity,
                    what=what,
                    subject=own.subject,
                    expires_at_ms=expires_at_ms,
                    days_left=warning.days_left,
                )
