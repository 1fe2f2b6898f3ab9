"""The commands `tidelog log`: dump, verify and repair files of a stopped broker."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, final

import click

from tidelog.broker.encryption.master_keys import MasterKeys
from tidelog.broker.inspection.dump import DumpOptions, dump
from tidelog.broker.inspection.findings import FileCheck
from tidelog.broker.inspection.metadata_repair import (
    MetadataVerdict,
    cut_metadata,
    examine_metadata,
    set_metadata_aside,
)
from tidelog.broker.inspection.repair import repair_indexes
from tidelog.broker.inspection.rows import BAD, OFFSET_END, OffsetFilter, Row
from tidelog.broker.inspection.stored_keys import StoredKeys
from tidelog.broker.inspection.verify import verify
from tidelog.broker.partitions.data_directory import LOCK_NAME, NODE_NAME
from tidelog.cli.errors import CommandError
from tidelog.cli.lazy_group import OrderedGroup
from tidelog.cli.log.view import (
    findings_as_json,
    findings_as_text,
    line_as_json,
    line_as_text,
)
from tidelog.cli.options import examples, json_option
from tidelog.cli.output.tables import counted
from tidelog.logstore.disk.os_disk import OsDisk, OsFolder
from tidelog.master_source import read_key_file
from tidelog.wire.env.real.real_env import RealClock

_PATHS = click.argument(
    "paths", nargs=-1, required=True, type=click.Path(exists=True), metavar="PATH..."
)
_MASTER_KEY_FILE = click.option(
    "--master-key-file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Open sealed batches by the master keys in this file, and by the data keys in the"
    " metadata of the data directory of PATH.",
)


class _Chosen(NamedTuple):
    """The files of one PATH argument."""

    folder: OsFolder
    files: list[str]
    """File names relative to the folder."""
    prefix: str
    """Prefix of each file name, as in the PATH argument."""
    is_whole: bool


@final
class _KeyChain:
    """The data keys of the data directories that are looked into."""

    def __init__(self, master_key_file: Path | None) -> None:
        """Read the master keys.

        Raises:
            ConfigError: The file cannot be read, others may read it, or it has no key.
        """
        self._masters: MasterKeys | None = None
        if master_key_file is not None:
            text = read_key_file(master_key_file)
            self._masters = MasterKeys.parse(text, str(master_key_file))
        self._known: dict[Path, StoredKeys] = {}

    def of(self, chosen: _Chosen) -> StoredKeys | None:
        """Return what opens the sealed batches of a PATH; `None` without master keys.

        Raises:
            CommandError: The path is in no data directory.
            DataDirectoryError: The directory has no metadata that can be read.
        """
        if self._masters is None:
            return None
        directory = next(iter(_data_directories([chosen.prefix or "."])), None)
        if directory is None:
            raise CommandError(
                f"{chosen.prefix or '.'} is in no data directory, whose metadata has the wrapped"
                " data keys; give a PATH in a data directory, or leave out --master-key-file"
            )
        found = self._known.get(directory)
        if found is None:
            folder = OsFolder(str(directory))
            found = self._known[directory] = StoredKeys(folder, self._masters)
        return found


@click.group(cls=OrderedGroup)
def log() -> None:
    """Dump, verify and repair files of a stopped broker.

    A PATH is a data directory, the directory of a partition or of the metadata, or a single file.
    """


@log.command(
    "dump",
    short_help="Print the contents of files.",
    epilog=examples(
        "tidelog log dump tidelog-data/topics/orders.*/0 --records",
        "tidelog log dump tidelog-data --json | jq 'select(.type == \"bad\")'",
    ),
)
@_PATHS
@click.option("--records", "with_records", is_flag=True, help="Print keys, values and headers too.")
@click.option(
    "--from-offset", type=click.IntRange(min=0), default=0, help="Skip entries below this offset."
)
@click.option("--to-offset", type=click.IntRange(min=0), help="Skip entries from this offset on.")
@_MASTER_KEY_FILE
@json_option
def dump_files(
    paths: tuple[str, ...],
    with_records: bool,
    from_offset: int,
    *,
    to_offset: int | None,
    master_key_file: Path | None,
    as_json: bool,
) -> None:
    """Print the contents of files, one line or JSON object per entry.

    Entries are batch headers, entries of queue journals and of the metadata log, snapshots,
    checkpoints, indexes and all other files. Files are not changed. A torn or damaged file is
    printed up to the damage, with its position and reason; the exit status is then 1.
    """
    wanted = OffsetFilter(from_offset, OFFSET_END if to_offset is None else to_offset)
    options = DumpOptions(wanted=wanted, with_records=with_records)
    key_chain = _KeyChain(master_key_file)
    bad_count = 0
    for chosen in _choose(paths):
        file = ""
        for line in _dump(chosen, replace(options, keys=key_chain.of(chosen))):
            bad_count += line["type"] == BAD
            if as_json:
                click.echo(line_as_json(line))
                continue
            if line["file"] != file:
                file = str(line["file"])
                click.echo(click.style(file, bold=True))
            click.echo(f"  {line_as_text(line)}")
    if bad_count:
        raise CommandError(
            f"{counted(bad_count, 'bad line')} in the output: see the positions and reasons above"
        )


@log.command(
    "verify",
    short_help="Verify checksums and consistency between files.",
    epilog=examples("tidelog log verify tidelog-data"),
)
@_PATHS
@_MASTER_KEY_FILE
@json_option
def verify_files(paths: tuple[str, ...], *, master_key_file: Path | None, as_json: bool) -> None:
    """Verify checksums and consistency between files, and print a verdict for each file.

    The checks: segments are contiguous; leader epochs and offsets grow; indexes, footers and
    checkpoints match the batches; no file is missing. Files are not changed. The exit status is 1
    if a file is bad. A torn tail is bad, too: a crash leaves it, and the next start truncates it.
    """
    key_chain = _KeyChain(master_key_file)
    with ExitStack() as locks:
        _lock_shared(paths, locks)
        _report(
            (
                replace(check, path=chosen.prefix + check.path)
                for chosen in _choose(paths)
                for check in verify(
                    chosen.folder,
                    chosen.files,
                    is_whole=chosen.is_whole,
                    keys=key_chain.of(chosen),
                )
            ),
            as_json=as_json,
        )


@log.command(
    "repair-index",
    short_help="Rebuild the indexes of sealed segments.",
    epilog=examples("tidelog log repair-index tidelog-data/topics/orders.*/0"),
)
@_PATHS
@json_option
def repair_index(paths: tuple[str, ...], as_json: bool) -> None:
    """Rebuild the indexes of sealed segments, each atomically and durably.

    A broker rebuilds a missing or corrupt index by itself at its first use.
    """
    with ExitStack() as locks:
        for directory in _data_directories(paths):
            locks.callback(OsDisk(str(directory)).lock(LOCK_NAME).release)
        _report(
            (
                replace(check, path=chosen.prefix + check.path)
                for chosen in _choose(paths)
                for check in repair_indexes(OsDisk(chosen.folder.root), chosen.files)
            ),
            as_json=as_json,
        )


@log.command(
    "repair-metadata",
    short_help="Repair metadata with an entry that cannot be applied.",
    epilog=examples(
        "tidelog log repair-metadata tidelog-data",
        "tidelog log repair-metadata tidelog-data --set-aside",
    ),
)
@click.argument("directory", type=click.Path(exists=True, file_okay=False), metavar="DATA-DIR")
@click.option("--cut", is_flag=True, help="Remove that entry, and all behind it: the only voter.")
@click.option(
    "--set-aside", is_flag=True, help="Set the metadata aside; the next start gets it from peers."
)
def repair_metadata(directory: str, *, cut: bool, set_aside: bool) -> None:
    """Look for the first metadata entry that cannot be applied, and name the ways out.

    Without an option nothing changes. The exit status is 1 while there is such an entry.
    """
    if cut and set_aside:
        raise click.UsageError("choose one of --cut and --set-aside")
    disk = OsDisk(directory)
    lock = disk.lock(LOCK_NAME)
    try:
        now_ms = RealClock().now_ms()
        verdict = examine_metadata(disk, now_ms=now_ms)
        if cut:
            count = cut_metadata(disk, verdict, now_ms=now_ms)
            click.echo(f"removed {_entries(count)} of the metadata")
        elif set_aside:
            name = set_metadata_aside(disk)
            click.echo(f"renamed the metadata to {name}; start the broker with --peers that name")
            click.echo("other nodes of its cluster")
        else:
            _print_verdict(verdict)
    finally:
        lock.release()


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def _print_verdict(verdict: MetadataVerdict) -> None:
    """Print what can be done about metadata.

    Raises:
        CommandError: An entry cannot be applied.
    """
    click.echo(f"entries {verdict.snapshot_index + 1} to {verdict.last_index} behind the snapshot")
    if verdict.bad_index is None:
        click.echo("all of them can be applied")
        return
    click.echo(f"entry {verdict.bad_index} cannot be applied: {verdict.reason}")
    if verdict.other_voters:
        nodes = ", ".join(map(str, verdict.other_voters))
        click.echo(f"--set-aside: the next start with --peers gets the metadata from nodes {nodes}")
    elif verdict.is_snapshot_bad:
        click.echo("restore the whole data directory from a backup: the snapshot is bad")
    else:
        lost = verdict.last_index - verdict.bad_index + 1
        click.echo(
            f"--cut: removes {_entries(lost)}, and what they decided about"
            " topics, queues and groups; the records of topics stay"
        )
    raise CommandError("an entry of the metadata cannot be applied")


def _report(all_findings: Iterable[FileCheck], *, as_json: bool) -> None:
    """Print the verdict of each file at once.

    Raises:
        CommandError: A file is bad.
    """
    count = bad_count = 0
    for check in all_findings:
        count += 1
        bad_count += not check.is_ok
        click.echo(findings_as_json(check) if as_json else findings_as_text(check))
    if bad_count:
        raise CommandError(f"{bad_count:,} of {counted(count, 'file')} are bad")


def _choose(paths: Iterable[str]) -> Iterator[_Chosen]:
    for path in paths:
        place = Path(path)
        if place.is_dir():
            folder = OsFolder(path)
            prefix = path if path.endswith("/") else f"{path}/"
            yield _Chosen(folder, folder.files_below(""), prefix, is_whole=True)
        else:
            prefix = path.removesuffix(place.name)
            yield _Chosen(OsFolder(str(place.parent)), [place.name], prefix, is_whole=False)


def _dump(chosen: _Chosen, options: DumpOptions) -> Iterator[Row]:
    for line in dump(chosen.folder, chosen.files, options):
        yield {**line, "file": f"{chosen.prefix}{line['file']}"}


def _data_directories(paths: Iterable[str]) -> list[Path]:
    """Return the data directories that contain the paths, without duplicates."""
    found: dict[Path, None] = {}
    for path in paths:
        place = Path(path).resolve()
        for each in (place, *place.parents):
            if (each / LOCK_NAME).is_file() and (each / NODE_NAME).is_file():
                found[each] = None
    return list(found)


def _lock_shared(paths: Iterable[str], locks: ExitStack) -> None:
    """Lock the data directories of the paths, so that no broker starts on them.

    Raises:
        DataDirectoryError: A broker uses a directory.
    """
    for directory in _data_directories(paths):
        locks.callback(OsFolder(str(directory)).lock_shared(LOCK_NAME).release)
