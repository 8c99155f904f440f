# SPDX-License-Identifier: Apache-2.0
"""Every parameter through every road: {http, grpc} x {ensemble, bls, core} x {whole, stream} x {1, 3 rows}.

A parameter is an entry of PARAMETERS: what it adds to a row, and a check of what it means. Requests are written once, in the
words of the ensemble; `matrix_client` turns them into the tensors of each model, and answers into rows.
"""

import json

import numpy as np
import pytest
from live_server import DEMO, require_grpc, start_server
from matrix_client import MODELS, Road, ask, ids_of, text_of_token
from release_repositories import write_repository
from tritonclient.utils import InferenceServerException

FILLED = {"engine_dir": DEMO, "tokenizer_dir": DEMO, "exclude_input_in_output": "True"}
VOCAB_SIZE = json.loads((DEMO / "config.json").read_text())["vocab_size"]
PROMPTS = ["Tell me a story about a fox.", "What is the capital of", "Once upon a time there was"]
PLAIN = {"max_tokens": 8, "end_id": -1}
HOT = {"temperature": 20.0, "top_k": 50}
REFERENCE = Road("http", "tensorrt_llm", stream=False, num_rows=1)


@pytest.fixture(scope="module", params=["decoupled", "not decoupled"])
def matrix_server(request, tmp_path_factory):
    """The five models of the newest release, once decoupled and once not."""
    work_dir = tmp_path_factory.mktemp("matrix")
    decoupled = request.param == "decoupled"
    repository = write_repository(work_dir / "repository", 19, **FILLED, decoupled_mode=str(decoupled))
    server = start_server(work_dir, None, "--model-repository", repository)
    server.decoupled = decoupled
    yield server
    assert server.stop() == 0, server.log.read_text()[-4000:]


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


@pytest.fixture(scope="module")
def reference(matrix_server):
    return Reference(matrix_server)


# --- checks of one row ---


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
    assert total == reused + new >= 1


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


def repeats_with_its_seed(request, answer, reference):
    is_not_greedy(request, answer, reference)
    assert answer.text == reference.ask(request).text
    other = reference.ask({**request, "random_seed": request["random_seed"] + 100})
    assert answer.text != other.text


# --- the table: name -> (what is added to a row, check); a function gets the row's prompt and the reference ---


def greedy_id(index):
    return lambda prompt, reference: reference.plain({"text": prompt}).ids[index]


def word_on_the_way(prompt, reference):
    """A word of one token in the middle of what would come, where it comes first."""
    answer = reference.plain({"text": prompt})
    words = [text_of_token(i) for i in answer.ids[2:-1]]
    return [next(w for w in words if w and w.strip() and answer.text.count(w) == 1)]


def by_prompt(*values):
    return lambda prompt, reference: values[PROMPTS.index(prompt)]


PARAMETERS = {
    "max_tokens": ({"max_tokens": by_prompt(3, 4, 5)}, has_its_length),
    "top_k": ({"temperature": 5.0, "top_k": 1}, is_greedy),
    "top_p": ({"temperature": 5.0, "top_p": 1e-6}, is_greedy),
    "temperature": ({"temperature": 1e-3, "top_k": 50, "random_seed": 3}, is_greedy),
    "random_seed": ({**HOT, "random_seed": by_prompt(1, 2, 3)}, repeats_with_its_seed),
    "presence_penalty": ({"presence_penalty": 1000.0}, never_repeats),
    "frequency_penalty": ({"frequency_penalty": 1000.0}, never_repeats),
    "end_id": ({"end_id": greedy_id(3)}, ends_before_its_end_id),
    "min_length": ({"end_id": greedy_id(0), "min_length": by_prompt(2, 3, 4)}, reaches_its_minimum),
    "stop_words": ({"stop_words": word_on_the_way}, ends_with_its_stop_word),
    "return_log_probs": ({"return_log_probs": True}, has_log_probs),
    "return_generation_logits": (
        {"return_log_probs": True, "return_generation_logits": True}, soft_maxed_logits_are_log_probs,
    ),
    "return_context_logits": (
        {"return_context_logits": True, "return_generation_logits": True}, has_logits_of_every_prompt_token,
    ),
    "beam_width": ({"beam_width": 3, "length_penalty": 1.0, "return_log_probs": True}, has_its_beams),
    "exclude_input_in_output": ({"exclude_input_in_output": False}, has_its_prompt),
    "return_perf_metrics": ({"return_perf_metrics": True}, has_times_in_order),
}  # fmt: skip


def roads():
    for transport in ("http", "grpc"):
        for model in MODELS:
            for stream in (False, True):
                for num_rows in (1, 3):
                    yield Road(transport, model, stream, num_rows)


def cases():
    for road in roads():
        for name, (added, _) in PARAMETERS.items():
            if road.can_send(added):
                yield pytest.param(road, name, id=f"{road}-{name}")


@pytest.mark.parametrize(("road", "name"), list(cases()))
def test_parameter(matrix_server, reference, road, name):
    if road.transport == "grpc":
        require_grpc(matrix_server)
    added, check = PARAMETERS[name]
    rows = []
    for prompt in PROMPTS[: road.num_rows]:
        values = {key: value(prompt, reference) if callable(value) else value for key, value in added.items()}
        rows.append({"text": prompt, **PLAIN, **values})
    if road.stream and not matrix_server.decoupled:
        with pytest.raises(InferenceServerException, match="Streaming is only supported if model is"):
            ask(matrix_server, road, rows)
        return
    answers = ask(matrix_server, road, rows)
    assert len(answers) == len(rows)
    for request, answer in zip(rows, answers, strict=True):
        check(request, answer, reference)
