// SPDX-License-Identifier: Apache-2.0
// The embedding API from C++: threads, stop texts, conversations, files of capsules, policies,
// logs.
#include <doctest/doctest.h>
#include <frt/draft/plan.h>
#include <frt/embed.h>
#include <frt/role/lm.h>
#include <frt/tokenizer.h>
#include <frt/exec.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <frt/models/safetensors_writer.hpp>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "../scratch_folder.hpp"

namespace {

namespace fs = std::filesystem;

const char* const kFolders[] = {FRT_PLUGIN_DIR, FRT_BINARY_DIR "/tests/robot_plugins"};
const std::string kDemo = FRT_SOURCE_DIR "/tests/fixtures/demo";

using Folder = frt::test::ScratchFolder;

template <class Struct>
Struct sized() {
  Struct made{};
  made.struct_size = sizeof(made);
  return made;
}

// Fails the test with the library's text.
#define OK(call)                                                       \
  do {                                                                 \
    frt_error error{};                                                 \
    const frt_status status = call;                                    \
    REQUIRE_MESSAGE(status == FRT_OK, #call << ": " << error.message); \
  } while (0)

frt_runtime open_text(const std::string& manifest, const fs::path& base,
                      frt_runtime_options options = sized<frt_runtime_options>()) {
  options.manifest_text = manifest.c_str();
  options.base_folder = base.c_str();
  options.plugin_folders = kFolders;
  options.plugin_folder_count = 2;
  frt_runtime runtime = nullptr;
  OK(frt_runtime_open(&options, &runtime, &error));
  return runtime;
}

std::string demo_manifest(const std::string& more = {}) {
  return "schema = 1\n[device.cpu0]\nbackend = \"frt.cpu\"\n[model.demo]\nplugin = "
         "\"frt.qwen36\"\ndevice = \"cpu0\"\ncheckpoint = \"" +
         kDemo + "\"\n" + more;
}

struct Demo {
  explicit Demo(const std::string& more = {}, const fs::path& base = "/") {
    runtime = open_text(demo_manifest(more), base);
    OK(frt_lm_open(runtime, "demo", nullptr, &lm, &error));
  }
  ~Demo() {
    CHECK(frt_lm_close(lm) == FRT_OK);
    CHECK(frt_runtime_close(runtime) == FRT_OK);
  }
  frt_runtime runtime = nullptr;
  frt_lm lm = nullptr;
};

frt_generate_request ask(const char* prompt, uint64_t tokens) {
  auto request = sized<frt_generate_request>();
  request.flags = FRT_GENERATE_GREEDY;
  request.prompt = prompt;
  request.max_tokens = tokens;
  return request;
}

struct Answered {
  std::string text, reasoning;
  frt_generation_result result = sized<frt_generation_result>();
  std::string stop_text;
};

Answered answer(frt_lm lm, const frt_generate_request& request, frt_session session = nullptr) {
  frt_generation generation = nullptr;
  OK(frt_lm_generate(lm, session, &request, &generation, &error));
  Answered answered;
  const auto sink = [](void* user, const frt_generation_event* event) -> frt_status {
    auto& out = *static_cast<Answered*>(user);
    if (event->kind == FRT_EVENT_TEXT) out.text.append(event->text, event->bytes);
    if (event->kind == FRT_EVENT_REASONING) out.reasoning.append(event->text, event->bytes);
    return FRT_OK;
  };
  OK(frt_generation_run(generation, sink, &answered, &error));
  OK(frt_generation_result_of(generation, &answered.result, &error));
  if (answered.result.stop_text) answered.stop_text = answered.result.stop_text;
  CHECK(frt_generation_close(generation) == FRT_OK);
  return answered;
}

}  // namespace

TEST_CASE("answers of many threads are those that each gets alone") {
  const Demo demo;
  const char* const prompts[] = {"Once upon a time", "Felix and his friend", "The dog", "2 + 2 ="};
  std::vector<std::string> alone;
  for (const char* prompt : prompts) alone.push_back(answer(demo.lm, ask(prompt, 16)).text);
  std::atomic<int> equal{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&, i] {
      frt_generation generation = nullptr;
      const auto request = ask(prompts[i % 4], 16);
      if (frt_lm_generate(demo.lm, nullptr, &request, &generation, nullptr) != FRT_OK) return;
      std::string text;
      const auto sink = [](void* user, const frt_generation_event* event) -> frt_status {
        static_cast<std::string*>(user)->append(event->text, event->bytes);
        return FRT_OK;
      };
      if (frt_generation_run(generation, sink, &text, nullptr) != FRT_OK) return;
      if (text == alone[static_cast<std::size_t>(i % 4)]) ++equal;
      frt_generation_close(generation);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(equal == 8);
}

TEST_CASE("a stop text ends the answer before it, whether or not anybody reads") {
  const Demo demo;
  const Answered whole = answer(demo.lm, ask("Once upon a time, there was a little", 24));
  REQUIRE(whole.text.size() > 8);
  const std::string stop = whole.text.substr(4, 5);
  const char* const stops[] = {stop.c_str()};
  auto request = ask("Once upon a time, there was a little", 24);
  request.stops = stops;
  request.stop_count = 1;
  const Answered cut = answer(demo.lm, request);
  CHECK(cut.text == whole.text.substr(0, whole.text.find(stop)));
  CHECK(cut.result.finish == FRT_FINISH_STOP);
  CHECK(cut.stop_text == stop);
  CHECK(cut.result.new_tokens < whole.result.new_tokens);

  // The session of an answer that nobody reads holds the same tokens each time.
  std::set<uint64_t> counts;
  for (int i = 0; i < 3; ++i) {
    frt_session session = nullptr;
    frt_generation generation = nullptr;
    OK(frt_session_open(demo.lm, &session, &error));
    OK(frt_lm_generate(demo.lm, session, &request, &generation, &error));
    uint64_t count = 0;
    frt_status status = FRT_ERR_BAD_STATE;
    while ((status = frt_session_tokens(session, nullptr, 0, &count, nullptr)) ==
           FRT_ERR_BAD_STATE) {
      std::this_thread::yield();
    }
    CHECK(status == FRT_OK);
    counts.insert(count);
    CHECK(frt_generation_close(generation) == FRT_OK);
    CHECK(frt_session_close(session) == FRT_OK);
  }
  CHECK(counts.size() == 1);
}

TEST_CASE("an answer is cancelled by another thread, and by its sink") {
  const Demo demo;
  auto request = ask("Once upon a time", 100000);
  request.flags |= FRT_GENERATE_IGNORE_STOPS;
  frt_generation generation = nullptr;
  OK(frt_lm_generate(demo.lm, nullptr, &request, &generation, &error));
  std::thread other([&] { frt_generation_cancel(generation); });
  auto event = sized<frt_generation_event>();
  while (event.kind != FRT_EVENT_END) {
    OK(frt_generation_next(generation, 60000, &event, &error));
  }
  other.join();
  auto result = sized<frt_generation_result>();
  OK(frt_generation_result_of(generation, &result, &error));
  CHECK(result.finish == FRT_FINISH_CANCELLED);
  CHECK(frt_generation_close(generation) == FRT_OK);

  OK(frt_lm_generate(demo.lm, nullptr, &request, &generation, &error));
  const auto refuse = [](void*, const frt_generation_event*) -> frt_status {
    return FRT_ERR_CANCELLED;
  };
  CHECK(frt_generation_run(generation, refuse, nullptr, nullptr) == FRT_ERR_CANCELLED);
  CHECK(frt_generation_close(generation) == FRT_OK);
}

TEST_CASE("a handle may be closed while other threads use it") {
  const Demo demo;
  auto request = ask("Once upon a time", 64);
  for (int round = 0; round < 4; ++round) {
    frt_generation generation = nullptr;
    OK(frt_lm_generate(demo.lm, nullptr, &request, &generation, &error));
    std::thread reader([&] {
      auto event = sized<frt_generation_event>();
      while (frt_generation_next(generation, 60000, &event, nullptr) == FRT_OK &&
             event.kind != FRT_EVENT_END) {
      }
    });
    CHECK(frt_generation_close(generation) == FRT_OK);
    reader.join();
    CHECK(frt_generation_cancel(generation) == FRT_ERR_INVALID_ARGUMENT);
  }
}

TEST_CASE("a model goes on until the last handle that leads to it is closed") {
  frt_runtime runtime = open_text(demo_manifest(), "/");
  frt_lm lm = nullptr;
  OK(frt_lm_open(runtime, nullptr, nullptr, &lm, &error));
  frt_session session = nullptr;
  OK(frt_session_open(lm, &session, &error));
  answer(lm, ask("Once upon a time", 4), session);
  frt_lm_capsule capsule = nullptr;
  OK(frt_session_snapshot(session, FRT_SPACE_HOST_PINNED, &capsule, &error));
  CHECK(frt_runtime_close(runtime) == FRT_OK);
  CHECK(frt_lm_close(lm) == FRT_OK);
  OK(frt_session_restore(session, capsule, &error));
  CHECK(frt_session_close(session) == FRT_OK);
  CHECK(frt_lm_capsule_close(capsule) == FRT_OK);
}

TEST_CASE("a conversation is answered with text and reasoning apart, and its session is reused") {
  const Demo demo("[host.lm]\nmodel = \"demo\"\ncapsule_min_tokens = 1\n");
  frt_session session = nullptr;
  OK(frt_session_open(demo.lm, &session, &error));
  auto request = sized<frt_generate_request>();
  request.flags = FRT_GENERATE_GREEDY;
  request.messages = R"([{"role": "user", "content": "What is 2 + 2?"}])";
  request.chat_options = R"({"enable_thinking": false})";
  request.max_tokens = 32;
  const Answered first = answer(demo.lm, request, session);
  CHECK(first.text == "2 + 2 = 4");
  CHECK(first.result.finish == FRT_FINISH_STOP);
  const std::string more = R"([{"role": "user", "content": "What is 2 + 2?"},)"
                           R"({"role": "assistant", "content": "2 + 2 = 4"},)"
                           R"({"role": "user", "content": "What is 3 + 4?"}])";
  request.messages = more.c_str();
  const Answered second = answer(demo.lm, request, session);
  CHECK(second.text == "3 + 4 = 7");
  CHECK(second.result.reused_tokens > 0);
  request.messages = R"([{"role": "nobody", "content": "x"}])";
  frt_generation generation = nullptr;
  frt_error error{};
  CHECK(frt_lm_generate(demo.lm, session, &request, &generation, &error) != FRT_OK);
  CHECK(std::strlen(error.message) > 0);
  CHECK(frt_session_close(session) == FRT_OK);
}

TEST_CASE("a session that lost its slot reads its tokens again") {
  const Demo demo("[model.demo.options]\nslots = 1\n");
  frt_session first = nullptr, second = nullptr;
  OK(frt_session_open(demo.lm, &first, &error));
  OK(frt_session_open(demo.lm, &second, &error));
  answer(demo.lm, ask("Once upon a time", 4), first);
  uint64_t held = 0;
  OK(frt_session_held(first, &held, &error));
  CHECK(held > 0);
  frt_session none = nullptr;
  CHECK(frt_session_fork(first, &none, nullptr) == FRT_ERR_NOT_READY);  // there is one slot
  answer(demo.lm, ask("The dog", 4), second);
  OK(frt_session_held(first, &held, &error));
  CHECK(held == 0);
  frt_lm_capsule capsule = nullptr;
  CHECK(frt_session_snapshot(first, FRT_SPACE_DEVICE, &capsule, nullptr) == FRT_ERR_BAD_STATE);
  auto request = ask(nullptr, 4);
  request.flags |= FRT_GENERATE_CONTINUE;
  CHECK(!answer(demo.lm, request, first).text.empty());
  CHECK(frt_session_close(first) == FRT_OK);
  CHECK(frt_session_close(second) == FRT_OK);
}

TEST_CASE("a capsule's file brings back tokens and state, and is checked") {
  const Folder folder;
  const Demo demo;
  frt_session session = nullptr, other = nullptr;
  OK(frt_session_open(demo.lm, &session, &error));
  answer(demo.lm, ask("Once upon a time, there was a little", 8), session);
  frt_lm_capsule capsule = nullptr, loaded = nullptr;
  OK(frt_session_snapshot(session, FRT_SPACE_DEVICE, &capsule, &error));
  OK(frt_lm_capsule_save(capsule, folder.path.c_str(), "tale", 0, &error));
  CHECK(frt_lm_capsule_save(capsule, folder.path.c_str(), "tale", 0, nullptr) == FRT_ERR_EXISTS);
  OK(frt_lm_capsule_save(capsule, folder.path.c_str(), "tale", 1, &error));
  CHECK(frt_lm_capsule_save(capsule, folder.path.c_str(), "../tale", 0, nullptr) ==
        FRT_ERR_INVALID_ARGUMENT);
  auto request = ask(nullptr, 8);
  request.flags |= FRT_GENERATE_CONTINUE;
  const std::string text = answer(demo.lm, request, session).text;

  OK(frt_lm_capsule_load(demo.lm, folder.path.c_str(), "tale", &loaded, &error));
  auto facts = sized<frt_capsule_facts>(), saved = sized<frt_capsule_facts>();
  OK(frt_lm_capsule_facts(loaded, &facts, &error));
  OK(frt_lm_capsule_facts(capsule, &saved, &error));
  CHECK(facts.tokens == saved.tokens);
  CHECK(facts.space == FRT_SPACE_HOST_PINNED);
  OK(frt_session_open(demo.lm, &other, &error));
  OK(frt_session_restore(other, loaded, &error));
  const Answered again = answer(demo.lm, request, other);
  CHECK(again.text == text);
  CHECK(again.result.reused_tokens + 1 == again.result.prompt_tokens);

  CHECK(frt_lm_capsule_load(demo.lm, folder.path.c_str(), "none", &loaded, nullptr) ==
        FRT_ERR_NOT_FOUND);
  const fs::path file = folder.path / "tale.capsule";
  fs::resize_file(file, fs::file_size(file) - 1);
  frt_lm_capsule damaged = nullptr;
  CHECK(frt_lm_capsule_load(demo.lm, folder.path.c_str(), "tale", &damaged, nullptr) ==
        FRT_ERR_FORMAT);
  REQUIRE(::chmod(folder.path.c_str(), 0777) == 0);
  CHECK(frt_lm_capsule_load(demo.lm, folder.path.c_str(), "tale", &damaged, nullptr) ==
        FRT_ERR_BAD_STATE);
  CHECK(damaged == nullptr);
  for (frt_lm_capsule each : {capsule, loaded}) CHECK(frt_lm_capsule_close(each) == FRT_OK);
  for (frt_session each : {session, other}) CHECK(frt_session_close(each) == FRT_OK);
}

TEST_CASE("a capsule that is replaced while it is loaded is one of the two, tokens and state") {
  constexpr int kLoads = 100;
  const Folder folder;
  const Demo demo;
  frt_lm_capsule kept[2] = {};
  std::string texts[2];
  uint64_t tokens[2] = {};
  auto request = ask(nullptr, 4);
  request.flags |= FRT_GENERATE_CONTINUE;
  for (int i = 0; i < 2; ++i) {
    frt_session session = nullptr;
    OK(frt_session_open(demo.lm, &session, &error));
    answer(demo.lm, ask(i == 0 ? "Once upon a time" : "The cat sat on the mat and", 2), session);
    OK(frt_session_snapshot(session, FRT_SPACE_DEVICE, &kept[i], &error));
    auto facts = sized<frt_capsule_facts>();
    OK(frt_lm_capsule_facts(kept[i], &facts, &error));
    tokens[i] = facts.tokens;
    texts[i] = answer(demo.lm, request, session).text;
    CHECK(frt_session_close(session) == FRT_OK);
  }
  REQUIRE(tokens[0] != tokens[1]);
  REQUIRE(texts[0] != texts[1]);
  OK(frt_lm_capsule_save(kept[0], folder.path.c_str(), "tale", 0, &error));
  std::atomic<bool> over{false};
  std::atomic<int> failed{0};
  std::thread writer([&] {
    for (int i = 1; !over; ++i) {
      failed += frt_lm_capsule_save(kept[i % 2], folder.path.c_str(), "tale", 1, nullptr) != FRT_OK;
    }
  });
  std::set<uint64_t> seen;
  int wrong = 0;
  frt_session session = nullptr;
  frt_error first{};
  CHECK(frt_session_open(demo.lm, &session, nullptr) == FRT_OK);
  // On a slow disk a writer replaces the file less often than it is loaded.
  const auto may_see_both = [&] { return seen.size() < 2 && wrong == 0 && failed == 0; };
  for (int i = 0; i < kLoads || may_see_both(); ++i) {
    frt_lm_capsule loaded = nullptr;
    frt_error error{};
    if (frt_lm_capsule_load(demo.lm, folder.path.c_str(), "tale", &loaded, &error) != FRT_OK) {
      if (wrong++ == 0) first = error;
      continue;
    }
    auto facts = sized<frt_capsule_facts>();
    CHECK(frt_lm_capsule_facts(loaded, &facts, nullptr) == FRT_OK);
    seen.insert(facts.tokens);
    CHECK(frt_session_restore(session, loaded, nullptr) == FRT_OK);
    CHECK(answer(demo.lm, request, session).text == texts[facts.tokens == tokens[0] ? 0 : 1]);
    CHECK(frt_lm_capsule_close(loaded) == FRT_OK);
  }
  over = true;
  writer.join();
  CHECK_MESSAGE(wrong == 0, std::string(first.message));
  CHECK(failed == 0);
  CHECK(seen == std::set<uint64_t>(tokens, tokens + 2));
  CHECK(frt_session_close(session) == FRT_OK);
  for (frt_lm_capsule each : kept) CHECK(frt_lm_capsule_close(each) == FRT_OK);
}

TEST_CASE("a capsule says that another build computed it, and so does what goes on from it") {
  const Folder folder;
  const auto facts_of = [](frt_lm_capsule capsule) {
    auto facts = sized<frt_capsule_facts>();
    OK(frt_lm_capsule_facts(capsule, &facts, &error));
    return facts;
  };
  const Demo fast;
  frt_session session = nullptr;
  OK(frt_session_open(fast.lm, &session, &error));
  answer(fast.lm, ask("Once upon a time, there was a little", 8), session);
  frt_lm_capsule capsule = nullptr, loaded = nullptr;
  OK(frt_session_snapshot(session, FRT_SPACE_DEVICE, &capsule, &error));
  OK(frt_lm_capsule_save(capsule, folder.path.c_str(), "tale", 0, &error));
  CHECK(facts_of(capsule).other_build == nullptr);
  OK(frt_lm_capsule_load(fast.lm, folder.path.c_str(), "tale", &loaded, &error));
  CHECK(facts_of(loaded).other_build == nullptr);
  CHECK(frt_lm_capsule_close(loaded) == FRT_OK);
  CHECK(frt_lm_capsule_close(capsule) == FRT_OK);
  CHECK(frt_session_close(session) == FRT_OK);

  const Demo exact("[device.cpu0.options]\nnumerics = \"reference\"\n");
  OK(frt_lm_capsule_load(exact.lm, folder.path.c_str(), "tale", &loaded, &error));
  const frt_capsule_facts facts = facts_of(loaded);
  REQUIRE(facts.other_build != nullptr);
  CHECK(std::string(facts.other_build).find("numerics") != std::string::npos);
  // A program that was built before the member asks for less.
  const char mark = 0;
  frt_capsule_facts shorter{};
  shorter.struct_size = offsetof(frt_capsule_facts, other_build);
  shorter.other_build = &mark;
  OK(frt_lm_capsule_facts(loaded, &shorter, &error));
  CHECK(shorter.tokens == facts.tokens);
  CHECK(shorter.other_build == &mark);
  OK(frt_session_open(exact.lm, &session, &error));
  OK(frt_session_restore(session, loaded, &error));
  OK(frt_session_snapshot(session, FRT_SPACE_HOST_PINNED, &capsule, &error));
  CHECK(facts_of(capsule).other_build != nullptr);
  for (frt_lm_capsule each : {capsule, loaded}) CHECK(frt_lm_capsule_close(each) == FRT_OK);
  CHECK(frt_session_close(session) == FRT_OK);
}

TEST_CASE("one language model drives its device alone") {
  const std::string more =
      "[model.second]\nplugin = \"frt.qwen36\"\ndevice = \"cpu0\"\ncheckpoint = \"" + kDemo +
      "\"\n";
  const Demo demo(more);
  frt_lm second = nullptr;
  frt_error error{};
  CHECK(frt_lm_open(demo.runtime, nullptr, nullptr, &second, nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_lm_open(demo.runtime, "second", nullptr, &second, &error) == FRT_ERR_BAD_STATE);
  CHECK(std::string(error.message).find("'demo'") != std::string::npos);
}

TEST_CASE("a server has its model alone, and gives it back while other threads ask") {
  frt_runtime runtime = open_text(demo_manifest("[host.http]\nlisten = \"127.0.0.1:0\"\n"), "/");
  frt_server server = nullptr, second = nullptr;
  OK(frt_server_open(runtime, nullptr, &server, &error));
  frt_instance instance = nullptr;
  OK(frt_instance_open(runtime, "demo", &instance, &error));  // loaded once
  frt_lm lm = nullptr;
  frt_device device = nullptr;
  frt_error refused{};
  CHECK(frt_lm_open(runtime, "demo", nullptr, &lm, &refused) == FRT_ERR_BAD_STATE);
  CHECK(std::string(refused.message).find("close the server first") != std::string::npos);
  CHECK(frt_device_open(runtime, nullptr, &device, nullptr) == FRT_ERR_BAD_STATE);
  CHECK(frt_server_open(runtime, nullptr, &second, nullptr) == FRT_ERR_BAD_STATE);

  std::atomic<int> asked{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      auto facts = sized<frt_server_facts>();
      while (frt_server_facts_of(server, &facts, nullptr) == FRT_OK) {
        if (facts.port > 0) ++asked;
      }
    });
  }
  while (asked < 8) std::this_thread::yield();
  CHECK(frt_server_close(server) == FRT_OK);
  OK(frt_lm_open(runtime, "demo", nullptr, &lm, &error));
  for (std::thread& thread : threads) thread.join();
  CHECK(answer(lm, ask("Once upon a time", 4)).result.new_tokens == 4);
  CHECK(frt_server_open(runtime, nullptr, &server, &refused) == FRT_ERR_BAD_STATE);
  CHECK(std::string(refused.message).find("'demo'; close it first") != std::string::npos);
  CHECK(frt_lm_close(lm) == FRT_OK);
  CHECK(frt_instance_close(instance) == FRT_OK);
  CHECK(frt_runtime_close(runtime) == FRT_OK);
}

TEST_CASE("a device is open to a program while no language model drives it") {
  frt_runtime runtime = open_text(demo_manifest(), "/");
  frt_device device = nullptr;
  frt_lm lm = nullptr;
  frt_error met{};
  CHECK(frt_device_open(runtime, "none", &device, &met) == FRT_ERR_NOT_FOUND);
  CHECK(std::string(met.message).find("open are: cpu0") != std::string::npos);
  OK(frt_device_open(runtime, nullptr, &device, &error));
  CHECK(frt_lm_open(runtime, "demo", nullptr, &lm, &met) == FRT_ERR_BAD_STATE);
  auto tables = sized<frt_device_tables>();
  OK(frt_device_tables_of(device, &tables, &error));
  CHECK(std::string(tables.name) == "cpu0");
  {
    const frt::Context context(static_cast<const frt_exec_v1*>(tables.exec_table),
                               static_cast<frt_context>(tables.context));
    const frt::Stream stream = context.create_stream("test");
    const frt::Buffer bytes = context.alloc(FRT_SPACE_HOST, 64, "bytes");
    CHECK(context.table().buffer_fill(bytes.handle(), 0, 64, 7, stream.handle()) == FRT_OK);
    stream.sync();
    CHECK(static_cast<const uint8_t*>(bytes.pointer())[63] == 7);
  }
  const void* table = nullptr;
  OK(frt_device_extension(device, FRT_EXT_PLAN, &table, &error));
  CHECK(table != nullptr);
  CHECK(frt_device_extension(device, "frt.none/1", &table, &met) == FRT_ERR_NOT_FOUND);
  CHECK(frt_device_close(device) == FRT_OK);
  CHECK(frt_device_tables_of(device, &tables, nullptr) == FRT_ERR_INVALID_ARGUMENT);
  OK(frt_lm_open(runtime, "demo", nullptr, &lm, &error));
  CHECK(frt_device_open(runtime, "cpu0", &device, &met) == FRT_ERR_BAD_STATE);
  CHECK(std::string(met.message).find("'demo'") != std::string::npos);
  CHECK(frt_lm_close(lm) == FRT_OK);
  CHECK(frt_runtime_close(runtime) == FRT_OK);

  // A device that no model uses is opened where the program asks for it.
  const std::string text = "schema = 1\n[device.idle]\nbackend = \"frt.cpu\"\n";
  auto options = sized<frt_runtime_options>();
  options.manifest_text = text.c_str();
  OK(frt_runtime_open(&options, &runtime, &error));
  CHECK(frt_device_open(runtime, nullptr, &device, &met) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(std::string(met.message).find("FRT_RUNTIME_ALL_DEVICES") != std::string::npos);
  CHECK(frt_runtime_close(runtime) == FRT_OK);
  options.flags = FRT_RUNTIME_ALL_DEVICES;
  OK(frt_runtime_open(&options, &runtime, &error));
  OK(frt_device_open(runtime, "idle", &device, &error));
  CHECK(frt_runtime_close(runtime) == FRT_OK);  // the device keeps what it needs
  OK(frt_device_tables_of(device, &tables, &error));
  CHECK(frt_device_close(device) == FRT_OK);
}

TEST_CASE("a model that is let go while an engine drives its device ends with the engine") {
  const std::string more =
      "[model.second]\nplugin = \"frt.qwen36\"\ndevice = \"cpu0\"\ncheckpoint = \"" + kDemo +
      "\"\n";
  frt_runtime runtime = open_text(demo_manifest(more), "/");
  frt_instance second = nullptr;
  frt_lm lm = nullptr;
  OK(frt_instance_open(runtime, "second", &second, &error));
  OK(frt_lm_open(runtime, "demo", nullptr, &lm, &error));
  CHECK(frt_instance_close(second) == FRT_OK);
  CHECK(!answer(lm, ask("Once", 4)).text.empty());
  CHECK(frt_lm_close(lm) == FRT_OK);
  OK(frt_lm_open(runtime, "second", nullptr, &lm, &error));
  CHECK(!answer(lm, ask("Once", 4)).text.empty());
  CHECK(frt_lm_close(lm) == FRT_OK);
  CHECK(frt_runtime_close(runtime) == FRT_OK);
}

TEST_CASE("the program hears the log and the progress of a load, and stops it") {
  struct Heard {
    std::mutex mutex;
    std::string log;
    std::set<std::string> phases;
    std::atomic<bool> stop{false};
  } heard;
  auto options = sized<frt_runtime_options>();
  options.log = [](void* user, uint32_t, const char* source, const char* text) {
    auto& all = *static_cast<Heard*>(user);
    const std::lock_guard lock(all.mutex);
    all.log += std::string(source) + ": " + text + "\n";
  };
  options.log_user = &heard;
  options.progress = [](void* user, const char* phase, uint32_t, uint64_t, uint64_t) -> frt_status {
    auto& all = *static_cast<Heard*>(user);
    const std::lock_guard lock(all.mutex);
    all.phases.insert(phase);
    return all.stop ? FRT_ERR_CANCELLED : FRT_OK;
  };
  options.progress_user = &heard;
  frt_runtime runtime = open_text(demo_manifest("[x-mine]\n"), "/", options);
  heard.stop = true;
  frt_lm lm = nullptr;
  CHECK(frt_lm_open(runtime, nullptr, nullptr, &lm, nullptr) == FRT_ERR_CANCELLED);
  CHECK(!heard.phases.empty());
  heard.stop = false;
  OK(frt_lm_open(runtime, nullptr, nullptr, &lm, &error));
  CHECK(frt_lm_close(lm) == FRT_OK);
  CHECK(frt_runtime_close(runtime) == FRT_OK);

  // Findings that no error record holds are in the log, whole.
  std::string wrong = "schema = 1\n";
  for (int i = 0; i < 30; ++i) wrong += "[model.m" + std::to_string(i) + "]\nplugim = \"x\"\n";
  options.manifest_text = wrong.c_str();
  frt_error error{};
  CHECK(frt_runtime_open(&options, &runtime, &error) != FRT_OK);
  CHECK(std::string(error.message).find("the log has all of it") != std::string::npos);
  CHECK(heard.log.find("plugim") != std::string::npos);
}

TEST_CASE("with two runtimes the whole of a long error goes to the log of the one it is about") {
  struct Heard {
    std::mutex mutex;
    std::string log;
    frt_runtime_options options() {
      auto made = sized<frt_runtime_options>();
      made.log_level = FRT_LOG_WARNING;
      made.log_user = this;
      made.log = [](void* user, uint32_t, const char*, const char* text) {
        auto& self = *static_cast<Heard*>(user);
        const std::lock_guard lock(self.mutex);
        self.log += std::string(text) + "\n";
      };
      return made;
    }
    bool has(const std::string& text) {
      const std::lock_guard lock(mutex);
      return log.find(text) != std::string::npos;
    }
  } older, newer;
  std::string far = "/nowhere";
  for (int i = 0; i < 300; ++i) far += "/far";
  frt_runtime first = open_text(demo_manifest("[model.lost]\nplugin = \"frt.qwen36\"\ndevice = "
                                              "\"cpu0\"\ncheckpoint = \"" +
                                              far + "\"\n"),
                                "/", older.options());
  frt_runtime second = open_text(demo_manifest(), "/", newer.options());
  const auto is_told_whole = [&](const frt_error& told, const std::string& text) {
    CHECK(std::string(told.message).find("the log has all of it") != std::string::npos);
    CHECK(older.has(text));
    CHECK_FALSE(newer.has(text));
  };
  frt_error refused{};
  frt_lm lm = nullptr;
  CHECK(frt_lm_open(first, "lost", nullptr, &lm, &refused) != FRT_OK);  // of the plugin
  is_told_whole(refused, far);
  const std::string name(2000, 'n');
  CHECK(frt_lm_open(first, name.c_str(), nullptr, &lm, &refused) == FRT_ERR_NOT_FOUND);
  is_told_whole(refused, "no model '" + name);
  OK(frt_lm_open(first, "demo", nullptr, &lm, &error));
  const std::string role(2000, 'r');
  auto request = sized<frt_generate_request>();
  const std::string messages =
      R"([{"role": "user", "content": "x"}, {"role": ")" + role + R"(", "content": "x"}])";
  request.messages = messages.c_str();
  frt_generation generation = nullptr;
  CHECK(frt_lm_generate(lm, nullptr, &request, &generation, &refused) != FRT_OK);
  is_told_whole(refused, role);  // of the plugin, behind its creation
  CHECK(frt_lm_close(lm) == FRT_OK);
  for (frt_runtime runtime : {first, second}) CHECK(frt_runtime_close(runtime) == FRT_OK);
}

namespace {

constexpr uint32_t kHorizon = 10, kWidth = 2, kState = 3;

struct Robot {
  Robot() {
    std::vector<float> weight(kHorizon * kWidth * kState), prompts(5 * kHorizon * kWidth);
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] = static_cast<float>(i) / 16;
    for (std::size_t i = 0; i < prompts.size(); ++i) prompts[i] = static_cast<float>(i % 7);
    frt::models::SafetensorsWriter writer(folder.path / "policy.safetensors");
    writer.declare("weight", FRT_DTYPE_F32, {kHorizon * kWidth, kState});
    writer.declare("prompts", FRT_DTYPE_F32, {5, kHorizon * kWidth});
    writer.write("weight", std::as_bytes(std::span(weight)));
    writer.write("prompts", std::as_bytes(std::span(prompts)));
    writer.finish();
    runtime = open_text(
        "schema = 1\n[device.cpu0]\nbackend = \"frt.cpu\"\n[device.cpu0.options]\nthreads = 1\n"
        "[model.p]\nplugin = \"test.linear_policy\"\ndevice = \"cpu0\"\n"
        "checkpoint = \"policy.safetensors\"\n[host.robot]\nmodel = \"p\"\n",
        folder.path);
    OK(frt_policy_open(runtime, "p", &policy, &error));
  }
  ~Robot() {
    CHECK(frt_policy_close(policy) == FRT_OK);
    CHECK(frt_runtime_close(runtime) == FRT_OK);
  }
  void observe(float state, const char* prompt = "do") const {
    const std::vector<uint8_t> image(28 * 28 * 3);
    const float values[kState] = {state, -0.25F, 1};
    const frt_array arrays[] = {{"observation/image", image.data(), FRT_DTYPE_U8, 3, {28, 28, 3}},
                                {"observation/state", values, FRT_DTYPE_F32, 1, {kState}}};
    auto observation = sized<frt_observation>();
    observation.arrays = arrays;
    observation.array_count = 2;
    observation.prompt = prompt;
    OK(frt_policy_observe(policy, &observation, &error));
  }
  std::vector<double> infer(uint64_t seed) const {
    std::vector<double> actions(kHorizon * kWidth);
    auto options = sized<frt_infer_options>();
    options.seed = seed;
    OK(frt_policy_infer(policy, &options, actions.data(), actions.size(), nullptr, 0, &error));
    return actions;
  }
  Folder folder;
  frt_runtime runtime = nullptr;
  frt_policy policy = nullptr;
};

}  // namespace

TEST_CASE("a policy answers observations, the same for the same seed, and goes back to a capsule") {
  const Robot robot;
  auto facts = sized<frt_policy_facts>();
  OK(frt_policy_facts_of(robot.policy, &facts, &error));
  CHECK(facts.horizon == kHorizon);
  CHECK(facts.action_dim == kWidth);
  CHECK(std::string(facts.inputs).find("observation/state") != std::string::npos);
  std::vector<double> room(kHorizon * kWidth);
  CHECK(frt_policy_infer(robot.policy, nullptr, room.data(), room.size(), nullptr, 0, nullptr) ==
        FRT_ERR_BAD_STATE);
  frt_policy_capsule capsule = nullptr;
  CHECK(frt_policy_snapshot(robot.policy, &capsule, nullptr) == FRT_ERR_BAD_STATE);
  robot.observe(0.5F);
  const std::vector<double> first = robot.infer(1);
  CHECK(robot.infer(1) == first);
  CHECK(robot.infer(2) != first);
  OK(frt_policy_snapshot(robot.policy, &capsule, &error));
  robot.observe(0.75F, "other");
  CHECK(robot.infer(1) != first);
  OK(frt_policy_restore(robot.policy, capsule, &error));
  CHECK(robot.infer(1) == first);
  auto about = sized<frt_capsule_facts>();
  OK(frt_policy_capsule_facts(capsule, &about, &error));
  CHECK(about.bytes > 0);
  CHECK(about.other_build == nullptr);
  CHECK(frt_policy_capsule_close(capsule) == FRT_OK);
  CHECK(frt_policy_restore(robot.policy, capsule, nullptr) == FRT_ERR_INVALID_ARGUMENT);

  const double strength = 2;
  CHECK(frt_policy_guide(robot.policy, &strength, 1, 1, nullptr) == FRT_ERR_UNSUPPORTED);
  CHECK(frt_policy_guide(robot.policy, nullptr, 1, 1, nullptr) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_policy_guide(robot.policy, &strength, UINT32_MAX, UINT32_MAX, nullptr) ==
        FRT_ERR_OUT_OF_RANGE);
  float network = 0;
  CHECK(frt_policy_infer(robot.policy, nullptr, room.data(), room.size(), &network, 0, nullptr) ==
        FRT_ERR_OUT_OF_RANGE);
  CHECK(frt_policy_infer(robot.policy, nullptr, room.data(), 3, nullptr, 0, nullptr) ==
        FRT_ERR_OUT_OF_RANGE);
  frt_lm lm = nullptr;
  CHECK(frt_lm_open(robot.runtime, "p", nullptr, &lm, nullptr) == FRT_ERR_BAD_STATE);
}

TEST_CASE("a policy is not served, and the error says so") {
  Robot robot;
  const auto said = [&](frt_runtime runtime) {
    frt_server server = nullptr;
    frt_error error{};
    auto options = sized<frt_server_options>();
    options.listen = "127.0.0.1:0";
    CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_UNSUPPORTED);
    return std::string(error.message);
  };
  CHECK(said(robot.runtime).find("'p' is the policy of [host.robot]") != std::string::npos);
  // Without such a table the role says what it is.
  frt_runtime runtime = open_text(
      "schema = 1\n[device.cpu0]\nbackend = \"frt.cpu\"\n[model.p]\nplugin = "
      "\"test.linear_policy\"\ndevice = \"cpu0\"\ncheckpoint = \"policy.safetensors\"\n",
      robot.folder.path);
  CHECK(said(runtime).find(FRT_EXT_ROLE_LM) != std::string::npos);
  frt_policy policy = nullptr;  // the server that did not begin holds no device
  OK(frt_policy_open(runtime, "p", &policy, &error));
  CHECK(frt_policy_close(policy) == FRT_OK);
  CHECK(frt_runtime_close(runtime) == FRT_OK);
}

TEST_CASE("an observation that cannot be is refused, and what was there stays") {
  const Robot robot;
  robot.observe(0.5F);
  const std::vector<double> first = robot.infer(1);
  const float values[kState] = {9, 9, 9};
  const auto status_of = [&](frt_array array, uint32_t count = 1) {
    auto observation = sized<frt_observation>();
    observation.arrays = count > 0 ? &array : nullptr;
    observation.array_count = count > 0 ? count : 1;
    frt_error error{};
    const frt_status status = frt_policy_observe(robot.policy, &observation, &error);
    CHECK(std::strlen(error.message) > 0);
    return status;
  };
  const frt_array good = {"observation/state", values, FRT_DTYPE_F32, 1, {kState}};
  frt_array bad = good;
  bad.name = nullptr;
  CHECK(status_of(bad) == FRT_ERR_INVALID_ARGUMENT);
  bad = good;
  bad.data = nullptr;
  CHECK(status_of(bad) == FRT_ERR_INVALID_ARGUMENT);
  bad = good;
  bad.rank = FRT_ARRAY_MAX_RANK + 1;
  CHECK(status_of(bad) == FRT_ERR_INVALID_ARGUMENT);
  bad = good;
  bad.shape[0] = -1;
  CHECK(status_of(bad) == FRT_ERR_INVALID_ARGUMENT);
  bad = good;
  bad.rank = 4;
  for (int64_t& extent : bad.shape) extent = int64_t{1} << 20;
  CHECK(status_of(bad) == FRT_ERR_INVALID_ARGUMENT);
  bad = good;
  bad.dtype = 99;
  CHECK(status_of(bad) == FRT_ERR_UNSUPPORTED);
  CHECK(status_of(good, 0) == FRT_ERR_INVALID_ARGUMENT);
  bad = good;
  bad.shape[0] = 2;
  CHECK(status_of(bad) != FRT_OK);
  CHECK(frt_policy_observe(robot.policy, nullptr, nullptr) == FRT_ERR_ABI);
  CHECK(robot.infer(1) == first);
}

TEST_CASE("all arrays that an observation may have are taken, and those without elements") {
  const Robot robot;
  robot.observe(0.5F);
  const std::vector<double> first = robot.infer(1);
  const std::vector<uint8_t> image(28 * 28 * 3);
  const float values[kState] = {0.75F, -0.25F, 1};
  std::vector<frt_array> arrays(FRT_OBSERVATION_MAX_ARRAYS,
                                {"of/others", nullptr, FRT_DTYPE_F32, 2, {3, 0}});
  arrays[1000] = {"observation/image", image.data(), FRT_DTYPE_U8, 3, {28, 28, 3}};
  arrays[2000] = {"observation/state", values, FRT_DTYPE_F32, 1, {kState}};
  auto observation = sized<frt_observation>();
  observation.arrays = arrays.data();
  observation.array_count = FRT_OBSERVATION_MAX_ARRAYS;
  observation.prompt = "do";
  OK(frt_policy_observe(robot.policy, &observation, &error));
  const std::vector<double> second = robot.infer(1);
  CHECK(second != first);
  robot.observe(0.75F);
  CHECK(robot.infer(1) == second);
  ++observation.array_count;
  CHECK(frt_policy_observe(robot.policy, &observation, nullptr) == FRT_ERR_INVALID_ARGUMENT);
}

TEST_CASE("threads take turns on one policy") {
  const Robot robot;
  robot.observe(0.5F);
  const std::vector<double> first = robot.infer(1);
  std::atomic<int> equal{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 8; ++round) {
        std::vector<double> actions(kHorizon * kWidth);
        auto options = sized<frt_infer_options>();
        options.seed = 1;
        const frt_status status = frt_policy_infer(robot.policy, &options, actions.data(),
                                                   actions.size(), nullptr, 0, nullptr);
        if (status == FRT_OK && actions == first) ++equal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(equal == 32);
}
