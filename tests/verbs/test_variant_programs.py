"""Random programs of changes to rows with VARIANT through plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakehouse_source as lake
from tests.variant_programs import Program

pytestmark = pytest.mark.slow

FEW = range(3)


@pytest.mark.parametrize(
    "seed", [*FEW, *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 100))]
)
def test_a_dataset_has_the_rows_of_the_model(tmp_path: Path, seed: int) -> None:
    Program(tmp_path, seed).run(8)
    assert lake.open_dataset(tmp_path / "data").verify(checksums=True).ok
