"""Random programs of changes to rows through plain Python."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.row_programs import Program

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "property"


@pytest.mark.timeout(7200)
@settings(max_examples=2000 if THOROUGH else 15, phases=(Phase.explicit, Phase.generate))
@given(seed=st.integers(0, 2**32))
def test_a_dataset_has_the_rows_of_the_model(seed: int, tmp_path_factory: Any) -> None:
    program = Program(tmp_path_factory.mktemp("program"), seed)
    program.run(program.draw.randint(3, 12))
    assert program.dataset.verify(checksums=True).ok
