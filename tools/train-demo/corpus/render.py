# SPDX-License-Identifier: Apache-2.0
"""Conversations -> text in the Qwen3.6 chat format, with the chat template of the checkpoint itself."""

import functools
import json
import os

TEMPLATE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "chat_template.jinja")


@functools.lru_cache(maxsize=None)
def template():
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    with open(TEMPLATE, encoding="utf-8") as f:
        return environment.from_string(f.read())


def conversation(messages, tools=None, prompt=False, **options):
    """The whole conversation, or with `prompt` what stands before the next assistant turn."""
    return template().render(messages=messages, tools=tools, add_generation_prompt=prompt, **options)


def user(text):
    return {"role": "user", "content": text}


def assistant(text, thought="", calls=()):
    """`calls`: list of (name, arguments)."""
    message = {"role": "assistant", "content": text, "reasoning_content": thought}
    if calls:
        message["tool_calls"] = [{"type": "function", "function": {"name": n, "arguments": a}} for n, a in calls]
    return message


def tool(result):
    return {"role": "tool", "content": result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)}
