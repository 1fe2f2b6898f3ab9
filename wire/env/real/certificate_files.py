"""Certificates of TLS in files, and the contexts of `ssl` that hold them.

Shell: reads files. `ssl` alone reads them: TLS needs no further library.
"""

import ssl
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast, final

from tidelog.wire.env.env import Certificate
from tidelog.wire.errors import ConfigError

SYSTEM: Final = "system"
"""Instead of a file of CAs: those that the operating system trusts."""
_STEPS_MAX: Final = 10
"""Steps of a handshake in memory; three are enough."""
_NO_CHECK_TIME: Final = 0x20_0000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL."""


@final
@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of one side; PEM."""

    authorities: str
    """Trusted CAs, or `SYSTEM`."""
    certificate: str | None = None
    """The own certificate, then those of CAs in between; `None` for a client without one."""
    key: str | None = None

    @classmethod
    def of_directory(cls, directory: Path) -> "TlsFiles":
        """Return `ca.pem`, `cert.pem` and `key.pem` of a directory."""
        names = ("ca.pem", "cert.pem", "key.pem")
        return cls(*(str(directory / name) for name in names))

    @classmethod
    def of_settings(cls, authorities: str, certificate: str | None, key: str | None) -> "TlsFiles":
        """Return the files of a client's settings, which may begin with `~`."""
        given = (authorities, certificate, key)
        found = [each and str(Path(each).expanduser()) for each in given]
        return cls(found[0] or authorities, *found[1:])

    def read(self) -> tuple[bytes, ...]:
        """Return the contents, which tell whether the files have changed.

        Raises:
            ConfigError: A file cannot be read, or others may use the key.
        """
        given = (self.authorities, self.certificate, self.key)
        return tuple(_read(name) for name in given if name is not None and name != SYSTEM)

    def state(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when a file is written or replaced; zeros for a missing one."""
        given = (self.authorities, self.certificate, self.key)
        return tuple(_state(name) for name in given if name is not None and name != SYSTEM)


def _state(name: str) -> tuple[int, int, int]:
    try:
        found = Path(name).stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _read(name: str) -> bytes:
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot read {name}: {error.strerror}; TLS needs the certificate, its key and the CA"
    )


def check_key_mode(files: TlsFiles) -> None:
    """Check that not all users of the machine may read the key.

    Raises:
        ConfigError: They may, or the file is gone.
    """
    if files.key is not None:
        try:
            mode = Path(files.key).stat().st_mode
        except OSError as error:
            raise _unreadable(files.key, error) from error
        if mode & stat.S_IRWXO:
            raise ConfigError(
                f"{files.key} has mode {stat.S_IMODE(mode):o}, so that every user may use it; run:"
                f" chmod 600 {files.key}"
            )


def client_context(files: TlsFiles, *, has_certificate: bool = True) -> ssl.SSLContext:
    """Return the context of connections to brokers.

    Raises:
        ConfigError: The files do not fit each other, or are no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _filled(context, files, has_certificate=has_certificate)


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of connections of clients, which may have certificates.

    Raises:
        ConfigError: The files do not fit each other, or are no certificates.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL
    return _filled(context, files, has_certificate=True)


def _filled(context: ssl.SSLContext, files: TlsFiles, *, has_certificate: bool) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if files.authorities == SYSTEM:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(files.authorities)
        except OSError as error:
            raise ConfigError(
                f"{files.authorities} has no CA certificates in PEM form: {_words(error)}"
            ) from error
    if has_certificate and files.certificate is not None:
        try:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except OSError as error:
            if getattr(error, "reason", "") == "KEY_VALUES_MISMATCH":
                raise ConfigError(
                    f"the key {files.key} does not belong to the certificate {files.certificate};"
                    " copy both from the same place"
                ) from error
            raise ConfigError(
                f"{files.certificate} and {files.key} cannot be used: {_words(error)}; they must be"
                " a certificate and its key in PEM form"
            ) from error
    return context


def _no_password() -> str:
    raise ConfigError("the key of TLS is encrypted; use one without a password, with mode 0600")


def _words(error: OSError) -> str:
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return str(reason).lower().replace("_", " ")


def own_facts(server: ssl.SSLContext, files: TlsFiles) -> Certificate:
    """Return the facts of the certificate of `server`, by a handshake with itself in memory.

    So its chain is checked against the CAs; the dates are not, because the clock may be wrong.

    Raises:
        ConfigError: The chain does not lead to a CA in the files.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    _filled(client, files, has_certificate=False)
    client.verify_flags = ssl.VerifyFlags(client.verify_flags | _NO_CHECK_TIME)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(_STEPS_MAX):
            has_asked, has_answered = _step(asking), _step(answering)
            if has_asked and has_answered:
                break
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"{files.certificate} is not signed by a CA in {files.authorities}:"
            f" {error.verify_message}; use the ca.pem of the cluster"
        ) from error
    except ssl.SSLError as error:
        raise ConfigError(f"{files.certificate} cannot be used: {_words(error)}") from error
    return read_facts(cast("Mapping[str, Any]", asking.getpeercert()))


def _step(end: ssl.SSLObject) -> bool:
    """Return whether one end has completed the handshake."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def read_facts(parsed: Mapping[str, Any]) -> Certificate:
    """Return the facts of a certificate that `ssl` has parsed."""
    names = cast("Sequence[tuple[str, str]]", parsed.get("subjectAltName", ()))
    subject = [
        value
        for part in cast("Sequence[Sequence[tuple[str, str]]]", parsed.get("subject", ()))
        for name, value in part
        if name == "commonName"
    ]
    return Certificate(
        subject=subject[0] if subject else "",
        uris=tuple(value for kind, value in names if kind == "URI"),
        serial=str(parsed.get("serialNumber", "")).lower(),
        not_before_ms=ssl.cert_time_to_seconds(str(parsed["notBefore"])) * 1000,
        expires_at_ms=ssl.cert_time_to_seconds(str(parsed["notAfter"])) * 1000,
    )


def authority_expiry_ms(context: ssl.SSLContext) -> int:
    """Return when the first of the CA certificates in a context expires, in Unix milliseconds."""
    found = [ssl.cert_time_to_seconds(str(each["notAfter"])) for each in context.get_ca_certs()]
    return min(found, default=0) * 1000
