// SPDX-License-Identifier: Apache-2.0
// generation.hpp - one answer: tokens from the engine's thread, events for whoever reads them.
//
// Answer is what both share, and is told by the engine. It decodes on the engine's thread only
// where stop texts ask for it: they end an answer whether or not anybody reads it. Generation
// reads.
#pragma once

#include <frt/embed.h>
#include <frt/core/log.hpp>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lm/chat/stream.hpp"
#include "lm/engine/engine.hpp"
#include "lm/stop_matcher.hpp"
#include "lm/text_model.hpp"

namespace frt::embed {

class Lm;
class Session;

class Answer final : public host::EngineListener {
 public:
  struct Item {
    int32_t id = -1;  // -1: the rest of the text, behind the last token
    float log_probability = 0;
    std::string text{};  // where decodes()
  };

  // `stops` need a model with a tokenizer, which outlives the answer's last token.
  Answer(const host::TextModel& model, std::vector<std::string> stops);

  // Text comes with the items.
  bool decodes() const noexcept { return stops_.has_value(); }

  // ---- of the engine ----
  void on_start(const host::PrefixDecision& prefix, double queue_seconds) override;
  void on_prefill(uint64_t done, uint64_t total) override;
  host::Next on_token(uint32_t choice, int32_t id, float log_probability) override;
  void on_finish(uint32_t choice, const host::EngineResult& result) override;
  void on_error(frt_status status, const std::string& message) override;

  // ---- of readers ----
  // Waits for item `index`. False: the answer is over and has no such item. Throws
  // FRT_ERR_NOT_READY when the time is over, and the answer's error.
  bool wait(std::size_t index, uint64_t timeout_ms, Item& item);
  bool over() const;
  // Once it is over: prompt and what was written, unless it failed.
  std::optional<std::vector<int32_t>> tokens() const;
  void set_prompt(std::vector<int32_t> prompt) { prompt_ = std::move(prompt); }
  // Once it is over.
  const host::EngineResult& result() const noexcept { return result_; }
  std::string stop_text() const;
  bool stopped() const;

 private:
  void add(Item item);

  std::optional<host::TextStream> text_;  // of the engine's thread, as the next
  std::optional<host::StopMatcher> stops_;
  std::vector<int32_t> prompt_;

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::vector<Item> items_;
  host::EngineResult result_;
  frt_status status_ = FRT_OK;
  std::string error_;
  bool over_ = false;
};

class Generation {
 public:
  static constexpr const char* kNoun = "generation";

  // A request as the caller gives it. `session` may be null.
  Generation(std::shared_ptr<Lm> lm, std::shared_ptr<Session> session,
             const frt_generate_request& request);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  const std::shared_ptr<core::Log>& log_owner() const noexcept;
  // Events, one after the other. The text lives until the next call.
  frt_generation_event next(uint64_t timeout_ms);
  void cancel() noexcept;
  frt_generation_result result() const;

 private:
  void submit(const frt_generate_request& request);
  void take(const Answer::Item& item);
  void take_text(const std::string& piece);
  void take_events(std::vector<host::ChatEvent> events);
  void finish();
  void add(uint32_t kind, std::string text, uint32_t call = 0);

  struct Event {
    uint32_t kind = 0, call = 0;
    std::string text{};
    int32_t token = -1;
    float log_probability = 0;
  };

  std::shared_ptr<Lm> lm_;
  std::shared_ptr<Session> session_;
  std::shared_ptr<Answer> answer_;
  uint64_t number_ = 0;  // of the engine's request
  uint64_t seed_ = 0;

  mutable std::mutex reading_;  // of what follows
  std::size_t items_ = 0;       // that were taken
  std::optional<host::TextStream> text_;
  std::optional<host::ChatStream> chat_;
  std::deque<Event> events_;
  Event given_;
  int32_t token_ = -1;
  float log_probability_ = 0;
  bool finished_ = false, ended_ = false;
  std::string stop_text_;
};

}  // namespace frt::embed
