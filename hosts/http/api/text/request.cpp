// SPDX-License-Identifier: Apache-2.0
#include "http/api/text/request.hpp"

#include <limits>
#include <utility>

#include "http/api/request/fields.hpp"
#include "http/api/request/generation.hpp"

namespace frt::host::api {

namespace {

// A list of ids, checked.
std::vector<int32_t> read_ids(const Json& list, const std::string& path) {
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& entry : list) {
    if (!entry.is_number_unsigned() ||
        entry.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int32_t>::max())) {
      refuse(path + "[" + std::to_string(ids.size()) + "]",
             "is " + shown_value(entry) + ": give the id of a token");
    }
    ids.push_back(entry.get<int32_t>());
  }
  return ids;
}

// "text", [1, 2, 3], ["text", ...] or [[1, 2, 3], ...].
void read_prompts(const Fields& body, const ApiLimits& limits, ApiCall& call) {
  const Json* prompt = body.find("prompt");
  if (!prompt) refuse("prompt", "is missing: give a text or a list of token ids");
  const auto add = [&](const Json& one, const std::string& path) {
    if (one.is_string() && !one.get_ref<const std::string&>().empty()) {
      call.prompts.emplace_back(one.get<std::string>());
    } else if (one.is_array() && !one.empty()) {
      call.prompts.emplace_back(read_ids(one, path));
    } else {
      refuse(path, (one.empty() ? std::string("is empty") : "is " + shown_value(one)) +
                       ": give a text or a list of token ids");
    }
  };
  const bool many = prompt->is_array() && !prompt->empty() &&
                    ((*prompt)[0].is_string() || (*prompt)[0].is_array());
  if (!many) return add(*prompt, "prompt");
  for (const Json& one : *body.array("prompt", limits.prompts)) {
    add(one, "prompt[" + std::to_string(call.prompts.size()) + "]");
  }
}

}  // namespace

ApiCall parse_text_request(std::string_view text, ApiHeaders headers, const ApiOptions& options) {
  const ApiLimits& limits = options.limits;
  const Json value = parse_body(text, limits);
  const Fields body(value, "");
  ApiCall call;
  call.kind = ApiCall::Kind::kText;
  call.model = read_model(body);
  call.stream = body.boolean("stream").value_or(false);
  if (const auto stream = body.object("stream_options")) {
    call.include_usage = stream->boolean("include_usage").value_or(false);
  }
  body.refuse_if_set("suffix", "this server only continues a prompt");
  body.refuse_if_set("response_format", "use /v1/chat/completions");
  read_prompts(body, limits, call);
  call.echo = body.boolean("echo").value_or(false);

  call.sampling = read_sampling(body);
  call.logit_bias = read_bias(body, limits);
  // OpenAI's default of this route. 0: only the prompt, for its probabilities.
  call.max_tokens = read_max_tokens(body, "max_tokens", 0, limits).value_or(16);
  call.min_tokens = read_min_tokens(body);
  call.stop = read_stops(body, "stop", limits);
  call.choices = static_cast<uint32_t>(body.count("n", 1, limits.choices).value_or(1));
  call.best_of = static_cast<uint32_t>(body.count("best_of", 1, limits.best_of).value_or(0));
  if (call.best_of > 0 && call.best_of < call.choices) {
    refuse("best_of", "is " + std::to_string(call.best_of) + " and n " +
                          std::to_string(call.choices) + ": give at least n");
  }
  if (call.best_of > call.choices && call.stream) {
    refuse("best_of",
           "is more than n beside stream: which answers are the best is known at their "
           "end; set stream to false");
  }
  if (const auto top = body.count("logprobs", 0, limits.top_log_probabilities)) {
    call.log_probabilities = true;
    call.top_log_probabilities = static_cast<uint32_t>(*top);
  }
  read_guides(body, limits, call);
  call.session = read_session(headers, body.text("prompt_cache_key"));
  return call;
}

}  // namespace frt::host::api
