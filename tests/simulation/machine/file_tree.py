"""In-memory files and names, each with its durable state and the state that processes see.

Pure: no clock, no I/O; randomness is an argument. The rules are exactly those of POSIX and Linux:
bytes are durable after a sync of their file, names after a sync of their directory.
Other changes may be lost, kept in part, or kept in another order.
"""

import errno
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple, final

SECTOR_BYTES = 512


class Survival(Enum):
    """Outcome of a power cut for the unsynced changes of one file."""

    NOTHING = "all are lost"
    PREFIX = "the first few are kept, and the one after them in part"
    SECTORS = "any sectors are kept, whatever their order was"
    SIZE = "the length is kept, with zeros in the place of new bytes"


class Change(NamedTuple):
    """A write, or, without data, a change of the size to `position`."""

    position: int
    data: bytes | None = None

    def apply(self, image: bytearray) -> None:
        """Apply this change to the bytes of a file."""
        if self.data is None:
            resize(image, self.position)
        elif self.data:
            resize(image, max(len(image), self.position))
            image[self.position : self.position + len(self.data)] = self.data

    def size_alone(self, size: int) -> "Change":
        """Return the effect of this change on the size of a file of `size` bytes."""
        return self if self.data is None else Change(max(size, self.position + len(self.data)))

    def torn(self, random: Random) -> "Change":
        """Return this change with only the first bytes of its data."""
        if self.data is None:
            return self
        return Change(self.position, self.data[: random.randint(0, len(self.data))])

    def sectors(self) -> "Iterator[Change]":
        """Return the parts that a disk writes one by one and in any order."""
        if self.data is None:
            yield self
            return
        start = 0
        while start < len(self.data):
            position = self.position + start
            end = start + SECTOR_BYTES - position % SECTOR_BYTES
            yield Change(position, self.data[start:end])
            start = end


def resize(image: bytearray, size: int) -> None:
    """Cut or extend with zeros to `size` bytes."""
    del image[size:]
    image.extend(bytes(size - len(image)))


@final
@dataclass(eq=False, slots=True)
class Inode:
    """The bytes of a file.

    Invariant: `durable` and then `unsynced` give `cached`, unless a sync has failed.
    """

    cached: bytearray = field(default_factory=bytearray)
    """Bytes that reads see."""
    durable: bytearray = field(default_factory=bytearray)
    """Bytes that are certainly on the disk."""
    unsynced: list[Change] = field(default_factory=list[Change])

    def __deepcopy__(self, _: object) -> "Inode":
        # Changes are immutable, so they are shared; there are many.
        return Inode(self.cached[:], self.durable[:], self.unsynced[:])

    def change(self, change: Change) -> None:
        """Write or resize; only `sync` makes it durable."""
        change.apply(self.cached)
        self.unsynced.append(change)

    def sync(self, changes: Iterable[Change] | None = None) -> None:
        """Make `changes` durable, or all changes; others may arrive meanwhile."""
        for change in self._take(self.unsynced if changes is None else changes):
            change.apply(self.durable)

    def fail_sync(self, changes: Iterable[Change], random: Random | None = None) -> None:
        """Behave like Linux: mark the pages clean, still show them, keep the size.

        None of the changes is on the disk, or, with `random`, any sectors of them are.
        """
        taken = self._take(changes)
        if random is not None:
            sectors = {
                sector.position // SECTOR_BYTES
                for change in taken
                if change.data
                for sector in change.sectors()
            }
            for sector in sorted(sectors):
                if random.getrandbits(1):
                    start = sector * SECTOR_BYTES
                    shown = bytes(self.cached[start : start + SECTOR_BYTES])
                    Change(start, shown).apply(self.durable)
        if len(self.durable) != len(self.cached):
            self.unsynced.insert(0, Change(len(self.cached)))

    def drop_cache(self) -> None:
        """Show the durable bytes, under the changes that are still to be synced."""
        self.cached[:] = self.durable
        for change in self.unsynced:
            change.apply(self.cached)

    def cut_power(self, random: Random) -> Survival | None:
        """Change to the state after a power cut; return `None` if all bytes were durable."""
        survival = random.choice(list(Survival)) if self.unsynced else None
        match survival:
            case Survival.PREFIX:
                kept_count = random.randrange(len(self.unsynced))
                torn = self.unsynced[kept_count].torn(random)
                kept = [*self.unsynced[:kept_count], torn]
            case Survival.SECTORS:
                sectors = (sector for change in self.unsynced for sector in change.sectors())
                kept = [sector for sector in sectors if random.getrandbits(1)]
            case Survival.SIZE:
                kept = self._sizes_alone()
            case Survival.NOTHING | None:
                kept = []
        self.unsynced = kept
        self.sync()
        self.cached[:] = self.durable
        return survival

    def _take(self, changes: Iterable[Change]) -> list[Change]:
        """Remove and return the `changes` that are still in `unsynced`."""
        wanted = {id(change) for change in changes}  # Equal changes are not identical.
        current = self.unsynced[:]
        self.unsynced[: len(current)] = [each for each in current if id(each) not in wanted]
        return [each for each in current if id(each) in wanted]

    def _sizes_alone(self) -> list[Change]:
        sizes: list[Change] = []
        size = len(self.durable)
        for change in self.unsynced:
            sizes.append(change.size_alone(size))
            size = sizes[-1].position
        return sizes


@final
@dataclass(eq=False, slots=True)
class Directory:
    """The names in a directory."""

    entries: "dict[str, Node]" = field(default_factory=dict[str, "Node"])
    """Names that processes see."""
    durable: "dict[str, Node]" = field(default_factory=dict[str, "Node"])
    """Names that are certainly on the disk."""


Node = Inode | Directory


class Naming(NamedTuple):
    """A name in a directory that is set to `node`, or removed."""

    directory: Directory
    name: str
    node: Node | None

    def apply(self, entries: dict[str, Node]) -> None:
        """Apply this change to the names of the directory."""
        if self.node is None:
            entries.pop(self.name, None)
        else:
            entries[self.name] = self.node


Namings = tuple[Naming, ...]
"""Namings that take effect together: a rename is two."""


@final
@dataclass(eq=False, slots=True)
class FileTree:
    """All names, and through them all files. Paths are as in `logstore.disk.disk`."""

    root: Directory = field(default_factory=Directory)
    unsynced: list[Namings] = field(default_factory=list[Namings])

    def find(self, path: str) -> Node:
        """Return the node at `path`.

        Raises:
            FileNotFoundError: There is no node.
            NotADirectoryError: A parent is a file.
        """
        names = path.split("/") if path else []
        assert {"", ".", ".."}.isdisjoint(names), f"{path!r} escapes the root"
        node: Node = self.root
        for name in names:
            if isinstance(node, Inode):
                raise os_error(errno.ENOTDIR, path)
            found = node.entries.get(name)
            if found is None:
                raise os_error(errno.ENOENT, path)
            node = found
        return node

    def get(self, path: str) -> Node | None:
        """Return the node at `path`, `None` if there is none."""
        try:
            return self.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def directory(self, path: str) -> Directory:
        """Return the directory at `path`; raises like `find`."""
        node = self.find(path)
        if isinstance(node, Inode):
            raise os_error(errno.ENOTDIR, path)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        """Return the directory in which `path` is or would be, and its name there."""
        assert path, "the root has no name"
        parent, _, name = path.rpartition("/")
        return self.directory(parent), name

    def change(self, *namings: Naming) -> None:
        """Set, rename or remove names; only `sync` makes that durable."""
        self.unsynced.append(namings)
        for naming in namings:
            naming.apply(naming.directory.entries)

    def lose(self, path: str) -> None:
        """Remove a name durably, whatever change of it is pending."""
        directory, name = self.parent(path)
        self.unsynced = [
            namings
            for namings in self.unsynced
            if not any(each.directory is directory and each.name == name for each in namings)
        ]
        for entries in directory.entries, directory.durable:
            entries.pop(name, None)

    def sync(self, directory: Directory, changes: Iterable[Namings]) -> None:
        """Make the `changes` in a directory durable, and all changes that these depend on."""
        directories = {directory}
        durable: list[Namings] = []
        unsynced: list[Namings] = []
        wanted = {id(namings) for namings in changes}  # Equal changes are not identical.
        current = self.unsynced[:]
        for namings in reversed(current):
            touched = {naming.directory for naming in namings}
            if id(namings) in wanted and touched & directories:
                directories |= touched
                durable.append(namings)
            else:
                unsynced.append(namings)
        _make_durable(reversed(durable))
        self.unsynced[: len(current)] = reversed(unsynced)

    def cut_power(self, random: Random, *, are_names_in_order: bool = True) -> dict[str, Survival]:
        """Change to the state after a power cut; return the survival of each unsynced file.

        A journaling file system keeps the first few changes of the names in a directory. Other file
        systems keep any of them: then they are not in order.
        """
        if are_names_in_order:
            _make_durable(self._surviving_names(random))
        else:
            _make_durable(namings for namings in self.unsynced if random.getrandbits(1))
        self.unsynced.clear()
        directories = [self.root]
        for directory in directories:  # It grows during the walk.
            directory.entries = dict(directory.durable)
            below = directory.entries.values()
            directories.extend(node for node in below if isinstance(node, Directory))
        survivals = ((path, inode.cut_power(random)) for path, inode in self.files())
        return {path: survival for path, survival in survivals if survival is not None}

    def _surviving_names(self, random: Random) -> list[Namings]:
        """Return the first few changes of each directory; one of two directories is in both."""
        counts = Counter(
            directory for namings in self.unsynced for directory in _directories(namings)
        )
        left = {directory: random.randint(0, count) for directory, count in counts.items()}
        kept: list[Namings] = []
        for namings in self.unsynced:
            directories = _directories(namings)
            if all(left[directory] for directory in directories):
                kept.append(namings)
                for directory in directories:
                    left[directory] -= 1
            else:
                left.update(dict.fromkeys(directories, 0))
        return kept

    def files(self) -> Iterator[tuple[str, Inode]]:
        """Return all files with their paths, in an order that only the names determine."""
        directories = [("", self.root)]
        for prefix, directory in directories:  # It grows during the walk.
            for name, node in sorted(directory.entries.items(), key=lambda entry: entry[0]):
                if isinstance(node, Inode):
                    yield prefix + name, node
                else:
                    directories.append((f"{prefix}{name}/", node))


def _directories(namings: Namings) -> list[Directory]:
    return list(dict.fromkeys(naming.directory for naming in namings))


def _make_durable(changes: Iterable[Namings]) -> None:
    for namings in changes:
        for naming in namings:
            naming.apply(naming.directory.durable)


def os_error(number: int, path: str) -> OSError:
    """Return the exception that the operating system would raise."""
    return OSError(number, os.strerror(number), path)
