"""States that a good swarm must reach.

A probe that no run reaches shows that the runs are too tame: then the swarm has failed, though
nothing was broken.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, final

from tests.simulation.machine.file_tree import Survival

FORCED: Final = {
    "checkpoint early": "a flush wrote a checkpoint that was not due",
    "flush late": "a flush began a little after it was asked for",
    "roll early": "maintenance rolled a segment that was neither old nor full",
    "files dropped": "all open files and indexes were dropped",
    "few bytes received": "a broker received less than there was",
    "buffer given back early": "a connection gave its memory back as soon as it was idle",
    "fetch cut short": "a fetch was answered as if it had asked for one byte",
    "poll without waiting": "a long poll was answered at once",
    "snapshot early": "a node took a snapshot of the metadata after a few entries",
    "no entries kept": "and kept none of the entries that it covers",
    "cold fetch": "what was in the page cache was read and checked in a thread",
    "small piece from its file": "few bytes were sent from the file, without a copy",
    "produce without waiting": "a produce timed out at once",
    "producer wakes late": "a producer was late for what was due",
    "one batch in a request": "a producer sent what fits into one request in two",
    "connection abandoned": "a producer abandoned a connection with requests in flight",
    "fetch abandoned": "a consumer did",
}
"""The rare branches in the code under test (`wire.env.env.Buggify`), and what taking each means."""

PROBES: Final = {
    "torn tail": "a start cut off a torn tail",
    "clean tail": "a start after a crash found nothing to cut off",
    "damage at start": "a start found damage",
    "damage read": "a reader was told of damage",
    "cut: nothing": "a power cut lost all unsynced changes of a segment",
    "cut: prefix": "a power cut kept the first few, and tore one",
    "cut: sectors": "a power cut kept any sectors in any order",
    "cut: size": "a power cut kept the length and zeros",
    "lost in memory": "a power cut took what was only promised in memory",
    "resent batch": "a batch that was sent again got its old offset",
    "resent after crash": "so did one that was sent again to a broker that was started since",
    "disk full": "a log became read-only",
    "disk has room": "and writable again",
    "sync failed": "a log went offline because a sync failed",
    "write failed": "a log went offline because a write failed",
    "read failed": "a log went offline because a read failed",
    "name failed": "a call failed that changes names or the length of a file",
    "frame corrupted": "a header or footer of a segment, or an index, holds another bit",
    "sector lost": "a sector that was durable holds zeros, or what belongs elsewhere",
    "crash in roll": "a crash came while a segment was being rolled",
    "crash in checkpoint": "a crash came while a checkpoint was being written",
    "crash in swap": "a crash came while compaction put a file in the place of others",
    "log compacted": "a round of compaction came to its end",
    "crash in metadata": "a crash came while the catalog was being written",
    "crash in creation": "a crash came while a topic was being made",
    "crash in deletion": "a crash came while a topic was being removed",
    "topic created": "a topic was created among the faults",
    "creation unknown": "who asked for it was not told what came of it",
    "topic deleted": "a topic was deleted among the faults",
    "deletion of a topic unknown": "who asked for it was not told what came of it",
    "ghost refused": "who still wrote to a deleted topic was refused",
    "crash after append": "a crash came between an append and its sync",
    "poll woken": "a long poll was woken by new records",
    "poll expired": "a long poll ended without any",
    "produce timed out": "the broker answered that it was not acknowledged in time",
    "outcome unknown": "a producer gave up a record and does not know whether it is kept",
    "send refused": "a producer was told that a record is not in the log, and never will be",
    "segments deleted": "retention deleted segments",
    "records deleted": "records were deleted as somebody asked for",
    "deletion unknown": "who asked for records to be deleted was not told what came of it",
    "topic altered": "settings were altered while records were under way",
    "alteration unknown": "who altered settings was not told what came of it",
    "partitions added": "a topic got more partitions while records were under way",
    "growth unknown": "who asked for that was not told what came of it",
    "reader overtaken": "a reader was told that its offset is deleted",
    "clean stop": "a broker stopped cleanly",
    "stop owes": "it began to stop when acknowledged records were in memory only",
    "cut after stop": "the power was cut as soon as a broker had stopped cleanly",
    "start refused": "a broker could not start because of its disk",
    "clock went back": "the wall clock jumped back",
    "one-way partition": "one direction of a link was cut",
    "client died": "a client died in the middle of its work",
    "gap refused": "a batch behind a gap was refused",
    "old epoch refused": "so was one of a producer's epoch that was over",
    "accept failed": "the broker had no file descriptors left",
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
    """What one run has reached."""

    def __init__(self, probes: Mapping[str, str] = PROBES) -> None:
        """Have reached nothing of what there is to reach."""
        self.counts: Counter[str] = Counter()
        self._probes = probes
        self._is_after_crash = False

    def reached(self, probe: str) -> None:
        """Take note that the state was reached."""
        assert probe in self._probes, f"there is no probe {probe!r}"
        self.counts[probe] += 1

    def forced(self, site: str) -> None:
        """Take note that the rare branch at `site` of the code under test was taken."""
        self.reached(f"forced: {site}")

    def crashed(self) -> None:
        """Take note that a broker came to an end that was not clean."""
        self._is_after_crash = True

    def cut(self, survivals: Mapping[str, Survival]) -> None:
        """Take note of what a power cut has left of files."""
        for path, survival in survivals.items():
            if path.endswith(".log"):
                self.reached(_SURVIVALS[survival])

    def probed(self, event: str, fields: Mapping[str, object]) -> None:
        """Take note of what a broker says of itself."""
        if event == "log_status_changed":
            self._status_changed(str(fields["status"]), str(fields["reason"]))
        elif event == "broker_started":
            self._is_after_crash = False  # What is opened from now on is new.
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
    "broker_failed": "start refused",
    "accept_failed": "accept failed",
}
