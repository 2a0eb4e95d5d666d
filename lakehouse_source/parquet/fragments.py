"""Edge. Scan tasks as an Arrow dataset, for engines that scan such datasets themselves.

The `partition_expression` of a fragment must hold for each of its rows, because engines
skip the fragment by it. Arrow's own scanner gets three things wrong, and this module prevents them:

    NaN     It prunes row groups by footer statistics, which leave NaN out, and
            compares NaN by IEEE. Filters on columns that may hold NaN are rewritten, and are
            applied to rows that were read without a filter.
    ids     It finds columns by name. A file in which a name means another column than
            in this version is converted by plake, into memory.
    types   Its casts differ from plake's promotions, except for wider integers. Files with
            other promotions are converted too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from lakehouse_source.errors import InvalidPredicateError, SchemaMismatchError
from lakehouse_source.language.bounds.arrow_expressions import (
    Call,
    FieldRef,
    NotUnderstood,
    Scalar,
    Tree,
    read,
    top_level_names,
)
from lakehouse_source.model import ColumnBounds, ScanTask
from lakehouse_source.parquet.foreign import schema_for_engines
from lakehouse_source.parquet.names import is_foreign
from lakehouse_source.parquet.read_write_specs import ReadSpec
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.schema.align import by_id
from lakehouse_source.schema.defaults import initial_default
from lakehouse_source.schema.fields import (
    Leaf,
    children,
    field_id,
    is_nested,
    leaves,
    may_be_hidden,
    without_metadata,
)
from lakehouse_source.schema.ordinal import domain, to_scalar
from lakehouse_source.schema.partitions import partition_value
from lakehouse_source.schema.variant_storage import has_variant
from lakehouse_source.storage import Storage

# --- Arrow expressions with the meaning of engines: NaN is the greatest number, IN knows NULL.
#
# In Arrow's kernels NaN neither equals nor is less than any value, and `is_in` is false for NULL.
# Polars and DataFusion translate their conditions to these kernels although they mean something
# else, and do not check the rows again. So an expression is read, rebuilt to check the reading, and
# then rewritten.


_COMPARISONS = {
    "equal": pc.equal,
    "not_equal": pc.not_equal,
    "less": pc.less,
    "less_equal": pc.less_equal,
    "greater": pc.greater,
    "greater_equal": pc.greater_equal,
}
_PLAIN = {
    "and_kleene": pc.and_kleene,
    "or_kleene": pc.or_kleene,
    # `pc.and_` and `pc.or_` build calls of `and_` and `or_`, which do not exist (PyArrow 26).
    "and": lambda *terms: pc.Expression._call("and", list(terms)),
    "or": lambda *terms: pc.Expression._call("or", list(terms)),
    "invert": pc.invert,
    "is_valid": pc.is_valid,
    "is_nan": pc.is_nan,
    "if_else": pc.if_else,
}


def names_any(expression: pc.Expression, schema: pa.Schema, names: frozenset[str]) -> bool:
    """Tell whether an expression over `schema` names one of the top-level columns `names`."""
    rest = pa.schema([field for field in schema if field.name not in names])
    try:
        ds.dataset(rest.empty_table()).scanner(filter=expression)
    except (pa.ArrowException, ValueError, KeyError):
        return True
    return False


def as_engines_mean(
    expression: pc.Expression, schema: pa.Schema
) -> tuple[pc.Expression, tuple[str, ...]]:
    """The expression rewritten, and the top-level columns that it names."""
    try:
        tree = read(expression)
        again = _build(tree, None)
        # A list with NaN is not equal to itself, but prints alike.
        if not again.equals(expression) and str(again) != str(expression):
            raise NotUnderstood
        return _build(tree, schema), top_level_names(tree)
    except (NotUnderstood, LookupError, ValueError, TypeError, pa.ArrowException) as exc:
        raise InvalidPredicateError(
            reason=f"the filter {expression} may concern NaN, which Arrow and other engines "
            "compare differently. Give the condition as predicates= when opening the dataset "
            "(with Polars: scan_pyarrow_dataset(…, allow_pyarrow_filter=False))"
        ) from exc


# --- building ---------------------------------------------------------------


def _build(node: Tree, schema: pa.Schema | None) -> pc.Expression:
    """The same expression; with a schema, floats are compared in the order of engines."""
    if isinstance(node, FieldRef):
        return pc.field(*node.path) if len(node.path) > 1 else pc.field(node.path)
    if isinstance(node, Scalar):
        return pc.scalar(node.value)
    terms = [_build(term, schema) for term in node.terms]
    if node.name in _PLAIN and node.options is None:
        return _PLAIN[node.name](*terms)
    if node.name == "is_null" and node.options is not None:
        return pc.is_null(terms[0], nan_is_null=node.options["nan_is_null"].as_py())
    if node.name == "is_in" and node.options is not None:
        return _is_in(node, terms[0], schema)
    if node.name not in _COMPARISONS or node.options is not None:
        raise NotUnderstood
    if schema is None or not any(_is_float(term, schema) for term in node.terms):
        return _COMPARISONS[node.name](*terms)
    return _compared(node.name, *terms, *(_nan(term, schema) for term in node.terms))


def _compared(
    op: str, a: pc.Expression, b: pc.Expression, a_nan: pc.Expression, b_nan: pc.Expression
) -> pc.Expression:
    """A comparison of floats; NULL stays NULL, because the test for NaN is NULL there too."""
    if op == "not_equal":
        return pc.invert(_compared("equal", a, b, a_nan, b_nan))
    if op in ("less", "less_equal"):
        return _compared(op.replace("less", "greater"), b, a, b_nan, a_nan)
    extra = {
        "equal": pc.and_kleene(a_nan, b_nan),
        "greater": pc.and_kleene(a_nan, pc.invert(b_nan)),
        "greater_equal": a_nan,
    }[op]
    # With a NULL on either side the kernel gives NULL, and the rest must be NULL too.
    both = pc.and_kleene(pc.is_valid(a), pc.is_valid(b))
    return pc.or_kleene(_COMPARISONS[op](a, b), pc.and_kleene(both, extra))


def _is_in(node: Call, term: pc.Expression, schema: pa.Schema | None) -> pc.Expression:
    options = node.options
    assert options is not None
    if options["null_matching_behavior"].as_py() != 0:
        raise NotUnderstood
    values = options["value_set"].values
    if schema is None:
        return pc.is_in(term, value_set=values)
    if pa.types.is_floating(values.type) and 0.0 in values.to_pylist():
        both = pa.array([0.0, -0.0], values.type)
        values = pa.concat_arrays([values, both])
    found = pc.is_in(term, value_set=values)
    if values.null_count:  # Arrow itself tests for NULL like this too
        return found
    return pc.if_else(pc.is_valid(term), found, pc.scalar(pa.scalar(None, pa.bool_())))


def _is_float(node: Tree, schema: pa.Schema) -> bool:
    if isinstance(node, Scalar):
        return bool(pa.types.is_floating(node.value.type))
    if isinstance(node, Call):
        raise NotUnderstood  # the type of a computed value is not known here
    return bool(pa.types.is_floating(_type_of(node, schema)))


def _type_of(node: FieldRef, schema: pa.Schema) -> pa.DataType:
    fields = list(schema)
    for name in node.path:
        (found,) = [field for field in fields if field.name == name]
        fields = children(found.type)
    return found.type


def _nan(node: Tree, schema: pa.Schema) -> pc.Expression:
    if isinstance(node, Scalar):
        value = node.value.as_py()
        return pc.scalar(isinstance(value, float) and value != value)
    if not _is_float(node, schema):
        return pc.scalar(False)
    return pc.is_nan(_build(node, None))


# --- Files that Arrow cannot scan as they are, converted by plake into Parquet in memory.
#
# They are converted when a dataset is made, not when a scan opens them. Otherwise a file system in
# Python would convert them on Arrow's threads, which needs Python's lock. `Scanner.to_reader` of
# PyArrow 26 holds this lock while it waits for these threads: sometimes for ever.


def converted(spec: ReadSpec, task: ScanTask, storage: Storage) -> Iterator[pa.Buffer]:
    """The row groups of a task as files with all columns of a version except partition columns.

    The columns have the names, types and defaults of the version that is read.
    """
    names = tuple(name for name in spec.schema.names if name not in spec.partition_by)
    whole = replace(spec, columns=names, predicate=None)
    for table in read_task(whole, replace(task, filtered=False), storage):
        sink = pa.BufferOutputStream()
        # Without statistics, so that nothing is pruned.
        pq.write_table(table, sink, write_statistics=False)
        yield sink.getvalue()


# The bounds of the rows of a task, by leaf id.
Known = Mapping[int, ColumnBounds]


def fragments(
    spec: ReadSpec, tasks: Sequence[ScanTask], known: Sequence[Known], storage: Storage
) -> list[ds.ParquetFileFragment]:
    """The row groups of tasks, with expressions that hold on all rows of a fragment.

    A task is one fragment, or one per row group if Arrow cannot scan its file.
    """
    for field in spec.schema:
        if has_variant([field]):
            raise SchemaMismatchError(
                column=field.name,
                got=field.type,
                reason="has VARIANT, for which Arrow's scanner has no type",
                hint="Use to_table(), to_batches() or to_duckdb().",
            )
    found: list[ds.ParquetFileFragment] = []
    for task, bounds in zip(tasks, known):
        promise = _promise(spec, task, bounds)
        lacking = _lacking_as_today(spec, task, storage)
        if lacking is None:
            found += [
                ds.ParquetFileFormat().make_fragment(file, partition_expression=promise)
                for file in converted(spec, task, storage)
            ]
            continue
        for field in lacking:
            default = initial_default(field)
            if default is not None:
                # Arrow fills a column that the file lacks with the value of an equality.
                promise = _both(promise, pc.field((field.name,)) == default)
        store, path = storage.of(task.path)
        found.append(
            ds.ParquetFileFormat().make_fragment(
                store.path(path),
                filesystem=store.filesystem,
                partition_expression=promise,
                row_groups=task.row_groups,
                file_size=task.size_bytes,
            )
        )
    return found


def dataset(
    spec: ReadSpec, tasks: Sequence[ScanTask], known: Sequence[Known], storage: Storage
) -> ds.FileSystemDataset:
    """The tasks as a dataset that any engine can filter without losing rows."""
    found = fragments(spec, tasks, known, storage)
    unsafe = {
        leaf.path[0]
        for leaf in leaves(spec.schema)
        if pa.types.is_floating(leaf.type)
        and not leaf.in_list
        and any(one[leaf.id].may_contain_nan for one in known)
    }
    return PlakeDataset(found, without_metadata(spec.schema), storage.filesystem, frozenset(unsafe))


class PlakeDataset(ds.FileSystemDataset):  # type: ignore[misc]
    """A `FileSystemDataset` whose filters mean what SQL means by them, NaN and NULL included.

    `unsafe` names the top-level columns that may hold NaN. A filter on one of them is
    refused if it cannot be rewritten.
    """

    def __init__(
        self,
        fragments: Sequence[ds.ParquetFileFragment],
        schema: pa.Schema,
        filesystem: Any,
        unsafe: frozenset[str],
        also: pc.Expression | None = None,
    ) -> None:
        super().__init__(list(fragments), schema, ds.ParquetFileFormat(), filesystem)
        self._fragments = list(fragments)
        self._unsafe = unsafe
        self._also = also

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self._fragments, self.schema, self.filesystem, self._unsafe, self._also)
        return (PlakeDataset, parts)

    def _narrowed(self, filter: pc.Expression | None) -> pc.Expression | None:
        if self._also is None:
            return filter
        return self._also if filter is None else self._also & filter

    def filter(self, expression: pc.Expression) -> PlakeDataset:
        """The dataset with a filter that applies to every scan of it."""
        narrowed = self._narrowed(expression)
        return PlakeDataset(self._fragments, self.schema, self.filesystem, self._unsafe, narrowed)

    def replace_schema(self, schema: pa.Schema) -> PlakeDataset:
        """The dataset under another schema."""
        return PlakeDataset(self._fragments, schema, self.filesystem, self._unsafe, self._also)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:
        """The fragments that can hold matches; with a filter each scans as this dataset does."""
        filter = self._narrowed(filter)
        if filter is None:
            yield from super().get_fragments()
            return
        for found in super().get_fragments(self._rewritten(filter)[0]):
            yield _Fragment(found, self)

    def scanner(
        self,
        columns: Any = None,
        filter: pc.Expression | None = None,
        **options: Any,
    ) -> ds.Scanner:
        """A scan; see `pyarrow.dataset.Dataset.scanner`.

        Raises:
            InvalidPredicateError: the filter concerns NaN and cannot be rewritten.
        """
        filter = self._narrowed(filter)
        if filter is None:
            return super().scanner(columns=columns, **options)
        filter, named = self._rewritten(filter)
        if named is None or not self._unsafe.intersection(named):
            return super().scanner(columns=columns, filter=filter, **options)
        # No filter here: Arrow would prune row groups by it.
        read = None
        if isinstance(columns, (list, tuple)):
            own = self.schema.names
            top = (name if name in own else name.split(".")[0] for name in columns)
            read = list(dict.fromkeys([*top, *named]))
        found = list(super().get_fragments(filter))
        kept = ds.FileSystemDataset(found, self.schema, self.format, self.filesystem)
        reader = kept.scanner(columns=read, **options).to_reader()
        return ds.Scanner.from_batches(reader, columns=columns, filter=filter, **options)

    def _rewritten(self, filter: pc.Expression) -> tuple[pc.Expression, tuple[str, ...] | None]:
        try:
            return as_engines_mean(filter, self.schema)
        except InvalidPredicateError:
            if self._unsafe and names_any(filter, self.schema, self._unsafe):
                raise
            return filter, None


class _Fragment:
    """A fragment that scans as its dataset does; for engines that scan single fragments."""

    def __init__(self, inner: ds.ParquetFileFragment, owner: PlakeDataset) -> None:
        self._inner = inner
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _alone(self, schema: pa.Schema | None) -> PlakeDataset:
        owner = self._owner
        return PlakeDataset([self._inner], schema or owner.schema, owner.filesystem, owner._unsafe)

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> ds.Scanner:
        return self._alone(schema).scanner(**options)

    def to_batches(self, schema: pa.Schema | None = None, **options: Any) -> Iterator[Any]:
        return iter(self._alone(schema).to_batches(**options))

    def to_table(self, schema: pa.Schema | None = None, **options: Any) -> pa.Table:
        return self._alone(schema).to_table(**options)

    def count_rows(self, **options: Any) -> int:
        return int(self._alone(None).count_rows(**options))


# --- promises -----------------------------------------------------------------


def _promise(spec: ReadSpec, task: ScanTask, known: Known) -> pc.Expression | None:
    promise: pc.Expression | None = None
    for name, text in zip(spec.partition_by, task.partitions):
        type_ = spec.schema.field(name).type
        column = pc.field((name,))
        term = column.is_null() if text is None else column == partition_value(text, type_)
        promise = _both(promise, term)
    for leaf in leaves(spec.schema):
        if len(leaf.path) == 1 and leaf.path[0] not in spec.partition_by and leaf.id in known:
            term = _bounded(leaf, known[leaf.id])
            if term is not None:
                promise = _both(promise, term)
    return promise


def _both(promise: pc.Expression | None, term: pc.Expression) -> pc.Expression:
    return term if promise is None else promise & term


def _bounded(leaf: Leaf, known: ColumnBounds) -> pc.Expression | None:
    """The condition that the bounds prove for every row; None: Arrow cannot compare them."""
    column = pc.field(leaf.path)
    nulls = known.null_count
    if nulls == known.row_count:
        return column.is_null()
    comparable = domain(leaf.type).ordered and not (
        pa.types.is_float16(leaf.type) or pa.types.is_fixed_size_binary(leaf.type)
    )
    if not comparable or known.may_contain_nan or known.lower is None or known.upper is None:
        return None
    low, high = (to_scalar(bound, leaf.type) for bound in (known.lower, known.upper))
    within = (column >= low) & (column <= high)
    return within if nulls == 0 else within | column.is_null()


# --- files whose schema is not that of the version ----------------------------------


def _lacking_as_today(spec: ReadSpec, task: ScanTask, storage: Storage) -> list[pa.Field] | None:
    """The columns that a file lacks, if Arrow finds all other columns by name.

    None: Arrow does not. The footer of a file that plake did not write is read for this.
    """
    if task.deleted is not None:
        return None  # Arrow does not know deleted rows
    logical = spec.file_schemas[task.schema_version]
    partition_ids = {field_id(spec.schema.field(name)) for name in spec.partition_by}
    if is_foreign(task.path):
        physical = schema_for_engines(storage, task.path, logical)
        if physical is None:
            return None
        stored = list(physical)
    else:
        stored = [field for field in logical if field_id(field) not in partition_ids]
    names = {field.name for field in stored}
    if names.intersection(spec.partition_by):
        return None  # the file uses the name of a partition column; the catalog's value counts
    lacking = []
    for field in spec.schema:
        if field.name in spec.partition_by:
            continue
        found = by_id(field, stored)
        if found is None:
            if field.name in names or may_be_hidden(field.name):
                return None
            lacking.append(field)
        elif found.name != field.name or not _reads_as(found.type, field.type):
            return None
    return lacking


def _reads_as(stored: pa.DataType, now: pa.DataType) -> bool:
    if is_nested(now):
        old, new = children(stored), children(now)
        same = len(old) == len(new) and type(stored) is type(now)
        return same and all(
            a.name == b.name and field_id(a) == field_id(b) and _reads_as(a.type, b.type)
            for a, b in zip(old, new)
        )
    return bool(stored.equals(now) or (pa.types.is_integer(stored) and pa.types.is_integer(now)))
