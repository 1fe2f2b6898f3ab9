"""Probes: rare states that a swarm must reach (FoundationDB: sometimes assertions).

If no run reaches a probe, the runs have too few faults; the swarm fails although no checker has
objected.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, final

from tests.simulation.machine.file_tree import Survival

FORCED: Final = {
    "blank replicas": "new logs were left without files until they were used",
    "idle logs early": "closed logs were described for the next start",
    "checkpoint early": "a flush wrote a checkpoint that was not due",
    "flush late": "a flush began a little after it was asked for",
    "roll early": "maintenance rolled a segment that was neither old nor full",
    "files dropped": "all open files and indexes were dropped",
    "few bytes received": "a broker received less than was available",
    "buffer given back early": "a connection freed its buffer as soon as it was idle",
    "fetch cut short": "a fetch was answered as if it had asked for one byte",
    "poll without waiting": "a long poll was answered at once",
    "snapshot early": "a node took a snapshot of the metadata after a few entries",
    "snapshot at stop": "a clean stop took a snapshot of the metadata that was not due",
    "no entries kept": "a node kept no entries below its snapshot",
    "cold fetch": "bytes in the page cache were read and checked in a thread",
    "small piece from its file": "few bytes were sent from the file, without a copy",
    "produce without waiting": "a produce timed out at once",
    "producer wakes late": "a producer sent due batches late",
    "one batch in a request": "a producer sent two requests where one was enough",
    "connection abandoned": "a producer closed a connection with requests in flight",
    "fetch abandoned": "a consumer abandoned a fetch",
}
"""Rare branches in the code under test (`wire.env.env.Buggify`), and their effects."""

PROBES: Final = {
    "torn tail": "a start cut off a torn tail",
    "clean tail": "a start after a crash found nothing to cut off",
    "damage at start": "a start found damage",
    "damage read": "a reader got an error about damage",
    "cut: nothing": "a power cut lost all unsynced changes of a segment",
    "cut: prefix": "a power cut kept the first few, and tore one",
    "cut: sectors": "a power cut kept any sectors in any order",
    "cut: size": "a power cut kept the length and zeros",
    "lost in memory": "a power cut lost records that were acknowledged in memory only",
    "resent batch": "a batch that was sent again got its old offset",
    "resent after crash": "a batch that was resent after a restart got its old offset",
    "disk full": "a log became read-only",
    "disk has room": "a read-only log became writable again",
    "sync failed": "a log went offline because a sync failed",
    "write failed": "a log went offline because a write failed",
    "read failed": "a log went offline because a read failed",
    "name failed": "a call failed that changes names or the length of a file",
    "frame corrupted": "a header or footer of a segment, or an index, has a flipped bit",
    "sector lost": "a durable sector has zeros, or bytes of another position",
    "crash in roll": "a crash came while a segment was being rolled",
    "crash in checkpoint": "a crash came while a checkpoint was being written",
    "crash in swap": "a crash came while compaction swapped in a cleaned segment",
    "log compacted": "a round of compaction completed",
    "logs stay closed": "a start left logs closed",
    "crash in metadata": "a crash came while the catalog was being written",
    "crash in creation": "a crash came while a topic was being created",
    "crash in deletion": "a crash came while a topic was being deleted",
    "topic created": "a topic was created among the faults",
    "creation unknown": "the creation of a topic had an unknown outcome",
    "topic deleted": "a topic was deleted among the faults",
    "deletion of a topic unknown": "the deletion of a topic had an unknown outcome",
    "ghost refused": "a write to a deleted topic was refused",
    "crash after append": "a crash came between an append and its sync",
    "poll woken": "a long poll was woken by new records",
    "poll expired": "a long poll ended without records",
    "produce timed out": "a produce request timed out at the broker",
    "outcome unknown": "a send had an unknown outcome",
    "send refused": "a send failed with a record that is not in the log",
    "segments deleted": "retention deleted segments",
    "records deleted": "records were deleted on request",
    "deletion unknown": "a deletion of records had an unknown outcome",
    "topic altered": "settings were altered while records were in flight",
    "alteration unknown": "an alteration of settings had an unknown outcome",
    "partitions added": "a topic got more partitions while records were in flight",
    "growth unknown": "a partition growth had an unknown outcome",
    "reader overtaken": "a reader asked for a deleted offset",
    "clean stop": "a broker stopped cleanly",
    "stop owes": "a broker began to stop while acknowledged records were in memory only",
    "cut after stop": "the power was cut as soon as a broker had stopped cleanly",
    "start refused": "a broker could not start because of its disk",
    "clock went back": "the wall clock jumped back",
    "one-way partition": "one direction of a link was cut",
    "client died": "a client died in the middle of its work",
    "gap refused": "a batch behind a gap was refused",
    "old epoch refused": "a batch with an old producer epoch was refused",
    "accept failed": "the broker had no file descriptors left",
    "columnar batch": "a reader got a batch of format version 2",
    **{f"forced: {site}": meaning for site, meaning in FORCED.items()},
}
"""Name and meaning of every probe."""

_SURVIVALS = {
    Survival.NOTHING: "cut: nothing",
    Survival.PREFIX: "cut: prefix",
    Survival.SECTORS: "cut: sectors",
    Survival.SIZE: "cut: size",
}


@final
class Sometimes:
    """The probes that one run has reached."""

    def __init__(self, probes: Mapping[str, str] = PROBES) -> None:
        """Start with no probe reached."""
        self.counts: Counter[str] = Counter()
        self._probes = probes
        self._is_after_crash = False

    def reached(self, probe: str) -> None:
        """Count a probe."""
        assert probe in self._probes, f"there is no probe {probe!r}"
        self.counts[probe] += 1

    def forced(self, site: str) -> None:
        """Count the rare branch at `site` of the code under test."""
        self.reached(f"forced: {site}")

    def crashed(self) -> None:
        """Record an unclean end of a broker."""
        self._is_after_crash = True

    def cut(self, survivals: Mapping[str, Survival]) -> None:
        """Count the survivals of files after a power cut."""
        for path, survival in survivals.items():
            if path.endswith(".log"):
                self.reached(_SURVIVALS[survival])

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """Count probes from a broker's event."""
        if event == "log_status_changed":
            self._status_changed(str(fields["status"]), str(fields["reason"]))
        elif event == "broker_started":
            self._is_after_crash = False  # A log that is opened after this is new.
        elif event == "log_opened" and self._is_after_crash:
            self.reached("torn tail" if fields["truncated_bytes"] else "clean tail")
        elif event == "broker_stopped" and fields["is_clean"]:
            self.reached("clean stop")
        elif event in _EVENTS:
            self.reached(_EVENTS[event])

    def _status_changed(self, status: str, reason: str) -> None:
        if status == "read-only":
            self.reached("disk full")
        elif status == "online":
            self.reached("disk has room")
        elif status == "offline" and reason.startswith("fsync"):
            self.reached("sync failed")
        elif status == "offline" and "reading failed" in reason:
            self.reached("read failed")
        elif status == "offline":
            self.reached("write failed")


_EVENTS = {
    "log_damaged": "damage at start",
    "segments_deleted": "segments deleted",
    "log_compacted": "log compacted",
    "logs_stay_closed": "logs stay closed",
    "broker_failed": "start refused",
    "accept_failed": "accept failed",
}
