// SPDX-License-Identifier: Apache-2.0
// generation.hpp - one reply: prompts to the engine, tokens to text, text to events, events to the
// client.
//
// The engine's thread only puts what it tells into a ring, without a lock or an allocation.
// Everything else runs on workers, in the order of the tokens. A client that leaves, or a stop
// string, is noticed by the engine at its next token. Where workers fall kMostWaiting tokens
// behind, or memory runs out, the reply ends with an error.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "http/api/protocol.hpp"
#include "http/exchange.hpp"
#include "http/lm/served_model.hpp"
#include "http/lm/told_ring.hpp"
#include "http/workers.hpp"
#include "lm/chat/stream.hpp"
#include "lm/stop_matcher.hpp"

namespace frt::host {

class Generation : public Actor {
 public:
  static constexpr uint64_t kMostWaiting = 4096;  // tokens that no worker has seen yet

  struct Setup {
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<const ServedModel> served;
    const Protocol& protocol;
    ApiCall call;
    ReplyIdentity identity;
    std::string affinity;       // EngineRequest::affinity
    std::string tools_changed;  // ToolMemory::compare()
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
  // not throw, and then there is none: null. On a worker.
  static std::shared_ptr<Generation> start(Setup setup);

  // Ends the reply, if it is not over, with an error that its protocol's clients answer by sending
  // the request again.  [any]
  void stop() noexcept;

  // Use start().
  explicit Generation(Setup setup);
  ~Generation() override;

 private:
  class Part;  // listens to one prompt's request
  struct Choice;

  void submit();
  void make_room(const std::vector<EngineRequest>& requests);
  void tell(const Told& told) noexcept;  // by the engine's thread
  void work() override;                  // what was told
  void handle(const Told& told);
  void on_token(Choice& choice, int32_t id, float log_probability,
                std::span<const TokenProbability> top);
  std::span<TokenProbability> top_place(uint64_t token);
  void on_text(Choice& choice, const std::string& piece);
  void on_finish(Choice& choice, const EngineResult& result);
  void emit(Choice& choice, const std::vector<ChatEvent>& events);
  bool holds_back() const { return setup_.call.answers() > setup_.call.choices; }
  void write_best();
  ApiTokenProbability token_of(int32_t id, std::optional<float> log_probability,
                               std::span<const TokenProbability> top) const;
  void write_echo(uint32_t index, uint32_t prompt);
  bool may_begin() const;
  void send_head();
  void begin_stream();
  void send(const std::string& bytes);
  void finish();
  void fail(const ApiError& error);
  void fail_unexpectedly(const char* what) noexcept;
  void cancel() noexcept;
  void keep_number(uint64_t request) noexcept;
  void end_with(nlohmann::ordered_json record);
  nlohmann::ordered_json frt_block() const;

  const Setup setup_;
  std::unique_ptr<ReplyWriter> writer_;
  std::vector<PreparedPrompt> prompts_;
  std::shared_ptr<const GrammarTicket> grammar_;  // null: the answer may be anything
  std::vector<std::unique_ptr<Choice>> choices_;

  // The engine's thread writes, work() reads.
  ToldRing ring_;
  // Likeliest tokens: call.top_log_probabilities for each token in the ring; an id of -1 ends them.
  std::vector<TokenProbability> tops_;
  uint64_t tops_told_ = 0;                // tokens; the engine's thread's
  uint64_t tops_handled_ = 0;             // tokens; of work()
  std::vector<std::string> error_texts_;  // by prompt, before its kError
  // Of prompts that are echoed with probabilities. The engine's thread writes a prompt's before the
  // first token of its answers.
  struct PromptScores {
    std::vector<float> values;           // by token; that of the first means nothing
    std::vector<TokenProbability> tops;  // call.top_log_probabilities for each
  };
  std::vector<PromptScores> scores_;
  std::size_t edges_ = 0;            // places of the ring that are no token's
  std::atomic<bool> behind_{false};  // it was full

  std::atomic<bool> open_{false};  // all prompts are submitted: work() may begin
  std::atomic<bool> idle_{false}, stopping_{false};

  std::mutex mutex_;
  std::vector<uint64_t> requests_;  // of the engine
  bool cancelled_ = false;

  // In work() alone, once it may begin.
  bool started_ = false;  // a prompt has left the queue
  bool head_sent_ = false, begun_ = false, over_ = false;
  uint64_t finished_ = 0;
  ApiUsage usage_;
  std::optional<EngineResult> first_;  // of choice 0
  double prepare_seconds_ = 0;
};

}  // namespace frt::host
