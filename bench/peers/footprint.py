"""Workload that measures the resources of a system: start, idle, disk, installed size."""

from dataclasses import replace
from time import perf_counter, sleep  # noqa: TID251  (an idle server is observed from outside)
from typing import Final

from bench.peers.cases import Case, Workload
from bench.peers.promises import Promise
from bench.peers.results import OWN, Sample
from bench.peers.running import Measure, Running
from bench.peers.servers import occupied_bytes

_VALUE_BYTES: Final = 100
_IDLE_S: Final = 3.0


def _cases(promise: Promise, is_quick: bool) -> list[Case]:
    """Return the one there is: each repetition starts a server on an empty directory."""
    if promise is not Promise.MEMORY_ONE:
        return []
    return [Case("log", "one server", _measure(is_quick=is_quick), 9.0)]


def _measure(*, is_quick: bool) -> Measure:
    count = 50_000 if is_quick else 300_000

    def measure(running: Running, name: str) -> Sample:
        place = running.servers.directory.with_name(f"{running.system.name}-{name}")
        with running.system.start(running.installed, place, running.promise) as servers:
            fresh = replace(running, servers=servers)
            cpu, began = servers.cpu_seconds, perf_counter()
            sleep(_IDLE_S)
            idle_cpu = (servers.cpu_seconds - cpu) / (perf_counter() - began) * 100
            idle_mb = servers.resident_bytes / 1e6
            before = servers.disk_bytes
            more = {"count": count, "value_bytes": _VALUE_BYTES}
            fresh.errand("create", name)
            fresh.do(fresh.order("produce", name, **more))
            loaded_mb = servers.resident_bytes / 1e6
            start_s = servers.started_in
        # A stop truncates preallocated files.
        return {
            "start_s": start_s,
            "idle_cpu": idle_cpu,
            "idle_mb": idle_mb,
            "loaded_mb": loaded_mb,
            "disk_bytes": (servers.disk_bytes - before) / count,
            "installed_mb": _installed_bytes(running) / 1e6,
        }

    return measure


def _installed_bytes(running: Running) -> int:
    """Return the bytes of the programs, without Java and Python."""
    root = running.installed.root
    if running.system.name == OWN:
        packages = ("tidelog", "wire", "logstore", "isr", "coordinator", "queue_layer", "broker")
        return sum(occupied_bytes(root / name) for name in (*packages, "client"))
    return sum(occupied_bytes(root / name) for name in ("tree", "jars") if (root / name).exists())


FOOTPRINT: Final = Workload("footprint", "log", _cases, is_warmed_up=False)
