// SPDX-License-Identifier: Apache-2.0
#include "runtime/lm_server.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "net/address.hpp"
#include "runtime/exit_code.hpp"
#include "runtime/lm_settings.hpp"

namespace frt::host {
namespace {

// For the errors that end what was not over.
constexpr std::chrono::seconds kLastWords{5};

[[noreturn]] void refuse_manifest(const core::Manifest& manifest, const std::string& text) {
  throw ExitError(ExitCode::kManifest, FRT_ERR_INVALID_ARGUMENT,
                  manifest.path.string() + ": [host.http] " + text);
}

void complete_models(const core::Manifest& manifest, HttpSettings& settings) {
  if (settings.models.empty()) {
    if (manifest.models.size() != 1) {
      refuse_manifest(manifest, "names no model, and the manifest has not exactly one; add model");
    }
    settings.models = {manifest.models.front().name};
  }
  try {
    check_models(manifest, settings);
  } catch (const Error& error) {
    refuse_manifest(manifest, error.what());
  }
}

LmServiceOptions service_options(HttpSettings& settings) {
  settings.service.models = settings.models;
  settings.service.keys = read_keys(settings.key_file);
  return settings.service;
}

}  // namespace

LmServer::LmServer(core::Log& log, const core::Manifest& manifest, HttpSettings settings)
    : log_(log),
      manifest_(manifest),
      settings_(std::move(settings)),
      access_log_(settings_.request_log) {
  complete_models(manifest, settings_);
  service_ = std::make_unique<LmService>(
      stage(ExitCode::kManifest, [&] { return service_options(settings_); }), access_log_,
      [&log](const std::string& text) { log.write("http", FRT_LOG_ERROR, text); });
  settings_.server.tls = stage(ExitCode::kManifest, [&] { return read_tls(settings_); });
  server_ = std::make_unique<HttpServer>(settings_.server, *service_);
  if (const auto tls = server_->tls()) log.write("http", FRT_LOG_INFO, "TLS as " + tls->summary());
  service_->attach(server_.get());
}

LmServer::~LmServer() {
  keep();
}

std::string LmServer::address() const {
  const std::string& listen = settings_.server.listen;
  if (!parse_listen(listen, true).unix_path.empty()) return listen;
  return (settings_.server.tls ? "https://" : "http://") + listen.substr(0, listen.rfind(':') + 1) +
         std::to_string(server_->port());
}

void LmServer::add(const std::string& name, LmModel model) {
  auto served = std::make_unique<Served>(std::move(model));
  CapsuleSettings capsules = capsule_settings(manifest_, name);
  served->registry = open_capsules(log_, served->model, capsules.capsules);
  EngineOptions options = settings_.engine;
  options.session = capsules.session;
  served->engine = std::make_unique<Engine>(served->model, served->registry.get(), options);
  served->shown = std::make_shared<ServedModel>(served->model, *served->engine);
  service_->set_model(name, served->shown);
  served_.push_back(std::move(served));
}

bool LmServer::lost() const {
  return std::ranges::any_of(served_,
                             [](const auto& each) { return each->engine->stats().device_lost; });
}

void LmServer::reload(const HttpSettings& fresh) {
  const std::lock_guard lock(reload_mutex_);
  if (!server_) return;
  // What is listened on decides, not what the manifest says of it now.
  HttpSettings judged = fresh;
  judged.server.listen = settings_.server.listen;
  require_key_or_loopback(judged);
  if (!settings_.key_file.empty() && fresh.key_file.empty()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "[host.http] names no key_file any more, and this server began with one; name it "
                "again, or start the server anew to let everybody in");
  }
  if (settings_.tls_certificate.empty() != fresh.tls_certificate.empty()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "[host.http] tls_certificate was added or removed; start the server anew for that");
  }
  // All is read before anything is changed.
  std::vector<ApiKey> keys = read_keys(fresh.key_file);
  if (auto tls = read_tls(fresh)) {
    log_.write("http", FRT_LOG_INFO, "TLS as " + tls->summary());
    server_->set_tls(std::move(tls));
  }
  service_->replace_keys(std::move(keys), fresh.service.key_limits);
  access_log_.reopen();
}

std::chrono::milliseconds LmServer::drain_time() const noexcept {
  return settings_.drain + kLastWords;
}

void LmServer::drain() {
  if (!server_ || std::exchange(drained_, true)) return;
  service_->begin_drain();
  if (server_->drain(settings_.drain)) return;
  service_->end_replies();
  server_->drain(kLastWords);
}

void LmServer::wait_for_files() const {
  const auto moves = [](const auto& each) {
    return each->registry && each->registry->moves_files();
  };
  while (std::ranges::any_of(served_, moves)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// Clients first, then what works for them, then the models: nobody is told of what is gone.
void LmServer::stop() {
  if (!server_) return;
  drain();
  {
    const std::lock_guard lock(reload_mutex_);
    service_->attach(nullptr);
    server_.reset();
  }
  for (const auto& each : served_) each->engine->drain();
  service_.reset();
  for (const auto& each : served_) {
    each->shown.reset();
    each->engine.reset();
  }
}

void LmServer::keep() {
  stop();
  served_.clear();
}

}  // namespace frt::host
