"""`tidelog cluster init-tls`, `issue-cert` and `certificates`."""

import json
from pathlib import Path

import pytest

from tidelog.cli import main
from tidelog.wire.env.real.certificate_files import (
    TlsFiles,
    client_context,
    own_facts,
    server_context,
)

Printed = pytest.CaptureFixture[str]


def uris_in(directory: Path) -> tuple[str, ...]:
    files = TlsFiles.of_directory(directory)
    return own_facts(server_context(files), files).uris


def test_a_cluster_gets_its_certificates_with_one_command(tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "tls"
    nodes = "1=host1:8433,2=host2,2=10.0.0.2"

    assert main.run(["cluster", "init-tls", "--nodes", nodes, "--out", str(out)]) == 0

    printed = capsys.readouterr().out
    assert f"tidelog serve --tls {out}/node-1" in printed
    assert f"{out}/ca/ca.pem: for clients, as --tls-ca" in printed
    (first,), (second,) = uris_in(out / "node-1"), uris_in(out / "node-2")
    assert first.startswith("tidelog://cluster-")
    assert first.rpartition("/node/")[0] == second.rpartition("/node/")[0]


def test_the_key_of_the_ca_can_be_thrown_away(tmp_path: Path, capsys: Printed) -> None:
    out = tmp_path / "tls"
    command = ["cluster", "init-tls", "--nodes", "1=host1", "--out", str(out), "--cluster", "blue"]

    assert main.run([*command, "--no-ca-key"]) == 0

    assert "ca-key" not in capsys.readouterr().out
    assert uris_in(out / "node-1") == ("tidelog://blue/node/1",)
    issue = ["cluster", "issue-cert", "user:alice", "--ca", str(out), "--out", str(tmp_path / "a")]
    assert main.run(issue) == 1
    assert "without --no-ca-key" in capsys.readouterr().err


def test_users_and_nodes_get_certificates(tmp_path: Path, capsys: Printed) -> None:
    out = str(tmp_path / "tls")
    main.run(["cluster", "init-tls", "--nodes", "1=host1", "--out", out, "--cluster", "blue"])
    alice, node = tmp_path / "alice", tmp_path / "node-4"

    for principal, place, *options in (
        ("user:alice", alice),
        ("node:4", node, "--host", "host4", "--days", "30"),
    ):
        command = ["cluster", "issue-cert", principal, "--ca", out, "--out", str(place)]
        assert main.run([*command, *options]) == 0

    assert f"{alice}: cert.pem, key.pem and ca.pem of user:alice" in capsys.readouterr().out
    assert uris_in(node) == ("tidelog://blue/node/4",)
    client_context(TlsFiles.of_directory(alice))  # The key belongs to the certificate.


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["init-tls", "--nodes", "host1"], "'host1' is no node; write 1=HOST"),
        (["init-tls", "--nodes", "0=host1"], "'0=host1' is no node"),
        (["init-tls", "--nodes", ","], "no node is given"),
        (["init-tls", "--nodes", "1=host1:x"], "host1:x"),
        (["issue-cert", "alice", "--ca", "x"], "'alice' is no principal; write user:NAME"),
        (["issue-cert", "anonymous", "--ca", "x"], "anonymous has no certificate"),
        (["issue-cert", "node:4", "--ca", "x"], "a node needs --host"),
        (["issue-cert", "user:a", "--ca", "x", "--host", "h"], "and a user has none"),
    ],
)
def test_wrong_arguments_are_wrong_use(
    tmp_path: Path, capsys: Printed, arguments: list[str], why: str
) -> None:
    assert main.run(["cluster", *arguments, "--out", str(tmp_path / "new")]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("at_broker")
def test_certificates_of_a_broker_without_tls(capsys: Printed) -> None:
    assert main.run(["cluster", "certificates"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NODE  TLS  NAME  EXPIRES  DAYS  CA EXPIRES",
        "1     off  -     -        -     -",
    ]

    assert main.run(["cluster", "certificates", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["node_id"], found["tls"], found["expires_at_ms"]) == (1, "off", None)
