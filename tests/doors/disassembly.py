"""The instructions of a jar as text that two builds can be compared by."""

from __future__ import annotations

import re
import subprocess
import tempfile
import zipfile
from pathlib import Path


def disassembled(jar: Path, javac: str) -> str:
    """The members and instructions of all classes, as the `javap` beside a `javac` prints them.

    Two compilers number the constants and lambdas of a class differently, which changes the
    lengths of instructions too, and write other frames of types for the verifier. None of that is
    in this text: jumps name the place of an instruction in its method.
    """
    javap = Path(javac).resolve().with_name("javap")
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(jar) as archive:
            archive.extractall(folder)
        files = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.class"))
        done = subprocess.run(
            [str(javap), "-p", "-c", "-constants", *files],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
    text = re.sub(r"[ \t]+", " ", re.sub(r"#\d+(:\d+)?", "#", done.stdout.replace("ldc_w", "ldc")))
    text = re.sub(r"(lambda\$\w+\$)\d+", r"\1", text)
    head, *methods = text.split(" Code:\n")
    return head + "".join(" Code:\n" + _with_places(method) for method in methods)


def _with_places(method: str) -> str:
    """The text of a method with places of instructions where offsets of bytes were."""
    offsets = re.findall(r"^ (\d+): [a-z]", method, re.MULTILINE)
    places = {offset: f"@{place}" for place, offset in enumerate(offsets)}

    def place(found: re.Match[str]) -> str:
        return found[1] + " ".join(places.get(word, "@end") for word in found[2].split())

    method = re.sub(r"^( (?:-?\d+|default): )(\d+)$", place, method, flags=re.MULTILINE)
    method = re.sub(r"^( \d+: (?:if\w*|goto\w*) )(\d+)$", place, method, flags=re.MULTILINE)
    method = re.sub(r"^( )(\d+ \d+ \d+)(?= )", place, method, flags=re.MULTILINE)
    return re.sub(r"^ \d+: (?=[a-z])", " ", method, flags=re.MULTILINE)
