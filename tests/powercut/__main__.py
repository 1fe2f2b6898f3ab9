"""Power cuts, a full disk and a thin one, on a real file system: `make powercut CUTS=20`.

Needs root, FUSE and loop devices. Everything happens in namespaces of its own: mounts and
processes go when the last process in them does, whatever ends it, and loop devices with their
mounts. What is on no disk need not be removed: the workshop is in memory.
"""

import argparse
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import trio

from tests.powercut.bad_disks import exhaust_pool, fill_disk
from tests.powercut.broken_broker import broken
from tests.powercut.cuts import PowerCuts

_TOOLS = ("losetup", "mkfs.ext4", "mount", "umount", "unshare")
_CONTROL_CUTS = 2


def main() -> int:
    """Run the command line; return the exit status."""
    arguments = _parse()
    if arguments.inside is not None:
        workshop = Path(arguments.inside)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", arguments.inside], check=True)
        try:
            return trio.run(_run, workshop, arguments)
        except KeyboardInterrupt:
            _say("interrupted")
            return 130
    missing = missing_here()
    if missing:
        _say(f"power cuts: skipped, for this needs {missing}")
        return 0
    with tempfile.TemporaryDirectory(prefix="tidelog-powercut-") as made:
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        again = [sys.executable, "-m", "tests.powercut", *sys.argv[1:], "--inside", made]
        return subprocess.run([*own, *again], check=False).returncode


def missing_here() -> str:
    """Return what this machine lacks, in words; nothing when it lacks nothing."""
    lacks = [tool for tool in _TOOLS if shutil.which(tool) is None]
    lacks += [name for name in ("/dev/fuse", "/dev/loop-control") if not Path(name).exists()]
    if os.geteuid() != 0:
        lacks.insert(0, "root")
    return ", ".join(lacks)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.powercut", description=__doc__)
    parser.add_argument("--cuts", type=int, default=20, help="how many")
    parser.add_argument("--seed", default="1", help="of moments and records, not of a whole run")
    parser.add_argument(
        "--without-controls", action="store_true", help="only cut the power, for a short look"
    )
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args()


async def _run(workshop: Path, arguments: argparse.Namespace) -> int:
    if not arguments.without_controls and not await _controls_fail(workshop, arguments.seed):
        _say("FAILED: a control lost nothing, so whatever follows would prove nothing")
        return 1
    random = partial(Random, arguments.seed)
    problems: list[str] = []
    if not arguments.without_controls:
        for refusal in (errno.EIO, errno.ENOSPC):
            problems += await exhaust_pool(workshop, random(), refusal=refusal, show=_say)
        problems += await fill_disk(workshop, random(), show=_say)
    report = await PowerCuts(workshop, random(), show=_say).run(arguments.cuts)
    for problem in problems + report.problems:
        _say(f"WRONG: {problem}")
    _say(report.summary())
    return 1 if problems or report.problems else 0


async def _controls_fail(workshop: Path, seed: str) -> bool:
    """Return whether the experiments find what is wrong with brokers that are broken."""
    show = _under("control")
    cuts = PowerCuts(workshop, Random(seed), show=show, program=broken("no-sync"))
    report = await cuts.run(_CONTROL_CUTS)
    _say(f"control, with syncs of records that do nothing: {report.summary()}")
    thin = await exhaust_pool(
        workshop, Random(seed), refusal=errno.EIO, show=show, program=broken("no-drop")
    )
    _say(f"control, with a page cache that is believed: {len(thin)} problems")
    return bool(report.lost_count and thin)


def _under(label: str) -> Callable[[str], None]:
    def show(line: str) -> None:
        _say(f"{label}: {line}")

    return show


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
