"""Identities of a broker's clients: gate, sessions and mechanisms, put together."""

from collections.abc import Callable
from typing import final

import trio

from tidelog.broker.security.access_keys import AccessKeys
from tidelog.broker.security.authentication import AuthenticationHandler
from tidelog.broker.security.certified_clients import CertifiedClients
from tidelog.broker.security.gate import RequestGate
from tidelog.broker.security.impersonation import GatewayAccess, ImpersonationHandler
from tidelog.broker.security.scram import ScramUsers, load_scram
from tidelog.broker.security.sessions import ClientSessions
from tidelog.broker.security.token import TokenExchange
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.state import SecurityState
from tidelog.wire.env.env import Certificate, Env
from tidelog.wire.errors import BrokerNotReadyError
from tidelog.wire.security.principal import Principal
from tidelog.wire.security.scram import SCRAM_SHA_256
from tidelog.wire.security.token import TOKEN


@final
class ClientIdentities:
    """How the clients of one broker prove what they are, and how long it holds."""

    def __init__(
        self, env: Env, nursery: trio.Nursery, *, is_required: bool, secret: bytes
    ) -> None:
        """Start without metadata: clients are told to try again; tasks run in `nursery`.

        `secret` is that of the cluster. Anonymous clients are refused if authentication
        `is_required`.
        """
        self._nursery = nursery
        self._cluster: ClusterNode | None = None
        self.gate = RequestGate(env.clock, is_authentication_required=is_required)
        """Checks the requests of clients."""
        self.sessions = ClientSessions(env.clock)
        """All authenticated connections."""
        if is_required:
            load_scram()  # Later, it would hold up requests.
        users = ScramUsers(self.security, env.random, secret=secret)
        self.handler = AuthenticationHandler(
            env,
            nursery,
            {SCRAM_SHA_256: users.start, TOKEN: lambda: TokenExchange(self.security, env.clock)},
            sessions=self.sessions,
        )
        """Answers AUTHENTICATE; its `mechanisms` may grow."""
        self.access_keys = AccessKeys(self.security, env.clock, cluster_secret=secret)
        """The access keys of the cluster."""
        self.gateway_access: GatewayAccess | None = None
        """Decides which principals may act for users; `None` lets each do so."""
        self.impersonation = ImpersonationHandler(
            self.access_keys, env.clock, self.sessions, access=lambda: self.gateway_access
        )
        """Answers IMPERSONATE."""

    def certified_clients(
        self, principal_of: Callable[[Certificate], Principal]
    ) -> CertifiedClients:
        """Return what begins the sessions of clients whose certificates `principal_of` reads."""
        return CertifiedClients(principal_of, self.sessions, self.security)

    def security(self) -> SecurityState:
        """Return the security metadata.

        Raises:
            BrokerNotReadyError: They are not known yet.
        """
        if self._cluster is None:
            raise BrokerNotReadyError("this broker is not ready: it is reading its metadata")
        return self._cluster.metadata.state.security

    def follow(self, cluster: ClusterNode) -> None:
        """Use the metadata of a cluster; a revocation ends connections when it is applied here."""
        self._cluster = cluster
        self._nursery.start_soon(self.sessions.run)
        cluster.metadata.subscribe(
            lambda _: self.sessions.metadata_changed(self.security()), hears_transactions=False
        )
