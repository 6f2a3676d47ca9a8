// SPDX-License-Identifier: Apache-2.0
#include "embed/server.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "embed/lm.hpp"

namespace frt::embed {
namespace {

constexpr uint64_t kLongestDrain = uint64_t{24} * 60 * 60 * 1000;  // ms

// What [host.robot] means is a policy, whatever role its model has.
void refuse_policy(const core::Manifest& manifest, const host::HttpSettings& settings) {
  const core::HostSpec* robot = manifest.find_host("robot");
  if (!robot) return;
  std::string policy = robot->settings.text("model");
  std::vector<std::string> served = settings.models;
  if (manifest.models.size() == 1) {
    const std::string& only = manifest.models.front().name;
    if (policy.empty()) policy = only;
    if (served.empty()) served = {only};
  }
  if (std::ranges::find(served, policy) == served.end()) return;
  throw Error(FRT_ERR_UNSUPPORTED,
              "'" + policy +
                  "' is the policy of [host.robot], and a server of a program serves "
                  "language models alone; serve policies with frt-host serve");
}

host::HttpSettings settings_of(Runtime& runtime, const frt_server_options& options) {
  host::HttpChoice choice;
  for (const std::string& name : texts_of(options.models, options.model_count, "models")) {
    choice.models.push_back(runtime.model_name(name.c_str()));
  }
  if (options.listen) choice.listen = options.listen;
  if (options.drain_ms > kLongestDrain) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "drain_ms is " + std::to_string(options.drain_ms) +
                                          "; it is at most a day, " +
                                          std::to_string(kLongestDrain));
  }
  host::HttpSettings settings = host::http_settings(runtime.manifest());
  host::choose(settings, choice);
  refuse_policy(runtime.manifest(), settings);
  if (options.drain_ms > 0) settings.drain = std::chrono::milliseconds(options.drain_ms);
  settings.engine.around = [&log = runtime.log()](const std::function<void()>& body) {
    const core::LogScope scope(&log);
    body();
  };
  return settings;
}

}  // namespace

Server::Server(std::shared_ptr<Runtime> runtime, const frt_server_options& options)
    : runtime_(std::move(runtime)),
      server_(std::make_unique<host::LmServer>(runtime_->log(), runtime_->manifest(),
                                               settings_of(*runtime_, options))),
      models_(server_->models()),
      address_(server_->address()),
      port_(server_->port()) {
  for (const std::string& name : models_) names_.push_back(name.c_str());
}

Server::~Server() {
  close();
}

void Server::add(const std::shared_ptr<Instance>& instance) {
  leases_.push_back(std::make_unique<EngineLease>(instance, EngineUser::kServer));
  server_->add(instance->name(), language_model_of(*instance));
}

frt_server_facts Server::facts() const {
  frt_server_facts facts{};
  facts.port = port_;
  facts.model_count = static_cast<uint32_t>(names_.size());
  facts.models = names_.data();
  facts.address = address_.c_str();
  const std::lock_guard lock(mutex_);
  facts.device_lost = server_ && server_->lost() ? 1 : 0;
  return facts;
}

void Server::close() {
  std::unique_ptr<host::LmServer> server;
  {
    const std::lock_guard lock(mutex_);
    server = std::move(server_);
  }
  server.reset();
  leases_.clear();
}

}  // namespace frt::embed
