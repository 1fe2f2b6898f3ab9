"""Import contracts between packages, and their detection of forbidden imports."""

import os
import shutil
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = [
    "broker",
    "client",
    "coordinator",
    "gateway",
    "isr",
    "logstore",
    "queue_layer",
    "spark_connector",
    "wire",
]
PURE_ROOMS = ["wire", "logstore", "isr", "coordinator", "queue_layer"]


def run_python(code: str, *, root: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    """Run code in an interpreter of its own, which finds the packages under `root` first."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


def check_contracts(root: Path, *ids: str) -> "subprocess.CompletedProcess[str]":
    """Check the contracts with these ids, all of them when none is given."""
    return run_python(
        "import sys, importlinter.cli as cli\n"
        f"sys.exit(cli.lint_imports(limit_to_contracts={ids!r}, no_cache=True, no_logo=True))",
        root=root,
    )


def modules_of(room: str) -> list[str]:
    files = sorted((ROOT / room).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [f"tidelog.{name.removesuffix('.__init__')}" for name in names]


SHELLS_OF_SHELLS = ["tidelog.coordinator.controller.*", "tidelog.coordinator.bootstrap.*"]
"""They await shells, but use nothing of trio themselves."""


def shells() -> list[str]:
    """Return the patterns of modules that a contract allows to import trio."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    allowed = [entry for contract in contracts for entry in contract.get("ignore_imports", [])]
    pairs = [entry.split(" -> ") for entry in allowed]
    return [importer for importer, imported in pairs if imported == "trio"] + SHELLS_OF_SHELLS


@pytest.fixture
def copied_tree(tmp_path: Path) -> Path:
    for folder in ["tidelog", "pyspark_tidelog", *ROOMS]:
        shutil.copytree(
            ROOT / folder,
            tmp_path / folder,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "data"),
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_import_contracts_hold() -> None:
    result = check_contracts(ROOT)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        ("isr", "tidelog.broker", "server-layers"),
        ("coordinator", "tidelog.queue_layer", "server-layers"),
        ("broker", "tidelog.gateway", "server-never-client"),
        ("wire", "tidelog.client", "client-layers"),
        ("spark_connector", "tidelog.surface", "client-layers"),
        ("client", "tidelog.logstore", "two-sides"),
        ("tidelog.surface", "tidelog.broker", "two-sides"),
        ("broker", "tidelog.client", "server-never-client"),
        ("client", "tidelog", "face-stays-outside"),
        ("client.client", "opentelemetry", "opentelemetry-on-request"),
        ("tidelog.cli.main", "tidelog.tracing", "opentelemetry-on-request"),
        ("wire", "trio", "sans-io"),
        ("queue_layer", "time", "sans-io"),
        ("broker", "time", "seams"),
        ("wire.protocol.frame", "tidelog.wire.env.real.tcp", "cores-never-shells"),
        ("logstore", "tidelog.wire.env.real.tcp", "logstore-without-trio"),
        ("logstore", "os", "one-door-to-the-disk"),
        ("client.config", "tidelog.client.client", "room-client"),
        ("gateway.sqs.http", "tidelog.gateway.sqs.protocol", "room-gateway-sqs"),
        ("gateway.sqs.names", "trio", "gateway-cores"),
        ("gateway.sqs.server", "time", "gateway-seams"),
        ("logstore.retention.retention", "tidelog.logstore.log", "room-logstore"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    module: str, imported: str, contract: str, *, copied_tree: Path
) -> None:
    path = copied_tree.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    file.write_text(f"{file.read_text(encoding='utf-8')}\nimport {imported}\n", encoding="utf-8")

    result = check_contracts(copied_tree, contract)

    assert result.returncode != 0
    assert "0 kept, 1 broken" in result.stdout, result.stdout + result.stderr


def test_a_module_without_a_place_in_its_room_breaks_the_contract(copied_tree: Path) -> None:
    (copied_tree / "client" / "attic.py").write_text('"""No layer names this module."""\n')

    result = check_contracts(copied_tree, "room-client")

    assert result.returncode != 0
    assert "attic" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("room", PURE_ROOMS)
def test_importing_the_cores_does_not_load_trio(room: str) -> None:
    patterns = shells()
    cores = [
        module
        for module in modules_of(room)
        if not any(fnmatch(module, pattern) for pattern in patterns)
    ]

    result = run_python(f"import sys, {', '.join(cores)}\nassert 'trio' not in sys.modules")

    assert len(cores) > len(modules_of(room)) // 2
    assert result.returncode == 0, result.stderr


def test_importing_tidelog_does_not_load_the_server() -> None:
    rooms = {f"tidelog.{room}" for room in ROOMS}
    result = run_python(f"import sys, tidelog\nprint(*sorted({rooms!r} & sys.modules.keys()))")

    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_every_room_is_linked_into_the_package() -> None:
    found = {
        path.parent.name
        for path in ROOT.glob("*/__init__.py")
        if path.parent.name
        not in {"tests", "bench", "examples", "tidelog", "pyspark_tidelog", "tools"}
    }
    links = {path.name: path for path in (ROOT / "tidelog").iterdir() if path.is_symlink()}

    assert found == set(ROOMS)
    assert {name: str(link.readlink()) for name, link in links.items()} == {
        room: f"../{room}" for room in ROOMS
    }
