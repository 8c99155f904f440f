# SPDX-License-Identifier: Apache-2.0
"""Each member of a request that the published clients can send is read, or refused by its name: none is unknown."""

import anthropic
import openai
import pytest
import requests
from anthropic.types import MessageCountTokensParams
from anthropic.types import message_create_params as messages
from anthropic.types.beta import message_create_params as beta_messages
from openai.types import completion_create_params as completions
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses

QUESTION = [{"role": "user", "content": "Hi"}]
SENT = {
    "/v1/chat/completions": (chat.CompletionCreateParamsBase, {"messages": QUESTION}),
    "/v1/completions": (completions.CompletionCreateParamsBase, {"prompt": "Hi"}),
    "/v1/responses": (responses.ResponseCreateParamsBase, {"input": "Hi"}),
    "/v1/messages": (messages.MessageCreateParamsBase, {"messages": QUESTION, "max_tokens": 1}),
    "/v1/messages?beta=true": (beta_messages.MessageCreateParamsBase, {"messages": QUESTION, "max_tokens": 1}),
    "/v1/messages/count_tokens": (MessageCountTokensParams, {"messages": QUESTION}),
}  # fmt: skip
HEADERS = {"betas", "user_profile_id", "workspace_id"}  # what the client sends beside the body
NO_VALUE = {"nobody would": [{"send": "this"}]}  # of no member


def members(params):
    """Of the body."""
    return sorted(set(params.__annotations__) - HEADERS)


def test_the_clients_have_the_members_that_everybody_sends():
    """So that the test below says something."""
    for path, (params, body) in SENT.items():
        assert {"model", *body} <= set(members(params)), path
    assert {"temperature", "tools", "prompt_cache_key"} <= set(members(chat.CompletionCreateParamsBase))
    assert openai.__version__ and anthropic.__version__


@pytest.mark.parametrize("path", SENT)
def test_each_member_of_a_client_is_known_by_its_name(server, path):
    params, body = SENT[path]
    for name in members(params):
        answer = requests.post(f"http://{server.http}{path}", json={**body, name: NO_VALUE}, timeout=60)
        assert answer.status_code == 400, (name, answer.text)
        error = answer.json()["error"]
        assert error["message"].startswith(name), error
        assert not error["message"].startswith(f"{name}: is not a member"), error
        if path.startswith(("/v1/chat", "/v1/comp", "/v1/resp")):
            assert error["param"].split(".")[0].split("[")[0] == name, error
