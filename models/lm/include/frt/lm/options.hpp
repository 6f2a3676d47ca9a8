// SPDX-License-Identifier: Apache-2.0
// frt/lm/options.hpp - what the user may say about a model: the schema, and the values read from
// it.
#pragma once

#include <frt/config.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <frt/lm/config.hpp>
#include <frt/plugin.hpp>
#include <optional>
#include <string>
#include <vector>

#include <frt/lm/precision.hpp>

namespace frt::lm {

// The options of every decoder. A plugin puts its own behind these:
//   constexpr auto kOptions = with_options({kChatTemplateOption});
//   constexpr frt_config_schema_v1 kSchema = schema(kOptions);
inline constexpr std::array<frt_config_option, 9> kCommonOptions = {{
    {"slots", FRT_CONFIG_INT, 0, "4", nullptr, 1, 4096,
     "sequences whose state is held at the same time"},
    {"max_context", FRT_CONFIG_SIZE, 0, "0", nullptr, 0, 16777216,
     "positions per slot, in tokens; 0: as many as fit, at most 32k and what the model can"},
    {"prefill_chunk", FRT_CONFIG_SIZE, 0, "512", nullptr, 1, 32768,
     "tokens of one prefill step; a capsule fits only models of the same chunk"},
    {"max_batch", FRT_CONFIG_INT, 0, "0", nullptr, 0, 64,
     "sequences of one decode step; 0: the number of slots, at most 8"},
    {"page_rows", FRT_CONFIG_SIZE, 0, "256", nullptr, 0, 65536,
     "positions of a page of keys and values that slots and capsules can share, a power of two; "
     "0: none, rows are copied with every fork and restore"},
    {"capsule_pages", FRT_CONFIG_INT, 0, "-1", nullptr, -1, 1 << 24,
     "pages beyond those of the slots, for capsules on the device; -1: what one slot has, or what "
     "fits"},
    {"activations", FRT_CONFIG_ENUM, 0, "auto", "auto|bf16|f32", 0, 0,
     "element type of activations; auto: bf16, or f32 where all weights are f32"},
    {"residual", FRT_CONFIG_ENUM, 0, "auto", "auto|bf16|f32", 0, 0,
     "element type of the residual stream; auto: f32"},
    {"kv", FRT_CONFIG_ENUM, 0, "auto", "auto|f32|bf16|fp8", 0, 0,
     "element type of keys and values; auto: that of the activations"},
}};

template <std::size_t N>
constexpr std::array<frt_config_option, kCommonOptions.size() + N> with_options(
    const frt_config_option (&more)[N]) {
  std::array<frt_config_option, kCommonOptions.size() + N> all{};
  std::copy(kCommonOptions.begin(), kCommonOptions.end(), all.begin());
  std::copy(more, more + N, all.begin() + kCommonOptions.size());
  return all;
}
template <std::size_t N>
constexpr frt_config_schema_v1 schema(const std::array<frt_config_option, N>& options) {
  return {sizeof(frt_config_schema_v1), 0, nullptr, 0, options.data(), N};
}

enum class Speculation : std::uint8_t { kAuto, kOn, kOff };

struct Options {
  std::int64_t slots = 0;
  std::int64_t max_context = 0;  // 0: as much as fits
  std::int64_t prefill_chunk = 0;
  std::int64_t max_batch = 0;
  std::int64_t page_rows = 0;                 // 0: no pages
  std::optional<std::int64_t> capsule_pages;  // pages beside those of the slots; none: auto
  frt_dtype activation = FRT_DTYPE_NONE;      // NONE: auto
  frt_dtype residual = FRT_DTYPE_NONE;
  frt_dtype cache = FRT_DTYPE_NONE;
  Speculation speculation = Speculation::kAuto;
  std::int64_t max_drafts = 0;        // tokens that the draft head proposes at a time
  std::int64_t draft_vocabulary = 0;  // tokens that drafts are chosen from; 0: all
};

// A plugin without the option "speculation" has no draft head. Throws FRT_ERR_INVALID_ARGUMENT for
// values that do not fit each other or the model.
Options read_options(const ConfigView& view, const Config& config);

// The option "chat_template", for plugins whose conversation format is built in: whether the user
// says that it is right whatever template the checkpoint has. Also for a model without weights,
// whose other options nobody reads.
inline constexpr frt_config_option kChatTemplateOption = {
    "chat_template",
    FRT_CONFIG_ENUM,
    0,
    "auto",
    "auto|builtin",
    0,
    0,
    "the conversation format; auto: the built-in one, refused where the checkpoint has a template "
    "that is not known to be the same; builtin: never refused"};
bool takes_builtin_chat_template(const ConfigView& view);

// The option "chat_template", for plugins that render the checkpoint's own template: a file in its
// place, or an empty text.
inline constexpr frt_config_option kTemplateFileOption = {
    "chat_template",
    FRT_CONFIG_PATH,
    0,
    "",
    nullptr,
    0,
    0,
    "a file with a Jinja chat template; empty: the checkpoint's own"};
std::string template_file(const ConfigView& view);

// Resolves what is automatic. `only_f32`: every weight is stored in F32.
Precision choose_precision(const Options& options, bool only_f32);

// 1, 2, 4, ... and `largest`: the sizes that steps are captured for.
std::vector<std::int32_t> buckets(std::int64_t largest);

}  // namespace frt::lm
