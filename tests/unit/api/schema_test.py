#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the writers write and what agents send is what hosts/http/api/openapi.json says."""
import json
import os
import pathlib
import subprocess
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None

SOURCE = pathlib.Path(os.environ["FRT_SOURCE"])
REQUESTS = {"/v1/chat/completions": "ChatCompletionRequest", "/v1/responses": "ResponsesRequest",
            "/v1/messages": "MessagesRequest"}


@unittest.skipIf(jsonschema is None, "python3-jsonschema is not installed")
class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.document = json.loads((SOURCE / "hosts/http/api/openapi.json").read_text())
        cls.schemas = cls.document["components"]["schemas"]
        cls.used = set()

    def errors_of(self, name, value):
        self.used.add(name)
        schema = {"$ref": f"#/components/schemas/{name}", "components": self.document["components"]}
        return [error.message[:300] for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]

    def test_the_schemas_are_schemas(self):
        for name, schema in self.schemas.items():
            with self.subTest(name):
                jsonschema.Draft202012Validator.check_schema(schema)

    def test_every_reply_is_what_the_document_says(self):
        replies = subprocess.run([os.environ["FRT_PRINT_REPLIES"]], check=True, capture_output=True, timeout=60)
        lines = replies.stdout.decode().splitlines()
        self.assertGreater(len(lines), 100)
        for line in lines:
            reply = json.loads(line)
            with self.subTest(schema=reply["schema"], value=reply["value"]):
                self.assertEqual(self.errors_of(reply["schema"], reply["value"]), [])

    def test_every_request_of_an_agent_is_what_the_document_says(self):
        for path in sorted((SOURCE / "tests/fixtures/agents").glob("*.json")):
            agent = json.loads(path.read_text())
            for turn in agent["turns"]:
                with self.subTest(path.name):
                    self.assertEqual(self.errors_of(REQUESTS[agent["path"]], turn), [])

    def test_what_a_reply_must_not_hold_is_noticed(self):
        usage = {"input_tokens": 1, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
        reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
                 "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
        self.assertEqual(self.errors_of("Message", reply), [])
        for change in ({"stop_reason": "stop"}, {"content": [{"type": "text"}]}, {"extra": 1}, {"usage": None}):
            with self.subTest(change=change):
                self.assertNotEqual(self.errors_of("Message", {**reply, **change}), [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
