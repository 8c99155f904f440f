# SPDX-License-Identifier: Apache-2.0
"""Encode on one thread: ours beside the `tokenizers` package, on the same texts, passes taken in turns.

    INFLIGHT_BIN_DIR=build/release/bin python bench/tokenizer/bench_encode.py [--repeats N] [--tokenizer FILE]...

Without --tokenizer, tokenizers of each family are trained on one half of the sources of Python's library and timed on
the other half (texts of about 2 KiB, as prompts are). The package runs encode_batch_fast, its quickest way: no offsets,
and one call for all texts. Prints CSV; MB are 10^6 bytes of UTF-8; spread is (max - min) / median over the passes.
"""

import argparse
import csv
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tokenizer"))

import recipes  # noqa: E402
import texts  # noqa: E402
from tokenizer_driver import Driver  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

TEXT_CHARS = 2048
VOCAB_SIZE = 32000
COLUMNS = [
    "device", "commit", "tokenizer", "bytes", "ids", "inflight_mb_per_s", "inflight_spread", "package_mb_per_s",
    "package_spread", "ratio",
]  # fmt: skip


def library_sources():
    folder = pathlib.Path(os.__file__).parent
    sources = []
    for path in sorted(folder.glob("*.py")) + sorted(folder.glob("[a-t]*/*.py")):
        if "test" not in str(path) and "site-packages" not in str(path):
            sources.append(path.read_text(encoding="utf-8", errors="replace"))
    return sources


def cut(sources):
    joined = "\n".join(sources)
    pieces = [joined[i : i + TEXT_CHARS] for i in range(0, len(joined), TEXT_CHARS)]
    # A tenth of the text is of other scripts, emoji and symbols.
    samples = "\n".join(texts.SAMPLES)
    mixed = [samples[:TEXT_CHARS]] * (len(pieces) // 10)
    return pieces + mixed


def trained(folder, sources):
    """Files of one tokenizer per family, by name."""
    recipes.training_texts = lambda: cut(sources)
    files = {}
    for name, make in {
        "gpt2": lambda: recipes._byte_level(vocab_size=VOCAB_SIZE),
        "llama3": lambda: recipes._byte_level(recipes.LLAMA3, vocab_size=VOCAB_SIZE, edit=recipes._set_model(ignore_merges=True)),
        "llama2": lambda: recipes._metaspace("normalizers", VOCAB_SIZE),
        "metaspace": lambda: recipes._metaspace("first", VOCAB_SIZE),
    }.items():
        print(f"training {name}", file=sys.stderr)
        files[name] = folder / f"{name}.json"
        make().save(str(files[name]))
    return files


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def commit():
    result = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    return result.stdout.strip() or "unknown"


def time_passes(path, corpus, corpus_path, repeats):
    """Seconds of every pass of ours and of the package's, and whether the number of ids agrees."""
    driver = Driver()
    reply = driver.load(path)
    assert "error" not in reply, reply
    oracle = Tokenizer.from_file(str(path))
    ours, theirs, num_ids = [], [], None
    for i in range(repeats + 1):  # the first pass of each warms up
        reply = driver.call(op="time_encode", path=str(corpus_path), repeats=1)
        start = time.perf_counter()
        encodings = oracle.encode_batch_fast(corpus, add_special_tokens=False)
        seconds = time.perf_counter() - start
        num_ids = sum(len(encoding.ids) for encoding in encodings)
        assert num_ids == reply["num_ids"], (num_ids, reply["num_ids"])
        if i > 0:
            ours += reply["seconds"]
            theirs.append(seconds)
    driver.close()
    return ours, theirs, num_ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--tokenizer", action="append", default=[], help="a tokenizer.json to time")
    args = parser.parse_args()

    sources = library_sources()
    corpus = cut(sources[1::2])
    num_bytes = sum(len(text.encode()) for text in corpus)
    writer = csv.writer(sys.stdout)
    writer.writerow(COLUMNS)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files = {path: pathlib.Path(path) for path in args.tokenizer} or trained(folder, sources[0::2])
        corpus_path = folder / "corpus.json"
        corpus_path.write_text(json.dumps(corpus))
        for name, path in files.items():
            ours, theirs, num_ids = time_passes(path, corpus, corpus_path, args.repeats)
            row = [cpu_name(), commit(), name, num_bytes, num_ids]
            for seconds in (ours, theirs):
                median = statistics.median(seconds)
                row += [f"{num_bytes / median / 1e6:.1f}", f"{(max(seconds) - min(seconds)) / median:.2f}"]
            row.append(f"{statistics.median(theirs) / statistics.median(ours):.2f}")
            writer.writerow(row)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
