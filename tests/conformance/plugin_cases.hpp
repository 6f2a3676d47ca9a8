// SPDX-License-Identifier: Apache-2.0
// plugin_cases.hpp - what holds for every plugin before it computes anything: its card, its
// descriptor, its life, its tables. Each case runs in a process of its own. What a host judges is
// judged here by the host's own functions (core), so that a plugin that passes loads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend.hpp"

namespace frt::conformance {

// What a run is about.
struct Subject {
  std::string plugin;     // its file
  uint32_t device = 0;    // ordinal; of a backend
  std::string reference;  // the file of the CPU backend
  // Of a model: what it is made of, and the device's backend; empty: the reference.
  std::string checkpoint, backend;
  std::string folder;           // for files of the run; goes with it
  std::vector<Option> options;  // of the backend's device, of the model or of the environment
  uint64_t seed = 1;
  // A case calls it before each part that may take long, such as making a model: the time that
  // --timeout allows begins anew.
  std::function<void()> alive = [] {};
  std::string prompt{};  // the instruction of a policy; empty: "go left", or ids
};

struct PluginCase {
  std::string name;
  // Throws frt::Error, Skip or Warn.
  std::function<void(const Subject&)> body;
  bool stops = false;  // where it fails, no case after it can be judged
};

// The cases of a plugin of a kind (FRT_PLUGIN_*), in order. A file whose card cannot be read has
// kind 0, and only the case that says so.
std::vector<PluginCase> plugin_cases(uint32_t kind);

// The cases of a model, after those.
void add_model_cases(std::vector<PluginCase>& cases);
// Among those: of its tokenizer, of its conversation format, of a robot policy, of the prompts of
// one, of what else a policy is told beside its observation.
void add_tokenizer_cases(std::vector<PluginCase>& cases);
void add_chat_cases(std::vector<PluginCase>& cases);
void add_policy_cases(std::vector<PluginCase>& cases);
void add_prompt_cases(std::vector<PluginCase>& cases);
void add_guidance_cases(std::vector<PluginCase>& cases);
// The cases of an environment, in place of those.
void add_environment_cases(std::vector<PluginCase>& cases);
// Hosts of other minor versions, which open the plugin and use it as far as its kind goes.
void add_host_cases(std::vector<PluginCase>& cases, uint32_t kind);

}  // namespace frt::conformance
