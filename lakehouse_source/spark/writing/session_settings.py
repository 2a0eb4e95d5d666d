"""Door. What the settings of a session say of a write, as the tasks of the write see them.

Spark copies the settings of the session to the local properties of every task of a query
(`SQLExecution.withSQLConfPropagated`), with and without the planner extension. What an overwrite
replaces therefore depends on no rule of the extension.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from pyspark import TaskContext

from lakehouse_source.errors import InvalidOptionError
from lakehouse_source.spark.protocol.vocabulary import Setting
from lakehouse_source.spark.session.options import PARTITION_MODES
from lakehouse_source.write.commit.options import StagedWrite

PARTITION_MODE = "spark.sql.sources.partitionOverwriteMode"
_ALWAYS_SET = "spark.master"  # a task that lacks it did not get the session's settings


def seen_in_task() -> dict[str, str] | None:
    """The settings of the session that say something of a write; None: Spark does not tell."""
    context = TaskContext.get()
    properties = getattr(context, "_localProperties", None)
    if not properties or _ALWAYS_SET not in properties:
        return None
    return {
        name: value
        for name, value in properties.items()
        if name == PARTITION_MODE or name.startswith(Setting.STATEMENT)
    }


@dataclass(frozen=True, slots=True)
class Followed:
    """What a write already knows.

    `known`: the options of the write, in lower case; None: the extension told all settings.
    `partitions`: the session decides what the overwrite replaces, because nothing else says it.
    """

    known: Collection[str] | None
    partitions: bool = False

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
        if not tasks or None in tasks:
            raise InvalidOptionError(
                option="partitionOverwriteMode",
                reason=f"is not given, and Spark did not tell what the session's {PARTITION_MODE} "
                "is. Give the option: with 'static' all rows are replaced, with 'dynamic' the "
                "partitions of the new rows.",
                known=PARTITION_MODES,
            )
        mode = settings.get(PARTITION_MODE, "static").lower()
        options = replace(staged.options, dynamic_partitions=mode == "dynamic")
        return replace(staged, options=options)
