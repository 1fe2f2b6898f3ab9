"""The contracts on who may import whom, and whether they notice what they forbid."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = PROJECT["tool"]["importlinter"]["root_packages"]
PURE_PACKAGES = ["wire", "logstore", "isr", "coordinator", "queue_layer"]


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


def modules_of(package: str) -> list[str]:
    files = sorted((ROOT / package).rglob("*.py"))
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return [name.removesuffix(".__init__") for name in names]


SHELLS_OF_SHELLS = {"coordinator.founding"}
"""They call what waits, but nothing of trio itself."""


def shells() -> set[str]:
    """Return the modules that a contract allows to import trio, and those made of them."""
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    allowed = [entry for contract in contracts for entry in contract.get("ignore_imports", [])]
    pairs = [entry.split(" -> ") for entry in allowed]
    return {importer for importer, imported in pairs if imported == "trio"} | SHELLS_OF_SHELLS


@pytest.fixture
def copied_tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "data")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_import_contracts_hold() -> None:
    result = check_contracts(ROOT)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        ("isr", "broker", "server-layers"),
        ("coordinator", "queue_layer", "server-layers"),
        ("wire", "client", "client-layers"),
        ("spark_connector", "tidelog", "client-layers"),
        ("client", "logstore", "two-sides"),
        ("tidelog", "broker", "two-sides"),
        ("broker", "client", "server-never-client"),
        ("wire", "trio", "sans-io"),
        ("queue_layer", "time", "sans-io"),
        ("broker", "time", "seams"),
        ("wire.frame", "wire.tcp", "cores-never-shells"),
        ("logstore", "wire.tcp", "logstore-without-trio"),
        ("logstore", "os", "one-door-to-the-disk"),
    ],
)
def test_a_forbidden_import_breaks_its_contract(
    module: str, imported: str, contract: str, copied_tree: Path
) -> None:
    path = copied_tree.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    file.write_text(f"{file.read_text(encoding='utf-8')}\nimport {imported}\n", encoding="utf-8")

    result = check_contracts(copied_tree, contract)

    assert result.returncode != 0
    assert "0 kept, 1 broken" in result.stdout, result.stdout + result.stderr


@pytest.mark.parametrize("package", PURE_PACKAGES)
def test_importing_the_cores_does_not_load_trio(package: str) -> None:
    cores = [module for module in modules_of(package) if module not in shells()]

    result = run_python(f"import sys, {', '.join(cores)}\nassert 'trio' not in sys.modules")

    assert result.returncode == 0, result.stderr


def test_importing_tidelog_does_not_load_the_server() -> None:
    result = run_python(
        "import sys, tidelog\n"
        "print(*sorted({'broker', 'logstore', 'isr', 'coordinator', 'queue_layer'}"
        " & sys.modules.keys()))"
    )

    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_every_package_is_installed_and_under_contract() -> None:
    found = {
        path.parent.name
        for path in ROOT.glob("*/__init__.py")
        if path.parent.name not in {"tests", "bench", "examples"}
    }
    tool = PROJECT["tool"]

    assert found == set(PACKAGES)
    assert tool["hatch"]["build"]["targets"]["wheel"]["packages"] == PACKAGES
    assert tool["check-wheel-contents"]["toplevel"] == PACKAGES
