"""Would the tests notice a wrong rule? Applies wrong rules, one at a time, and sees the tests fail.

Each mutant is one replacement in a copy of the package; its text must be there
exactly once, so that a rule that moved is noticed too. The exit code is 1 where
a mutant survives. Run it with `python integration/mutation.py [words of names…]`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[1]
WORKERS = int(os.environ.get("PLAKE_MUTATION_WORKERS", "2"))
# The tests of `make test` notice most mutants; the long ones run for those that are left.
QUICK = "not long"
REST = "long"
NO_TESTS = 5  # pytest's exit code where its arguments select none
PURE = ("pure/test_pruning.py", "pure/test_bounds.py", "pure/test_pruning_properties.py")
FILTER = ("pure/test_row_filter.py", "pure/test_row_filter_properties.py")
LANGUAGE = ("pure/test_predicate.py", *FILTER)
FILES = ("edges/test_prune_file.py", "edges/test_bloom_read.py", "edges/test_statistics.py")
PAGES = ("edges/test_page_reads.py",)
VERBS = ("verbs/test_dataset.py",)
ARROW = ("pure/test_predicate_arrow.py",)
PROMOTION = ("pure/test_promotion.py", "pure/test_schema.py")
CATALOG = ("edges/test_catalog_sqlite.py",)
CLONES = ("verbs/test_clone.py", "verbs/test_clone_programs.py")
POSTGRES = ("edges/test_catalog_postgres.py",)
CHANGES = ("verbs/test_schema_changes.py",)
LAYOUT = ("verbs/test_layout.py",)
ENGINE_FILES = ("verbs/test_engine_files.py",)
ADDED = ("verbs/test_add_files.py", "pure/test_name_mapping.py")
DEFAULTS = ("verbs/test_column_defaults.py",)
KNOWN_FILES = ("verbs/test_known_files.py",)
STORAGE = ("edges/test_storage.py",)
ENGINES = ("pure/test_arrow_filter.py", "verbs/test_engines.py")
EXPRESSIONS = ("pure/test_expressions.py",)
IMPLIED = ("pure/test_implied.py",)
ROW_CHANGES = (
    "verbs/test_row_statements.py",
    "verbs/test_deleted_rows.py",
    "verbs/test_row_identity.py",
    "verbs/test_row_change_conflicts.py",
)
NAMES = ("verbs/test_dataset_names.py",)
COMMITS = ("verbs/test_commit_protocol.py",)
BRANCHES = ("verbs/test_branches.py", "verbs/test_lost_acknowledgement.py")
FORGOTTEN = ("verbs/test_forgotten_commits.py",)


@dataclass(frozen=True, slots=True)
class Mutant:
    """A wrong rule: `old` becomes `new` in `file`, and `tests` should fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


def _in(file: str, tests: tuple[str, ...], *rules: tuple[str, str, str]) -> list[Mutant]:
    return [Mutant(name, file, old, new, tests) for name, old, new in rules]


STREAMS = ("doors/test_stream_offsets.py", "verbs/test_read_changes.py")

FEED = ("verbs/test_change_feed.py",)
FEED_STREAM = ("doors/test_feed_stream.py",)
CONSUMERS = ("verbs/test_consumers.py",)
CLI = ("doors/test_cli.py",)
PICTURES = ("pure/test_pictures.py",)
WHY = ("verbs/test_explain_details.py",)
CLI_SQL = ("doors/test_cli_sql.py",)
COPY = ("verbs/test_catalog_copy.py",)
FEED_DOORS = ("doors/test_changes_request.py",)

MUTANTS = [
    *_in(
        "upkeep/run.py",
        ("verbs/test_upkeep.py",),
        (
            "a lease is taken from a holder that lives",
            "return now - self._seen[1] >= found.lease_seconds",
            "return now - self._seen[1] >= 0",
        ),
        (
            "a suspended process goes on as if it had the lease",
            "and time.monotonic() - self._beat_at < self._seconds",
            "",
        ),
    ),
    *_in(
        "parquet/footer.py",
        ("verbs/test_variant_paths.py",),
        (
            "values of other types at a path of VARIANT are forgotten",
            "return bool(rest.null_count == rows or only_nulls)",
            "return True",
        ),
        (
            "a path of VARIANT has bounds in the scale of its file",
            "            known = bounds.promoted(known, place.type, leaf.type)\n",
            "",
        ),
    ),
    *_in(
        "schema/fields.py",
        ("verbs/test_variant_paths.py",),
        (
            "a file from before a path of VARIANT was named has no value there",
            "return [*own, *(leaf for leaf in later.values() if leaf.column_id is not None)]",
            "return own",
        ),
    ),
    *_in(
        "language/bounds/implied.py",
        ("verbs/test_variant_paths.py",),
        (
            "a path of VARIANT has values of one type only",
            "return Found(disjunction(left or terms), False) if terms else None",
            "return Found(terms[0], False) if terms else None",
        ),
        (
            "a condition on a VARIANT and its paths reads the paths alone",
            "if count == names_[name]",
            "if True",
        ),
    ),
    *_in(
        "parquet/bloom.py",
        ("verbs/test_variant_paths.py",),
        (
            "a path of VARIANT has no value that its bloom filter does not have",
            "if is_covered(self._footer.chunk(index, path.value).statistics, rows):",
            "if True:",
        ),
    ),
    *_in(
        "parquet/likely_rows.py",
        ("verbs/test_variant_likely_rows.py",),
        (
            "likely rows: what is of another type at the path matches nothing",
            "likely = pc.or_(likely, one)",
            "likely = pc.or_(likely, likely)",
        ),
        (
            "likely rows: a cast fails on no row that is left out",
            "likely = pc.or_(likely, pc.is_in(rows, value_set=pa.array(ends, rows.type)))",
            "likely = pc.or_(likely, likely)",
        ),
    ),
    *_in(
        "upkeep/steps.py",
        ("verbs/test_upkeep.py",),
        (
            "upkeep ends the fast_forward of a branch",
            "    while waits_for(catalog, address) is None:\n",
            "    while True:\n",
        ),
        (
            "upkeep rewrites a table that says auto_compact = false",
            "self.compact and chosen is not False",
            "self.compact",
        ),
        (
            "a process that starts again and again rewrites without a limit",
            "self._left = 0.0",
            "self._left = float(per_hour or 0)",
        ),
    ),
    *_in(
        "spark/writing/frame_writers.py",
        ("doors/test_tasks.py",),
        (
            "one task that knows the session's setting is enough",
            "if not tasks or None in tasks or mode is None:",
            "if not any(tasks) or mode is None:",
        ),
    ),
    *_in(
        "cli/sql_conditions.py",
        CLI_SQL,
        (
            "rows of a positional join are left out",
            'join.args.get("method") or join.side',
            "join.side",
        ),
        (
            "a place without a condition needs no rows",
            "            if not triples:\n                return None",
            "            if not triples:\n                continue",
        ),
        (
            "a literal first is compared the wrong way round",
            '"<=": ">=", ">": "<"',
            '"<=": "<=", ">": "<"',
        ),
        ("rows of a sample are left out before it is drawn", '("sample", "pivots",', '("pivots",'),
    ),
    *_in(
        "catalog/copy.py",
        COPY,
        (
            "rows that came out otherwise are kept",
            " or found.get(table) != sums.get(table)",
            "",
        ),
        (
            "a branch of a folder's own dataset is copied as the dataset",
            "cells[key] = with_branch(own_uri, branch)",
            "cells[key] = with_branch(own_uri, None)",
        ),
    ),
    *_in(
        "cli/output.py",
        CLI,
        (
            "an empty text is NULL in CSV",
            "if text and text == text.strip()",
            "if text == text.strip()",
        ),
    ),
    *_in(
        "pictures/markup.py",
        (*CLI, *PICTURES),
        ("controls above 127 reach the terminal", "\\x7f-\\x9f", "\\x7f"),
        ("markup of strangers is taken for a page's", '"<": "&lt;", ', ""),
    ),
    *_in(
        "pictures/ranges.py",
        PICTURES,
        (
            "a range does not hold its end",
            "- bisect_left(self._ends, at)",
            "- bisect_right(self._ends, at)",
        ),
    ),
    *_in(
        "read/why_kept.py",
        WHY,
        (
            "a part that may match is told to rule out",
            "if not evaluate(self._parts[n], known).may_match)",
            "if not evaluate(self._parts[n], known).always)",
        ),
        (
            "statistics are told where a partition decided",
            "PARTITION if by_partition else STATISTICS",
            "STATISTICS",
        ),
    ),
    *_in(
        "parquet/prune.py",
        WHY,
        ("a row group with deleted rows is told to have none", "gone == rows", "gone > 0"),
        (
            "a page index that leaves rows is told to leave none",
            "if ranges == ()]",
            "if ranges is not None]",
        ),
    ),
    *_in(
        "read/draw_pages.py",
        WHY,
        (
            "a file that is read in part is drawn as left out",
            "_READ if one.whole else _PART for one",
            "_READ if one.whole else _STATISTICS for one",
        ),
    ),
    *_in(
        "read/feed_plan.py",
        FEED,
        (
            "a vector of the version before is taken for the one after",
            "one.vectors_after = reader.vectors(after, key[1])",
            "one.vectors_after = reader.vectors(after, key[0])",
        ),
        (
            "rows that were deleted before are taken away again",
            "one.vectors_before = reader.vectors(before, key[0])",
            "one.vectors_before = {}",
        ),
        (
            "rows that a vector marks no more are not told",
            "parts + _differing(one.marked, one.vectors_before, one.vectors_after, storage)",
            "parts",
        ),
        (
            "all rows that a vector marks are told",
            "rows = more - fewer",
            "rows = more",
        ),
        (
            "a file that was added and removed within the range is told",
            "if added_in == removed_in:",
            "if added_in is None and removed_in is None:",
        ),
        (
            "a removed file's vector is compared too",
            "gone = {file.id for file in (*one.added, *one.removed)}",
            "gone: set[int] = set()",
        ),
        (
            "marked rows are looked for in one row group too few",
            "positions.range_cardinality(start, start + group.row_count)",
            "positions.range_cardinality(start, start + group.row_count - 1)",
        ),
        (
            "a column that a file lacks may not be NULL",
            "[one.with_nullable(True) for one in newest.schema]",
            "[one for one in newest.schema]",
        ),
    ),
    *_in(
        "read/feed_plan.py",
        FEED,
        (
            "rows that only moved are told",
            "alone = pc.invert(pc.or_(updated, _is_among(ids, self.kept)))",
            "alone = pc.invert(updated)",
        ),
        (
            "rows whose values stayed are told",
            "differs = pc.invert(equal_rows(_values(images), _values(both)))",
            "differs = pc.is_valid(places)",
        ),
        (
            "the image before an update has the values after it",
            "(Kind.UPDATE_PREIMAGE, _filter(images, differs)),",
            "(Kind.UPDATE_PREIMAGE, _filter(both, differs)),",
        ),
        (
            "an image that alone satisfies the condition is lost",
            "(Kind.UPDATE_POSTIMAGE, lonely),",
            "(Kind.UPDATE_POSTIMAGE, lonely.slice(0, 0)),",
        ),
        (
            "an image before an update that alone satisfies the condition is lost",
            "if left.num_rows:",
            "if left.num_rows < 0:",
        ),
        (
            "a row with another version counts as moved only",
            "kept = positions_of(old.column(0).filter(same))",
            "kept = both",
        ),
        (
            "a net change has the version of the first commit",
            "for part in reversed(plan.parts):",
            "for part in plan.parts:",
        ),
        (
            "a commit that only moved a row is its last one",
            "found -= _Moved.of(plan.identity_spec, part, storage).kept",
            "pass",
        ),
    ),
    *_in(
        "read/feed.py",
        FEED,
        (
            "the changes of the oldest version are told without the rows that it took away",
            "return first.version > start or effect_of(first) is Effect.APPENDS",
            "return True",
        ),
        (
            "a range begins one commit late",
            "commits_that_change_rows(reader, newest.dataset.id, start, end)",
            "commits_that_change_rows(reader, newest.dataset.id, start + 1, end)",
        ),
        (
            "a net feed begins one version late",
            "net = [(start - 1, snapshot.version)]",
            "net = [(start, snapshot.version)]",
        ),
    ),
    *_in(
        "read/feed_stream.py",
        FEED_STREAM,
        (
            "a commit that does not fit any more is lost",
            "return Position(part.version), True",
            "return Position(part.version + 1), True",
        ),
        (
            "a batch of changes has no end",
            "if not admission.has_room_for(files):",
            "if False:",
        ),
        (
            "the changes of the oldest version are told without the rows before it",
            "(commit.version == oldest and not kept)",
            "False",
        ),
        (
            "a stream of changes begins where changes were expired",
            "if first is None or _is_lost(newest, first):",
            "if False:",
        ),
        (
            "a stream tells of changes that are lost in part",
            "return effect_of(commit) is not Effect.NOTHING and not _is_lost(self._newest, commit)",
            "return effect_of(commit) is not Effect.NOTHING",
        ),
        (
            "a batch of changes begins with the commit after its first",
            "plan = self._planned(self._versions(start, last), columns)",
            "plan = self._planned(self._versions(start, last)[1:], columns)",
        ),
        (
            "deleted rows of a snapshot are told",
            "vectors = self._reader.vectors([file.id for file in files], version)",
            "vectors = {}",
        ),
    ),
    *_in(
        "read/feed_plan.py",
        FEED,
        (
            "what comes after a range is read too late",
            "reader.changes_since(newest.dataset.id, ranges[0][0], ranges[-1][1])",
            "reader.changes_since(newest.dataset.id, ranges[0][0], ranges[-1][1] - 1)",
        ),
    ),
    *_in(
        "maintenance/expiry.py",
        CONSUMERS,
        (
            "a consumer keeps only what comes after the version that it has read",
            "name: max(1, one.version)",
            "name: max(1, one.version + 1)",
        ),
        (
            "a consumer keeps versions for ever",
            "if one.expires_at > now and",
            "if",
        ),
        (
            "a consumer keeps no version",
            "min([wanted, *waiting.values()])",
            "wanted",
        ),
    ),
    *_in(
        "maintenance/expiry.py",
        CONSUMERS,
        (
            "a consumer goes back",
            "if version < found.version:",
            "if False:",
        ),
        (
            "a consumer is where changes were expired",
            "first = 0 if oldest == 1 else oldest",
            "first = 0",
        ),
    ),
    *_in(
        "catalog/sql/refs.py",
        CONSUMERS,
        (
            "an advance does not begin a consumer's time anew",
            "version = ?, advanced_at = {now} ",
            "version = ? ",
        ),
    ),
    *_in(
        "spark/reading/changes_read.py",
        FEED_DOORS,
        (
            "a version that is excluded is read",
            'not isinstance(start, datetime) and not _is_included(given, "starting")',
            "False",
        ),
        (
            "the last version is read although it is excluded",
            'isinstance(end, (int, str)) and not _is_included(given, "ending")',
            "False",
        ),
        (
            "a range that ends before its last version has the columns of that version",
            "found = _bounds(address, first, last - 1, columns)",
            "found = replace(found, end=last - 1)",
        ),
        (
            "a moment that is excluded is read",
            'return moment + _MICROSECOND if which == "starting" else moment - _MICROSECOND',
            "return moment",
        ),
        (
            "net changes are left out by the version of the range",
            "if pushed.condition and not request.net:",
            "if pushed.condition:",
        ),
        (
            "kinds of a paired commit are those of one side",
            "if not part.is_paired:  # all of one side",
            "if True:  # all of one side",
        ),
        (
            "deletes are told of what a commit added",
            "before = before if Kind.DELETE.value in matching else Side()",
            "before = before if Kind.INSERT.value in matching else Side()",
        ),
        (
            "a condition on one image of a row holds for a commit",
            "condition = decode_supported(pushed.condition, pa.schema(shown))",
            "condition = decode_supported(pushed.condition[:0], pa.schema(shown))",
        ),
        (
            "a task of net changes lacks the commits",
            "feed = self.feed() if self.request.net else self.feed().without_parts()",
            "feed = self.feed().without_parts()",
        ),
        (
            "rows that were inserted in one commit are told as updates without images",
            "given.flag(Names.COMPUTE_UPDATES) is not False",
            "given.flag(Names.COMPUTE_UPDATES) is not None",
        ),
    ),
    *_in(
        "streaming.py",
        STREAMS,
        (
            "the first batch of a stream, repeated, reads a newer snapshot",
            "    return Position(0, 0, end.version - 1)",
            "    return start",
        ),
        (
            "a part of a snapshot, repeated, is that of a newer one",
            "        return Position(0, 0, end.snapshot)",
            "        return start",
        ),
        (
            "a stream reads rows that replace others",
            "    return Effect.CHANGES if added else Effect.DELETES",
            "    return Effect.APPENDS if added else Effect.DELETES",
        ),
        (
            "a stream reads rows that a restore brings back",
            'if commit.operation == "restore" and added:',
            "if False:",
        ),
        ("a compaction ends a stream", 'if not count("data_change", 1):', "if False:"),
        ("a batch has a file too many", "self.files >= files", "self.files > files"),
        (
            "the file that no longer fits into a batch is lost",
            "                return position, True",
            "                return Position(file.version, file.id, start.snapshot), True",
        ),
    ),
    *_in(
        "read/changes.py",
        STREAMS,
        (
            "a stream goes on when versions were expired",
            "if self._is_lost(commit) and self._rules.fail_on_data_loss:",
            "if False:",
        ),
        (
            "rows of a replaced schema are rows of NULLs",
            "if self._is_read(commit) and self._is_replaced(commit.version):",
            "if False:",
        ),
        (
            "rows that were deleted before an expired snapshot return",
            "        return replace(found, tasks=tasks)",
            "        return found",
        ),
        (
            "rows that were deleted later are not read",
            "snapshot = replace(self._snapshot, has_vectors=False)",
            "snapshot = self._snapshot",
        ),
        (
            "a stream goes on over a change of its columns",
            "if commit.version in self._schema_changes:",
            "if False:",
        ),
    ),
    *_in(
        "spark/reading/stream_read.py",
        STREAMS,
        (
            "a batch reads a snapshot and commits after it",
            "if has_rows or stale or start.snapshot is not None:",
            "if has_rows or stale:",
        ),
        (
            "a stream from the newest version forgets where it began",
            "if progress.is_after_newest and position == progress.initial:",
            "if False:",
        ),
    ),
    *_in(
        "spark/writing/frame_writers.py",
        ("doors/test_stream_write.py",),
        (
            "a batch is not known again",
            "txn_app_id=first.query_id",
            "txn_app_id=staged.write_id",
        ),
    ),
    *_in(
        "write/layout.py",
        ("verbs/test_compaction.py",),
        (
            "deleted rows return in a compaction",
            "        reader.vectors(ids, snapshot.version) if snapshot.has_vectors else {},",
            "        {},",
        ),
        (
            "large files are compacted again",
            "int(target * SMALL_SHARE)",
            "int(target * 10)",
        ),
        (
            "a repeated compaction rewrites its own output",
            "if file.size_bytes <= REPEATED_SHARE * smaller[number]",
            "if True",
        ),
    ),
    *_in(
        "write/layout.py",
        ("verbs/test_compaction.py",),
        ("a compaction looks at every commit", "result.version % max(1, least // files)", "False"),
    ),
    *_in(
        "layout.py",
        ("verbs/test_cluster.py",),
        ("a piece is sorted again and again", "if len(runs) <= MOST_RUNS:", "if len(runs) < 2:"),
        ("pieces share files", "taken.update(found)", "pass"),
    ),
    *_in(
        "parquet/writer.py",
        ("verbs/test_cluster.py",),
        (
            "two files of one sort hold the value at which one ends",
            "end = last_change(table, self.spec.ordered_by[0], start, end)",
            "pass",
        ),
        (
            "rows that are clustered are sorted over many row groups",
            "elif self.order and not self.sorts_groups:",
            "elif self.order:",
        ),
    ),
    *_in(
        "write/commit/apply.py",
        ("verbs/test_row_change_conflicts.py",),
        (
            "a file that others added and that was looked into is not looked at",
            "files = [file for file in files if rows.looked_into.get(file.path, True)]",
            "files = [file for file in files if file.path not in rows.looked_into]",
        ),
    ),
    *_in(
        "generated.py",
        ("verbs/test_generated.py",),
        (
            "all rows of a generated value satisfy the condition",
            "root = conjunction([condition.root, more.bind(schema, _ZONE).root])",
            "root = more.bind(schema, _ZONE).root",
        ),
    ),
    *_in(
        "schema/ordinal.py",
        ("verbs/test_generated.py",),
        (
            "0.0 and -0.0 have one value of each expression",
            '_NO_KEYS = ("float",',
            "_NO_KEYS = (",
        ),
    ),
    *_in(
        "write/commit/key_search.py",
        ("verbs/test_keys.py",),
        (
            "a file is known by its id alone",
            "others = {id for id, path in known.items() if records[id].path != path}",
            "others = set[int]()",
        ),
        (
            "a key at the upper bound of a file is not looked for",
            'np.searchsorted(values, upper, "right")',
            'np.searchsorted(values, upper, "left")',
        ),
        (
            "files after the first portion are not looked into",
            "for a, b in zip(cuts, [*cuts[1:], len(files)])",
            "for a, b in zip(cuts[:1], cuts[1:] or [len(files)])",
        ),
        (
            "the least key is not looked for among keys that are remembered",
            "self._marks[_mark_of(mine)]",
            "self._marks[_mark_of(mine[1:])]",
        ),
    ),
    *_in(
        "parquet/bloom.py",
        ("verbs/test_keys.py", "edges/test_bloom_read.py"),
        (
            "a key in a second row group is not looked for",
            "for index in range(len(footer.row_counts)):\n                filters.append",
            "for index in range(1):\n                filters.append",
        ),
        (
            "a key is looked for in the wrong block",
            "(((hashes >> 32) * sizes) >> 32)",
            "((hashes >> 32) % sizes)",
        ),
        (
            "a key is looked for in the filter beside its file's",
            "KeyFilter(blocks, end - one.count,",
            "KeyFilter(blocks, end,",
        ),
        ("a key is hashed as another number", "lane, 27)", "lane, 26)"),
    ),
    *_in(
        "write/statements/merge_rows.py",
        ("verbs/test_keys.py",),
        (
            "NULL is looked for in filters",
            "return None if nulls else keys",
            "return keys",
        ),
        (
            "a row without a match has one of the keys",
            "if self.clauses[Kind.NOT_MATCHED_BY_SOURCE] or source",
            "if source",
        ),
    ),
    *_in(
        "write/commit/keys.py",
        ("verbs/test_keys.py",),
        (
            "keys that ascend in each file are all different",
            "    return ascending_ends(pa.concat_arrays([found[at] for at in order]))",
            "    return pa.concat_arrays([found[order[0]][:1], found[order[-1]][-1:]])",
        ),
        (
            "keys of files that others added are not looked up",
            "return self._look_ups(reader, snapshot, added, self._newer_keys) if added else []",
            "return []",
        ),
        (
            "keys that are looked for are not read",
            "looked_for = key in self._newer_keys or not self._is_compared(key)",
            "looked_for = not self._is_compared(key)",
        ),
        (
            "no statement brings a key twice",
            "return first_repeated([key.join.keys(given)]) is None",
            "return True",
        ),
        (
            "a row that the commit takes out still has its key",
            "        if touched is not None:\n            positions",
            "        if touched is None:\n            positions",
        ),
        (
            "keys that a restore brings back are not looked up",
            'any(one.operation == "restore" for one in since) or None',
            "None",
        ),
    ),
    *_in(
        "write/commit/stored_rows.py",
        ("verbs/test_keys.py",),
        (
            "equal keys of two sorted portions are missed",
            "left = rows.filter(pc.equal(order, order[-1]))",
            "left = None",
        ),
    ),
    *_in(
        "write/commit/rewrite.py",
        ("verbs/test_cluster.py",),
        (
            "the first rows say how all are divided",
            "if sample is None or len(sample) == sample.null_count:",
            "if True:",
        ),
    ),
    *_in(
        "read/suggest_layout.py",
        ("verbs/test_suggest_layout.py",),
        ("rows of two partitions share a row group", "cuts.append(end)", "pass"),
        ("each value of a sample is all there is", "(1 - (1 - share) * once / taken)", "1"),
    ),
    *_in(
        "read/suggest_layout.py",
        ("verbs/test_suggest_layout.py",),
        ("a value that a sample lacks is nowhere", "if not share and now:", "if False:"),
        (
            "a longer choice is always better",
            "_WORTH_SHARE * best.bytes_read:\n            best = one",
            "2 * best.bytes_read:\n            best = one",
        ),
        ("a filter rules all out", "held + values * _FALSE_POSITIVES", "0"),
    ),
    *_in(
        "layout.py",
        ("pure/test_layout_depth.py",),
        (
            "a range ends before its last value",
            'np.searchsorted(ends, points, "left")',
            'np.searchsorted(ends, points, "right")',
        ),
    ),
    *_in(
        "catalog/backends/pooled.py",
        ("verbs/test_file_arrays.py",),
        (
            "a key that holds the separator becomes two",
            "        if len(column) != count:",
            "        if len(column) < count:",
        ),
    ),
    *_in(
        "catalog/backends/sqlite.py",
        ("verbs/test_file_arrays.py",),
        (
            "joined values of another type are read",
            "found = None if strange else unpack(columns, packed)",
            "found = unpack(columns, packed)",
        ),
    ),
    *_in(
        "write/commit/apply.py",
        ("verbs/test_compaction.py",),
        ("rows deleted during a compaction return", "    if since:", "    if False:"),
        (
            "a merge takes moved rows for new ones",
            "file.id not in own and file.version not in rewrites",
            "file.id not in own",
        ),
    ),
    *_in(
        "parquet/reader.py",
        ROW_CHANGES,
        (
            "positions of later row groups begin at 0",
            "live = live_mask(self._deleted, first, end)",
            "live = live_mask(self._deleted, 0, end - first)",
        ),
        (
            "deleted rows return where a condition reads whole row groups",
            "        mask = of_live(mask if likely is None else placed(mask, likely), group.live)",
            "        mask = mask if likely is None else placed(mask, likely)",
        ),
        (
            "deleted rows return where a condition reads pages",
            "mask = of_live(matching_mask(condition, spec.predicate), self._live(rows))",
            "mask = matching_mask(condition, spec.predicate)",
        ),
        (
            "deleted rows return in a scan without a condition",
            "self._read(group, self.target, group.live)",
            "self._read(group, self.target)",
        ),
    ),
    *_in(
        "parquet/checked_footer.py",
        ("edges/test_alike.py",),
        (
            "a small file is read by the schema of another one",
            "is_alike and file.schema_arrow.equals(schema, check_metadata=True)",
            "is_alike",
        ),
    ),
    *_in(
        "parquet/alike.py",
        ("edges/test_alike.py",),
        (
            "deleted rows of small files return",
            "            and task.deleted is None\n",
            "",
        ),
    ),
    *_in(
        "read/feed_plan.py",
        FEED,
        (
            "images that lie in another order are paired by their places",
            "if places.equals(pa.arange(first, first + len(places)).cast(places.type)):",
            "if len(places):",
        ),
    ),
    *_in(
        "parquet/open_file.py",
        ROW_CHANGES,
        (
            "_pos counts from each row group",
            "Rows(((self.first_row, self.first_row + self.row_count),), mask)",
            "Rows(((0, self.row_count),), mask)",
        ),
    ),
    *_in(
        "parquet/open_file.py",
        ROW_CHANGES,
        (
            "a moved row gets the identity of its new place",
            "            column = pc.coalesce(moved, column)",
            "            column = column",
        ),
    ),
    *_in(
        "catalog/sql/statements.py",
        ROW_CHANGES,
        (
            "the vector of another version is applied",
            '"x.version <= ? AND (x.removed_version IS NULL OR x.removed_version > ?)"',
            '"x.version <= ? + 1000 AND (x.removed_version IS NULL OR ? > 0)"',
        ),
        (
            "certain rows are counted with the deleted ones",
            "coalesce(sum(f.row_count - {deleted}), 0)",
            "coalesce(sum(f.row_count - 0 * {deleted}), 0)",
        ),
        (
            "a replaced vector stays live",
            '"UPDATE deletion_vectors SET removed_version = ? "',
            '"UPDATE deletion_vectors SET removed_version = 1000000 + ? "',
        ),
    ),
    *_in(
        "model.py",
        ROW_CHANGES,
        (
            "counts are not reduced by deleted rows",
            "return self.row_count - self.deleted.cardinality if whole else None",
            "return self.row_count if whole else None",
        ),
        (
            "a part of a file is counted as if all deleted rows were in it",
            "        whole = self.row_count == self.file_row_count",
            "        whole = True",
        ),
    ),
    *_in(
        "read/aggregates.py",
        ROW_CHANGES,
        (
            "min and max are trusted under a vector",
            "                if leaf is not None or candidate.row_count is None:",
            "                if candidate.row_count is None:",
        ),
        (
            "rows per partition value are counted with the deleted ones",
            "tally.count += file.row_count - vectors.get(file.id, 0)",
            "tally.count += file.row_count",
        ),
    ),
    *_in(
        "write/commit/row_changes.py",
        ROW_CHANGES,
        (
            "a new vector forgets the rows that were deleted before",
            "        after = mine | before",
            "        after = mine",
        ),
    ),
    *_in(
        "write/commit/row_changes.py",
        ROW_CHANGES,
        (
            "rows that another commit deleted meanwhile return",
            "        merged[file.id] = one.after | now",
            "        merged[file.id] = one.after | before",
        ),
        (
            "a row that two commits update has two new rows",
            "both = (one.rows.updated & theirs) | (one.rows.deleted & moved)",
            "both = one.rows.deleted & moved",
        ),
        (
            "a row is deleted that another commit moved elsewhere",
            "both = (one.rows.updated & theirs) | (one.rows.deleted & moved)",
            "both = one.rows.updated & theirs",
        ),
        (
            "two deletes of one row conflict",
            "both = (one.rows.updated & theirs) | (one.rows.deleted & moved)",
            "both = one.rows.all & theirs",
        ),
        (
            "a file that another commit removed is changed",
            "        if one.file.id not in live:",
            "        if False:",
        ),
        (
            "a row that both commits delete is counted twice",
            "        deleted += len(one.rows.deleted - theirs)",
            "        deleted += len(one.rows.deleted)",
        ),
        (
            "a file without rows is kept",
            "        if len(after) == one.file.row_count:",
            "        if len(after) > one.file.row_count:",
        ),
        (
            "a vector is recorded that was written before another commit",
            "    if any(prepared.positions[id] != rows for id, (_, rows) in stay.items()):",
            "    if stay.keys() - prepared.positions.keys():",
        ),
    ),
    *_in(
        "catalog/sql/names.py",
        NAMES,
        (
            "two datasets get one name",
            "        if found is None or found.dataset_id != dataset_id:",
            "        if found is None:",
        ),
        (
            "a dataset gets a second name",
            "        if other is not None and _key((other.namespace, other.name)) != _key(name):",
            "        if False:",
        ),
    ),
    *_in(
        "catalog/qualified_names.py",
        NAMES,
        (
            "names that differ by case are two names",
            "    return part.lower()",
            "    return part",
        ),
    ),
    *_in(
        "catalog/sql/statements.py",
        NAMES,
        (
            "a dropped dataset can be found",
            'DATASET = f"{_DATASET} WHERE base_uri = ? AND dropped_at IS NULL"',
            'DATASET = f"{_DATASET} WHERE base_uri = ?"',
        ),
    ),
    *_in(
        "schema/partitions.py",
        NAMES,
        (
            "old versions of a replaced dataset have its new partition columns",
            "        if version < before:",
            "        if version < 0:",
        ),
        (
            "the version that replaces a dataset has the old partition columns",
            "        if version < before:",
            "        if version <= before:",
        ),
        (
            "old partition columns are forgotten",
            "    past = (*properties.partitioned_before, (version, was))",
            "    past = properties.partitioned_before",
        ),
    ),
    *_in(
        "write/commit/begin.py",
        NAMES,
        (
            "a replaced schema has the ids of the columns before",
            "initial(incoming, max(record.properties.last_field_id, max_id(current)) + 1)",
            "initial(incoming)",
        ),
    ),
    *_in(
        "write/commit/evolution.py",
        NAMES,
        (
            "a schema is replaced whose columns another commit changed",
            "        _check_new_ids(record, current, staged)",
            "        pass",
        ),
    ),
    *_in(
        "catalog/sql/refs.py",
        BRANCHES,
        (
            "rows that are deleted return in a branch",
            'self._session.execute(COPY_VECTORS, (mine, "", pairs(ids), base, base))',
            "pass",
        ),
        (
            "the retention of a file that its dataset lost begins before its branch is dropped",
            "            self._session.execute(statement, (dataset_id, branch_id))\n",
            "            pass\n",
        ),
    ),
    *_in(
        "write/metadata/refs.py",
        BRANCHES,
        (
            "a dataset that moved on takes over a branch",
            "if record.current_version != branch.base_version:",
            "if False:",
        ),
        (
            "a branch whose drop was not acknowledged was never there",
            "return _branch_id(tx, address, name) != hidden",
            "return False",
        ),
        (
            "a branch whose making was not acknowledged is that of another call",
            "return _branch_id(tx, address, name) == made",
            "return False",
        ),
        (
            "the files of a dropped branch are those of nobody",
            "    tx.expire_branch(record.id, branch.dataset_id)\n",
            "",
        ),
        (
            "what a transaction only read must not have changed",
            "if serializable or branch.version > branch.base_version:",
            "if True:",
        ),
        (
            "rows get the identities of those of a branch",
            "[branch.next_row_id - record.next_row_id]",
            "[0]",
        ),
        (
            "a branch with expired versions is taken over",
            "check_readable(theirs, uri, branch.base_version, tx)",
            "pass",
        ),
        (
            "the index does not know the columns that a branch put into it",
            "rebuild_index(tx, record, schemas[-1], branch.properties)",
            "pass",
        ),
        (
            "the index has keys of another encoding after a branch was taken over",
            "for column_id in encoded_anew(schemas):",
            "for column_id in ():",
        ),
        (
            "older versions are searched by a column without index rows",
            "_index_dropped(tx, record, branch, schemas[-1])",
            "pass",
        ),
        (
            "a vector that a branch took away stays",
            "ids[one]: None for one in removed if one not in gone",
            "ids[one]: None for one in removed if False",
        ),
    ),
    *_in(
        "spark/session/transaction.py",
        ("doors/test_transaction_routes.py",),
        (
            "versions from before a transaction are those of its branch",
            "number is not None and number < base",
            "False",
        ),
        (
            "a transaction is of two catalogs",
            "if self.owner != other.owner:",
            "if False:",
        ),
    ),
    *_in(
        "maintenance/vacuum.py",
        BRANCHES,
        (
            "vacuum deletes the files of branches",
            "self.datasets = [record, *lock_branches(tx, record)]",
            "self.datasets = [record]",
        ),
        (
            "vacuum drops a transaction that has just begun",
            "tx.abandoned_branches(record.id, options.abandoned_after_seconds)",
            "tx.abandoned_branches(record.id, 0)",
        ),
    ),
    *_in(
        "maintenance/vacuum.py",
        ("verbs/test_maintenance.py",),
        (
            "a store without the dataset's files is listed twice",
            "if versions is None or versions == now:",
            "if versions is None:",
        ),
    ),
    *_in(
        "catalog/sql/removal.py",
        FORGOTTEN,
        (
            "commits are forgotten before the retention has passed",
            "t.version < o.kept AND t.timestamp <= {now} - ? ",
            "t.version < o.kept AND t.timestamp <= {now} - ? * 0 ",
        ),
        (
            "commits whose removed files are still there are forgotten",
            "r.removed_version < d.oldest_version), d.oldest_version) AS kept",
            "r.removed_version < 0), d.oldest_version) AS kept",
        ),
        (
            "commits whose files are still there are forgotten",
            "WHERE f.dataset_id = t.dataset_id AND f.version = t.version) ",
            "WHERE f.dataset_id = t.dataset_id AND f.version = t.version AND f.id < 0) ",
        ),
        (
            "commits whose deletion vectors are still there are forgotten",
            "AS v WHERE v.dataset_id = ?) ",
            "AS v WHERE v.dataset_id = -?) ",
        ),
        (
            "the commit of a schema is forgotten",
            "AS s WHERE s.dataset_id = ?) ",
            "AS s WHERE s.dataset_id = -?) ",
        ),
        (
            "the last number of an application is forgotten",
            '"AND n.txn_version > t.txn_version AND n.version < o.kept)) ORDER BY t.version"',
            '"AND n.txn_version >= t.txn_version AND n.version < o.kept)) ORDER BY t.version"',
        ),
        (
            "a later number counts for a version that is kept",
            '"AND n.txn_version > t.txn_version AND n.version < o.kept)) ORDER BY t.version"',
            '"AND n.txn_version > t.txn_version)) ORDER BY t.version"',
        ),
    ),
    *_in(
        "catalog/sql/write_states.py",
        FORGOTTEN,
        (
            "commits are forgotten that a write will be checked against",
            "AND p.started_at <= t.timestamp)",
            "AND p.started_at < 0)",
        ),
    ),
    *_in(
        "catalog/sql/history_reader.py",
        FORGOTTEN,
        (
            "a write is checked against what is left of the history",
            "return found if len(found) == dataset.current_version - version else None",
            "return found",
        ),
    ),
    *_in(
        "read/changes.py",
        FORGOTTEN,
        (
            "a stream does not see that commits were forgotten",
            "if last + 1 < min(commit.version, oldest):",
            "if False:",
        ),
        (
            "a stream that goes on after forgotten commits reads beyond its batch",
            "last = min(commit.version - 1, through)",
            "last = commit.version - 1",
        ),
    ),
    *_in(
        "maintenance/vacuum_catalog.py",
        ("verbs/test_dropped_tables.py",),
        (
            "a table that got a name while a vacuum ran is freed",
            "if any(other.dataset_id == record.id for other in still):",
            "if still is not None:",
        ),
    ),
    *_in(
        "catalog/sql/names.py",
        ("verbs/test_dropped_tables.py",),
        (
            "a table whose location a user chose is freed",
            "WHERE d.dropped_at IS NULL AND d.managed AND",
            "WHERE d.dropped_at IS NULL AND",
        ),
        (
            "a table that was written to since it was dropped is freed",
            "AND t.timestamp > x.dropped_at + 1000000",
            "AND t.timestamp < 0",
        ),
    ),
    *_in(
        "maintenance/vacuum_catalog.py",
        BRANCHES,
        (
            "the branches of a dropped dataset stay",
            "for one in (record, *lock_branches(tx, record)):",
            "for one in (record,):",
        ),
        (
            "the partition columns of dropped branches are not looked at",
            "gate = OwnFiles.of(reader, (record, *branches), uri)",
            "gate = OwnFiles.of(reader, (record,), uri)",
        ),
    ),
    *_in(
        "write/commit/begin.py",
        BRANCHES,
        (
            "a write to a missing branch makes a dataset",
            "if current is None and (address.is_branch or options.must_exist):",
            "if current is None and options.must_exist:",
        ),
    ),
    *_in(
        "write/commit/apply.py",
        BRANCHES,
        (
            "a write is committed to another dataset that has its key",
            "if locked is None or locked.dataset.id != staged.dataset_id:",
            "if locked is None:",
        ),
    ),
    *_in(
        "catalog/sql/refs.py",
        CLONES,
        (
            "rows that are deleted return in a clone",
            "            self._session.execute(COPY_VECTORS, values)",
            "            pass",
        ),
        (
            "files that only a dropped clone had stay",
            "c.origin_id = ? AND d.dropped_at IS NULL",
            "c.origin_id = ?",
        ),
    ),
    *_in(
        "maintenance/vacuum.py",
        CLONES,
        (
            "a vacuum deletes files that clones have",
            "{_name(path) for path in tx.shared_paths(record.id)}",
            "set()",
        ),
        (
            "a vacuum of a clone keeps its rows of files of its origin",
            " or split_shared(path)[0] is not None:",
            ":",
        ),
    ),
    *_in(
        "maintenance/vacuum_catalog.py",
        CLONES,
        (
            "a purge deletes files that clones have",
            "        if ours and not is_shared and",
            "        if ours and",
        ),
    ),
    *_in(
        "erasure/erase.py",
        CLONES,
        (
            "an erasure leaves rows to a clone and does not say so",
            "        if clones:",
            "        if False:",
        ),
    ),
    *_in(
        "catalog/base.py",
        CLONES,
        (
            "a catalog of a stranger reads any folder as that of an origin",
            "    if mine is None or mine not in owner_files(storage).values():",
            "    if False:",
        ),
    ),
    *_in(
        "catalog/sql/refs.py",
        BRANCHES,
        (
            "a branch has no history",
            "t.version <= b.base_version ",
            "t.version < b.base_version ",
        ),
    ),
    *_in(
        "catalog/sql/removal.py",
        ("verbs/test_tags_and_expiry.py",),
        (
            "a tag does not keep its version",
            "removed > dataset.oldest_version or is_tagged:",
            "removed > dataset.oldest_version:",
        ),
    ),
    *_in(
        "read/snapshot.py",
        ("verbs/test_tags_and_expiry.py",),
        (
            "a version above that of a tag is readable",
            "return version in reader.tags(record.id).values()",
            "return version >= min(reader.tags(record.id).values(), default=version + 1)",
        ),
    ),
    *_in(
        "maintenance/vacuum_catalog.py",
        NAMES,
        (
            "a purge ends at the first store that refuses",
            "                ended[key] = Ended(key, (), error)\n",
            "                raise\n",
        ),
        (
            "a purge deletes the files of a dataset inside",
            "        if ours and not is_shared and gate.refusal(file.path) is None:",
            "        if ours and not is_shared:",
        ),
        (
            "a purge deletes the files of a dataset that was made anew",
            "        if all(one.id != record.id for one in reader.dropped_datasets()):",
            "        if False:",
        ),
    ),
    *_in(
        "write/metadata/restore.py",
        ("verbs/test_read_changes.py",),
        (
            "rows that a restore brings back hide those that it deletes",
            "    return len(old - new), len(new - old)",
            "    return max(0, before - after), max(0, after - before)",
        ),
    ),
    *_in(
        "write/metadata/restore.py",
        ("verbs/test_row_change_conflicts.py",),
        (
            "a restore reads storage under the lock",
            "_READS_WITHOUT_LOCK = 4",
            "_READS_WITHOUT_LOCK = 0",
        ),
    ),
    *_in(
        "write/metadata/restore.py",
        ("verbs/test_row_identity.py", "verbs/test_row_changes_model.py"),
        (
            "a restored file gets no vector",
            "{one.file_id: one.after for one in changes.replaced}",
            "{one.file_id: one.before for one in changes.replaced}",
        ),
        (
            "restored rows get new identities",
            "            first_row_ids=[first_row_ids[file.path] for file in some],",
            "            first_row_ids=None,",
        ),
    ),
    *_in(
        "write/statements/merge_rows.py",
        ROW_CHANGES,
        (
            "a later clause applies to rows that an earlier one took",
            "        left = left.filter(pc.invert(applies))",
            "        left = left",
        ),
        (
            "two source rows for one target row are never an error",
            "        if not matched:\n            return False",
            "        if True:\n            return False",
        ),
    ),
    *_in(
        "write/statements/merge_rows.py",
        ROW_CHANGES,
        (
            "a matched row of the source is inserted too",
            "        self.matched.add(right)",
            "        self.matched.add(right.slice(0, 0))",
        ),
    ),
    *_in(
        "write/statements/merge_source.py",
        ROW_CHANGES,
        (
            "NULL keys match each other",
            "        if not key.equality.null_safe and column.null_count:",
            "        if False:",
        ),
    ),
    *_in(
        "language/keys.py",
        ("verbs/test_key_types.py",),
        (
            "moments of two units are equal by their counts",
            "    if coarse_ns == fine_ns:",
            "    if True:",
        ),
        (
            "moments before 1970 have another rest",
            "        pc.if_else(below, pc.add(rest, ratio), rest),",
            "        rest,",
        ),
        (
            "keys that a cast makes equal are looked up as they are",
            " if _keeps_apart(column, self.type) else [None]",
            "",
        ),
    ),
    *_in(
        "parquet/writer.py",
        ("verbs/test_text_lengths.py",),
        (
            "texts of any length are written",
            "        table = fitted_texts(table, spec.schema)",
            "        pass",
        ),
    ),
    *_in(
        "write/commit/conflicts.py",
        ROW_CHANGES,
        (
            "a MERGE does not look at rows that others added",
            "        return mine is Change.MERGE",
            "        return False",
        ),
    ),
    *_in(
        "write/commit/conflicts.py",
        COMMITS,
        (
            "a compaction counts as a change of rows",
            "    return theirs not in (Change.SCHEMA, Change.REWRITE)",
            "    return theirs is not Change.SCHEMA",
        ),
    ),
    *_in(
        "write/commit/apply.py",
        COMMITS,
        (
            "an overwrite from its own rows loses what others committed",
            "    if options.reads_own_rows and (replaces_all or found is Verdict.CHECK_REPLACED):",
            "    if False:",
        ),
        (
            "rows that an overwrite keeps return after others deleted them",
            "    if replaces or Verdict.CHECK_MINE in verdicts:",
            "    if Verdict.CHECK_MINE in verdicts:",
        ),
        (
            "an overwrite of partitions undoes a change of their rows",
            "    if replaces and staged.options.dynamic_partitions:",
            "    if False:",
        ),
    ),
    *_in(
        "engines/duckdb.py",
        ROW_CHANGES,
        (
            "DuckDB leaves out the deleted rows of another file",
            "{quoted(_deleted(name))} WHERE part = {number}) AS d ",
            "{quoted(_deleted(name))} WHERE part = {number} + 1) AS d ",
        ),
    ),
    *_in(
        "language/functions/comparison.py",
        EXPRESSIONS,
        (
            "AND and OR evaluate every term on every row",
            "            if term.can_fail:",
            "            if False:",
        ),
        (
            "a branch of CASE is taken where its condition is NULL",
            "hit = pc.fill_null(condition.run(left), False)",
            "hit = pc.fill_null(condition.run(left), True)",
        ),
    ),
    *_in(
        "language/functions/rows.py",
        EXPRESSIONS,
        (
            "values of branches stay in the order of the branches",
            "return flat(pa.concat_arrays([values for _, values in parts]).take(order))",
            "return flat(pa.concat_arrays([values for _, values in parts]))",
        ),
        (
            "what follows a NULL argument is evaluated all the same",
            "if argument.can_fail and gone:",
            "if False:",
        ),
    ),
    *_in(
        "language/functions/comparison.py",
        EXPRESSIONS,
        (
            "NaN is above nothing",
            "return pc.or_(kernel(left, right), pc.and_(nan, pc.is_valid(right)))",
            "return kernel(left, right)",
        ),
        (
            "a value that is not in a list with NULL is FALSE",
            "missed = pa.scalar(None if has_null else False, pa.bool_())",
            "missed = pa.scalar(False, pa.bool_())",
        ),
    ),
    *_in(
        "language/functions/numbers.py",
        EXPRESSIONS,
        (
            "keys of a join tell 0.0 from -0.0",
            "values = pc.if_else(pc.equal(values, zero), zero, values)",
            "values = values",
        ),
    ),
    *_in(
        "language/types.py",
        EXPRESSIONS,
        (
            "a FLOAT and an INT make a FLOAT",
            "        return pa.float64()\n    return max(a, b",
            "        return pa.float32()\n    return max(a, b",
        ),
    ),
    *_in(
        "language/functions/casts.py",
        EXPRESSIONS,
        (
            "a decimal that does not fit is cut",
            "if found and found.adjusted() >= to.precision - to.scale:",
            "if False:",
        ),
    ),
    *_in(
        "language/functions/casts.py",
        EXPRESSIONS,
        (
            "NULL goes into a column that is NOT NULL",
            "if not to.nullable and values.null_count:",
            "if False:",
        ),
    ),
    *_in(
        "language/parse.py",
        EXPRESSIONS,
        (
            "operators of one level are grouped from the right",
            "other = self._value(level + 1)",
            "other = self._value(level)",
        ),
        (
            "the sign does not belong to a number",
            'return self._fields(first, self._number("-"))',
            'return Call("negative", (self._operand(),))',
        ),
        ("a comparison binds as + does", "(sign, 1) for sign", "(sign, 6) for sign"),
    ),
    *_in(
        "storage/location.py",
        STORAGE,
        (
            "secrets stay in the errors of a store's client",
            "if len(spelling) >= _SHORTEST_SECRET:",
            "if False:",
        ),
    ),
    *_in(
        "storage/options.py",
        STORAGE,
        (
            "of two names of one option the last one counts",
            "if option in found:",
            "if False:",
        ),
    ),
    *_in(
        "storage/uris.py",
        STORAGE,
        (
            "containers of two Azure accounts are one place",
            'return f"abfs://{container}@{account}{path}"',
            'return f"abfs://{container}{path}"',
        ),
    ),
    *_in(
        "parquet/names.py",
        ADDED,
        (
            "a copy of a file of others counts as written by plake",
            "return match is None or match[3] is not None",
            "return match is None",
        ),
    ),
    *_in(
        "parquet/foreign.py",
        ADDED,
        (
            "a float column of others has no NaN",
            "may_have_nan = bool(pa.types.is_floating(leaf.type))",
            "may_have_nan = False",
        ),
        (
            "a column that a file of others lacks has no NULL",
            "known += self._without_data(leaf, group.row_count)",
            "known.append((leaf, ColumnBounds(None, None, 0, group.row_count, False)))",
        ),
        (
            "a partition column in the file may have any value",
            "elif (known.null_count, known.lower, known.upper) != (0, ordinal, ordinal):",
            "elif known.null_count != 0:",
        ),
    ),
    *_in(
        "schema/paths.py",
        ADDED,
        (
            "types that only some values fit are taken",
            "is not Fit.EVERY:",
            "is Fit.NONE:",
        ),
    ),
    *_in(
        "write/commit/commit.py",
        ADDED,
        (
            "an aborted commit deletes files of others",
            "if not is_of_write(file.path, staged.write_id):",
            "if False:",
        ),
    ),
    *_in(
        "write/commit/apply.py",
        ADDED,
        (
            "a file that another commit added is added again",
            "if not mine or record.current_version == 0:",
            "if True:",
        ),
    ),
    *_in(
        "pruning/evaluate.py",
        PURE,
        (
            "a file of one text is decided by the wrong end of it",
            'elif node.form == "suffix":',
            'elif node.form != "suffix":',
        ),
        (
            "<= decided as <",
            "may = lower is None or lower <= value",
            "may = lower is None or lower < value",
        ),
        (
            ">= decided as >",
            "may = upper is None or upper >= value",
            "may = upper is None or upper > value",
        ),
        (
            "every row is below an upper bound that equals the literal",
            "may_not = upper is None or upper >= value",
            "may_not = upper is None or upper > value",
        ),
        (
            "an unknown null count is zero",
            "may_be_null = may_have_value = rows != 0",
            "may_be_null, may_have_value = False, rows != 0",
        ),
        (
            "NaN is left out of comparisons",
            "return bits | _compare_nan(node.op, node.value) if may_be_nan else bits",
            "return bits",
        ),
        (
            "NaN is less than every number",
            'not equal if op == "!=" else op in (">", ">=")',
            'not equal if op == "!=" else op in ("<", "<=")',
        ),
        (
            "NaN is left out of IN",
            "bits |= TRUE_BIT if node.has_nan else missed",
            "pass",
        ),
        (
            "a value missed by IN (…, NULL) is FALSE",
            "missed = NULL_BIT if node.has_null else FALSE_BIT",
            "missed = FALSE_BIT",
        ),
        (
            "null-safe equality is NULL on NULL",
            "bits |= FALSE_BIT if null_safe else NULL_BIT",
            "bits |= NULL_BIT",
        ),
        (
            "any value between two bounds equals the literal",
            "if lower is not None and lower == upper:\n        return TRUE_BIT\n",
            "if lower is not None and upper is not None:\n        return TRUE_BIT\n",
        ),
        ("a prefix below its bound", "lower[: len(text)] > text", "lower > text"),
        ("a prefix that is the upper bound", "upper < text)", "upper <= text)"),
        (
            "bounds the wrong way round are believed",
            "if lower is not None and upper is not None and lower > upper:",
            "if False:",
        ),
        (
            "a list with one of the numbers between the bounds holds all of them",
            "found_all = stop - start == upper - lower + 1",
            "found_all = True",
        ),
        (
            "a nested column is never null",
            "return _BOTH  # only IS NULL applies to it",
            "return FALSE_BIT",
        ),
    ),
    *_in(
        "pruning/evaluate.py",
        PURE,
        ("NOT makes TRUE of NULL", "return None if a is None else not a", "return not a"),
        ("AND and OR change places", "AND_TABLE = _lifted(_and)", "AND_TABLE = _lifted(_or)"),
        (
            "NULL AND FALSE is NULL",
            "if a is False or b is False:\n        return False\n",
            "if a is False and b is False:\n        return False\n",
        ),
        ("some rows are all rows", "self.bits == TRUE_BIT", "bool(self.bits & TRUE_BIT)"),
    ),
    *_in(
        "pruning/keys.py",
        PURE,
        ("-0.0 is not 0.0", 'struct.pack(">d", value + 0.0)', 'struct.pack(">d", value)'),
        (
            "an upper key is cut downward",
            "return _raised(ordinal[:KEY_LIMIT])",
            "return ordinal[:KEY_LIMIT]",
        ),
        (
            "the end of a prefix is not raised",
            'return cut, cut + b"\\xff"  # no byte of UTF-8 is 0xFF',
            "return cut, cut",
        ),
        (
            "decimals lose their sign",
            "(ordinal + (1 << (bits - 1)))",
            "(abs(ordinal) + (1 << (bits - 1)))",
        ),
        (
            "integers lose their sign",
            "(ordinal + (1 << 71))",
            "((ordinal & ((1 << 64) - 1)) + (1 << 71))",
        ),
        (
            "timestamps of all units alike",
            "(ordinal * kind.unit_ns + (1 << 95))",
            "(ordinal + (1 << 95))",
        ),
    ),
    *_in(
        "schema/json_values.py",
        PURE,
        (
            "an upper text is cut downward",
            "        return text\n    return _raised_text(text[:limit]) if upper",
            "        return text\n    return text[:limit] if upper",
        ),
        (
            "an upper text is raised to half a character",
            "chr(0xE000 if 0xD800 <= last < 0xE000 else last)",
            "chr(last)",
        ),
        (
            "an upper binary is cut downward",
            "ordinal = ordinal[:-1] + bytes((ordinal[-1] + 1,))",
            "pass",
        ),
    ),
    *_in(
        "pruning/bounds.py",
        PURE,
        (
            "NaN does not raise the upper key",
            "upper = NAN_KEY if merge.may_be_nan else upper_key_of(merge.upper, kind)",
            "upper = upper_key_of(merge.upper, kind)",
        ),
        (
            "a promotion is ignored",
            "if file_type is not column_type and file_type != column_type:",
            "if False:",
        ),
        (
            "one row group without bounds does not matter",
            "self.upper_known = False",
            "pass",
        ),
        (
            "a file that is all null matches everything",
            "if nulls == bounds.row_count:\n            return\n",
            "pass\n",
        ),
        (
            "a null count that cannot be is zero",
            "<= null_count <= group.row_count:\n        null_count = None",
            "<= null_count <= group.row_count:\n        null_count = 0",
        ),
        (
            "NaN is absent where nobody looked",
            ".get(name) is not False",
            ".get(name) is True",
        ),
        (
            "a NaN bound does not tell of NaN",
            "nans[name] = bounds.may_contain_nan or nan_bound",
            "nans[name] = bounds.may_contain_nan",
        ),
        (
            "elements of lists are rows",
            "        if leaf.in_list:\n            continue\n        kind, name",
            "        kind, name",
        ),
        (
            "a NULL partition has no nulls",
            "known = ColumnBounds(None, None, row_count, row_count, False)",
            "known = ColumnBounds(None, None, 0, row_count, False)",
        ),
    ),
    *_in(
        "pruning/search.py",
        PURE,
        (
            "every value above infinity is infinity",
            "if isinstance(value, float) and not math.isfinite(value):",
            "if False:",
        ),
        (
            "a text below a value may be that value",
            'len(value) >= KEY_LIMIT or node.op == "<"',
            "len(value) >= KEY_LIMIT",
        ),
        (
            ">= searched as >",
            'key(_after(value) if op == ">" else value, type_)',
            "key(_after(value), type_)",
        ),
        (
            "an OR is searched by the branches that can be",
            "    if any(branch is None for branch in found):\n        return None\n",
            "",
        ),
        (
            "IS NULL is searched among values",
            "return None  # IS NULL",
            "return _ranges(node.column, [_ANY_VALUE], indexed)  # IS NULL",
        ),
        ("NaN of a list is not searched", "values.append(math.nan)", "pass"),
        (
            "keys of another encoding are searched",
            "if isinstance(indexed, Mapping) and indexed[column.id] != name:",
            "if False:",
        ),
    ),
    *_in(
        "pruning/keys.py",
        PURE,
        (
            "joined ranges end too early",
            "merged[-1] = (merged[-1][0], max(merged[-1][1], upper))",
            "merged[-1] = (merged[-1][0], upper)",
        ),
    ),
    *_in(
        "pruning/evaluate.py",
        ("pure/test_pruning.py", *FILES),
        (
            "an absent value makes NULL rows FALSE",
            'return IfPresent(node.column, False) if node.op == "=" else FALSE',
            "return FALSE",
        ),
        (
            "one absent value empties a list",
            "tuple(value for value in node.values if not absent(node.column, value))",
            "() if any(absent(node.column, v) for v in node.values) else node.values",
        ),
    ),
    *_in(
        "catalog/sql/search.py",
        CATALOG,
        (
            "an OR of columns is an AND",
            'for term in terms], "UNION")',
            'for term in terms], "INTERSECT")',
        ),
        (
            "many ranges: the nearest one is looked for by the lower key",
            "bisect_right(lowers, upper) - 1",
            "bisect_right(lowers, lower) - 1",
        ),
    ),
    *_in(
        "catalog/sql/statements.py",
        CATALOG,
        (
            "a range that begins at an upper key",
            "AND b.upper >= s.column2",
            "AND b.upper > s.column2",
        ),
    ),
    *_in(
        "catalog/sql/statements.py",
        CATALOG,
        (
            "many ranges that begin at an upper key",
            'AND upper >= ? AND lower <= ?"',
            'AND upper > ? AND lower <= ?"',
        ),
        (
            "a column whose encoding changed stays on its levels",
            "SET lower = ?, upper = ?, level = 0 ",
            "SET lower = ?, upper = ? ",
        ),
    ),
    *_in(
        "catalog/backends/postgres_connections.py",
        POSTGRES,
        (
            "a connection is used that was made with other variables",
            "return conninfo, tuple(",
            "return conninfo, () and tuple(",
        ),
    ),
    *_in(
        "catalog/backends/pool.py",
        POSTGRES,
        (
            "a forked child uses the connections of its parent",
            "    for pool in _pools:\n        pool.forked()\n",
            "",
        ),
    ),
    *_in(
        "catalog/backends/postgres/__init__.py",
        POSTGRES,
        (
            "a connection is used that the server ended",
            "while not (kept is None or self._ready or _is_usable(kept)):",
            "while False:",
        ),
        (
            "a commit that became a rollback counts",
            'if answer != "COMMIT":',
            "if False:",
        ),
    ),
    *_in(
        "catalog/sql/history_reader.py",
        CATALOG,
        (
            "a write repeats an earlier one of its application",
            "record.txn_version is not None and record.txn_version >= pair[1]",
            "record.txn_version is not None",
        ),
    ),
    *_in(
        "catalog/sql/write_states.py",
        CATALOG,
        (
            "a committed write can be fenced",
            "if self._session.query(_COMMITTED, (write_id,)):",
            "if False:",
        ),
        (
            "a fence can be forgotten",
            '    "forget",\n    (_P, _A),',
            '    "forget",\n    (_P, _A, _F),',
        ),
        (
            "a fenced write can commit",
            "    (None, _P, _A),\n    _C,",
            "    (None, _P, _A, _F),\n    _C,",
        ),
    ),
    *_in(
        "catalog/same_place.py",
        ("verbs/test_spellings.py",),
        (
            "paths are compared as texts",
            "return mine == theirs",
            "return False",
        ),
        (
            "folders that do not exist yet are compared as texts",
            "return os.path.realpath(path) == os.path.realpath(other)",
            "return False",
        ),
    ),
    *_in(
        "catalog/locate.py",
        ("verbs/test_spellings.py",),
        (
            "a DuckDB file is taken for the default catalog",
            'if _scheme_of(url) != "sqlite":',
            'if _scheme_of(url) not in ("sqlite", "duckdb"):',
        ),
    ),
    *_in(
        "catalog/base.py",
        ("verbs/test_lost_acknowledgement.py",),
        ("a lost acknowledgement is a failure", "            lost.append(done)\n", ""),
        (
            "a COMMIT that is still on its way was not carried out",
            "            asked_again = True\n",
            "            raise failure\n",
        ),
    ),
    *_in(
        "datasets.py",
        ("verbs/test_lost_acknowledgement.py",),
        (
            "a name in another case counts as the new one",
            "(found.dataset_id, found.name) == (",
            "(found.dataset_id, renamed.name) == (",
        ),
    ),
    *_in(
        "write/commit/conflicts.py",
        ("pure/test_conflicts.py",),
        (
            "a compaction removes rows",
            "KEEP_ROWS = _operations(Change.APPEND, Change.SCHEMA, Change.REWRITE)",
            "KEEP_ROWS = _operations(Change.APPEND, Change.SCHEMA)",
        ),
    ),
    *_in(
        "pruning/keys.py",
        ("pure/test_levels.py",),
        ("a level too high", "different.bit_length()) // 4", "different.bit_length() + 3) // 4"),
        ("the last key of a level is the range's own", "| 0x0F", "| 0x00"),
        (
            "spans that touch end with the first",
            "last, highest = last_of_level(upper, level), upper\n            continue",
            "continue",
        ),
    ),
    *_in(
        "catalog/sql/migrations.py",
        CATALOG,
        ("old files are a digit too high", "return str(fewest)", "return str(fewest + 1)"),
    ),
    *_in(
        "write/commit/commit.py",
        ("verbs/test_commit_protocol.py",),
        (
            "files are deleted though the outcome is unknown",
            "if isinstance(failure, PlakeError) and failure.outcome_unknown:",
            "if False:",
        ),
        (
            "files of a committed write are deleted",
            "if fenced:\n        _delete(staged, files)",
            "if True:\n        _delete(staged, files)",
        ),
        (
            "the files of a commit that failed stay",
            "abort(catalog, staged, files, failure=failure)",
            "pass",
        ),
        (
            "rows kept by a commit that failed stay on disk",
            "files += rewrite.files",
            "files = [*files, *rewrite.files]",
        ),
    ),
    *_in(
        "write/metadata/set_properties.py",
        LAYOUT,
        (
            "layout: files of a partitioned dataset stand in the folders of other columns",
            "if tx.files_added_since(record.id, 0):",
            "if False:",
        ),
        (
            "layout: a name may mean another column by now",
            "these names mean.\n        if not schema.equals(base.schema, check_metadata=True):",
            "these names mean.\n        if False:",
        ),
    ),
    *_in(
        "write/commit/chosen_paths.py",
        LAYOUT,
        (
            "layout: a column that joins the index finds no file that is there",
            "tx.insert_bounds(record.id, rows)",
            "pass",
        ),
        (
            "layout: old versions are searched with keys of the newest type only",
            "if not counted or file.version < since[row.column_id]:",
            "if not counted:",
        ),
    ),
    *_in(
        "write/commit/chosen_paths.py",
        ("verbs/test_variant_paths.py",),
        (
            "VARIANT: statistics of paths are kept under ids that other paths have",
            "if to != first:",
            "if False:",
        ),
    ),
    *_in(
        "schema/variant_paths.py",
        ("verbs/test_variant_paths.py",),
        (
            "VARIANT: paths that lead into each other are chosen",
            "return apart is None or apart[0].lower() == apart[1].lower()",
            "return False",
        ),
    ),
    *_in(
        "write/commit/options.py",
        LAYOUT,
        (
            "layout: a sort column can be dropped",
            "if field_id(before.field(_column_of(name, before))) not in ids:",
            "if False:",
        ),
    ),
    *_in(
        "parquet/new_file.py",
        LAYOUT,
        (
            "layout: floats are declared as sorted",
            "return name in schema.names and not pa.types.is_floating(schema.field(name).type)",
            "return name in schema.names",
        ),
    ),
    *_in(
        "parquet/duckdb_writer.py",
        ("verbs/test_duckdb_writer.py",),
        (
            "DuckDB writer: a relation's rows are written although they have to be checked",
            "if not field.nullable or is_nested(field.type) or has_lengths(field):",
            "if False:",
        ),
        (
            "DuckDB writer: a stream that broke is written as far as it came",
            "raise failure.pop()",
            "return",
        ),
        (
            "DuckDB writer: NULL and a text share a partition",
            "THEN 'n' ELSE 'v' ||",
            "THEN 'v6E' ELSE 'v' ||",
        ),
    ),
    *_in(
        "parquet/duckdb_writer.py",
        ("verbs/test_duckdb_writer.py",),
        (
            "DuckDB writer: no float holds NaN",
            "if pc.any(pc.is_nan(_column(file, number, leaf))).as_py()]",
            "if False]",
        ),
    ),
    *_in(
        "write/commit/evolution.py",
        ("verbs/test_commit_protocol.py", *VERBS),
        (
            "a dropped column's field id is given again",
            "next_id=max(properties.last_field_id, max_id(current)) + 1,",
            "next_id=max_id(current) + 1,",
        ),
    ),
    *_in(
        "write/commit/evolution.py",
        CHANGES,
        (
            "schema change: a file stands under a name that its column no longer has",
            "if field_id(now) != field_id(written) or now.name != written.name:",
            "if field_id(now) != field_id(written):",
        ),
        (
            "schema change: an append may bring NULLs into a column that became NOT NULL",
            "if written.nullable and not now.nullable:",
            "if False:",
        ),
        (
            "schema change: a restored version has the newest names of partition columns",
            "partition_by=same_columns(properties.partition_by, before, after),",
            "partition_by=properties.partition_by,",
        ),
    ),
    *_in(
        "write/metadata/schema_change.py",
        CHANGES,
        (
            "schema change: a dropped column's field id is given again",
            "itertools.count(max(record.properties.last_field_id, max_id(schema)) + 1)",
            "itertools.count(max_id(schema) + 1)",
        ),
        (
            "schema change: a name may mean another column by now",
            "if _without_new(named, first) != _without_new(meant, first_then):",
            "if False:",
        ),
        (
            "schema change: a file that lacks a column holds no NULL in it",
            "    if group is None or leaf.id not in written:\n        return False\n",
            "    if group is None or leaf.id not in written:\n        return True\n",
        ),
    ),
    *_in(
        "write/commit/metadata_commit.py",
        CHANGES,
        (
            "schema change: two changes of the schema at once",
            "verdict(Change.SCHEMA, theirs) is Verdict.CONFLICT",
            "verdict(Change.SCHEMA, theirs) is None",
        ),
    ),
    *_in(
        "schema/partitions.py",
        CHANGES,
        (
            "schema change: old files have partition values under the new name",
            "columns.append(_Recorded(written.name))",
            "columns.append(_Recorded(name))",
        ),
    ),
    *_in(
        "schema/partitions.py",
        ("verbs/test_promotion.py",),
        (
            "a date and its midnight are two partitions",
            "elif written.type.equals(now.type):",
            "elif True:",
        ),
    ),
    *_in(
        "read/snapshot.py",
        STREAMS,
        (
            "a lagging stream has the partition columns of the newest version",
            (
                "            partition_by=partition_columns_at(properties, schema_version, schema, "
                "newest_schema),"
            ),
            "            partition_by=self.partition_by,",
        ),
    ),
    *_in(
        "pruning/bounds.py",
        CHANGES,
        (
            "schema change: old files are pruned by the new name of a partition column",
            "text = None if written is None else file.partitions.get(written.path[0])",
            "text = file.partitions.get(leaf.path[0])",
        ),
    ),
    *_in(
        "read/plan.py",
        VERBS,
        ("the rows left are not filtered", "filtered=not found.always", "filtered=False"),
    ),
    *_in(
        "read/candidates.py",
        KNOWN_FILES,
        (
            "the last row group speaks for all",
            "always = always and outcome.always",
            "always = outcome.always",
        ),
        (
            "files that the bounds leave open match as a whole",
            "        if outcome.always:\n            groups",
            "        if outcome.may_match:\n            groups",
        ),
    ),
    *_in(
        "read/snapshot.py",
        KNOWN_FILES,
        (
            "a catalog at the same place has the same history",
            "if known is None or reader.write_id_of(found.dataset.id, last) != seen[last]:",
            "if known is None:",
        ),
        (
            "what a transaction has written and not committed is kept",
            "if found.write_id is None or isinstance(reader, CatalogTransaction):",
            "if found.write_id is None:",
        ),
        ("nothing is ever forgotten", "while self.size_bytes > self._most_bytes", "while False"),
    ),
    *_in(
        "catalog/sql/statements.py",
        CATALOG,
        ("files with a NULL lie within a condition", "AND c.null_count = 0 AND (", "AND ("),
    ),
    *_in(
        "pruning/bounds.py",
        VERBS,
        (
            "a column that the file lacks has no nulls",
            "return self._without_data(leaf, group.row_count)",
            "return replace(self._without_data(leaf, group.row_count), null_count=0)",
        ),
    ),
    *_in(
        "pruning/bounds.py",
        DEFAULTS,
        (
            "a column that the file lacks is NULL whatever its default is",
            "constant_bounds(leaf, self._defaults.get(leaf.id), row_count)[0]",
            "constant_bounds(leaf, None, row_count)[0]",
        ),
        (
            "a field with a default is never NULL although its struct is",
            "return replace(known, null_count=None)  # NULL where the struct is NULL",
            "return known",
        ),
    ),
    *_in(
        "pruning/search.py",
        DEFAULTS,
        (
            "the index is searched for files that have no row in it",
            "return _without_defaults(found, defaults) if defaults else found",
            "return found",
        ),
        (
            "an OR is searched by the terms that are left of it",
            "return SearchAny(left) if len(left) == len(terms) else None",
            "return SearchAny(left) if left else None",
        ),
    ),
    *_in(
        "parquet/fragments.py",
        DEFAULTS,
        (
            "Arrow fills in NULL for a column with a default",
            "promise = _both(promise, pc.field((field.name,)) == default)",
            "pass",
        ),
    ),
    *_in(
        "engines/files.py",
        DEFAULTS,
        (
            "engines fill in NULL for a column with a default",
            "values.get(field.name, self._defaults.get(field.name))",
            "values.get(field.name)",
        ),
        (
            "engines are given any default as a literal",
            "default is not None and not is_literal(default, field.type)",
            "False",
        ),
    ),
    *_in(
        "write/commit/apply.py",
        DEFAULTS,
        (
            "a file that lacks a newer column is recorded as if it had it",
            "if not written.equals(staged.spec.schema, check_metadata=True):",
            "if False:",
        ),
    ),
    *_in(
        "schema/align.py",
        ("pure/test_defaults.py",),
        (
            "fields that differ in their ids only are taken for one",
            "next(at for at, one in enumerate(fields) if one is field)",
            "list(fields).index(field)",
        ),
    ),
    *_in(
        "schema/changes.py",
        DEFAULTS,
        (
            "a promotion leaves the default in the old type",
            "return with_field(schema, place, promoted(field, wanted)), ids",
            "return with_field(schema, place, field.with_type(wanted)), ids",
        ),
    ),
    *_in(
        "parquet/reader.py",
        (*VERBS, "verbs/test_maintenance.py", "edges/test_statistics.py"),
        (
            "rows for which the condition is NULL are deleted",
            "mask = pc.invert(mask)",
            "mask = pc.and_(pc.invert(mask), pc.is_valid(condition.column(0)))",
        ),
    ),
    *_in(
        "schema/types.py",
        PROMOTION,
        (
            "a float fits a decimal",
            "        t.is_decimal,\n        t.is_decimal,",
            "        lambda x: t.is_decimal(x) or t.is_floating(x),\n        t.is_decimal,",
        ),
        (
            "every integer is exact in a float",
            "return Fit.NONE if wide.bit_width == 16 else Fit.CHECKED",
            "return Fit.EVERY",
        ),
        (
            "a decimal keeps its digits after the point only",
            "_every_if(wide.scale >= narrow.scale and digits)",
            "_every_if(wide.scale >= narrow.scale)",
        ),
        (
            "every date is exact in every timestamp",
            "    return Fit.CHECKED\n\n\ndef _times",
            "    return Fit.EVERY\n\n\ndef _times",
        ),
    ),
    *_in(
        "schema/merge.py",
        PROMOTION,
        (
            "a promotion needs no proof",
            "return is_provable(mine.type, type_) and self.stored_values_fit(mine, type_)",
            "return is_provable(mine.type, type_)",
        ),
        (
            "a column that a frame adds is NOT NULL below",
            "            field = nullable_field(field)",
            "            pass",
        ),
    ),
    *_in(
        "write/commit/evolution.py",
        ("verbs/test_promotion.py",),
        (
            "files without statistics fit",
            "yield known or bounds.null_count == bounds.row_count",
            "yield True",
        ),
        (
            "every partition value fits",
            "yield new.low <= count * old.unit_ns // new.unit_ns <= new.high",
            "yield True",
        ),
    ),
    *_in(
        "schema/arrow_arrays.py",
        ("pure/test_align_and_partitions.py",),
        (
            "a list view is cast by Arrow",
            "        return _list_of_view(array, type_)",
            "        return array.cast(type_)",
        ),
    ),
    *_in(
        "schema/fields.py",
        ("pure/test_schema.py", "verbs/test_promotion.py"),
        (
            "a large list becomes a list of small offsets",
            "        return pa.large_list(fields[0])",
            "        return pa.list_(fields[0])",
        ),
    ),
    *_in(
        "schema/merge.py",
        ("pure/test_schema.py", "verbs/test_promotion.py"),
        (
            "columns of a frame stay NOT NULL",
            "        fields = [nullable_field(field) for field in fields]",
            "        pass",
        ),
    ),
    *_in(
        "schema/partitions.py",
        ("pure/test_align_and_partitions.py", *VERBS),
        (
            "an empty partition value is NULL",
            "if value is None:\n        return None\n    exact",
            'if value in (None, ""):\n        return None\n    exact',
        ),
        (
            "a NULL partition value is empty",
            "if text is None:\n        return None\n    ordinal",
            "if text is None:\n        text = '\"\"'\n    ordinal",
        ),
    ),
    *_in(
        "parquet/bloom.py",
        FILES,
        (
            "0.0 is looked up with one sign only",
            "return (struct.pack(code, 0.0), struct.pack(code, -0.0))",
            "return (struct.pack(code, 0.0),)",
        ),
        (
            "the wrong block of a filter",
            "((hashed >> 32) * self._blocks) >> 32",
            "(hashed >> 32) % self._blocks",
        ),
        (
            "a bit is enough",
            "                return False\n        return True\n\n    def _block",
            "                return False\n            return True\n\n    def _block",
        ),
        (
            "a decimal of another scale is the same bytes",
            "same = written.equals(now) or (t.is_integer(written) and t.is_integer(now))",
            "same = True",
        ),
    ),
    *_in(
        "parquet/checked_footer.py",
        ("edges/test_bad_files.py",),
        (
            "PyArrow is asked for a column chunk of another physical type",
            "if physical != column.physical_type:",
            "if False:",
        ),
        (
            "PyArrow is asked for a column chunk with too long a histogram",
            "not in (0, highest + 1):",
            "not in range(1000):",
        ),
        (
            "PyArrow is asked for bounds of any width",
            "return all(len(statistics[bound]) == width",
            "return True or all(len(statistics[bound]) == width",
        ),
        (
            "PyArrow writes the footer of an encrypted file",
            "if field == _ENCRYPTION_ALGORITHM:",
            "if False:",
        ),
    ),
    *_in(
        "parquet/checked_footer.py",
        ("edges/test_bad_files.py",),
        (
            "a row group has as many column chunks as it says",
            "if chunk_count != self.leaf_count:",
            "if position >= chunk_count:",
        ),
    ),
    *_in(
        "parquet/page_reader.py",
        PAGES,
        (
            "rows are cut one row late",
            "places.append((before + first - runs[at][0], end - first))",
            "places.append((before + first - runs[at][0] + 1, end - first))",
        ),
        (
            "the page with the last row is left out",
            "stop = ends[bisect_left(ends, end)]",
            "stop = ends[bisect_left(ends, end - 1)]",
        ),
        (
            "pages of a struct's fields begin at the same rows",
            "        common &= set(chunk.starts)",
            "        common |= set(chunk.starts)",
        ),
        (
            "the rows of lists are as many as the index says",
            "if table.num_rows != row_count:",
            "if False:",
        ),
        (
            "checksums of pages are not looked at",
            "page_checksum_verification=True",
            "page_checksum_verification=False",
        ),
    ),
    *_in(
        "parquet/page_reader.py",
        PAGES,
        (
            "a page has as many rows as the index says",
            "if not has_lists and values != rows:",
            "if False:",
        ),
    ),
    *_in(
        "parquet/open_file.py",
        PAGES,
        (
            "the last row of a row group and the first of the next one are one range",
            "if found and found[-1][1] == row and place > before:",
            "if found and found[-1][1] == row:",
        ),
    ),
    *_in(
        "language/row_filter.py",
        FILTER,
        (
            "both halves of a column look for the values of the first",
            "halves = [_among(node, near, part) for part in (column[:half], column[half:])]",
            "halves = [_among(node, near, column[:half])] * 2",
        ),
    ),
    *_in(
        "parquet/page_index.py",
        PAGES,
        (
            "bounds of a promoted column are taken as they are",
            "promoted(page.bounds, leaf.type, now)",
            "page.bounds",
        ),
        (
            "a column without an index has no values",
            "unknown = ColumnBounds(None, None, None, rows, True)",
            "unknown = ColumnBounds(None, None, rows, rows, False)",
        ),
    ),
    *_in(
        "storage/files.py",
        PAGES,
        (
            "a range outside of the file is read as far as it goes",
            "if offset < 0 or length < 0 or offset + length > self._size:",
            "if False:",
        ),
    ),
    *_in(
        "parquet/page_index.py",
        (*FILES, *PAGES),
        (
            "bounds of the first page for all pages",
            "return found[places[column_id]].bounds",
            "return found[0].bounds",
        ),
        (
            "the last page ends a row early",
            "ends = [*starts[1:], row_count]",
            "ends = [*starts[1:], row_count - 1]",
        ),
        (
            "integers of pages have no sign",
            'int.from_bytes(raw, "little", signed=True)',
            'int.from_bytes(raw, "little")',
        ),
        (
            "pages have no nulls",
            "ColumnBounds(lower, upper, nulls, count, may_be_nan)",
            "ColumnBounds(lower, upper, 0, count, may_be_nan)",
        ),
        (
            "pages have no NaN",
            "may_be_nan = floats and not (gone and nulls == count)",
            "may_be_nan = False",
        ),
        (
            "only the last of neighbouring pages may match",
            "ranges[-1] = (ranges[-1][0], end)",
            "ranges[-1] = (first, end)",
        ),
        (
            "an index that contradicts the statistics is believed",
            " or _contradicts(pages, extremes, values):",
            ":",
        ),
    ),
    *_in(
        "parquet/footer.py",
        FILES,
        (
            "unsigned integers have a sign",
            'return int(raw) & ((1 << (64 if physical == "INT64" else 32)) - 1)',
            "return int(raw)",
        ),
        (
            "decimals in bytes have no sign",
            'int.from_bytes(raw, "big", signed=True)',
            'int.from_bytes(raw, "big")',
        ),
        ("INT96 is ordered", 'if physical == "INT96" or raw is None:', "if raw is None:"),
        ("a NaN bound is a value", "return None if math.isnan(value) else value", "return value"),
        (
            "nobody looked for NaN, so there is none",
            "pa.types.is_floating(leaf.type) and (nans is None or leaf.id in nans)",
            "pa.types.is_floating(leaf.type) and (nans is not None and leaf.id in nans)",
        ),
    ),
    *_in(
        "language/row_filter.py",
        FILTER,
        (
            "NaN is not greater than a number",
            'if node.column.is_float and op in (">", ">="):',
            "if False:",
        ),
        (
            "IN without 0.0 finds -0.0",
            "both_zeros = node.column.is_float and 0.0 in near",
            "both_zeros = node.column.is_float",
        ),
        (
            "IN (0.0) misses -0.0",
            "both_zeros = node.column.is_float and 0.0 in near",
            "both_zeros = False",
        ),
        (
            "an IN misses the largest number of a column",
            "bisect_right(values, most.as_py())",
            "bisect_left(values, most.as_py())",
        ),
        (
            "an IN misses the smallest number of a column",
            "first = bisect_left(values, least.as_py())",
            "first = bisect_right(values, least.as_py())",
        ),
        (
            "NOT IN (…, NULL) matches",
            "missed = _truth(None if node.has_null else False)",
            "missed = _truth(False)",
        ),
    ),
    *_in(
        "language/functions/text.py",
        LANGUAGE,
        (
            "LIKE stops at line ends",
            'rf"(?s)\\A(?:{regex(pieces)})\\z"',
            'rf"\\A(?:{regex(pieces)})\\z"',
        ),
    ),
    *_in(
        "language/predicate_set.py",
        ("pure/test_hints.py",),
        (
            "a hint is evaluated on rows",
            "implied = self._of_columns(bound.implied)",
            "return bound",
        ),
        (
            "what an expression implies is negated",
            "return negation(self._of_columns(term)) if isinstance(term, BoundColumns) else TRUE",
            "return negation(self._of_columns(term))",
        ),
    ),
    *_in(
        "language/nodes.py",
        LANGUAGE,
        ("NOT (x < v) is x > v", '"<": ">=", ">=": "<"', '"<": ">", ">=": "<"'),
    ),
    *_in(
        "language/bounds/bound.py",
        LANGUAGE,
        (
            "NOT (a AND b) is NOT a AND NOT b",
            "return disjunction([negation(term) for term in node.terms])",
            "return conjunction([negation(term) for term in node.terms])",
        ),
        (
            "a folded NOT keeps its truth",
            "return IfPresent(node.column, not node.truth)",
            "return node",
        ),
    ),
    *_in(
        "language/bounds/place.py",
        LANGUAGE,
        (
            "a text in a list of conditions is no number",
            'whole = column.kind == "int"\n        value = parse_number(value, exact=whole)',
            "raise _refusal(value, column)",
        ),
        (
            "a literal out of range is never equal, NULL or not",
            (
                "if low is None or high is None or low > high:  # type: ignore[operator]\n"
                "        return IfPresent(column, False)"
            ),
            (
                "if low is None or high is None or low > high:  # type: ignore[operator]\n"
                "        return negation(conjunction([]))"
            ),
        ),
    ),
    *_in(
        "language/bounds/arrow_expressions.py",
        ARROW,
        (
            "expressions: NaN is not kept by NOT (x > …)",
            'return any_of((node, compare(column, "=", _NAN)))',
            "return node",
        ),
        (
            "expressions: NULL is in no list",
            "return any_of((found, is_null(column))) if matches_null else found",
            "return found",
        ),
        (
            "expressions: NOT IN leaves NULL out",
            "return missed if matches_null else any_of((missed, is_null(column)))",
            "return missed",
        ),
        (
            "expressions: -0.0 is in a list with 0.0",
            "return isinstance(value, float) and (value == 0 or value != value)",
            "return False",
        ),
        (
            "expressions: NOT does not turn the truth around",
            "return self.when(tree.terms[0], not truth)",
            "return self.when(tree.terms[0], truth)",
        ),
        (
            "expressions: an OR is implied by the branches that are understood",
            "return disjunction(alternatives) if len(alternatives) == len(terms) else None",
            "return disjunction(alternatives) if alternatives else None",
        ),
        (
            "expressions: a literal before the column does not turn the comparison",
            "_folded(left), FLIPPED[op]",
            "_folded(left), op",
        ),
    ),
    *_in(
        "language/bounds/search.py",
        (*IMPLIED, "pure/test_range_search.py"),
        (
            "ranges: the first value above is in the range too",
            'high = self._first(">") - 1',
            'high = self._first(">")',
        ),
        (
            "ranges: `<` ends one value early",
            'high = self._first(">=") - 1',
            'high = self._first(">=") - 2',
        ),
        (
            "ranges: `>=` begins one value late",
            """if op in ("=", "<=>", ">="):
            low = self._first(">=")""",
            """if op in ("=", "<=>", ">="):
            low = self._first(">=") + 1""",
        ),
        (
            "ranges: what falls is taken for what rises",
            "return (low, high) if self._sign > 0 else (-high, -low)",
            "return (low, high)",
        ),
        (
            "ranges: an overflow is below all values",
            "return [place > 0 if one is None else",
            "return [place < 0 if one is None else",
        ),
        (
            "ranges: a condition that overflows is the range",
            "return None not in ends and not",
            "return not",
        ),
        (
            "ranges: NaN never matches",
            '"=" if op == "<=>" else op)[-1] is not False',
            '"=" if op == "<=>" else op)[-1] is None',
        ),
        (
            "ranges: what is TRUE beside another value is TRUE there first",
            "places[hit - 1] + 1 if hit else low, places[hit], True",
            "places[hit], places[hit], True",
        ),
        (
            "ranges: a cast ends at a value that it is compared with",
            "for one in (below, (below + value) / 2, value)",
            "for one in (value,)",
        ),
    ),
    *_in(
        "language/bounds/ranges.py",
        IMPLIED,
        (
            "ranges: clocks are calm everywhere",
            "return len({offset_at(moment, zone) for moment in moments}) == 1",
            "return True",
        ),
        (
            "ranges: no margin where clocks change",
            "margin = _MARGIN_DAYS * day * steps",
            "margin = 0",
        ),
        (
            "ranges: a finer column ends with the last microsecond",
            'terms.append(compare(column, "<", line.value(high + 1)))',
            'terms.append(compare(column, "<=", line.value(high)))',
        ),
    ),
    *_in(
        "language/functions/entry.py",
        IMPLIED,
        (
            "order: a product by a negative number rises",
            "return Step(place, 1 if factor > 0 else -1)",
            "return Step(place)",
        ),
        (
            "order: a difference rises with what is taken away",
            "return Step(1, -1) if numbers and",
            "return Step(1) if numbers and",
        ),
        (
            "order: the minus sign keeps order",
            "return Step(0, -1) if is_number(given.types[0]) else None",
            "return Step(0) if is_number(given.types[0]) else None",
        ),
        (
            "order: days between rise with their beginning",
            "return _days(given, -1)",
            "return _days(given, 1)",
        ),
        (
            "order: a cast of an instant knows no zone",
            "return Step(0, zoned=INSTANT in (from_, to))",
            "return Step(0)",
        ),
    ),
    *_in(
        "language/bounds/implied.py",
        IMPLIED,
        (
            "implied: an OR needs one branch only",
            'return conjunction(parts) if (node.name == "and") is truth else disjunction(parts)',
            "return conjunction(parts)",
        ),
        (
            "implied: NOT changes nothing",
            "return self.when(node.arguments[0], not truth)",
            "return self.when(node.arguments[0], truth)",
        ),
        (
            "implied: coalesce is its first argument",
            "gone.append(self._null(one))",
            "gone.append(FALSE)",
        ),
        (
            "implied: constants are combined uncast",
            "return None if names(node) else Cast(node, type_)",
            "return None if names(node) else node",
        ),
        (
            "implied: a longer text is never below",
            'below_ = any_of((below_, matches("startswith", column, begin)))',
            "pass",
        ),
        (
            "implied: a month that fails is kept out",
            "in (False, None):",
            "is not True:",
        ),
        (
            "implied: a column that is NULL where the other is, is never equal",
            "return Found(disjunction([compared, nulls]), False)",
            "return Found(compared, False)",
        ),
    ),
    *_in(
        "pruning/evaluate.py",
        IMPLIED,
        (
            "evaluate: columns whose bounds meet are never equal",
            "return bool(low[0] <= high[1] and low[1] <= high[0])",
            "return bool(low[0] < high[1] and low[1] < high[0])",
        ),
        (
            "evaluate: `<` of columns looks at the other ends",
            'if node.op in (">", ">="):',
            'if node.op in ("<", "<="):',
        ),
        (
            "evaluate: NaN in a column has bounds",
            "if None in (*low, *high) or left.may_contain_nan or right.may_contain_nan:",
            "if None in (*low, *high):",
        ),
    ),
    *_in(
        "schema/variant_columns.py",
        ("verbs/test_variant_clustered.py",),
        (
            "order by paths: numbers below zero ascend",
            "ordered = np.where(bits & sign, ~bits, bits | sign)",
            "ordered = np.where(bits & sign, bits & ~sign, bits | sign)",
        ),
    ),
    *_in(
        "write/commit/options.py",
        ("verbs/test_variant_clustered.py",),
        (
            "order by paths: a restored version has today's paths",
            "variant_paths=None if layout.variant_paths is None else tuple(texts),",
            "variant_paths=now(layout.variant_paths),",
        ),
    ),
    *_in(
        "language/bounds/arrow_conditions.py",
        ("verbs/test_variant_in_arrow.py",),
        (
            "expressions: a constant is rounded to the type of a path",
            "if cast.cast(given.type).equals(given):",
            "if True:",
        ),
        (
            "expressions: a path is cast where another term rules the row out",
            "for entries in _terms_of_and(form.entries):",
            "for entries in [form.entries]:",
        ),
        (
            "expressions: a lenient cast of a path fails",
            "spark_type(to), safe=lenient)",
            "spark_type(to), safe=False)",
        ),
    ),
    *_in(
        "language/bounds/arrow_expressions.py",
        ARROW,
        (
            "expressions: a cast that keeps some values keeps all",
            "return fit(stored, to) is Fit.EVERY",
            "return fit(stored, to) is not Fit.NONE",
        ),
    ),
    *_in(
        "language/bounds/implied.py",
        ("pure/test_implied.py", "pure/test_predicate_casts.py"),
        (
            "casts: a cast that keeps some values keeps all",
            "for one in INTEGERS[:place]}",
            "for one in INTEGERS}",
        ),
    ),
    *_in(
        "language/bounds/ranges.py",
        ("pure/test_implied.py",),
        (
            "ranges: a microsecond is one value of a finer column",
            "and line.type not in (INSTANT, WALL)",
            "and True",
        ),
    ),
    *_in(
        "language/predicate_set.py",
        ("pure/test_predicate_lists.py", "edges/test_prune_file.py"),
        (
            "lists: a list of lists is an AND",
            "return any_of([_alternative(group, parse) for group in condition])",
            "return all_of([_alternative(group, parse) for group in condition])",
        ),
        (
            "a column that does not exist is left out",
            "if not missing_columns(conjunct, schema) <= set(unreadable):",
            "if False:",
        ),
    ),
    *_in(
        "parquet/fragments.py",
        ENGINES,
        (
            "engines: NaN is not greater",
            '"greater": pc.and_kleene(a_nan, pc.invert(b_nan)),',
            '"greater": pc.scalar(False),',
        ),
        (
            "engines: NULL is outside of every list",
            "return pc.if_else(pc.is_valid(term), found, pc.scalar(pa.scalar(None, pa.bool_())))",
            "return found",
        ),
        (
            "engines: an expression need not be understood",
            "if not again.equals(expression) and str(again) != str(expression):",
            "if False:",
        ),
    ),
    *_in(
        "engines/files.py",
        ENGINE_FILES,
        (
            "engines read files with NaN",
            "if stored is None or any(bounds[id].may_contain_nan for id in self._floats):",
            "if stored is None:",
        ),
        (
            "engines get all rows of a file of which some row groups match",
            "return task.filtered or task.row_count != task.file_row_count",
            "return task.filtered",
        ),
        (
            "engines read a file without a column of its schema",
            "return {field.name for field in stored.values() if field is not None} <= there",
            "return True",
        ),
    ),
    *_in(
        "engines/files.py",
        ENGINE_FILES,
        (
            "engines cast dates and whole numbers to anything",
            "or (t.is_integer(old) and t.is_integer(new) and old.bit_width < new.bit_width)",
            "or True",
        ),
    ),
    *_in(
        "engines/duckdb.py",
        ENGINE_FILES,
        (
            "text compares by the default collation of DuckDB",
            """return f'{name} COLLATE "binary"' if column.kind == "string" else name""",
            "return name",
        ),
    ),
    *_in(
        "engines/datafusion.py",
        ENGINE_FILES,
        (
            "DataFusion lets PyArrow filter, whose NOT IN keeps NULLs",
            "return context.read_table(files).limit(_EVERY_ROW)",
            "return context.read_table(files)",
        ),
    ),
    *_in(
        "write/statements/assignments.py",
        ("verbs/test_nested_assignments.py",),
        (
            "fields that are not assigned are left out",
            "        values.append((child, value))\n",
            "        if new is not None:\n            values.append((child, value))\n",
        ),
    ),
    *_in(
        "storage/local_folder.py",
        (*STORAGE, "edges/test_swapped_folders.py"),
        (
            "a symbolic link may lead anywhere",
            'if not f"{found}/".startswith(f"{root}/"):',
            "if False:",
        ),
        (
            "a pipe waits for another program",
            "if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):",
            "if False:",
        ),
        (
            "links on the way are followed",
            "os.open(folder, _ON_THE_WAY | os.O_NOFOLLOW, dir_fd=above)",
            "os.open(folder, _ON_THE_WAY, dir_fd=above)",
        ),
        (
            "what is opened by its path is not what was looked up",
            "os.open(name, _TO_READ | os.O_NONBLOCK, dir_fd=parent)",
            'os.open(f"{self.root}/{relative}", os.O_RDONLY)',
        ),
        (
            "a link in the place of a new file is followed",
            "os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC",
            "os.O_TRUNC | os.O_CLOEXEC",
        ),
    ),
    *_in(
        "storage/location.py",
        ("doors/test_addresses_of_catalogs.py",),
        (
            "a catalog may name any host",
            "if isinstance(given, UriOfCatalog):",
            "if False:",
        ),
    ),
    *_in(
        "catalog/backends/file_catalog.py",
        ("edges/test_trusted_folders.py",),
        (
            "a file of another user is trusted",
            "if not is_of_user(status):",
            "if False:",
        ),
        (
            "a sticky folder lets nobody add a file",
            "keeps_names=at != folder",
            "keeps_names=True",
        ),
    ),
    *_in(
        "read/scan.py",
        ("verbs/test_planning_cost.py",),
        (
            "every summary has the number of live rows",
            'if bound.always_true and "live_rows" in snapshot.summary:',
            "if bound.always_true:",
        ),
    ),
    *_in(
        "parquet/fragments.py",
        ENGINES,
        (
            "a promise forgets NULL",
            "return within if nulls == 0 else within | column.is_null()",
            "return within",
        ),
        ("a promise forgets NaN", "or known.may_contain_nan or", "or"),
        (
            "Arrow prunes row groups of NaN by itself",
            "if named is None or not self._unsafe.intersection(named):",
            "if True:",
        ),
    ),
    *_in(
        "spark/reading/task_read.py",
        ("doors/test_tasks.py",),
        (
            "partitions are balanced by the driver's cores",
            "cores = parallelism or os.cpu_count() or 1",
            "cores = os.cpu_count() or 1",
        ),
        ("the largest piece goes last", "key=cost, reverse=True", "key=cost"),
        (
            "a piece goes to the group that costs most",
            "cheapest = costs.index(min(costs))",
            "cheapest = costs.index(max(costs))",
        ),
    ),
    *_in(
        "spark/reading/spark_files.py",
        ("doors/test_reader_response.py",),
        (
            "Spark reads renamed columns by name",
            "not is_same or stored.name != name",
            "not is_same",
        ),
        ("Spark reads promoted columns", "if not is_same and not (", "if False and ("),
        ("Spark pushes conditions on promoted columns", "if not is_same or stored", "if stored"),
        ("Spark gives NULL for a default", "if value is not None or same", "if same"),
        ("Spark reads another column of the name", "or same_name or may_be", "or may_be"),
        ("Spark reads hidden columns", "same_name or may_be_hidden(name)", "same_name"),
        ("Spark reads deleted rows", "if found is None:", "if True:"),
        ("layouts change places", "self.all.index(layout)", "0"),
        ("Spark makes decimals of bigint too narrow", "(10, 20)[", "(10, 19)["),
        ("a Puffin file may be gone", "check(path, size_bytes)\n\n\n", "pass\n\n\n"),
        ("Spark reads files of others", "if is_foreign(task.path):", "if False:"),
        ("Spark reads files of another size", "found.st_size != size_bytes", "False"),
        ("Spark ignores the frame's condition", "if where is not None:", "if False:"),
        ("partition values change places", "self.partition_by.index(field.name)", "0"),
        ("conditions on dotted names are pushed", 'if "." in name or ambiguous', "if ambiguous"),
        (
            "a row's identity counts from the version",
            "[place.first_row_id, place.version, uri]",
            "[place.version, place.version, uri]",
        ),
        ("identities of moved rows are made anew", "MetadataColumn.ROW: row.name, ", ""),
        ("users' columns are taken for identities", "if self.places and any(", "if False and any("),
    ),
    *_in(
        "spark/reading/spark_files.py",
        ("doors/test_reader_response.py",),
        ("keys are wanted of every column", "or share(name) <= CLUSTERED", "or True"),
        ("keys are wanted of few rows", "row_groups_read < FEW_ROW_GROUPS", "row_groups_read < 0"),
    ),
    *_in(
        "language/parse.py",
        ("pure/test_texts.py",),
        (
            "the sign + may stand before anything",
            'if self._see().kind != "number" and self._see().upper not in',
            "if False and self._see().upper not in",
        ),
        (
            "what follows an expression is not looked at",
            'if self._see().kind != "end":\n            self._fail("an operator',
            'if False:\n            self._fail("an operator',
        ),
    ),
    *_in(
        "language/nodes.py",
        ("pure/test_texts.py",),
        (
            "an OR inside of an AND is flattened into it",
            "flat += term.arguments if isinstance(term, Call) and term.name == name else (term,)",
            "flat += term.arguments if isinstance(term, Call) else (term,)",
        ),
    ),
    *_in(
        "write/statements/merge_rows.py",
        ("verbs/test_serializable.py",),
        (
            "a serializable MERGE forgets the rows that it matched and left alone",
            "        read=merge.read,",
            "        read={},",
        ),
    ),
    *_in(
        "write/commit/transaction.py",
        ("verbs/test_transactions.py", "verbs/test_histories.py"),
        (
            "a transaction that only reads is not checked",
            "        if self._entries or self._reads or self._failure is not None:",
            "        if self._entries or self._failure is not None:",
        ),
        (
            "others may change a dataset that a transaction uses again",
            "            self._pinned.setdefault(key, self._heads[key])",
            "            pass",
        ),
        (
            "files of a transaction get other ids each time",
            "        return self._ids[self._given - count : self._given]",
            "        return self._free[:count]",
        ),
    ),
]


def source_of(mutant: Mutant, root: Path) -> tuple[Path, str]:
    """The mutant's file in a copy, and its text after the replacement."""
    path = root / "lakehouse_source" / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(
            f"{mutant.name}: the rule is {text.count(mutant.old)} times in {mutant.file}; "
            "it has moved, and the mutant with it."
        )
    changed = text.replace(mutant.old, mutant.new)
    compile(changed, str(path), "exec")
    return path, changed


def make_copy(folder: Path) -> Path:
    """A copy of all that the tests need."""
    for name in ("lakehouse_source", "tests", "integration", "spark_conf"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_tests(root: Path, tests: tuple[str, ...], markers: str) -> tuple[bool, str]:
    """Whether the tests that `markers` choose pass in a copy; the first one that fails."""
    present = [f"tests/{name}" for name in tests if (root / "tests" / name).exists()]
    environment = {
        **os.environ,
        "PYTHONPATH": str(root),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "mutation",
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", markers, *present]
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode in (0, NO_TESTS):
        return True, ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode < 0:
        return False, f"the process ends with {signal.Signals(-done.returncode).name}"
    if done.returncode != 1 or not failed:
        raise SystemExit(f"the tests did not run:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return False, failed[0].split(" - ")[0].split("::", 1)[-1]


def check_copy(root: Path, mutants: list[Mutant]) -> None:
    """The copy is what its tests import, and they pass without a mutant."""
    code = "import lakehouse_source; print(lakehouse_source.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(root)}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True
    )
    if not found.stdout.startswith(str(root)):
        raise SystemExit(f"the tests would import {found.stdout or found.stderr}")
    every = tuple(dict.fromkeys(name for mutant in mutants for name in mutant.tests))
    passed, failed = run_tests(root, every, QUICK)
    if not passed:
        raise SystemExit(f"without a mutant {failed} fails")


def killer(mutant: Mutant, root: Path) -> str:
    """The test that fails with the mutant and passes without it; "" if there is none."""
    path, changed = source_of(mutant, root)
    before = path.read_text()
    for markers in (QUICK, REST):
        path.write_text(changed)
        try:
            failed = run_tests(root, mutant.tests, markers)[1]
        finally:
            path.write_text(before)
        # `check_copy` has seen the quick ones pass.
        if failed and (markers == QUICK or run_tests(root, mutant.tests, markers)[0]):
            return failed
    return ""


def main() -> int:
    words = sys.argv[1:]
    chosen = [m for m in MUTANTS if not words or any(word in m.name for word in words)]
    for mutant in chosen:
        source_of(mutant, ROOT)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="plake-mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(WORKERS):
            copies.put(make_copy(Path(folder) / str(number)))
        root = copies.get()
        check_copy(root, chosen)
        copies.put(root)

        def killed_by(mutant: Mutant) -> str:
            root = copies.get()
            try:
                return killer(mutant, root)
            finally:
                copies.put(root)

        print("| wrong rule | where | killed by |")
        print("|---|---|---|")
        killed = 0
        with ThreadPoolExecutor(WORKERS) as pool:
            for mutant, test in zip(chosen, pool.map(killed_by, chosen)):
                print(f"| {mutant.name} | {mutant.file} | {test or '**survived**'} |", flush=True)
                killed += bool(test)
    print(f"\n{killed} of {len(chosen)} mutants killed in {time.perf_counter() - started:.0f} s")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
