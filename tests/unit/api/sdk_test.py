#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The SDKs' own parsers read the writers' replies, streamed and whole, and come to the same.

Needs the packages `openai` and `anthropic` of PyPI; where they are missing, it runs itself with a Python that has them, or
is skipped where they cannot be installed. No socket: the SDKs get their bytes from
a transport of theirs that answers by itself.
"""
import json
import os
import pathlib
import subprocess
import sys
import unittest

try:
    import anthropic
    import openai
    try:
        import httpx2 as httpx  # what newer SDKs are built on
    except ImportError:
        import httpx
except ImportError:
    openai = None


def replies(protocol):
    lines = subprocess.run([os.environ["FRT_PRINT_REPLIES"], "--streams"], check=True, capture_output=True, timeout=60)
    found = [json.loads(line) for line in lines.stdout.decode().splitlines()]
    return [reply for reply in found if reply["protocol"] == protocol]


def client_of(reply):
    """A transport that answers a request with the stream, if it asks for one, or with the body."""
    def answer(request):
        if json.loads(request.content).get("stream"):
            return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=reply["stream"].encode())
        return httpx.Response(200, json=reply["whole"])
    return httpx.Client(transport=httpx.MockTransport(answer))


@unittest.skipUnless(openai is None, "the packages openai and anthropic are installed")
class Elsewhere(unittest.TestCase):
    def test_with_a_python_that_has_the_packages(self):
        sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "e2e"))
        from support import SDKS, python_with
        result = subprocess.run([python_with(self, *SDKS), __file__], capture_output=True, text=True, timeout=100)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("OK (skipped=1)", result.stderr)


@unittest.skipIf(openai is None, "the packages openai and anthropic are not installed")
class Sdks(unittest.TestCase):
    def openai(self, reply):
        return openai.OpenAI(api_key="x", base_url="http://test/v1", http_client=client_of(reply))

    def anthropic(self, reply):
        return anthropic.Anthropic(api_key="x", base_url="http://test", http_client=client_of(reply))

    def test_chat(self):
        messages = [{"role": "user", "content": "hi"}]
        for reply in replies("chat"):
            completions = self.openai(reply).chat.completions
            whole = completions.create(model="m", messages=messages)
            expected = whole.choices[0].message
            content, arguments, finish, usage = "", {}, None, None
            for chunk in completions.create(model="m", messages=messages, stream=True):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    content += choice.delta.content or ""
                    finish = choice.finish_reason or finish
                    for call in choice.delta.tool_calls or []:
                        if call.function:
                            arguments.setdefault(call.index, "")
                            arguments[call.index] += call.function.arguments
            self.assertEqual(content, expected.content or "")
            self.assertEqual(finish, whole.choices[0].finish_reason)
            self.assertEqual(usage, whole.usage)
            functions = [call.function.arguments for call in expected.tool_calls or [] if call.type == "function"]
            self.assertEqual(list(arguments.values()), functions)

    def test_completions(self):
        for reply in replies("text"):
            completions = self.openai(reply).completions
            whole = completions.create(model="m", prompt="x")
            chunks = list(completions.create(model="m", prompt="x", stream=True))
            text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
            self.assertEqual(text, whole.choices[0].text)

    def test_responses(self):
        for reply in replies("responses"):
            responses = self.openai(reply).responses
            whole = responses.create(model="m", input="x")
            events = list(responses.create(model="m", input="x", stream=True))
            self.assertEqual(events[-1].response.model_dump(), whole.model_dump())
            self.assertEqual([event.sequence_number for event in events], list(range(len(events))))
            # The SDK's accumulator, which checks the order of the events.
            with responses.stream(model="m", input="x") as stream:
                types = [event.type for event in stream]
            self.assertEqual(types[-1], events[-1].type)

    def test_messages(self):
        arguments = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        for reply in replies("messages"):
            messages = self.anthropic(reply).messages
            whole = messages.create(**arguments)
            with messages.stream(**arguments) as stream:
                final = stream.get_final_message()
            self.assertEqual([block.model_dump(exclude_none=True) for block in final.content],
                             [block.model_dump(exclude_none=True) for block in whole.content])
            self.assertEqual(final.stop_reason, whole.stop_reason)
            self.assertEqual(final.usage.cache_read_input_tokens, whole.usage.cache_read_input_tokens)
            self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)

    def test_errors_are_the_sdks_own(self):
        def refuse(body):
            return httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(400, json=body)))
        shape = {"error": {"message": "no", "type": "invalid_request_error", "param": "input", "code": None}}
        with self.assertRaises(openai.BadRequestError) as caught:
            openai.OpenAI(api_key="x", base_url="http://test/v1", http_client=refuse(shape)).responses.create(
                model="m", input="x")
        self.assertEqual(caught.exception.param, "input")
        shape = {"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}
        with self.assertRaises(anthropic.BadRequestError):
            anthropic.Anthropic(api_key="x", base_url="http://test", http_client=refuse(shape)).messages.create(
                model="m", max_tokens=1, messages=[])


if __name__ == "__main__":
    unittest.main(verbosity=2)
