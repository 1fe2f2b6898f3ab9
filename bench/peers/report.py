"""Report of the results: tables of ratios, and plots. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from bench.peers.earlier import KEPT, Change, changes
from bench.peers.goals import Verdict, advantage, verdicts
from bench.peers.plot import Bar, bars_svg
from bench.peers.promises import Promise
from bench.peers.results import METRICS, LeftOut, RowResult
from bench.peers.systems import System

_WORKLOADS: Final = {
    "rates": (
        "Rates",
        (
            "One Python program produces as fast as it can, until everything is acknowledged; then"
            " one reads it all."
        ),
    ),
    "native": (
        "Native load tools",
        (
            "The load tools that peers bring along, which are no Python, beside tidelog's Python"
            " client. A JVM compiles what it runs often: as many records as are counted are"
            " produced before, and of what is consumed the latter half counts. Where the client in"
            " Python is faster (above, under Rates), that is what the peer can do."
        ),
    ),
    "queues": (
        "Queues",
        (
            "One program sends, one receives and deletes, with as many tasks as there are workers,"
            " at the same time, until all messages are done. What a worker does one message at a"
            " time is measured twice: by the calls receive and delete, and with tidelog's"
            " queue.work. The peers do the same in both."
        ),
    ),
    "latency": (
        "Latency",
        (
            "Records of 100 bytes at fixed times, from when one was due until a consumer in another"
            " process has it."
        ),
    ),
    "asyncio": (
        "Asyncio",
        (
            "One program on asyncio produces with one call for each record, and reads them record"
            " by record: tidelog.aio, and aiokafka with Kafka. The latency is that of one send,"
            " from the call to its acknowledgement, one after the other."
        ),
    ),
    "drain": (
        "Backlog",
        "One program consumes what was produced before, while another one produces more.",
    ),
    "late": (
        "Delays and leases",
        (
            "How late 500 messages come: after the end of their delay, or again, after the end of"
            " a lease in which they were not deleted. From before the call that began it."
        ),
    ),
    "footprint": ("Footprint", "What it takes to have it."),
}
_MAIN: Final = ("produced", "consumed", "drained", "worked", "p50", "p99", "p99.9")
"""Metrics of the plots and of the worst rows."""
_WORST_COUNT: Final = 12


@dataclass(frozen=True, slots=True)
class Report:
    """Texts of the report."""

    text: str
    plots: Mapping[str, str]
    """Plots as SVG, by file name."""


def make_report(
    results: Sequence[RowResult],
    systems: Iterable[System],
    left_out: Sequence[LeftOut] = (),
    *,
    earlier: Sequence[RowResult] = (),
    profiles: str = "",
) -> Report:
    """Return tables and plots of all results, and the unmeasured rows.

    `earlier` are results to compare with; `profiles` is a handwritten section about missed goals.
    """
    plots: dict[str, str] = {}
    parts = [_HEAD, _machines(results), _goals(verdicts(results)), profiles, _worst(results)]
    parts += [_changes(changes(earlier, results, _MAIN)), _left_out(left_out)]
    for workload, (title, what) in _WORKLOADS.items():
        own = [result for result in results if result.row.workload == workload]
        if not own:
            continue
        parts.append(f"## {title}\n\n{what}\n")
        for promise, group in groupby(own, key=lambda each: each.row.promise):
            alike = list(group)
            parts.append(f"### {title}: {promise}\n\nPromise: {Promise(promise).meaning}.\n")
            for name, svg in _plots(f"{title}, {promise}", f"{workload}-{promise}", alike):
                plots[name] = svg
                parts.append(f"![{title}, {promise}](plots/{name})\n")
            parts.append(_ratios(alike))
            parts.append(_absolutes(alike))
    parts.append(_settings(systems))
    return Report("\n".join(part for part in parts if part), plots)


_HEAD: Final = """\
# tidelog beside its peers

Written by `make bench-peers`; `make bench-peers ARGS="report"` writes it again from the results
that are kept in [peers/results](peers/results). How it is measured says
[peers/README.md](peers/README.md).

A ratio is **tidelog's figure divided by the peer's**: the median of all repetitions, each of
tidelog and of the peer directly one after the other, with the lowest and the highest one. For
rates more than 1 is good; for CPU, latency, memory and disk less than 1 is. Figures of this
machine alone say little about another one; ratios say more.
"""


def _machines(results: Sequence[RowResult]) -> str:
    lines = sorted({f"- {each.date}: {each.machine}" for each in results})
    versions = sorted({f"{each.peer} {each.versions}" for each in results})
    rough = sum(each.is_quick for each in results)
    if rough:
        lines.append(f"- {rough} of {len(results)} rows are rough: measured with `--quick`")
    return "\n".join([*lines, f"- measured beside: {', '.join(versions) or 'none'}", ""])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(head), " | ".join("---" for _ in head)]
    lines += [" | ".join(row) for row in rows]
    return "".join(f"| {line} |\n" for line in lines)


def _goals(found: Sequence[Verdict]) -> str:
    if not found:
        return ""
    met = sum(verdict.is_met for verdict in found)
    rows = [
        [
            f"{verdict.result.row.promise}: {verdict.result.what}",
            METRICS[verdict.goal.metric].title,
            verdict.result.peer,
            f"{'≥' if verdict.goal.is_rate else '≤'} {verdict.goal.bound:g}",
            verdict.ratio.text(".2f"),
            "met" if verdict.is_met else f"missed by {verdict.missed_by:.2f} times",
        ]
        for verdict in found
    ]
    head = ["row", "figure", "beside", "goal", "ratio", ""]
    return f"## Goals\n\n{met} of {len(found)} are met.\n\n{_table(head, rows)}"


def _worst(results: Sequence[RowResult]) -> str:
    found = [
        (advantage(result, metric), result, metric)
        for result in results
        for metric in result.metrics()
        if metric in _MAIN
    ]
    losses = sorted((each for each in found if each[0] < 1), key=lambda each: each[0])
    if not losses:
        return ""
    rows = [
        [
            f"{result.row.promise}: {result.what}",
            METRICS[metric].title,
            result.peer,
            f"{1 / times:.2f}",
        ]
        for times, result, metric in losses[:_WORST_COUNT]
    ]
    head = ["row", "figure", "peer", "so many times better is the peer"]
    text = f"{len(losses)} of {len(found)} figures of rates and latency are worse than a peer's."
    return f"## Where tidelog loses\n\n{text} The worst:\n\n{_table(head, rows)}"


def _changes(found: Sequence[Change]) -> str:
    """Return the figures that tidelog won in an earlier run and wins less clearly now."""
    if not found:
        return ""
    lost = [each for each in found if not each.is_kept]
    text = (
        f"{len(found) - len(lost)} of {len(found)} figures that were better than a peer's in an"
        f" earlier run are at least {KEPT} times as good."
    )
    rows = [
        [
            each.title,
            each.result.peer,
            each.then.text(".2f"),
            each.now.text(".2f"),
            f"{each.share:.2f}",
            "the ranges overlap" if each.overlaps else "",
        ]
        for each in lost
    ]
    head = ["figure", "peer", "ratio then", "ratio now", "now by then", ""]
    table = _table(head, rows) if rows else ""
    return f"## Beside an earlier run\n\n{text}\n\n{table}"


def _left_out(left_out: Sequence[LeftOut]) -> str:
    if not left_out:
        return ""
    lines = "".join(f"- {each.line()}\n" for each in left_out)
    return f"## Not measured\n\n{lines}"


def _ratios(results: Sequence[RowResult]) -> str:
    metrics = [name for name in METRICS if any(name in each.metrics() for each in results)]
    rows = [
        [
            result.what,
            result.peer,
            *(
                result.ratio(name).text(".2f") if name in result.metrics() else ""
                for name in metrics
            ),
        ]
        for result in results
    ]
    head = ["tidelog / peer", "peer", *(METRICS[name].title for name in metrics)]
    return _table(head, rows)


def _absolutes(results: Sequence[RowResult]) -> str:
    """Return the medians of both sides."""
    metrics = [name for name in METRICS if any(name in each.metrics() for each in results)]
    rows = [[each.what, each.peer, *(_both(each, name) for name in metrics)] for each in results]
    head = ["medians: tidelog; peer", "peer", *(METRICS[name].title for name in metrics)]
    table = _table(head, rows)
    return f"<details><summary>The figures themselves</summary>\n\n{table}\n</details>\n"


def _both(result: RowResult, name: str) -> str:
    if name not in result.metrics():
        return ""
    form = METRICS[name].form
    medians = (result.spread(name, is_ours=is_ours).median for is_ours in (True, False))
    return "; ".join(f"{median:{form}}" for median in medians)


def _plots(title: str, slug: str, results: Sequence[RowResult]) -> Iterable[tuple[str, str]]:
    """Yield one plot for each plotted metric."""
    for metric in _MAIN:
        bars = [_bar(each, metric) for each in results if metric in each.metrics()]
        if bars:
            name = f"{slug}-{metric.replace('.', '-')}.svg"
            what = METRICS[metric].title
            yield name, bars_svg(f"{title}: {what}: so many times better is tidelog", bars)


def _bar(result: RowResult, metric: str) -> Bar:
    ratio = result.ratio(metric)
    label = f"{result.what} · {result.peer}"
    if METRICS[metric].is_rate:
        return Bar(label, ratio.median, ratio.low, ratio.high)
    return Bar(label, 1 / ratio.median, 1 / ratio.high, 1 / ratio.low)


def _settings(systems: Iterable[System]) -> str:
    parts = ["## Settings\n\nWhat is not listed is as it comes.\n"]
    for system in systems:
        parts.append(f"### {system.title}, with the client {system.client}\n")
        for promise in Promise:
            given = system.settings.get(promise)
            text = f"`{'`, `'.join(given)}`" if given else "not promised, so not measured"
            parts.append(f"- {promise.value}: {text}")
        parts += [f"- {remark}" for remark in system.remarks]
        parts.append("")
    return "\n".join(parts)
