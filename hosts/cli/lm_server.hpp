// SPDX-License-Identifier: Apache-2.0
// lm_server.hpp - the language models of a manifest behind HTTP, from the first 503 to the drain.
#pragma once

#include <frt/core/manifest.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cli/app.hpp"
#include "cli/http_setup.hpp"
#include "cli/loaded_model.hpp"
#include "http/access_log.hpp"
#include "http/lm/service.hpp"
#include "http/server.hpp"
#include "lm/capsules/registry.hpp"
#include "lm/engine/engine.hpp"

namespace frt::host {

class LmServer {
 public:
  // Listens at once; everything but /health, /metrics and the list of models waits for add().
  // Throws what HttpServer, AccessLog and read_keys() throw; exit status 3 for settings that
  // contradict the manifest.  [setup]
  LmServer(App& app, const core::Manifest& manifest, HttpSettings settings);
  ~LmServer();  // stop()
  LmServer(const LmServer&) = delete;
  LmServer& operator=(const LmServer&) = delete;

  const std::vector<std::string>& models() const noexcept { return settings_.models; }
  // "http://127.0.0.1:8080", "unix:/run/frt.sock".
  std::string address() const;
  // Serves `model` from now on, as `name`. What it is made of outlives stop().  [setup]
  void add(const std::string& name, LmModel model);
  // LmService::set_policy().
  void set_policy(const std::string& name, const char* state) { service_->set_policy(name, state); }
  // A device that is lost serves nothing any more.
  bool lost() const;
  // Reads the key file that `fresh` names, takes over the keys and their limits, and goes on in a
  // new log file. Throws what read_keys() and AccessLog::reopen() throw; what was not reached stays
  // as it was.  [any]
  void reload(const HttpSettings& fresh);
  // Lets answers end for as long as the manifest says, then ends them with an error by which their
  // clients send the request again. Nothing of a model is used from then on.
  void stop();

 private:
  struct Served {
    explicit Served(LmModel given) : model(std::move(given)) {}
    LmModel model;
    std::unique_ptr<CapsuleRegistry> registry;
    std::unique_ptr<Engine> engine;
    std::shared_ptr<ServedModel> shown;
  };

  App& app_;
  const core::Manifest& manifest_;
  HttpSettings settings_;
  AccessLog log_;
  std::mutex reload_mutex_;  // reload() against stop()
  std::vector<std::unique_ptr<Served>> served_;
  std::unique_ptr<LmService> service_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace frt::host
