"""Snapshot of a whole disk."""

from tidelog.logstore.disk.disk import Disk


def contents(disk: Disk, directory: str = "") -> dict[str, bytes | None]:
    """Return all files with their bytes, and directories with `None`."""
    found: dict[str, bytes | None] = {}
    for name in disk.list_directory(directory):
        path = f"{directory}/{name}".lstrip("/")
        try:
            file = disk.open(path)
        except IsADirectoryError:
            found |= {path: None} | contents(disk, path)
        else:
            found[path] = file.read_at(0, file.size())
    return found
