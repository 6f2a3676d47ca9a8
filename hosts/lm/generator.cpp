// SPDX-License-Identifier: Apache-2.0
// Reading: the part of the prompt that the slot has not seen is cut at absolute multiples of
// prefill_chunk, so that the same prompt is always cut alike, and submitted chunk by chunk with
// at most kDepth in flight.
//
// Writing: step n + 1 is submitted before token n is awaited, unless n is known to be the last. A
// stop token is therefore usually fed to the model by the step in flight; `fed_` says exactly what
// was fed, so a later prompt that continues the text, stop token included, is recognised.
#include "lm/generator.hpp"

#include <algorithm>
#include <string>

namespace frt::host {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

const char* finish_name(Finish finish) noexcept {
  switch (finish) {
    case Finish::kLength:
      return "length";
    case Finish::kStop:
      return "stop";
    case Finish::kContext:
      return "context";
    case Finish::kCancelled:
      return "cancelled";
  }
  return "?";
}

Generator::Generator(const LmModel& model, uint32_t slot)
    : model_(model), slot_(slot), runner_(model) {
  if (slot >= model.info().slots) {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "slot " + std::to_string(slot) + " of model '" + model.name() + "', which has " +
                    std::to_string(model.info().slots) + "; raise its option slots");
  }
}

void Generator::check_prompt(const std::vector<int32_t>& prompt) const {
  const frt_lm_info& info = model_.info();
  if (prompt.empty()) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "the prompt is empty; give at least one token");
  }
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || static_cast<uint32_t>(prompt[i]) >= info.vocabulary) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "prompt token " + std::to_string(i) + " is id " +
                                                std::to_string(prompt[i]) + "; ids of model '" +
                                                model_.name() + "' are 0 .. " +
                                                std::to_string(info.vocabulary - 1));
    }
  }
  if (prompt.size() > info.max_context) {
    throw Error(FRT_ERR_OUT_OF_RANGE, "the prompt has " + std::to_string(prompt.size()) +
                                          " tokens, the context of model '" + model_.name() +
                                          "' has room for " + std::to_string(info.max_context) +
                                          "; shorten it or raise the option max_context");
  }
}

uint64_t Generator::read(const GenerationRequest& request, GenerationResult& result) {
  const auto& prompt = request.prompt;
  const uint64_t chunk = model_.info().prefill_chunk;
  // At least one token must be fed to get logits: a prompt that is fully known starts anew.
  const bool continues = fed_.size() < prompt.size() && !fed_.empty() &&
                         std::equal(fed_.begin(), fed_.end(), prompt.begin());
  if (!continues) {
    fed_.clear();
    runner_.clear(slot_);
  }
  result.reused_tokens = fed_.size();
  const uint64_t total = prompt.size() - fed_.size();
  uint64_t ticket = 0;
  uint64_t submitted = 0;
  for (uint64_t at = fed_.size(); at < prompt.size();) {
    const uint64_t end = std::min<uint64_t>(prompt.size(), (at / chunk + 1) * chunk);
    ticket = runner_.submit_prefill(slot_, static_cast<int32_t>(at),
                                    std::span(prompt).subspan(at, end - at));
    at = end;
    fed_.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(end));
    if (request.on_prefill && ++submitted > 1) {
      runner_.wait(ticket - 1);
      request.on_prefill(at - result.reused_tokens, total);
    }
  }
  runner_.wait(ticket);
  if (request.on_prefill) request.on_prefill(total, total);
  return ticket;
}

GenerationResult Generator::run(const GenerationRequest& request) {
  check_prompt(request.prompt);
  try {
    return run_checked(request);
  } catch (...) {
    fed_.clear();
    throw;
  }
}

GenerationResult Generator::run_checked(const GenerationRequest& request) {
  GenerationResult result;
  result.prompt_tokens = request.prompt.size();
  const auto start = Clock::now();
  runner_.set_sampling({&request.sampling, 1});
  uint64_t ticket = read(request, result);
  result.prefill_seconds = seconds_since(start);
  if (request.max_new == 0) return result;

  const auto first_token = Clock::now();
  const uint64_t room = model_.info().max_context - fed_.size();
  // `room` more tokens can be fed, so room + 1 can be written.
  const uint64_t limit = std::min(request.max_new, room + 1);
  result.tokens.reserve(std::min<uint64_t>(limit, 4096));
  result.finish = limit < request.max_new ? Finish::kContext : Finish::kLength;
  uint64_t boundary = fed_.size();  // tokens fed by submitted steps
  for (uint64_t written = 0; written < limit; ++written) {
    const uint64_t current = ticket;
    const bool ahead = written + 1 < limit;
    if (ahead) {
      const StepRunner::Entry entry{slot_, static_cast<int32_t>(boundary++), -1};
      ticket = runner_.submit_decode({&entry, 1});
    }
    const int32_t id = runner_.wait(current)[0];
    const float log_probability = runner_.log_probabilities(current)[0];
    if (ahead) fed_.push_back(id);
    if (std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end()) {
      result.finish = Finish::kStop;
      result.stop_token = id;
      break;
    }
    result.tokens.push_back(id);
    result.log_probabilities.push_back(log_probability);
    const Next next = request.on_token ? request.on_token(id, log_probability) : Next::kContinue;
    if (next != Next::kContinue) {
      result.finish = next == Next::kStop ? Finish::kStop : Finish::kCancelled;
      break;
    }
  }
  result.decode_seconds = seconds_since(first_token);
  runner_.stream().sync();
  return result;
}

}  // namespace frt::host
