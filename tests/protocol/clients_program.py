# SPDX-License-Identifier: Apache-2.0
"""Runs in .venv-clients, which has other packages than the tests: asks a server by clients and prints JSON with what each
understood: {client: {"chat": text, "stream": [texts], "call": what it makes of a call or a structured answer}}, or of
instructor_guided {mode: what it made}.

usage: clients_program.py URL CLIENT...
"""

import json
import os
import sys
import typing

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # nothing is asked of anybody but the server
MODEL, KEY = "scripted", "none"
QUESTION = "How is the weather?"


def langchain(url):
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def get_weather(city: str) -> str:
        """Weather of a city."""
        return city

    llm = ChatOpenAI(model=MODEL, base_url=url, api_key=KEY, max_retries=0)
    (call,) = llm.bind_tools([get_weather]).invoke(QUESTION).tool_calls
    return {
        "chat": llm.invoke(QUESTION).content,
        "stream": [chunk.content for chunk in llm.stream(QUESTION)],
        "call": [call["name"], call["args"]],
    }


def litellm(url, provider="openai"):
    from litellm import completion

    options = {"model": f"{provider}/{MODEL}", "api_base": url, "api_key": KEY, "num_retries": 0}
    messages = [{"role": "user", "content": QUESTION}]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    (call,) = completion(messages=messages, tools=tools, **options).choices[0].message.tool_calls
    return {
        "chat": completion(messages=messages, **options).choices[0].message.content,
        "stream": [c.choices[0].delta.content or "" for c in completion(messages=messages, stream=True, **options)],
        "call": [call.function.name, json.loads(call.function.arguments)],
    }


def litellm_anthropic(url):
    """By the messages API, whose address has no /v1."""
    return litellm(url.removesuffix("/v1"), "anthropic")


def instructor(url):
    import instructor as library
    import openai
    import pydantic

    class Weather(pydantic.BaseModel):
        city: str

    plain = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    client = library.from_openai(plain, mode=library.Mode.MD_JSON)
    messages = [{"role": "user", "content": QUESTION}]
    found = client.chat.completions.create(model=MODEL, messages=messages, response_model=Weather, max_retries=0)
    partial = client.chat.completions.create_partial(model=MODEL, messages=messages, response_model=Weather, max_retries=0)
    return {
        "chat": plain.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content,
        "stream": [str(part.city or "") for part in partial][-1:],
        "call": ["get_weather", found.model_dump()],
    }


def instructor_guided(url):
    """The modes in which the server has to see to it that the answer fits."""
    import instructor as library
    import openai
    import pydantic

    class Forecast(pydantic.BaseModel):
        city: typing.Literal["Bonn", "Ulm"]
        days: typing.Annotated[int, pydantic.Field(ge=1, le=3)]

    plain = openai.OpenAI(base_url=url, api_key=KEY, max_retries=0)
    messages = [{"role": "user", "content": QUESTION}]
    made = {}
    for mode in (library.Mode.TOOLS, library.Mode.TOOLS_STRICT, library.Mode.JSON_SCHEMA, library.Mode.RESPONSES_TOOLS):
        client = library.from_openai(plain, mode=mode)
        found = client.chat.completions.create(model=MODEL, messages=messages, response_model=Forecast, max_retries=0)
        made[mode.name] = found.model_dump()
    return made


def llama_index(url):
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike

    def get_weather(city: str) -> str:
        """Weather of a city."""
        return city

    llm = OpenAILike(
        model=MODEL, api_base=url, api_key=KEY, is_chat_model=True, is_function_calling_model=True, max_retries=0,
        context_window=2048,
    )  # fmt: skip
    messages = [ChatMessage(role="user", content=QUESTION)]
    answer = llm.chat_with_tools([FunctionTool.from_defaults(get_weather)], user_msg=QUESTION)
    (call,) = llm.get_tool_calls_from_response(answer)
    return {
        "chat": llm.chat(messages).message.content,
        "stream": [part.delta or "" for part in llm.stream_chat(messages)],
        "call": [call.tool_name, call.tool_kwargs],
    }


CLIENTS = {
    "langchain": langchain, "litellm": litellm, "litellm_anthropic": litellm_anthropic, "instructor": instructor,
    "instructor_guided": instructor_guided, "llama_index": llama_index,
}  # fmt: skip

if __name__ == "__main__":
    print(json.dumps({client: CLIENTS[client](sys.argv[1]) for client in sys.argv[2:]}))
