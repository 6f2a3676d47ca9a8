// SPDX-License-Identifier: Apache-2.0
// Loading, in order: configuration, tokenizer, interface, weights, engine, graphs.
#include "model.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <frt/error.hpp>

#include "checkpoint_source.hpp"

namespace frt::pi05 {
namespace {

namespace fs = std::filesystem;

// Raised when the same regions begin to mean something else: capsules of before are refused then.
constexpr const char* kStateVersion = "1";
// What products of synthetic weights read stays below.
constexpr float kSyntheticLargest = 16;
constexpr float kDefaultCap = 10;  // of guided continuation

bool reads_prompt(GraphKind kind) {
  return kind != GraphKind::kVision;
}
bool acts(GraphKind kind) {
  return kind == GraphKind::kInfer || kind == GraphKind::kAct;
}

frt_shape_key policy_key(GraphKind kind, const Variant& v) {
  if (!reads_prompt(kind)) {
    return frt_key_pack(static_cast<std::uint16_t>(kind), static_cast<std::uint16_t>(v.views), 0,
                        0);
  }
  return frt_key_pack(static_cast<std::uint16_t>(kind),
                      static_cast<std::uint16_t>(v.views << 8 | v.branches),
                      static_cast<std::uint16_t>(v.prompt),
                      static_cast<std::uint16_t>(acts(kind) ? v.steps << 6 | v.samples : 0));
}

void record(const Engine& engine, GraphKind kind, const Recorder& recorder,
            const Variant& variant) {
  switch (kind) {
    case GraphKind::kInfer:
      engine.observe(recorder, variant);
      return engine.act(recorder, variant);
    case GraphKind::kObserve:
      return engine.observe(recorder, variant);
    case GraphKind::kVision:
      return engine.vision(recorder, variant);
    case GraphKind::kPrefix:
      return engine.prefix(recorder, variant);
    case GraphKind::kAct:
      return engine.act(recorder, variant);
  }
}

std::string gigabytes(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

}  // namespace

std::vector<float> continuation_weights(std::uint32_t schedule, std::int64_t delay,
                                        std::int64_t execution_horizon, std::int64_t rows) {
  std::vector<float> weights(static_cast<std::size_t>(rows), 0.0f);
  delay = std::min(delay, execution_horizon);
  const std::int64_t falling = execution_horizon - delay;
  for (std::int64_t i = 0; i < std::min(execution_horizon, rows); ++i) {
    double weight = 1;
    if (i >= delay) {
      const double linear =
          1.0 - static_cast<double>(i - delay + 1) / static_cast<double>(falling + 1);
      if (schedule == FRT_SCHEDULE_LINEAR) weight = linear;
      if (schedule == FRT_SCHEDULE_EXPONENTIAL) {
        weight = linear * std::expm1(linear) / std::expm1(1.0);
      }
      if (schedule == FRT_SCHEDULE_ZEROS) weight = 0;
    }
    weights[static_cast<std::size_t>(i)] = static_cast<float>(weight);
  }
  return weights;
}

Model::Model(const Host& host, const frt_model_params& params, Family family)
    : name_(params.name ? params.name : ""),
      checkpoint_(params.checkpoint ? params.checkpoint : ""),
      family_(family) {
  if (is_synthetic(checkpoint_)) {
    synthetic_ = parse_synthetic(checkpoint_);
    config_ = synthetic_->config;
  } else {
    if (!fs::is_directory(checkpoint_)) {
      throw Error(FRT_ERR_NOT_FOUND, "checkpoint '" + checkpoint_ +
                                         "': no such folder; give the folder that holds "
                                         "config.json");
    }
    config_ = read_config(checkpoint_);
  }
  const Options options = read_options(ConfigView(params.config), config_, family_);
  if (options.horizon > 0) config_.horizon = options.horizon;
  load_tokenizer(host, options);
  info_.struct_size = sizeof(info_);
  if (!(params.flags & FRT_MODEL_WITHOUT_WEIGHTS)) load(host, params);
  architecture_text_ = pi05::describe(config_, parts_ ? parts_->face.cameras.size() : 0);
  info_.architecture = architecture_text_.c_str();
  info_.formats = formats_text_.c_str();
}

Model::~Model() {
  if (parts_) parts_->context.table().context_sync(parts_->context);
}

Model::Parts& Model::parts() const {
  if (!parts_) {
    throw Error(FRT_ERR_BAD_STATE,
                "model '" + name_ + "' was made without weights; it has text functions only");
  }
  return *parts_;
}

void Model::load_tokenizer(const Host& host, const Options& options) {
  fs::path file = options.tokenizer;
  if (file.empty() && !synthetic_) {
    for (const char* name : {"tokenizer.model", "paligemma_tokenizer.model"}) {
      if (fs::is_regular_file(fs::path(checkpoint_) / name)) file = fs::path(checkpoint_) / name;
    }
  }
  if (file.empty()) return;
  tokenizer_ = models::SentencePiece::load(file);
  if (tokenizer_->vocab_size() > static_cast<std::size_t>(config_.dims.vocabulary)) {
    throw Error(FRT_ERR_MISMATCH,
                file.string() + " has " + std::to_string(tokenizer_->vocab_size()) +
                    " pieces, the checkpoint's table " + std::to_string(config_.dims.vocabulary));
  }
  const std::vector<std::int32_t> newline = tokenizer_->encode("\n");
  if (tokenizer_->bos() != 2 || newline.size() != 1) {
    host.log(FRT_LOG_WARNING, file.string() +
                                  ": not laid out as PaliGemma's tokenizer (begin 2, newline one "
                                  "piece); prompts may not be what the policy was trained on");
  }
}

void Model::load(const Host& host, const frt_model_params& params) {
  auto parts = std::make_unique<Parts>();
  parts->context = Context(host.require<frt_exec_v1>(FRT_EXT_EXEC), params.context);
  parts->states = host.require<frt_state_v1>(FRT_EXT_STATE);
  parts->options = read_options(ConfigView(params.config), config_, family_);
  parts->face =
      read_interface(config_, synthetic_ ? fs::path() : fs::path(checkpoint_), parts->options);
  if (!parts->face.has_statistics && !synthetic_) {
    host.log(FRT_LOG_WARNING, "model '" + name_ + "': " + parts->face.statistics_from +
                                  "; observations in robot units will be refused");
  }
  load_weights(host, *parts);
  const Setup setup = setup_of(*parts);
  parts->engine = std::make_unique<Engine>(parts->states, parts->context, config_, parts->weights,
                                           *parts->source, parts->precision, setup);
  parts->observer =
      std::make_unique<Observer>(*parts->engine, config_, parts->face, tokenizer(),
                                 PromptForm{parts->options.prompt_template, parts->options.tags});
  const std::uint64_t control =
      sizeof(frt_policy_continuation) +
      bytes_of(FRT_DTYPE_F32, config_.horizon * (config_.dims.action_dim + 1) +
                                  setup.max_steps() * setup.branches);
  parts->control = std::make_unique<Staging>(parts->context, control, "control");
  parts_ = std::move(parts);
  try {
    const Stream& stream = parts_->engine->stream();
    parts_->engine->ports().view_mask.upload(
        std::vector<std::int32_t>(static_cast<std::size_t>(setup.views), 1), stream);
    if (setup.branches > 1) {
      const std::vector<float> strengths(static_cast<std::size_t>(setup.branches - 1),
                                         static_cast<float>(parts_->options.beta));
      set_guidance(strengths, stream.handle());
    }
    capture(host, *parts_);
    parts_->engine->stream().sync();
  } catch (...) {
    parts_->context.table().context_sync(parts_->context);
    throw;
  }
  describe();
}

Setup Model::setup_of(const Parts& parts) const {
  const Options& options = parts.options;
  Setup setup;
  setup.views = static_cast<std::int64_t>(parts.face.cameras.size());
  setup.max_prompt = options.prompts.back();
  setup.horizon = config_.horizon;
  setup.samples = options.samples;
  setup.branches = static_cast<std::int64_t>(options.tags.size()) + 1;
  setup.slots = options.slots;
  setup.guidance = options.guidance;
  setup.image_dtype = parts.face.image_dtype();
  setup.steps = options.steps;
  return setup;
}

void Model::load_weights(const Host& host, Parts& parts) {
  const Options& options = parts.options;
  parts.precision.activation =
      options.activation != FRT_DTYPE_NONE ? options.activation : FRT_DTYPE_BF16;
  parts.precision.residual =
      options.residual != FRT_DTYPE_NONE ? options.residual : parts.precision.activation;

  auto memory = std::make_unique<models::DeviceMemory>(parts.context);
  if (synthetic_) {
    parts.source = std::make_unique<SyntheticSource>(host, *synthetic_, parts.context);
  } else {
    parts.source = std::make_unique<CheckpointSource>(host, models::Checkpoint::open(checkpoint_));
  }
  std::optional<Calibration> calibration;
  if (options.fp8 && !options.calibration.empty()) {
    calibration = Calibration::read(options.calibration, config_.dims, parts.source->digests());
  } else if (options.fp8 && synthetic_) {
    calibration = Calibration::uniform(config_.dims, kSyntheticLargest);
  } else if (options.fp8) {
    throw Error(FRT_ERR_INVALID_ARGUMENT,
                "model '" + name_ +
                    "': precision = \"fp8\" needs calibration = PATH; make the file with "
                    "`frt-host calibrate MANIFEST --frames FILES --out PATH`");
  }
  if (calibration) calibration_digest_ = calibration->digest();
  const std::uint64_t needed =
      weight_bytes(config_, parts.precision.activation, calibration.has_value());
  const std::uint64_t running = Engine::bytes(config_, parts.precision, setup_of(parts));
  const frt_context_info device = parts.context.info();
  if (needed + running > device.memory_free) {
    throw Error(FRT_ERR_OUT_OF_MEMORY, "model '" + name_ + "': the weights need " +
                                           gigabytes(needed) + ", working memory " +
                                           gigabytes(running) + "; " + device.device->name +
                                           " has " + gigabytes(device.memory_free) +
                                           " free; lower samples, slots or prompt_buckets");
  }
  parts.weights =
      build_weights(config_, parts.precision.activation, calibration ? &*calibration : nullptr,
                    *parts.source, std::move(memory));
  parts.calibrator = std::make_unique<Calibrator>();
}

// ---- graphs ----------------------------------------------------------------------------------

std::vector<Variant> Model::variants(GraphKind kind, const Parts& parts) const {
  const Setup& setup = parts.engine->setup();
  const auto both = [](std::int64_t most) {
    return most > 1 ? std::vector<std::int64_t>{1, most} : std::vector<std::int64_t>{1};
  };
  const std::vector<std::int64_t> none = {0}, one = {1};
  const std::vector<std::int64_t>& prompts = reads_prompt(kind) ? parts.options.prompts : none;
  const std::vector<std::int64_t>& steps = acts(kind) ? setup.steps : none;
  const std::vector<std::int64_t> samples = acts(kind) ? both(setup.samples) : one;
  const std::vector<std::int64_t> branch_counts = reads_prompt(kind) ? both(setup.branches) : one;
  std::vector<Variant> list;
  for (std::int64_t views = 1; views <= setup.views; ++views) {
    for (const std::int64_t prompt : prompts) {
      for (const std::int64_t count : steps) {
        for (const std::int64_t chunk : samples) {
          for (const std::int64_t branches : branch_counts) {
            list.push_back({views, prompt, count, chunk, branches});
          }
        }
      }
    }
  }
  return list;
}

void Model::capture(const Host& host, Parts& parts) {
  struct Part {
    GraphKind kind;
    const char* name;
    Graph& graph;
    std::vector<Variant> variants;
  };
  Part all[] = {{GraphKind::kInfer, "infer", parts.infer, {}},
                {GraphKind::kObserve, "observe", parts.observe, {}},
                {GraphKind::kVision, "vision", parts.vision, {}},
                {GraphKind::kPrefix, "prefix", parts.prefix, {}},
                {GraphKind::kAct, "act", parts.act, {}}};
  std::uint64_t total = 0, done = 0;
  for (Part& part : all) {
    part.variants = variants(part.kind, parts);
    total += part.variants.size();
  }
  host.progress("capture", FRT_PROGRESS_ITEMS, 0, total);
  const Engine* engine = parts.engine.get();
  for (Part& part : all) {
    const GraphKind kind = part.kind;
    part.graph = parts.context.create_graph(name_ + "." + part.name,
                                            static_cast<std::uint32_t>(part.variants.size()));
    for (const Variant& variant : part.variants) {
      part.graph.capture(policy_key(kind, variant),
                         [engine, kind, variant](const Recorder& recorder) {
                           record(*engine, kind, recorder, variant);
                         });
      host.progress("capture", FRT_PROGRESS_ITEMS, ++done, total);
    }
  }
}

frt_status Model::key(GraphKind kind, const frt_policy_shape& shape,
                      frt_shape_key& key) const noexcept {
  Variant v;
  const frt_status status = variant(shape, v);
  if (status == FRT_OK) key = policy_key(kind, v);
  return status;
}

frt_status Model::variant(const frt_policy_shape& shape, Variant& v) const noexcept {
  const Setup& setup = parts_->engine->setup();
  const auto given = [](std::uint32_t value, std::int64_t otherwise) {
    return value != 0 ? static_cast<std::int64_t>(value) : otherwise;
  };
  v.views = given(shape.views, setup.views);
  const std::int64_t prompt = given(shape.prompt, setup.max_prompt);
  v.steps = given(shape.steps, setup.steps.front());
  v.samples = given(shape.samples, 1);
  v.branches = given(shape.branches, setup.branches);
  if (v.views > setup.views || prompt > setup.max_prompt) return FRT_ERR_OUT_OF_RANGE;
  if (std::find(setup.steps.begin(), setup.steps.end(), v.steps) == setup.steps.end() ||
      v.samples > setup.samples || (v.branches != 1 && v.branches != setup.branches)) {
    return FRT_ERR_NO_VARIANT;
  }
  if (v.samples > 1) v.samples = setup.samples;
  v.prompt =
      *std::lower_bound(parts_->options.prompts.begin(), parts_->options.prompts.end(), prompt);
  return FRT_OK;
}

// ---- control ---------------------------------------------------------------------------------

void Model::set_guidance(std::span<const float> strengths, frt_stream stream) {
  Parts& own = parts();
  const Setup& setup = own.engine->setup();
  if (setup.branches == 1) {
    throw Error(FRT_ERR_UNSUPPORTED,
                "this model has no guidance; load the checkpoint with the plugin frt.recap_cfg");
  }
  const auto each = static_cast<std::size_t>(setup.branches - 1);
  const auto all = each * static_cast<std::size_t>(setup.max_steps());
  if (strengths.size() != each && strengths.size() != all) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "set_guidance: " + std::to_string(strengths.size()) +
                                              " strengths, expected " + std::to_string(each) +
                                              " or " + std::to_string(all));
  }
  for (const float beta : strengths) {
    if (!std::isfinite(beta)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "set_guidance: a strength is NaN or infinite");
    }
    if (beta < 1) {
      throw Error(FRT_ERR_OUT_OF_RANGE,
                  "set_guidance: strength " + std::to_string(beta) +
                      " is below 1; at 1 the actions are those of the guided prompt alone, below "
                      "they would be drawn away from what the tag asks for");
    }
  }
  auto* memory = reinterpret_cast<float*>(own.control->begin());
  for (std::size_t i = 0; i < all; ++i) memory[i] = strengths[i % strengths.size()];
  const Staging::Part part = {own.engine->ports().beta.handle(), 0, 0, all * sizeof(float)};
  own.control->submit({&part, 1}, stream);
}

void Model::set_continuation(const frt_policy_previous& previous, frt_stream stream) {
  Parts& own = parts();
  const auto horizon = static_cast<std::size_t>(config_.horizon);
  const auto dim = static_cast<std::size_t>(config_.dims.action_dim);
  const auto refuse = [](frt_status status, const std::string& text) {
    throw Error(status, "set_continuation: " + text);
  };
  if (previous.mode > FRT_CONTINUE_CLEAN || previous.schedule > FRT_SCHEDULE_ZEROS) {
    refuse(FRT_ERR_INVALID_ARGUMENT, "unknown mode or schedule");
  }
  const bool none = previous.mode == FRT_CONTINUE_NONE;
  const std::size_t rows = none ? 0 : previous.rows;
  if (rows > horizon || (rows > 0 && !previous.actions)) {
    refuse(FRT_ERR_INVALID_ARGUMENT, std::to_string(rows) + " rows, expected at most " +
                                         std::to_string(horizon) + ", with their actions");
  }
  if (!none && previous.delay > rows) {
    refuse(FRT_ERR_OUT_OF_RANGE, "delay " + std::to_string(previous.delay) + " is more than the " +
                                     std::to_string(rows) + " rows there are");
  }
  if (previous.mode == FRT_CONTINUE_CLEAN && previous.delay > config_.max_delay) {
    refuse(FRT_ERR_UNSUPPORTED, "delay " + std::to_string(previous.delay) +
                                    ", but the policy was trained with at most " +
                                    std::to_string(config_.max_delay) +
                                    " (rtc_training_max_delay); use LOCKED or GUIDED");
  }
  for (std::size_t i = 0; i < rows * dim; ++i) {
    if (!std::isfinite(previous.actions[i])) {
      refuse(FRT_ERR_INVALID_ARGUMENT, "an action is NaN or infinite");
    }
  }
  frt_policy_continuation control{};
  std::vector<float> weights(horizon, 0.0f);
  if (previous.mode == FRT_CONTINUE_GUIDED) {
    control.guidance_cap = previous.guidance_cap > 0 ? previous.guidance_cap : kDefaultCap;
    weights = continuation_weights(
        previous.schedule, previous.delay,
        std::min<std::int64_t>(previous.execution_horizon, static_cast<std::int64_t>(rows)),
        config_.horizon);
  } else if (!none) {
    control.locked = static_cast<std::int32_t>(previous.delay);
    control.locked_clean = previous.mode == FRT_CONTINUE_CLEAN ? 1 : 0;
  }
  std::byte* memory = own.control->begin();
  const std::size_t chunk = horizon * dim * sizeof(float);
  std::memset(memory, 0, chunk);
  if (rows > 0) std::memcpy(memory, previous.actions, rows * dim * sizeof(float));
  std::memcpy(memory + chunk, weights.data(), horizon * sizeof(float));
  const std::size_t last = chunk + horizon * sizeof(float);
  std::memcpy(memory + last, &control, sizeof(control));
  const Ports& ports = own.engine->ports();
  const Staging::Part parts[] = {
      {ports.previous.handle(), 0, 0, chunk},
      {ports.previous_weights.handle(), 0, chunk, horizon * sizeof(float)},
      {ports.continuation.handle(), 0, last, sizeof(control)}};
  own.control->submit(parts, stream);
}

const FileDigests& Model::file_digests() const {
  if (file_digests_.empty()) file_digests_ = parts().source->digests();
  return file_digests_;
}

const std::vector<frt_fingerprint_field>& Model::fingerprint() {
  if (!fingerprint_.empty()) return fingerprint_;
  const Parts& own = parts();
  auto& fields = fingerprint_text_;
  fields.clear();
  fields.emplace_back("state", kStateVersion);
  fields.emplace_back("config", canonical_text(config_));
  if (synthetic_) {
    fields.emplace_back("weights", checkpoint_);
  } else {
    for (const auto& [file, digest] : file_digests()) {
      fields.emplace_back("weights:" + file, digest);
    }
  }
  if (!calibration_digest_.empty()) fields.emplace_back("calibration", calibration_digest_);
  fields.emplace_back("formats", formats_text_);
  fields.emplace_back("activations", dtype_name(own.precision.activation));
  fields.emplace_back("residual", dtype_name(own.precision.residual));
  fields.emplace_back("guidance", own.options.guidance == Guidance::kSerial ? "serial" : "fused");
  fields.emplace_back("layout", own.engine->state().canonical_text());
  for (const auto& [name, value] : fields) fingerprint_.push_back({name.c_str(), value.c_str()});
  return fingerprint_;
}

}  // namespace frt::pi05
