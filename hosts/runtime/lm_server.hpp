// SPDX-License-Identifier: Apache-2.0
// lm_server.hpp - the language models of a manifest behind HTTP, from the first 503 to the drain.
#pragma once

#include <frt/core/log.hpp>
#include <frt/core/manifest.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "http/lm/service.hpp"
#include "http/server.hpp"
#include "lm/capsules/registry.hpp"
#include "lm/engine/engine.hpp"
#include "lm/lm_model.hpp"
#include "net/access_log.hpp"
#include "runtime/http_settings.hpp"

namespace frt::host {

class LmServer {
 public:
  // Listens at once; everything but /health, /metrics and the list of models waits for add().
  // Throws what HttpServer, AccessLog and read_keys() throw; exit status 3 for settings that
  // contradict the manifest.  [setup]
  // `log` and `manifest` outlive it.
  LmServer(core::Log& log, const core::Manifest& manifest, HttpSettings settings);
  ~LmServer();  // keep()
  LmServer(const LmServer&) = delete;
  LmServer& operator=(const LmServer&) = delete;

  const std::vector<std::string>& models() const noexcept { return settings_.models; }
  // "http://127.0.0.1:8080", "https://...", "unix:/run/frt.sock".
  std::string address() const;
  uint16_t port() const noexcept { return server_->port(); }  // 0 for a UNIX socket
  // Serves `model` from now on, as `name`. What it is made of outlives stop().  [setup]
  void add(const std::string& name, LmModel model);
  // LmService::set_policy().
  void set_policy(const std::string& name, const char* state) { service_->set_policy(name, state); }
  // LmService::set_policy_metrics().
  void set_policy_metrics(const std::string& name, std::function<std::string()> metrics) {
    service_->set_policy_metrics(name, std::move(metrics));
  }
  // LmService::set_about().
  void set_about(const nlohmann::ordered_json& about) { service_->set_about(about); }
  // A device that is lost serves nothing any more.
  bool lost() const;
  // Reads the key file and the certificate that `fresh` names, takes over both and the keys'
  // limits, and goes on in a new log file. Throws what read_keys(), read_tls() and
  // AccessLog::reopen() throw; before the log file it changes all or nothing.  [any]
  void reload(const HttpSettings& fresh);
  // How long drain() may take: drain_s, and some seconds for the errors that end what goes on.
  std::chrono::milliseconds drain_time() const noexcept;
  // Refuses new requests and lets answers end for drain_s, then ends them with an error by which
  // their clients send the request again; once.
  void drain();
  // After drain(): waits until no file of a capsule is being read or written. No plugin takes part
  // in that.
  void wait_for_files() const;
  // drain(), then ends what works for clients, and the engines.
  void stop();
  // stop(), then waits until the capsules on their way to the disk are there. Nothing of a model is
  // used from then on.
  void keep();

 private:
  struct Served {
    explicit Served(LmModel given) : model(std::move(given)) {}
    LmModel model;
    std::unique_ptr<CapsuleRegistry> registry;
    std::unique_ptr<Engine> engine;
    std::shared_ptr<ServedModel> shown;
  };

  core::Log& log_;
  const core::Manifest& manifest_;
  HttpSettings settings_;
  AccessLog access_log_;
  std::mutex reload_mutex_;  // reload() against stop()
  std::vector<std::unique_ptr<Served>> served_;
  std::unique_ptr<LmService> service_;
  std::unique_ptr<HttpServer> server_;
  bool drained_ = false;
};

}  // namespace frt::host
