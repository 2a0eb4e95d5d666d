"""Verb. The meaning of a condition in versions whose columns differ from the newest version.

A row is erased if the condition is TRUE for the row in a version that can be read. The names of the
condition are looked up in the schema of each version. A name that the version lacks means the
column with this name in the newest schema: the column may have been renamed since, and is NULL if
the file lacks it. The newest schema is tried for all files too. A dropped column keeps its last
name, because its values are still in the files. A version in which the condition does not fit the
type of a column is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakehouse_source.erasure.family import Member, Named
from lakehouse_source.errors import InvalidExpressionError, InvalidPredicateError
from lakehouse_source.language import PredicateSet, Scope
from lakehouse_source.read.snapshot import Snapshot
from lakehouse_source.schema.defaults import without_default
from lakehouse_source.schema.fields import field_id
from lakehouse_source.write.statements.row_condition import row_condition

TARGET = "target"


@dataclass(frozen=True, slots=True)
class View:
    """A schema under which files are read to find rows, and the condition bound to it.

    `snapshot` has this schema, and every row of the files, deleted or not. The view is for versions
    from `first` on and before `after`; None: no limit.
    """

    snapshot: Snapshot
    condition: PredicateSet
    first: int
    after: int | None

    @property
    def meaning(self) -> tuple[object, ...]:
        """Equal where the condition finds the same rows of the same file."""
        schema = self.snapshot.schema
        names = _columns(self.condition, schema)
        fields = pa.schema([schema.field(name).with_nullable(True) for name in names])
        partitions = tuple(name for name in self.snapshot.partition_by if name in names)
        return fields.serialize().to_pybytes(), partitions

    def files(self, member: Member) -> Iterator[Named]:
        """The files that a version of the view has."""
        return (named for named in member.files if named.is_in(self.first, self.after))


def views(member: Member, root: Member, where: Any) -> list[View]:
    """The schemas of a dataset under which the condition may match different rows.

    `root` is the dataset itself, or for a branch its dataset.

    Raises:
        InvalidPredicateError: the condition cannot be parsed, or no schema has a column of it.
    """
    newest = member.snapshot
    if member is not root:
        newest = _with_names_of(newest, member, root)
    known = _with_dropped(newest.schema, member.schemas)
    found: list[View] = []
    try:
        found.append(View(_bare(newest, known), _bound(where, known), 0, None))
    except (InvalidPredicateError, InvalidExpressionError):
        if member is root:
            raise
    meanings = {one.meaning for one in found}
    oldest = min(member.record.oldest_version, *member.tagged, member.record.current_version)
    current = member.record.current_version
    begins = sorted(member.schemas)
    for begin, after in zip(begins, [*begins[1:], None]):
        if begin > current or (after is not None and after <= oldest):
            continue  # no version with the schema can be read
        then = member.snapshot.in_schema(begin)
        names = {field.name.lower() for field in then.schema}
        others = [field for field in known if field.name.lower() not in names]
        schema = pa.schema([*then.schema, *others])
        try:
            condition = _bound(where, schema)
        except (InvalidPredicateError, InvalidExpressionError):
            continue
        view = View(_bare(then, schema), condition, begin, after)
        if view.meaning not in meanings:
            found.append(view)  # each has its own versions, so two equal ones both stay
    return found


def _bound(where: Any, schema: pa.Schema) -> PredicateSet:
    return row_condition(where, schema, Scope({TARGET: schema}))


def _bare(snapshot: Snapshot, schema: pa.Schema) -> Snapshot:
    """The snapshot under a schema, without vectors and without what other plans have cached."""
    return replace(snapshot, schema=schema, has_vectors=False, history=None)


def _with_dropped(newest: pa.Schema, schemas: Mapping[int, pa.Schema]) -> pa.Schema:
    """The newest schema, with the dropped columns under their last names.

    Files that lack a column have NULL there: the default is for versions that have the column.
    """
    fields = [without_default(field).with_nullable(True) for field in newest]
    ids = {field_id(field) for field in fields}
    names = {field.name.lower() for field in fields}
    for version in sorted(schemas, reverse=True):
        for field in schemas[version]:
            if field_id(field) not in ids and field.name.lower() not in names:
                fields.append(without_default(field).with_nullable(True))
                ids.add(field_id(field))
                names.add(field.name.lower())
    return pa.schema(fields)


def _with_names_of(snapshot: Snapshot, branch: Member, root: Member) -> Snapshot:
    """A branch in which shared columns have the dataset's present names.

    Columns that were added since the branch was made may have the same ids in both.
    """
    common = {
        field_id(field)
        for version, schema in branch.schemas.items()
        if version in root.schemas and schema.equals(root.schemas[version], check_metadata=True)
        for field in schema
    }
    theirs = _with_dropped(root.snapshot.schema, root.schemas)
    names = {field_id(field): field.name for field in theirs if field_id(field) in common}
    new = {field.name: names.get(field_id(field), field.name) for field in snapshot.schema}
    if len({name.lower() for name in new.values()}) < len(new):
        return snapshot  # the branch has a column of its own under such a name
    return replace(
        snapshot,
        schema=pa.schema([field.with_name(new[field.name]) for field in snapshot.schema]),
        partition_by=tuple(new[name] for name in snapshot.partition_by),
    )


def _columns(condition: PredicateSet, schema: pa.Schema) -> list[str]:
    return sorted(condition.bind(schema).columns)
