// SPDX-License-Identifier: Apache-2.0
// server.hpp - language models of a runtime behind HTTP. A served model has an engine of the
// server's, with the settings of [host.http], so nothing else drives its device meanwhile.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "embed/runtime.hpp"
#include "runtime/lm_server.hpp"

namespace frt::embed {

class Server {
 public:
  static constexpr const char* kNoun = "server";

  // Listens, and answers 503 until add().
  Server(std::shared_ptr<Runtime> runtime, const frt_server_options& options);
  ~Server();  // close()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::shared_ptr<core::Log>& log_owner() const noexcept { return runtime_->log_owner(); }
  const std::vector<std::string>& models() const noexcept { return models_; }
  void add(const std::shared_ptr<Instance>& instance);
  void set_about(const nlohmann::ordered_json& about) { server_->set_about(about); }
  frt_server_facts facts() const;
  // Lets answers end for as long as the settings say, ends the others, and gives the devices back;
  // once.
  void close();

 private:
  const std::shared_ptr<Runtime> runtime_;
  std::vector<std::unique_ptr<EngineLease>> leases_;
  mutable std::mutex mutex_;                // of the pointer
  std::unique_ptr<host::LmServer> server_;  // null: closed
  std::vector<std::string> models_;
  std::vector<const char*> names_;  // of models_
  std::string address_;
  uint16_t port_;
};

}  // namespace frt::embed
