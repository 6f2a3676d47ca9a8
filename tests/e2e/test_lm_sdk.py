# SPDX-License-Identifier: Apache-2.0
"""frt-host serve with the SDKs `openai`, `anthropic` and `litellm` of PyPI; skipped where they cannot be installed."""
import json
import os
import subprocess
import unittest

from support import SDKS, clean_environment, python_with
from test_lm_serve import ALICE, TOOLS, LmServeTest

# What each client does. `expect` wants an error of a class.
COMMON = '''
import base64, json, sys
url, key, tools, structured = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4] == "ON"
ask = [{"role": "user", "content": "What is the weather?"}]
wanted = [{"city": "Kyoto", "days": 3}, {"city": "Oslo", "days": 1}]
pixel = base64.b64encode(bytes(100)).decode()
endless = [{"role": "user", "content": "endless"}]

def expect(error, call, **fields):
    try:
        call(**fields)
    except error as met:
        return str(met)
    raise SystemExit(f"{fields} was accepted")
'''

OPENAI = '''
import openai
client = openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0)
create = client.chat.completions.create
assert [model.id for model in client.models.list()] == ["m"]
whole = create(model="m", messages=ask, tools=tools)
calls = [json.loads(call.function.arguments) for call in whole.choices[0].message.tool_calls]
assert calls == wanted, calls
assert whole.usage.completion_tokens > 0
text, pieces, usage = "", {}, None
for chunk in create(model="m", messages=ask, tools=tools, stream=True, stream_options={"include_usage": True}):
    usage = chunk.usage or usage
    for choice in chunk.choices:
        text += choice.delta.content or ""
        for call in choice.delta.tool_calls or []:
            pieces[call.index] = pieces.get(call.index, "") + (call.function.arguments or "")
assert text.strip() == whole.choices[0].message.content.strip(), text
assert [json.loads(pieces[index]) for index in sorted(pieces)] == wanted
assert usage.prompt_tokens == whole.usage.prompt_tokens
results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in whole.choices[0].message.tool_calls]
after = create(model="m", messages=ask + [whole.choices[0].message.model_dump(exclude_none=True)] + results, tools=tools)
assert "sunny" in after.choices[0].message.content
if structured:
    import pydantic
    class Forecast(pydantic.BaseModel):
        city: str
        days: int
    as_json = [{"role": "user", "content": "as JSON"}]
    parsed = client.chat.completions.parse(model="m", messages=as_json, response_format=Forecast)
    assert parsed.choices[0].message.parsed == Forecast(city="Kyoto", days=3), parsed
    response = client.responses.parse(model="m", input="as JSON", text_format=Forecast, store=False)
    assert response.output_parsed == Forecast(city="Kyoto", days=3), response
    only = [{"role": "user", "content": "only call"}]
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        forced = create(model="m", messages=only, tools=tools, tool_choice=choice)
        assert json.loads(forced.choices[0].message.tool_calls[0].function.arguments) == wanted[0], forced
    refused = expect(openai.BadRequestError, create, model="m", messages=as_json, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array", "uniqueItems": True}}})
    assert "uniqueItems" in refused, refused
echo = client.completions.create(model="m", prompt="abc", max_tokens=4)
assert echo.object == "text_completion"

functions = [{"type": "function", **tool["function"]} for tool in tools]
response = client.responses.create(model="m", input="What is the weather?", tools=functions, store=False)
assert [json.loads(item.arguments) for item in response.output if item.type == "function_call"] == wanted
with client.responses.stream(model="m", input="What is the weather?", tools=functions, store=False) as events:
    assert [json.loads(item.arguments) for item in events.get_final_response().output
            if item.type == "function_call"] == wanted

image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + pixel}}]}]
expect(openai.NotFoundError, create, model="none", messages=ask)
for fields in ({"temperature": -1}, {"top_logprobs": 21, "logprobs": True}, {"messages": image}):
    expect(openai.BadRequestError, create, **{"model": "m", "messages": ask, **fields})
wrong = openai.OpenAI(base_url=url + "/v1", api_key="wrong", max_retries=0)
expect(openai.AuthenticationError, wrong.models.list)
stream = create(model="m", stream=True, messages=endless)
next(iter(stream))
stream.close()
print("ok")
'''

ANTHROPIC = '''
import anthropic
client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)
create = client.messages.create
tools = [{"name": tool["function"]["name"], "description": tool["function"]["description"],
          "input_schema": tool["function"]["parameters"]} for tool in tools]
fields = {"model": "m", "max_tokens": 2000, "messages": ask, "tools": tools}
whole = create(**fields)
calls = [block for block in whole.content if block.type == "tool_use"]
assert [call.input for call in calls] == wanted, whole
assert whole.stop_reason == "tool_use"
counted = client.messages.count_tokens(model="m", messages=ask, tools=tools).input_tokens
assert counted == whole.usage.input_tokens + (whole.usage.cache_read_input_tokens or 0)
with client.messages.stream(**fields) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text.strip() == "I look.", text
assert [block.input for block in final.content if block.type == "tool_use"] == wanted
assert final.usage.output_tokens == whole.usage.output_tokens
results = [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"} for call in calls]
history = ask + [{"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in whole.content]},
                 {"role": "user", "content": results}]
after = create(**{**fields, "messages": history})
assert "sunny" in "".join(block.text for block in after.content if block.type == "text")

if structured:
    forced = create(model="m", max_tokens=2000, tools=tools, tool_choice={"type": "any"},
                    messages=[{"role": "user", "content": "only call"}])
    assert forced.content[-1].input == wanted[0], forced
    as_json = create(model="m", max_tokens=2000, messages=[{"role": "user", "content": "as JSON"}],
                     extra_body={"output_format": {"type": "json_schema", "schema": {
                         "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}})
    assert json.loads(as_json.content[-1].text) == wanted[0], as_json

image = [{"role": "user", "content": [
    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": pixel}}]}]
expect(anthropic.NotFoundError, create, **{**fields, "model": "none"})
for change in ({"extra_body": {"temperature": -1}}, {"messages": image}):
    expect(anthropic.BadRequestError, create, **{**fields, **change})
long = [{"role": "user", "content": "word " * 70000}]
assert "prompt is too long" in expect(anthropic.BadRequestError, create, **{**fields, "messages": long})
expect(anthropic.AuthenticationError, anthropic.Anthropic(base_url=url, api_key="wrong", max_retries=0).messages.create,
       **fields)
with client.messages.stream(model="m", max_tokens=20000, messages=endless) as stream:
    next(iter(stream.text_stream))
print("ok")
'''

LITELLM = '''
import litellm
litellm.num_retries = 0

def create(**fields):
    # With tools it would import its MCP gateway, and what that needs, though none of them is of MCP.
    return litellm.completion(**{"model": "openai/m", "api_base": url + "/v1", "api_key": key, "messages": ask,
                                 "_skip_mcp_handler": True, **fields})

whole = create(tools=tools)
calls = [json.loads(call.function.arguments) for call in whole.choices[0].message.tool_calls]
assert calls == wanted, calls
assert whole.choices[0].finish_reason == "tool_calls"
assert whole.choices[0].message.reasoning_content.strip() == "They ask for the weather."
chunks = list(create(tools=tools, stream=True, stream_options={"include_usage": True}))
built = litellm.stream_chunk_builder(chunks, messages=ask)
assert [json.loads(call.function.arguments) for call in built.choices[0].message.tool_calls] == wanted
assert built.usage.prompt_tokens == whole.usage.prompt_tokens
image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + pixel}}]}]
expect(litellm.NotFoundError, create, model="openai/none")
expect(litellm.BadRequestError, create, messages=image)
expect(litellm.ContextWindowExceededError, create, messages=[{"role": "user", "content": "word " * 70000}])
expect(litellm.AuthenticationError, create, api_key="wrong")
stream = create(messages=endless, stream=True)
next(iter(stream))
stream.completion_stream.close()
print("ok")
'''


class Sdk(LmServeTest):
    def client(self, script, name, *packages):
        """Runs a client against a scripted model; afterwards no slot is in use."""
        python = python_with(self, name, *packages)
        server = self.scripted(self.key_file())
        # litellm would ask the Internet for prices.
        environment = {**clean_environment(), "NO_PROXY": "*", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        result = subprocess.run(
            [python, "-c", COMMON + script, f"http://127.0.0.1:{server.port}", ALICE, json.dumps(TOOLS),
             os.environ.get("FRT_XGRAMMAR", "ON")],
            capture_output=True, text=True, timeout=240, cwd=self.folder, env=environment)
        self.assertEqual(result.stdout.splitlines()[-1:], ["ok"], result.stdout + result.stderr)
        server.key = ALICE
        self.until(lambda: server.metrics()['frt_lm_slots_used{model="m"}'] == 0)

    def test_openai(self):
        """openai: chat, Responses and completions, whole and streamed, calls and their results, errors, cancel"""
        self.client(OPENAI, "openai_sdk", "openai==3.54.0")

    def test_anthropic(self):
        """anthropic: messages whole and streamed, exact counts, calls and their results, errors, cancel"""
        self.client(ANTHROPIC, *SDKS)

    def test_litellm(self):
        """litellm: chat whole and streamed, reasoning, calls, errors by kind, cancel"""
        self.client(LITELLM, *SDKS)


if __name__ == "__main__":
    unittest.main()
