"""The CA of a cluster and what it issues, read by OpenSSL."""

import stat
import sys
from pathlib import Path

import pytest
import trustme

from tidelog.certificates.authority import CertificateAuthority
from tidelog.certificates.directories import read_authority, write_cluster, write_issued
from tidelog.wire.env.real.certificate_files import TlsFiles, own_facts, server_context
from tidelog.wire.env.real.real_env import RealClock
from tidelog.wire.errors import ConfigError
from tidelog.wire.security.certificate_name import CertificateName, certificate_name
from tidelog.wire.security.principal import parse_principal

NODES = {1: ["one.example"], 2: ["two.example", "10.0.0.2"]}
DAY_MS = 24 * 3_600_000


def now_ms() -> int:
    return RealClock().now_ms()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def name_in(directory: Path) -> CertificateName | None:
    files = TlsFiles.of_directory(directory)
    return certificate_name(own_facts(server_context(files), files))


def test_each_node_gets_a_directory_that_openssl_accepts(tmp_path: Path) -> None:
    directories = write_cluster(tmp_path, NODES, cluster="blue", now_ms=now_ms())

    assert [each.name for each in directories] == ["node-1", "node-2"]
    assert [name_in(each) for each in directories] == [
        CertificateName("blue", parse_principal("node:1")),
        CertificateName("blue", parse_principal("node:2")),
    ]


def test_keys_are_readable_by_their_owner_alone_and_the_ca_key_is_apart(tmp_path: Path) -> None:
    write_cluster(tmp_path, NODES, cluster="blue", now_ms=now_ms())

    keys = sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*key.pem"))
    assert keys == ["ca/ca-key.pem", "node-1/key.pem", "node-2/key.pem"]
    assert {mode_of(tmp_path / each) for each in keys} == {0o600}


def test_without_the_key_of_the_ca_no_more_can_be_issued(tmp_path: Path) -> None:
    write_cluster(tmp_path, NODES, cluster="blue", now_ms=now_ms(), keeps_key=False)

    assert not (tmp_path / "ca" / "ca-key.pem").exists()
    with pytest.raises(ConfigError, match="without --no-ca-key"):
        read_authority(tmp_path)


@pytest.mark.parametrize("of", [".", "ca"])
def test_a_user_gets_a_certificate_of_the_same_ca(tmp_path: Path, of: str) -> None:
    write_cluster(tmp_path, NODES, cluster="blue", now_ms=now_ms())
    out = tmp_path / "alice"

    authority = read_authority(tmp_path / of)
    write_issued(out, authority, parse_principal("user:al@ice/x"), now_ms=now_ms())

    assert authority.cluster == "blue"
    assert (out / "ca.pem").read_bytes() == (tmp_path / "ca" / "ca.pem").read_bytes()
    assert mode_of(out / "key.pem") == 0o600
    with pytest.raises(ConfigError, match="purpose"):  # A user's certificate cannot serve.
        name_in(out)


def test_a_directory_with_files_is_never_overwritten(tmp_path: Path) -> None:
    write_cluster(tmp_path, NODES, cluster="blue", now_ms=now_ms())
    before = (tmp_path / "node-1" / "key.pem").read_bytes()

    with pytest.raises(ConfigError, match="is not empty; choose a new directory"):
        write_cluster(tmp_path, NODES, cluster="blue", now_ms=now_ms())
    with pytest.raises(ConfigError, match="File exists; choose another directory"):
        write_issued(
            tmp_path / "node-1",
            read_authority(tmp_path),
            parse_principal("node:1"),
            now_ms=now_ms(),
        )

    assert (tmp_path / "node-1" / "key.pem").read_bytes() == before


def test_an_issued_certificate_shows_no_key() -> None:
    authority = CertificateAuthority.create("blue", now_ms=now_ms())
    issued = authority.issue(CertificateName("blue", parse_principal("user:alice")), now_ms=0)

    assert "PRIVATE" not in repr(issued)


def test_names_may_have_any_letters(tmp_path: Path) -> None:
    nodes = {1: ["b\N{LATIN SMALL LETTER U WITH DIAERESIS}ro.example"]}
    cluster = "z\N{LATIN SMALL LETTER U WITH DIAERESIS}rich / 1"
    (node,) = write_cluster(tmp_path, nodes, cluster=cluster, now_ms=now_ms())

    assert name_in(node) == CertificateName(cluster, parse_principal("node:1"))
    assert read_authority(tmp_path).cluster == cluster


def test_a_host_without_a_legal_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no legal name of a host"):
        write_cluster(tmp_path, {1: ["a..b"]}, cluster="blue", now_ms=now_ms())


def test_a_ca_of_another_tool_names_no_cluster() -> None:
    ca = trustme.CA()
    with pytest.raises(ConfigError, match="it names no cluster"):
        CertificateAuthority.load(ca.cert_pem.bytes(), ca.private_key_pem.bytes())


def test_a_certificate_of_another_tool_names_no_cluster(tmp_path: Path) -> None:
    write_cluster(tmp_path, NODES, cluster="blue", now_ms=now_ms())
    node = tmp_path / "node-1"

    with pytest.raises(ConfigError, match="it names no cluster"):
        CertificateAuthority.load((node / "cert.pem").read_bytes(), (node / "key.pem").read_bytes())


def test_without_cryptography_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)

    with pytest.raises(ConfigError, match=r"pip install 'tidelog\[security\]'"):
        write_cluster(tmp_path, NODES, cluster="blue", now_ms=now_ms())
