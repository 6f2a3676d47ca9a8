# SPDX-License-Identifier: Apache-2.0
"""frt-host tokenize: what the tokenizer and the chat format of a checkpoint give, without its weights."""
import json
import unittest

from support import FAILED, FIXTURES, OK, USAGE, HostTest

CHECKPOINT = FIXTURES / "llama/gqa_llama3"
PROMPTS = json.loads((CHECKPOINT / "prompts.json").read_text())


class Tokenize(HostTest):
    def setUp(self):
        super().setUp()
        self.manifest = self.model_manifest(CHECKPOINT, plugin="frt.llama", options="max_context = 256")

    def file(self, name, content):
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def tokenize_json(self, *arguments, **options):
        return json.loads(self.check(OK, "-q", "tokenize", self.manifest, "--json", *arguments, **options).stdout)

    def test_texts_have_the_ids_of_the_reference(self):
        for entry in PROMPTS:
            if "messages" in entry:
                continue
            with self.subTest(entry["prompt"]):
                report = self.tokenize_json(entry["prompt"])
                self.assertEqual(report["ids"], entry["ids"])
                self.assertEqual(report["count"], len(entry["ids"]))
                self.assertEqual(report, self.tokenize_json("--file", self.file("text", entry["prompt"])))
                self.assertEqual(report, self.tokenize_json(stdin=entry["prompt"]))
                self.assertTrue("".join(report["pieces"]).endswith(entry["prompt"]))
                if entry["prompt"].startswith("<|"):
                    continue
                continued = self.tokenize_json("--continues", entry["prompt"])
                self.assertEqual(continued["ids"], entry["ids"][1:])
                self.assertEqual("".join(continued["pieces"]), entry["prompt"])

    def test_a_conversation_is_rendered_first(self):
        entry = next(entry for entry in PROMPTS if "messages" in entry)
        report = self.tokenize_json("--chat", self.file("chat.json", entry["messages"]))
        self.assertEqual(report["text"], entry["prompt"])
        self.assertEqual("".join(report["pieces"]), entry["prompt"])
        whole = {"messages": entry["messages"], "options": {"add_generation_prompt": False}}
        shorter = self.tokenize_json("--chat", self.file("whole.json", whole))
        self.assertTrue(report["text"].startswith(shorter["text"]))
        self.assertLess(shorter["count"], report["count"])

    def test_without_json_there_is_a_line_for_each_token(self):
        result = self.check(OK, "tokenize", self.manifest, "--no-special-tokens", "a<|eot_id|>")
        plain = self.tokenize_json("--no-special-tokens", "a<|eot_id|>")
        lines = [line.split(None, 1) for line in result.stdout.splitlines()]
        self.assertEqual([int(line[0]) for line in lines], plain["ids"])
        self.assertEqual([json.loads(line[1]) for line in lines], plain["pieces"])
        self.assertIn(f"{plain['count']} tokens", result.stderr)
        self.assertLess(self.tokenize_json("a<|eot_id|>")["count"], plain["count"])

    def test_files_that_are_no_conversation_are_refused_in_a_line(self):
        hello = [{"role": "user", "content": "hello"}]
        for content, status, word in (("{", FAILED, "chat.json"), ("[" * 200_000, FAILED, "chat.json"),
                                      ("3", USAGE, "messages"), ({"messages": hello, "x": 1}, USAGE, '"x"'),
                                      ([{"role": "robot"}], FAILED, "message 0"),
                                      ({"messages": hello, "options": {"think": True}}, FAILED, "think"),
                                      ([{"role": "user", "content": "a" * 5_000_000}], FAILED, "1048576")):
            with self.subTest(str(content)[:40]):
                result = self.check(status, "tokenize", self.manifest, "--chat", self.file("chat.json", content))
                self.assertIn(word, result.stderr)
                self.assertEqual(result.stdout, "")
        self.check(USAGE, "tokenize", self.manifest, "text", "--chat", self.file("chat.json", hello))
        bad = self.folder / "bad"
        bad.write_bytes(b"ab\xff")
        self.assertIn("byte 2", self.check(FAILED, "tokenize", self.manifest, "--file", bad).stderr)


if __name__ == "__main__":
    unittest.main()
