# SPDX-License-Identifier: Apache-2.0
"""Conversations for the templates: turns, white space, scripts, parts, calls."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": 'Tells the weather <now> & "here"',
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string"}, "days": {"type": "integer", "default": 3, "bounds": [1, 7.5]}},
            "required": ["place"],
        },
        "return": "text",
    },
}

CALL = [
    {"role": "user", "content": "What is the weather in Köln?"},
    {"role": "assistant", "content": "", "tool_calls": [
        {"id": "abcdefghi", "type": "function",
         "function": {"name": "weather", "arguments": {"place": "Köln", "days": 2, "exact": True, "unit": None}}}]},
    {"role": "tool", "content": "Rain,\n12 °C"},
]  # fmt: skip

CONVERSATIONS = {
    "one_turn": {"messages": [{"role": "user", "content": "Hello"}]},
    "white_space": {"messages": [
        {"role": "user", "content": "\n\t Hello \u00a0there \u3000\n"},
        {"role": "assistant", "content": " \u2028Yes? "},
        {"role": "user", "content": "{{ not a template }} {% nor this %}\r\n"},
    ]},
    "system": {"messages": [
        {"role": "system", "content": "  Answer briefly.\n"},
        {"role": "user", "content": "Why is the sky blue?"},
        {"role": "assistant", "content": "Scattering."},
        {"role": "user", "content": "And at dusk? 漢字 😀 é"},
    ]},
    "thoughts": {"messages": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "<think>\nTwo and two.\n</think>\n\n4"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": "<think>\nYes.\n</think>\n\nSure."},
    ]},
    "out_of_order": {"messages": [{"role": "assistant", "content": "I begin"}, {"role": "user", "content": "Oh"}]},
    "parts": {"messages": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": " What is this? "}]},
        {"role": "assistant", "content": "A cat."},
    ]},
    "tools": {"messages": CALL[:1], "tools": [WEATHER, WEATHER]},
    "call": {"messages": CALL, "tools": [WEATHER]},
    "call_in_system": {"messages": [{"role": "system", "content": "x"}, *CALL], "tools": [WEATHER],
                       "tools_in_user_message": False},
    "no_thinking": {"messages": [{"role": "user", "content": "Hi"}], "enable_thinking": False},
    "null_content": {"messages": [{"role": "user", "content": None}]},
    "no_messages": {"messages": []},
}  # fmt: skip
