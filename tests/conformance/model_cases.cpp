// SPDX-License-Identifier: Apache-2.0
// A model is made as every program makes one: from a manifest, by the code of the hosts, which
// judges roles, tables, regions of capsules and the kernels that the model registers.
#include <frt/capsule.hpp>
#include <frt/core/registry.hpp>
#include <frt/error.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <utility>

#include "bench/capsule_check.hpp"
#include "check.hpp"
#include "lm/engine/generate.hpp"
#include "plugin_cases.hpp"
#include "runtime/loaded_model.hpp"
#include "runtime/robot_settings.hpp"

namespace frt::conformance {
namespace {

constexpr uint64_t kTokens = 24;  // generated where runs are compared

[[noreturn]] void fail(const std::string& text) {
  throw Error(FRT_ERR_MISMATCH, text);
}

// As a TOML string.
std::string quoted(const std::string& text) {
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made + "\"";
}

std::string absolute(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

std::string manifest_of(const Subject& subject, const std::string& checkpoint) {
  const std::string backend = subject.backend.empty() ? subject.reference : subject.backend;
  const std::string model_id = core::read_image(subject.plugin).card.id;
  const std::string backend_id = core::read_image(backend).card.id;
  const auto plugin = [](const std::string& id, const std::string& path) {
    return "[[plugin]]\nid = " + quoted(id) + "\npath = " + quoted(absolute(path)) + "\n";
  };
  return "schema = 1\n" + plugin(model_id, subject.plugin) + plugin(backend_id, backend) +
         "[device.here]\nbackend = " + quoted(backend_id) +
         "\n[model.checked]\nplugin = " + quoted(model_id) +
         "\ndevice = \"here\"\ncheckpoint = " + quoted(checkpoint) + "\n";
}

core::RegistryOptions own_files_only() {
  core::RegistryOptions options;
  options.use_environment = false;
  options.own_folder = "";
  options.probing = core::Probing::kNever;  // this is a child
  options.trials.clear();
  return options;
}

// The model, made.
class Made {
 public:
  explicit Made(const Subject& subject, bool eager = false, const std::vector<Option>& more = {})
      : Made(subject, subject.checkpoint, eager, more) {}
  Made(const Subject& subject, const std::string& checkpoint, bool eager,
       const std::vector<Option>& more)
      : registry_(own_files_only()), loader_(registry_, log_, {}) {
    const std::filesystem::path file = std::filesystem::path(subject.folder) / "checked.toml";
    std::ofstream(file) << manifest_of(subject, checkpoint);
    host::LoadOptions options;
    options.runtime.eager = eager;
    const auto set = [&](const Option& one) {
      options.sets.push_back("model.checked.options." + one.key + "=" + one.text);
    };
    for (const Option& one : subject.options) set(one);
    for (const Option& one : more) set(one);
    model_ = std::make_unique<host::LoadedModel>(loader_, file.string(), "checked", options);
  }
  const host::LoadedModel& operator*() const { return *model_; }
  const host::LoadedModel* operator->() const { return model_.get(); }
  bool has(const char* id) const { return model_->table().extension(model_->handle(), id); }

 private:
  core::Log log_;
  core::Registry registry_;
  host::ManifestLoader loader_;
  std::unique_ptr<host::LoadedModel> model_;
};

void needs_checkpoint(const Subject& subject) {
  if (subject.checkpoint.empty()) {
    throw Skip{"no model is made: give what it is made of with --checkpoint"};
  }
}

void tables(const Subject& subject) {
  core::LoadRequest request;
  request.path = subject.plugin;
  const core::LoadedPlugin& loaded = core::load_plugin(request);
  core::Log log;
  core::HostServices services(log);
  const core::OpenPlugin opened(loaded, config_of(loaded.schema.plugin_options, {}, "plugin"),
                                services);
  opened.require<frt_model_v1>(FRT_EXT_MODEL);
}

void created_twice(const Subject& subject) {
  needs_checkpoint(subject);
  for (int round = 0; round < 2; ++round) const Made made(subject);
}

void roles(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  const bool lm = made.has(FRT_EXT_ROLE_LM), policy = made.has(FRT_EXT_ROLE_POLICY);
  if (lm) made->language_model();
  if (policy) host::policy_of(*made);
  if (!lm && !policy && !made.has(FRT_EXT_ROLE_CRITIC)) {
    throw Warn{"the model has no role of frt/role/: no host can drive it"};
  }
}

host::GenerationResult generated(const Subject& subject, bool eager) {
  const Made made(subject, eager);
  const host::LmModel model = made->language_model();
  host::EngineRequest request;
  const auto vocabulary = static_cast<uint64_t>(model.info().vocabulary);
  for (uint64_t i = 0; i < 5; ++i) {
    request.prompt.push_back(static_cast<int32_t>((subject.seed * 7 + i * 13) % vocabulary));
  }
  request.max_new = kTokens;
  request.sampling.top_p = 1;
  request.sampling.repetition_penalty = 1;
  host::EngineOptions options;
  options.slots = 1;
  host::Engine engine(model, nullptr, options);
  return host::generate(engine, std::move(request));
}

// What a launch does by itself while it is captured, in place of submitting it, happens once and
// never in a replay.
void captured_equals_eager(const Subject& subject) {
  needs_checkpoint(subject);
  if (!Made(subject).has(FRT_EXT_ROLE_LM)) throw Skip{"the model has no " FRT_EXT_ROLE_LM};
  const host::GenerationResult eager = generated(subject, true),
                               captured = generated(subject, false);
  const std::size_t count = std::min(eager.tokens.size(), captured.tokens.size());
  const char* reason =
      "; a kernel that works in `launch` itself, in place of submitting to its stream, runs at the "
      "capture and never again";
  for (std::size_t i = 0; i < count; ++i) {
    if (eager.tokens[i] != captured.tokens[i]) {
      fail("token " + std::to_string(i) + " is " + std::to_string(captured.tokens[i]) +
           " captured, " + std::to_string(eager.tokens[i]) + " eager" + reason);
    }
    const float a = captured.log_probabilities[i], b = eager.log_probabilities[i];
    if (std::memcmp(&a, &b, sizeof(a)) != 0) {
      fail("the log probability of token " + std::to_string(i) + " is " + std::to_string(a) +
           " captured, " + std::to_string(b) + " eager" + reason);
    }
  }
  if (eager.tokens.size() != captured.tokens.size()) {
    fail(std::to_string(captured.tokens.size()) + " tokens captured, " +
         std::to_string(eager.tokens.size()) + " eager" + reason);
  }
}

void capsules(const Subject& subject) {
  needs_checkpoint(subject);
  const Made made(subject);
  if (!made.has(FRT_EXT_CAPSULE)) throw Skip{"the model has no " FRT_EXT_CAPSULE};
  if (!made.has(FRT_EXT_ROLE_LM)) throw Skip{"the model has no " FRT_EXT_ROLE_LM};
  const host::LmModel model = made->language_model();
  model.capsules().fingerprint();
  host::CapsuleCheckOptions options;
  options.cases = 6;
  options.seed = subject.seed;
  options.folder = subject.folder;
  host::CapsuleCheckResult result;
  try {
    result = host::check_capsules(model, options, [](const auto&) { return false; });
  } catch (const Error& error) {
    if (error.status() != FRT_ERR_OUT_OF_RANGE) throw;
    throw Skip{error.what()};  // too few slots or rows to compare anything
  }
  if (!result.failures.empty()) fail(result.failures.front());
}

// A value that the option's type or limits do not allow; none where every text is one.
std::vector<std::string> wrong_values(const core::OptionSpec& option) {
  switch (option.type) {
    case FRT_CONFIG_BOOL:
    case FRT_CONFIG_FLOAT:
      return {"perhaps"};
    case FRT_CONFIG_INT:
      return {"perhaps", "-1"};
    case FRT_CONFIG_SIZE:
      return {"perhaps", "0"};
    case FRT_CONFIG_ENUM:
      return {"no such choice"};
    default:
      return {};
  }
}

// Refused by the schema or by `create`, in words. Where the text can be no value of the type, it
// must be; a number may suit.
void wrong_options(const Subject& subject) {
  needs_checkpoint(subject);
  core::LoadRequest request;
  request.path = subject.plugin;
  for (const core::OptionSpec& option : core::load_plugin(request).schema.options) {
    for (const std::string& text : wrong_values(option)) {
      const bool number = text == "-1" || text == "0";
      bool taken = true;
      try {
        const Made made(subject, false, {{option.key, text}});
      } catch (const Error& error) {
        taken = false;
        if (*error.what() == '\0') fail("option " + option.key + " = " + text + ": no words");
      }
      if (taken && !number) fail("option " + option.key + " = " + text + " is not refused");
    }
  }
}

void no_checkpoint(const Subject& subject) {
  needs_checkpoint(subject);
  const std::string missing = subject.folder + "/no-such-checkpoint";
  try {
    const Made made(subject, missing, false, {});
  } catch (const Error&) {
    return;
  }
  throw Warn{"`create` takes a checkpoint that does not exist"};
}

}  // namespace

void add_model_cases(std::vector<PluginCase>& cases) {
  cases.push_back({"model tables", tables});
  cases.push_back({"model created twice", created_twice});
  cases.push_back({"model roles", roles});
  cases.push_back({"model captured equals eager", captured_equals_eager});
  cases.push_back({"model capsules", capsules});
  cases.push_back({"model wrong options", wrong_options});
  cases.push_back({"model no checkpoint", no_checkpoint});
}

}  // namespace frt::conformance
