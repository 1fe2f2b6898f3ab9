"""The golden frames: a file of dumps for each API, with a section for each message and version.

A dump shows every byte of its frame, so the frame is read back from it.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "frames"
_SECTION: Final = re.compile(r"^# (.*)\n", re.MULTILINE)
_BYTES: Final = slice(6, 53)
"""Column of the hexadecimal digits in a line."""


def read_dumps(folder: Path = FOLDER) -> dict[str, str]:
    """Return the dumps of all golden frames, by names such as `fetch_request_v1`."""
    dumps: dict[str, str] = {}
    for path in sorted(folder.glob("*.txt")):
        head, *parts = _SECTION.split(path.read_text(encoding="utf-8"))
        assert not head
        for title, dump in zip(parts[::2], parts[1::2], strict=True):
            dumps[f"{path.stem}_{title.replace(' ', '_')}"] = dump
    return dumps


def write_dumps(dumps: Mapping[str, str]) -> None:
    """Write the golden frames of all APIs."""
    files: dict[str, list[str]] = {}
    for name in sorted(dumps, key=_place):
        file, title = _file_and_title(name)
        files.setdefault(file, []).append(f"# {title}\n{dumps[name]}")
    for file, sections in files.items():
        (FOLDER / f"{file}.txt").write_text("".join(sections), encoding="utf-8")


def bytes_of(dump: str) -> bytes:
    """Return the bytes of a dump."""
    shown = b""
    for line in dump.splitlines():
        assert int(line[:4]) == len(shown)
        shown += bytes.fromhex(line[_BYTES])
    return shown


def _file_and_title(name: str) -> tuple[str, str]:
    found = re.fullmatch(r"(\w+?)_((?:(?:request|reply)_)?v\d+)", name)
    assert found is not None
    return found[1], found[2].replace("_", " ")


def _place(name: str) -> tuple[str, bool, int]:
    file, title = _file_and_title(name)
    return file, title.startswith("reply"), int(title.rpartition("v")[2])
