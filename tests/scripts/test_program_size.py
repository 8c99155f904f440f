# SPDX-License-Identifier: Apache-2.0
"""scripts/program_size.py: whose a symbol is, and the bytes of a program whose functions and tables are known."""

import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import program_size


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("inflight::openai::Router::Find(std::string_view) const", "inflight::openai"),
        ("inflight::openai::(anonymous namespace)::kRows", "inflight::openai"),
        ("void inflight::ops::Panel<float, (inflight::DType)1>::Run(int)::{lambda(int)#1}::operator()(int) const",
         "inflight::ops"),
        ("vtable for google::protobuf::Message", "google::protobuf"),
        ("guard variable for inflight::kv_cache::Pool::Get()::pool", "inflight::kv_cache"),
        ("std::vector<inflight::ops::Weight, std::allocator<inflight::ops::Weight> >::reserve(unsigned long)", "std"),
        ("inflight::Status::ToString[abi:cxx11]() const", "inflight::Status"),
        ("std::ostream& nlohmann::operator<< <int>(std::ostream&, int)", "nlohmann"),
        ("main", "C and assembler"),
    ],
)  # fmt: skip
def test_whose_a_symbol_is(name, owner):
    assert program_size.owner(name) == owner


def test_bytes_of_a_program(tmp_path):
    source = tmp_path / "main.cc"
    source.write_text(
        "namespace inflight::big { extern const char table[300000]; const char table[300000] = {1}; }\n"
        "namespace inflight::zeros { extern char room[900000]; char room[900000]; }\n"
        "int main(int argc, char**) { return inflight::big::table[argc] + inflight::zeros::room[argc]; }\n"
    )
    subprocess.run(["c++", source, "-o", tmp_path / "program"], check=True, timeout=60)
    command = [sys.executable, program_size.__file__, tmp_path / "program", "--symbols", "1"]
    text = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    assert text.startswith("0.3 MB without symbols\n")
    sections, owners, symbols = (part.splitlines()[1:] for part in text.split("\n\n")[1:])
    assert sections[0].endswith("  .rodata")
    assert owners[0].split() == ["300", "kB", owners[0].split()[2], "%", "inflight::big"]
    assert not any("zeros" in line for line in owners), "zeros take no bytes of a file"
    assert symbols[0].endswith("  inflight::big::table")
