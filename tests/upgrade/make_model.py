#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the model of the upgrade tests, and what transformers says it says.

    python tests/upgrade/make_model.py      needs torch (CPU), transformers, tokenizers, safetensors

A Llama of 64 letters and marks learns in a minute which day comes after which, so well that its greedy answers are the
same in float32, bfloat16, int8 and int4: an answer that differs is a fault of what was read, and no matter of rounding.

    model/            a Hugging Face directory, float32, with a tokenizer and a chat template
    expected.json     what AutoTokenizer and LlamaForCausalLM make of it: for each text and conversation the ids of the
                      prompt, greedy ids up to the end, their text; the smallest gap between the two best logits on the
                      way
"""

import json
import pathlib
import shutil

import tokenizers
import torch
import transformers

FOLDER = pathlib.Path(__file__).parent
SEED = 2026
STEPS = 2500
LENGTH = 64
NUM_GREEDY = 32
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
BEGIN, END, TURN, PAD = "<s>", "</s>", "<|turn|>", "<|pad|>"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,?!:'-+"
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|turn|>{{ message['role'] }}: {{ message['content'] | trim }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant:{% endif %}"
)


def after(day):
    return DAYS[(DAYS.index(day) + 1) % 7]


def texts():
    """What it learns: the days in their order, and questions about them, plain and as conversations."""
    for start in range(7):
        yield BEGIN + " ".join(DAYS[(start + i) % 7] for i in range(7)) + END
    for day in DAYS:
        yield f"{BEGIN}after {day} comes {after(day)}.{END}"
        first = f"{BEGIN}{TURN}user: after {day}?{TURN}assistant: {after(day)}.{END}"
        yield first
        for other in DAYS:
            yield f"{first}{TURN}user: and after {other}?{TURN}assistant: {after(other)}.{END}"


def make_tokenizer():
    specials = [BEGIN, END, TURN, PAD]
    pieces = [*specials, "Ġ", "Ċ", *LETTERS]
    merges = [("d", "a"), ("da", "y"), ("Ġ", "a"), ("e", "r"), ("f", "t"), ("u", "r"), ("s", "day"), ("n", "day"),
              ("ft", "er"), ("Ġa", "fter"), ("a", "fter"), ("s", "er"), ("u", "ser"), ("e", "s")]  # fmt: skip
    pieces += [a + b for a, b in merges]
    assert len(pieces) == len(set(pieces)) == 64
    model = tokenizers.models.BPE(vocab={piece: i for i, piece in enumerate(pieces)}, merges=merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.add_special_tokens([tokenizers.AddedToken(text, special=True) for text in specials])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=[(BEGIN, tokenizer.token_to_id(BEGIN))]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=PAD, chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False, model_max_length=256,
    )  # fmt: skip


def make_model(tokenizer):
    torch.manual_seed(SEED)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    rows = [tokenizer(text, add_special_tokens=False).input_ids for text in texts()]
    assert max(map(len, rows)) <= LENGTH
    ids = torch.tensor([row + [tokenizer.pad_token_id] * (LENGTH - len(row)) for row in rows])
    labels = ids.masked_fill(ids == tokenizer.pad_token_id, -100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(STEPS):
        chosen = torch.randperm(len(ids))[:32]
        loss = model(input_ids=ids[chosen], labels=labels[chosen]).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 250 == 0:
            print(step, round(loss.item(), 4))
    return model.eval()


@torch.no_grad()
def greedy(model, tokenizer, ids):
    """{ids, greedy, text, gap} of the prompt `ids`."""
    sequence, gaps = list(ids), []
    while len(sequence) < len(ids) + NUM_GREEDY and (len(sequence) == len(ids) or sequence[-1] != tokenizer.eos_token_id):
        best = model(torch.tensor([sequence])).logits[0, -1].topk(2)
        gaps.append((best.values[0] - best.values[1]).item())
        sequence.append(best.indices[0].item())
    said = sequence[len(ids) :]
    text = tokenizer.decode(said, skip_special_tokens=True)
    return {"ids": list(ids), "greedy": said, "text": text, "gap": round(min(gaps), 3)}


def main():
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    shutil.rmtree(FOLDER / "model", ignore_errors=True)
    model.save_pretrained(FOLDER / "model")
    tokenizer.save_pretrained(FOLDER / "model")
    texts_asked = ("after monday comes", "after sunday", "wednesday thursday")
    questions = ("after friday?", "and after sunday?")
    conversations = [[{"role": "user", "content": questions[0]}]]
    conversations.append(
        [*conversations[0], {"role": "assistant", "content": "saturday."}, {"role": "user", "content": questions[1]}]
    )
    expected = {
        "texts": [{"prompt": text, **greedy(model, tokenizer, tokenizer(text).input_ids)} for text in texts_asked],
        "conversations": [
            {
                "messages": messages,
                **greedy(
                    model,
                    tokenizer,
                    tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False),
                ),
            }
            for messages in conversations
        ],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
    }
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    for case in [*expected["texts"], *expected["conversations"]]:
        print(case.get("prompt") or case["messages"][-1]["content"], "->", repr(case["text"]), case["gap"])


if __name__ == "__main__":
    main()
