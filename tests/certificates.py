"""Certificates for tests: a CA, and the directories that it writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio
import trustme

from tidelog.certificates.authority import CertificateAuthority
from tidelog.wire.env.real.certificate_files import TlsFiles
from tidelog.wire.env.real.real_env import RealClock
from tidelog.wire.security.certificate_name import CertificateName
from tidelog.wire.security.principal import parse_principal

DAY_MS: Final = 24 * 3_600_000
HOSTS: Final = ("127.0.0.1", "localhost")


class Authority:
    """A CA of the cluster `blue`, and a directory in which it writes certificates."""

    def __init__(self, directory: Path, cluster: str = "blue") -> None:
        """Create a CA that has existed for two years."""
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.now_ms = RealClock().now_ms()
        self.ca = CertificateAuthority.create(cluster, now_ms=self.now_ms - 730 * DAY_MS)

    def issue(
        self,
        principal: str,
        *hosts: str,
        directory: str = "",
        days_old: int = 0,
        days: int = 398,
    ) -> TlsFiles:
        """Write a directory with a certificate for `node:1` or `user:alice`."""
        made = self.ca.issue(
            CertificateName(self.ca.cluster, parse_principal(principal)),
            now_ms=self.now_ms - days_old * DAY_MS,
            hosts=hosts or HOSTS,
            days=days,
        )
        return self._write(directory or principal.replace(":", "-"), made.certificate, made.key)

    def replace(self, files: TlsFiles, by: TlsFiles) -> None:
        """Write the certificate and the key of `by` into the files of `files`."""
        copy(by.certificate, files.certificate)
        copy(by.key, files.key)

    def _write(self, name: str, certificate: bytes, key: bytes) -> TlsFiles:
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        (directory / "key.pem").touch(mode=0o600)
        (directory / "key.pem").write_bytes(key)
        (directory / "cert.pem").write_bytes(certificate)
        (directory / "ca.pem").write_bytes(self.ca.certificate_pem)
        return TlsFiles.of_directory(directory)


def public_certificate(directory: Path) -> TlsFiles:
    """Write a directory with a certificate for 127.0.0.1 that names no node, by another library."""
    directory.mkdir()
    ca = trustme.CA()
    made = ca.issue_cert(*HOSTS)
    (directory / "key.pem").touch(mode=0o600)
    made.private_key_pem.write_to_path(directory / "key.pem")
    for each in made.cert_chain_pems:
        each.write_to_path(directory / "cert.pem", append=True)
    ca.cert_pem.write_to_path(directory / "ca.pem")
    return TlsFiles.of_directory(directory)


def copy(source: str | None, target: str | None) -> None:
    """Copy a file over another one."""
    assert source is not None
    assert target is not None
    Path(target).write_bytes(Path(source).read_bytes())


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` returns something true."""
    while not condition():  # noqa: ASYNC110  (a file or a stream of the system changes)
        await trio.sleep(0.002)
