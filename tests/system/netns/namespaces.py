"""Programs in namespaces of their own, which disappear completely when the program ends.

Network, mounts and processes are separate. The kernel removes them with their first process, and
kills that with its parent.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from tests.system.integration.processes import DEADLINE_S

_TOOLS: Final = ("ip", "unshare", "setpriv", "mount")

# `ip netns` keeps its names there. The names of the whole machine would outlive the run.
_OWN_NAMES: Final = "mount -t tmpfs tmpfs /var/run"
_TRIAL: Final = (
    f"{_OWN_NAMES} && ip netns add trial"
    " && ip link add uplink type veth peer name link netns trial"
    " && ip -n trial rule add from 10.0.0.1 to 10.0.0.2 blackhole"
    " && ip netns exec trial true"
)


def isolated(command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` in namespaces; its end kills all in there."""
    return _in_namespaces(f'{_OWN_NAMES} && exec "$@"', *command)


def missing_here() -> str:
    """Return the missing tools or privileges of this machine, in words; empty if there are none."""
    lacks = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if lacks:
        return ", ".join(lacks)
    trial = subprocess.run(
        _in_namespaces(_TRIAL),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    if trial.returncode == 0:
        return ""
    said = trial.stderr.strip().splitlines()
    condition = "" if os.geteuid() == 0 else ", as root or where users may make them"
    return f"network namespaces{condition} ({said[-1] if said else 'they cannot be made'})"


def _in_namespaces(script: str, *arguments: str) -> list[str]:
    as_root = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    unshare = ["unshare", *as_root, "--net", "--mount", "--pid", "--fork"]
    unshare += ["--kill-child", "--mount-proc"]
    return ["setpriv", "--pdeathsig", "KILL", *unshare, "sh", "-c", script, "sh", *arguments]
