# SPDX-License-Identifier: Apache-2.0
"""frt-host serve: every route that hosts/http/api/openapi.json describes answers as it says there."""
import json
import unittest

from lm_serving import jsonschema
from support import SOURCE
from test_lm_state import StateTest

CHAT = {"model": "m", "messages": [{"role": "user", "content": "Tell me of the sea."}], "max_tokens": 4}


@unittest.skipIf(jsonschema is None, "python3-jsonschema is not installed")
class Document(StateTest):
    def setUp(self):
        super().setUp()
        self.document = json.loads((SOURCE / "hosts/http/api/openapi.json").read_text(encoding="utf-8"))
        self.seen = set()       # (path, method, status as the document has it)
        self.at = self.state_server()

    def operations(self):
        return {(path, method): operation for path, item in self.document["paths"].items()
                for method, operation in item.items() if method in ("get", "post", "delete", "put", "patch")}

    def errors_of(self, schema, value):
        whole = {**schema, "components": self.document["components"]}
        return [error.message[:300] for error in jsonschema.Draft202012Validator(whole).iter_errors(value)]

    def ask_documented(self, path, method="get", body=None, status=200, names=None, query=""):
        """Sends a request, and holds the answer against the document."""
        operation = self.operations()[path, method]
        sent = path
        for name, value in (names or {}).items():
            sent = sent.replace("{" + name + "}", value)
        reply = self.at.request(method.upper(), sent + query, body)
        self.assertEqual(reply.status, status, reply.body)
        answers = operation["responses"]
        key = str(status) if str(status) in answers else f"{status // 100}XX"
        kind = reply.headers["Content-Type"].split(";")[0]
        content = answers[key]["content"]
        self.assertIn(kind, content, (path, method, key))
        self.seen.add((path, method, key))
        if "schema" in content[kind] and kind == "text/event-stream":
            for event in reply.events():
                self.assertEqual([] if event == "[DONE]" else self.errors_of(content[kind]["schema"], event), [], event)
        elif "schema" in content[kind]:
            value = reply.json() if kind == "application/json" else reply.body.decode()
            self.assertEqual(self.errors_of(content[kind]["schema"], value), [], (path, method, value))
        if isinstance(body, dict) and status == 200:
            self.assertEqual(self.errors_of(operation["requestBody"]["content"]["application/json"]["schema"], body), [], body)
        return reply

    def test_routes(self):
        """what each route answers, and how it refuses, is what the document says of it; none is left out"""
        ask = self.ask_documented
        for path, body, bad in (
                ("/v1/chat/completions", CHAT, {"messages": 1}),
                ("/v1/completions", {"prompt": "The sea", "max_tokens": 4}, {"prompt": {}}),
                ("/v1/responses", {"input": "Tell me of the sea.", "max_output_tokens": 4}, {"input": 1}),
                ("/v1/messages", CHAT, {"messages": 1})):
            ask(path, "post", body)
            ask(path, "post", {**body, "stream": True})
            ask(path, "post", bad, 400)
        ask("/v1/messages/count_tokens", "post", CHAT)
        ask("/v1/messages/count_tokens", "post", {"model": "m"}, 400)
        ask("/v1/models")
        ask("/v1/models/{id}", names={"id": "m"})
        ask("/v1/models/{id}", names={"id": "none"}, status=404)
        ids = ask("/tokenize", "post", {"content": "The sea", "with_pieces": True}).json()["tokens"]
        ask("/tokenize", "post", {"messages": CHAT["messages"]})
        ask("/tokenize", "post", {"content": 1}, 400)
        ask("/detokenize", "post", {"tokens": ids})
        ask("/detokenize", "post", {"tokens": ["x"]}, 400)
        ask("/apply-template", "post", {"messages": CHAT["messages"]})
        ask("/apply-template", "post", {}, 400)
        ask("/v1/about")
        ask("/v1/policies/{id}/metrics", names={"id": "none"}, status=404)
        ask("/health")
        ask("/metrics")
        self.states()
        # What only a server in another state says, or one that has keys, is documented alike: see the tests of that.
        left = {(path, method, key) for (path, method), operation in self.operations().items() for key in operation["responses"]
                if key not in ("5XX", "503")} - self.seen
        left -= {(path, "get", "4XX") for path in ("/health", "/metrics", "/v1/about", "/v1/models", "/v1/sessions",
                                                    "/v1/capsules")}
        left -= {("/v1/policies/{id}/metrics", "get", "200")}  # text of a server with a policy: test_robot_serve
        self.assertEqual(left, set())

    def states(self):
        ask, session, capsule = self.ask_documented, {"id": "talk"}, {"id": "kept"}
        history = []
        for _ in range(2):
            self.turn(self.at, "talk", history)
        ask("/v1/sessions")
        ask("/v1/sessions/{id}", names=session)
        ask("/v1/sessions/{id}/snapshot", "post", {"name": "kept"}, names=session)
        ask("/v1/sessions/{id}/restore", "post", {"capsule": "kept"}, names={"id": "again"})
        ask("/v1/sessions/{id}/fork", "post", {"as": "branch"}, names=session)
        ask("/v1/sessions/{id}/rewind", "post", {}, names=session)
        ask("/v1/sessions/{id}/pin", "post", names=session)
        ask("/v1/sessions/{id}/unpin", "post", names=session)
        ask("/v1/capsules")
        ask("/v1/capsules/{id}", names=capsule)
        file = ask("/v1/capsules/{id}/export", names=capsule).body
        ask("/v1/capsules/{id}/import", "post", file, names={"id": "second"})
        ask("/v1/capsules/{id}/import", "post", file[:-1], 400, names={"id": "third"})
        for verb in ("pin", "unpin"):
            ask(f"/v1/capsules/{{id}}/{verb}", "post", names=capsule)
        nobody = {"id": "nobody"}
        for path in ("/v1/sessions/{id}", "/v1/capsules/{id}"):
            ask(path, names=nobody, status=404)
            ask(path, "delete", names=nobody, status=404)
        for verb, body in (("snapshot", {"name": "x"}), ("fork", {"as": "x"}), ("rewind", {}), ("pin", None), ("unpin", None)):
            ask(f"/v1/sessions/{{id}}/{verb}", "post", body, 404, names=nobody)
        ask("/v1/sessions/{id}/restore", "post", {"capsule": "nobody"}, 404, names=session)
        for verb in ("pin", "unpin"):
            ask(f"/v1/capsules/{{id}}/{verb}", "post", status=404, names=nobody)
        ask("/v1/capsules/{id}/export", status=404, names=nobody)
        ask("/v1/sessions/{id}", "delete", names=session)
        ask("/v1/capsules/{id}", "delete", names=capsule)

    def test_methods(self):
        """a path takes the methods that the document gives it, and no other"""
        for path, item in self.document["paths"].items():
            reply = self.at.request("PATCH", path.replace("{id}", "x"))
            self.assertEqual(reply.status, 405, path)
            self.assertEqual({method.lower() for method in reply.headers["Allow"].split(", ")},
                             set(item) & {"get", "post", "delete", "put"}, path)

    def test_loading(self):
        """a server that loads, and one that asks for a key, say so as the document says"""
        self.at = self.server(self.key_file(), wait=False)
        for _ in range(200):
            reply = self.at.request("GET", "/health")
            if reply.status == 200:
                break
            self.assertEqual(reply.status, 503)
            self.assertEqual(self.errors_of({"$ref": "#/components/schemas/Health"}, reply.json()), [])
        for path in ("/metrics", "/v1/models", "/v1/sessions", "/v1/capsules"):
            self.ask_documented(path, status=401)


if __name__ == "__main__":
    unittest.main()
