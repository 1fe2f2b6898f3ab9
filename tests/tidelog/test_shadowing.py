"""A file of somebody's that hides one of our packages is named."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.shadowing import require_own


def test_our_own_packages_are_accepted() -> None:
    require_own("client", "wire")


def test_a_package_that_is_not_ours_is_named() -> None:
    with pytest.raises(ImportError, match=r"own package 'json' and finds .*json"):
        require_own("json")


def test_a_package_that_is_nowhere_is_said_to_be_missing() -> None:
    with pytest.raises(ImportError, match="finds nothing of that name"):
        require_own("there_is_no_such_package")


def test_a_file_beside_the_program_that_hides_a_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("")
    (tmp_path / "program.py").write_text("import tidelog\n")

    done = subprocess.run(
        [sys.executable, tmp_path / "program.py"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert str(tmp_path / "client.py") in done.stderr
    assert "rename that file" in done.stderr
