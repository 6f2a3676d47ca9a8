// SPDX-License-Identifier: Apache-2.0
// generation.hpp - fields about how to generate that several protocols share.
#pragma once

#include "http/api/call.hpp"
#include "http/api/protocol.hpp"
#include "http/api/request/fields.hpp"

namespace frt::host::api {

// The name of the model, of at most 256 bytes: a reply repeats it in every event.
std::string read_model(const Fields& body);

// "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
// "repetition_penalty", "seed".
SamplingChoice read_sampling(const Fields& body);

// "logit_bias": ids of tokens, in decimal, to what is added to their logits.
std::vector<frt_logit_bias> read_bias(const Fields& body, const ApiLimits& limits);

// A number of tokens, cut to the limit; absent: none was given, or -1, which means the same.
std::optional<uint64_t> read_max_tokens(const Fields& body, std::string_view name, uint64_t least,
                                        const ApiLimits& limits);

// A string or a list of strings.
std::vector<std::string> read_stops(const Fields& body, std::string_view name,
                                    const ApiLimits& limits);

// "min_tokens" and "ignore_eos", which servers besides OpenAI's know.
uint64_t read_min_tokens(const Fields& body);

// "reasoning_effort" of chat and "reasoning.effort" of Responses: "none" turns reasoning off.
void read_effort(const Fields& fields, std::string_view name, Json& chat_options);

// Earlier reasoning stays in the prompt where tools are at work, or where the client sent it:
// without it the prompt of an agent's next turn would differ from its first answer on. What
// `chat_options` says already stands.
void default_preserve_thinking(ApiCall& call, bool has_reasoning);

// {"type": "json_schema", "schema", ...} as ApiCall::response_format has it.
Json read_schema_format(const Fields& format, const ApiLimits& limits);

// What an answer must be, in the words of other servers: vLLM's "structured_outputs" and, before
// it, "guided_json", "guided_regex", "guided_choice" and "guided_grammar"; llama.cpp's
// "json_schema" and "grammar". Fills in ApiCall::response_format and its field. Throws ApiError for
// two of them, or one where the call has a format already.
void read_guides(const Fields& body, const ApiLimits& limits, ApiCall& call);

// ApiCall::session: the first of the headers that agents send, else `fallback`.
std::string read_session(ApiHeaders headers, const std::optional<std::string>& fallback);

}  // namespace frt::host::api
