// SPDX-License-Identifier: Apache-2.0
// http_settings.hpp - the table [host.http] of a manifest, and what it comes to.
#pragma once

#include <frt/core/manifest.hpp>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "http/lm/service.hpp"
#include "http/server.hpp"
#include "lm/engine/engine.hpp"
#include "runtime/manifest_loader.hpp"

namespace frt::host {

// Everything [host.http] can say. Without such a table all values are the defaults.
struct HttpSettings {
  std::vector<std::string> models;  // empty: the only model of the manifest
  HttpOptions server;
  LmServiceOptions service;                        // without keys and models
  EngineOptions engine;                            // without `session`
  std::filesystem::path key_file, request_log;     // empty: none
  std::filesystem::path tls_certificate, tls_key;  // both or neither
  std::chrono::milliseconds drain{30000};
};

// What [host.http] may say.
HostKind http_host_kind();
// What the manifest's first such table says.
HttpSettings http_settings(const core::Manifest& manifest);
// What the values of one table say. Throws FRT_ERR_INVALID_ARGUMENT for those that contradict each
// other, that are no list, or that let others in without a key, and for half of what TLS needs.
// Reads no file.
HttpSettings http_settings(const core::Config& given);

// Throws FRT_ERR_INVALID_ARGUMENT for a model that the manifest does not have, for two that share a
// device (an engine uses its device's context alone; the policy of [host.robot] counts, too), and
// for an alias of a model that is not served. Nothing is said about what `settings` leave open.
void check_models(const core::Manifest& manifest, const HttpSettings& settings);

// What a program says over the manifest; what is empty counts as not said.
struct HttpChoice {
  std::vector<std::string> models{};
  std::string listen{};
};
// Throws FRT_ERR_INVALID_ARGUMENT for an address that is none, and what require_key_or_loopback()
// throws.
void choose(HttpSettings& settings, const HttpChoice& choice);

// Throws FRT_ERR_INVALID_ARGUMENT for an address that other machines reach where no key_file is
// named: whoever reaches it could use the models. Ask again if `listen` changes.
void require_key_or_loopback(const HttpSettings& settings);

// What the server is to clients of TLS; null where the settings name no certificate. Throws what
// TlsContext::load() throws.
std::shared_ptr<const TlsContext> read_tls(const HttpSettings& settings);

// The keys of a file that nobody but its owner can read; none for an empty path. Throws
// FRT_ERR_FORMAT, FRT_ERR_BAD_STATE with the fix for a file that others can read, and what
// io::read_file() throws.
std::vector<ApiKey> read_keys(const std::filesystem::path& path);

}  // namespace frt::host
