# SPDX-License-Identifier: Apache-2.0
"""Every parameter through every road: {http, grpc} x {ensemble, bls, core} x {whole, stream} x {1, 3 rows}.

A parameter is an entry of PARAMETERS: what it adds to a row, and a check of what it means. Requests are written
once, in the words of the ensemble; `matrix_client` turns them into the tensors of each model, and answers into rows.
Whole answers come from models that answer once, those of several rows also from decoupled ones, whose streams these
are.
"""

import contextlib
import json

import matrix_checks as means
import pytest
from live_server import DEMO, SAME_AMONG_OTHERS, start_server
from matrix_checks import FALLING, PLAIN
from matrix_client import MODELS, TOKENIZER, Road, ask, text_of_token
from release_repositories import OURS, write_repository
from tritonclient.utils import InferenceServerException

FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "exclude_input_in_output": "True"}
PROMPTS = ["Tell me a story about a fox.", "What is the capital of", "Once upon a time there was"]
HOT = {"temperature": 20.0, "top_k": 50}
REFERENCE = Road("http", "tensorrt_llm", stream=False, num_rows=1)


class Reference:
    """Answers of the core to one row, where no road is tested: ids, which pipelines do not answer with."""

    def __init__(self, server):
        self.server, self.answers = server, {}

    def ask(self, request):
        key = json.dumps(request)
        if key not in self.answers:
            self.answers[key] = ask(self.server, REFERENCE, [request])[0]
        return self.answers[key]

    def plain(self, request):
        """The greedy answer to a row's prompt."""
        return self.ask({"text": request["text"], **PLAIN})

    def ids(self, request, answer):
        """The ids of an answer; of a pipeline's, those whose text, decoded by the tokenizers package, it answered."""
        if "output_ids" in answer.responses[0]:
            return answer.ids
        of_core = self.ask(request)
        assert answer.text == of_core.text
        return of_core.ids


@contextlib.contextmanager
def served(work_dir, decoupled):
    """The five models of the newest release with all tensors."""
    repository = write_repository(work_dir / "repository", OURS, **FILLED, decoupled_mode=str(decoupled))
    server = start_server(work_dir, None, "--model-repository", repository, *SAME_AMONG_OTHERS)
    yield Reference(server)
    assert server.stop() == 0, server.log.read_text()[-4000:]


@pytest.fixture(scope="module")
def decoupled(tmp_path_factory):
    with served(tmp_path_factory.mktemp("decoupled"), True) as reference:
        yield reference


@pytest.fixture(scope="module")
def answering_once(tmp_path_factory):
    with served(tmp_path_factory.mktemp("once"), False) as reference:
        yield reference


# --- the table: name -> (what is added to a row, check); a function gets the row's prompt and the reference ---


def greedy_id(index):
    return lambda prompt, reference: reference.plain({"text": prompt}).ids[index]


def word_on_the_way(prompt, reference):
    """A word of one token in the middle of what would come, where it comes first."""
    answer = reference.plain({"text": prompt})
    words = [text_of_token(i) for i in answer.ids[2:-1]]
    return [next(w for w in words if w and w.strip() and answer.text.count(w) == 1)]


def text_across_tokens(prompt, reference):
    """From within a token of what would come into the next one, where it comes first."""
    answer = reference.plain({"text": prompt})
    begins = [len(TOKENIZER.decode(answer.ids[:n])) for n in range(1, len(answer.ids))]
    texts = [answer.text[at - 1 : at + 2] for at in begins if at > 3]
    return [next(t for t in texts if len(t) == 3 and t.isascii() and answer.text.count(t) == 1)]


def known_prompt(prompt, reference):
    """One of several blocks, that was asked before."""
    text = prompt + " " + " ".join(f"{n} and" for n in range(60))
    reference.plain({"text": text})
    return text


# Searches that end earlier with worse answers: the prompt, and which of its greedy ids is the end.
SEARCHED = {PROMPTS[0]: (PROMPTS[0], 2), PROMPTS[1]: (PROMPTS[1], 4), PROMPTS[2]: (PROMPTS[1], 4)}


def searched_prompt(prompt, reference):
    return SEARCHED[prompt][0]


def searched_end_id(prompt, reference):
    text, index = SEARCHED[prompt]
    return reference.plain({"text": text}).ids[index]


def second_id_of_fallen(prompt, reference):
    return reference.ask({**FALLING, **PLAIN, "text": prompt}).ids[1]


def by_prompt(*values):
    return lambda prompt, reference: values[PROMPTS.index(prompt)]


PARAMETERS = {
    "max_tokens": ({"max_tokens": by_prompt(3, 4, 5)}, means.has_its_length),
    "top_k": ({"temperature": 5.0, "top_k": 1}, means.is_greedy),
    "top_p": ({"temperature": 5.0, "top_p": 1e-6}, means.is_greedy),
    "temperature": ({"temperature": 1e-3, "top_k": 50, "random_seed": 3}, means.is_greedy),
    "random_seed": ({**HOT, "random_seed": by_prompt(1, 2, 3)}, means.repeats_with_its_seed),
    "presence_penalty": ({"presence_penalty": 1000.0}, means.never_repeats),
    "frequency_penalty": ({"frequency_penalty": 1000.0}, means.never_repeats),
    "end_id": ({"end_id": greedy_id(3)}, means.ends_before_its_end_id),
    "min_length": ({"end_id": greedy_id(0), "min_length": by_prompt(2, 3, 4)}, means.reaches_its_minimum),
    "stop_words": ({"stop_words": word_on_the_way}, means.ends_with_its_stop_word),
    "stop_text": ({"stop_words": text_across_tokens, "include_stop_str_in_output": True}, means.ends_with_its_stop_word),
    "trimmed_stop_text": (
        {"stop_words": text_across_tokens, "include_stop_str_in_output": False}, means.ends_before_its_stop_word,
    ),
    "return_log_probs": ({"return_log_probs": True}, means.has_log_probs),
    "return_generation_logits": (
        {"return_log_probs": True, "return_generation_logits": True}, means.soft_maxed_logits_are_log_probs,
    ),
    "return_context_logits": (
        {"return_context_logits": True, "return_generation_logits": True}, means.has_logits_of_every_prompt_token,
    ),
    "beam_width": ({"beam_width": 3, "length_penalty": 1.0, "return_log_probs": True}, means.has_its_beams),
    "exclude_input_in_output": ({"exclude_input_in_output": False}, means.has_its_prompt),
    "return_perf_metrics": ({"return_perf_metrics": True}, means.has_times_in_order),
    "bad_words": ({"bad_words": word_on_the_way}, means.never_says_its_bad_word),
    "bad_text": ({"bad_words": text_across_tokens}, means.never_writes_its_bad_text),
    "bad_text_of_beams": ({"bad_words": text_across_tokens, "beam_width": 3}, means.never_writes_its_bad_text),
    "bad_letter": ({**HOT, "random_seed": 5, "max_tokens": 24, "bad_words": ["e"]}, means.never_writes_its_bad_text),
    "embedding_bias": ({"embedding_bias_words": [" fox"], "embedding_bias_weights": [1000.0]}, means.says_only_its_word),
    "negative_embedding_bias": (
        {"embedding_bias_words": word_on_the_way, "embedding_bias_weights": [-1000.0]}, means.never_says_its_word,
    ),
    "repetition_penalty": (
        {"repetition_penalty": 5.0, "max_tokens": 24, "return_generation_logits": True}, means.follows_its_penalties,
    ),
    "prompt_ignore_length": (
        {"presence_penalty": 1000.0, "prompt_ignore_length": 1000, "max_tokens": 24, "return_generation_logits": True},
        means.follows_its_penalties,
    ),
    "guide": (
        {
            "guided_decoding_guide_type": "regex", "guided_decoding_guide": by_prompt("(ab|c){4}x", "[0-9]{3}", "fox|bear"),
            "max_tokens": 24,
        },
        means.matches_its_expression,
    ),
    "guide_of_beams": (
        {
            "guided_decoding_guide_type": "regex", "guided_decoding_guide": "[a-c]{3}", "max_tokens": 24, "beam_width": 3,
            "end_id": greedy_id(0),
        },
        means.matches_its_expression,
    ),
    "min_p": ({"temperature": 5.0, "min_p": 1.0, "random_seed": 3}, means.is_greedy),
    "small_min_p": ({"temperature": 20.0, "min_p": 1e-6, "random_seed": by_prompt(1, 2, 3)}, means.repeats_with_its_seed),
    "typical_p": (
        {"temperature": 3.0, "typical_p": 1e-6, "random_seed": 3, "return_generation_logits": True}, means.is_most_typical,
    ),
    "typical_p_of_one": ({"typical_p": 1.0}, means.is_greedy),
    "top_p_decay": ({**FALLING, "return_generation_logits": True}, means.falls_to_greedy),
    "top_p_min": ({**FALLING, "top_p_min": 1.0}, means.falls_not),
    "top_p_reset_ids": ({**FALLING, "top_p_reset_ids": second_id_of_fallen}, means.rises_after_its_reset_id),
    "no_repeat_ngram_size": ({"no_repeat_ngram_size": 1}, means.never_repeats),
    "early_stopping": (
        {"text": searched_prompt, "beam_width": 4, "early_stopping": False, "end_id": searched_end_id, "return_log_probs": True},
        means.searches_to_the_best,
    ),
    "beam_search_diversity_rate": (
        {"beam_width": 3, "max_tokens": 2, "beam_search_diversity_rate": 1000.0}, means.goes_on_from_the_last_beam,
    ),
    "pad_id": ({"beam_width": 3, "pad_id": 5, "end_id": greedy_id(3)}, means.pads_its_shorter_beams),
    "num_return_sequences": ({**HOT, "random_seed": 7, "num_return_sequences": 2}, means.has_its_sequences),
    "num_top_log_probs": ({"num_top_log_probs": 3, "return_generation_logits": True}, means.has_its_likeliest_tokens),
    "token_counts": ({"return_num_input_tokens": True, "return_num_output_tokens": True}, means.counts_its_tokens),
    "cache_reuse": (
        {"text": known_prompt, "return_num_cached_tokens": True, "return_perf_metrics": True},
        means.finds_its_prompt_in_the_cache,
    ),
    "finish_length": ({"return_finish_reason": True}, means.ends_for("length")),
    "finish_end_id": ({"return_finish_reason": True, "end_id": greedy_id(3)}, means.ends_for("end_id")),
    "finish_stop_words": ({"return_finish_reason": True, "stop_words": word_on_the_way}, means.ends_for("stop_words")),
}  # fmt: skip


OF_TEXTS = {"bad_text", "bad_text_of_beams", "bad_letter"}  # the core knows ids alone


def roads():
    for transport in ("http", "grpc"):
        for model in MODELS:
            for stream in (False, True):
                for num_rows in (1, 3):
                    yield Road(transport, model, stream, num_rows)


def cases(takes):
    """Of roads that `takes` is true for."""
    for road in filter(takes, roads()):
        for name, (added, _) in PARAMETERS.items():
            if road.can_send(added) and not (road.model == "tensorrt_llm" and name in OF_TEXTS):
                yield pytest.param(road, name, id=f"{road}-{name}")


def expect_what_it_means(reference, road, name):
    added, check = PARAMETERS[name]
    rows = []
    for prompt in PROMPTS[: road.num_rows]:
        values = {key: value(prompt, reference) if callable(value) else value for key, value in added.items()}
        rows.append({"text": prompt, **PLAIN, **values})
    if name == "num_return_sequences" and not road.stream:
        with pytest.raises(InferenceServerException, match=r"a single response|one response|decoupled"):
            ask(reference.server, road, rows)
        return
    answers = ask(reference.server, road, rows)
    assert len(answers) == len(rows)
    for request, answer in zip(rows, answers, strict=True):
        check(request, answer, reference)


@pytest.mark.parametrize(("road", "name"), list(cases(lambda road: road.stream or road.num_rows > 1)))
def test_parameter_of_decoupled_models(decoupled, road, name):
    expect_what_it_means(decoupled, road, name)


@pytest.mark.parametrize(("road", "name"), list(cases(lambda road: not road.stream)))
def test_parameter_of_models_that_answer_once(answering_once, road, name):
    expect_what_it_means(answering_once, road, name)


@pytest.mark.parametrize("road", [road for road in roads() if road.stream and road.can_send({})], ids=str)
def test_a_model_that_answers_once_has_no_streams(answering_once, road):
    rows = [{"text": prompt, **PLAIN} for prompt in PROMPTS[: road.num_rows]]
    with pytest.raises(InferenceServerException, match="Streaming is only supported if model is"):
        ask(answering_once.server, road, rows)
