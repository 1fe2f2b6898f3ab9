"""Power cuts, a full disk and a thin one, on a real file system: `make powercut CUTS=20`.

It needs root, FUSE and loop devices. One process does the work; this one waits for it and removes
its leftovers. Mounts are those of the whole system. In a mount namespace of its own, the process
that serves the disk could be the last one that its mounts wait for, and would wait for itself.
"""

import argparse
import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import trio

from tests.system.histories.mutated_broker import mutated_program
from tests.system.integration.processes import TIDELOG
from tests.system.powercut.bad_disks import exhaust_pool, fill_disk
from tests.system.powercut.broken_broker import broken
from tests.system.powercut.cuts import PowerCuts

_TOOLS = ("losetup", "mkfs.ext4", "mount", "setpriv", "umount")
_PATIENCE_S = 20.0
_CONTROL_CUTS = 2
_CAP_SYS_ADMIN = 21


def main() -> int:
    """Run the command line; return the exit status."""
    arguments = parse_arguments(sys.argv[1:])
    if arguments.inside is not None:
        return trio.run(_run, Path(arguments.inside), arguments)
    missing = missing_here()
    if missing:
        _say(f"power cuts: skipped, for this needs {missing}")
        return 0
    with tempfile.TemporaryDirectory(prefix="tidelog-powercut-") as workshop:
        return _supervise([*sys.argv[1:], "--inside", workshop], Path(workshop))


def _supervise(arguments: list[str], workshop: Path) -> int:
    """Run this program in a process of its own, and remove everything that it leaves."""
    # If this process is killed, the other one is interrupted, and removes its mounts.
    command = [
        "setpriv",
        "--pdeathsig",
        "INT",
        sys.executable,
        "-m",
        "tests.system.powercut",
        *arguments,
    ]
    with subprocess.Popen(command, start_new_session=True) as worker:
        try:
            return worker.wait()
        except KeyboardInterrupt:
            worker.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                worker.wait(_PATIENCE_S)
            _say("interrupted")
            return 130
        finally:
            with suppress(ProcessLookupError):
                os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()
            for mount_point in reversed(_mounts_in(workshop)):
                subprocess.run(["umount", "--lazy", mount_point], check=True)


def _mounts_in(directory: Path) -> list[str]:
    """Return the mounts in a directory, in the order of mounting."""
    lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    points = [line.split()[1] for line in lines]
    return [point for point in points if Path(point).is_relative_to(directory)]


def missing_here() -> str:
    """Return the missing tools or privileges of this machine, in words; empty if there are none."""
    lacks = [tool for tool in _TOOLS if shutil.which(tool) is None]
    lacks += [name for name in ("/dev/fuse", "/dev/loop-control") if not Path(name).exists()]
    if os.geteuid() != 0:
        lacks.insert(0, "root")
    elif not _may_mount():
        lacks.insert(0, "the capability SYS_ADMIN, which most containers lack")
    return ", ".join(lacks)


def _may_mount() -> bool:
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (effective,) = (line.split()[1] for line in status if line.startswith("CapEff:"))
    return bool(int(effective, 16) >> _CAP_SYS_ADMIN & 1)


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=20, help="how many")
    parser.add_argument("--seed", default="1", help="seed of moments and records, not of the run")
    parser.add_argument(
        "--without-controls", action="store_true", help="only cut the power, for a short run"
    )
    parser.add_argument("--mutation", metavar="NAME", help="run a broker with this mutation")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args(words)


async def _run(workshop: Path, arguments: argparse.Namespace) -> int:
    if not arguments.without_controls and not await _controls_fail(workshop, arguments.seed):
        _say("FAILED: a control lost nothing, so the rest would prove nothing")
        return 1
    random = partial(Random, arguments.seed)
    problems: list[str] = []
    if not arguments.without_controls:
        for refusal in (errno.EIO, errno.ENOSPC):
            problems += await exhaust_pool(workshop, random(), refusal=refusal, show=_say)
        problems += await fill_disk(workshop, random(), show=_say)
    program = TIDELOG if arguments.mutation is None else mutated_program(arguments.mutation)
    cuts = PowerCuts(workshop, random(), show=_say, program=program)
    report = await cuts.run(arguments.cuts)
    for problem in problems + report.problems:
        _say(f"WRONG: {problem}")
    _say(report.summary())
    return 1 if problems or report.problems else 0


async def _controls_fail(workshop: Path, seed: str) -> bool:
    """Return whether the experiments find the defects of broken brokers."""
    show = _under("control")
    cuts = PowerCuts(workshop, Random(seed), show=show, program=broken("no-sync"))
    report = await cuts.run(_CONTROL_CUTS)
    _say(f"control, with syncs of records that do nothing: {report.summary()}")
    thin = await exhaust_pool(
        workshop, Random(seed), refusal=errno.EIO, show=show, program=broken("no-drop")
    )
    _say(f"control, with a page cache that is trusted: {len(thin)} problems")
    return bool(report.lost_count and thin)


def _under(label: str) -> Callable[[str], None]:
    def show(line: str) -> None:
        _say(f"{label}: {line}")

    return show


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        status = main()
    except* KeyboardInterrupt:
        status = 130
    sys.exit(status)
