// SPDX-License-Identifier: Apache-2.0
#include "http/lm/metrics.hpp"

#include <algorithm>
#include <span>

namespace frt::host {
namespace {

struct Number {
  const char* name;
  const char* type;
  const char* help;
  uint64_t EngineStats::*value;
};

constexpr Number kNumbers[] = {
    {"frt_lm_queued_requests", "gauge", "Requests that wait for a slot.", &EngineStats::queued},
    {"frt_lm_prefilling", "gauge", "Choices that read their prompt.", &EngineStats::prefilling},
    {"frt_lm_decoding", "gauge", "Choices that write.", &EngineStats::decoding},
    {"frt_lm_preempted", "gauge", "Choices whose state waits in host memory.",
     &EngineStats::preempted},
    {"frt_lm_slots", "gauge", "Slots of the model.", &EngineStats::slots},
    {"frt_lm_slots_used", "gauge", "Slots that a choice uses.", &EngineStats::slots_used},
    {"frt_lm_pages", "gauge", "Pages of the state.", &EngineStats::pages},
    {"frt_lm_pages_free", "gauge", "Pages that nobody holds.", &EngineStats::pages_free},
    {"frt_lm_pages_shared", "gauge", "Pages with more than one holder.",
     &EngineStats::pages_shared},
    {"frt_lm_requests_total", "counter", "Requests that the engine took.", &EngineStats::submitted},
    {"frt_lm_queue_full_total", "counter", "Requests refused because the queue was full.",
     &EngineStats::refused},
    {"frt_lm_errors_total", "counter", "Requests that ended with an error.", &EngineStats::errors},
    {"frt_lm_preemptions_total", "counter", "Choices whose slot was given to others.",
     &EngineStats::preemptions},
    {"frt_lm_prompt_tokens_total", "counter", "Tokens of prompts.", &EngineStats::prompt_tokens},
    {"frt_lm_cached_tokens_total", "counter", "Tokens of prompts that were not read again.",
     &EngineStats::cached_tokens},
    {"frt_lm_generated_tokens_total", "counter", "Tokens written.", &EngineStats::generated_tokens},
    {"frt_lm_prefill_steps_total", "counter", "Prefill steps.", &EngineStats::prefill_steps},
    {"frt_lm_decode_steps_total", "counter", "Decode steps.", &EngineStats::decode_steps},
    {"frt_lm_decode_entries_total", "counter", "Sequences over all decode steps.",
     &EngineStats::decode_entries},
    {"frt_lm_draft_rounds_total", "counter", "Decode steps with drafts.",
     &EngineStats::draft_rounds},
    {"frt_lm_draft_tokens_total", "counter", "Tokens drafted.", &EngineStats::draft_tokens},
    {"frt_lm_accepted_tokens_total", "counter", "Drafts that became text.",
     &EngineStats::accepted_tokens},
};

struct Part {
  const char* label;
  uint64_t EngineStats::*value;
};

constexpr Part kEndings[] = {
    {"length", &EngineStats::ended_length},     {"stop", &EngineStats::ended_stop},
    {"context", &EngineStats::ended_context},   {"cancelled", &EngineStats::ended_cancelled},
    {"deadline", &EngineStats::ended_deadline},
};

constexpr Part kBeginnings[] = {
    {"read", &EngineStats::began_read},
    {"continue", &EngineStats::began_continue},
    {"restore", &EngineStats::began_restore},
};

struct Times {
  const char* name;
  const char* help;
  DurationHistogram EngineStats::*value;
};

constexpr Times kTimes[] = {
    {"frt_lm_queue_seconds", "Time from the request to a slot.", &EngineStats::queue},
    {"frt_lm_restore_seconds", "Time until a slot held a capsule.", &EngineStats::restore},
    {"gen_ai_server_time_to_first_token_seconds", "Time from the request to its first token.",
     &EngineStats::ttft},
    {"gen_ai_server_time_per_output_token_seconds", "Time from one token to the next.",
     &EngineStats::itl},
    {"gen_ai_server_request_duration_seconds", "Time from the request to its last token.",
     &EngineStats::e2e},
    {"frt_lm_mask_seconds", "Time to find the tokens that a grammar allows next.",
     &EngineStats::mask},
};

}  // namespace

void put_http_metrics(MetricsText& text, const HttpServer& server) {
  const HttpCounters& counters = server.counters();
  const auto put = [&](const char* name, const char* type, const char* help, uint64_t value) {
    text.family(name, type, help);
    text.sample(value);
  };
  put("frt_http_open_connections", "gauge", "Connections.", counters.open);
  put("frt_http_streams", "gauge", "Streamed answers under way.", counters.streams);
  put("frt_http_buffer_bytes", "gauge", "Bytes of bodies in memory.", server.buffered());
  put("frt_http_connections_total", "counter", "Connections accepted.", counters.connections);
  put("frt_http_requests_total", "counter", "Requests whose head arrived.", counters.requests);
  put("frt_http_disconnects_total", "counter",
      "Clients that left before their answer was complete.", counters.disconnects);
  put("frt_http_failures_total", "counter", "Connections ended by a failure of the server.",
      counters.failures);
  put("frt_http_accept_failures_total", "counter", "Failures of accept().",
      counters.accept_failures);
  put("frt_http_received_bytes_total", "counter", "Bytes received.", counters.bytes_in);
  put("frt_http_sent_bytes_total", "counter", "Bytes sent.", counters.bytes_out);
  if (const auto tls = server.tls()) {
    put("frt_http_tls_handshakes_total", "counter", "TLS handshakes completed.",
        counters.tls_handshakes);
    put("frt_http_tls_certificate_expiry_seconds", "gauge",
        "When the first certificate of the server's chain expires, in seconds since 1970.",
        static_cast<uint64_t>(std::max<int64_t>(tls->expires(), 0)));
  }
  text.family("frt_http_refusals_total", "counter", "Requests and connections refused or cut off.");
  for (std::size_t i = 0; i < counters.refusals.size(); ++i) {
    text.sample(counters.refusals[i], {{"reason", refusal_name(static_cast<HttpRefusal>(i))}});
  }
}

void put_key_metrics(MetricsText& text, const std::map<std::string, KeyCounts>& keys,
                     const std::map<std::string, KeyTokens>& tokens) {
  const auto put = [&](const char* name, const char* type, const char* help, const auto& of,
                       auto value) {
    text.family(name, type, help);
    for (const auto& [key, numbers] : of) text.sample(numbers.*value, {{"key", key}});
  };
  put("frt_http_key_running", "gauge", "Requests of a key under way.", keys, &KeyCounts::running);
  put("frt_http_key_requests_total", "counter", "Requests of a key that were let in.", keys,
      &KeyCounts::requests);
  put("frt_http_key_refused_total", "counter", "Requests of a key beyond its limits.", keys,
      &KeyCounts::refused);
  put("frt_http_key_prompt_tokens_total", "counter", "Tokens of a key's prompts.", tokens,
      &KeyTokens::prompt);
  put("frt_http_key_cached_tokens_total", "counter",
      "Tokens of a key's prompts that were not read again.", tokens, &KeyTokens::cached);
  put("frt_http_key_generated_tokens_total", "counter", "Tokens written for a key.", tokens,
      &KeyTokens::generated);
}

void put_engine_metrics(MetricsText& text,
                        const std::vector<std::pair<std::string, EngineStats>>& engines) {
  for (const Number& number : kNumbers) {
    text.family(number.name, number.type, number.help);
    for (const auto& [model, stats] : engines) text.sample(stats.*number.value, {{"model", model}});
  }
  const auto put_parts = [&](const char* label, std::span<const Part> parts) {
    for (const auto& [model, stats] : engines) {
      for (const Part& part : parts) {
        text.sample(stats.*part.value, {{"model", model}, {label, part.label}});
      }
    }
  };
  text.family("frt_lm_endings_total", "counter", "Choices by why they ended.");
  put_parts("reason", kEndings);
  text.family("frt_lm_prefixes_total", "counter", "Requests by how their prompt began.");
  put_parts("action", kBeginnings);
  for (const Times& times : kTimes) {
    text.family(times.name, "histogram", times.help);
    for (const auto& [model, stats] : engines) {
      const DurationHistogram& histogram = stats.*times.value;
      text.histogram(DurationHistogram::kBounds, histogram.counts, histogram.count, histogram.sum,
                     {{"model", model}});
    }
  }
}

void put_grammar_metrics(MetricsText& text,
                         const std::vector<std::pair<std::string, GrammarStats>>& compilers) {
  struct GrammarNumber {
    const char* name;
    const char* type;
    const char* help;
    uint64_t GrammarStats::*value;
  };
  static constexpr GrammarNumber kGrammarNumbers[] = {
      {"frt_grammar_cache_hits_total", "counter",
       "Requests for a grammar that was compiled or being compiled.", &GrammarStats::hits},
      {"frt_grammar_cache_misses_total", "counter",
       "Requests for a grammar that had to be compiled.", &GrammarStats::misses},
      {"frt_grammar_compiled_total", "counter", "Grammars compiled.", &GrammarStats::compiled},
      {"frt_grammar_failed_total", "counter", "Grammars that could not be compiled.",
       &GrammarStats::failed},
      {"frt_grammar_dropped_total", "counter", "Compilations that nobody waited for any more.",
       &GrammarStats::dropped},
      {"frt_grammar_waiting", "gauge", "Compilations that wait.", &GrammarStats::waiting},
      {"frt_grammar_cached", "gauge", "Compiled grammars kept.", &GrammarStats::cached},
      {"frt_grammar_cached_bytes", "gauge", "Bytes of these.", &GrammarStats::cached_bytes},
  };
  if (compilers.empty()) return;
  for (const GrammarNumber& number : kGrammarNumbers) {
    text.family(number.name, number.type, number.help);
    for (const auto& [model, stats] : compilers) {
      text.sample(stats.*number.value, {{"model", model}});
    }
  }
  text.family("frt_grammar_compile_seconds", "histogram", "Time to compile a grammar.");
  for (const auto& [model, stats] : compilers) {
    text.histogram(DurationHistogram::kBounds, stats.compile.counts, stats.compile.count,
                   stats.compile.sum, {{"model", model}});
  }
}

}  // namespace frt::host
