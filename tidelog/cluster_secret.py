"""The secret of a cluster: a file with the same content on each machine of its nodes."""

import os
import stat
from pathlib import Path
from random import Random
from typing import Final

from tidelog.wire.errors import ConfigError
from tidelog.wire.protocol.node_proof import SECRET_BYTES_MIN

_FILE_MODE: Final = 0o600
_SECRET_BYTES: Final = 32


def cluster_secret_path(setting: str) -> Path:
    """Return the file that the setting `cluster_secret_file` names; empty means the default."""
    if setting:
        return Path(setting)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / (
        "tidelog/cluster-secret"
    )


def draw_cluster_secret(random: Random) -> bytes:
    """Return a new secret, as text."""
    return random.randbytes(_SECRET_BYTES).hex().encode()


def read_cluster_secret(path: Path, random: Random) -> bytes:
    """Return the secret in a file; create the file if there is none, for this user alone.

    Brokers that start together on one machine read the same secret.

    Raises:
        ConfigError: The file cannot be read or created, others may read it, or it is too short.
    """
    try:
        if not path.exists():
            _create(path, random)
        mode = path.stat().st_mode
        secret = path.read_bytes().strip()
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"cluster_secret_file {path} cannot be read or created: {error}; choose another file"
            " with --cluster-secret-file"
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"cluster_secret_file {path} has mode {stat.S_IMODE(mode):o}, so that others may use"
            f" it; run: chmod 600 {path}"
        )
    if len(secret) < SECRET_BYTES_MIN:
        raise ConfigError(
            f"cluster_secret_file {path} has {len(secret)} bytes, and needs at least"
            f" {SECRET_BYTES_MIN}; remove it, and the next start creates a new one"
        )
    return secret


def _create(path: Path, random: Random) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    own = path.with_name(f"{path.name}.{random.randbytes(8).hex()}")
    own.touch(mode=_FILE_MODE, exist_ok=False)
    with own.open("wb") as file:
        file.write(draw_cluster_secret(random) + b"\n")
        file.flush()
        os.fsync(file.fileno())  # noqa: TID251  (a file of the user, not of the broker)
    try:
        path.hardlink_to(own)
    except FileExistsError:
        pass  # Another broker was faster.
    finally:
        own.unlink()
