// SPDX-License-Identifier: Apache-2.0
// generation.hpp - one reply: prompts to the engine, tokens to text, text to events, events to the
// client.
//
// The engine's thread only queues what it tells. Everything else runs on workers, in the order of
// the tokens. A client that leaves, or a stop string, is noticed by the engine at its next token.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "http/api/protocol.hpp"
#include "http/exchange.hpp"
#include "http/lm/served_model.hpp"
#include "http/workers.hpp"
#include "lm/chat/stream.hpp"
#include "lm/stop_matcher.hpp"

namespace frt::host {

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  struct Setup {
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<const ServedModel> served;
    const Protocol& protocol;
    ApiCall call;
    ReplyIdentity identity;
    std::string affinity;  // EngineRequest::affinity
    std::optional<EngineRequest::Clock::time_point> deadline;
    uint64_t most_tokens;  // of an answer, where the call does not say
    Workers& workers;
    // Called once, when the reply is over, on any thread, with what became of it for the log.
    std::function<void(const nlohmann::ordered_json&)> over;
    // An error whose text is for the operator, not for the client. [any]
    std::function<void(const std::string&)> report;
  };

  // Prepares the prompts and submits them. Throws ApiError, and then `over` was not called and
  // nothing was sent; what the protocol tells in the stream (Protocol::tells_in_stream()) it does
  // not throw. On a worker.
  static void start(Setup setup);

  // Use start().
  explicit Generation(Setup setup);
  ~Generation();

 private:
  class Part;   // listens to one prompt's request
  struct Told;  // what the engine told
  struct Choice;

  void submit();
  void tell(Told told);  // by the engine's thread
  void work();           // what was told, on a worker
  void handle(Told& told);
  void on_token(Choice& choice, int32_t id, float log_probability);
  void on_text(Choice& choice, const std::string& piece);
  void on_finish(Choice& choice, const EngineResult& result);
  void emit(Choice& choice, const std::vector<ChatEvent>& events);
  bool may_begin() const;
  void send_head();
  void begin_stream();
  void send(const std::string& bytes);
  void finish();
  void fail(const ApiError& error);
  void cancel() noexcept;
  void end_with(nlohmann::ordered_json record);
  nlohmann::ordered_json frt_block() const;

  const Setup setup_;
  const std::shared_ptr<Strand> strand_;
  std::unique_ptr<ReplyWriter> writer_;
  std::vector<PreparedPrompt> prompts_;
  std::shared_ptr<const GrammarTicket> grammar_;  // null: the answer may be anything
  std::vector<std::unique_ptr<Choice>> choices_;

  std::mutex mutex_;
  std::vector<Told> told_;
  std::vector<uint64_t> requests_;  // of the engine
  bool scheduled_ = false;
  bool cancelled_ = false;

  // On the strand alone.
  bool head_sent_ = false, begun_ = false, over_ = false;
  uint64_t finished_ = 0;
  ApiUsage usage_;
  std::optional<EngineResult> first_;  // of choice 0
  double prepare_seconds_ = 0;
};

}  // namespace frt::host
