"""CA of a cluster, which issues the certificates of nodes and users.

Without I/O, but not pure: `cryptography` draws keys and serial numbers.
"""

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, Self, cast, final
from urllib.parse import quote, unquote

from tidelog.wire.errors import ConfigError
from tidelog.wire.security.certificate_name import CertificateName

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )
    from cryptography.hazmat.primitives.hashes import SHA256

AUTHORITY_DAYS: Final = 3_650
"""Days for which the certificate of a CA is valid."""
ISSUED_DAYS: Final = 398
"""Days for which other certificates are valid, by default."""
_SKEW: Final = timedelta(hours=1)
"""Time before now from which a certificate is valid: clocks differ."""
_CLUSTER_URI: Final = "tidelog://{}/ca"


@final
class IssuedCertificate(NamedTuple):
    """A certificate and its key, in PEM form."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Return a text without the key."""
        return f"IssuedCertificate({len(self.certificate)} bytes)"


@final
class CertificateAuthority:
    """A CA with its key."""

    def __init__(
        self, cluster: str, certificate: "x509.Certificate", key: "EllipticCurvePrivateKey"
    ) -> None:
        """Use `create` or `load`."""
        self.cluster = cluster
        """Name of the cluster in all certificates of this CA."""
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, cluster: str, *, now_ms: int) -> Self:
        """Return a new CA for the cluster of a name.

        Raises:
            ConfigError: `cryptography` is not installed.
        """
        check_installed()
        from cryptography import x509

        key = _new_key()
        subject = _name(f"tidelog CA of {cluster}")
        builder = _builder(subject, key.public_key(), now_ms=now_ms, days=AUTHORITY_DAYS)
        usage = _key_usage(is_authority=True)
        certificate = (
            builder.issuer_name(subject)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(
                _alternative_names([], _CLUSTER_URI.format(quote(cluster))), critical=False
            )
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, _hash())
        )
        return cls(cluster, certificate, key)

    @classmethod
    def load(cls, certificate_pem: bytes, key_pem: bytes) -> Self:
        """Return the CA of two files that `certificate_pem` and `key_pem` of another one wrote.

        Raises:
            ConfigError: They are not those of a CA of tidelog.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        try:
            certificate = x509.load_pem_x509_certificate(certificate_pem)
            key = cast("EllipticCurvePrivateKey", load_pem_private_key(key_pem, None))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"ca.pem or ca-key.pem cannot be read: {error}") from error
        uris = [
            uri
            for each in certificate.extensions
            if isinstance(each.value, x509.SubjectAlternativeName)
            for uri in each.value.get_values_for_type(x509.UniformResourceIdentifier)
        ]
        head, tail = _CLUSTER_URI.split("{}")
        clusters = [
            unquote(uri.removeprefix(head).removesuffix(tail))
            for uri in uris
            if uri.startswith(head) and uri.endswith(tail)
        ]
        if not clusters:
            raise ConfigError("ca.pem is not of `tidelog cluster init-tls`: it names no cluster")
        return cls(clusters[0], certificate, key)

    @property
    def certificate_pem(self) -> bytes:
        """The certificate of the CA."""
        from cryptography.hazmat.primitives.serialization import Encoding

        return self._certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key of the CA, which makes certificates of any node and any user."""
        return _key_pem(self._key)

    def issue(
        self,
        name: CertificateName,
        *,
        now_ms: int,
        hosts: Iterable[str] = (),
        days: int = ISSUED_DAYS,
    ) -> IssuedCertificate:
        """Return a certificate for a node that listens on `hosts`, or for a user.

        Raises:
            ConfigError: A host is no legal name.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding

        key = _new_key()
        usages = [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
        if name.node_id is not None:
            usages.append(x509.oid.ExtendedKeyUsageOID.SERVER_AUTH)
        builder = _builder(_name(str(name.principal)), key.public_key(), now_ms=now_ms, days=days)
        certificate = (
            builder.issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(_alternative_names(hosts, name.uri), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, _hash())
        )
        return IssuedCertificate(certificate.public_bytes(Encoding.PEM), _key_pem(key))


def check_installed() -> None:
    """Raise if certificates cannot be issued.

    Raises:
        ConfigError: `cryptography` is not installed.
    """
    try:
        import cryptography as found
    except ImportError as error:
        raise ConfigError(
            "certificates cannot be issued: cryptography is not installed; run: pip install"
            " 'tidelog[security]'"
        ) from error
    del found


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _hash() -> "SHA256":
    from cryptography.hazmat.primitives.hashes import SHA256

    return SHA256()


def _key_pem(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _name(text: str) -> "x509.Name":
    from cryptography import x509

    # A common name has 64 characters at most.
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text[:64])])


def _builder(
    subject: "x509.Name", key: "EllipticCurvePublicKey", *, now_ms: int, days: int
) -> "x509.CertificateBuilder":
    from cryptography import x509

    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(hosts: Iterable[str], uri: str) -> "x509.SubjectAlternativeName":
    from cryptography import x509

    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri)]
    for host in dict.fromkeys(hosts):
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(_ascii(host)))
    return x509.SubjectAlternativeName(names)


def _ascii(host: str) -> str:
    """Return the name of a host as certificates and the DNS have it.

    Raises:
        ConfigError: It is no legal name.
    """
    try:
        return host.encode("idna").decode()
    except UnicodeError as error:
        raise ConfigError(f"{host!r} is no legal name of a host; correct it") from error
