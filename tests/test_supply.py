"""What is installed: bounds and locked versions that no known advisory is about."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def advisories() -> Any:
    script = ROOT / "integration" / "advisories.py"
    if not script.exists() or not (ROOT / "requirements.lock").exists():
        pytest.skip("needs a checkout")
    spec = importlib.util.spec_from_file_location("advisories", script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_bound_and_no_locked_version_is_known_to_be_vulnerable(advisories: Any) -> None:
    assert advisories.main() == 0


def test_a_vulnerable_version_is_found(advisories: Any) -> None:
    known = advisories.advisories("# a comment\n\nTq_Dm 4.66.3 GHSA-1 runs code\n")
    found = advisories.vulnerable(advisories.lowest(["tq-dm>=4.64,<5", "tq.dm>=4.66.3"]), known)
    assert [(package, str(version)) for package, version, _ in found] == [("tq-dm", "4.64")]
    assert list(advisories.vulnerable(advisories.lowest(["tq-dm"]), known))


def test_the_lock_fits_what_the_project_requires(advisories: Any) -> None:
    locked = [Requirement(text) for text in advisories.locked()]
    for text in advisories.required():
        wanted = Requirement(text)
        name = advisories.canonicalize_name(wanted.name)
        found = [one for one in locked if advisories.canonicalize_name(one.name) == name]
        # No test needs s3fs, whose pins would hold back others, as those of dbt would:
        # `integration/dbt_suites.py` has an environment of its own.
        assert found or name in ("s3fs", "dbt-core", "dbt-spark"), (
            f"requirements.lock lacks {text}: run make lock"
        )
        for one in found:
            (version,) = (specifier.version for specifier in one.specifier)
            assert wanted.specifier.contains(version), f"{one}, not {text}: run make lock"


def test_the_lock_has_hashes_and_no_address(advisories: Any) -> None:
    whole, *shares = (
        (ROOT / f"requirements{name}.lock").read_text() for name in ("", "-build", "-demo")
    )
    for text in (whole, *shares):
        assert "://" not in text
        assert "--index" not in text
        for entry in re.split(r"\n(?=\S)", text):
            assert "--hash=sha256:" in entry, entry
    versions = set(re.findall(r"^\S+==[^\s;]+", whole, re.MULTILINE))
    for share in shares:
        assert set(re.findall(r"^\S+==[^\s;]+", share, re.MULTILINE)) <= versions


def test_setup_becomes_root_only_where_it_is_asked_to(tmp_path: Path) -> None:
    """`make setup` ran sudo where it needed no password, and did not say so."""
    script = ROOT / "integration" / "java.sh"
    if not script.exists():
        pytest.skip("needs a checkout")
    ran = tmp_path / "ran"
    for name, text in {
        "sudo": f'echo "sudo $*" >> {ran}',
        "id": "echo 1000",
        "apt-get": f'echo "apt-get $*" >> {ran}',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "java_home.sh").write_text("JAVA_MAJOR= JAVAC= JAVAC_MAJOR=0\n")
    (tmp_path / "java.sh").write_text(script.read_text())

    def run(**more: str) -> str:
        environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **more}
        done = subprocess.run(
            ["sh", str(tmp_path / "java.sh")], capture_output=True, text=True, env=environment
        )
        assert done.returncode == 1
        return done.stderr

    assert "not running as root: apt-get update -q (PLAKE_SUDO=1 allows sudo)" in run()
    assert not ran.exists()
    assert "running: sudo -n apt-get update -q" in run(PLAKE_SUDO="1")
    assert ran.read_text().startswith("sudo -n apt-get update")
