# SPDX-License-Identifier: Apache-2.0
"""Python packages are pinned: pip itself takes what scripts/pin_python.py lists and refuses a file of other bytes."""

import hashlib
import pathlib
import re
import subprocess
import sys
import zipfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import pin_python

ROOT = pin_python.ROOT
LISTS = ("requirements.txt", "clients.txt", "demo.txt", "triton_server.txt")


def wheel(folder, content):
    """A package `thing` 1.0 with one module."""
    path, about = folder / "thing-1.0-py3-none-any.whl", "thing-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing.py", content)
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def install(tmp_path):
    """What pip says when it installs `thing` from a folder by the text of a requirements file."""
    pytest.importorskip("pip", reason="this machine's Python has no pip, which refuses packages by hash")

    def get(text):
        (tmp_path / "requirements.txt").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "pip", "install", "--isolated", "--no-index", "--find-links", tmp_path,
             "--target", tmp_path / "out", "-r", tmp_path / "requirements.txt"],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    return get


def test_the_listed_file_is_installed_and_another_under_its_name_is_not(tmp_path, install):
    digest = hashlib.sha256(wheel(tmp_path, "good = True\n").read_bytes()).hexdigest()
    text = pin_python.text_of({"thing": {"1.0": {digest, "0" * 64}}})
    done = install(text)
    assert done.returncode == 0, done.stderr
    wheel(tmp_path, "good = False\n")
    done = install(text)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


def test_a_package_without_a_hash_is_refused(tmp_path, install):
    wheel(tmp_path, "good = True\n")
    done = install(pin_python.HEAD + "thing==1.0\n")
    assert done.returncode != 0
    assert "Hashes are required in --require-hashes mode" in done.stderr


def test_what_targets_resolve_differently_is_not_written():
    with pytest.raises(SystemExit, match=r"thing: the targets resolve to versions 1\.0, 2\.0"):
        pin_python.text_of({"thing": {"1.0": {"a"}, "2.0": {"b"}}})


@pytest.mark.parametrize("name", pin_python.FILES)
def test_the_committed_file_has_all_that_is_asked_for_each_with_a_hash(name):
    text, asked = (ROOT / f"tests/{name}.txt").read_text(), pin_python.pins((ROOT / f"tests/{name}.in").read_text())
    assert text.startswith(pin_python.HEAD)
    pinned = pin_python.pins(text)
    assert asked
    assert asked.items() <= pinned.items()
    hashes = re.findall(r"^[\w.-]+==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", text, re.MULTILINE)
    assert len(hashes) == len(pinned)


def test_a_part_of_another_file_has_its_lines():
    for name, whole in pin_python.PART_OF.items():
        part, lines = ((ROOT / f"tests/{file}.txt").read_text().removeprefix(pin_python.HEAD) for file in (name, whole))
        blocks = re.findall(r"^[\w.-]+==.*(?:\n    --hash.*)+\n", part, re.MULTILINE)
        assert len(blocks) > 3 and "".join(blocks) == part
        assert [block for block in blocks if block not in lines] == []


def test_scripts_install_python_packages_by_files_of_hashes_alone():
    found = {}
    for path in [*ROOT.glob("scripts/*"), *ROOT.glob(".ci/*")]:
        if path.is_file() and path.suffix in (".sh", ""):
            for line in re.findall(r".*\bpip3? install\b.*", path.read_text()):
                if "--no-index" in line:  # a file that is there, and nothing beside it
                    continue
                found.setdefault(path.name, []).append(line.split("pip install", 1)[1].split())
    assert list(found) == ["install_deps.sh"]
    for words in found["install_deps.sh"]:
        assert words[-2] == "-r" and words[-1].removeprefix("tests/") in LISTS
        assert "\n--require-hashes\n" in (ROOT / words[-1]).read_text()
        assert all(word.startswith("-") for word in words[:-2])
