"""The wrong rules of `integration/mutation.py` still say what the code says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

SCRIPT = Path(__file__).parents[1] / "integration" / "mutation.py"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutation", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutation"] = module  # its dataclasses look their module up
    spec.loader.exec_module(module)
    return module


mutation = _load()


def test_the_text_of_every_mutant_stands_in_the_code_once() -> None:
    for mutant in mutation.MUTANTS:
        mutation.source_of(mutant, mutation.ROOT)


def test_the_tests_of_every_mutant_exist() -> None:
    tests = {test for mutant in mutation.MUTANTS for test in mutant.tests}
    assert [test for test in sorted(tests) if not (mutation.ROOT / "tests" / test).exists()] == []
