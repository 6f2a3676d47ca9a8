// SPDX-License-Identifier: Apache-2.0
// rig.hpp - a context over the mock backend, checked for leaks and misuse when it goes.
#pragma once

#include <doctest/doctest.h>

#include <frt/core/context.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/draft/graph.hpp>
#include <frt/draft/plan.hpp>
#include <frt/exec.hpp>
#include <functional>
#include <string>

#include "mock_backend.hpp"

struct RigOptions {
  bool eager = false;
  bool compose = true;  // the backend has exec_compose
  uint32_t seed = 1;
  uint32_t device_flags = 0;
  bool peers = false;  // the backend has copy_peer
};

class Rig {
 public:
  explicit Rig(const RigOptions& options = {}) : mock(options.seed) {
    if (!options.compose) mock.table.exec_compose = nullptr;
    if (options.peers) mock.offer_peer_copies();
    mock.device_flags = options.device_flags;
    frt::core::ContextOptions context_options;
    context_options.name = "dev0";
    context_options.backend_id = "test.mock";
    context_options.eager = options.eager;
    context_options.kernels = &mock.kernels;
    handle = frt::core::open_context(mock.table, mock.plugin(), 0, nullptr, context_options);
    context = frt::Context(frt::core::exec_table(), handle);
    frt::KernelSet()
        .add(append, "mock.append/1")
        .add(mix, "mock.mix/1")
        .resolve(context, frt::KernelTypes());
  }

  ~Rig() {
    CHECK_NOTHROW(frt::core::close_context(handle));
    CHECK(mock.violations == std::vector<std::string>{});
    CHECK(mock.live_blocks == 0);
    CHECK(mock.live_execs == 0);
    CHECK(mock.live_events == 0);
    CHECK(mock.live_streams == 0);
    CHECK(mock.calls("device_close") == 1);
  }

  // A recipe that appends `value` to the trace.
  auto appending(int32_t value) {
    return [this, value](const frt::Recorder& recorder) { append(recorder, {0, value}); };
  }

  frt_counters counters() const { return context.counters(); }

  frt::Plan create_plan(const std::string& name) const {
    return {frt::core::plan_draft(), context, name};
  }

  MockBackend mock;
  frt_context handle = nullptr;
  frt::Context context;
  frt::Kernel<mock_append_args> append;
  frt::Kernel<mock_mix_args> mix;
};

// The part of a graph's functions that is in draft.
inline frt::GraphDraft draft(const frt::Graph& graph) {
  return {frt::core::graph_draft(), graph};
}

// What `body` throws as (status, text); FRT_OK if nothing.
inline frt_error caught(const std::function<void()>& body) {
  frt_error error{};
  try {
    body();
  } catch (const frt::Error& e) {
    frt::set_error(&error, e.status(), e.what());
  }
  return error;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define CHECK_FAILS(status, part, ...)                           \
  do {                                                           \
    const frt_error caught_error = caught([&] { __VA_ARGS__; }); \
    CHECK(std::string(frt::status_name(caught_error.code)) ==    \
          std::string(frt::status_name(status)));                \
    INFO("message: ", caught_error.message);                     \
    CHECK(contains(caught_error.message, part));                 \
  } while (false)
