// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/options.hpp>

#include <frt/ops/attention.h>

#include <algorithm>
#include <bit>
#include <frt/error.hpp>
#include <string>

namespace frt::lm {
namespace {

constexpr std::int64_t kLargestAutoBatch = 8;
// Rows of the head that share a scale in any format, so that a prefix of it is a matrix, too.
constexpr std::int64_t kDraftVocabularyStep = 128;

frt_dtype dtype_option(const std::string& text) {
  if (text == "f32") return FRT_DTYPE_F32;
  if (text == "bf16") return FRT_DTYPE_BF16;
  if (text == "fp8") return FRT_DTYPE_F8_E4M3;
  return FRT_DTYPE_NONE;
}

}  // namespace

Options read_options(const ConfigView& view, const Config& config) {
  Options options;
  options.slots = view.get_int("slots");
  options.max_context = static_cast<std::int64_t>(view.get_size("max_context"));
  options.prefill_chunk = static_cast<std::int64_t>(view.get_size("prefill_chunk"));
  options.max_batch = view.get_int("max_batch");
  options.page_rows = static_cast<std::int64_t>(view.get_size("page_rows"));
  if (const std::int64_t pages = view.get_int("capsule_pages"); pages >= 0) {
    options.capsule_pages = pages;
  }
  options.activation = dtype_option(view.get_string("activations"));
  options.residual = dtype_option(view.get_string("residual"));
  options.cache = dtype_option(view.get_string("kv"));
  const std::string speculation = view.has("speculation") ? view.get_string("speculation") : "off";
  options.speculation = speculation == "on"    ? Speculation::kOn
                        : speculation == "off" ? Speculation::kOff
                                               : Speculation::kAuto;
  if (view.has("max_drafts")) options.max_drafts = view.get_int("max_drafts");
  if (view.has("draft_vocabulary")) {
    options.draft_vocabulary = static_cast<std::int64_t>(view.get_size("draft_vocabulary"));
    if (options.draft_vocabulary % kDraftVocabularyStep != 0 ||
        options.draft_vocabulary > config.vocabulary) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "draft_vocabulary is " + std::to_string(options.draft_vocabulary) +
                      "; it must be 0 or a multiple of " + std::to_string(kDraftVocabularyStep) +
                      ", at most the model's " + std::to_string(config.vocabulary) + " tokens");
    }
    if (options.draft_vocabulary != 0 && options.speculation == Speculation::kOff) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "draft_vocabulary is " + std::to_string(options.draft_vocabulary) +
                      ", but speculation = \"off\" makes no drafts; set one of them only");
    }
  }
  if (options.max_context > config.max_positions) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "max_context is " + std::to_string(options.max_context) +
                    ", but the model was made for " + std::to_string(config.max_positions) +
                    " positions; lower it, or set rope scaling in config.json");
  }
  if (options.page_rows != 0 &&
      (options.page_rows < FRT_PAGE_ROWS_LEAST ||
       !std::has_single_bit(static_cast<std::uint64_t>(options.page_rows)))) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "page_rows is " + std::to_string(options.page_rows) +
                                              "; it must be 0 or a power of two from " +
                                              std::to_string(FRT_PAGE_ROWS_LEAST) + " on");
  }
  if (options.page_rows == 0 && options.capsule_pages.value_or(0) > 0) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "capsule_pages is " + std::to_string(*options.capsule_pages) +
                    ", but page_rows = 0 turns pages off; set one of them only");
  }
  if (options.max_batch > options.slots) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "max_batch is " + std::to_string(options.max_batch) + ", but there are only " +
                    std::to_string(options.slots) + " slots; raise slots or lower max_batch");
  }
  if (options.max_batch == 0) options.max_batch = std::min(options.slots, kLargestAutoBatch);
  return options;
}

bool takes_builtin_chat_template(const ConfigView& view) {
  return view.has("chat_template") && view.get_string("chat_template") == "builtin";
}

std::string template_file(const ConfigView& view) {
  return view.has("chat_template") ? std::string(view.get_string("chat_template")) : std::string();
}

Precision choose_precision(const Options& options, bool only_f32) {
  Precision precision;
  precision.activation = options.activation != FRT_DTYPE_NONE ? options.activation
                         : only_f32                           ? FRT_DTYPE_F32
                                                              : FRT_DTYPE_BF16;
  precision.residual = options.residual != FRT_DTYPE_NONE ? options.residual : FRT_DTYPE_F32;
  precision.cache = options.cache != FRT_DTYPE_NONE ? options.cache : precision.activation;
  return precision;
}

std::vector<std::int32_t> buckets(std::int64_t largest) {
  std::vector<std::int32_t> sizes;
  for (std::int64_t size = 1; size < largest; size *= 2) {
    sizes.push_back(static_cast<std::int32_t>(size));
  }
  sizes.push_back(static_cast<std::int32_t>(largest));
  return sizes;
}

}  // namespace frt::lm
