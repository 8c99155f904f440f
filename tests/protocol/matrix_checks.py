# SPDX-License-Identifier: Apache-2.0
"""What parameters mean: checks of one row's answer, each (request, answer, reference).

`reference` is test_matrix's: answers of the core where no road is tested. Greedy ids, log-probs, penalties are worked out here,
from raw logits.
"""

import re

import numpy as np
import pytest
from matrix_client import VOCAB_SIZE, ids_of, text_of_token

PLAIN = {"max_tokens": 8, "end_id": -1}
FALLING = {"top_p": 1.0, "temperature": 50.0, "random_seed": 11, "top_p_decay": 1e-6, "top_p_min": 1e-6}
BLOCK_TOKENS = 64  # of the KV cache, where --kv-block-size is not given


def is_greedy(request, answer, reference):
    assert answer.text == reference.plain(request).text


def is_not_greedy(request, answer, reference):
    assert answer.text != reference.plain(request).text


def has_its_length(request, answer, reference):
    assert reference.ids(request, answer) == reference.plain(request).ids[: request["max_tokens"]]


def never_repeats(request, answer, reference):
    """A penalty of 1000 leaves no token a chance that stands in the prompt or came before."""
    ids = reference.ids(request, answer)
    assert len(ids) == request["max_tokens"] == len(set(ids))
    assert not set(ids) & set(ids_of(request["text"]))


def ends_before_its_end_id(request, answer, reference):
    full = reference.plain(request).ids
    assert reference.ids(request, answer) == full[: full.index(request["end_id"])]


def reaches_its_minimum(request, answer, reference):
    """Without it there would be no token at all, since the end id is the first one."""
    ids = reference.ids(request, answer)
    assert len(ids) >= request["min_length"]
    assert request["end_id"] not in ids


def ends_with_its_stop_word(request, answer, reference):
    full, word = reference.plain(request).text, request["stop_words"][0]
    assert answer.text == full[: full.index(word) + len(word)] != full


def ends_before_its_stop_word(request, answer, reference):
    full, word = reference.plain(request).text, request["stop_words"][0]
    assert answer.text == full[: full.index(word)]


def matches_its_expression(request, answer, reference):
    texts = answer.beams if "beam_width" in request else [answer.text]
    assert all(re.fullmatch(request["guided_decoding_guide"], text) for text in texts), texts


def has_log_probs(request, answer, reference):
    log_probs = answer.floats("output_log_probs")
    assert len(log_probs) == len(reference.ids(request, answer))
    assert (log_probs <= 0).all() and (log_probs < 0).any()
    assert answer.last("cum_log_probs") == pytest.approx(log_probs.sum(), abs=1e-3)


def soft_maxed_logits_are_log_probs(request, answer, reference):
    ids = reference.ids(request, answer)
    logits = answer.floats("generation_logits").reshape(len(ids), VOCAB_SIZE).astype(np.float64)
    log_probs = logits - logits.max(1, keepdims=True)
    log_probs -= np.log(np.exp(log_probs).sum(1, keepdims=True))
    assert log_probs[np.arange(len(ids)), ids] == pytest.approx(answer.floats("output_log_probs"), abs=1e-4)
    assert logits.argmax(1).tolist() == ids


def has_logits_of_every_prompt_token(request, answer, reference):
    prompt_len = len(ids_of(request["text"]))
    logits = answer.floats("context_logits").reshape(-1, VOCAB_SIZE)  # padded where another row is longer
    assert len(logits) >= prompt_len and not logits[prompt_len:].any()
    assert (logits[prompt_len - 1] == answer.floats("generation_logits")[:VOCAB_SIZE]).all()
    assert logits[prompt_len - 1].argmax() == reference.ids(request, answer)[0]


def has_its_prompt(request, answer, reference):
    rest = reference.plain(request).text
    assert answer.text == (rest if answer.is_streamed else request["text"] + rest)


def has_times_in_order(request, answer, reference):
    names = ("arrival_time_ns", "first_scheduled_time_ns", "first_token_time_ns", "last_token_time_ns")
    times = [answer.last(name) for name in names]
    assert 0 < times[0] <= times[1] <= times[2] <= times[3]
    total, reused, new = (answer.last(f"kv_cache_{name}_blocks") for name in ("alloc_total", "reused", "alloc_new"))
    assert total == new
    assert new + reused == -(-len(ids_of(request["text"])) // BLOCK_TOKENS), "blocks of the prompt, as upstream counts them"


def has_its_beams(request, answer, reference):
    width = request["beam_width"]
    assert answer.beams == reference.ask(request).beams
    assert len(set(answer.beams)) == width
    cum = answer.responses[-1]["cum_log_probs"].reshape(-1)
    log_probs = answer.responses[-1]["output_log_probs"].reshape(width, -1)
    # Without an end id all beams have max_tokens tokens: the shorter sum is the better one.
    assert log_probs.shape[1] >= request["max_tokens"] and not log_probs[:, request["max_tokens"] :].any()
    assert log_probs.sum(1) == pytest.approx(cum, abs=1e-3)
    assert (np.diff(cum) <= 1e-6).all() and (log_probs <= 0).all()


def never_says_its_bad_word(request, answer, reference):
    """The core bans the ids that it is given, a pipeline the text."""
    (word,) = request["bad_words"]
    if "output_ids" in answer.responses[0]:
        (banned,) = (i for i in reference.plain(request).ids if text_of_token(i) == word)
        assert len(answer.ids) == request["max_tokens"] and banned not in answer.ids
    else:
        never_writes_its_bad_text(request, answer, reference)


def never_writes_its_bad_text(request, answer, reference):
    without = {name: value for name, value in request.items() if name != "bad_words"}
    (word,) = request["bad_words"]
    assert word in reference.ask(without).text
    texts = answer.beams if "beam_width" in request else [answer.text]
    assert len(texts) == request.get("beam_width", 1)
    assert all(texts) and not any(word in text for text in texts)


def says_only_its_word(request, answer, reference):
    assert answer.text == request["embedding_bias_words"][0] * request["max_tokens"]


def never_says_its_word(request, answer, reference):
    (word,) = request["embedding_bias_words"]
    assert word in reference.plain(request).text and word not in answer.text


def penalised(logits, request, ids, ignored):
    """The ids that a greedy answer has under the penalties of the request, by its raw logits."""
    seen, best = ids_of(request["text"])[ignored:], []
    for row, chosen in zip(logits, ids, strict=True):
        counts = np.bincount(seen, minlength=VOCAB_SIZE)
        scale = request.get("repetition_penalty", 1.0)
        row = np.where(counts > 0, np.where(row < 0, row * scale, row / scale), row)
        best.append(int((row - request.get("presence_penalty", 0.0) * (counts > 0)).argmax()))
        seen.append(chosen)
    return best


def follows_its_penalties(request, answer, reference):
    ids = reference.ids(request, answer)
    logits = answer.floats("generation_logits").reshape(len(ids), VOCAB_SIZE).astype(np.float64)
    ignored = request.get("prompt_ignore_length", 0)
    assert ids == penalised(logits, request, ids, ignored)
    assert ids != logits.argmax(1).tolist()
    if ignored:
        assert ids != penalised(logits, request, ids, 0)


def is_most_typical(request, answer, reference):
    """So little mass is asked for that one token is left each time: the one whose information is nearest to the entropy."""
    ids = reference.ids(request, answer)
    logits = answer.floats("generation_logits").reshape(len(ids), VOCAB_SIZE).astype(np.float64) / request["temperature"]
    log_p = logits - logits.max(1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(1, keepdims=True))
    entropy = -(np.exp(log_p) * log_p).sum(1, keepdims=True)
    shifts = np.abs(-log_p - entropy)
    assert shifts[np.arange(len(ids)), ids] == pytest.approx(shifts.min(1), abs=1e-4)
    assert ids != logits.argmax(1).tolist()


def falls_to_greedy(request, answer, reference):
    ids = reference.ids(request, answer)
    best = answer.floats("generation_logits").reshape(len(ids), VOCAB_SIZE).argmax(1).tolist()
    assert ids[0] != best[0] and ids[1:] == best[1:]


def falls_not(request, answer, reference):
    without = {name: value for name, value in request.items() if name not in ("top_p_decay", "top_p_min")}
    assert answer.text == reference.ask(without).text


def rises_after_its_reset_id(request, answer, reference):
    ids = reference.ids(request, answer)
    fallen = reference.ask({**FALLING, **PLAIN, "text": request["text"]}).ids
    assert ids[:2] == fallen[:2] and fallen[1] == request["top_p_reset_ids"] and ids[2:] != fallen[2:]


def searches_to_the_best(request, answer, reference):
    """Scores are sums: a search that goes on until nothing can be better ends with no worse ones, here with better ones."""
    early = reference.ask({**request, "early_stopping": True})
    assert answer.beams == reference.ask(request).beams != early.beams
    scores = answer.responses[-1]["cum_log_probs"].reshape(-1)
    assert (np.diff(scores) <= 1e-6).all()
    assert (scores >= early.responses[-1]["cum_log_probs"].reshape(-1) - 1e-4).all()


def goes_on_from_the_last_beam(request, answer, reference):
    """Its bonus is above all log-probs: both tokens of each beam follow the third likeliest first one."""
    first = reference.ask({"text": request["text"], **PLAIN, "max_tokens": 1, "return_generation_logits": True})
    third = int(np.argsort(first.floats("generation_logits"))[-3])
    of_core = reference.ask(request).responses[-1]
    lengths = of_core["sequence_length"].tolist()
    assert of_core["output_ids"].reshape(len(lengths), -1)[:, 0].tolist() == [third] * len(lengths)
    assert answer.beams == reference.ask(request).beams


def pads_its_shorter_beams(request, answer, reference):
    assert answer.beams == reference.ask(request).beams
    last = answer.responses[-1]
    if "output_ids" not in last:
        return  # texts have no padding
    lengths = last["sequence_length"].tolist()
    rows = last["output_ids"].reshape(len(lengths), -1)[:, : max(lengths)].tolist()  # other rows may be longer
    assert min(lengths) < max(lengths) or request["text"] == "Once upon a time there was"  # its beams end together
    assert all(set(row[n:]) <= {request["pad_id"]} for row, n in zip(rows, lengths, strict=True))


def has_its_sequences(request, answer, reference):
    texts = {}
    for response in answer.responses:
        index = int(response["sequence_index"].reshape(-1)[0])
        texts.setdefault(index, []).append(response)
    assert sorted(texts) == list(range(request["num_return_sequences"]))
    for index, responses in texts.items():
        alone = {**request, "num_return_sequences": 1, "random_seed": request["random_seed"] + index}
        assert type(answer)(answer.is_streamed, responses).text == reference.ask(alone).text
    assert len({type(answer)(True, responses).text for responses in texts.values()}) > 1


def has_its_likeliest_tokens(request, answer, reference):
    count, num_tokens = request["num_top_log_probs"], request["max_tokens"]
    logits = answer.floats("generation_logits").reshape(num_tokens, VOCAB_SIZE).astype(np.float64)
    log_probs = logits - logits.max(1, keepdims=True)
    log_probs -= np.log(np.exp(log_probs).sum(1, keepdims=True))
    best = np.argsort(-log_probs, axis=1)[:, :count]
    assert answer.floats("top_log_prob_ids").reshape(num_tokens, count).tolist() == best.tolist()
    expected = np.take_along_axis(log_probs, best, 1)
    assert answer.floats("top_log_probs").reshape(num_tokens, count) == pytest.approx(expected, abs=1e-4)


def counts_its_tokens(request, answer, reference):
    assert {int(r["num_input_tokens"].reshape(-1)[0]) for r in answer.responses} == {len(ids_of(request["text"]))}
    assert answer.floats("num_output_tokens").sum() == len(reference.ids(request, answer)) == request["max_tokens"]


def finds_its_prompt_in_the_cache(request, answer, reference):
    """All whole blocks before the last token, whose logits have to be computed."""
    blocks = (len(ids_of(request["text"])) - 1) // BLOCK_TOKENS
    assert blocks > 0
    assert {int(r["num_cached_tokens"].reshape(-1)[0]) for r in answer.responses} == {blocks * BLOCK_TOKENS}
    assert answer.last("kv_cache_reused_blocks") == blocks
    assert answer.last("kv_cache_alloc_total_blocks") == answer.last("kv_cache_alloc_new_blocks") == 1


def ends_for(reason):
    def check(request, answer, reference):
        assert answer.strings("finish_reason") == [reason]

    return check


def repeats_with_its_seed(request, answer, reference):
    is_not_greedy(request, answer, reference)
    assert answer.text == reference.ask(request).text
    other = reference.ask({**request, "random_seed": request["random_seed"] + 100})
    assert answer.text != other.text
