# SPDX-License-Identifier: Apache-2.0
"""A Llama checkpoint in every command that takes a language model."""
import json
import struct
import unittest

from lm_serving import LmServer
from support import FIXTURES, OK, SOURCE, HostTest

CHECKPOINT = FIXTURES / "llama/gqa_llama3"
BIASES = FIXTURES / "llama/biases"


def as_bf16(value):
    """The nearest number that bfloat16 has."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return struct.unpack("<f", struct.pack("<I", (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000))[0]


def with_biases_as(folder, dtype, rounded):
    """The checkpoint `biases` with its biases, which are F16, stored as F32 or BF16; rounded: to what BF16 has."""
    data = (BIASES / "model.safetensors").read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header, body, payload = json.loads(data[8:8 + length]), data[8 + length:], b""
    biases = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        piece = body[begin:end]
        if name.endswith(".bias"):
            assert entry["dtype"] == "F16"
            values = struct.unpack(f"<{len(piece) // 2}e", piece)
            floats = [struct.pack("<f", as_bf16(value) if rounded else value) for value in values]
            piece = b"".join(each[2:] if dtype == "BF16" else each for each in floats)
            entry["dtype"] = dtype
            biases += 1
        entry["data_offsets"] = [len(payload), len(payload) + len(piece)]
        payload += piece
    assert biases > 0
    folder.mkdir()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + payload)
    (folder / "config.json").write_bytes((BIASES / "config.json").read_bytes())
    return folder


class Llama(HostTest):
    def llama(self, checkpoint=CHECKPOINT, options="max_context = 256\nprefill_chunk = 32"):
        return self.model_manifest(checkpoint, plugin="frt.llama", options=options,
                                   extra='[host.lm]\nmodel = "m"\ncapsule_dir = "capsules"\n')

    def test_it_is_shown_checked_and_verified(self):
        shown = self.check(OK, "plugins", "show", "frt.llama").stdout
        self.assertIn("chat_template", shown)
        self.assertNotIn("speculation", shown)
        manifest = self.llama(options='activations = "f32"\nmax_context = 256')
        self.check(OK, "config", "check", manifest)
        self.assertIn("0 failed, 0 skipped", self.check(OK, "verify", manifest, "--goldens", CHECKPOINT).stdout)

    def test_it_runs_chats_and_is_measured(self):
        manifest = self.llama()
        first = self.run_json(manifest, "-p", "The capital", "-n", 8, "--greedy", "--ignore-eos")
        self.assertEqual(len(first["ids"]), 8)
        prompts = json.loads((CHECKPOINT / "prompts.json").read_text())
        whole = next(entry for entry in prompts if entry["prompt"] == "The capital of France is")
        counted = self.run_json(manifest, "-p", whole["prompt"], "-n", 1)
        self.assertEqual(counted["prompt_tokens"], len(whole["ids"]))  # <|begin_of_text|> counts
        self.check(OK, "run", manifest, "--chat", "-p", "Hello", "-n", 4, "--greedy", "--ignore-eos")
        self.check(OK, "chat", manifest, "--max-new", 4, "--greedy", stdin="Hello\nAgain\n/quit\n")
        measured = ["-p", 16, "-n", 4, "-r", 1, "-o", "json"]
        self.check(OK, "bench", manifest, *measured)
        self.check(OK, "bench", self.llama("synthetic:llama-tiny"), *measured)

    def test_its_capsules_go_on_where_they_stopped(self):
        manifest = self.llama()
        options = ["--greedy", "--ignore-eos"]
        whole = self.run_json(manifest, "-p", "Once upon a time", "-n", 12, *options)
        start = self.run_json(manifest, "-p", "Once upon a time", "-n", 5, "--save-capsule", "a", *options)
        rest = self.run_json(manifest, "--from-capsule", "a", "-n", 7, "--ignore-eos")
        self.assertEqual(start["ids"] + rest["ids"], whole["ids"])
        self.check(OK, "capsule", "verify", "capsules", "a")
        self.assertIn("PASS", self.check(OK, "capsule", "check", manifest, "--cases", 3).stdout)

    def test_a_text_that_goes_on_from_a_capsule_begins_no_sequence(self):
        manifest = self.llama()
        first = self.run_json(manifest, "-p", "Once upon", "-n", 0, "--save-capsule", "a")
        more = self.run_json(manifest, "--from-capsule", "a", "-p", " a time", "-n", 1)
        whole = self.run_json(manifest, "-p", " a time", "-n", 1)
        self.assertEqual(more["prompt_tokens"], first["prompt_tokens"] + whole["prompt_tokens"] - 1)

    def test_it_is_served_and_agents_are_launched_against_it(self):
        manifest = self.model_manifest(CHECKPOINT, plugin="frt.llama", options="max_context = 256\nprefill_chunk = 32\nslots = 2",
                                       extra='[host.http]\nmodel = "m"\naliases = "*=m"\n')
        server = LmServer(self, manifest)
        wanted = self.run_json(manifest, "-p", "The capital", "-n", 8, "--greedy", "--ignore-eos")
        body = {"model": "anything", "prompt": "The capital", "max_tokens": 8, "temperature": 0, "ignore_eos": True}
        answer = server.request("POST", "/v1/completions", body).json()
        self.assertEqual(answer["choices"][0]["text"], wanted["text"])
        self.assertEqual(answer["usage"]["prompt_tokens"], wanted["prompt_tokens"])
        talk = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
        whole = server.request("POST", "/v1/chat/completions", talk).json()
        self.assertEqual(whole["choices"][0]["message"]["role"], "assistant")
        events = server.request("POST", "/v1/chat/completions", {**talk, "stream": True}).events()
        streamed = "".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-1] if event["choices"])
        self.assertEqual(streamed, whole["choices"][0]["message"]["content"])
        self.assertEqual(events[-1], "[DONE]")
        counted = server.request("POST", "/v1/messages/count_tokens", {"messages": talk["messages"]}).json()
        self.assertEqual(counted["input_tokens"], whole["usage"]["prompt_tokens"])

        program = self.folder / "codex"
        program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        launched = self.check(OK, "launch", "codex", "--url", f"http://127.0.0.1:{server.port}",
                              env={"PATH": f"{self.folder}:/usr/bin:/bin"}).stdout
        self.assertIn('model="m"\n', launched)
        self.assertIn("model_context_window=256\n", launched)
        server.terminate()
        self.assertEqual(server.wait(), OK)

    def test_a_client_is_told_why_the_template_refuses_its_conversation_and_no_path(self):
        checkpoint = self.folder / "a secret place"
        checkpoint.mkdir()
        for file in CHECKPOINT.iterdir():
            (checkpoint / file.name).symlink_to(file)
        (checkpoint / "chat_template.jinja").write_text(
            "{% if messages|length > 1 %}{{ raise_exception('one message at a time') }}{% endif %}{{ messages[0].content }}",
            encoding="utf-8")
        server = LmServer(self, self.model_manifest(
            checkpoint, plugin="frt.llama", options="max_context = 256\nprefill_chunk = 32\nslots = 2",
            extra='[host.http]\nmodel = "m"\n'))
        message = {"role": "user", "content": "Hello"}
        talk = {"max_tokens": 2, "temperature": 0}
        self.assertEqual(server.request("POST", "/v1/chat/completions", {**talk, "messages": [message]}).status, 200)
        reply = server.request("POST", "/v1/chat/completions", {**talk, "messages": [message, message]})
        self.assertEqual(reply.status, 400)
        self.assertIn("line 1: it refuses the conversation: one message at a time", reply.json()["error"]["message"])
        self.assertNotIn("/", reply.json()["error"]["message"])
        self.assertNotIn("secret", reply.body.decode())
        server.terminate()
        self.assertEqual(server.wait(), OK)

    def test_its_engine_and_its_capsules_are_measured(self):
        manifest = self.llama(options="max_context = 256\nprefill_chunk = 32\nslots = 2")
        report = json.loads(self.check(OK, "-q", "bench", "engine", manifest, "--num-prompts", 4, "--input-len", 16,
                                       "--output-len", 6, "--prefix-len", 32, "--prefixes", 1, "--json").stdout)
        self.assertEqual((report["completed"], report["total_output_tokens"]), (4, 24))
        report = json.loads(self.check(OK, "-q", "bench", "capsule", manifest, "--lengths", "32,64", "--suffix", 8, "-r", 2,
                                       "--index", 0, "--sweep", "32,64", "-o", "json").stdout)
        self.assertEqual(report["model"], "m")
        self.assertLessEqual({32, 64}, {timing["tokens"] for timing in report["timings"]})
        self.assertTrue(all(seconds > 0 for timing in report["timings"] for seconds in timing["seconds"]))
        self.assertEqual([point["tokens"] for point in report["sweep"]], [32, 64])

    def test_the_shipped_manifest_runs(self):
        result = self.run_json(SOURCE / "hosts/manifests/llama.toml", "-p", "The capital", "-n", 4, "--greedy", "--ignore-eos")
        self.assertEqual(len(result["ids"]), 4)

    def test_biases_count_alike_in_every_type_that_holds_them(self):
        def ids(folder):
            manifest = self.llama(folder, options='activations = "f32"\nmax_context = 256')
            result = self.run_json(manifest, "--prompt-ids", "1,2,3,4,5", "-n", 12, "--greedy", "--ignore-eos", "--logprobs")
            return result["ids"], result["logprobs"]

        exact = self.llama(with_biases_as(self.folder / "f32", "F32", False), options='activations = "f32"\nmax_context = 256')
        self.assertIn("0 failed, 0 skipped", self.check(OK, "verify", exact, "--goldens", BIASES).stdout)
        rounded = ids(with_biases_as(self.folder / "rounded", "F32", True))
        self.assertEqual(ids(with_biases_as(self.folder / "bf16", "BF16", True)), rounded)
        self.assertNotEqual(ids(BIASES), rounded, "biases have no effect")

    def test_what_a_configuration_says_that_is_not_computed_is_named(self):
        folder = self.folder / "changed"
        folder.mkdir()
        for name in ("model.safetensors", "config.json"):
            (folder / name).write_bytes((CHECKPOINT / name).read_bytes())
        config = json.loads((folder / "config.json").read_text())
        config["rope_scaling"]["rope_type"] = "longrope"
        (folder / "config.json").write_text(json.dumps(config))
        result = self.frt("run", self.llama(folder), "-p", "x", "-n", 1)
        self.assertNotEqual(result.returncode, OK)
        self.assertIn("rope_scaling.rope_type", result.stderr)


if __name__ == "__main__":
    unittest.main()
