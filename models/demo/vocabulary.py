# SPDX-License-Identifier: Apache-2.0
"""The tokenizer: byte-level BPE over the training text, special tokens and chat template in the manner of Llama 3."""

import json
from pathlib import Path

import corpus
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCAB_SIZE = 2048
MAX_LENGTH = 1024

# Words take one space or mark in front, digits stand alone (so that sums can be learned digit by digit).
SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    " + message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
    "{{ content }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")


def train(num_documents: int) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(corpus.SPECIAL_TOKENS), show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator(_texts(num_documents), trainer)
    if tokenizer.get_vocab_size() != VOCAB_SIZE - len(corpus.SPECIAL_TOKENS):
        raise ValueError(f"the sample gave only {tokenizer.get_vocab_size()} tokens; take more documents")
    tokenizer.add_special_tokens(list(corpus.SPECIAL_TOKENS))
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{corpus.BEGIN} $A", pair=f"{corpus.BEGIN} $A {corpus.BEGIN}:1 $B:1",
        special_tokens=[(corpus.BEGIN, tokenizer.token_to_id(corpus.BEGIN))])
    return tokenizer


def _texts(num_documents: int):
    stream = corpus.documents(shard=-1)
    for _ in range(num_documents):
        for text, _ in next(stream):
            for token in corpus.SPECIAL_TOKENS:
                text = text.replace(token, "\n")
            yield text


def save(tokenizer: Tokenizer, folder: Path) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = {"bos_token": corpus.BEGIN, "eos_token": corpus.EOT, "pad_token": corpus.END}
    decoder = {str(tokenizer.token_to_id(t)): {"content": t, "lstrip": False, "normalized": False, "rstrip": False,
                                              "single_word": False, "special": True} for t in corpus.SPECIAL_TOKENS}
    config = {"added_tokens_decoder": decoder, **tokens, "chat_template": CHAT_TEMPLATE, "clean_up_tokenization_spaces": False,
              "model_input_names": ["input_ids", "attention_mask"], "model_max_length": MAX_LENGTH,
              "tokenizer_class": "PreTrainedTokenizerFast"}
    write_json(folder / "tokenizer_config.json", config)
    write_json(folder / "special_tokens_map.json", tokens)


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
