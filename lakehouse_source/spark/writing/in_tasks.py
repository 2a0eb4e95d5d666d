"""Door. A write as its tasks know it: settings of the session, and the files that tasks wrote."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.model import FileMetadata
from lakehouse_source.parquet.read_write_specs import WriteSpec
from lakehouse_source.schema.variant_paths import paths_of
from lakehouse_source.spark.protocol.vocabulary import Setting
from lakehouse_source.spark.session.options import PARTITION_MODES

if TYPE_CHECKING:
    from lakehouse_source.write.commit.options import StagedWrite


# --- What the settings of a session say of a write, as the tasks of the write see them.
#
# Spark copies the settings of the session to the local properties of every task of a query
# (`SQLExecution.withSQLConfPropagated`), with and without the planner extension. What an overwrite
# replaces therefore depends on no rule of the extension. A write inside of another query, as in
# `foreachBatch`, also sees what that query's session has and its own does not: Spark adds settings,
# and removes none. Then only the extension knows, and without it the write is refused.


PARTITION_MODE = "spark.sql.sources.partitionOverwriteMode"
_IS_OF_OUTER_QUERY = "?"  # maybe, as far as a task can see
_QUERY, _OUTERMOST_QUERY = "spark.sql.execution.id", "spark.sql.execution.root.id"
_ALWAYS_SET = "spark.master"  # a task that lacks it did not get the session's settings


def seen_in_task() -> dict[str, str] | None:
    """The settings of the session that say something of a write; None: Spark does not tell."""
    context = TaskContext.get()
    properties = getattr(context, "_localProperties", None)
    if not properties or _ALWAYS_SET not in properties:
        return None
    found = {
        name: value
        for name, value in properties.items()
        if name == PARTITION_MODE or name.startswith(Setting.STATEMENT)
    }
    is_inner = properties.get(_QUERY) != properties.get(_OUTERMOST_QUERY)
    if is_inner and found.get(PARTITION_MODE, "static").lower() != "static":
        found[PARTITION_MODE] = _IS_OF_OUTER_QUERY
    return found


@dataclass(frozen=True, slots=True)
class Followed:
    """What a write already knows.

    `known`: the options of the write, in lower case; None: the extension told all settings.
    `partitions`: the session decides what the overwrite replaces, because nothing else says it.
    `session_mode`: what the extension says that the session sets; None: it did not say.
    """

    known: Collection[str] | None
    partitions: bool = False
    session_mode: str | None = None

    def applied(self, staged: StagedWrite, seen: Iterable[Mapping[str, str] | None]) -> StagedWrite:
        """The write as the session wants it. `seen`: what each task saw.

        Raises:
            InvalidOptionError: the session's setting is not known, or is one that this write
                cannot follow any more.
        """
        tasks = list(seen)
        settings = {name: one[name] for one in tasks if one is not None for name in one}
        for name in settings.keys() - {PARTITION_MODE}:
            option = name[len(Setting.STATEMENT) :]
            if self.known is not None and option.lower() not in self.known:
                raise InvalidOptionError(
                    option=name,
                    value=settings[name],
                    reason="is a setting of the session, of which only the planner extension tells "
                    "a write, and it did not: call lakehouse_source.spark.enable(spark), or give "
                    f"the option {option} to the write.",
                )
        if not self.partitions:
            return staged
        mode: str | None = settings.get(PARTITION_MODE, "static")
        if mode == _IS_OF_OUTER_QUERY:
            mode = self.session_mode
        if not tasks or None in tasks or mode is None:
            raise InvalidOptionError(
                option="partitionOverwriteMode",
                reason=f"is not given, and Spark did not tell what the session's {PARTITION_MODE} "
                "is. Give the option: with 'static' all rows are replaced, with 'dynamic' the "
                "partitions of the new rows.",
                known=PARTITION_MODES,
            )
        options = replace(staged.options, dynamic_partitions=mode.lower() == "dynamic")
        return replace(staged, options=options)


# --- A write as its tasks know it, and the files that they wrote in messages to the driver.


@dataclass(frozen=True, slots=True)
class BegunWrite:
    """A write on its way through tasks, which import only what `spec` needs."""

    spec: WriteSpec
    packed: bytes = field(repr=False)  # with the options of the store, which may be secret

    @classmethod
    def of(cls, staged: StagedWrite) -> BegunWrite:
        return cls(staged.spec, pickle.dumps(staged))

    @property
    def staged(self) -> StagedWrite:
        """The write, for its commit."""
        found: StagedWrite = pickle.loads(self.packed)
        return found


def of_task(spec: WriteSpec) -> WriteSpec:
    """How the files of this task are written."""
    context = TaskContext.get()
    return spec if context is None else spec.of_task(context.partitionId())


def shortened(files: Iterable[FileMetadata]) -> tuple[FileMetadata, ...]:
    """Files for a message, without what the driver does not need, or knows.

    Of the schema only columns with paths of VARIANT stay, which the file may have chosen.
    """
    return tuple(
        replace(
            file,
            schema=pa.schema([field for field in file.schema if paths_of(field)]),
            parquet_metadata=None,
        )
        for file in files
    )


def restored(files: Iterable[FileMetadata], schema: pa.Schema) -> list[FileMetadata]:
    """The files of messages, with the schema of the write."""
    found = []
    for file in files:
        own = {field.name: field for field in file.schema}
        fields = [own.get(field.name, field) for field in schema] if own else schema
        found.append(replace(file, schema=pa.schema(fields) if own else schema))
    return found
