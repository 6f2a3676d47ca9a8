// SPDX-License-Identifier: Apache-2.0
#include "http/lm/generation.hpp"

#include <algorithm>
#include <cmath>
#include <frt/error.hpp>
#include <limits>
#include <new>
#include <utility>

#include "http/api/error.hpp"
#include "http/lm/answer_grammar.hpp"
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
      std::max<std::size_t>(call.prompts.size(), 1) * std::size_t{call.answers()};
  if (answers > kMostAnswers) {
    const std::string field = call.answers() > call.choices ? "best_of" : "n";
    throw ApiError(ApiErrorKind::kInvalid,
                   "prompt and " + field + " ask for " + std::to_string(answers) +
                       " answers, and a request gets " + std::to_string(kMostAnswers) +
                       " at most; send several requests",
                   field);
  }
  if (call.echo && call.stream && answers > 1) {
    throw ApiError(ApiErrorKind::kInvalid,
                   "an echo of several answers is not streamed by this server; set stream to false",
                   "echo");
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

// The engine checks the same, without the words of the protocol.
void check_bias(const LmModel& model, const std::vector<frt_logit_bias>& bias) {
  const auto refuse = [](const std::string& text) {
    throw ApiError(ApiErrorKind::kInvalid, "logit_bias " + text, "logit_bias");
  };
  if (!bias.empty() && !model.info().bias) refuse("is not supported by this model");
  const uint32_t vocabulary = model.info().vocabulary;
  for (const frt_logit_bias& one : bias) {
    if (static_cast<uint32_t>(one.id) < vocabulary) continue;
    refuse("has token " + std::to_string(one.id) + ": ids of this model are 0 .. " +
           std::to_string(vocabulary - 1));
  }
}

// The likeliest tokens and the scores of a prompt are computed from logits, which not every model
// gives.
void check_logits(const LmModel& model, const ApiCall& call) {
  if (model.info().logits) return;
  const auto refuse = [](const std::string& field, const std::string& text) {
    throw ApiError(ApiErrorKind::kInvalid, field + " " + text, field);
  };
  if (call.scores_prompt()) {
    refuse("echo", "beside logprobs is not supported by this model; leave one of them out");
  }
  if (call.top_log_probabilities == 0) return;
  refuse(call.kind == ApiCall::Kind::kText ? "logprobs" : "top_logprobs",
         "is " + std::to_string(call.top_log_probabilities) +
             ", and this model tells the log probabilities of its own tokens alone; give 0");
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

struct Generation::Choice {
  uint32_t index = 0;
  std::optional<TextStream> text;
  std::optional<StopMatcher> stops;
  std::optional<ChatStream> chat;
  TextProbabilities probabilities;
  uint32_t calls = 0;
  bool reasons = false;  // the last event was reasoning
  bool echoed = false;   // with its probabilities
  bool finished = false;
  std::atomic<bool> stopped{false};    // what follows is not shown; the engine ends it
  std::optional<EngineResult> result;  // by the engine's thread, before its kFinish

  // Where the reply has the best answers alone: what is to be written of this one.
  struct Held {
    std::vector<ApiTokenProbability> probabilities;
    ChatEvent event;
  };
  std::vector<Held> held;
  ApiFinish reason;
  double log_probability = 0;  // of its tokens, together
  uint64_t tokens = 0;

  // An answer without a token is worse than any other.
  double score() const {
    return tokens > 0 ? log_probability / static_cast<double>(tokens)
                      : -std::numeric_limits<double>::infinity();
  }
};

// The listener of one prompt. Keeps the generation alive until the engine has told the last.
class Generation::Part : public EngineListener {
 public:
  Part(std::shared_ptr<Generation> generation, uint32_t first, uint32_t prompt)
      : generation_(std::move(generation)), first_(first), prompt_(prompt) {}

  void on_start(const PrefixDecision& prefix, double) override {
    generation_->tell({.kind = Told::kStart, .cached = prefix.reused});
  }
  void on_prefill(uint64_t, uint64_t) override {}
  void on_grammar() override { generation_->tell({.kind = Told::kGrammar}); }
  void on_prompt_token(uint64_t place, float log_probability,
                       std::span<const TokenProbability> top) override {
    PromptScores& scores = generation_->scores_[prompt_];
    const std::size_t each = generation_->setup_.call.top_log_probabilities;
    scores.values[place] = log_probability;
    const std::size_t count = std::min(each, top.size());
    std::copy_n(top.begin(), count,
                scores.tops.begin() + static_cast<std::ptrdiff_t>(place * each));
  }
  // on_token() follows, and makes it count. The place is free: fewer tokens wait than it has.
  void on_top_tokens(uint32_t, std::span<const TokenProbability> top) override {
    Generation& reply = *generation_;
    const std::span<TokenProbability> place = reply.top_place(reply.tops_told_);
    const std::size_t count = std::min(place.size(), top.size());
    std::copy_n(top.begin(), count, place.begin());
    if (count < place.size()) place[count] = {};
  }
  Next on_token(uint32_t choice, int32_t id, float log_probability) override {
    Generation& reply = *generation_;
    if (reply.choices_[first_ + choice]->stopped) return Next::kStop;
    if (!reply.ring_.has_room(reply.edges_)) {
      reply.behind_.store(true, std::memory_order_relaxed);
      return Next::kCancel;
    }
    ++reply.tops_told_;
    reply.tell({.kind = Told::kToken,
                .choice = first_ + choice,
                .id = id,
                .log_probability = log_probability});
    return Next::kContinue;
  }
  void on_finish(uint32_t choice, const EngineResult& result) override {
    try {
      generation_->choices_[first_ + choice]->result = result;
    } catch (const std::bad_alloc&) {
      return on_error(FRT_ERR_OUT_OF_MEMORY, {});
    }
    generation_->tell({.kind = Told::kFinish, .choice = first_ + choice});
  }
  void on_error(frt_status status, const std::string& message) override {
    if (std::exchange(failed_, true)) return;
    try {
      generation_->error_texts_[prompt_] = message;
    } catch (const std::bad_alloc&) {
      status = FRT_ERR_OUT_OF_MEMORY;  // the operator is told that
    }
    generation_->tell({.kind = Told::kError, .choice = prompt_, .status = status});
  }

 private:
  const std::shared_ptr<Generation> generation_;
  const uint32_t first_;  // choice of the reply that is choice 0 of this prompt
  const uint32_t prompt_;
  bool failed_ = false;
};

Generation::Generation(Setup setup) : Actor(setup.workers), setup_(std::move(setup)) {}

Generation::~Generation() = default;

std::shared_ptr<Generation> Generation::start(Setup setup) {
  check_supported(setup.call);
  check_bias(setup.served->model, setup.call.logit_bias);
  check_logits(setup.served->model, setup.call);
  const auto began = ServerClock::now();
  // It is compiled while the prompts are tokenized and read.
  std::shared_ptr<const GrammarTicket> grammar =
      answer_grammar(*setup.served, setup.call, setup.exchange->request().owner);
  std::vector<PreparedPrompt> prompts;
  try {
    prompts = prepare_prompts(*setup.served, setup.exchange->request().owner, setup.call);
  } catch (const ApiError& error) {
    if (!setup.call.stream || !setup.protocol.tells_in_stream(error.kind())) throw;
    refuse_in_stream(setup, error);
    return nullptr;
  }
  setup.call.messages = nullptr;  // rendered; an agent's are large
  const auto generation = std::make_shared<Generation>(std::move(setup));
  generation->prompts_ = std::move(prompts);
  generation->grammar_ = std::move(grammar);
  generation->prepare_seconds_ = milliseconds_since(began) / 1e3;
  generation->submit();
  return generation;
}

// A place for what is told once of each prompt and choice, and for as many tokens as may wait.
void Generation::make_room(const std::vector<EngineRequest>& requests) {
  uint64_t tokens = 0;
  for (const EngineRequest& request : requests) {
    tokens += std::min(request.max_new, kMostWaiting) * request.choices;
  }
  edges_ = 3 * requests.size() + choices_.size();
  ring_.reset(std::min(tokens, kMostWaiting) + edges_);
  tops_.resize(ring_.places() * setup_.call.top_log_probabilities);
  error_texts_.resize(requests.size());
  if (!setup_.call.scores_prompt()) return;
  for (const EngineRequest& request : requests) {
    scores_.push_back({.values = std::vector<float>(request.prompt.size()),
                       .tops = std::vector<TokenProbability>(request.prompt.size() *
                                                             setup_.call.top_log_probabilities)});
  }
}

// Of the ring's token `token`, counted from 0.
std::span<TokenProbability> Generation::top_place(uint64_t token) {
  const std::size_t each = setup_.call.top_log_probabilities;
  return std::span(tops_).subspan((token & (ring_.places() - 1)) * each, each);
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
  const auto total = static_cast<uint32_t>(prompts_.size() * call.answers());
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
    request.sampling.seed += requests.size() * call.answers();
    request.bias = call.logit_bias;
    if (call.min_tokens != UINT64_MAX) {
      request.stop_ids = served.stop_ids;
      request.min_new = call.min_tokens;
    }
    request.choices = call.answers();
    request.user_turn = prompt.user_turn;
    request.owner = setup_.exchange->request().owner;
    request.affinity = setup_.affinity;
    request.deadline = setup_.deadline;
    request.grammar = grammar_;
    request.top_tokens = call.top_log_probabilities;
    request.score_prompt = setup_.call.scores_prompt();
    requests.push_back(std::move(request));
  }
  make_room(requests);
  requests_.reserve(requests.size());
  const auto self = std::static_pointer_cast<Generation>(shared_from_this());
  const std::weak_ptr<Generation> weak = self;
  setup_.exchange->on_gone([weak] {
    if (const auto generation = weak.lock()) generation->cancel();
  });
  setup_.exchange->on_idle([weak] {
    const auto generation = weak.lock();
    if (!generation) return;
    generation->idle_.store(true, std::memory_order_relaxed);
    generation->wake();
  });
  // Where it throws the caller answers, and what the engine still tells is dropped.
  uint32_t first = 0, prompt = 0;
  try {
    for (EngineRequest& request : requests) {
      keep_number(
          served.engine.submit(std::move(request), std::make_shared<Part>(self, first, prompt++)));
      first += call.answers();
    }
    if (may_begin()) send_head();
  } catch (const Error& error) {
    over_ = true;
    cancel();
    if (error.status() != FRT_ERR_NOT_READY) setup_.report(error.what());
    throw from_engine(error.status());
  } catch (...) {
    over_ = true;
    cancel();
    throw;
  }
  open_.store(true, std::memory_order_release);
  wake();
}

// ---- what the engine tells ----

void Generation::tell(const Told& told) noexcept {
  ring_.push(told);
  wake();
}

void Generation::stop() noexcept {
  stopping_.store(true, std::memory_order_relaxed);
  wake();
}

void Generation::work() {
  if (!open_.load(std::memory_order_acquire)) return;
  try {
    Told told;
    while (!over_ && ring_.pop(told)) handle(told);
    if (over_) return;
    if (stopping_.load(std::memory_order_relaxed)) {
      return fail({ApiErrorKind::kOverloaded, "the server stops; send the request again"});
    }
    if (idle_.exchange(false, std::memory_order_relaxed)) {
      begin_stream();
      send(writer_->heartbeat());
    }
  } catch (const std::exception& error) {
    fail_unexpectedly(error.what());
  }
}

void Generation::handle(const Told& told) {
  switch (told.kind) {
    case Told::kStart:
      usage_.cached_tokens += told.cached;
      started_ = true;
      if (may_begin()) begin_stream();
      return;
    case Told::kGrammar:
      // What a stream begins with says how much of the prompt was there already.
      return started_ ? begin_stream() : send_head();
    case Told::kToken:
      return on_token(*choices_[told.choice], told.id, told.log_probability,
                      top_place(tops_handled_++));
    case Told::kFinish:
      return on_finish(*choices_[told.choice], *choices_[told.choice]->result);
    case Told::kError:
      if (grammar_ && told.status == FRT_ERR_INVALID_ARGUMENT) {
        return fail(grammar_error(setup_.call, error_texts_[told.choice]));
      }
      setup_.report(error_texts_[told.choice]);
      return fail(from_engine(told.status));
  }
}

// A grammar that cannot be compiled is a 400, so a stream's head waits for it.
bool Generation::may_begin() const {
  return !grammar_ || (grammar_->over() && grammar_->status() == FRT_OK);
}

void Generation::send_head() {
  if (!setup_.call.stream || std::exchange(head_sent_, true)) return;
  setup_.exchange->begin({.content_type = "text/event-stream"});
}

void Generation::begin_stream() {
  if (std::exchange(begun_, true)) return;
  send_head();
  send(writer_->start(usage_));
  if (!setup_.call.echo || holds_back() || setup_.call.scores_prompt()) return;
  for (const auto& choice : choices_) {
    write_echo(choice->index, choice->index / setup_.call.choices);
  }
}

// The prompt as the beginning of choice `index` of the reply.
void Generation::write_echo(uint32_t index, uint32_t prompt) {
  const PreparedPrompt& prepared = prompts_[prompt];
  for (std::size_t i = 0; setup_.call.scores_prompt() && i < prepared.ids.size(); ++i) {
    const PromptScores& scores = scores_[prompt];
    const std::size_t each = i > 0 ? setup_.call.top_log_probabilities : 0;
    const std::optional<float> value = i > 0 ? std::optional(scores.values[i]) : std::nullopt;
    writer_->log_probability(
        index, token_of(prepared.ids[i], value, std::span(scores.tops).subspan(i * each, each)));
  }
  send(writer_->event(index, {.kind = ChatEvent::kText, .text = prepared.text}));
}

ApiTokenProbability Generation::token_of(int32_t id, std::optional<float> log_probability,
                                         std::span<const TokenProbability> top) const {
  const auto text_of = [&](int32_t token) {
    return setup_.served->model.decode({&token, 1}, FRT_DECODE_SKIP_SPECIAL);
  };
  ApiTokenProbability token{text_of(id), log_probability};
  for (const TokenProbability& other : top) {
    if (other.id < 0) break;
    token.top.emplace_back(text_of(other.id), other.log_probability);
  }
  return token;
}

void Generation::on_token(Choice& choice, int32_t id, float log_probability,
                          std::span<const TokenProbability> top) {
  if (choice.stopped) return;
  ++usage_.generated_tokens;
  ++choice.tokens;
  choice.log_probability += static_cast<double>(log_probability);
  if (!choice.text) return;
  begin_stream();
  const std::string piece = choice.text->push(id);
  if (setup_.call.scores_prompt() && !holds_back() && !std::exchange(choice.echoed, true)) {
    write_echo(choice.index, choice.index / setup_.call.choices);
  }
  if (setup_.call.log_probabilities) {
    choice.probabilities.push(token_of(id, log_probability, top));
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
    if (holds_back()) {
      choice.held.push_back({choice.probabilities.take(event), event});
      continue;
    }
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
  if (behind_.load(std::memory_order_relaxed))
    return fail({ApiErrorKind::kOverloaded, kOverloaded});
  begin_stream();
  if (setup_.call.scores_prompt() && !holds_back() && !std::exchange(choice.echoed, true)) {
    write_echo(choice.index, choice.index / setup_.call.choices);
  }
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
  choice.reason = std::move(reason);
  if (!holds_back()) send(writer_->finish(choice.index, choice.reason));
  if (++finished_ < choices_.size()) return;
  if (holds_back()) write_best();
  finish();
}

// The best answers to each prompt, the best first, as the reply's choices.
void Generation::write_best() {
  const uint32_t made = setup_.call.answers(), sent = setup_.call.choices;
  for (uint32_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    const auto all = std::span(choices_).subspan(std::size_t{prompt} * made, made);
    std::ranges::stable_sort(all, std::ranges::greater(),
                             [](const auto& choice) { return choice->score(); });
    for (uint32_t i = 0; i < sent; ++i) {
      const uint32_t index = prompt * sent + i;
      if (setup_.call.echo) write_echo(index, prompt);
      for (Choice::Held& held : all[i]->held) {
        for (ApiTokenProbability& token : held.probabilities) {
          writer_->log_probability(index, std::move(token));
        }
        send(writer_->event(index, held.event));
      }
      send(writer_->finish(index, all[i]->reason));
    }
  }
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
    if (head_sent_) {
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

// Where there is no memory for an error either, the exchange goes without an answer with this
// object, which its client sees.
void Generation::fail_unexpectedly(const char* what) noexcept {
  try {
    setup_.report(what);
    fail({ApiErrorKind::kInternal, "the request failed"});
  } catch (const std::exception&) {
    over_ = true;
    cancel();
  }
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

// Of a request that was submitted. The client may have left meanwhile.
void Generation::keep_number(uint64_t request) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!cancelled_) return requests_.push_back(request);  // submit() made the room
  }
  setup_.served->engine.cancel(request);
}

void Generation::end_with(Json record) {
  record["prompt_tokens"] = usage_.prompt_tokens;
  record["cached_tokens"] = usage_.cached_tokens;
  record["generated_tokens"] = usage_.generated_tokens;
  setup_.over(record);
}

Json Generation::frt_block() const {
  const PrefixDecision& prefix = first_->prefix;
  std::string why = prefix_reason(prefix, prompts_.front().ids, setup_.served->model);
  if (!setup_.tools_changed.empty()) {
    why += "; tools, against the last request: " + setup_.tools_changed;
  }
  Json block = {{"prefix_action", prefix_action_name(prefix.action)},
                {"reused_tokens", prefix.reused},
                {"new_prefill_tokens", first_->prompt_tokens - prefix.reused},
                {"why", std::move(why)}};
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
