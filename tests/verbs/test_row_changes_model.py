"""Random programs of changes to rows through plain Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import lakehouse_source as lake
from tests.row_programs import CONDITIONS, Program

pytestmark = pytest.mark.slow

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"


class ProgramWithBranches(Program):
    """Statements on branches that the dataset takes over, and files of other writers, too."""

    def weighted(self) -> list[tuple[Callable[[], None], int]]:
        return [*super().weighted(), (self.on_a_branch, 2), (self.add_file, 2)]

    def on_a_branch(self) -> None:
        condition = self.draw.choice(CONDITIONS)
        self.steps[-1] += f" {condition}"
        table = self.rows(self.draw.randint(0, 4))
        branch = self.dataset.branch("work")
        branch.delete(condition)
        lake.write_dataset(table, branch.uri)
        if self.draw.random() < 0.5:
            branch.compact()
        self.check()
        self.dataset.fast_forward("work")
        self.dataset.drop_branch("work")
        self.oracle.execute(f"DELETE FROM t WHERE {condition}")
        self.insert_into_oracle(table)

    def add_file(self) -> None:
        folder = self.path / f"added {len(self.steps)}"
        table = self.rows(self.draw.randint(1, 6))
        stored = table
        if self.dataset.partition_by:
            value = self.draw.randint(0, 2)
            values = pa.array([value] * table.num_rows, pa.int32())
            table = table.set_column(table.schema.get_field_index("p"), "p", values)
            folder, stored = folder / f"p={value}", table.drop_columns("p")
        folder.mkdir(parents=True)
        pq.write_table(stored, folder / "rows.parquet", row_group_size=self.draw.choice([1, 100]))
        self.dataset.add_files(folder / "rows.parquet")
        self.insert_into_oracle(table)


@pytest.mark.timeout(7200)
@settings(max_examples=2000 if THOROUGH else 3, phases=(Phase.explicit, Phase.generate))
@given(seed=st.integers(0, 2**32))
def test_a_dataset_has_the_rows_of_the_model(seed: int, tmp_path_factory: Any) -> None:
    program = ProgramWithBranches(tmp_path_factory.mktemp("program"), seed)
    program.run(program.draw.randint(3, 12))
    assert program.dataset.verify(checksums=True).ok
