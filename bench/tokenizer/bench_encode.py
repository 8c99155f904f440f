# SPDX-License-Identifier: Apache-2.0
"""Encode on one thread: ours beside the `tokenizers` and `sentencepiece` packages, on the same texts, passes taken in turns.

    INFLIGHT_BIN_DIR=build/release/bin python bench/tokenizer/bench_encode.py [--repeats N] [--only NAME] [--tokenizer FILE]...

Without --tokenizer, tokenizers of each family are trained on one half of the sources of Python's library and timed on
the other half (texts of about 2 KiB, as prompts are). The packages get all texts in one call, their quickest way
(`tokenizers`: encode_batch_fast, without offsets). Prints CSV; MB are 10^6 bytes of UTF-8; spread is (max - min) / median
over the passes.
"""

import argparse
import csv
import functools
import io
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
import sentencepiece  # noqa: E402
import texts  # noqa: E402
from tokenizer_driver import Driver  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

TEXT_CHARS = 2048
VOCAB_SIZE = 32000
SENTENCEPIECE_VOCAB_SIZE = 16000
SENTENCEPIECE_SENTENCES = 60000
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


def train_sentencepiece(model_type, sources, **options):
    lines = [line for source in sources for line in source.splitlines() if line.strip()]
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines[:SENTENCEPIECE_SENTENCES] + texts.SAMPLES[1:]),
        model_writer=out,
        model_type=model_type,
        vocab_size=SENTENCEPIECE_VOCAB_SIZE,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return out.getvalue()


def makers(sources):
    """What saves one tokenizer per family to a path, by name."""
    recipes.training_texts = lambda: cut(sources)
    llama = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
    packages = {
        "gpt2": lambda: recipes._byte_level(vocab_size=VOCAB_SIZE),
        "llama3": lambda: recipes._byte_level(recipes.LLAMA3, vocab_size=VOCAB_SIZE, edit=recipes._set_model(ignore_merges=True)),
        "llama2": lambda: recipes._metaspace("normalizers", VOCAB_SIZE),
        "metaspace": lambda: recipes._metaspace("first", VOCAB_SIZE),
    }
    models = {
        "sentencepiece bpe": lambda: train_sentencepiece("bpe", sources, allow_whitespace_only_pieces=True, **llama),
        "sentencepiece unigram": lambda: train_sentencepiece("unigram", sources, **llama),
        "sentencepiece unigram nmt_nfkc": lambda: train_sentencepiece("unigram", sources),
    }

    def save_json(make, folder):
        make().save(str(folder / "tokenizer.json"))
        return folder / "tokenizer.json"

    def save_model(make, folder):
        (folder / "tokenizer.model").write_bytes(make())
        return folder / "tokenizer.model"

    saves = {name: functools.partial(save_json, make) for name, make in packages.items()}
    return saves | {name: functools.partial(save_model, make) for name, make in models.items()}


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
    if path.suffix == ".model":
        reply = driver.load(path.parent)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        encode_all = functools.partial(processor.encode, corpus, num_threads=1)
    else:
        reply = driver.load(path)
        oracle = Tokenizer.from_file(str(path))
        encode_all = functools.partial(oracle.encode_batch_fast, corpus, add_special_tokens=False)
    assert "error" not in reply, reply
    ours, theirs, num_ids = [], [], None
    for i in range(repeats + 1):  # the first pass of each warms up
        reply = driver.call(op="time_encode", path=str(corpus_path), repeats=1)
        start = time.perf_counter()
        encodings = encode_all()
        seconds = time.perf_counter() - start
        num_ids = sum(len(getattr(encoding, "ids", encoding)) for encoding in encodings)
        assert num_ids == reply["num_ids"], (num_ids, reply["num_ids"])
        if i > 0:
            ours += reply["seconds"]
            theirs.append(seconds)
    driver.close()
    return ours, theirs, num_ids


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--tokenizer", action="append", default=[], help="a tokenizer.json or tokenizer.model to time")
    parser.add_argument("--only", default="", help="train and time those whose names hold this")
    args = parser.parse_args()

    sources = library_sources()
    corpus = cut(sources[1::2])
    num_bytes = sum(len(text.encode()) for text in corpus)
    writer = csv.writer(sys.stdout)
    writer.writerow(COLUMNS)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        saves = {path: lambda _, path=path: pathlib.Path(path) for path in args.tokenizer} or makers(sources[0::2])
        corpus_path = folder / "corpus.json"
        corpus_path.write_text(json.dumps(corpus))
        for name, save in saves.items():
            if args.only not in name:
                continue
            (folder / name.replace("/", "_")).mkdir()
            path = save(folder / name.replace("/", "_"))
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
