"""TLS of a broker on the operating system: its certificate, from the files of `tls_directory`."""

from dataclasses import replace
from pathlib import Path
from typing import final

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.security.own_certificate import own_name
from tidelog.wire.env.env import Certificate, Clock, Env
from tidelog.wire.env.real.certificate_files import TlsFiles
from tidelog.wire.env.real.tls import TlsNetwork
from tidelog.wire.errors import ConfigError


def with_tls(env: Env, config: BrokerConfig) -> Env:
    """Return the environment with TLS, as the settings ask for it.

    Raises:
        ConfigError: The certificate cannot be used by this node.
    """
    directory = Path(config.tls_directory).expanduser()
    own = directory / f"node-{config.node_id}"
    network = TlsNetwork(
        TlsFiles.of_directory(own if own.is_dir() else directory),
        is_required=config.tls == "require",
        check=OwnCertificateCheck(env.clock, node_id=config.node_id),
    )
    return replace(env, secure_network=network)


@final
class OwnCertificateCheck:
    """Checks a certificate before this node uses it."""

    def __init__(self, clock: Clock, *, node_id: int) -> None:
        """Check certificates of the node `node_id`."""
        self._clock = clock
        self._node_id = node_id
        self._cluster: str | None = None

    def __call__(self, certificate: Certificate) -> None:
        """Raise if the node must not use `certificate`.

        Raises:
            ConfigError: It is of another node or cluster, or it has expired.
        """
        now_ms = self._clock.now_ms()
        name = own_name(certificate, node_id=self._node_id, now_ms=now_ms)
        cluster = "" if name is None else name.cluster
        if self._cluster not in (None, cluster):
            raise ConfigError(
                f"the new certificate is of the cluster {cluster!r}, and the old one of"
                f" {self._cluster!r}; issue it with the CA of the old one"
            )
        self._cluster = cluster
