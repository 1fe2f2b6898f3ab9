"""Peak memory of a process."""

from pathlib import Path


def peak_memory_mib(pid: int | None = None) -> float:
    """Return the peak resident memory of a process, by default this one, in MiB.

    `getrusage` would include that of the parent process, before this program began.
    """
    status = Path("/proc") / ("self" if pid is None else str(pid)) / "status"
    (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024
