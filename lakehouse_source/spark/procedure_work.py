"""Door. What the procedures of Spark's catalog do: each answers its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lakehouse_source import functions
from lakehouse_source.dataset import Dataset
from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import WriteResult
from lakehouse_source.spark.catalog_request import Place
from lakehouse_source.spark.compact_tasks import commit_messages
from lakehouse_source.spark.secrets import reveal


@dataclass(frozen=True, slots=True)
class Call:
    """The place that a procedure is called for, and its other arguments that are not NULL.

    `messages` are those of the tasks that did the work, where it is one for tasks.
    """

    place: Place
    arguments: Mapping[str, Any]
    messages: Sequence[str] = ()

    def dataset(self) -> Dataset:
        """The dataset at its newest version."""
        return Dataset(self.place.address())


def vacuum(call: Call) -> Iterable[Sequence[Any]]:
    report = call.dataset().vacuum(progress=False, **call.arguments)
    did = "would remove" if report.dry_run else "removed"
    for action, tallies in ((did, report.removed), ("left", report.left)):
        for tally in tallies:
            yield action, tally.what, tally.files, tally.size_bytes, tally.paths
    if report.folders_removed:
        yield did, "empty folders", report.folders_removed, 0, ()


def expire_versions(call: Call) -> Iterable[Sequence[Any]]:
    report = call.dataset().expire_versions(**call.arguments)
    yield (
        report.expired,
        report.oldest_version,
        report.newest_version,
        report.files,
        report.size_bytes,
    )


def verify(call: Call) -> Iterable[Sequence[Any]]:
    report = call.dataset().verify(progress=False, **call.arguments)
    about = (report.ok, report.version, report.files, report.size_bytes)
    if report.ok:
        yield *about, None, None, None, None
    for one in report.differences:
        yield *about, one.path, one.what, one.expected, one.found


def restore(call: Call) -> Iterable[Sequence[Any]]:
    yield _written(call.dataset().restore(**call.arguments))


def set_index_columns(call: Call) -> Iterable[Sequence[Any]]:
    dataset = call.dataset()
    result = dataset.set_properties(index_columns=call.arguments.get("columns"))
    yield result.version, dataset.properties.get("index_columns")


def compact(call: Call) -> Iterable[Sequence[Any]]:
    yield tuple(asdict(commit_messages(call.place, call.messages)).values())


def explain(call: Call, names: Iterable[str]) -> Iterable[Sequence[Any]]:
    """What a scan prunes: the facts with these names."""
    arguments = dict(call.arguments)
    pruning = call.dataset().scan(arguments.pop("where", None), **arguments).explain()
    yield [getattr(pruning, name) for name in names]


def convert(call: Call) -> Iterable[Sequence[Any]]:
    place, arguments = call.place, dict(call.arguments)
    place.address()  # refuses secrets
    partitioning = _partitioning(arguments)
    made = functions.convert(
        place.path,
        catalog=reveal(place.catalog),
        partitioning=partitioning,
        index_columns=arguments.get("index_columns"),
        progress=False,
        storage_options=place.storage or None,
    )
    summary = made.history(limit=1)[0].summary
    yield made.uri, made.version, summary["files_added"], summary["rows_added"], made.partition_by


def add_files(call: Call) -> Iterable[Sequence[Any]]:
    arguments = dict(call.arguments)
    one, several = arguments.pop("path", None), arguments.pop("paths", None)
    if (one is None) == (several is None):
        raise InvalidOptionError(option="path", reason="or paths must be given, and not both.")
    paths = several if one is None else one
    partitioning = _partitioning(arguments)
    result = call.dataset().add_files(paths, partitioning=partitioning, progress=False, **arguments)
    yield _written(result)


def create_tag(call: Call) -> Iterable[Sequence[Any]]:
    dataset = call.dataset()
    dataset.tag(**call.arguments)
    name = call.arguments["name"]
    yield name, dataset.tags()[name]


def drop_tag(call: Call) -> Iterable[Sequence[Any]]:
    name = call.arguments["name"]
    dataset = call.dataset()
    version = dataset.tags().get(name)
    dataset.drop_tag(name)
    yield name, version


def create_branch(call: Call) -> Iterable[Sequence[Any]]:
    dataset = call.dataset()
    version = call.arguments.get("version", dataset.version)
    yield call.arguments["name"], dataset.branch(call.arguments["name"], version).version


def drop_branch(call: Call) -> Iterable[Sequence[Any]]:
    name = call.arguments["name"]
    dataset = call.dataset()
    version = dataset.branches().get(name)
    dataset.drop_branch(name)
    yield name, version


def fast_forward(call: Call) -> Iterable[Sequence[Any]]:
    dataset = call.dataset()
    before = dataset.version
    yield call.arguments["branch"], before, dataset.fast_forward(call.arguments["branch"]).version


def _partitioning(arguments: dict[str, Any]) -> str | None:
    """'none' stands for Python's None: NULL means that nothing was chosen."""
    chosen = arguments.pop("partitioning", "hive")
    return None if chosen == "none" else chosen


def _written(result: WriteResult) -> Sequence[Any]:
    return result.version, result.files, result.row_count, result.schema_version
