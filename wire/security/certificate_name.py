"""Names of nodes and users in certificates: URIs `tidelog://CLUSTER/node/1`.

Pure: no clock, no I/O. `CLUSTER` is a name that `tidelog cluster init-tls` chooses: certificates
are older than the cluster id. Clusters with one CA are told apart by it.
"""

from typing import Final, NamedTuple, final
from urllib.parse import quote, unquote

from tidelog.wire.env.env import URI_SCHEME, Certificate
from tidelog.wire.errors import HandshakeFailedError, InvalidRequestError
from tidelog.wire.security.principal import ANONYMOUS, Principal, PrincipalKind, parse_principal

_SAFE: Final = "._@+=-"
_NODE_ID_MAX: Final = (1 << 31) - 1
_CERTIFIED: Final = (PrincipalKind.NODE, PrincipalKind.USER)


@final
class CertificateName(NamedTuple):
    """The name that a certificate gives to its owner."""

    cluster: str
    principal: Principal

    @property
    def uri(self) -> str:
        """The name as it is in the certificate."""
        kind, name = self.principal
        return f"{URI_SCHEME}{quote(self.cluster, safe=_SAFE)}/{kind}/{quote(name, safe=_SAFE)}"

    @property
    def node_id(self) -> int | None:
        """The node id; `None` for a user."""
        is_node = self.principal.kind is PrincipalKind.NODE
        return int(self.principal.name) if is_node else None


def certificate_name(certificate: Certificate) -> CertificateName | None:
    """Return the name in a certificate; `None` without one.

    Raises:
        HandshakeFailedError: There are several, or one that is malformed.
    """
    uris = [uri for uri in certificate.uris if uri.startswith(URI_SCHEME)]
    if not uris:
        return None
    cluster, _, rest = uris[0].removeprefix(URI_SCHEME).partition("/")
    kind, _, name = rest.partition("/")
    try:
        principal = parse_principal(f"{kind}:{unquote(name)}")
    except InvalidRequestError:
        principal = ANONYMOUS
    found = CertificateName(unquote(cluster), principal)
    is_legal = principal.kind in _CERTIFIED and bool(cluster)
    if len(uris) > 1 or not is_legal or not 0 <= (found.node_id or 0) <= _NODE_ID_MAX:
        raise HandshakeFailedError(
            f"the certificate {certificate.subject!r} has the names {', '.join(uris)}; it must have"
            f" one, {URI_SCHEME}CLUSTER/node/ID or {URI_SCHEME}CLUSTER/user/NAME"
        )
    return found


def certified_principal(certificate: Certificate, *, cluster: str, now_ms: int) -> Principal:
    """Return the principal of the other side of a connection; anonymous without a name.

    The date is checked here again, because a resumed session has no new check of its certificate.

    Raises:
        HandshakeFailedError: The certificate is of another cluster, or has expired.
    """
    name = certificate_name(certificate)
    if name is None:
        return ANONYMOUS
    if name.cluster != cluster:
        raise HandshakeFailedError(
            f"the certificate {name.uri} is of the cluster {name.cluster!r}, and this one is"
            f" {cluster!r}; issue one with the CA directory of this cluster"
        )
    if certificate.expires_at_ms <= now_ms:
        raise HandshakeFailedError(f"the certificate {name.uri} has expired; issue a new one")
    return name.principal
