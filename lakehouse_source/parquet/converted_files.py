"""Edge. Files that Arrow cannot scan as they are: converted when a scan opens them.

`ConvertedFiles` is a file system for Arrow. Opening one of its files reads a row group of a
data file through plake and gives the rows as a Parquet file in memory, with the names, types
and defaults of the version that is read. So a dataset holds no rows, and a scan holds those
of the few row groups that it has open.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from lakehouse_source.model import ScanTask
from lakehouse_source.parquet.reader import read_task
from lakehouse_source.parquet.spec import ReadSpec
from lakehouse_source.storage import Storage


class ConvertedFiles(fs.FileSystemHandler):  # type: ignore[misc]
    """The row groups of tasks as files with all columns of a version but partition columns."""

    def __init__(self, spec: ReadSpec, storage: Storage) -> None:
        names = tuple(name for name in spec.schema.names if name not in spec.partition_by)
        self._spec = replace(spec, columns=names, predicate=None)
        self._storage = storage
        self._tasks: dict[str, ScanTask] = {}

    def add(self, task: ScanTask) -> Iterator[str]:
        """Add the row groups of a task; answers the path of each."""
        for group in task.row_groups or ():
            path = f"{self._storage.path(task.path)}#{group}"
            self._tasks[path] = replace(task, row_groups=(group,), filtered=False)
            yield path

    def open_input_file(self, path: str) -> pa.BufferReader:
        tables = list(read_task(self._spec, self._tasks[path], self._storage, alone=True))
        table = pa.concat_tables(tables) if tables else self._spec.output_schema.empty_table()
        sink = pa.BufferOutputStream()
        # Without statistics nothing is pruned by them. Arrow keeps the footer of the first time
        # it opens a file: the same rows give the same bytes again.
        pq.write_table(
            table, sink, compression="none", use_dictionary=False, write_statistics=False
        )
        return pa.BufferReader(sink.getvalue())

    def open_input_stream(self, path: str) -> pa.BufferReader:
        return self.open_input_file(path)

    def get_type_name(self) -> str:
        return "plake"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        kinds = {True: fs.FileType.File, False: fs.FileType.NotFound}
        return [fs.FileInfo(path, kinds[path in self._tasks]) for path in paths]

    def _refuse(self, *_arguments: Any, **_options: Any) -> NoReturn:
        raise NotImplementedError("files of a scan can only be opened for reading")

    get_file_info_selector = _refuse
    create_dir = _refuse
    delete_dir = _refuse
    delete_dir_contents = _refuse
    delete_root_dir_contents = _refuse
    delete_file = _refuse
    move = _refuse
    copy_file = _refuse
    open_output_stream = _refuse
    open_append_stream = _refuse
