// SPDX-License-Identifier: Apache-2.0
#include "embed/generation.hpp"

#include <frt/flags.hpp>
#include <frt/io/json.hpp>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "embed/lm.hpp"
#include "lm/sampling.hpp"

namespace frt::embed {
namespace {

constexpr uint64_t kDefaultTokens = 256;
constexpr uint64_t kMostStops = 64;

uint32_t finish_of(host::Finish finish) noexcept {
  switch (finish) {
    case host::Finish::kLength:
      return FRT_FINISH_LENGTH;
    case host::Finish::kStop:
      return FRT_FINISH_STOP;
    case host::Finish::kContext:
      return FRT_FINISH_CONTEXT;
    case host::Finish::kCancelled:
      return FRT_FINISH_CANCELLED;
    case host::Finish::kDeadline:
      return FRT_FINISH_DEADLINE;
  }
  return FRT_FINISH_CANCELLED;
}

host::SamplingChoice choice_of(const frt_generate_request& request) {
  const frt_sampling_options& given = request.sampling;
  host::SamplingChoice choice;
  choice.greedy = (request.flags & FRT_GENERATE_GREEDY) != 0;
  const auto take = [&](uint32_t bit, auto& member, auto value) {
    if ((given.given & bit) != 0) member = value;
  };
  if (!choice.greedy) {
    take(FRT_GIVEN_TEMPERATURE, choice.temperature, given.temperature);
    take(FRT_GIVEN_TOP_P, choice.top_p, given.top_p);
    take(FRT_GIVEN_MIN_P, choice.min_p, given.min_p);
    take(FRT_GIVEN_TOP_K, choice.top_k, given.top_k);
    take(FRT_GIVEN_REPETITION_PENALTY, choice.repetition_penalty, given.repetition_penalty);
    take(FRT_GIVEN_PRESENCE_PENALTY, choice.presence_penalty, given.presence_penalty);
    take(FRT_GIVEN_FREQUENCY_PENALTY, choice.frequency_penalty, given.frequency_penalty);
  }
  take(FRT_GIVEN_SEED, choice.seed, given.seed);
  return choice;
}

void check_kinds(const frt_generate_request& request, bool session) {
  const bool continues = (request.flags & FRT_GENERATE_CONTINUE) != 0;
  const int kinds =
      (request.prompt ? 1 : 0) + (request.prompt_id_count > 0 ? 1 : 0) + (request.messages ? 1 : 0);
  constexpr uint32_t kKnown = FRT_GENERATE_GREEDY | FRT_GENERATE_CONTINUE | FRT_GENERATE_READ_ONLY |
                              FRT_GENERATE_IGNORE_STOPS;
  constexpr uint32_t kSampling = FRT_GIVEN_TEMPERATURE | FRT_GIVEN_TOP_P | FRT_GIVEN_MIN_P |
                                 FRT_GIVEN_TOP_K | FRT_GIVEN_REPETITION_PENALTY |
                                 FRT_GIVEN_PRESENCE_PENALTY | FRT_GIVEN_FREQUENCY_PENALTY |
                                 FRT_GIVEN_SEED;
  require_flags(request.flags, kKnown, "frt_generate_request");
  require_flags(request.sampling.given, kSampling, "frt_sampling_options.given");
  if (continues && (!session || request.messages || kinds > 1)) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "FRT_GENERATE_CONTINUE goes with a session, and with a prompt or prompt_ids or "
                "neither");
  }
  if (!continues && kinds != 1) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "give exactly one of prompt, prompt_ids and messages");
  }
  if (request.prompt_bytes > kMostText) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "prompt_bytes is " + std::to_string(request.prompt_bytes) +
                                          ", at most " + std::to_string(kMostText) + " are read");
  }
  if (request.stop_count > kMostStops) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "stop_count is " + std::to_string(request.stop_count) +
                                          ", at most " + std::to_string(kMostStops) +
                                          " texts can end an answer");
  }
}

}  // namespace

// ---- what the engine tells ----

Answer::Answer(const host::TextModel& model, std::vector<std::string> stops) {
  if (stops.empty()) return;
  stops_.emplace(std::move(stops));
  text_.emplace(model, FRT_DECODE_SKIP_SPECIAL);
}

void Answer::on_start(const host::PrefixDecision&, double) {}
void Answer::on_prefill(uint64_t, uint64_t) {}

void Answer::add(Item item) {
  {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
  }
  changed_.notify_all();
}

host::Next Answer::on_token(uint32_t, int32_t id, float log_probability) {
  try {
    Item item{id, log_probability};
    if (stops_) item.text = stops_->push(text_->push(id));
    add(std::move(item));
    return stops_ && stops_->stopped() ? host::Next::kStop : host::Next::kContinue;
  } catch (const std::exception& error) {
    on_error(FRT_ERR_OUT_OF_MEMORY, error.what());
    return host::Next::kCancel;
  }
}

void Answer::on_finish(uint32_t, const host::EngineResult& result) {
  try {
    Item rest;
    if (stops_ && !stops_->stopped()) {
      rest.text = stops_->push(text_->flush());
      if (!stops_->stopped()) rest.text += stops_->flush();
    }
    const std::lock_guard lock(mutex_);
    if (!rest.text.empty()) items_.push_back(std::move(rest));
    result_ = result;
    over_ = true;
  } catch (const std::exception& error) {
    return on_error(FRT_ERR_OUT_OF_MEMORY, error.what());
  }
  changed_.notify_all();
}

void Answer::on_error(frt_status status, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (status_ == FRT_OK) {
      status_ = status;
      try {
        error_ = message;
      } catch (const std::bad_alloc&) {
        status_ = FRT_ERR_OUT_OF_MEMORY;
      }
    }
    over_ = true;
  }
  changed_.notify_all();
}

// ---- what readers ask ----

bool Answer::wait(std::size_t index, uint64_t timeout_ms, Item& item) {
  std::unique_lock lock(mutex_);
  const auto there = [&] { return items_.size() > index || over_; };
  if (timeout_ms == FRT_NO_TIMEOUT) {
    changed_.wait(lock, there);
  } else {
    constexpr uint64_t kDay = 86400 * 1000;  // longer waits are cut: a clock may not hold them
    const auto limit = std::chrono::milliseconds(std::min(timeout_ms, kDay));
    if (!changed_.wait_for(lock, limit, there)) {
      throw Error(FRT_ERR_NOT_READY, "no event came within " + std::to_string(timeout_ms) + " ms");
    }
  }
  if (items_.size() > index) {
    item = items_[index];
    return true;
  }
  if (status_ != FRT_OK) {
    throw Error(status_, error_.empty() ? "the host is out of memory" : error_);
  }
  return false;
}

bool Answer::over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

std::optional<std::vector<int32_t>> Answer::tokens() const {
  const std::lock_guard lock(mutex_);
  if (status_ != FRT_OK) return std::nullopt;
  std::vector<int32_t> all = prompt_;
  for (const Item& item : items_) {
    if (item.id >= 0) all.push_back(item.id);
  }
  return all;
}

bool Answer::stopped() const {
  return over() && stops_ && stops_->stopped();
}

std::string Answer::stop_text() const {
  return stopped() ? stops_->match() : std::string();
}

// ---- a request ----

Generation::Generation(std::shared_ptr<Lm> lm, std::shared_ptr<Session> session,
                       const frt_generate_request& request)
    : lm_(std::move(lm)), session_(std::move(session)) {
  if (session_ && session_->lm() != lm_) {
    throw Error(FRT_ERR_MISMATCH, "the session is one of another language model");
  }
  check_kinds(request, session_ != nullptr);
  submit(request);
}

void Generation::submit(const frt_generate_request& request) {
  const host::LmModel& model = lm_->model();
  host::EngineRequest asked;
  asked.sampling = host::resolve_sampling(choice_of(request), lm_->defaults());
  seed_ = asked.sampling.seed;
  asked.max_new = request.max_tokens == 0 ? kDefaultTokens : request.max_tokens;
  if ((request.flags & FRT_GENERATE_READ_ONLY) != 0) asked.max_new = 0;
  if ((request.flags & FRT_GENERATE_IGNORE_STOPS) == 0) asked.stop_ids = lm_->stop_ids();
  const auto more = list_of(request.stop_ids, request.stop_id_count, "stop_ids");
  model.check_ids(more, "stop_ids");
  asked.stop_ids.insert(asked.stop_ids.end(), more.begin(), more.end());
  asked.priority = request.priority;
  if (request.deadline_ms > 0) {
    constexpr uint64_t kYear = uint64_t{365} * 86400 * 1000;
    asked.deadline = host::EngineRequest::Clock::now() +
                     std::chrono::milliseconds(std::min(request.deadline_ms, kYear));
  }

  const bool continues = (request.flags & FRT_GENERATE_CONTINUE) != 0;
  const auto set_prompt = [&](const std::vector<int32_t>& held, host::EngineRequest& sent) {
    std::vector<int32_t>& ids = sent.prompt;
    if (continues) ids = held;
    if (request.messages) {
      const host::ChatPrompt rendered =
          lm_->render(request.messages, request.tools, request.chat_options);
      ids = model.encode(rendered);
      if (session_) sent.user_turn = lm_->parting_point(request, rendered, ids);
    } else if (request.prompt) {
      const std::size_t bytes =
          request.prompt_bytes > 0 ? request.prompt_bytes : ::strnlen(request.prompt, kMostText);
      const std::vector<int32_t> text = lm_->encode(
          {request.prompt, bytes}, continues && !held.empty() ? FRT_ENCODE_CONTINUES : 0);
      ids.insert(ids.end(), text.begin(), text.end());
    } else {
      const auto given = list_of(request.prompt_ids, request.prompt_id_count, "prompt_ids");
      ids.insert(ids.end(), given.begin(), given.end());
    }
  };
  answer_ = std::make_shared<Answer>(model, texts_of(request.stops, request.stop_count, "stops"));
  if (!answer_->decodes() && model.has_tokenizer()) text_.emplace(model, FRT_DECODE_SKIP_SPECIAL);
  if (request.messages) {
    const auto json = [](const char* text, const char* name) {
      return text ? io::parse_json(text, name) : nlohmann::ordered_json();
    };
    chat_.emplace(model, json(request.tools, "tools"), json(request.chat_options, "chat_options"));
  }
  if (session_) {
    number_ = session_->begin(answer_, std::move(asked), set_prompt);
    return;
  }
  set_prompt({}, asked);
  number_ = lm_->engine().submit(std::move(asked), answer_);
}

const std::shared_ptr<core::Log>& Generation::log_owner() const noexcept {
  return lm_->log_owner();
}

// Also where no handle could be given: nobody else could cancel it.
Generation::~Generation() {
  cancel();
}

void Generation::cancel() noexcept {
  lm_->engine().cancel(number_);
}

// ---- events ----

void Generation::add(uint32_t kind, std::string text, uint32_t call) {
  events_.push_back({kind, call, std::move(text), token_, log_probability_});
}

void Generation::take_events(std::vector<host::ChatEvent> events) {
  constexpr uint32_t kKinds[] = {FRT_EVENT_REASONING, FRT_EVENT_TEXT, FRT_EVENT_CALL_BEGIN,
                                 FRT_EVENT_CALL_ARGUMENTS, FRT_EVENT_CALL_END};
  for (host::ChatEvent& event : events) add(kKinds[event.kind], std::move(event.text), event.call);
}

void Generation::take_text(const std::string& piece) {
  if (piece.empty()) return;
  if (!chat_) return add(FRT_EVENT_TEXT, piece);
  take_events(chat_->push(piece));
}

void Generation::take(const Answer::Item& item) {
  if (item.id >= 0) {
    token_ = item.id;
    log_probability_ = item.log_probability;
  }
  if (answer_->decodes()) return take_text(item.text);
  if (text_) return take_text(text_->push(item.id));
  add(FRT_EVENT_TOKEN, {});
}

void Generation::finish() {
  if (text_) take_text(text_->flush());
  if (chat_) take_events(chat_->finish());
  stop_text_ = answer_->stop_text();
  finished_ = true;
}

frt_generation_event Generation::next(uint64_t timeout_ms) {
  const std::unique_lock reading(reading_, std::try_to_lock);
  if (!reading) throw Error(FRT_ERR_BAD_STATE, "another thread reads this answer");
  // Tokens that give no event yet, such as a part of a character, do not begin the time anew.
  const auto begin = std::chrono::steady_clock::now();
  while (events_.empty() && !finished_) {
    const auto waited = static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                                  std::chrono::steady_clock::now() - begin)
                                                  .count());
    const uint64_t left =
        timeout_ms == FRT_NO_TIMEOUT ? timeout_ms : timeout_ms - std::min(timeout_ms, waited);
    Answer::Item item;
    if (answer_->wait(items_, left, item)) {
      ++items_;
      take(item);
    } else {
      finish();
    }
  }
  frt_generation_event event{};
  if (events_.empty()) {
    given_ = {FRT_EVENT_END, 0, {}, token_, log_probability_};
    ended_ = true;
  } else {
    given_ = std::move(events_.front());
    events_.pop_front();
  }
  event.kind = given_.kind;
  event.text = given_.text.c_str();
  event.bytes = given_.text.size();
  event.call = given_.call;
  event.token = given_.token;
  event.log_probability = given_.log_probability;
  return event;
}

frt_generation_result Generation::result() const {
  const std::unique_lock reading(reading_, std::try_to_lock);
  if (!reading || !ended_) {
    throw Error(FRT_ERR_NOT_READY,
                "the result is not there before FRT_EVENT_END; read the events up to it");
  }
  const host::EngineResult& told = answer_->result();
  frt_generation_result result{};
  result.finish = answer_->stopped() ? FRT_FINISH_STOP : finish_of(told.finish);
  result.prompt_tokens = told.prompt_tokens;
  result.reused_tokens = told.prefix.reused;
  result.new_tokens = told.generated;
  result.seed = seed_;
  result.queue_seconds = told.queue_seconds;
  result.prefill_seconds = told.prefill_seconds;
  result.decode_seconds = told.decode_seconds;
  result.stop_text = answer_->stopped() ? stop_text_.c_str() : nullptr;
  return result;
}

}  // namespace frt::embed
