// SPDX-License-Identifier: Apache-2.0
// frt/environment.hpp - writing an environment in C++: a class for the environment, and the C table
// made of it, so that the translation (handles to objects, exceptions to codes, struct sizes) and
// the checks of what a host gives are written once. Header only.
//
//     struct Plugin {
//       // `params` are a checked copy for the call, with a name.
//       std::unique_ptr<Acme> create(const frt_environment_params& params);
//       const void* extension(std::string_view id) noexcept {
//         return id == FRT_EXT_ENVIRONMENT ? &kEnvironment : nullptr;
//       }
//       static constexpr frt_environment_v1 kEnvironment = frt::environment_table<Plugin, Acme>();
//     };
//
// What the environment class has; anything may throw frt::Error:
//
//   const frt_environment_info& info() const              lives as long as the environment
//   void reset(const frt_environment_start& start)        the task exists, or is FRT_TASK_ANY
//   const frt_observation& observe()                      valid until the next call
//   frt_environment_result step(std::span<const double>)  one action: finite, within its limits
// and, where it can do that:
//   void set_task(uint32_t task)                          the task exists
//   void expert_action(std::span<double> action)
//   std::string draw(uint32_t frames)
//
// Between a reset that succeeded and the next error of `observe` or `step` an episode runs; outside
// of one none of these is called but `reset`.
#pragma once

#include <frt/environment.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <frt/error.hpp>
#include <frt/plugin.hpp>
#include <frt/role/contracts.hpp>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace frt {

// A port of an environment: an array that `observe` gives, or the action. The texts outlive the
// port. At most FRT_ARRAY_MAX_RANK sizes.  [setup]
inline frt_environment_port make_environment_port(const char* name, const char* doc, uint32_t kind,
                                                  frt_dtype dtype,
                                                  std::initializer_list<int64_t> shape) {
  if (shape.size() > FRT_ARRAY_MAX_RANK) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::string("port ") + name + " has more than " +
                                              std::to_string(FRT_ARRAY_MAX_RANK) + " dimensions");
  }
  frt_environment_port port{};
  port.name = name;
  port.doc = doc;
  port.kind = kind;
  port.dtype = dtype;
  port.rank = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), port.shape);
  return port;
}

// The array that `observe` gives for `port`; `data` is borrowed.  [any]
inline frt_array array_of(const frt_environment_port& port, const void* data) {
  frt_array array{};
  array.name = port.name;
  array.data = data;
  array.dtype = port.dtype;
  array.rank = port.rank;
  std::copy(port.shape, port.shape + port.rank, array.shape);
  return array;
}

namespace detail {

// The object behind frt_environment: the author's, and what the table has to remember.
template <class Environment>
struct HeldEnvironment {
  std::unique_ptr<Environment> self;
  bool running = false;          // an episode
  std::vector<double> action{};  // within its limits

  void require_episode(const char* function) const {
    if (running) return;
    throw Error(FRT_ERR_BAD_STATE, std::string(function) + ": no episode runs; call `reset` first");
  }
  void require_task(uint32_t task, const char* function) const {
    const uint32_t count = self->info().task_count;
    if (task < count) return;
    throw Error(FRT_ERR_OUT_OF_RANGE, std::string(function) + ": there is no task " +
                                          std::to_string(task) + "; the environment has " +
                                          std::to_string(count));
  }
  // Runs `body`; if it throws, the episode is lost.
  template <class Body>
  auto in_episode(const char* function, Body&& body) {
    require_episode(function);
    running = false;
    auto&& result = body();
    running = true;
    return std::forward<decltype(result)>(result);
  }
};

template <class Plugin, class Environment>
struct EnvironmentTable {
  using Held = HeldEnvironment<Environment>;

  static frt_status create(frt_plugin plugin, const frt_environment_params* params,
                           frt_environment* environment, frt_error* error) {
    return guard(error, [&] {
      if (!plugin || !environment) {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "create: plugin and environment must be given");
      }
      auto held = std::make_unique<Held>();
      held->self =
          object<Plugin>(plugin)->create(read_table<frt_environment_params>(params, "the host"));
      held->action.resize(static_cast<std::size_t>(held->self->info().action->shape[0]));
      *environment = handle<frt_environment>(held.release());
    });
  }
  static void destroy(frt_environment environment) { delete object<Held>(environment); }
  static frt_status info(frt_environment environment, frt_environment_info* out) {
    if (!environment) return FRT_ERR_INVALID_ARGUMENT;
    return guard(nullptr, [&] { return fill(out, object<Held>(environment)->self->info()); });
  }
  static frt_status reset(frt_environment environment, const frt_environment_start* start,
                          frt_error* error) {
    return with(environment, "reset", error, [&](Held& held) {
      const auto given = read_table<frt_environment_start>(start, "the host");
      if (given.task != FRT_TASK_ANY) held.require_task(given.task, "reset");
      held.running = false;
      held.self->reset(given);
      held.running = true;
      return FRT_OK;
    });
  }
  static frt_status observe(frt_environment environment, frt_observation* out, frt_error* error) {
    return with(environment, "observe", error, [&](Held& held) {
      const frt_observation seen = held.in_episode("observe", [&] { return held.self->observe(); });
      return filled(fill(out, seen), "observe");
    });
  }
  static frt_status step(frt_environment environment, const double* action,
                         frt_environment_result* out, frt_error* error) {
    return with(environment, "step", error, [&](Held& held) {
      held.require_episode("step");
      if (!action || !out) {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "step: action and result must be given");
      }
      const frt_environment_info& facts = held.self->info();
      for (std::size_t i = 0; i < held.action.size(); ++i) {
        if (!std::isfinite(action[i])) {
          throw Error(FRT_ERR_INVALID_ARGUMENT, "step: value " + std::to_string(i) +
                                                    " of the action is " +
                                                    std::to_string(action[i]));
        }
        double value = action[i];
        if (facts.action_low) value = std::max(value, facts.action_low[i]);
        if (facts.action_high) value = std::min(value, facts.action_high[i]);
        held.action[i] = value;
      }
      frt_environment_result result =
          held.in_episode("step", [&] { return held.self->step(held.action); });
      result.struct_size = sizeof(result);
      return filled(fill(out, result), "step");
    });
  }
  static frt_status set_task(frt_environment environment, uint32_t task, frt_error* error) {
    return with(environment, "set_task", error, [&](Held& held) {
      held.require_episode("set_task");
      held.require_task(task, "set_task");
      held.self->set_task(task);
      return FRT_OK;
    });
  }
  static frt_status expert_action(frt_environment environment, double* action, frt_error* error) {
    return with(environment, "expert_action", error, [&](Held& held) {
      held.require_episode("expert_action");
      if (!action) throw Error(FRT_ERR_INVALID_ARGUMENT, "expert_action: action must be given");
      held.self->expert_action(std::span(action, held.action.size()));
      return FRT_OK;
    });
  }
  static frt_status draw(frt_environment environment, uint32_t frames, frt_sink sink, void* user,
                         frt_error* error) {
    return with(environment, "draw", error, [&](Held& held) -> frt_status {
      held.require_episode("draw");
      if (!sink || frames == 0) {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "draw: a sink and at least one frame must be given");
      }
      const std::string text = held.self->draw(frames);
      const frt_status status = sink(user, text.data(), text.size());
      if (status != FRT_OK) throw Error(status, "draw: the host stopped it");
      return FRT_OK;
    });
  }

 private:
  template <class Body>
  static frt_status with(frt_environment environment, const char* function, frt_error* error,
                         Body body) {
    return guard(error, [&]() -> frt_status {
      if (!environment) {
        throw Error(FRT_ERR_INVALID_ARGUMENT, std::string(function) + ": environment is NULL");
      }
      return body(*object<Held>(environment));
    });
  }
  static frt_status filled(frt_status status, const char* function) {
    if (status == FRT_OK) return status;
    throw Error(status, std::string(function) +
                            ": its struct cannot be filled; set struct_size to "
                            "sizeof the struct");
  }
};

}  // namespace detail

// What the class lacks is NULL in the table.
template <class Plugin, class Environment>
constexpr frt_environment_v1 environment_table() noexcept {
  using Table = detail::EnvironmentTable<Plugin, Environment>;
  frt_environment_v1 table{};
  table.struct_size = sizeof(table);
  table.create = Table::create;
  table.destroy = Table::destroy;
  table.info = Table::info;
  table.reset = Table::reset;
  table.observe = Table::observe;
  table.step = Table::step;
  if constexpr (requires(Environment & self) { self.set_task(uint32_t{}); }) {
    table.set_task = Table::set_task;
  }
  if constexpr (requires(Environment & self) { self.expert_action(std::span<double>()); }) {
    table.expert_action = Table::expert_action;
  }
  if constexpr (requires(Environment & self) { self.draw(uint32_t{}); }) table.draw = Table::draw;
  return table;
}

}  // namespace frt
