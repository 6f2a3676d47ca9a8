// SPDX-License-Identifier: Apache-2.0
// embed-cpp MANIFEST - answers two prompts at once from two threads, then goes on from one capsule
// twice. Errors are exceptions, handles close by themselves.
#include <frt/embed.h>

#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace {

// Throws what a call reports.
template <class Call>
void must(const Call& call) {
  frt_error error{};
  const frt_status status = call(&error);
  if (status != FRT_OK) {
    throw std::runtime_error(std::string(frt_embed_status_name(status)) + ": " + error.message);
  }
}

// Owns one handle.
template <class Handle, frt_status (*Close)(Handle)>
class Owned {
 public:
  template <class Open>
  explicit Owned(const Open& open) {
    must([&](frt_error* error) { return open(&handle_, error); });
  }
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&&) = delete;
  ~Owned() {
    if (handle_) Close(handle_);
  }
  operator Handle() const noexcept { return handle_; }

 private:
  Handle handle_ = nullptr;
};

using Runtime = Owned<frt_runtime, frt_runtime_close>;
using Lm = Owned<frt_lm, frt_lm_close>;
using Session = Owned<frt_session, frt_session_close>;
using Capsule = Owned<frt_lm_capsule, frt_lm_capsule_close>;
using Generation = Owned<frt_generation, frt_generation_close>;

std::string generate(frt_lm lm, frt_session session, const char* prompt, uint32_t flags = 0) {
  frt_generate_request request{};
  request.struct_size = sizeof(request);
  request.flags = FRT_GENERATE_GREEDY | flags;
  request.prompt = prompt;
  request.max_tokens = 16;
  const Generation generation([&](frt_generation* made, frt_error* error) {
    return frt_lm_generate(lm, session, &request, made, error);
  });
  std::string text;
  const frt_event_sink append = [](void* user, const frt_generation_event* event) -> frt_status {
    static_cast<std::string*>(user)->append(event->text, event->bytes);
    return FRT_OK;
  };
  must([&](frt_error* error) { return frt_generation_run(generation, append, &text, error); });
  return text;
}

int run(const char* manifest) {
  frt_runtime_options options{};
  options.struct_size = sizeof(options);
  options.manifest = manifest;
  const Runtime runtime(
      [&](frt_runtime* made, frt_error* error) { return frt_runtime_open(&options, made, error); });
  const Lm lm([&](frt_lm* made, frt_error* error) {
    return frt_lm_open(runtime, nullptr, nullptr, made, error);
  });

  const char* const prompts[] = {"Once upon a time, there was a little", "Felix and his friend"};
  std::string answers[2];
  std::thread beside([&] {
    try {
      answers[1] = generate(lm, nullptr, prompts[1]);
    } catch (const std::exception& error) {
      std::cerr << error.what() << '\n';
    }
  });
  answers[0] = generate(lm, nullptr, prompts[0]);
  beside.join();
  for (int i = 0; i < 2; ++i) std::cout << prompts[i] << answers[i] << '\n';

  const Session session(
      [&](frt_session* made, frt_error* error) { return frt_session_open(lm, made, error); });
  generate(lm, session, prompts[0]);
  const Capsule capsule([&](frt_lm_capsule* made, frt_error* error) {
    return frt_session_snapshot(session, FRT_SPACE_DEVICE, made, error);
  });
  std::string continuations[2];
  for (std::string& text : continuations) {
    must([&](frt_error* error) { return frt_session_restore(session, capsule, error); });
    text = generate(lm, session, nullptr, FRT_GENERATE_CONTINUE);
    std::cout << text << '\n';
  }
  const bool same = continuations[0] == continuations[1] && !answers[1].empty();
  std::cout << (same ? "the same continuation twice\n" : "the continuations differ\n");
  return same ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " MANIFEST\n";
    return 2;
  }
  try {
    return run(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
