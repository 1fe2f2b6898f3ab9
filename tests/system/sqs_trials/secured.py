"""A cluster that enforces access: fronts with one rule, and a user with an access key.

`XDG_CONFIG_HOME` must be the folder that the functions here get.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.system.integration.processes import run_tidelog
from tests.system.sqs_trials.sqs_connection import AccessKey

FRONT_OPTIONS: Final = ("--profile", "front")


def secured_options(folder: Path) -> list[str]:
    """Write files for the first administrator and the settings; return options of brokers."""
    first = 'user = "root"\npassword = "the password of root"\n'
    settings = 'authentication = "required"\nauthorization = "enforce"\n'
    return [
        *("--bootstrap-admin", _private(folder / "admin.toml", first)),
        *("--config", _private(folder / "settings.toml", settings)),
    ]


async def access_key(folder: Path, brokers: str, rules: Iterable[str]) -> AccessKey:
    """Create the user of fronts with its profile, and a user with rules; return its access key."""
    password = _private(folder / "password", "the password of root")
    (folder / "tidelog").mkdir(exist_ok=True)
    token = folder / "token"
    _private(
        folder / "tidelog" / "profiles.toml",
        f'[root]\nbrokers = "{brokers}"\nuser = "root"\npassword_file = "{password}"\n'
        f'[front]\nbrokers = "{brokers}"\ntoken_file = "{token}"\n',
    )

    async def run(*words: str) -> str:
        done = await run_tidelog(*words, "--profile", "root")
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    for user in ("front", "ann"):
        await run("user", "create", user, "--no-password")
    await run("access", "grant", "user:front", "impersonate", "cluster")
    for rule in rules:
        await run("access", "grant", "user:ann", *rule.split())
    _private(token, await run("token", "create", "front"))
    created = json.loads(await run("access-key", "create", "user:ann", "--json"))
    return AccessKey(created["access_key_id"], created["secret_access_key"])


def _private(path: Path, text: str) -> str:
    """Write a file that no other user may read; return its path."""
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)
