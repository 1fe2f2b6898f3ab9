"""Tests of the file with the secret of a cluster."""

import stat
from pathlib import Path
from random import Random

import pytest

from tidelog.cluster_secret import cluster_secret_path, read_cluster_secret
from tidelog.wire.errors import ConfigError


def test_the_first_start_creates_a_secret_for_this_user_alone(tmp_path: Path) -> None:
    path = tmp_path / "config" / "tidelog" / "secret"

    created = read_cluster_secret(path, Random(1))

    assert len(created) == 64
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(path.parent.iterdir()) == [path], "no temporary file stays"
    assert read_cluster_secret(path, Random(2)) == created


def test_brokers_that_start_together_have_the_same_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    read_cluster_secret(path, Random(1))

    def not_yet(file: Path) -> bool:
        """Look before another broker has created the file."""
        del file
        return False

    monkeypatch.setattr(Path, "exists", not_yet)

    assert read_cluster_secret(path, Random(2)) == path.read_bytes().strip()
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o611])
def test_a_secret_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    read_cluster_secret(path, Random(1))
    path.chmod(mode)

    with pytest.raises(ConfigError) as refused:
        read_cluster_secret(path, Random(1))

    assert str(refused.value) == (
        f"cluster_secret_file {path} has mode {mode:o}, so that others may use it;"
        f" run: chmod 600 {path}"
    )


@pytest.mark.parametrize(
    ("content", "is_accepted"), [(b"x" * 15, False), (b"x" * 16 + b"\n", True)]
)
def test_a_short_secret_is_refused(tmp_path: Path, content: bytes, *, is_accepted: bool) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_bytes(content)

    if is_accepted:
        assert read_cluster_secret(path, Random(1)) == b"x" * 16
    else:
        with pytest.raises(ConfigError, match="has 15 bytes, and needs at least 16"):
            read_cluster_secret(path, Random(1))


def test_a_file_that_cannot_be_created_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match=r"cannot be read or created: .*; choose another file"):
        read_cluster_secret(tmp_path / "file" / "secret", Random(1))


def test_the_file_is_in_the_configuration_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    assert cluster_secret_path("") == tmp_path / ".config/tidelog/cluster-secret"

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other"))
    assert cluster_secret_path("") == tmp_path / "other/tidelog/cluster-secret"
    assert cluster_secret_path("/s") == Path("/s")
