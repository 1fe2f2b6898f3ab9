"""Programs of peers from Debian's packages, Maven and the Go module proxy, by their own clients.

Nothing is installed into the system: packages are unpacked below the benchmark's directory, without
special rights, and no service starts. The configuration of these clients determines the sources.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_LIBRARIES: Final = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib", "lib")
_DONE: Final = "complete"


class NotAvailableError(Exception):
    """A peer is unavailable here; the message says why, in one line."""


def from_debian(root: Path, names: Sequence[str]) -> Path:
    """Unpack packages with their missing dependencies.

    Returns:
        The directory that looks like `/`.

    Raises:
        NotAvailableError: This is not Debian, or it lacks a package.
    """
    tree = root / "tree"
    if (root / _DONE).exists():
        return tree
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise NotAvailableError(f"comes from Debian's packages, and there is no {program}")
    archives = root / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    options = ["Debug::NoLocking=1", f"Dir::Cache::archives={archives}", "APT::Sandbox::User="]
    _run(
        [
            "apt-get",
            "install",
            "--download-only",
            "--reinstall",
            "--no-install-recommends",
            "--yes",
            "--quiet=2",
            *(f"--option={option}" for option in options),
            *names,
        ]
    )
    for archive in sorted(archives.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(tree)])
    (root / _DONE).touch()
    return tree


def debian_environment(tree: Path) -> dict[str, str]:
    """Return the environment in which a program of an unpacked tree finds its libraries."""
    return {"LD_LIBRARY_PATH": os.pathsep.join(str(tree / place) for place in _LIBRARIES)}


def debian_version(root: Path, name: str) -> str:
    """Return the Debian version of an unpacked package."""
    for archive in (root / "archives").glob(f"{name}_*.deb"):
        return _run(["dpkg-deb", "--field", str(archive), "Version"]).strip()
    return "unknown"


def from_maven(root: Path, artifacts: Sequence[str]) -> Path:
    """Fetch artifacts (`group:artifact:version`) with their dependencies.

    Returns:
        The directory of the jars.

    Raises:
        NotAvailableError: Java, Maven or an artifact is missing.
    """
    jars = root / "jars"
    if (root / _DONE).exists():
        return jars
    for program, package in (("java", "Java 17 or newer"), ("mvn", "Apache Maven")):
        if shutil.which(program) is None:
            raise NotAvailableError(f"needs {package}, and there is no `{program}`")
    jars.mkdir(parents=True, exist_ok=True)
    pom = root / "pom.xml"
    pom.write_text(_pom(artifacts), encoding="utf-8")
    _run(
        [
            "mvn",
            "--quiet",
            "--batch-mode",
            "--file",
            str(pom),
            "dependency:copy-dependencies",
            f"-DoutputDirectory={jars}",
            "-DincludeScope=runtime",
        ]
    )
    (root / _DONE).touch()
    return jars


def from_go(root: Path, module: str) -> Path:
    """Build the program of a Go module (`path@version`).

    Returns:
        The directory of the program.

    Raises:
        NotAvailableError: Go or the module is missing, or Go is too old for it.
    """
    programs = root / "bin"
    if (root / _DONE).exists():
        return programs
    if shutil.which("go") is None:
        raise NotAvailableError("needs Go, and there is no `go`")
    places = {"GOBIN": str(programs), "GOMODCACHE": str(root / "modules")}
    # Modules are written without write permission otherwise, and cannot be removed.
    _run(["go", "install", "-modcacherw", module], places)
    (root / _DONE).touch()
    return programs


def _pom(artifacts: Sequence[str]) -> str:
    dependencies = "".join(
        "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
        "</dependency>".format(*artifact.split(":"))
        for artifact in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>bench</groupId>"
        "<artifactId>peer</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a program.

    Raises:
        NotAvailableError: The program failed; with the last line of its output.
    """
    result = subprocess.run(
        command,
        capture_output=True,
        check=False,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        text=True,
    )
    if result.returncode:
        lines = [line for line in (result.stderr + result.stdout).splitlines() if line.strip()]
        raise NotAvailableError(f"{command[0]} failed: {lines[-1] if lines else 'silently'}")
    return result.stdout
