// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <algorithm>
#include <charconv>
#include <frt/error.hpp>

namespace frt::pi05 {
namespace {

constexpr std::int64_t kMostSteps = 1000;

constexpr frt_config_option kActivations = {
    "activations",
    FRT_CONFIG_ENUM,
    0,
    "auto",
    "auto|bf16|f32",
    0,
    0,
    "element type of activations and of weights that are wider; auto: bf16"};
constexpr frt_config_option kPrecision = {
    "precision",
    FRT_CONFIG_ENUM,
    0,
    "auto",
    "auto|f32|bf16|fp8",
    0,
    0,
    "what the products of all layers multiply; auto: what `activations` says; fp8: e4m3 by e4m3 "
    "with the static scales of `calibration`, everything else as `activations` says"};
constexpr frt_config_option kCalibration = {
    "calibration",
    FRT_CONFIG_PATH,
    0,
    "",
    nullptr,
    0,
    0,
    "path of a file that `frt-host calibrate` made with this checkpoint, for precision = fp8; a "
    "synthetic checkpoint needs none"};
constexpr frt_config_option kResidual = {
    "residual",
    FRT_CONFIG_ENUM,
    0,
    "auto",
    "auto|bf16|f32",
    0,
    0,
    "element type of the residual streams; auto: that of the activations"};
constexpr frt_config_option kHorizon = {
    "horizon", FRT_CONFIG_INT,
    0,         "0",
    nullptr,   0,
    4096,      "actions per chunk; 0: what the checkpoint says"};
constexpr frt_config_option kSteps = {
    "steps",
    FRT_CONFIG_STRING,
    0,
    "",
    nullptr,
    0,
    0,
    "numbers of denoising steps that can be run, e.g. \"10,5\"; the first is the default; empty: "
    "what the checkpoint says"};
constexpr frt_config_option kPrompts = {
    "prompt_buckets",
    FRT_CONFIG_STRING,
    0,
    "",
    nullptr,
    0,
    0,
    "prompt lengths that are captured, in tokens, e.g. \"32,64,200\"; empty: 32, 64, 128 and what "
    "the checkpoint allows"};
constexpr frt_config_option kSamples = {
    "samples", FRT_CONFIG_INT,
    0,         "1",
    nullptr,   1,
    64,        "chunks that one inference can make of one observation, from noises of their own"};
constexpr frt_config_option kSlots = {
    "slots", FRT_CONFIG_INT,
    0,       "1",
    nullptr, 1,
    1024,    "episodes whose state is kept side by side; inference is in slot 0, fork moves them"};
constexpr frt_config_option kPreset = {
    "preset",
    FRT_CONFIG_ENUM,
    0,
    "auto",
    "auto|pi05_libero|pi05_droid|pi05_full_droid_finetune|pi05_droid_finetune|"
    "pi05_droid_jointpos_polaris|pi05_aloha|base",
    0,
    0,
    "names, normalisation and prompt of a robot; auto: LeRobot checkpoints say it themselves, "
    "others are base"};
constexpr frt_config_option kNormStats = {
    "norm_stats",
    FRT_CONFIG_PATH,
    0,
    "",
    nullptr,
    0,
    0,
    "path of a norm_stats.json; empty: looked for in the checkpoint"};
constexpr frt_config_option kTokenizer = {
    "tokenizer",
    FRT_CONFIG_PATH,
    0,
    "",
    nullptr,
    0,
    0,
    "path of a SentencePiece model; empty: tokenizer.model or paligemma_tokenizer.model in the "
    "checkpoint"};
constexpr frt_config_option kDefaultPrompt = {"default_prompt",
                                              FRT_CONFIG_STRING,
                                              0,
                                              "",
                                              nullptr,
                                              0,
                                              0,
                                              "the instruction of observations that bring none"};
constexpr frt_config_option kStateInPrompt = {
    "state_in_prompt",
    FRT_CONFIG_ENUM,
    0,
    "auto",
    "auto|on|off",
    0,
    0,
    "whether the robot's state is part of the prompt; auto: as the preset says"};
constexpr frt_config_option kGuidance = {"guidance",
                                         FRT_CONFIG_ENUM,
                                         0,
                                         "fused",
                                         "fused|serial",
                                         0,
                                         0,
                                         "branches as one batch, or one after another"};
constexpr frt_config_option kTemplate = {
    "template",
    FRT_CONFIG_STRING,
    0,
    "openpi_clean",
    nullptr,
    0,
    0,
    "where the tag stands: openpi_clean (task, a space, tag), raw_newline (task, newline, tag), "
    "before_action (a line of its own before \"Action: \"), or a text with {task}, {state}, {tag}"};
constexpr frt_config_option kTags = {
    "tags",  FRT_CONFIG_STRING,
    0,       "Advantage: positive",
    nullptr, 0,
    0,       "tag of each guided branch, divided by '|'; the branch without a tag is always there"};
constexpr frt_config_option kBeta = {
    "beta", FRT_CONFIG_FLOAT, 0, "1.5", nullptr, 1, 100, "guidance strength at start, 1: none"};

constexpr frt_config_option kPlain[] = {
    kActivations, kPrecision, kCalibration, kResidual,  kHorizon,   kSteps,         kPrompts,
    kSamples,     kSlots,     kPreset,      kNormStats, kTokenizer, kDefaultPrompt, kStateInPrompt};
constexpr frt_config_option kGuided[] = {
    kActivations,   kPrecision,     kCalibration, kResidual, kHorizon,   kSteps,
    kPrompts,       kSamples,       kSlots,       kPreset,   kNormStats, kTokenizer,
    kDefaultPrompt, kStateInPrompt, kGuidance,    kTemplate, kTags,      kBeta};
constexpr frt_config_schema_v1 kPlainSchema = config_schema(kNoOptions, kPlain);
constexpr frt_config_schema_v1 kGuidedSchema = config_schema(kNoOptions, kGuided);

frt_dtype dtype_option(const std::string& text) {
  if (text == "f32") return FRT_DTYPE_F32;
  if (text == "bf16") return FRT_DTYPE_BF16;
  return FRT_DTYPE_NONE;
}

std::vector<std::string> split(const std::string& text, char divider) {
  std::vector<std::string> parts;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t end = std::min(text.find(divider, first), text.size());
    parts.push_back(text.substr(first, end - first));
    first = end + 1;
  }
  return parts;
}

std::vector<std::int64_t> number_list(const std::string& key, const std::string& text,
                                      std::int64_t most) {
  std::vector<std::int64_t> numbers;
  if (text.empty()) return numbers;
  for (std::string part : split(text, ',')) {
    std::erase(part, ' ');
    std::int64_t value = 0;
    const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (code != std::errc() || end != part.data() + part.size() || value < 1 || value > most) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, key + " = \"" + text + "\": '" + part +
                                                "' is not a number from 1 to " +
                                                std::to_string(most));
    }
    if (std::find(numbers.begin(), numbers.end(), value) == numbers.end()) {
      numbers.push_back(value);
    }
  }
  return numbers;
}

}  // namespace

const frt_config_schema_v1& option_schema(Family family) {
  return family == Family::kGuided ? kGuidedSchema : kPlainSchema;
}

Options read_options(const ConfigView& view, const Config& config, Family family) {
  Options options;
  options.activation = dtype_option(view.get_string("activations"));
  options.residual = dtype_option(view.get_string("residual"));
  const std::string precision = view.get_string("precision");
  options.fp8 = precision == "fp8";
  if (const frt_dtype wanted = dtype_option(precision); wanted != FRT_DTYPE_NONE) {
    if (options.activation != FRT_DTYPE_NONE && options.activation != wanted) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "precision = \"" + precision + "\" and activations = \"" +
                      view.get_string("activations") + "\" differ; leave one of them out");
    }
    options.activation = wanted;
  }
  if (options.activation == FRT_DTYPE_F32 && options.residual == FRT_DTYPE_BF16) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "residual = \"bf16\" and activations in f32 differ: the residual streams are f32 "
                "then; leave residual out, or set activations = \"bf16\"");
  }
  options.calibration = view.get_string("calibration");
  options.horizon = view.get_int("horizon");
  options.steps = number_list("steps", view.get_string("steps"), kMostSteps);
  if (options.steps.empty()) options.steps = {config.steps};
  options.prompts =
      number_list("prompt_buckets", view.get_string("prompt_buckets"), config.max_prompt);
  if (options.prompts.empty()) {
    for (const std::int64_t size : {32, 64, 128}) {
      if (size < config.max_prompt) options.prompts.push_back(size);
    }
    options.prompts.push_back(config.max_prompt);
  }
  std::sort(options.prompts.begin(), options.prompts.end());
  options.samples = view.get_int("samples");
  options.slots = view.get_int("slots");
  options.preset = view.get_string("preset");
  options.norm_stats = view.get_string("norm_stats");
  options.tokenizer = view.get_string("tokenizer");
  options.default_prompt = view.get_string("default_prompt");
  const std::string state = view.get_string("state_in_prompt");
  options.state_in_prompt = state == "on"    ? Choice::kOn
                            : state == "off" ? Choice::kOff
                                             : Choice::kAuto;
  if (family == Family::kPlain) return options;
  options.guidance = view.get_string("guidance") == "serial" ? Guidance::kSerial : Guidance::kFused;
  options.prompt_template = view.get_string("template");
  options.tags = split(view.get_string("tags"), '|');
  options.beta = view.get_float("beta");
  return options;
}

}  // namespace frt::pi05
