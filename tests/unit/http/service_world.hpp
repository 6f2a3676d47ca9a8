// SPDX-License-Identifier: Apache-2.0
// service_world.hpp - an LmService over a model that has nothing inside, behind a server of its own
// port. Prompts are ids; the engine can be held still.
#pragma once

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hollow_model.hpp"
#include "http/lm/service.hpp"
#include "lm/engine/engine.hpp"
#include "peer.hpp"

namespace frt::test {

struct ServiceWorld {
  explicit ServiceWorld(host::LmServiceOptions service_options = {},
                        host::HttpOptions http_options = {},
                        const std::filesystem::path& log_path = {}, bool masks = false)
      : hollow(16, 2, masks),
        log(log_path),
        service(named(std::move(service_options)), log, [this](const std::string& text) {
          const std::lock_guard lock(mutex);
          reported.push_back(text);
        }) {
    http_options.listen = "127.0.0.1:0";
    server = std::make_unique<host::HttpServer>(http_options, service);
    service.attach(server.get());
    served = std::make_shared<host::ServedModel>(model, engine);
    service.set_model("m", served);
  }
  ~ServiceWorld() {
    service.attach(nullptr);
    server.reset();
    engine.drain();
  }

  static host::LmServiceOptions named(host::LmServiceOptions options) {
    options.models = {"m"};
    return options;
  }

  HollowModel hollow;
  const host::LmModel model = hollow.model();
  host::AccessLog log;
  std::mutex mutex;
  std::vector<std::string> reported;
  host::Engine engine{model, nullptr};
  host::LmService service;
  std::unique_ptr<host::HttpServer> server;
  std::shared_ptr<const host::ServedModel> served;
};

// While an object lives the engine makes no step.
class HeldEngine {
 public:
  explicit HeldEngine(host::Engine& engine) {
    thread_ = std::thread([this, &engine] {
      engine.call([this](host::EngineAccess&) {
        held_.set_value();
        go_.get_future().wait();
      });
    });
    held_.get_future().wait();
  }
  ~HeldEngine() { release(); }
  void release() {
    if (!thread_.joinable()) return;
    go_.set_value();
    thread_.join();
  }
  HeldEngine(const HeldEngine&) = delete;
  HeldEngine& operator=(const HeldEngine&) = delete;

 private:
  std::promise<void> held_, go_;
  std::thread thread_;
};

// A request of `path`, whose connection ends with its answer. `headers` end with CRLF each.
inline std::string request(const std::string& method, const std::string& path,
                           const std::string& body = {}, const std::string& headers = {}) {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}
inline std::string completion(const std::string& more = {}, const std::string& headers = {}) {
  return request("POST", "/v1/completions",
                 R"({"model": "m", "prompt": [1, 2, 3], "max_tokens": 5)" + more + "}", headers);
}
inline std::string header_of(const std::string& answer, const std::string& name) {
  const std::size_t at = answer.find("\r\n" + name + ": ");
  if (at == answer.npos) return {};
  const std::size_t begin = at + name.size() + 4;
  return answer.substr(begin, answer.find("\r\n", begin) - begin);
}

}  // namespace frt::test
