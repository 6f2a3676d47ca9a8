# SPDX-License-Identifier: Apache-2.0
"""frt-host serve: sessions and capsules over HTTP, and whose they are."""
import unittest
import urllib.parse

from lm_serving import schema_errors
from test_lm_serve import ALICE, BOB, LmServeTest


class StateTest(LmServeTest):
    def state_server(self, http="", slots=3):
        return self.server(http, f"slots = {slots}\nmax_context = 512", f'capsule_dir = "{self.folder}/capsules"')

    def turn(self, server, session, history):
        """One more turn of a conversation; `history` grows by it. Returns the reply."""
        history.append({"role": "user", "content": "Tell me more about the sea. " * 4})
        body = {"messages": history, "temperature": 0, "max_tokens": 6}
        reply = server.request("POST", "/v1/chat/completions", body, {"X-Session-Id": session})
        self.assertEqual(reply.status, 200, reply.body)
        reply = reply.json()
        history.append({"role": "assistant", "content": reply["choices"][0]["message"]["content"]})
        return reply

    def read(self, server, session, ids):
        """Has the session read these tokens and no more."""
        reply = server.request("POST", "/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0},
                               {"X-Session-Id": session})
        self.assertEqual(reply.status, 200, reply.body)
        return reply.json()

    def ask(self, server, method, path, body=None, status=200):
        reply = server.request(method, path, body)
        self.assertEqual(reply.status, status, reply.body)
        for word in (str(self.folder), "frt::", "FRT_ERR", "slot 0"):
            self.assertNotIn(word, reply.body.decode())
        value = reply.json()
        kind = "OpenAIError" if status >= 400 else "Deleted" if method == "DELETE" else {
            "list": "SessionList" if path.startswith("/v1/sessions") else "CapsuleList", "session": "Session",
            "capsule": "Capsule"}[value["object"]]
        self.assertEqual(schema_errors(kind, value), [])
        return value

    def post(self, server, path, body=None, status=200):
        return self.ask(server, "POST", path, body, status)

    def names(self, server):
        return [capsule["id"] for capsule in self.ask(server, "GET", "/v1/capsules")["data"]
                if capsule["kind"] == "named"]


class Sessions(StateTest):
    def test_verbs(self):
        """a session is listed, pinned, kept, forked, taken back, restored and forgotten"""
        server = self.state_server()
        self.assertEqual(self.ask(server, "GET", "/v1/sessions"), {"object": "list", "data": []})
        history = []
        self.turn(server, "talk/1", history)
        second = self.turn(server, "talk/1", history)
        path = "/v1/sessions/" + urllib.parse.quote("talk/1", safe="")
        session = self.ask(server, "GET", path)
        self.assertEqual(self.ask(server, "GET", "/v1/sessions")["data"], [session])
        self.assertEqual((session["id"], session["busy"], session["pinned"]), ("talk/1", False, False))
        self.assertGreaterEqual(session["tokens"], second["usage"]["prompt_tokens"])
        self.assertTrue(self.post(server, path + "/pin")["pinned"])
        self.assertFalse(self.post(server, path + "/unpin")["pinned"])

        kept = self.post(server, path + "/snapshot", {"name": "sea"})
        self.assertEqual((kept["id"], kept["kind"], kept["tokens"]), ("sea", "named", session["tokens"]))
        self.assertIn("disk", kept["tiers"])
        self.post(server, path + "/snapshot", {"name": "sea"}, 409)

        self.assertEqual(self.post(server, path + "/fork", {"as": "branch"})["tokens"], session["tokens"])
        branch = self.turn(server, "branch", list(history))
        main = self.turn(server, "talk/1", history)
        self.assertNotEqual(branch["frt"]["prefix_action"], "read")
        self.assertEqual(branch["choices"][0]["message"], main["choices"][0]["message"])

        grown = self.ask(server, "GET", path)
        back = self.post(server, path + "/rewind", {"tokens": grown["boundaries"][0]["tokens"]})
        self.assertEqual(back["tokens"], grown["boundaries"][0]["tokens"])
        self.post(server, path + "/rewind", {"tokens": back["tokens"] + 1}, 409)
        restored = self.post(server, path + "/restore", {"capsule": "sea"})
        self.assertEqual(restored["tokens"], session["tokens"])
        last = self.post(server, path + "/rewind")
        self.assertLess(last["tokens"], session["tokens"])

        self.ask(server, "DELETE", path)
        self.ask(server, "GET", path, status=404)
        self.assertEqual([each["id"] for each in self.ask(server, "GET", "/v1/sessions")["data"]], ["branch"])
        new = self.post(server, "/v1/sessions/new/restore", {"capsule": "sea"})
        self.assertEqual((new["id"], new["tokens"]), ("new", session["tokens"]))

    def test_refusals(self):
        """what cannot be done is refused by name, and changes nothing"""
        server = self.state_server(slots=1)
        self.turn(server, "a", [])
        before = self.ask(server, "GET", "/v1/sessions/a")
        for path, body, status in (
                ("/v1/sessions/b/snapshot", {"name": "x"}, 404), ("/v1/sessions/a/snapshot", {}, 400),
                ("/v1/sessions/a/snapshot", {"name": "../x"}, 400), ("/v1/sessions/a/snapshot", {"name": "x..y"}, 400),
                ("/v1/sessions/a/snapshot", {"name": "auto-1"}, 400), ("/v1/sessions/a/snapshot", {"name": "x" * 129}, 400),
                ("/v1/sessions/a/snapshot", b"[]", 400), ("/v1/sessions/a/restore", {"capsule": "none"}, 404),
                ("/v1/sessions/a/restore", {"capsule": "../../etc/passwd"}, 404), ("/v1/sessions/a/fork", {"as": "a"}, 400),
                ("/v1/sessions/a/fork", {"as": "b"}, 503), ("/v1/sessions/b/fork", {"as": "a"}, 404),
                ("/v1/sessions/a/fork", {"as": "x" * 513}, 400), ("/v1/sessions/a/rewind", {"tokens": -1}, 400),
                ("/v1/sessions/a/rewind", {"tokens": 1}, 409), ("/v1/sessions/a/pin", None, 409),
                ("/v1/sessions/b/pin", None, 404), ("/v1/sessions/%zz/pin", None, 400),
                ("/v1/sessions/a/pin?model=none", None, 404), ("/v1/capsules/none/pin", None, 404),
                ("/v1/sessions/a/other", None, 404), ("/v1/sessions//pin", None, 404), ("/v1/sessions/a", None, 405)):
            with self.subTest(path=path, body=body):
                self.post(server, path, body, status)
        self.assertEqual(server.request("POST", "/v1/sessions/a").headers["Allow"], "GET, DELETE")
        self.assertEqual(self.ask(server, "GET", "/v1/sessions/a"), before)
        self.assertEqual(self.names(server), [])

    def test_busy(self):
        """a session that a request uses is listed as busy and not touched"""
        server = self.scripted(slots=2)
        _, answer = server.open("/v1/chat/completions", {"messages": [{"role": "user", "content": "endless"}],
                                                         "stream": True}, {"X-Session-Id": "a"})
        while b"content" not in answer.readline():
            pass
        self.assertTrue(self.ask(server, "GET", "/v1/sessions/a")["busy"])
        for verb, body in (("fork", {"as": "b"}), ("rewind", None)):
            self.post(server, f"/v1/sessions/a/{verb}", body, 409)
        self.ask(server, "DELETE", "/v1/sessions/a", status=409)
        self.post(server, "/v1/sessions/a/snapshot", {"name": "x"}, 409)


class Capsules(StateTest):
    def test_files(self):
        """an export is imported bit for bit, a changed one is not, and names and pins outlive the server"""
        server = self.state_server()
        prompt = list(range(100, 160))
        self.read(server, "talk", prompt)
        made = self.post(server, "/v1/sessions/talk/snapshot", {"name": "first"})
        self.assertEqual(made["tokens"], len(prompt))
        exported = server.request("GET", "/v1/capsules/first/export")
        self.assertEqual((exported.status, exported.headers["Content-Type"]), (200, "application/octet-stream"))
        self.assertEqual(len(exported.body), made["file_bytes"])
        for at in (0, len(exported.body) // 2, len(exported.body) - 1):
            damaged = bytearray(exported.body)
            damaged[at] ^= 1
            self.post(server, "/v1/capsules/second/import", bytes(damaged), 400)
        self.post(server, "/v1/capsules/second/import", exported.body[:-1], 400)
        self.post(server, "/v1/capsules/second/import", b"", 400)
        self.post(server, "/v1/capsules/auto-2/import", exported.body, 400)
        self.post(server, "/v1/capsules/first/import", exported.body, 409)
        self.assertEqual(self.names(server), ["first"])
        second = self.post(server, "/v1/capsules/second/import", exported.body)
        self.assertEqual((second["id"], second["tokens"], second["tiers"]), ("second", made["tokens"], ["disk"]))
        self.assertEqual(server.request("GET", "/v1/capsules/second/export").body, exported.body)
        self.ask(server, "DELETE", "/v1/capsules/first")
        self.ask(server, "DELETE", "/v1/capsules/first", status=404)
        self.assertTrue(self.post(server, "/v1/capsules/second/pin")["pinned"])
        server.terminate()
        server.wait()

        server = self.state_server()
        capsules = self.ask(server, "GET", "/v1/capsules")["data"]
        self.assertEqual([(each["id"], each["pinned"]) for each in capsules if each["kind"] == "named"], [("second", True)])
        again = self.read(server, "talk", prompt + [7, 8])["frt"]
        self.assertEqual((again["prefix_action"], again["capsule_id"], again["reused_tokens"]),
                         ("restore", "second", len(prompt)))
        self.assertFalse(self.post(server, "/v1/capsules/second/unpin")["pinned"])
        self.ask(server, "DELETE", "/v1/capsules/second")
        self.assertEqual(self.names(server), [])
        self.assertEqual(list((self.folder / "capsules").glob("second*")), [])

    def test_automatic(self):
        """capsules that were made by themselves are listed, used as others are, and have no file to export yet"""
        server = self.state_server()
        self.turn(server, "talk", [])
        capsules = self.ask(server, "GET", "/v1/capsules")["data"]
        self.assertEqual({each["kind"] for each in capsules} - {"chunk", "user-turn", "turn"}, set())
        one = capsules[-1]["id"]
        self.assertEqual(self.ask(server, "GET", f"/v1/capsules/{one}"), capsules[-1])
        self.ask(server, "GET", f"/v1/capsules/{one}/export", status=409)
        self.assertEqual(self.post(server, "/v1/sessions/b/restore", {"capsule": one})["tokens"], capsules[-1]["tokens"])
        self.ask(server, "DELETE", f"/v1/capsules/{one}")
        self.ask(server, "GET", f"/v1/capsules/{one}", status=404)

    def test_no_folder(self):
        """a server without a folder says so, and serves what is in memory"""
        server = self.server()
        self.turn(server, "talk", [])
        self.post(server, "/v1/sessions/talk/snapshot", {"name": "x"}, 409)
        self.post(server, "/v1/capsules/x/import", b"x", 409)
        self.assertTrue(self.ask(server, "GET", "/v1/capsules")["data"])


class Owners(StateTest):
    def test_owners(self):
        """two keys never see, use or learn of each other's sessions and capsules"""
        server = self.state_server(self.key_file())
        exported = {}
        for key in (ALICE, BOB):
            server.key = key
            self.turn(server, "talk", [])
            self.assertEqual([each["id"] for each in self.ask(server, "GET", "/v1/sessions")["data"]], ["talk"])
            self.assertEqual(self.names(server), [])
            self.post(server, "/v1/sessions/talk/snapshot", {"name": "mine"})
            exported[key] = server.request("GET", "/v1/capsules/mine/export").body
            self.assertEqual(self.names(server), ["mine"])
        ours = {each["id"] for each in self.ask(server, "GET", "/v1/capsules")["data"]}
        server.key = ALICE
        theirs = {each["id"] for each in self.ask(server, "GET", "/v1/capsules")["data"]}
        self.assertEqual(ours & theirs, {"mine"})
        for name in sorted(ours - theirs) + ["bob..mine"]:
            with self.subTest(name=name):
                for method, path, body in (("GET", "", None), ("GET", "/export", None), ("POST", "/pin", None),
                                           ("DELETE", "", None)):
                    self.ask(server, method, f"/v1/capsules/{name}{path}", body, 404)
                self.post(server, "/v1/sessions/x/restore", {"capsule": name}, 404)
        self.post(server, "/v1/capsules/taken/import", exported[BOB], 403)
        self.post(server, "/v1/capsules/taken/import", exported[ALICE])
        self.ask(server, "DELETE", "/v1/capsules/mine")
        self.ask(server, "DELETE", "/v1/sessions/talk")
        self.assertEqual(self.names(server), ["taken"])
        server.key = BOB
        self.assertEqual(self.names(server), ["mine"])
        self.ask(server, "GET", "/v1/sessions/talk")

    def test_limit(self):
        """a key keeps only as many named and pinned capsules as it may"""
        server = self.state_server()
        self.turn(server, "talk", [])
        for number in range(64):
            self.post(server, "/v1/sessions/talk/snapshot", {"name": f"c{number}"})
        self.post(server, "/v1/sessions/talk/snapshot", {"name": "more"}, 409)
        self.ask(server, "DELETE", "/v1/capsules/c7")
        self.post(server, "/v1/sessions/talk/snapshot", {"name": "more"})


if __name__ == "__main__":
    unittest.main()
