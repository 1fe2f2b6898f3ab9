"""The certificate of this node: which one it may use, and how long it still holds.

Pure: no clock, no I/O.
"""

from typing import Final, NamedTuple, final

from tidelog.wire.env.env import Certificate
from tidelog.wire.errors import ConfigError, HandshakeFailedError
from tidelog.wire.security.certificate_name import CertificateName, certificate_name

_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 24 * 60 * _MINUTE_MS
_WARNED_DAYS: Final = (30, 7, 1)
"""Days before the end of a certificate at which the broker warns."""


def own_name(certificate: Certificate, *, node_id: int, now_ms: int) -> CertificateName | None:
    """Return the name in the certificate of this node; `None` for one of a public CA.

    Raises:
        ConfigError: It is of another node or of a user, it has expired, or it is not valid yet.
    """
    try:
        name = certificate_name(certificate)
    except HandshakeFailedError as error:
        raise ConfigError(str(error)) from error
    if name is not None and name.node_id != node_id:
        raise ConfigError(
            f"the certificate in tls_directory is of {name.principal}, and this is node {node_id};"
            f" choose the directory of node {node_id}, or correct node_id"
        )
    if certificate.expires_at_ms <= now_ms:
        raise ConfigError(
            "the certificate in tls_directory has expired"
            f" {(now_ms - certificate.expires_at_ms) // _DAY_MS} days ago; issue a new one with"
            " `tidelog cluster issue-cert`, or check the clock"
        )
    early_ms = certificate.not_before_ms - now_ms
    if early_ms > 0:
        raise ConfigError(
            "the certificate in tls_directory is not valid yet, for"
            f" {-(-early_ms // _MINUTE_MS):,} minutes more; check the clock, or issue a new one"
            " with `tidelog cluster issue-cert`"
        )
    return name


@final
class ExpiryWarning(NamedTuple):
    """What to say of a certificate that ends soon."""

    days_left: int
    """Whole days until its end; negative after it."""

    @property
    def severity(self) -> str:
        """Urgency of the event."""
        return "warning" if self.days_left >= min(_WARNED_DAYS) else "error"


@final
class ExpiryWatch:
    """Decides when to warn: once at 30, 7 and 1 days before the end, and daily after it."""

    def __init__(self) -> None:
        """Begin without warnings."""
        self._warned: tuple[int, int] | None = None
        """End of the certificate and stage of the last warning."""

    def due(self, expires_at_ms: int, *, now_ms: int) -> ExpiryWarning | None:
        """Return the warning that is due now, and note that it was given."""
        days_left = (expires_at_ms - now_ms) // _DAY_MS
        stages = [days for days in _WARNED_DAYS if days_left < days]
        if not stages:
            self._warned = None
            return None
        stage = min(stages) if days_left >= 0 else days_left
        if self._warned == (expires_at_ms, stage):
            return None
        self._warned = (expires_at_ms, stage)
        return ExpiryWarning(days_left)
