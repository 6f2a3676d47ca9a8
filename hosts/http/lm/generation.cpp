// SPDX-License-Identifier: Apache-2.0
#include "http/lm/generation.hpp"

#include <algorithm>
#include <cmath>
#include <frt/error.hpp>
#include <utility>

#include "http/api/error.hpp"
#include "http/lm/state_call.hpp"
#include "http/lm/text_probabilities.hpp"
#include "net/clock.hpp"

namespace frt::host {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kOverloaded = "the server has no room for the request now; try again later";

// Answers of one request: each takes a place in the engine's queue or a slot.
constexpr std::size_t kMostAnswers = 32;

// Constraints that this engine does not have are refused by name, never ignored.
void check_supported(const ApiCall& call) {
  const std::size_t answers =
      std::max<std::size_t>(call.prompts.size(), 1) * std::size_t{call.choices};
  if (answers > kMostAnswers) {
    throw ApiError(ApiErrorKind::kInvalid,
                   "prompt and n ask for " + std::to_string(answers) +
                       " answers, and a request gets " + std::to_string(kMostAnswers) +
                       " at most; send several requests",
                   "n");
  }
  if (call.echo && call.stream && answers > 1) {
    throw ApiError(ApiErrorKind::kInvalid,
                   "an echo of several answers is not streamed by this server; set stream to false",
                   "echo");
  }
  if (!call.response_format.is_null()) {
    throw ApiError(ApiErrorKind::kInvalid, "structured output is not supported by this server",
                   "response_format");
  }
  if (call.needs_constraint()) {
    throw ApiError(ApiErrorKind::kInvalid,
                   "a forced tool call is not supported by this server; use \"auto\" or \"none\"",
                   "tool_choice");
  }
  if (call.top_log_probabilities > 0) {
    throw ApiError(ApiErrorKind::kInvalid,
                   "log probabilities of other tokens are not supported by this server",
                   call.kind == ApiCall::Kind::kText ? "logprobs" : "top_logprobs");
  }
  if (call.echo && call.log_probabilities) {
    throw ApiError(ApiErrorKind::kInvalid,
                   "log probabilities of the prompt are not supported by this server", "echo");
  }
}

ApiError from_engine(frt_status status) {
  switch (status) {
    case FRT_ERR_NOT_READY:
      return {ApiErrorKind::kRateLimit, "the queue is full; try again later"};
    case FRT_ERR_BAD_STATE:
    case FRT_ERR_DEVICE_LOST:
    case FRT_ERR_OUT_OF_MEMORY:
      return {ApiErrorKind::kOverloaded, kOverloaded};
    default:
      return {ApiErrorKind::kInternal, "the request failed"};
  }
}

double milliseconds(double seconds) {
  return std::round(seconds * 1e6) / 1e3;
}

// A stream that begins and fails at once.
void refuse_in_stream(const Generation::Setup& setup, const ApiError& error) {
  const auto writer = setup.protocol.reply(setup.call, setup.identity);
  setup.exchange->begin({.content_type = "text/event-stream"});
  setup.exchange->write(writer->start({}));
  setup.exchange->write(writer->error(error));
  setup.exchange->end();
  setup.over({{"error", error.what()}});
}

}  // namespace

struct Generation::Told {
  enum Kind { kStart, kToken, kFinish, kError, kIdle } kind = kIdle;
  uint32_t choice = 0;
  int32_t id = 0;
  float log_probability = 0;
  uint64_t cached = 0;                           // kStart
  std::shared_ptr<const EngineResult> result{};  // kFinish
  frt_status status = FRT_OK;                    // kError
  std::string message{};
};

struct Generation::Choice {
  uint32_t index = 0;
  std::optional<TextStream> text;
  std::optional<StopMatcher> stops;
  std::optional<ChatStream> chat;
  TextProbabilities probabilities;
  uint32_t calls = 0;
  bool reasons = false;  // the last event was reasoning
  bool finished = false;
  std::atomic<bool> stopped{false};  // what follows is not shown; the engine ends it
};

// The listener of one prompt. Keeps the generation alive until the engine has told the last.
class Generation::Part : public EngineListener {
 public:
  Part(std::shared_ptr<Generation> generation, uint32_t first)
      : generation_(std::move(generation)), first_(first) {}

  void on_start(const PrefixDecision& prefix, double) override {
    Told told;
    told.kind = Told::kStart;
    told.cached = prefix.reused;
    generation_->tell(std::move(told));
  }
  void on_prefill(uint64_t, uint64_t) override {}
  Next on_token(uint32_t choice, int32_t id, float log_probability) override {
    if (generation_->choices_[first_ + choice]->stopped) return Next::kStop;
    Told told;
    told.kind = Told::kToken;
    told.choice = first_ + choice;
    told.id = id;
    told.log_probability = log_probability;
    generation_->tell(std::move(told));
    return Next::kContinue;
  }
  void on_finish(uint32_t choice, const EngineResult& result) override {
    Told told;
    told.kind = Told::kFinish;
    told.choice = first_ + choice;
    told.result = std::make_shared<const EngineResult>(result);
    generation_->tell(std::move(told));
  }
  void on_error(frt_status status, const std::string& message) override {
    Told told;
    told.kind = Told::kError;
    told.status = status;
    told.message = message;
    generation_->tell(std::move(told));
  }

 private:
  const std::shared_ptr<Generation> generation_;
  const uint32_t first_;  // choice of the reply that is choice 0 of this prompt
};

Generation::Generation(Setup setup)
    : setup_(std::move(setup)), strand_(std::make_shared<Strand>(setup_.workers)) {}

Generation::~Generation() = default;

void Generation::start(Setup setup) {
  check_supported(setup.call);
  const auto began = ServerClock::now();
  std::vector<PreparedPrompt> prompts;
  try {
    prompts = prepare_prompts(*setup.served, setup.call);
  } catch (const ApiError& error) {
    if (!setup.call.stream || !setup.protocol.tells_in_stream(error.kind())) throw;
    return refuse_in_stream(setup, error);
  }
  setup.call.messages = nullptr;  // rendered; an agent's are large
  const auto generation = std::make_shared<Generation>(std::move(setup));
  generation->prompts_ = std::move(prompts);
  generation->prepare_seconds_ = milliseconds_since(began) / 1e3;
  generation->submit();
}

void Generation::submit() {
  const ApiCall& call = setup_.call;
  const ServedModel& served = *setup_.served;
  writer_ = setup_.protocol.reply(call, setup_.identity);
  frt_sampling_params sampling{};
  try {
    sampling = resolve_sampling(call.sampling, served.defaults);
  } catch (const Error& error) {
    throw ApiError(ApiErrorKind::kInvalid, error.what());
  }
  const auto total = static_cast<uint32_t>(prompts_.size() * call.choices);
  for (uint32_t i = 0; i < total; ++i) {
    auto choice = std::make_unique<Choice>();
    choice->index = i;
    if (served.model.has_tokenizer()) choice->text.emplace(served.model, FRT_DECODE_SKIP_SPECIAL);
    choice->stops.emplace(call.stop);
    if (call.kind == ApiCall::Kind::kChat) {
      const bool no_calls = call.tool_choice.mode == ApiToolChoice::kNone;
      choice->chat.emplace(served.model, no_calls ? Json::array() : call.tools, call.chat_options);
    }
    choices_.push_back(std::move(choice));
  }
  std::vector<EngineRequest> requests;
  for (const PreparedPrompt& prompt : prompts_) {
    EngineRequest request;
    request.prompt = prompt.ids;
    usage_.prompt_tokens += prompt.ids.size();
    const uint64_t room = served.model.info().max_context - prompt.ids.size();
    request.max_new = std::min(call.max_tokens.value_or(setup_.most_tokens), room);
    request.sampling = sampling;
    request.sampling.seed += requests.size() * call.choices;
    if (call.min_tokens != UINT64_MAX) {
      request.stop_ids = served.stop_ids;
      request.min_new = call.min_tokens;
    }
    request.choices = call.choices;
    request.user_turn = prompt.user_turn;
    request.owner = setup_.exchange->request().owner;
    request.affinity = setup_.affinity;
    request.deadline = setup_.deadline;
    requests.push_back(std::move(request));
  }
  // Nothing is handled before all are submitted: the strand is held.
  {
    const std::lock_guard lock(mutex_);
    scheduled_ = true;
  }
  uint32_t first = 0;
  try {
    for (EngineRequest& request : requests) {
      const uint64_t number = served.engine.submit(
          std::move(request), std::make_shared<Part>(shared_from_this(), first));
      const std::lock_guard lock(mutex_);
      requests_.push_back(number);
      first += call.choices;
    }
  } catch (const Error& error) {
    over_ = true;  // the caller answers; what the engine still tells is dropped
    cancel();
    if (error.status() != FRT_ERR_NOT_READY) setup_.report(error.what());
    throw from_engine(error.status());
  }
  if (call.stream) setup_.exchange->begin({.content_type = "text/event-stream"});
  const std::weak_ptr<Generation> weak = weak_from_this();
  setup_.exchange->on_gone([weak] {
    if (const auto self = weak.lock()) self->cancel();
  });
  setup_.exchange->on_idle([weak] {
    if (const auto self = weak.lock()) self->tell({});
  });
  strand_->post([self = shared_from_this()] { self->work(); });
}

// ---- what the engine tells ----

void Generation::tell(Told told) {
  {
    const std::lock_guard lock(mutex_);
    told_.push_back(std::move(told));
    if (std::exchange(scheduled_, true)) return;
  }
  strand_->post([self = shared_from_this()] { self->work(); });
}

void Generation::work() {
  std::vector<Told> told;
  {
    const std::lock_guard lock(mutex_);
    scheduled_ = false;
    told.swap(told_);
  }
  for (Told& each : told) {
    if (over_) return;
    try {
      handle(each);
    } catch (const std::exception& error) {
      setup_.report(error.what());
      fail({ApiErrorKind::kInternal, "the request failed"});
    }
  }
}

void Generation::handle(Told& told) {
  switch (told.kind) {
    case Told::kStart:
      usage_.cached_tokens += told.cached;
      return begin_stream();
    case Told::kToken:
      return on_token(*choices_[told.choice], told.id, told.log_probability);
    case Told::kFinish:
      return on_finish(*choices_[told.choice], *told.result);
    case Told::kError:
      setup_.report(told.message);
      return fail(from_engine(told.status));
    case Told::kIdle:
      begin_stream();
      return send(writer_->heartbeat());
  }
}

void Generation::begin_stream() {
  if (std::exchange(begun_, true)) return;
  send(writer_->start(usage_));
  if (!setup_.call.echo) return;
  for (const auto& choice : choices_) {
    const std::string& prompt = prompts_[choice->index / setup_.call.choices].text;
    send(writer_->event(choice->index, {.kind = ChatEvent::kText, .text = prompt}));
  }
}

void Generation::on_token(Choice& choice, int32_t id, float log_probability) {
  if (choice.stopped) return;
  ++usage_.generated_tokens;
  if (!choice.text) return;
  begin_stream();
  const std::string piece = choice.text->push(id);
  if (setup_.call.log_probabilities) {
    choice.probabilities.push(
        {setup_.served->model.decode({&id, 1}, FRT_DECODE_SKIP_SPECIAL), log_probability});
  }
  on_text(choice, piece);
  if (choice.reasons) ++usage_.reasoning_tokens;
}

void Generation::on_text(Choice& choice, const std::string& piece) {
  const std::string shown = choice.stops->push(piece);
  if (choice.stops->stopped()) choice.stopped = true;
  if (shown.empty()) return;
  if (choice.chat) return emit(choice, choice.chat->push(shown));
  emit(choice, {{.kind = ChatEvent::kText, .text = shown}});
}

void Generation::emit(Choice& choice, const std::vector<ChatEvent>& events) {
  for (const ChatEvent& event : events) {
    choice.reasons = event.kind == ChatEvent::kReasoning;
    for (ApiTokenProbability& token : choice.probabilities.take(event)) {
      writer_->log_probability(choice.index, std::move(token));
    }
    // The writer leaves the second call out; there is no use in writing it.
    if (event.kind == ChatEvent::kToolBegin && ++choice.calls > 1 &&
        !setup_.call.parallel_tool_calls) {
      choice.stopped = true;
    }
    send(writer_->event(choice.index, event));
  }
}

void Generation::on_finish(Choice& choice, const EngineResult& result) {
  if (result.finish == Finish::kDeadline) {
    return fail({ApiErrorKind::kTimeout, "the request took longer than this server lets it"});
  }
  begin_stream();
  if (choice.text && !choice.stops->stopped()) on_text(choice, choice.text->flush());
  if (!choice.stops->stopped()) {
    const std::string rest = choice.stops->flush();
    if (!rest.empty() && choice.chat) emit(choice, choice.chat->push(rest));
    if (!rest.empty() && !choice.chat) emit(choice, {{.kind = ChatEvent::kText, .text = rest}});
  }
  if (choice.chat) emit(choice, choice.chat->finish());
  choice.finished = true;
  ApiFinish reason{.finish = choice.stopped ? Finish::kStop : result.finish};
  if (choice.stops->stopped()) reason.stop_string = choice.stops->match();
  if (choice.index == 0) first_ = result;
  send(writer_->finish(choice.index, reason));
  if (++finished_ == choices_.size()) finish();
}

// ---- the reply ----

void Generation::send(const std::string& bytes) {
  if (!bytes.empty() && setup_.call.stream) setup_.exchange->write(bytes);
}

void Generation::finish() {
  over_ = true;
  const Json block = frt_block();
  std::string last = writer_->end(usage_, block);
  if (setup_.call.stream) {
    setup_.exchange->write(last);
    setup_.exchange->end();
  } else {
    setup_.exchange->respond({.body = std::move(last)});
  }
  Json record = block;
  record["finish"] = finish_name(first_->finish);
  end_with(std::move(record));
}

void Generation::fail(const ApiError& error) {
  if (std::exchange(over_, true)) return;
  cancel();
  try {
    if (setup_.call.stream) {
      begin_stream();
      setup_.exchange->write(writer_->error(error));
      setup_.exchange->end();
    } else {
      HttpResponse response{.status = error.status(), .body = setup_.protocol.error_body(error)};
      if (error.status() == 503 || error.status() == 429) {
        response.headers.emplace_back("Retry-After", "1");
      }
      setup_.exchange->respond(std::move(response));
    }
  } catch (const std::exception&) {
    // The exchange ends without an answer, which its client sees.
  }
  end_with({{"error", error.what()}});
}

void Generation::cancel() noexcept {
  std::vector<uint64_t> requests;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(cancelled_, true)) return;
    requests.swap(requests_);
  }
  for (const uint64_t request : requests) setup_.served->engine.cancel(request);
}

void Generation::end_with(Json record) {
  record["prompt_tokens"] = usage_.prompt_tokens;
  record["cached_tokens"] = usage_.cached_tokens;
  record["generated_tokens"] = usage_.generated_tokens;
  setup_.over(record);
}

Json Generation::frt_block() const {
  const PrefixDecision& prefix = first_->prefix;
  Json block = {{"prefix_action", prefix_action_name(prefix.action)},
                {"reused_tokens", prefix.reused},
                {"new_prefill_tokens", first_->prompt_tokens - prefix.reused},
                {"why", prefix.reason}};
  if (prefix.action == PrefixAction::kRestore) {
    block["capsule_id"] = shown_name(setup_.exchange->request().owner, prefix.capsule);
    block["restore_ms"] = milliseconds(prefix.seconds);
  }
  block["template_ms"] = milliseconds(prepare_seconds_);
  block["queue_ms"] = milliseconds(first_->queue_seconds);
  block["prefill_ms"] = milliseconds(first_->prefill_seconds);
  block["decode_ms"] = milliseconds(first_->decode_seconds);
  if (first_->drafted > 0) {
    block["draft_tokens"] = first_->drafted;
    block["accepted_tokens"] = first_->accepted;
  }
  if (!setup_.call.tools_left_out.empty()) block["tools_left_out"] = setup_.call.tools_left_out;
  return block;
}

}  // namespace frt::host
