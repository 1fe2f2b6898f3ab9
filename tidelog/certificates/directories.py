"""Directories of certificates: one for the CA, one for each node, one for each user.

Shell: writes files. A directory that exists is never changed: renewed certificates go to a new one,
and from there to the machines.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tidelog.certificates.authority import (
    ISSUED_DAYS,
    CertificateAuthority,
    IssuedCertificate,
    check_installed,
)
from tidelog.wire.errors import ConfigError
from tidelog.wire.security.certificate_name import CertificateName
from tidelog.wire.security.principal import Principal, PrincipalKind

_AUTHORITY: Final = "ca"
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
"""Names of each node, for commands on its own machine."""
_PRIVATE: Final = 0o600
_PUBLIC: Final = 0o644


def write_cluster(
    out: Path,
    nodes: Mapping[int, Sequence[str]],
    *,
    cluster: str,
    now_ms: int,
    keeps_key: bool = True,
) -> list[Path]:
    """Write a new CA, and a directory for each node; return the directories of the nodes.

    Args:
        out: A new or empty directory.
        nodes: Host names and IP addresses, by node id.
        cluster: Name of the cluster in all certificates.
        now_ms: The time now.
        keeps_key: Whether the key of the CA is written, with which more can be issued.

    Raises:
        ConfigError: `cryptography` is not installed, or `out` has files or cannot be written.
    """
    check_installed()
    try:
        if out.exists() and any(out.iterdir()):
            raise ConfigError(f"{out} is not empty; choose a new directory with --out")
        authority = CertificateAuthority.create(cluster, now_ms=now_ms)
        directories = [out / f"node-{node_id}" for node_id in nodes]
        for directory, (node_id, hosts) in zip(directories, nodes.items(), strict=True):
            name = CertificateName(cluster, Principal(PrincipalKind.NODE, str(node_id)))
            issued = authority.issue(name, now_ms=now_ms, hosts=[*hosts, *_LOCAL])
            _write_issued(directory, issued, authority.certificate_pem)
        _make(out / _AUTHORITY)
        _write(out / _AUTHORITY / "ca.pem", authority.certificate_pem, mode=_PUBLIC)
        if keeps_key:
            _write(out / _AUTHORITY / "ca-key.pem", authority.key_pem, mode=_PRIVATE)
    except OSError as error:
        raise _not_written(out, error) from error
    return directories


def read_authority(directory: Path) -> CertificateAuthority:
    """Return the CA in the directory `ca`, or in the directory that holds it.

    Raises:
        ConfigError: There is none, or its key was not kept.
    """
    inside = directory / _AUTHORITY
    found = inside if inside.is_dir() else directory
    try:
        certificate = (found / "ca.pem").read_bytes()
        key = (found / "ca-key.pem").read_bytes()
    except OSError as error:
        raise ConfigError(
            f"there is no CA with its key in {found}: {error.strerror}; name the directory that"
            " `tidelog cluster init-tls` wrote without --no-ca-key"
        ) from error
    return CertificateAuthority.load(certificate, key)


def write_issued(
    out: Path,
    authority: CertificateAuthority,
    principal: Principal,
    *,
    now_ms: int,
    hosts: Sequence[str] = (),
    days: int = ISSUED_DAYS,
) -> None:
    """Write a certificate for a node or user into a new directory.

    Raises:
        ConfigError: The directory has files already, or cannot be written.
    """
    name = CertificateName(authority.cluster, principal)
    local = _LOCAL if principal.kind is PrincipalKind.NODE else ()
    issued = authority.issue(name, now_ms=now_ms, hosts=[*hosts, *local], days=days)
    try:
        _write_issued(out, issued, authority.certificate_pem)
    except OSError as error:
        raise _not_written(out, error) from error


def _write_issued(directory: Path, issued: IssuedCertificate, ca_pem: bytes) -> None:
    _make(directory)
    _write(directory / "key.pem", issued.key, mode=_PRIVATE)
    _write(directory / "cert.pem", issued.certificate, mode=_PUBLIC)
    _write(directory / "ca.pem", ca_pem, mode=_PUBLIC)


def _make(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write(path: Path, content: bytes, *, mode: int) -> None:
    # The mode holds from the first moment on: a key is never readable for others.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _not_written(out: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"cannot write certificates to {out}: {error.strerror}; choose another directory with --out"
    )
