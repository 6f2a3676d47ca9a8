# SPDX-License-Identifier: Apache-2.0
"""frt-host serve: answers that must be of a form. The demo model knows nothing of forms, so what it says is what the
grammar lets it say; the scripted one says what a good model would."""
import concurrent.futures
import json
import os
import random
import unittest

from lm_serving import jsonschema
from test_lm_serve import TOOLS, LmServeTest

BUILT = os.environ.get("FRT_XGRAMMAR", "ON") == "ON"
PLAIN = {"enable_thinking": False, "max_tokens": 300, "temperature": 1.0}
CITIES = ["Kyoto", "Oslo", "Lima"]
FORECAST = {"type": "object", "properties": {"city": {"enum": CITIES}, "days": {"type": "integer", "minimum": 1, "maximum": 9},
                                             "hours": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
            "required": ["city", "days"]}
CALLABLE = [{"type": "function", "function": {"name": "forecast", "parameters": FORECAST}},
            {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]


def random_schema(draw, depth=0):
    kind = draw.choice(["string", "integer", "number", "boolean", "null", "enum", "const", "pattern"] +
                       ["object", "array", "anyOf", "nullable"] * (2 if depth == 0 else depth < 3))
    if kind == "string":
        return {"type": "string", "maxLength": draw.randint(0, 8)}
    if kind == "integer":
        low = draw.randint(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + draw.randint(0, 1000)}
    if kind == "number":
        return {"type": "number", "minimum": 0, "maximum": 9}
    if kind == "enum":
        return {"enum": draw.sample(["a", "bb", 1, 2.5, None, True, {"x": 1}, [1, "y"], "\u00e9\"\\"], draw.randint(1, 5))}
    if kind == "const":
        return {"const": draw.choice(["fixed", 7, None, {"k": [1]}])}
    if kind == "pattern":
        return {"type": "string", "pattern": draw.choice(["^[a-z]{1,5}$", "^(yes|no)$", "^[0-9]{4}-[0-9]{2}$"])}
    if kind == "array":
        least = draw.randint(0, 2)
        return {"type": "array", "items": random_schema(draw, depth + 1), "minItems": least, "maxItems": least + draw.randint(0, 2)}
    if kind == "anyOf":
        return {"anyOf": [random_schema(draw, depth + 1) for _ in range(draw.randint(1, 3))]}
    if kind == "nullable":
        return {"type": ["string", "null"], "maxLength": 4}
    if kind == "object":
        names = draw.sample(["id", "name", "tags", "a b", "\u00fc", "x-y", "nested"], draw.randint(1, 4))
        return {"type": "object", "properties": {name: random_schema(draw, depth + 1) for name in names},
                "required": draw.sample(names, draw.randint(0, len(names))), "additionalProperties": False}
    return {"type": kind}


def format_of(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


@unittest.skipUnless(BUILT, "built without XGrammar")
class Structured(LmServeTest):
    def answer(self, reply):
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()["choices"][0]

    @unittest.skipUnless(jsonschema, "python3-jsonschema is missing")
    def test_fifty_schemas(self):
        """whatever the schema, a finished answer is valid; beside them answers without one"""
        server = self.server()
        draw = random.Random(5)
        schemas = [random_schema(draw) for _ in range(50)]

        def ask(index):
            server.chat("Tell me about it.", **PLAIN, seed=index) if index % 5 == 0 else None
            return server.chat("Tell me about it.", **PLAIN, seed=index, response_format=format_of(schemas[index]))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(ask, range(50)))
        finished = 0
        for schema, reply in zip(schemas, replies):
            with self.subTest(schema=schema):
                choice = self.answer(reply)
                if choice["finish_reason"] != "stop":
                    continue
                finished += 1
                jsonschema.validate(json.loads(choice["message"]["content"]), schema)
        self.assertGreaterEqual(finished, 45)
        metrics = server.metrics()
        self.assertGreater(metrics['frt_grammar_compiled_total{model="m"}'], 20)
        self.assertGreater(metrics['frt_lm_mask_seconds_count{model="m"}'], 500)

    def test_protocols(self):
        """every protocol's way to ask for a form; streamed, too"""
        server = self.server()
        schema = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["x"]}
        ask = [{"role": "user", "content": "x?"}]
        choice = self.answer(server.chat("x?", **PLAIN, response_format={"type": "json_object"}, max_completion_tokens=200))
        self.assertTrue(choice["message"]["content"].startswith("{"))
        several = server.chat("x?", **PLAIN, response_format=format_of(schema), n=3).json()["choices"]
        self.assertEqual(len(several), 3)
        for each in several:
            self.assertLessEqual(json.loads(each["message"]["content"])["x"], 99)
        streamed = server.request("POST", "/v1/chat/completions", {
            "messages": ask, "stream": True, **PLAIN, "response_format": format_of(schema)}).events()
        text = "".join(event["choices"][0]["delta"].get("content") or "" for event in streamed[:-1] if event["choices"])
        self.assertIn("x", json.loads(text))
        response = server.request("POST", "/v1/responses", {
            "input": "x?", "reasoning": {"effort": "none"}, "max_output_tokens": 300,
            "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}).json()
        self.assertIn("x", json.loads(response["output"][-1]["content"][0]["text"]))
        message = server.request("POST", "/v1/messages", {
            "messages": ask, "max_tokens": 300,
            "output_config": {"format": {"type": "json_schema", "schema": schema}}}).json()
        self.assertIn("x", json.loads(message["content"][-1]["text"]))
        for guide in ({"guided_regex": "[0-9]{3}"}, {"structured_outputs": {"regex": "[0-9]{3}"}},
                      {"guided_grammar": 'root ::= [0-9] [0-9] [0-9]'}, {"grammar": 'root ::= [0-9] [0-9] [0-9]'}):
            with self.subTest(guide=guide):
                self.assertRegex(self.answer(server.chat("x?", **PLAIN, **guide))["message"]["content"], r"^\d{3}$")
                whole = server.request("POST", "/v1/completions", {"prompt": "1 + 1 =", "max_tokens": 20, **guide}).json()
                self.assertRegex(whole["choices"][0]["text"], r"^\d{3}$")
                self.assertEqual(whole["choices"][0]["finish_reason"], "stop")
        chosen = self.answer(server.chat("x?", **PLAIN, guided_choice=["red", "green"]))
        self.assertIn(chosen["message"]["content"], ("red", "green"))
        self.assertIn("x", json.loads(self.answer(server.chat("x?", **PLAIN, guided_json=schema))["message"]["content"]))

    def test_calls(self):
        """a demanded call comes, alone and whole, in every protocol"""
        server = self.server()
        for choice, names in (("required", {"forecast", "now"}), ({"type": "function", "function": {"name": "forecast"}}, {"forecast"})):
            for seed in range(6):
                with self.subTest(choice=choice, seed=seed):
                    answer = self.answer(server.chat("Weather?", **PLAIN, tools=CALLABLE, tool_choice=choice, seed=seed,
                                                     parallel_tool_calls=False))
                    self.assertEqual(answer["finish_reason"], "tool_calls")
                    self.assertFalse((answer["message"].get("content") or "").strip())
                    call = answer["message"]["tool_calls"][0]["function"]
                    self.assertIn(call["name"], names)
                    arguments = json.loads(call["arguments"])
                    if call["name"] == "forecast":
                        self.assertIn(arguments["city"], CITIES)
                        self.assertIn(arguments["days"], range(1, 10))
                        self.assertLessEqual(len(arguments.get("hours", [])), 3)
        message = server.request("POST", "/v1/messages", {
            "messages": [{"role": "user", "content": "Weather?"}], "max_tokens": 300,
            "tools": [{"name": "forecast", "input_schema": FORECAST}], "tool_choice": {"type": "tool", "name": "forecast"}}).json()
        self.assertEqual(message["stop_reason"], "tool_use")
        self.assertIn(message["content"][-1]["input"]["city"], CITIES)
        response = server.request("POST", "/v1/responses", {
            "input": "Weather?", "reasoning": {"effort": "none"}, "max_output_tokens": 300, "tool_choice": "required",
            "tools": [{"type": "function", "name": "forecast", "parameters": FORECAST}]}).json()
        call = [item for item in response["output"] if item["type"] == "function_call"][0]
        self.assertIn(json.loads(call["arguments"])["city"], CITIES)
        none = self.answer(server.chat("Weather?", **PLAIN, tools=CALLABLE, tool_choice="none"))
        self.assertFalse(none["message"].get("tool_calls"))

    def test_reasoning(self):
        """the grammar begins behind the reasoning, and a good model's answer passes through it unchanged"""
        server = self.scripted(slots=2)
        schema = {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}
        for stream in (False, True):
            reply = server.request("POST", "/v1/chat/completions", {
                "messages": [{"role": "user", "content": "as JSON"}], "response_format": format_of(schema), "stream": stream})
            if stream:
                deltas = [event["choices"][0]["delta"] for event in reply.events()[:-1] if event["choices"]]
                message = {part: "".join(delta.get(part) or "" for delta in deltas) for part in ("content", "reasoning_content")}
            else:
                message = self.answer(reply)["message"]
            self.assertEqual(json.loads(message["content"]), {"city": "Kyoto", "days": 3})
            self.assertEqual(message["reasoning_content"].strip(), "They want {JSON}.")
        demanded = self.answer(server.request("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "only call"}], "tools": TOOLS, "tool_choice": "required"}))
        self.assertEqual([json.loads(call["function"]["arguments"]) for call in demanded["message"]["tool_calls"]],
                         [{"city": "Kyoto", "days": 3}])
        strict = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
        free = self.answer(server.request("POST", "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "weather"}], "tools": strict}))
        self.assertEqual([json.loads(call["function"]["arguments"]) for call in free["message"]["tool_calls"]],
                         [{"city": "Kyoto", "days": 3}, {"city": "Oslo", "days": 1}])
        self.assertEqual(free["message"]["content"].strip(), "I look.")

    def test_refusals(self):
        """what cannot be enforced is a 400 that names its field, streamed or not"""
        server = self.server()
        deep = {"type": "object"}
        for _ in range(40):
            deep = {"type": "object", "properties": {"d": deep}}
        cases = (({"response_format": format_of({"type": "object", "properties": {"a": {"not": {}}}})}, "response_format", "/properties/a/not"),
                 ({"response_format": format_of(deep)}, "response_format.json_schema.schema", "deeper"),
                 ({"response_format": format_of({"type": "array", "uniqueItems": True})}, "response_format", "uniqueItems"),
                 ({"guided_regex": "(("}, "guided_regex", ""), ({"guided_grammar": "nothing"}, "guided_grammar", ""),
                 ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice", "beside guided_regex"),
                 ({"tools": [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object", "if": {}}}}],
                   "tool_choice": "required"}, "tool_choice", "/if"))
        for fields, param, part in cases:
            for stream in (False, True):
                with self.subTest(param=param, part=part, stream=stream):
                    reply = server.chat("x", enable_thinking=False, stream=stream, **fields)
                    self.assertEqual(reply.status, 400, reply.body[:500])
                    error = reply.json()["error"]
                    self.assertEqual(error["param"], param, error)
                    self.assertIn(part, error["message"])
                    for word in (str(self.folder), "frt::", ".cpp", ".cc:", "/tmp", "xgrammar::"):
                        self.assertNotIn(word, reply.body.decode())
        # One that is dear to follow ends, and others are served.
        dear = server.chat("x", enable_thinking=False, max_tokens=200, guided_regex="((a{1,500}){1,500}){1,500}")
        self.assertIn(dear.status, (200, 400), dear.body)
        self.assertEqual(server.chat("x").status, 200)
        self.until(lambda: server.metrics()['frt_lm_slots_used{model="m"}'] == 0)


@unittest.skipIf(BUILT, "built with XGrammar")
class Without(LmServeTest):
    def test_the_tool_is_named(self):
        """without XGrammar a form is refused with the name of the tool that adds it"""
        server = self.server()
        for fields in ({"response_format": {"type": "json_object"}}, {"tools": CALLABLE, "tool_choice": "required"}):
            reply = server.chat("x", **fields)
            self.assertEqual(reply.status, 400)
            self.assertIn("tools/setup-xgrammar", reply.json()["error"]["message"])
        self.assertEqual(server.chat("x", tools=CALLABLE).status, 200)


if __name__ == "__main__":
    unittest.main()
