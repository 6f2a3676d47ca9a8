#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tests of llama.cpp's server (tools/server/tests, names alone) as a checklist for ours: for those that apply, a request of the
same kind and what its answer must be; for the others, why not. Prints the page hosts/http/LLAMA_SERVER_TESTS.md.

    FRT_HOST=build/release/bin/frt-host FRT_MAKE_CHECKPOINT=build/release/bin/make-checkpoint FRT_FIXTURES=tests/fixtures \\
      FRT_SCRIPTED_PLUGIN_DIR=build/release/tests/scripted_plugins python3 tests/strangers/llama_server_checklist.py FOLDER > PAGE

FOLDER: the tests of a llama.cpp source distribution (llama-cpp-python on PyPI has them): their names are read, so a test that is
new there is in the page as one without a verdict."""
import contextlib
import io
import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))
from test_lm_serve import ALICE, LmServeTest  # noqa: E402

CHAT = "/v1/chat/completions"
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}
ANTHROPIC_TOOL = {"name": "weather", "input_schema": TOOL["function"]["parameters"]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}

# Whole files that test what this server does not have, and why not.
WITHOUT = {
    "compat_gcp": "no route of Google's", "ctx_shift": "a context is never shifted: a prompt that does not fit is a 400",
    "embedding": "no embeddings: models generate", "rerank": "no reranking: models generate", "infill": "no /infill",
    "lora": "no adapters", "mcp_servers": "tools run in the client", "proxy": "the server calls no others",
    "router": "models are those of the manifest", "sleep": "a model stays loaded",
    "slot_save": "slots are not the client's: sessions and capsules are (test_lm_state, test_lm_import)",
    "stream": "a stream ends with its connection", "tools_builtin": "tools run in the client", "vision_api": "text models",
    "kv_keep_only_active": "idle slots are kept; capsules keep what they lose (test_lm_state)"}
# Single tests that do not apply.
NOT_HERE = {
    "server_multiple_addresses": "one address", "server_props": "no /props: /v1/about", "server_slots": "no /slots: /v1/sessions",
    "load_split_model": "no GGUF", "chat_template_assistant_prefill": "an answer is not continued: a 400 says so",
    "chat_template_continue_final_message_vllm_compat": "an answer is not continued",
    "chat_template_continue_final_message_mutual_exclusion": "an answer is not continued",
    "chat_template": "the template is the checkpoint's", "return_progress": "no such field: a heartbeat",
    "verbose_debug": "no such field", "chat_completion_with_timings_per_token": "times are in the block frt, once",
    "anthropic_tool_result_with_image": "text models; the image is named in the prompt",
    "anthropic_vision_base64_with_multimodal_model": "text models", "anthropic_thinking_history_in_template": "no /apply-template of Messages",
    "responses_stream_with_llama_telemetry": "llama.cpp's own fields", "json_prompt_no_mtmd": "no such prompts",
    "json_prompt_mtm_error_when_not_supported": "no such prompts", "completion_unified": "no --kv-unified",
    "completion_response_fields": "no such field", "n_probs": "logprobs instead: see logprobs", "n_probs_stream": "logprobs instead",
    "n_probs_post_sampling": "logprobs stand before temperature", "n_probs_post_backend_sampling": "logprobs stand before temperature",
    "consistent_result_different_batch_size": "-b is no setting; test generator_test compares batches",
    "ignore_eos_populates_logit_bias": "no generation_settings in answers", "ignore_eos_false_no_logit_bias": "no generation_settings in answers",
    "metrics_disabled": "/metrics is always there", "metrics_embedding_prompt_is_counted": "no embeddings",
    "metrics_timings_on_prompt_progress": "no such field", "cors_origins_defaults_to_localhost_with_tools_enabled": "no tools",
    "cors_proxy_only_forwards_explicit_proxy_headers": "no proxy", "local_media_file": "no media",
    "different_draft_min_draft_max": "drafts are the model's own head", "synth_is_deterministic": "no such drafter",
    "synth_ignores_target_tokens": "no such drafter", "with_ctx_shift": "no shift", "date_inside_prompt": "the template is the checkpoint's",
    "with_and_without_draft": "drafts need a model with a head: engine_drafts_test", "slot_ctx_not_exceeded": "as before: engine_drafts_test",
    "multi_requests_parallel": "as before: engine_drafts_test", "thoughts": "needs a model that reasons: chat_parse_test, test_lm_structured",
    "anthropic_thinking_with_reasoning_model": "needs a model that reasons: test_lm_serve",
    "anthropic_thinking": "needs a model that reasons: test_lm_serve", "completion_with_required_tool_real_model": "needs a real model: test_lm_structured",
    "completion_without_tool_call_slow": "needs a real model", "calc_result": "needs a real model", "hello_world": "needs a real model",
    "reasoning": "needs a model that reasons: chat_template_test", "tokenize_with_bos": "the checkpoint's tokenizer says what begins a text",
    "chat_completion_with_openai_library": "by the library itself: test_lm_sdk", "completion_with_openai_library": "by the library itself: test_lm_sdk",
    "completion_stream_with_openai_library": "by the library itself: test_lm_sdk", "openai_library_correct_api_key": "by the library itself: test_lm_sdk",
    "metrics_generation_rate_excludes_first_token": "histograms of prefill and of steps: test_lm_serve",
    "metrics_timings_are_finite": "histograms of prefill and of steps: test_lm_serve"}


class Checks(LmServeTest):
    """A method for each test of theirs that applies, of the same name."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.shared = None

    def demo_server(self):
        return self.server("aliases = \"other=m\"")

    def ask(self, server, path, body, status=200, headers=None):
        reply = server.request("POST", path, body, headers)
        self.assertEqual(reply.status, status, reply.body[:300])
        return reply

    def said(self, server, **fields):
        body = {"messages": [{"role": "user", "content": "What is the best book"}], "max_tokens": 8, "temperature": 0,
                "chat_template_kwargs": {"enable_thinking": False}, **fields}
        return self.ask(server, CHAT, body).json()

    def message(self, server, status=200, path="/v1/messages", **fields):
        body = {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "Say hello"}], **fields}
        return self.ask(server, path, body, status)

    def streamed(self, events):
        return "".join((event["choices"] or [{"delta": {}}])[0]["delta"].get("content") or "" for event in events if event != "[DONE]")

    # basic
    def server_start_simple(self, server):
        self.assertEqual(server.request("GET", "/health").status, 200)

    def server_models(self, server):
        self.assertEqual([model["id"] for model in server.request("GET", "/v1/models").json()["data"]], ["m"])

    def server_model_aliases_and_tags(self, server):
        self.assertEqual(self.said(server, model="other")["model"], "other")

    def no_ui(self, _):
        self.assertEqual(self.server("page = false").request("GET", "/").status, 404)

    # chat
    def chat_completion(self, server):
        reply = self.said(server)
        self.assertEqual(reply["choices"][0]["message"]["role"], "assistant")
        self.assertLessEqual(reply["usage"]["completion_tokens"], 8)
        self.assertEqual(reply["choices"][0]["finish_reason"], "length")

    def chat_completion_cached_tokens(self, server):
        self.asked = getattr(self, "asked", 0) + 1
        body = {"messages": [{"role": "user", "content": f"{self.asked} times " * 30}], "max_tokens": 2, "temperature": 0}
        cached = [self.ask(server, CHAT, body).json()["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)]
        self.assertGreater(cached[1], cached[0])

    def chat_completion_stream(self, server):
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0}
        whole = self.ask(server, CHAT, body).json()["choices"][0]["message"]["content"]
        self.assertEqual(self.streamed(self.ask(server, CHAT, {**body, "stream": True}).events()), whole)

    def apply_chat_template(self, server):
        text = self.ask(server, "/apply-template", {"messages": [{"role": "user", "content": "Hi there"}]}).json()["prompt"]
        self.assertIn("Hi there", text)

    def completion_with_response_format(self, server):
        for form in ({"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}):
            reply = self.said(server, response_format=form, max_tokens=200)["choices"][0]
            if reply["finish_reason"] == "stop":
                json.loads(reply["message"]["content"])
        self.ask(server, CHAT, {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "sound"}}, 400)

    def completion_with_json_schema(self, server):
        value = json.loads(self.said(server, json_schema=SCHEMA, max_tokens=100)["choices"][0]["message"]["content"])
        self.assertIn(value["a"], (1, 2))

    def completion_with_grammar(self, server):
        said = self.said(server, grammar='root ::= "a" | "bb"')["choices"][0]["message"]["content"]
        self.assertIn(said, ("a", "bb"))

    def completion_with_invalid_grammar(self, server):
        self.ask(server, CHAT, {"messages": [{"role": "user", "content": "x"}], "grammar": "root ::= ("}, 400)

    def invalid_chat_completion_req(self, server):
        for messages in (None, "words", [1], [{"role": "user", "content": 3}], [{"role": "nobody", "content": "x"}]):
            self.ask(server, CHAT, {"messages": messages}, 400)

    def logprobs(self, server):
        entries = self.said(server, logprobs=True, top_logprobs=5)["choices"][0]["logprobs"]["content"]
        self.assertTrue(all(entry["logprob"] <= 0 and len(entry["top_logprobs"]) == 5 for entry in entries) and entries)

    def logprobs_stream(self, server):
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "logprobs": True, "top_logprobs": 2, "stream": True,
                "chat_template_kwargs": {"enable_thinking": False}}
        parts = [event["choices"][0].get("logprobs") for event in self.ask(server, CHAT, body).events() if event != "[DONE]" and event["choices"]]
        self.assertEqual(sum(len(part["content"]) for part in parts if part and part.get("content")), 4)

    def logit_bias(self, server):
        word = self.ask(server, "/tokenize", {"content": "a"}).json()["tokens"][0]
        self.assertEqual(self.said(server, logit_bias={str(word): 100}, max_tokens=4)["choices"][0]["message"]["content"], "aaaa")

    def context_size_exceeded(self, server):
        reply = self.ask(server, CHAT, {"messages": [{"role": "user", "content": "words " * 4000}]}, 400).json()
        self.assertEqual(reply["error"]["code"], "context_length_exceeded")

    def context_size_exceeded_stream(self, server):
        self.ask(server, CHAT, {"messages": [{"role": "user", "content": "words " * 4000}], "stream": True}, 400)

    def chat_completions_multiple_choices(self, server):
        self.assertEqual([choice["index"] for choice in self.said(server, n=3, temperature=1)["choices"]], [0, 1, 2])

    def chat_completions_token_count(self, server):
        body = {"messages": [{"role": "user", "content": "Count me"}]}
        counted = self.ask(server, "/tokenize", body).json()["count"]
        self.assertEqual(self.ask(server, CHAT, {**body, "max_tokens": 1}).json()["usage"]["prompt_tokens"], counted)

    # messages
    def anthropic_messages_basic(self, server):
        reply = self.message(server).json()
        self.assertEqual((reply["type"], reply["role"], reply["content"][0]["type"]), ("message", "assistant", "text"))

    def anthropic_messages_with_system(self, server):
        self.message(server, system="Be short.")

    def anthropic_messages_multipart_content(self, server):
        self.message(server, messages=[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])

    def anthropic_messages_conversation(self, server):
        self.message(server, messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}])

    def anthropic_messages_streaming(self, server):
        kinds = [event["type"] for event in self.message(server, stream=True).events()]
        self.assertEqual((kinds[0], kinds[-1]), ("message_start", "message_stop"))

    def anthropic_count_tokens(self, server):
        few, more = (self.message(server, path="/v1/messages/count_tokens", messages=[{"role": "user", "content": "a " * n}]).json()["input_tokens"]
                     for n in (1, 50))
        self.assertLess(few, more)

    def anthropic_count_tokens_with_system(self, server):
        bare, more = (self.message(server, path="/v1/messages/count_tokens", **fields).json()["input_tokens"] for fields in ({}, {"system": "Be short."}))
        self.assertLess(bare, more)

    def anthropic_count_tokens_no_max_tokens(self, server):
        self.ask(server, "/v1/messages/count_tokens", {"model": "m", "messages": [{"role": "user", "content": "a"}]})

    def anthropic_tool_use_basic(self, _):
        reply = self.message(self.scripted(), messages=[{"role": "user", "content": "weather"}], tools=[ANTHROPIC_TOOL], max_tokens=300).json()
        self.assertEqual((reply["stop_reason"], reply["content"][-1]["type"]), ("tool_use", "tool_use"))

    def tool_result(self, server, content, **block):
        self.message(server, tools=[ANTHROPIC_TOOL], messages=[
            {"role": "user", "content": "weather"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Oslo"}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "rain", **block}, *content]}])

    def anthropic_tool_result(self, server):
        self.tool_result(server, [])

    def anthropic_tool_result_with_text(self, server):
        self.tool_result(server, [{"type": "text", "text": "And now?"}])

    def anthropic_tool_result_error(self, server):
        self.tool_result(server, [], is_error=True)

    def anthropic_tool_streaming(self, _):
        events = self.message(self.scripted(), messages=[{"role": "user", "content": "weather"}], tools=[ANTHROPIC_TOOL], max_tokens=300, stream=True).events()
        self.assertIn("input_json_delta", [event.get("delta", {}).get("type") for event in events])

    def anthropic_vision_format_accepted(self, server):
        image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
        self.message(server, 400, messages=[{"role": "user", "content": [image]}])

    def anthropic_stop_sequences(self, server):
        self.message(server, stop_sequences=["xyz"])

    def anthropic_temperature(self, server):
        self.message(server, temperature=0.5)

    def anthropic_top_p(self, server):
        self.message(server, top_p=0.5)

    def anthropic_top_k(self, server):
        self.message(server, top_k=3)

    def anthropic_missing_messages(self, server):
        self.ask(server, "/v1/messages", {"model": "m", "max_tokens": 4}, 400)

    def anthropic_empty_messages(self, server):
        self.message(server, 400, messages=[])

    def anthropic_streaming_content_block_indices(self, server):
        found = [event["index"] for event in self.message(server, stream=True).events() if event["type"] == "content_block_start"]
        self.assertEqual(found, list(range(len(found))))

    def anthropic_metadata(self, server):
        self.message(server, metadata={"user_id": "someone"})

    def anthropic_vs_openai_different_response_format(self, server):
        self.assertNotIn("choices", self.message(server).json())
        self.assertIn("choices", self.said(server))

    def anthropic_thinking_history_in_count_tokens(self, server):
        turn = [{"type": "thinking", "thinking": "so and so", "signature": "s"}, {"type": "text", "text": "b"}]
        self.message(server, path="/v1/messages/count_tokens", messages=[
            {"role": "user", "content": "a"}, {"role": "assistant", "content": turn}, {"role": "user", "content": "c"}])

    # responses and completions
    def responses_with_openai_library(self, server):
        self.assertEqual(self.ask(server, "/v1/responses", {"input": "Hello", "max_output_tokens": 8}).json()["object"], "response")

    def responses_stream_with_openai_library(self, server):
        events = self.ask(server, "/v1/responses", {"input": "Hello", "max_output_tokens": 8, "stream": True}).events()
        self.assertEqual(events[0]["type"], "response.created")

    def complete(self, server, **fields):
        return self.ask(server, "/v1/completions", {"prompt": "I believe the meaning of life is", "max_tokens": 8, "temperature": 0, **fields})

    def completion(self, server):
        self.assertLessEqual(self.complete(server).json()["usage"]["completion_tokens"], 8)

    def completion_stream(self, server):
        whole = self.complete(server).json()["choices"][0]["text"]
        events = self.complete(server, stream=True).events()
        self.assertEqual("".join(event["choices"][0]["text"] for event in events if event != "[DONE]" and event["choices"]), whole)

    completion_stream_vs_non_stream = completion_stream

    def completion_stream_with_openai_library_stops(self, server):
        word = self.complete(server).json()["choices"][0]["text"][2:4]
        reply = self.complete(server, stop=[word]).json()["choices"][0]
        self.assertEqual((reply["finish_reason"], word in reply["text"]), ("stop", False))

    def consistent_result_same_seed(self, server):
        self.assertEqual(*(self.complete(server, temperature=1, seed=42, max_tokens=16).json()["choices"][0]["text"] for _ in range(2)))

    def different_result_different_seed(self, server):
        self.assertGreater(len({self.complete(server, temperature=2, seed=seed, max_tokens=16).json()["choices"][0]["text"] for seed in range(4)}), 1)

    def cache_vs_nocache_prompt(self, server):
        self.assertEqual(*(self.complete(server).json()["choices"][0]["text"] for _ in range(2)))

    def completion_with_tokens_input(self, server):
        ids = self.ask(server, "/tokenize", {"content": "I believe the meaning of life is"}).json()["tokens"]
        self.assertEqual(self.complete(server, prompt=ids).json()["choices"][0]["text"], self.complete(server).json()["choices"][0]["text"])

    def completion_parallel_slots(self, server):
        self.assertEqual(len(self.complete(server, prompt=["a", "b", "c"]).json()["choices"]), 3)

    def nocache_long_input_prompt(self, server):
        self.complete(server, prompt="I believe " * 100)

    def completion_prompt_cache(self, server):
        self.chat_completion_cached_tokens(server)

    def cancel_request(self, _):
        server = self.scripted()
        connection, answer = self.stream(server, "endless")
        answer.read(10)
        connection.close()
        self.until(lambda: server.metrics()['frt_lm_slots_used{model="m"}'] == 0)

    # metrics, security, text
    def metrics_prometheus_format(self, server):
        for line in server.request("GET", "/metrics").body.decode().splitlines():
            self.assertRegex(line, r"^(# (HELP|TYPE) \S+ .+|[a-z_0-9]+(\{.*\})? \S+)$")

    def metrics_prompt_processed_and_cached(self, server):
        before, reply, after = server.metrics(), self.said(server), server.metrics()
        grown = [sum(value - before.get(name, 0) for name, value in after.items() if name.startswith(f"frt_http_key_{kind}_tokens_total"))
                 for kind in ("prompt", "generated")]
        self.assertEqual(grown, [reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]])

    metrics_predicted_total_matches_requests = metrics_prompt_processed_and_cached

    def metrics_slots_idle_after_completion(self, server):
        self.said(server)
        self.until(lambda: server.metrics()['frt_lm_slots_used{model="m"}'] == 0)

    def access_public_endpoint(self, _):
        server = self.server(self.key_file())
        self.assertEqual(server.request("GET", "/health").status, 200)

    def access_static_assets_without_api_key(self, _):
        self.assertEqual(self.server(self.key_file()).request("GET", "/").status, 200)

    def incorrect_api_key(self, _):
        server = self.server(self.key_file())
        for headers in (None, {"Authorization": "Bearer wrong-secret-0123456789"}):
            self.ask(server, CHAT, {"messages": [{"role": "user", "content": "x"}]}, 401, headers)

    def correct_api_key(self, _):
        self.ask(self.server(self.key_file()), CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, 200, {"Authorization": f"Bearer {ALICE}"})

    def correct_api_key_anthropic_header(self, _):
        self.message(self.server(self.key_file()), 401)
        self.ask(self.server(self.key_file()), CHAT, {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}, 200, {"X-Api-Key": ALICE})

    def cors_options(self, _):
        server = self.server('allowed_origins = "https://page.example"')
        headers = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
        self.assertEqual(server.request("OPTIONS", CHAT, None, headers).headers.get("Access-Control-Allow-Origin"), "https://page.example")

    cors_origins_localhost_reflects = cors_options

    def cors_origins_localhost_rejects(self, server):
        self.ask(server, CHAT, {"messages": [{"role": "user", "content": "x"}]}, 403, {"Origin": "https://evil.example"})

    def add_generation_prompt(self, server):
        text = self.ask(server, "/apply-template", {"messages": [{"role": "user", "content": "x"}]}).json()["prompt"]
        self.assertIn("assistant", text)

    def tokenize_detokenize(self, server):
        ids = self.ask(server, "/tokenize", {"content": "What is the capital of France ?"}).json()["tokens"]
        self.assertEqual(self.ask(server, "/detokenize", {"tokens": ids}).json()["content"], "What is the capital of France ?")

    def tokenize_with_pieces(self, server):
        self.assertEqual("".join(self.ask(server, "/tokenize", {"content": "a b", "with_pieces": True}).json()["pieces"]), "a b")

    # tools
    def weather(self, _):
        reply = self.said(self.scripted(), messages=[{"role": "user", "content": "weather"}], tools=[TOOL], max_tokens=300)
        self.assertEqual(reply["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "weather")

    def completion_without_tool_call_fast(self, _):
        reply = self.said(self.scripted(), tools=[TOOL], max_tokens=100)
        self.assertFalse(reply["choices"][0]["message"].get("tool_calls"))

    def runTest(self):
        pass


def verdict(file, name, checks, server):
    if file in WITHOUT:
        return WITHOUT[file], None
    check = getattr(Checks, name, None)
    if name in NOT_HERE or check is None:
        return NOT_HERE.get(name, "no verdict yet"), None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            check(checks, server)
    except Exception as error:      # pylint: disable=broad-except
        print(f"{name}: {error!r}", file=sys.stderr)
        return "FAILS", False
    return "passes", True


def main(folder):
    rows, counts = [], {True: 0, False: 0, None: 0}
    Checks.setUpClass()
    checks = Checks()
    checks.setUp()
    try:
        server = checks.demo_server()
        for path in sorted(folder.glob("**/test_*.py")):
            file = path.stem.removeprefix("test_")
            names = re.findall(r"^(?:async )?def test_(\w+)", path.read_text(encoding="utf-8"), re.M)
            said = {name: verdict(file, name, checks, server) for name in names}
            for _, result in said.values():
                counts[result] += 1
            if file in WITHOUT:
                rows.append((file, f"all {len(names)}", WITHOUT[file]))
                continue
            for text in dict.fromkeys(text for text, _ in said.values()):
                rows.append((file, ", ".join(name for name in names if said[name][0] == text), text))
    finally:
        checks.doCleanups()
    print("# The tests of llama.cpp's server, asked of this one\n\nWritten by `tests/strangers/llama_server_checklist.py`; do not edit. A test of theirs "
          "passes here where a request of the same kind has\nthe answer that its protocol demands; llama.cpp's own routes and fields "
          "are not copied.\n\n"
          f"{counts[True]} pass, {counts[False]} fail, {counts[None]} do not apply.\n\n| file | tests | here |\n|---|---|---|")
    for row in rows:
        print("| {} | {} | {} |".format(*row))
    return 1 if counts[False] else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
