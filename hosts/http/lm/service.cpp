// SPDX-License-Identifier: Apache-2.0
#include "http/lm/service.hpp"

#include <algorithm>
#include <frt/error.hpp>
#include <frt/io/json.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>

#include "http/api/error.hpp"
#include "http/lm/capsule_routes.hpp"
#include "http/lm/generation.hpp"
#include "http/lm/metrics.hpp"
#include "http/lm/session_routes.hpp"
#include "http/page/page_files.hpp"
#include "http/trace.hpp"

namespace frt::host {

using Json = nlohmann::ordered_json;

struct LmService::Route {
  std::string_view path;  // "*": any part that is not empty
  std::string_view method;
  const Protocol* protocol;  // null: not one of the wire protocols; errors have OpenAI's shape
  Work work;                 // null: answered on the server's thread
  Json (*state)(const StateCall&) = nullptr;  // of answer_state()
};

// HttpRequest::held: given back when the reply is over and all that works on it has ended.
class LmService::Place {
 public:
  Place(KeyRing& keys, std::string owner) : keys_(keys), owner_(std::move(owner)) {}
  ~Place() { keys_.leave(owner_); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  KeyRing& keys_;
  const std::string owner_;
};

namespace {

// An answer that lists tokens is no longer than a prompt can be.
void check_count(const ServedModel& served, std::size_t tokens) {
  const uint64_t context = served.model.info().max_context;
  if (tokens > context) throw context_length_error(tokens, context);
}

// Where two requests of one key wait for a disk, others go on, and so do files under way.
constexpr std::size_t kStateWorkers = 4, kMostStateOfKey = 2;
constexpr std::size_t kMostUploads = 4, kMostUploadsOfKey = 2;
constexpr std::string_view kModels = "/v1/models";
constexpr const char* kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

const std::string& text_of(const Json& body, const char* key) {
  const auto found = body.find(key);
  if (found == body.end() || !found->is_string()) {
    throw ApiError(ApiErrorKind::kInvalid, std::string(key) + " must be a text", key);
  }
  return found->get_ref<const std::string&>();
}

std::string name_in(const Json& body) {
  const auto found = body.find("model");
  return found != body.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Json parse_body(const std::string& text, const ApiLimits& limits) {
  try {
    Json body = io::parse_json(
        text, "body", {.bytes = limits.body, .depth = limits.depth, .values = limits.values});
    if (!body.is_object()) throw ApiError(ApiErrorKind::kInvalid, "the body must be a JSON object");
    return body;
  } catch (const Error& error) {
    throw ApiError(ApiErrorKind::kInvalid, error.what());
  }
}

// Null: it loads.
const char* state_of(const ServedModel* served) {
  if (!served) return "loading";
  return served->engine.stats().device_lost ? "failed" : "ready";
}

// Whether a path is of a route's pattern, part by part.
bool matches(std::string_view pattern, std::string_view path) {
  for (;;) {
    const std::size_t end = path.find('/', 1), pattern_end = pattern.find('/', 1);
    const std::string_view part = path.substr(0, end), wanted = pattern.substr(0, pattern_end);
    if (wanted == "/*" ? part.size() < 2 : part != wanted) return false;
    if (end == path.npos || pattern_end == pattern.npos) return end == pattern_end;
    path.remove_prefix(end);
    pattern.remove_prefix(pattern_end);
  }
}

// The part of a path that stands where the pattern has its '*'; nothing if it is malformed.
std::optional<std::string> id_in(std::string_view pattern, std::string_view path) {
  const std::size_t star = pattern.find('*');
  if (star == pattern.npos) return "";
  const std::string_view from = path.substr(star);
  return percent_decoded(from.substr(0, from.find('/')));
}

void respond_json(const std::shared_ptr<Exchange>& exchange, const Json& json) {
  exchange->respond({.body = io::json_text(json, {.bad = io::BadUtf8::kReplace})});
}

}  // namespace

const std::vector<LmService::Route>& LmService::routes() {
  namespace sessions = session_routes;
  namespace capsules = capsule_routes;
  constexpr Work kState = &LmService::answer_state;
  static const std::vector<Route> all = {
      {"/", "GET", nullptr, nullptr},
      {"/page/*", "GET", nullptr, nullptr},
      {"/health", "GET", nullptr, nullptr},
      {"/metrics", "GET", nullptr, nullptr},
      {kModels, "GET", nullptr, nullptr},
      {"/v1/models/*", "GET", nullptr, nullptr},
      {"/v1/about", "GET", nullptr, nullptr},
      {"/v1/policies/*/metrics", "GET", nullptr, nullptr},
      {"/v1/chat/completions", "POST", &chat_completions(), &LmService::generate},
      {"/v1/completions", "POST", &completions(), &LmService::generate},
      {"/v1/responses", "POST", &responses(), &LmService::generate},
      {"/v1/messages", "POST", &messages(), &LmService::generate},
      {"/v1/messages/count_tokens", "POST", &messages(), &LmService::count_tokens},
      {"/tokenize", "POST", nullptr, &LmService::tokenize},
      {"/detokenize", "POST", nullptr, &LmService::detokenize},
      {"/apply-template", "POST", nullptr, &LmService::apply_template},
      {"/v1/sessions", "GET", nullptr, kState, sessions::list},
      {"/v1/sessions/*", "GET", nullptr, kState, sessions::show},
      {"/v1/sessions/*", "DELETE", nullptr, kState, sessions::forget},
      {"/v1/sessions/*/snapshot", "POST", nullptr, kState, sessions::snapshot},
      {"/v1/sessions/*/restore", "POST", nullptr, kState, sessions::restore},
      {"/v1/sessions/*/fork", "POST", nullptr, kState, sessions::fork},
      {"/v1/sessions/*/rewind", "POST", nullptr, kState, sessions::rewind},
      {"/v1/sessions/*/pin", "POST", nullptr, kState, sessions::pin},
      {"/v1/sessions/*/unpin", "POST", nullptr, kState, sessions::unpin},
      {"/v1/capsules", "GET", nullptr, kState, capsules::list},
      {"/v1/capsules/*", "GET", nullptr, kState, capsules::show},
      {"/v1/capsules/*", "DELETE", nullptr, kState, capsules::remove},
      {"/v1/capsules/*/pin", "POST", nullptr, kState, capsules::pin},
      {"/v1/capsules/*/unpin", "POST", nullptr, kState, capsules::unpin},
      {"/v1/capsules/*/import", "POST", nullptr, kState, capsules::take_in},
      {"/v1/capsules/*/export", "GET", nullptr, &LmService::export_capsule},
  };
  return all;
}

const LmService::Route* LmService::find_route(const HttpRequest& request) {
  const Route* of_path = nullptr;
  for (const Route& route : routes()) {
    if (!matches(route.path, request.path)) continue;
    const bool same =
        route.method == request.method || (route.method == "GET" && request.method == "HEAD");
    if (same) return &route;
    if (!of_path) of_path = &route;
  }
  return of_path;
}

LmService::LmService(LmServiceOptions options, AccessLog& log,
                     std::function<void(const std::string&)> report)
    : options_(std::move(options)),
      log_(log),
      report_(std::move(report)),
      keys_(options_.keys, options_.key_limits),
      uploads_(kMostUploads, kMostUploadsOfKey),
      workers_(options_.workers, options_.max_waiting),
      state_workers_(kStateWorkers, options_.max_waiting, kMostStateOfKey) {
  for (const std::string& name : options_.models) models_.emplace(name, nullptr);
}

LmService::~LmService() = default;

void LmService::set_model(const std::string& name, std::shared_ptr<const ServedModel> served) {
  const std::lock_guard lock(mutex_);
  models_.at(name).swap(served);
}

void LmService::set_policy(const std::string& name, const char* state) {
  const std::lock_guard lock(mutex_);
  policies_[name].state = state;
}

void LmService::set_policy_metrics(const std::string& name, std::function<std::string()> metrics) {
  const std::lock_guard lock(mutex_);
  policies_.at(name).metrics.swap(metrics);
}

void LmService::set_about(const Json& about) {
  std::string text = io::json_text(about, {.bad = io::BadUtf8::kReplace});
  const std::lock_guard lock(mutex_);
  about_.swap(text);
}

// ---- admission ----

HttpResponse LmService::refuse(const Route* route, const ApiError& error) const {
  HttpResponse response;
  response.status = error.status();
  response.body =
      route && route->protocol ? route->protocol->error_body(error) : openai_error(error);
  if (error.status() == 503 || error.status() == 429) {
    response.headers.emplace_back("Retry-After", "1");
  }
  if (error.status() == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error.status() == 405 && route) {
    std::string methods;
    for (const Route& other : routes()) {
      if (other.path != route->path) continue;
      methods += (methods.empty() ? "" : ", ") + std::string(other.method);
    }
    response.headers.emplace_back("Allow", methods);
  }
  return response;
}

std::optional<HttpResponse> LmService::admit(HttpRequest& head) {
  head.id = random_hex(16);
  head.trace = trace_context(head.header("traceparent"), head.header("tracestate"));
  const bool page = is_page_path(head.path);
  const Route* route = page && !options_.page ? nullptr : find_route(head);
  if (const char* refusal = gate_refusal(options_.gate, head)) {
    ++gated_;
    return refuse(route, {ApiErrorKind::kPermission, refusal});
  }
  if (auto answer = preflight_answer(options_.gate, head)) return answer;
  const bool needs_no_key = route && (page || route->path == "/health");
  const auto owner = keys_.owner(sent_secret(head));
  if (!owner && !needs_no_key) {
    ++unauthorised_;
    // Clients know a wrong key by OpenAI's words.
    return refuse(route, {ApiErrorKind::kAuthentication,
                          "Incorrect API key provided: it is missing, or not known here"});
  }
  head.owner = owner.value_or("");
  if (!route) return refuse(route, {ApiErrorKind::kNotFound, "there is no such route"});
  const bool same =
      head.method == route->method || (head.method == "HEAD" && route->method == "GET");
  if (!same) {
    return refuse(route, {ApiErrorKind::kMethod,
                          "this route does not take " + std::string(io::quote(head.method))});
  }
  if (!route->work) return std::nullopt;
  if (!keys_.enter(head.owner)) {
    ++key_limited_;
    return refuse(route, {ApiErrorKind::kRateLimit,
                          "this key has as many requests as it may; try again later"});
  }
  head.held = std::make_shared<Place>(keys_, head.owner);
  if (route->state != capsule_routes::take_in) return std::nullopt;
  try {
    head.sink = upload_of(head, *route);
  } catch (const ApiError& error) {
    return refuse(route, error);
  }
  return std::nullopt;
}

HttpHeaders LmService::standard_headers(const HttpRequest& request) {
  HttpHeaders headers = {{"X-Content-Type-Options", "nosniff"}};
  if (!is_page_path(request.path)) headers.emplace_back("Cache-Control", "no-store");
  if (!request.id.empty()) {
    headers.emplace_back("X-Request-Id", request.id);
    headers.emplace_back("request-id", request.id);  // Anthropic's
    headers.emplace_back("traceparent", traceparent(request.trace));
    if (!request.trace.state.empty()) headers.emplace_back("tracestate", request.trace.state);
  }
  for (auto& header : cross_origin_headers(options_.gate, request)) {
    headers.push_back(std::move(header));
  }
  return headers;
}

HttpResponse LmService::error_response(const HttpRequest& request, int status,
                                       const std::string& text) {
  const ApiErrorKind kind = [&] {
    switch (status) {
      case 408:
        return ApiErrorKind::kSlow;
      case 413:
        return ApiErrorKind::kTooLarge;
      case 431:
        return ApiErrorKind::kHeadTooLarge;
      case 503:
        return ApiErrorKind::kOverloaded;
      default:
        return status < 500 ? ApiErrorKind::kInvalid : ApiErrorKind::kInternal;
    }
  }();
  return refuse(find_route(request), {kind, text});
}

void LmService::handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  const Route& route = *find_route(request);
  if (!route.work) return exchange->respond(answer_at_once(route, request));
  const bool state = route.state || route.work == &LmService::export_capsule;
  begin_work(exchange, route, state ? state_workers_ : workers_);
}

void LmService::begin_work(const std::shared_ptr<Exchange>& exchange, const Route& route,
                           Workers& workers) {
  const auto work = [this, exchange, &route] {
    try {
      if (exchange->gone()) return;
      (this->*route.work)(exchange, route);
    } catch (...) {
      exchange->respond(failed_answer(route, std::current_exception()));
    }
  };
  if (workers.try_post(work, exchange->request().owner)) return;
  ++overloads_;
  exchange->respond(refuse(
      &route, {ApiErrorKind::kRateLimit, "too many requests wait already; try again later"}));
}

// What the client is told; what is the server's own trouble, the operator is told, too.
HttpResponse LmService::failed_answer(const Route& route, const std::exception_ptr& failure) const {
  try {
    std::rethrow_exception(failure);
  } catch (const ApiError& error) {
    if (!error.cause().empty()) report_(error.cause());
    return refuse(&route, error);
  } catch (const std::exception& error) {
    report_(error.what());
    return refuse(&route, {ApiErrorKind::kInternal, "the request failed"});
  }
}

void LmService::finished(const HttpOutcome& outcome) noexcept {
  try {
    const Route* route = find_route(outcome.request);
    ++answers_[{route ? std::string(route->path) : "other", outcome.status}];
    // Member by member: a list of them leaks where memory ends (nlohmann's constructor).
    Json record;
    record["id"] = outcome.request.id;
    record["trace"] = outcome.request.trace.trace;
    record["span"] = outcome.request.trace.span;
    record["parent"] = outcome.request.trace.parent;
    record["key"] = outcome.request.owner;
    record["address"] = outcome.request.address;
    record["method"] = outcome.request.method;
    record["path"] = outcome.request.path;
    record["status"] = outcome.status;
    record["bytes"] = outcome.bytes_out;
    record["seconds"] = outcome.seconds;
    record["ending"] = outcome.ending;
    log_.write("request", std::move(record));
  } catch (...) {
    return;  // a record is lost
  }
}

// ---- answers of the server's thread ----

HttpResponse LmService::answer_at_once(const Route& route, const HttpRequest& request) const {
  if (route.path == "/health") return health();
  if (route.path == "/metrics") return metrics();
  if (route.path == "/v1/about") return about();
  if (route.path == "/v1/policies/*/metrics") return policy_metrics(route, request.path);
  if (!is_page_path(request.path)) return models(request.path);
  if (auto file = page_answer(request)) return *std::move(file);
  return refuse(nullptr, {ApiErrorKind::kNotFound, "the page has no such file"});
}

HttpResponse LmService::health() const {
  const char* state = "ok";
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, served] : models_) {
      const std::string_view of_model = state_of(served.get());
      if (of_model != "ready" && std::string_view(state) != "failed") state = of_model.data();
    }
  }
  if (draining_) state = "draining";
  const std::string_view word = state;
  HttpResponse response{.status = word == "ok" ? 200 : 503,
                        .body = "{\"status\":\"" + std::string(word) + "\"}\n"};
  if (word == "loading") response.headers.emplace_back("Retry-After", "1");
  return response;
}

HttpResponse LmService::models(const std::string& path) const {
  Json list = Json::array();
  const std::string wanted = path.size() > kModels.size() ? path.substr(kModels.size() + 1) : "";
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [name, served] : models_) {
      if (!wanted.empty() && name != wanted) continue;
      Json entry = {{"id", name},           {"object", "model"},
                    {"type", "model"},  // this and the next are Anthropic's
                    {"display_name", name}, {"created", served ? served->created : 0},
                    {"owned_by", "frt"},    {"state", state_of(served.get())}};
      if (served) entry["max_model_len"] = served->model.info().max_context;
      list.push_back(std::move(entry));
    }
    for (const auto& [name, policy] : policies_) {
      if (!wanted.empty() && name != wanted) continue;
      list.push_back({{"id", name},
                      {"object", "model"},
                      {"type", "policy"},
                      {"display_name", name},
                      {"created", 0},
                      {"owned_by", "frt"},
                      {"state", policy.state}});
    }
  }
  if (wanted.empty()) {
    return {.body = io::json_text({{"object", "list"}, {"data", list}})};
  }
  if (list.empty()) return refuse(nullptr, {ApiErrorKind::kNotFound, "there is no such model"});
  return {.body = io::json_text(list[0])};
}

HttpResponse LmService::about() const {
  const std::lock_guard lock(mutex_);
  if (!about_.empty()) return {.body = about_};
  return refuse(nullptr, {ApiErrorKind::kOverloaded, "the models are loading; try again later"});
}

HttpResponse LmService::policy_metrics(const Route& route, const std::string& path) const {
  const auto name = id_in(route.path, path);
  const std::lock_guard lock(mutex_);
  const auto policy = name ? policies_.find(*name) : policies_.end();
  if (policy == policies_.end()) {
    return refuse(nullptr,
                  {ApiErrorKind::kNotFound, "there is no such policy; see GET /v1/models"});
  }
  if (policy->second.metrics) {
    return {.content_type = kMetricsType, .body = policy->second.metrics()};
  }
  return refuse(nullptr, {ApiErrorKind::kOverloaded, "the policy is not served now"});
}

HttpResponse LmService::metrics() const {
  MetricsText text;
  if (const HttpServer* server = server_) put_http_metrics(text, *server);
  text.family("frt_http_answers_total", "counter", "Answers by route and status; 0: none began.");
  for (const auto& [key, count] : answers_) {
    text.sample(count, {{"route", key.first}, {"status", std::to_string(key.second)}});
  }
  text.family("frt_http_admission_refusals_total", "counter", "Requests refused before any work.");
  text.sample(gated_, {{"reason", "origin"}});
  text.sample(unauthorised_, {{"reason", "key"}});
  text.sample(key_limited_, {{"reason", "key_limit"}});
  text.sample(overloads_, {{"reason", "workers"}});
  text.family("frt_http_log_dropped_total", "counter", "Records that the request log lost.");
  text.sample(log_.dropped());
  text.family("frt_http_worker_failures_total", "counter", "Jobs that ended with an exception.");
  text.sample(workers_.failures() + state_workers_.failures());
  std::vector<std::pair<std::string, EngineStats>> engines;
  std::map<std::string, KeyTokens> tokens;
  std::vector<std::pair<std::string, GrammarStats>> grammars;
  {
    const std::lock_guard lock(mutex_);
    tokens = key_tokens_;
    for (const auto& [name, served] : models_) {
      if (!served) continue;
      engines.emplace_back(name, served->engine.stats());
      if (served->grammars) grammars.emplace_back(name, served->grammars->stats());
    }
  }
  put_key_metrics(text, keys_.counts(), tokens);
  put_engine_metrics(text, engines);
  put_grammar_metrics(text, grammars);
  return {.content_type = kMetricsType, .body = text.take()};
}

// ---- work ----

std::string LmService::resolve(const std::string& asked) const {
  if (asked.empty()) return options_.models.front();
  if (std::ranges::find(options_.models, asked) != options_.models.end()) return asked;
  auto alias = options_.aliases.find(asked);
  if (alias == options_.aliases.end()) alias = options_.aliases.find("*");
  if (alias != options_.aliases.end()) return alias->second;
  throw ApiError(ApiErrorKind::kNotFound, "there is no such model; see GET /v1/models", "model",
                 "model_not_found");
}

std::shared_ptr<const ServedModel> LmService::model(const std::string& asked) const {
  const std::string name = resolve(asked);
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(name);
  if (found == models_.end() || !found->second || draining_) {
    throw ApiError(ApiErrorKind::kOverloaded, draining_ ? "the server stops; send the request again"
                                                        : "the model is loading; try again later");
  }
  return found->second;
}

void LmService::generate(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  const HttpRequest& request = exchange->request();
  ApiCall call = route.protocol->parse(exchange->take_body(), request.headers, options_.api);
  exchange->release_body();
  auto served = model(call.model);
  ReplyIdentity identity;
  identity.id = random_hex(12);
  identity.created = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(
                                               std::chrono::system_clock::now().time_since_epoch())
                                               .count());
  identity.model = call.model.empty() ? resolve("") : call.model;
  std::optional<EngineRequest::Clock::time_point> deadline;
  if (options_.request_timeout.count() > 0) {
    deadline = EngineRequest::Clock::now() + options_.request_timeout;
  }
  std::string affinity = call.session;
  std::string tools_changed;
  if (!call.tools.empty()) tools_changed = tools_.compare(request.owner, affinity, call.tools);
  const auto reply = Generation::start({.exchange = exchange,
                                        .served = std::move(served),
                                        .protocol = *route.protocol,
                                        .call = std::move(call),
                                        .identity = std::move(identity),
                                        .affinity = std::move(affinity),
                                        .tools_changed = std::move(tools_changed),
                                        .deadline = deadline,
                                        .most_tokens = options_.api.limits.max_tokens,
                                        .workers = workers_,
                                        .over =
                                            [this, id = request.id, trace = request.trace.trace,
                                             owner = request.owner](const Json& record) {
                                              count_tokens_of(owner, record);
                                              Json line = {{"id", id}, {"trace", trace}};
                                              line.update(record);
                                              line.erase("why");  // it may quote the prompt
                                              log_.write("generation", std::move(line));
                                            },
                                        .report = report_});
  const std::lock_guard lock(mutex_);
  std::erase_if(replies_, [](const auto& each) { return each.expired(); });
  if (!reply) return;
  replies_.push_back(reply);
  if (ending_) reply->stop();
}

void LmService::count_tokens_of(const std::string& owner, const Json& record) {
  const auto number = [&](const char* key) { return record.value(key, uint64_t{0}); };
  const std::lock_guard lock(mutex_);
  KeyTokens& tokens = key_tokens_[owner];
  tokens.prompt += number("prompt_tokens");
  tokens.cached += number("cached_tokens");
  tokens.generated += number("generated_tokens");
}

void LmService::count_tokens(const std::shared_ptr<Exchange>& exchange, const Route&) {
  const ApiCall call =
      parse_count_tokens(exchange->take_body(), exchange->request().headers, options_.api);
  const auto served = model(call.model);
  exchange->respond(
      {.body = count_tokens_body(chat_ids(*served, exchange->request().owner, call).size())});
}

void LmService::tokenize(const std::shared_ptr<Exchange>& exchange, const Route&) {
  const std::string text = exchange->take_body();
  const Json body = parse_body(text, options_.api.limits);
  const auto served = model(name_in(body));
  std::vector<int32_t> ids;
  if (body.contains("messages")) {
    ids = chat_ids(*served, exchange->request().owner,
                   chat_completions().parse(text, exchange->request().headers, options_.api));
  } else {
    ids = text_ids(*served, text_of(body, body.contains("content") ? "content" : "prompt"));
  }
  check_count(*served, ids.size());
  Json answer = {
      {"tokens", ids}, {"count", ids.size()}, {"max_model_len", served->model.info().max_context}};
  if (body.value("with_pieces", Json(false)) == Json(true)) {
    Json pieces = Json::array();
    for (const int32_t id : ids) pieces.push_back(served->model.decode({&id, 1}));
    answer["pieces"] = std::move(pieces);
  }
  respond_json(exchange, answer);
}

void LmService::detokenize(const std::shared_ptr<Exchange>& exchange, const Route&) {
  const Json body = parse_body(exchange->take_body(), options_.api.limits);
  const auto served = model(name_in(body));
  const auto found = body.find("tokens");
  std::vector<int32_t> ids;
  const bool good =
      found != body.end() && found->is_array() && std::ranges::all_of(*found, [&](const Json& id) {
        if (!id.is_number_unsigned()) return false;
        const auto value = id.get<uint64_t>();
        if (value >= served->model.info().vocabulary) return false;
        ids.push_back(static_cast<int32_t>(value));
        return true;
      });
  if (!good) {
    throw ApiError(
        ApiErrorKind::kInvalid,
        "tokens must be a list of ids below " + std::to_string(served->model.info().vocabulary),
        "tokens");
  }
  check_count(*served, ids.size());
  const std::string content = text_of_ids(*served, ids);
  respond_json(exchange, {{"content", content}, {"prompt", content}});
}

void LmService::apply_template(const std::shared_ptr<Exchange>& exchange, const Route&) {
  const ApiCall call =
      chat_completions().parse(exchange->take_body(), exchange->request().headers, options_.api);
  respond_json(exchange, {{"prompt", chat_text(*model(call.model), call)}});
}

void LmService::end_replies() noexcept {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  for (const auto& each : replies_) {
    if (const auto reply = each.lock()) reply->stop();
  }
}

// ---- sessions and capsules ----

StateCall LmService::state_call(const HttpRequest& request, const Route& route,
                                std::string body) const {
  auto id = id_in(route.path, request.path);
  if (!id) throw ApiError(ApiErrorKind::kInvalid, "the path has a '%' without two digits");
  const auto sink = std::dynamic_pointer_cast<UploadSink>(request.sink);
  return {.served = model(query_value(request.query, "model").value_or("")),
          .owner = request.owner,
          .id = *std::move(id),
          .body = std::move(body),
          .limits = options_.api.limits,
          .upload = sink ? sink->upload() : nullptr,
          .kept_capsules = options_.kept_capsules};
}

std::shared_ptr<BodySink> LmService::upload_of(const HttpRequest& head, const Route& route) {
  auto place = uploads_.take(head.owner);
  if (!place) {
    throw ApiError(ApiErrorKind::kRateLimit, "too many imports go on already; try again later");
  }
  HttpRequest asked;  // the connection's own goes with it
  asked.path = head.path;
  asked.query = head.query;
  asked.owner = head.owner;
  const auto open = [this, &route, asked = std::move(asked)] {
    try {
      return capsule_routes::begin_import(state_call(asked, route, {}));
    } catch (const Error& error) {
      throw told_of(error);
    }
  };
  const auto answer = [this, &route](const std::exception_ptr& failure) {
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      return refuse(&route, told_of(error));
    } catch (...) {
      return failed_answer(route, failure);
    }
  };
  auto upload = std::make_shared<CapsuleUpload>(state_workers_, open, std::move(place));
  return std::make_shared<UploadSink>(std::move(upload), options_.max_import, answer);
}

ApiError LmService::told_of(const Error& error) const {
  ApiError told = client_error(error);
  if (told.status() >= 500) report_(error.what());
  return told;
}

void LmService::answer_state(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  try {
    respond_json(exchange,
                 route.state(state_call(exchange->request(), route, exchange->take_body())));
  } catch (const Error& error) {
    throw told_of(error);
  }
}

void LmService::export_capsule(const std::shared_ptr<Exchange>& exchange, const Route& route) {
  try {
    capsule_routes::send(state_call(exchange->request(), route, {}), exchange, state_workers_);
  } catch (const Error& error) {
    throw told_of(error);
  }
}

}  // namespace frt::host
