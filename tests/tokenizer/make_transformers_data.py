# SPDX-License-Identifier: Apache-2.0
"""Makes data/transformers: small tokenizer.model files (also seeds of the fuzzer), and what transformers makes of them.

    pip install "transformers==4.57.6" "sentencepiece==0.2.3" protobuf
    python tests/tokenizer/make_transformers_data.py

Each case is a directory's JSON files and, for each text, ids and texts by AutoTokenizer (the fast class, as TensorRT-LLM
backend's preprocessing loads it, with `legacy` as the case says). cases.json names the versions.
"""

import io
import json
import pathlib
import tempfile

import sentencepiece
import transformers
from sentencepiece import sentencepiece_model_pb2
from texts import SAMPLES

OUT = pathlib.Path(__file__).parent / "data" / "transformers"
SEEDS = pathlib.Path(__file__).parents[1] / "fuzz" / "seeds" / "tokenizer_model"
CORPUS = [
    "The quick brown fox jumps over the lazy dog.", "Hello world, hello again; how are you today?",
    "Numbers 1 2 3 4 5 6 7 8 9 0 and 2026.", "def f(x): return x + 1", "naïve café résumé", "日本語のテキスト", "Привет, мир!",
    *SAMPLES[1:5],
]  # fmt: skip
TEXTS = [
    "", "Hello world", " Hello world", "  two blanks", "hello", "x", "Hello  world \n new line\n\n", "<s>Hello</s>",
    "Hello</s> world", "Hello</s>world", "<s> Hello", "[INST] Hello [/INST]", "a<unk>b", "<pad>", "x<pad> y",
    "caf\u00e9 日本 \U0001f44d", "▁Hello", "<extra_id_0> x <extra_id_1>", "quick<mask>fox", "quick <mask> fox", "1234", "\tTab",
    "Hello<user>there", "<|im_start|>user\nHi<|im_end|>",
]  # fmt: skip


def train(model_type, **options):
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 3), model_writer=out, model_type=model_type, hard_vocab_limit=False, num_threads=1,
        minloglevel=2, **options,
    )  # fmt: skip
    return out.getvalue()


def train_t5():
    """T5's own rules (nmt_nfkc) fill 240 KB; these few make blanks of control characters, as those do."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        rules.write("9\t20\nA\t20\n3000\t20\nFB01\t66 69\n")
        rules.flush()
        model = train("unigram", vocab_size=300, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, normalization_rule_tsv=rules.name)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    proto.normalizer_spec.normalization_rule_tsv = ""
    return proto.SerializeToString()


def models():
    llama = {
        "byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "split_digits": True,
        "allow_whitespace_only_pieces": True, "vocab_size": 480, "character_coverage": 0.99,
    }  # fmt: skip
    return {
        "llama": train("bpe", **llama),
        "llama_user": train("bpe", user_defined_symbols=["<user>", "[INST]"], **llama),
        "t5": train_t5(),
    }


def added(content, special):
    return {"content": content, "special": special, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}


LLAMA = {"tokenizer_class": "LlamaTokenizer"}
CASES = {
    "llama": ("llama", False, {"tokenizer_config.json": LLAMA}),
    "llama by model_type": ("llama", False, {"config.json": {"model_type": "llama"}}),
    "llama legacy": ("llama", True, {"tokenizer_config.json": {**LLAMA, "legacy": True}}),
    "llama not legacy": ("llama", False, {"tokenizer_config.json": {**LLAMA, "legacy": False}}),
    "llama bos and eos": ("llama", False, {"tokenizer_config.json": {**LLAMA, "add_eos_token": True}}),
    "llama no bos": ("llama", False, {"tokenizer_config.json": {**LLAMA, "add_bos_token": False, "add_eos_token": True}}),
    "llama user defined": ("llama_user", False, {"tokenizer_config.json": LLAMA}),
    "llama user defined, legacy": ("llama_user", True, {"tokenizer_config.json": {**LLAMA, "legacy": True}}),
    "llama added_tokens.json": (
        "llama",
        False,
        {
            "tokenizer_config.json": LLAMA,
            "added_tokens.json": {"<pad>": 480, "<mask>": 481},
            "special_tokens_map.json": {"pad_token": "<pad>", "bos_token": {**added("<s>", True)}},
        },
    ),
    "llama added_tokens_decoder": (
        "llama",
        False,
        {
            "tokenizer_config.json": {
                **LLAMA,
                "added_tokens_decoder": {
                    "0": added("<unk>", True), "1": added("<s>", True), "2": added("</s>", True),
                    "480": added("<|im_start|>", True), "481": added("<|im_end|>", True), "482": added("<user>", False),
                },
                "eos_token": "<|im_end|>",
                "add_eos_token": True,
            }
        },
    ),
    "llama additional special": (
        "llama",
        False,
        {
            "tokenizer_config.json": LLAMA,
            "special_tokens_map.json": {"additional_special_tokens": ["[INST]", "[/INST]"], "pad_token": "<pad>"},
        },
    ),
    "t5": ("t5", False, {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer"}}),
    "t5 legacy, few extra ids": (
        "t5", True, {"tokenizer_config.json": {"tokenizer_class": "T5Tokenizer", "extra_ids": 3, "legacy": True}},
    ),
}  # fmt: skip


def expected(name, model, legacy, files):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "tokenizer.model").write_bytes(model)
        (folder / "spiece.model").write_bytes(model)  # the name that T5Tokenizer looks for
        for file, content in files.items():
            (folder / file).write_text(json.dumps(content))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, legacy=legacy)
    assert tokenizer.is_fast
    results = []
    for text in TEXTS:
        ids = tokenizer.encode(text)
        results.append(
            {
                "text": text,
                "ids": ids,
                "plain_ids": tokenizer.encode(text, add_special_tokens=False),
                "decoded": tokenizer.decode(ids, clean_up_tokenization_spaces=False),
                "decoded_plain": tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False),
            }
        )
    special = {key: getattr(tokenizer, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return {"name": name, "files": files, "special_ids": special, "texts": results}


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    SEEDS.mkdir(parents=True, exist_ok=True)
    trained = models()
    for name, model in trained.items():
        (OUT / f"{name}.model").write_bytes(model)
        (SEEDS / name).write_bytes(model + b"\0")  # the fuzzer's last byte: no text of its own
    cases = []
    for name, (model, legacy, files) in CASES.items():
        cases.append({"model": model, **expected(name, trained[model], legacy, files)})
    about = {"transformers": transformers.__version__, "sentencepiece": sentencepiece.__version__}
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases)
    (OUT / "cases.json").write_text(f'{{"versions": {json.dumps(about)}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
