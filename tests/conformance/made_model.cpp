// SPDX-License-Identifier: Apache-2.0
#include "made_model.hpp"

#include <filesystem>
#include <frt/io/file.hpp>

#include "check.hpp"

namespace frt::conformance {
namespace {

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

}  // namespace

void needs_checkpoint(const Subject& subject) {
  if (subject.checkpoint.empty()) {
    throw Skip{"no model is made: give what it is made of with --checkpoint"};
  }
}

// The manifest lies in another folder, from which a relative path would start.
std::string checkpoint_of(const Subject& subject) {
  return subject.checkpoint.starts_with("synthetic:") ? subject.checkpoint
                                                      : absolute(subject.checkpoint);
}

Made::Made(const Subject& subject, bool eager, const std::vector<Option>& more)
    : Made(subject, checkpoint_of(subject), eager, more) {}

Made::Made(const Subject& subject, const std::string& checkpoint, bool eager,
           const std::vector<Option>& more)
    : watch_(subject), registry_(own_files_only()), loader_(registry_, log_, {}) {
  subject.alive();
  const std::filesystem::path file = std::filesystem::path(subject.folder) / "checked.toml";
  io::write_file_atomically(file, manifest_of(subject, checkpoint));
  host::LoadOptions options;
  options.runtime.eager = eager;
  options.observer = &watch_;
  const auto set = [&](const Option& one) {
    options.sets.push_back("model.checked.options." + one.key + "=" + one.text);
  };
  for (const Option& one : subject.options) set(one);
  for (const Option& one : more) set(one);
  model_ = std::make_unique<host::LoadedModel>(loader_, file.string(), "checked", options);
  subject.alive();
}

bool Made::has(const char* id) const {
  return model_->table().extension(model_->handle(), id) != nullptr;
}

}  // namespace frt::conformance
