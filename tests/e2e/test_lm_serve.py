# SPDX-License-Identifier: Apache-2.0
"""frt-host serve with a language model: every route, and what clients do to a server."""
import json
import math
import os
import pathlib
import re
import signal
import socket
import time
import unittest

from lm_serving import LmServer, schema_errors
from support import MANIFEST, OK, TIMEOUT, USAGE, HostTest

ALICE, BOB = "alice-secret-0123456789", "bob-secret-0123456789"
MODEL = '{model="m"}'
SCRIPT = {"replies": [
    {"when": {"last": "endless"}, "content": "again and ", "endless": True, "token_delay_us": 2000},
    {"when": {"last": "slowly"}, "content": "word " * 40, "token_delay_us": 5000},
    {"when": {"last": "weather"}, "reasoning": "They ask for the weather.", "content": "I look.",
     "calls": [{"name": "weather", "arguments": {"city": "Kyoto", "days": 3}},
               {"name": "weather", "arguments": {"city": "Oslo", "days": 1}}]},
    {"when": {"last": "as JSON"}, "reasoning": "They want {JSON}.", "content": '{"city": "Kyoto", "days": 3}'},
    {"when": {"last": "only call"}, "calls": [{"name": "weather", "arguments": {"city": "Kyoto", "days": 3}}]},
    {"when": {"last": "fault"}, "content": "a word and then", "fault": {"after": 5, "kind": "error"}}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}}]


class LmServeTest(HostTest):
    def http_manifest(self, http="", options="", lm=""):
        return self.demo(options=options, extra=f"""[host.http]
model = "m"
{http}
[host.lm]
model = "m"
capsule_min_tokens = 16
{lm}""")

    def server(self, http="", options="slots = 4\nmax_context = 512", lm="", **settings):
        return LmServer(self, self.http_manifest(http, options, lm), **settings)

    def key_file(self):
        """Of ALICE and BOB, as a line of [host.http]."""
        keys = self.folder / "keys"
        keys.write_text(f"alice {ALICE}\nbob {BOB}\n", encoding="utf-8")
        keys.chmod(0o600)
        return f'key_file = "{keys}"'

    def until(self, condition):
        end = time.monotonic() + TIMEOUT
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def scripted(self, http="", slots=1, options="", wait=True, tls=None):
        """A model that says what SCRIPT says."""
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT), encoding="utf-8")
        manifest = self.model_manifest("synthetic:none", plugin="test.scripted", extra=f'[host.http]\nmodel = "m"\n{http}',
                                       options=f'script = "{script}"\nslots = {slots}\nmax_context = 65536\n{options}')
        return LmServer(self, manifest, wait=wait, plugins=os.environ["FRT_SCRIPTED_PLUGIN_DIR"], tls=tls)

    def stream(self, server, text):
        """The connection and the answer of a stream that has begun."""
        connection, answer = server.open("/v1/chat/completions", {
            "messages": [{"role": "user", "content": text}], "stream": True})
        self.assertEqual(answer.status, 200)
        return connection, answer

    def endless(self, server):
        """The same, after its first text."""
        connection, answer = self.stream(server, "endless")
        while b"content" not in answer.readline():
            pass
        return connection, answer


class Routes(LmServeTest):
    def test_loading(self):
        """a server says that it loads until it can serve"""
        go = self.folder / "go"
        server = self.scripted(options=f'loads_after = "{go}"', wait=False)
        health = server.request("GET", "/health")
        self.assertEqual((health.status, health.json(), health.headers["Retry-After"]),
                         (503, {"status": "loading"}, "1"))
        self.assertEqual(server.request("GET", "/v1/models").json()["data"][0]["state"], "loading")
        refused = server.chat("Hello")
        self.assertEqual((refused.status, refused.headers["Retry-After"]), (503, "1"))
        self.assertFalse(server.ready.is_set())
        go.touch()
        self.assertTrue(server.ready.wait(TIMEOUT))
        self.assertEqual(server.request("GET", "/health").json(), {"status": "ok"})
        self.assertEqual(server.request("GET", "/v1/models").json()["data"][0]["state"], "ready")

    def test_routes(self):
        """a server answers whole and streamed with the same text"""
        server = self.server()
        self.assertEqual(server.request("GET", "/health").json(), {"status": "ok"})
        models = server.request("GET", "/v1/models").json()["data"]
        self.assertEqual([(m["id"], m["state"], m["max_model_len"]) for m in models], [("m", "ready", 512)])
        self.assertEqual(server.request("GET", "/v1/models/m").json()["id"], "m")
        self.assertEqual(server.request("GET", "/v1/models/none").status, 404)

        whole = server.chat("Hello").json()
        self.assertEqual(whole["object"], "chat.completion")
        self.assertEqual(whole["usage"]["completion_tokens"], 8)
        events = server.chat("Hello", stream=True, stream_options={"include_usage": True}).events()
        self.assertEqual(events[-1], "[DONE]")
        self.assertEqual(events[-2]["usage"]["completion_tokens"], 8)
        for part in ("content", "reasoning_content"):
            text = "".join(choice["delta"].get(part) or "" for event in events[:-1] for choice in event["choices"])
            self.assertEqual(text, whole["choices"][0]["message"].get(part) or "")

        text = server.request("POST", "/v1/completions",
                              {"prompt": "Once upon", "max_tokens": 4, "temperature": 0, "echo": True}).json()
        self.assertTrue(text["choices"][0]["text"].startswith("Once upon"))
        several = server.request("POST", "/v1/completions",
                                 {"prompt": ["a", "b"], "n": 2, "max_tokens": 2, "temperature": 0}).json()
        self.assertEqual([choice["index"] for choice in several["choices"]], [0, 1, 2, 3])
        self.assertEqual(several["choices"][0]["text"], several["choices"][1]["text"])

        tokens = server.request("POST", "/tokenize", {"content": "Once upon", "with_pieces": True}).json()
        self.assertEqual("".join(tokens["pieces"]), "Once upon")
        self.assertEqual(server.request("POST", "/detokenize", {"tokens": tokens["tokens"]}).json()["content"],
                         "Once upon")
        messages = {"messages": [{"role": "user", "content": "Hello"}]}
        prompt = server.request("POST", "/apply-template", messages).json()["prompt"]
        self.assertIn("Hello", prompt)
        count = server.request("POST", "/tokenize", messages).json()["count"]
        self.assertEqual(count, whole["usage"]["prompt_tokens"])

    def test_errors(self):
        """a request that cannot be served is refused by name, without a path or an internal word"""
        server = self.server('aliases = "other=m"', options="slots = 2\nmax_context = 64")
        messages = [{"role": "user", "content": "x"}]
        for body, status, param in (
                (b"{", 400, None), (b"[]", 400, None), ({"messages": []}, 400, "messages"),
                ({"messages": messages, "model": "none"}, 404, "model"),
                ({"messages": messages, "temperature": -1}, 400, "temperature"),
                ({"messages": messages, "response_format": {"type": "xml"}}, 400, "response_format.type"),
                ({"messages": messages, "logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
                ({"messages": [{"role": "user", "content": "long " * 500}]}, 400, None)):
            with self.subTest(body=body):
                reply = server.request("POST", "/v1/chat/completions", body)
                error = reply.json()["error"]
                self.assertEqual(reply.status, status, error)
                if param:
                    self.assertEqual(error["param"], param, error)
                for word in (str(self.folder), "frt::", ".cpp", "/tmp"):
                    self.assertNotIn(word, reply.body.decode())
        long = server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "long " * 500}]})
        self.assertEqual(long.json()["error"]["code"], "context_length_exceeded")
        self.assertEqual(server.chat("x", model="other").status, 200)
        self.assertEqual(server.request("GET", "/none").status, 404)
        self.assertEqual(server.request("GET", "/v1/chat/completions").status, 405)
        self.assertEqual(server.request("POST", "/detokenize", {"tokens": [-1]}).status, 400)
        self.assertEqual(server.request("GET", "/health", headers={"Host": "evil.example"}).status, 403)
        self.assertEqual(server.request("GET", "/health", headers={"Origin": "http://evil.example"}).status, 403)

    def test_overflow(self):
        """a prompt that does not fit is told in the words and at the place where each protocol's clients look for it"""
        server = self.server(options="slots = 2\nmax_context = 64")
        text, messages = "long " * 500, [{"role": "user", "content": "long " * 500}]
        for path, body in (("/v1/chat/completions", {"messages": messages, "stream": True}),
                           ("/v1/completions", {"prompt": text, "stream": True}),
                           ("/v1/responses", {"input": text})):
            with self.subTest(path=path):
                refused = server.request("POST", path, body)
                self.assertEqual((refused.status, refused.json()["error"]["code"]), (400, "context_length_exceeded"))
        refused = server.request("POST", "/v1/messages", {"messages": messages, "max_tokens": 8, "stream": True})
        self.assertEqual((refused.status, refused.json()["error"]["type"]), (400, "invalid_request_error"))
        self.assertRegex(refused.json()["error"]["message"], r"^prompt is too long: \d+ tokens > 64 maximum")
        # Codex compacts its conversation at this event alone.
        streamed = server.request("POST", "/v1/responses", {"input": text, "stream": True})
        self.assertEqual((streamed.status, streamed.headers["Content-Type"]), (200, "text/event-stream"))
        events = streamed.events()
        self.assertEqual([event["type"] for event in events],
                         ["response.created", "response.in_progress", "response.failed"])
        self.assertEqual([event["sequence_number"] for event in events], [0, 1, 2])
        self.assertEqual(events[-1]["response"]["error"]["code"], "context_length_exceeded")
        self.assertEqual(server.request("POST", "/v1/responses", {"input": 5, "stream": True}).status, 400)

    def test_origins(self):
        """a page of an allowed origin may ask and read; no other page is told anything"""
        page = "https://app.example"
        server = self.server(f'allowed_origins = "{page}"')
        asked = {"Origin": page, "Access-Control-Request-Method": "POST",
                 "Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}
        answer = server.request("OPTIONS", "/v1/chat/completions", headers=asked)
        self.assertEqual((answer.status, answer.headers["Access-Control-Allow-Origin"]), (200, page))
        self.assertEqual(answer.headers["Access-Control-Allow-Headers"], asked["Access-Control-Request-Headers"])
        self.assertIn("POST", answer.headers["Access-Control-Allow-Methods"])
        for path in ("/health", "/none"):
            headers = server.request("GET", path, headers={"Origin": page}).headers
            self.assertEqual((headers["Access-Control-Allow-Origin"], headers["Vary"]), (page, "Origin"))
        stranger = {**asked, "Origin": "https://evil.example"}
        own = {**asked, "Origin": f"http://127.0.0.1:{server.port}"}
        for method, headers, status in (("OPTIONS", stranger, 403), ("GET", stranger, 403), ("OPTIONS", own, 405),
                                        ("OPTIONS", {}, 405), ("GET", {}, 405)):
            with self.subTest(method=method, headers=headers):
                answer = server.request(method, "/v1/chat/completions", headers=headers)
                self.assertEqual(answer.status, status)
                self.assertNotIn("access-control", str(answer.headers).lower())

    def test_conversation(self):
        """the second turn of a conversation reads only what is new, and says so"""
        server = self.server(options="slots = 2\nmax_context = 512")
        history = [{"role": "user", "content": "Tell me about the sea. " * 8}]
        first = server.request("POST", "/v1/chat/completions",
                               {"messages": history, "temperature": 0, "max_tokens": 8}).json()
        self.assertEqual(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        self.assertEqual(first["frt"]["prefix_action"], "read")
        history += [first["choices"][0]["message"], {"role": "user", "content": "More."}]
        second = server.request("POST", "/v1/chat/completions",
                                {"messages": history, "temperature": 0, "max_tokens": 4}).json()
        self.assertIn(second["frt"]["prefix_action"], ("continue", "restore"))
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, first["usage"]["prompt_tokens"] // 2)
        self.assertEqual(cached + second["frt"]["new_prefill_tokens"], second["usage"]["prompt_tokens"])


class Clients(LmServeTest):
    def test_disconnect(self):
        """a client that leaves gives its slot back, in the queue as well as while it is served"""
        server = self.scripted()
        running, running_answer = self.endless(server)
        waiting, waiting_answer = self.stream(server, "endless")
        self.until(lambda: server.metrics()["frt_lm_queued_requests" + MODEL] == 1)
        waiting_answer.close()
        waiting.close()
        self.until(lambda: server.metrics()["frt_lm_queued_requests" + MODEL] == 0)
        self.assertEqual(server.metrics()["frt_lm_slots_used" + MODEL], 1)
        running_answer.close()
        running.close()
        self.until(lambda: server.metrics()["frt_lm_slots_used" + MODEL] == 0)
        self.until(lambda: server.metrics()["frt_http_streams"] == 0)
        self.assertEqual(server.metrics()["frt_http_disconnects_total"], 2)
        self.assertEqual(server.chat("still here", max_tokens=100).json()["choices"][0]["message"]["content"],
                         "echo: still here")

    def test_queue(self):
        """a request beyond the queue is a 429 with Retry-After"""
        server = self.scripted("queue = 1")
        self.endless(server)
        self.stream(server, "endless")
        self.until(lambda: server.metrics()["frt_lm_queued_requests" + MODEL] == 1)
        refused = server.chat("too many")
        self.assertEqual(refused.status, 429)
        self.assertEqual(refused.headers["Retry-After"], "1")
        self.assertEqual(server.metrics()["frt_lm_queue_full_total" + MODEL], 1)

    def test_heartbeat(self):
        """a stream that waits in the queue is not silent"""
        server = self.scripted("heartbeat_ms = 50")
        running = self.endless(server)
        _, answer = self.stream(server, "x")
        seen = [answer.readline() for _ in range(2)]    # the head of the answer
        while sum(line.startswith(b":") for line in seen) < 4:
            seen.append(answer.readline())
            self.assertIn(seen[-1][:1], (b":", b"\n"), [seen, server.metrics(), server.said])
        running[0].close()

    def test_tools(self):
        """calls arrive as calls, the same streamed and whole, and their results go on"""
        server = self.scripted()
        messages = [{"role": "user", "content": "What is the weather?"}]
        fields = {"messages": messages, "tools": TOOLS}
        message = server.request("POST", "/v1/chat/completions", fields).json()["choices"][0]
        self.assertEqual(message["finish_reason"], "tool_calls")
        calls = [(call["function"]["name"], json.loads(call["function"]["arguments"]))
                 for call in message["message"]["tool_calls"]]
        self.assertEqual(calls, [("weather", {"city": "Kyoto", "days": 3}), ("weather", {"city": "Oslo", "days": 1})])
        self.assertEqual(message["message"]["content"].strip(), "I look.")
        self.assertEqual(message["message"]["reasoning_content"].strip(), "They ask for the weather.")
        pieces = {}
        for event in server.request("POST", "/v1/chat/completions", {**fields, "stream": True}).events()[:-1]:
            for choice in event["choices"]:
                for call in choice["delta"].get("tool_calls", []):
                    pieces[call["index"]] = pieces.get(call["index"], "") + call["function"].get("arguments", "")
        self.assertEqual([json.loads(pieces[index]) for index in sorted(pieces)], [call[1] for call in calls])
        one = server.request("POST", "/v1/chat/completions", {**fields, "parallel_tool_calls": False}).json()
        self.assertEqual(len(one["choices"][0]["message"]["tool_calls"]), 1)
        messages += [message["message"], {"role": "tool", "tool_call_id": message["message"]["tool_calls"][0]["id"],
                                          "content": "sunny"}]
        after = server.request("POST", "/v1/chat/completions", fields).json()["choices"][0]["message"]
        self.assertIn("sunny", after["content"])

    def test_protocols(self):
        """Messages and Responses give the same calls as chat, streamed and whole; counts are exact"""
        server = self.scripted()
        ask, wanted = "What is the weather?", [{"city": "Kyoto", "days": 3}, {"city": "Oslo", "days": 1}]
        function = TOOLS[0]["function"]
        body = {"model": "m", "max_tokens": 2000, "messages": [{"role": "user", "content": ask}],
                "tools": [{"name": "weather", "input_schema": function["parameters"]}]}
        whole = server.request("POST", "/v1/messages", body).json()
        self.assertEqual([block["input"] for block in whole["content"] if block["type"] == "tool_use"], wanted)
        self.assertEqual(whole["stop_reason"], "tool_use")
        counted = server.request("POST", "/v1/messages/count_tokens", body).json()["input_tokens"]
        usage = whole["usage"]
        self.assertEqual(counted, usage["input_tokens"] + usage.get("cache_read_input_tokens", 0))
        events = server.request("POST", "/v1/messages", {**body, "stream": True}).events()
        self.assertEqual((events[0]["type"], events[-1]["type"]), ("message_start", "message_stop"))
        pieces = {}
        for event in events:
            if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
                pieces[event["index"]] = pieces.get(event["index"], "") + event["delta"]["partial_json"]
        self.assertEqual([json.loads(pieces[index]) for index in sorted(pieces)], wanted)
        self.assertEqual(server.request("POST", "/v1/messages", b"{").json()["type"], "error")

        body = {"model": "m", "input": ask, "tools": [{"type": "function", **function}], "store": False}
        whole = server.request("POST", "/v1/responses", body).json()
        events = server.request("POST", "/v1/responses", {**body, "stream": True}).events()
        self.assertEqual(events[-1]["type"], "response.completed")
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        for response in (whole, events[-1]["response"]):
            calls = [json.loads(item["arguments"]) for item in response["output"] if item["type"] == "function_call"]
            self.assertEqual(calls, wanted)

    def test_likeliest_tokens(self):
        """the likeliest tokens at each place come with chat, completions and Responses, whole and as a stream"""
        server = self.server()
        ask = [{"role": "user", "content": "What is 2 + 2?"}]

        def check(entries, count):
            self.assertGreater(len(entries), 3)
            for entry in entries:
                top = entry["top_logprobs"]
                self.assertEqual(len(top), count)
                self.assertEqual([top[0][key] for key in ("token", "logprob", "bytes")],
                                 [entry[key] for key in ("token", "logprob", "bytes")])
                values = [other["logprob"] for other in top]
                self.assertEqual(values, sorted(values, reverse=True))
                self.assertLess(sum(math.exp(value) for value in values), 1.001)

        body = {"messages": ask, "temperature": 0, "max_tokens": 40, "logprobs": True, "top_logprobs": 3,
                "chat_template_kwargs": {"enable_thinking": False}}
        whole = server.request("POST", "/v1/chat/completions", body).json()["choices"][0]
        check(whole["logprobs"]["content"], 3)
        streamed = []
        for event in server.request("POST", "/v1/chat/completions", {**body, "stream": True}).events():
            for choice in [] if event == "[DONE]" else event["choices"]:
                streamed += (choice["logprobs"] or {}).get("content") or []
        self.assertEqual(streamed, whole["logprobs"]["content"])
        without = server.request("POST", "/v1/chat/completions", {**body, "top_logprobs": 0}).json()["choices"][0]
        self.assertEqual(without["message"], whole["message"])
        self.assertEqual([{**entry, "top_logprobs": []} for entry in streamed], without["logprobs"]["content"])

        body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8, "logprobs": 2}
        found = server.request("POST", "/v1/completions", body).json()["choices"][0]["logprobs"]
        self.assertEqual(len(found["top_logprobs"]), 8)
        for token, value, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"]):
            self.assertEqual((top[token], max(top.values())), (value, value))
            self.assertIn(len(top), (1, 2))

        body = {"input": ask, "temperature": 0, "top_logprobs": 4, "include": ["message.output_text.logprobs"],
                "reasoning": {"effort": "none"}, "store": False}
        whole = server.request("POST", "/v1/responses", body).json()
        check([item for item in whole["output"] if item["type"] == "message"][0]["content"][0]["logprobs"], 4)
        last = server.request("POST", "/v1/responses", {**body, "stream": True}).events()[-1]
        self.assertEqual([item["content"] for item in last["response"]["output"]],
                         [item["content"] for item in whole["output"]])

    def test_bias(self):
        """a bias forbids a token or forces it, in chat and completions; what no token of the model is, is a 400"""
        server = self.server()
        body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 6}
        plain = server.request("POST", "/v1/completions", body).json()["choices"][0]["text"]
        first = server.request("POST", "/tokenize", {"content": plain}).json()["tokens"][0]
        other = server.request("POST", "/tokenize", {"content": " dog"}).json()["tokens"][0]
        banned = server.request("POST", "/v1/completions", {**body, "logit_bias": {str(first): -100}}).json()
        again = server.request("POST", "/tokenize", {"content": banned["choices"][0]["text"]}).json()["tokens"]
        self.assertNotEqual(again[0], first)
        forced = server.request("POST", "/v1/completions", {**body, "logit_bias": {str(other): 100}, "n": 2}).json()
        self.assertEqual([choice["text"] for choice in forced["choices"]], [" dog" * 6] * 2)
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3, "logit_bias": {str(other): 100},
                "chat_template_kwargs": {"enable_thinking": False}}
        said = server.request("POST", "/v1/chat/completions", chat).json()["choices"][0]["message"]["content"]
        self.assertEqual(said.strip(), "dog dog dog")
        for bias in ({"1000000": 1}, {"x": 1}, {"5": 101}):
            refused = server.request("POST", "/v1/completions", {**body, "logit_bias": bias})
            self.assertEqual((refused.status, refused.json()["error"]["param"][:10]), (400, "logit_bias"), refused.body)

    def test_best(self):
        """best_of sends the answers with the highest mean log probability of those that n alone sends, the best first"""
        server = self.server()
        body = {"prompt": ["Once upon a time", "One day"], "temperature": 1, "seed": 3, "max_tokens": 7, "logprobs": 0}
        every = server.request("POST", "/v1/completions", {**body, "n": 8}).json()["choices"]

        def mean(choice):
            values = choice["logprobs"]["token_logprobs"]
            return sum(values) / len(values)

        expected = []
        for prompt in range(2):
            ranked = sorted(every[8 * prompt:8 * prompt + 8], key=mean, reverse=True)
            self.assertGreater(mean(ranked[0]), mean(ranked[7]))
            expected += [(choice["text"], choice["logprobs"], choice["finish_reason"]) for choice in ranked[:3]]
        reply = server.request("POST", "/v1/completions", {**body, "n": 3, "best_of": 8}).json()
        self.assertEqual([choice["index"] for choice in reply["choices"]], list(range(6)))
        self.assertEqual([(choice["text"], choice["logprobs"], choice["finish_reason"]) for choice in reply["choices"]],
                         expected)
        self.assertEqual(reply["usage"]["completion_tokens"], 2 * 8 * 7)
        echoed = server.request("POST", "/v1/completions",
                                {**body, "logprobs": None, "n": 1, "best_of": 8, "echo": True}).json()["choices"]
        self.assertEqual([choice["text"] for choice in echoed],
                         ["Once upon a time" + expected[0][0], "One day" + expected[3][0]])
        for fields in ({"best_of": 20}, {"best_of": 21}, {"best_of": 2, "n": 3}, {"best_of": 2, "stream": True}):
            refused = server.request("POST", "/v1/completions", {**body, **fields})
            self.assertEqual((refused.status, refused.json()["error"]["param"]), (400, "best_of"), refused.body)

    def test_scored_prompt(self):
        """echo with logprobs scores the prompt: what was written has there the probabilities it was written with"""
        server = self.server()
        body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8, "logprobs": 2}
        written = server.request("POST", "/v1/completions", body).json()["choices"][0]
        echo = {**body, "prompt": body["prompt"] + written["text"], "echo": True, "max_tokens": 0}
        scored = server.request("POST", "/v1/completions", echo).json()["choices"][0]
        self.assertEqual(scored["text"], echo["prompt"])
        found = scored["logprobs"]
        self.assertEqual((found["token_logprobs"][0], found["top_logprobs"][0]), (None, None))
        self.assertEqual("".join(found["tokens"]), echo["prompt"])
        self.assertEqual(found["tokens"][-8:], written["logprobs"]["tokens"])
        for ours, theirs in zip(found["token_logprobs"][-8:], written["logprobs"]["token_logprobs"]):
            self.assertAlmostEqual(ours, theirs, 3)
        self.assertEqual(found["text_offset"][-1], len(echo["prompt"]) - len(found["tokens"][-1]))
        more = {**echo, "max_tokens": 3, "n": 2}
        for choice in server.request("POST", "/v1/completions", more).json()["choices"]:
            self.assertEqual(choice["logprobs"]["token_logprobs"][:-3], found["token_logprobs"])
            self.assertTrue(choice["text"].startswith(echo["prompt"]))
        whole = server.request("POST", "/v1/completions", {**more, "n": 1}).json()["choices"][0]
        text, tokens = "", []
        for event in server.request("POST", "/v1/completions", {**more, "n": 1, "stream": True}).events()[:-1]:
            for choice in event["choices"]:
                text += choice["text"]
                tokens += (choice["logprobs"] or {}).get("tokens", [])
        self.assertEqual((text, tokens), (whole["text"], whole["logprobs"]["tokens"]))

    def test_schemas(self):
        """every reply is what the OpenAPI document says: whole, each event of a stream, errors, with calls and without"""
        server = self.scripted()
        ask = [{"role": "user", "content": "What is the weather?"}]
        tools = [{"name": "weather", "input_schema": TOOLS[0]["function"]["parameters"]}]
        for path, whole, event, error, body in (
                ("/v1/chat/completions", "ChatCompletion", "ChatCompletionChunk", "OpenAIError",
                 {"messages": ask, "tools": TOOLS, "logprobs": True, "top_logprobs": 2, "n": 2}),
                ("/v1/completions", "Completion", "CompletionChunk", "OpenAIError",
                 {"prompt": "x", "max_tokens": 4, "logprobs": 2}),
                ("/v1/responses", "Response", "ResponsesEvent", "OpenAIError",
                 {"input": ask, "tools": [{"type": "function", **TOOLS[0]["function"]}]}),
                ("/v1/messages", "Message", "MessagesEvent", "AnthropicError",
                 {"messages": ask, "max_tokens": 2000, "tools": tools})):
            with self.subTest(path=path):
                reply = server.request("POST", path, body)
                self.assertEqual((reply.status, schema_errors(whole, reply.json())), (200, []), reply.body)
                events = server.request("POST", path, {**body, "stream": True}).events()
                self.assertGreater(len(events), 3)
                for each in events:
                    self.assertEqual([] if each == "[DONE]" else schema_errors(event, each), [], each)
                for bad in ({**body, "temperature": "x"}, {**body, "model": "none"}, b"{"):
                    self.assertEqual(schema_errors(error, server.request("POST", path, bad).json()), [])

    def test_stop(self):
        """a stop string ends the answer before it, and the engine with it"""
        server = self.scripted()
        choice = server.chat("endless", max_tokens=2000, stop=["and"]).json()["choices"][0]
        self.assertEqual(choice["message"]["content"], "again ")
        self.assertEqual(choice["finish_reason"], "stop")
        self.until(lambda: server.metrics()["frt_lm_slots_used" + MODEL] == 0)
        self.assertLess(server.metrics()["frt_lm_generated_tokens_total" + MODEL], 1500)

    def test_fault(self):
        """a failing device is an error of the stream or of the answer, without its inner words"""
        server = self.scripted()
        _, answer = self.stream(server, "fault")
        text = answer.read().decode()
        self.assertIn('"error"', text)
        for word in ("scripted", "frt::", "FRT_ERR"):
            self.assertNotIn(word, text)

    def test_keys(self):
        """every route but the health asks for a key, and keys do not share state"""
        log = self.folder / "requests.jsonl"
        server = self.server(f'{self.key_file()}\nrequest_log = "{log}"')
        self.assertEqual(server.request("GET", "/health").status, 200)
        for method, path in (("GET", "/metrics"), ("GET", "/v1/models"), ("POST", "/v1/chat/completions"),
                             ("POST", "/tokenize"), ("GET", "/none")):
            for headers in ({}, {"Authorization": "Bearer " + ALICE[:-1] + "0"}, {"Authorization": ALICE}):
                with self.subTest(path=path, headers=headers):
                    self.assertEqual(server.request(method, path, headers=headers).status, 401)
        self.assertEqual(server.request("GET", "/v1/models", headers={"x-api-key": BOB}).status, 200)
        prompt = "A long prompt that both of them send. " * 6
        cached = []
        for key in (ALICE, ALICE, BOB):
            server.key = key
            cached.append(server.chat(prompt).json()["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual(cached[0], 0)
        self.assertGreater(cached[1], 0)
        self.assertEqual(cached[2], 0)
        # Written when the answer is with its client.
        self.until(lambda: log.read_text(encoding="utf-8").count('"generation"') >= len(cached))
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        self.assertEqual({line["key"] for line in lines if line["event"] == "request"}, {"", "alice", "bob"})
        generations = [line for line in lines if line["event"] == "generation"]
        self.assertEqual([line["cached_tokens"] for line in generations], cached)
        for secret in (ALICE, BOB, "A long prompt"):
            self.assertNotIn(secret, log.read_text(encoding="utf-8"))

    def test_terminate(self):
        """SIGTERM lets a stream end, refuses newcomers and exits with 0"""
        server = self.scripted()
        _, answer = self.stream(server, "slowly")
        answer.readline()
        server.terminate()
        rest = answer.read().decode()
        self.assertIn("data: [DONE]", rest)
        self.assertEqual(server.wait(), OK)
        self.assertRaises(OSError, server.raw)

    def test_terminate_at_once(self):
        """SIGTERM is obeyed from the moment a server says that it serves"""
        for _ in range(3):
            server = self.scripted()
            server.terminate()
            self.assertEqual(server.wait(), OK, "".join(server.said))

    def test_trim(self):
        """a thread gives freed memory back; test_robot_serve.py looks that there is none beside a policy"""
        server = self.scripted()
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task")
        self.until(lambda: "frt-trim" in [(task / "comm").read_text().strip() for task in tasks.iterdir()])

    def test_left_over(self):
        """what does not end in time after SIGTERM ends with an error of its protocol, which clients answer by retrying"""
        chat = {"messages": [{"role": "user", "content": "endless"}], "stream": True}
        for path, body, error in (("/v1/chat/completions", chat, b'"code":"overloaded"'),
                                  ("/v1/messages", {**chat, "model": "m", "max_tokens": 30000}, b'"type":"overloaded_error"'),
                                  ("/v1/responses", {"input": "endless", "stream": True}, b'"type":"response.failed"')):
            with self.subTest(path=path):
                server = self.scripted("drain_s = 0")
                _, answer = server.open(path, body)
                self.assertEqual(answer.status, 200)
                while b"delta" not in answer.readline():
                    pass
                server.terminate()
                self.assertIn(error, answer.read())       # up to the end of a whole stream
                self.assertEqual(server.wait(), OK)

    def test_hangup(self):
        """SIGHUP: keys and limits are read again, and a moved log is made anew; what is wrong changes nothing"""
        keys, log = self.folder / "keys", self.folder / "log"
        manifest = self.http_manifest(f'{self.key_file()}\nrequest_log = "{log}"', "slots = 4\nmax_context = 512")
        server = LmServer(self, manifest)

        def status(key):
            server.key = key
            return server.request("GET", "/v1/models").status

        def hang_up(said):
            before = "".join(server.said).count(said)
            server.process.send_signal(signal.SIGHUP)
            self.until(lambda: "".join(server.said).count(said) > before)
        self.assertEqual((status(ALICE), status(BOB)), (200, 200))
        keys.write_text(f"carol {BOB}\n", encoding="utf-8")
        log.rename(self.folder / "log.1")
        hang_up("were read again")
        self.assertEqual((status(ALICE), status(BOB)), (401, 200))
        self.until(lambda: log.exists() and '"key":"carol"' in log.read_text(encoding="utf-8"))
        keys.write_text("carol\n", encoding="utf-8")
        hang_up("nothing is changed on SIGHUP")
        self.assertEqual((status(ALICE), status(BOB)), (401, 200))
        keys.write_text(f"carol {BOB}\n", encoding="utf-8")
        manifest.write_text(manifest.read_text(encoding="utf-8").replace(
            "[host.http]", "[host.http]\nrequests_per_minute = 1"), encoding="utf-8")
        hang_up("were read again")
        statuses = [server.chat("Hello").status for _ in range(4)]
        self.assertIn(429, statuses)
        # A key_file that is gone lets nobody in.
        manifest.write_text(re.sub(r"(?m)^key_file.*$", "", manifest.read_text(encoding="utf-8")), encoding="utf-8")
        hang_up("nothing is changed on SIGHUP")
        self.assertEqual(status(ALICE), 401)

    def test_half_open(self):
        """1,000 half-open connections do not keep the health from being told"""
        server = self.server()
        peers = []
        for _ in range(1000):
            peers.append(socket.create_connection(("127.0.0.1", server.port)))
            peers[-1].sendall(b"POST /v1/chat")
        self.assertEqual(server.request("GET", "/health").status, 200)
        for peer in peers:
            peer.close()
        metrics = server.metrics()
        self.assertGreaterEqual(metrics['frt_http_refusals_total{reason="displaced"}'], 700)

    def test_trace(self):
        """a trace id is taken and returned, and each request has an id of its own"""
        server = self.server()
        trace = "0af7651916cd43dd8448eb211c80319c"
        sent = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        answers = [server.request("GET", "/health", headers=sent).headers for _ in range(2)]
        self.assertNotEqual(answers[0]["X-Request-Id"], answers[1]["X-Request-Id"])
        for headers in answers:
            self.assertIn(trace, headers["traceparent"])


class Settings(LmServeTest):
    def test_settings(self):
        """settings that contradict each other are refused before anything is loaded"""
        for http, what in (('listen = "0.0.0.0:0"', "key_file"), ('listen = "here"', "address:port"),
                           ('aliases = "x"', "NAME=MODEL"), ('more_models = "m"', "each model once"),
                           ('max_body = "1G"', "buffer_memory"), ('quue = 3', "quue"), ("queue = 0", "queue")):
            with self.subTest(http=http):
                result = self.check(MANIFEST, "config", "check", self.http_manifest(http))
                self.assertIn(what, result.stderr)
        self.check(OK, "config", "check", self.http_manifest('aliases = "a=m, *=m"'))
        result = self.check(USAGE, "serve", self.http_manifest(""), "--listen", "0.0.0.0:0")
        self.assertIn("name a key_file", result.stderr)
        keys = self.folder / "keys"
        keys.write_text(f"alice {ALICE}\n", encoding="utf-8")
        keys.chmod(0o644)
        result = self.check(MANIFEST, "serve", self.http_manifest(f'key_file = "{keys}"'), "--listen", "127.0.0.1:0")
        self.assertIn("chmod 600", result.stderr)
        self.assertNotIn(ALICE, result.stderr)


class Launch(LmServeTest):
    def test_launch(self):
        """an agent starts with what it needs to reach the server, and no secret is printed"""
        keys = self.folder / "keys"
        keys.write_text(f"alice {ALICE}\n", encoding="utf-8")
        keys.chmod(0o600)
        server = self.server(f'key_file = "{keys}"')
        url = f"http://127.0.0.1:{server.port}"
        for agent in ("claude", "codex", "aider"):
            program = self.folder / agent
            program.write_text('#!/bin/sh\nenv; printf "%s\\n" "$@"\n', encoding="utf-8")
            program.chmod(0o755)
        environment = {"PATH": f"{self.folder}:/usr/bin:/bin"}

        def launch(agent, *arguments):
            return self.check(OK, "launch", agent, "--url", url, "--key-file", keys, *arguments, env=environment)
        claude = launch("claude", "--", "-p", "hello")
        for line in (f"ANTHROPIC_BASE_URL={url}", f"ANTHROPIC_API_KEY={ALICE}", "ANTHROPIC_MODEL=m",
                     "CLAUDE_CODE_MAX_CONTEXT_TOKENS=512", "-p", "hello"):
            self.assertIn(line + "\n", claude.stdout)
        codex = launch("codex").stdout
        self.assertIn(f'base_url="{url}/v1"', codex)
        self.assertIn(f"FRT_API_KEY={ALICE}\n", codex)
        self.assertIn("model_context_window=512\n", codex)
        self.assertIn("openai/m\n", launch("aider").stdout)
        for result in (claude, launch("aider")):
            self.assertIn("(the key)", result.stderr)
            self.assertNotIn(ALICE, result.stderr)
        wrong = self.frt("launch", "claude", "--url", url, env=environment)
        self.assertIn("--key-file", wrong.stderr)
        nobody = self.frt("launch", "claude", "--url", "http://127.0.0.1:1", env=environment)
        self.assertIn("is the server running", nobody.stderr)
        self.assertNotEqual(nobody.returncode, OK)


if __name__ == "__main__":
    unittest.main()
