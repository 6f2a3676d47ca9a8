// SPDX-License-Identifier: Apache-2.0
// service.hpp - language models behind an HttpServer: routes, keys, limits, metrics.
//
//   GET   /health                     200 when every model is ready, else 503; needs no key
//   GET   /metrics                    Prometheus text
//   GET   /v1/models, /v1/models/ID   with the state of each
//   GET   /v1/about                   models, devices, plugins, the manifest; no path, no secret
//   GET   /v1/policies/ID/metrics     Prometheus text of a policy that the program serves, too
//   GET   /, /page/NAME               the built-in page (http/page/page_files.hpp); needs no key
//   POST  /v1/chat/completions  /v1/completions  /v1/responses  /v1/messages
//   POST  /v1/messages/count_tokens   exact
//   POST  /tokenize  /detokenize  /apply-template
//   /v1/sessions/...                  session_routes.hpp
//   /v1/capsules/...                  capsule_routes.hpp
//
// The routes of sessions and capsules, and those of models, take the model's name from the query:
// "?model=NAME"; without it the first model is meant.
//
// The server's thread only decides and passes on; workers parse, render and tokenize. What may wait
// for a disk has workers of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "http/api/protocol.hpp"
#include "http/gate.hpp"
#include "http/keys.hpp"
#include "http/lm/capsule_upload.hpp"
#include "http/lm/metrics.hpp"
#include "http/lm/served_model.hpp"
#include "http/lm/state_call.hpp"
#include "http/lm/tool_memory.hpp"
#include "http/server.hpp"
#include "http/workers.hpp"
#include "net/access_log.hpp"

namespace frt::host {

class Generation;

struct LmServiceOptions {
  GateRules gate;
  std::vector<ApiKey> keys;  // empty: no key is asked for
  KeyLimits key_limits;
  // Names that clients send -> models. "*": every other name.
  std::map<std::string, std::string> aliases;
  std::vector<std::string>
      models;  // all that will be served; the first serves requests without one
  uint32_t workers = 2;
  uint32_t max_waiting = 64;  // requests that wait for a worker
  ApiOptions api;
  uint64_t max_import = uint64_t{4} << 30;  // bytes of a capsule that is imported
  uint32_t kept_capsules = 64;              // named and pinned ones that a key may have of a model
  std::chrono::seconds request_timeout{0};  // a reply ends then; 0: never
  bool page = true;                         // the built-in page is served
};

class LmService : public HttpService {
 public:
  // `report` tells the operator what clients must not read.  [setup]
  LmService(LmServiceOptions options, AccessLog& log,
            std::function<void(const std::string&)> report);
  ~LmService() override;  // what workers do ends first

  // For /metrics; the server lives as long as its requests.  [any]
  void attach(const HttpServer* server) noexcept { server_ = server; }
  // The model is ready, or, with null, goes. What it serves keeps it alive.  [any]
  void set_model(const std::string& name, std::shared_ptr<const ServedModel> served);
  // A policy that the program serves beside the models is listed with them. `state`: "loading",
  // "ready" or "failed".  [any]
  void set_policy(const std::string& name, const char* state);
  // What its metrics are, as Prometheus text; [any], and must return quickly. Null: it has none
  // from now on, and no call of the last one is under way.  [any]
  void set_policy_metrics(const std::string& name, std::function<std::string()> metrics);
  // What /v1/about says from now on.  [any]
  void set_about(const nlohmann::ordered_json& about);
  // Other keys and limits from now on; running requests of a removed key continue.  [any]
  void replace_keys(std::vector<ApiKey> keys, KeyLimits limits) {
    keys_.replace(std::move(keys), limits);
  }
  std::map<std::string, KeyCounts> key_counts() const { return keys_.counts(); }  // [any]
  // /health says 503 from now on.  [any]
  void begin_drain() noexcept { draining_ = true; }
  // Replies that are not over end with an error that their clients answer by sending the request
  // again.  [any]
  void end_replies() noexcept;

  std::optional<HttpResponse> admit(HttpRequest& head) override;
  void handle(std::shared_ptr<Exchange> exchange) override;
  HttpHeaders standard_headers(const HttpRequest& request) override;
  HttpResponse error_response(const HttpRequest& request, int status,
                              const std::string& text) override;
  void finished(const HttpOutcome& outcome) noexcept override;

 private:
  struct Route;
  class Place;  // among its key's requests
  using Work = void (LmService::*)(const std::shared_ptr<Exchange>&, const Route&);
  static const std::vector<Route>& routes();
  // The route of the path and the method; of the path alone if it takes other methods; or null.
  static const Route* find_route(const HttpRequest& request);

  HttpResponse health() const;
  HttpResponse metrics() const;
  HttpResponse models(const std::string& path) const;
  HttpResponse about() const;
  HttpResponse policy_metrics(const Route& route, const std::string& path) const;
  HttpResponse answer_at_once(const Route& route, const HttpRequest& request) const;
  HttpResponse refuse(const Route* route, const ApiError& error) const;
  // Posts the work of the route.
  void begin_work(const std::shared_ptr<Exchange>& exchange, const Route& route, Workers& workers);

  // On a worker; each throws ApiError for its client.
  void generate(const std::shared_ptr<Exchange>&, const Route&);
  void count_tokens(const std::shared_ptr<Exchange>&, const Route&);
  void tokenize(const std::shared_ptr<Exchange>&, const Route&);
  void detokenize(const std::shared_ptr<Exchange>&, const Route&);
  void apply_template(const std::shared_ptr<Exchange>&, const Route&);
  void answer_state(const std::shared_ptr<Exchange>&, const Route&);
  void export_capsule(const std::shared_ptr<Exchange>&, const Route&);
  StateCall state_call(const HttpRequest& request, const Route& route, std::string body) const;
  // Where the body of an import goes; throws ApiError if as many come already as may.
  std::shared_ptr<BodySink> upload_of(const HttpRequest& head, const Route& route);
  HttpResponse failed_answer(const Route& route, const std::exception_ptr& failure) const;
  // What the client of these is told; what is the server's own trouble, the operator is told, too.
  ApiError told_of(const Error& error) const;

  // The name of the model that `asked` means; throws ApiError.
  std::string resolve(const std::string& asked) const;
  std::shared_ptr<const ServedModel> model(const std::string& asked) const;

  const LmServiceOptions options_;
  AccessLog& log_;
  const std::function<void(const std::string&)> report_;
  KeyRing keys_;
  std::atomic<const HttpServer*> server_{nullptr};
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> overloads_{0}, unauthorised_{0}, gated_{0}, key_limited_{0};

  void count_tokens_of(const std::string& owner, const nlohmann::ordered_json& record);

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const ServedModel>> models_;  // null: it loads
  struct Policy {
    std::string state;
    std::function<std::string()> metrics;  // null: none
  };
  std::map<std::string, Policy> policies_;
  std::string about_;                               // JSON; empty: not known yet
  ToolMemory tools_;                                // has a lock of its own
  std::map<std::string, KeyTokens> key_tokens_;     // by the key's name
  std::vector<std::weak_ptr<Generation>> replies_;  // perhaps over
  bool ending_ = false;                             // end_replies() was called

  // On the server's thread alone.
  std::map<std::pair<std::string, int>, uint64_t> answers_;  // by route and status

  UploadPlaces uploads_;
  Workers workers_;        // these two last: their jobs use the rest
  Workers state_workers_;  // of sessions and capsules
};

}  // namespace frt::host
