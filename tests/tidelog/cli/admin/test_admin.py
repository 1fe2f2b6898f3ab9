"""The command `tidelog admin recover`."""

from pathlib import Path

import pytest
import trio

from tidelog.administrator_file import read_administrator
from tidelog.cli import main
from tidelog.embedded import open_broker
from tidelog.wire.errors import ConfigError


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Return the data directory of a stopped broker."""

    async def run() -> None:
        async with open_broker(tmp_path / "data"):
            pass

    trio.run(run)
    return tmp_path / "data"


@pytest.fixture
def admin_file(tmp_path: Path) -> Path:
    """Return a file with an administrator."""
    return written(tmp_path, 'user = "root"\npassword = "correct horse"\n')


def written(directory: Path, text: str, mode: int = 0o600) -> Path:
    path = directory / "admin.toml"
    path.touch(mode)
    path.chmod(mode)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_recovery_is_requested_in_the_directory_of_a_stopped_broker(
    data_dir: Path, admin_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main.run(["admin", "recover", "--data-dir", str(data_dir), "--admin", str(admin_file)])

    assert status == 0
    assert "the next start of node 1 makes user root an administrator" in capsys.readouterr().out
    assert b"correct horse" not in (data_dir / "recover-admin").read_bytes()
    assert main.run(["log", "verify", str(data_dir)]) == 0


async def test_a_running_broker_is_left_alone(
    tmp_path: Path, admin_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["admin", "recover", "--data-dir", str(tmp_path / "data"), "--admin", str(admin_file)]
    async with open_broker(tmp_path / "data"):
        status = await trio.to_thread.run_sync(main.run, command)

    assert status == 1
    assert "is in use" in capsys.readouterr().err


def test_the_directory_of_workers_is_named_with_its_number(
    tmp_path: Path, data_dir: Path, admin_file: Path, *, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "workers").mkdir()
    data_dir.rename(tmp_path / "workers" / "1")

    status = main.run(
        ["admin", "recover", "--data-dir", str(tmp_path / "workers"), "--admin", str(admin_file)]
    )

    assert status == 1
    assert f"--data-dir {tmp_path / 'workers' / '1'}" in capsys.readouterr().err


def test_a_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, 'user = "root"\npassword = "secret"\n', 0o640)

    with pytest.raises(ConfigError, match=rf"has mode 640, .* run: chmod 600 {path}$"):
        read_administrator(str(path))
    path.chmod(0o600)
    assert read_administrator(str(path)).user == "root"


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_one_line(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "admin.toml"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=f"^cannot read the administrator file {path}: "):
        read_administrator(str(path))
