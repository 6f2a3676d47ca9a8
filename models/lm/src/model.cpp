// SPDX-License-Identifier: Apache-2.0
// Loading, in order: configuration and tokenizer, weights, state, working memory, graphs. Memory is
// checked before each large step, so that a model that does not fit says so with numbers instead of
// failing half-way.
#include <frt/lm/model.hpp>

#include <algorithm>
#include <cstdio>
#include <frt/error.hpp>
#include <frt/model.hpp>

#include <frt/lm/checkpoint_source.hpp>
#include <frt/lm/synthetic_source.hpp>

namespace frt::lm {
namespace {

// Raised when the same regions begin to mean something else: capsules of before are refused then.
constexpr const char* kStateVersion = "1";
constexpr std::int64_t kLargestAutoContext = 32768;
constexpr std::int64_t kSmallestAutoContext = 256;

// Pages for capsules: as the user says, or as many as one slot has, but at most half of what is
// left.
std::int64_t spare_pages(const Options& options, const StateLayout& layout, std::uint64_t left) {
  if (options.capsule_pages) return *options.capsule_pages;
  if (layout.page_bytes() == 0) return 0;
  return std::min(layout.slot_pages(), static_cast<std::int64_t>(left / 2 / layout.page_bytes()));
}

std::string size_text(std::uint64_t bytes) {
  char text[32];
  if (bytes < (std::uint64_t{1} << 30)) {
    std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  } else {
    std::snprintf(text, sizeof(text), "%.2f GiB", static_cast<double>(bytes) / (1 << 30));
  }
  return text;
}

}  // namespace

frt_shape_key step_key(StepKind kind, std::int32_t count, std::int32_t rows) {
  return frt_key_pack(static_cast<std::uint16_t>(kind), static_cast<std::uint16_t>(count),
                      static_cast<std::uint16_t>(rows), 0);
}

Model::Model(const Host& host, std::unique_ptr<const Architecture> architecture,
             const frt_model_params& params)
    : name_(params.name ? params.name : ""),
      checkpoint_(params.checkpoint ? params.checkpoint : ""),
      architecture_(std::move(architecture)),
      synthetic_(architecture_->synthetic()) {
  if (!synthetic_ &&
      std::filesystem::exists(std::filesystem::path(checkpoint_) / "tokenizer.json")) {
    tokenizer_ = models::Tokenizer::load(checkpoint_);
    const Chat& chat = architecture_->chat();
    if (!chat.follows_checkpoint()) {
      chat_template_ = ChatTemplate(checkpoint_, chat.known_templates(), chat.name());
      if (takes_builtin_chat_template(ConfigView(params.config))) chat_template_.accept();
    }
  }
  architecture_text_ = architecture_->describe();
  info_.struct_size = sizeof(info_);
  info_.architecture = architecture_text_.c_str();
  info_.formats = formats_text_.c_str();
  if (!(params.flags & FRT_MODEL_WITHOUT_WEIGHTS)) load(host, params);
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

void Model::load(const Host& host, const frt_model_params& params) {
  auto parts = std::make_unique<Parts>();
  parts->context = Context(host.require<frt_exec_v1>(FRT_EXT_EXEC), params.context);
  parts->options = read_options(ConfigView(params.config), config());
  parts->stream = parts->context.create_stream("lm");
  load_weights(host, *parts);
  make_state(host, *parts);
  capture(host, *parts);
  parts_ = std::move(parts);
  describe();
}

void Model::load_weights(const Host& host, Parts& parts) {
  auto memory = std::make_unique<DeviceMemory>(parts.context);
  std::unique_ptr<WeightSource> source;
  if (synthetic_) {
    source = std::make_unique<SyntheticSource>(host, config(), synthetic_->tensors,
                                               synthetic_->format, synthetic_->seed, *memory);
  } else {
    files_ = models::Checkpoint::open(checkpoint_);
    source = std::make_unique<CheckpointSource>(host, *files_, config(), *memory);
  }
  const Speculation speculation = parts.options.speculation;
  if (speculation == Speculation::kOn && !source->has_mtp()) {
    throw Error(FRT_ERR_NOT_FOUND,
                "speculation = \"on\", but " + checkpoint_ +
                    " has no draft head (tensors mtp.*); set it to \"auto\" or \"off\"");
  }
  bool with_mtp = speculation != Speculation::kOff && source->has_mtp();
  if (with_mtp && config().mtp_layers > 1) {
    const std::string text = "mtp_num_hidden_layers is " + std::to_string(config().mtp_layers) +
                             ", but only draft heads of one layer can be run";
    if (speculation == Speculation::kOn) throw Error(FRT_ERR_UNSUPPORTED, text);
    host.log(FRT_LOG_WARNING, text + "; speculation is off");
    with_mtp = false;
  }
  if (with_mtp && speculation == Speculation::kAuto) {
    const std::string lacking = lacking_for_drafts(parts, source->only_f32(true));
    if (!lacking.empty()) host.log(FRT_LOG_INFO, lacking + "; speculation is off");
    with_mtp = lacking.empty();
  }
  if (!with_mtp && parts.options.draft_vocabulary != 0) {
    host.log(FRT_LOG_WARNING, "draft_vocabulary is set, but no drafts are made; leave it out");
  }
  const std::uint64_t weight_bytes = source->device_bytes(with_mtp);
  const Precision precision = choose_precision(parts.options, source->only_f32(with_mtp));
  check_memory(parts, precision, with_mtp, weight_bytes);
  memory->reserve(weight_bytes);
  parts.weights = architecture_->build_weights(*source, std::move(memory), with_mtp);
  parts.weights->draft_head = parts.weights->head;
  if (parts.options.draft_vocabulary != 0) {
    parts.weights->draft_head.rows = parts.options.draft_vocabulary;
  }
  parts.precision =
      choose_precision(parts.options, parts.weights->formats == WeightFormats(kWeightF32));
}

// Why the backend cannot run drafts although it may run the rest; empty: it can.
std::string Model::lacking_for_drafts(const Parts& parts, bool only_f32) const {
  const std::vector<std::string> plain = architecture_->operators(false);
  std::vector<std::string> needs = architecture_->operators(true);
  std::erase_if(needs, [&](const std::string& name) {
    return std::ranges::find(plain, name) != plain.end();
  });
  frt_error error{};
  const Precision precision = choose_precision(parts.options, only_f32);
  const frt_status status = guard(&error, [&] {
    Operators(parts.context, KernelTypes(precision.activation), WeightFormats(kWeightF32), needs);
  });
  return status == FRT_OK ? "" : error.message;
}

StepSizes Model::step_sizes(const Options& options, bool with_mtp) const {
  return {options.prefill_chunk, options.max_batch, with_mtp};
}

// What slots of `context` positions and the working memory of the largest step take.
std::uint64_t Model::running_bytes(const Options& options, const Precision& precision,
                                   std::int64_t context, bool with_mtp) const {
  const StepSizes sizes = step_sizes(options, with_mtp);
  const std::uint64_t scratch =
      architecture_->make_activations(with_mtp)->lay_out(nullptr, config(), precision, sizes);
  const auto layout = architecture_->make_layout(precision, context, with_mtp, options.page_rows);
  layout->set_spare_pages(options.capsule_pages.value_or(0));
  return layout->arena_bytes(options.slots) + scratch + port_bytes(config(), sizes);
}

// Refuses a model that cannot fit before the first byte is allocated.
void Model::check_memory(const Parts& parts, const Precision& precision, bool with_mtp,
                         std::uint64_t weight_bytes) const {
  const Options& options = parts.options;
  const frt_context_info device = parts.context.info();
  const std::int64_t context = options.max_context != 0
                                   ? options.max_context
                                   : std::min(config().max_positions, kSmallestAutoContext);
  const std::uint64_t running = running_bytes(options, precision, context, with_mtp);
  const std::uint64_t needed = weight_bytes + running;
  if (needed <= device.memory_free) return;
  std::string text = "model '" + name_ + "': ";
  if (weight_bytes > 0) text += "the weights need " + size_text(weight_bytes) + ", ";
  throw Error(FRT_ERR_OUT_OF_MEMORY,
              text + std::to_string(options.slots) + " slots of " + std::to_string(context) +
                  " positions need " + size_text(running) + " with working memory; " +
                  device.device->name + " has " + size_text(device.memory_free) + " free, " +
                  size_text(needed - device.memory_free) +
                  " too few; choose a smaller format, lower slots, max_context, "
                  "capsule_pages or prefill_chunk, "
                  "set kv = \"fp8\", or free memory");
}

void Model::make_state(const Host& host, Parts& parts) {
  const Options& options = parts.options;
  const bool with_mtp = parts.weights->has_draft();
  const StepSizes sizes = step_sizes(options, with_mtp);
  const auto need = [&](std::int64_t context) {
    return running_bytes(options, parts.precision, context, with_mtp);
  };
  const std::uint64_t available = parts.context.info().memory_free;
  std::int64_t context = options.max_context;
  if (context == 0) {
    context = std::min(config().max_positions, kLargestAutoContext);
    while (context > kSmallestAutoContext && need(context) > available / 2) context /= 2;
  }
  check_memory(parts, parts.precision, with_mtp, 0);
  parts.max_context = context;
  parts.layout = architecture_->make_layout(parts.precision, context, with_mtp, options.page_rows);
  parts.layout->set_spare_pages(spare_pages(options, *parts.layout, available - need(context)));
  parts.state = State(host.require<frt_state_v1>(FRT_EXT_STATE), parts.context,
                      parts.layout->table(), static_cast<std::uint32_t>(options.slots), name_);
  parts.state_map = architecture_->map_state(parts.state, context, with_mtp);
  parts.ports = make_ports(parts.context, config(), sizes);
  parts.activations = architecture_->make_activations(with_mtp);
  place_activations(parts.context, config(), parts.precision, sizes, *parts.activations);
  // Ports and working memory start as zeros: entries of length 0 and padding rows are computed on.
  const Recorder recorder(parts.stream);
  const Ports& ports = parts.ports;
  const std::initializer_list<const Buffer*> buffers = {&ports.tokens,
                                                        &ports.slot_ids,
                                                        &ports.positions,
                                                        &ports.lengths,
                                                        &ports.starts,
                                                        &ports.sampling,
                                                        &ports.mask,
                                                        &ports.bias,
                                                        &ports.next_tokens,
                                                        &ports.log_probabilities,
                                                        &ports.logits,
                                                        &ports.candidates,
                                                        &ports.stops,
                                                        &ports.accepted,
                                                        &parts.activations->memory};
  for (const Buffer* buffer : buffers) {
    if (*buffer) recorder.fill(*buffer, 0, buffer->bytes(), 0);
  }
  parts.stream.sync();
}

void Model::capture(const Host& host, Parts& parts) {
  const Options& options = parts.options;
  const bool with_mtp = parts.weights->has_draft();
  parts.operators = Operators(parts.context, KernelTypes(parts.precision.activation),
                              parts.weights->formats, architecture_->operators(with_mtp));
  parts.recipe = architecture_->make_recipe(*parts.weights, parts.operators, parts.precision,
                                            *parts.state_map, *parts.activations, parts.ports);
  parts.prefill_sizes = buckets(options.prefill_chunk);
  parts.decode_sizes = buckets(options.max_batch);

  // A variant of draft and verify for every number of drafts whose rows are few enough.
  std::vector<std::pair<std::int32_t, std::int32_t>> checks;  // entries, rows of each
  for (const std::int32_t batch : parts.decode_sizes) {
    for (std::int32_t rows = 2; with_mtp && rows <= options.max_drafts + 1; ++rows) {
      if (batch * rows <= kVerifyRows) checks.emplace_back(batch, rows);
    }
  }
  const std::uint64_t total =
      parts.prefill_sizes.size() + parts.decode_sizes.size() + 2 * checks.size();
  std::uint64_t done = 0;
  host.progress("capture", FRT_PROGRESS_ITEMS, 0, total);
  const Recipe* recipe = parts.recipe.get();
  const auto create = [&](const char* kind, std::size_t variants) {
    return parts.context.create_graph(name_ + "." + kind, static_cast<std::uint32_t>(variants));
  };
  const auto advance = [&] { host.progress("capture", FRT_PROGRESS_ITEMS, ++done, total); };

  parts.prefill = create("prefill", parts.prefill_sizes.size());
  for (const std::int32_t rows : parts.prefill_sizes) {
    parts.prefill.capture(step_key(StepKind::kPrefill, 1, rows),
                          [=](const Recorder& recorder) { recipe->prefill(recorder, rows); });
    advance();
  }
  parts.decode = create("decode", parts.decode_sizes.size());
  for (const std::int32_t batch : parts.decode_sizes) {
    parts.decode.capture(step_key(StepKind::kDecode, batch, 1),
                         [=](const Recorder& recorder) { recipe->decode(recorder, batch); });
    advance();
  }
  if (!with_mtp) return;
  parts.draft = create("draft", checks.size());
  parts.verify = create("verify", checks.size());
  for (const auto& [batch, rows] : checks) {
    parts.draft.capture(step_key(StepKind::kDraft, batch, rows),
                        [=, batch = batch, rows = rows](const Recorder& recorder) {
                          recipe->draft(recorder, batch, rows - 1);
                        });
    advance();
    parts.verify.capture(step_key(StepKind::kVerify, batch, rows),
                         [=, batch = batch, rows = rows](const Recorder& recorder) {
                           recipe->verify(recorder, batch, rows);
                         });
    advance();
  }
}

void Model::describe() {
  Parts& parts = *parts_;
  const WeightTotals& totals = parts.weights->totals;
  formats_text_ = describe_formats(totals);
  info_.formats = formats_text_.c_str();
  info_.parameters = totals.parameters;
  info_.weight_bytes = totals.bytes;
  info_.state_bytes = parts.layout->arena_bytes(parts.options.slots);
  info_.scratch_bytes = parts.activations->memory.bytes() +
                        port_bytes(config(), step_sizes(parts.options, has_draft()));

  const Ports& ports = parts.ports;
  const std::int64_t batch = parts.options.max_batch;
  const std::int64_t rows = step_sizes(parts.options, has_draft()).out_rows();
  const auto add = [&](const char* name, const char* doc, const Buffer& buffer, bool input,
                       frt_dtype dtype, std::initializer_list<std::int64_t> shape) {
    const uint32_t direction = input ? FRT_PORT_INPUT : FRT_PORT_OUTPUT;
    port_table_.push_back(make_port(name, doc, buffer, direction, dtype, shape));
  };
  add("tokens", "token ids to feed; -1 in decode: the slot's pending token", ports.tokens, true,
      FRT_DTYPE_I32, {std::max(parts.options.prefill_chunk, batch)});
  add("slots", "slot of each entry", ports.slot_ids, true, FRT_DTYPE_I32, {batch});
  add("positions", "tokens before this step, per entry", ports.positions, true, FRT_DTYPE_I32,
      {batch});
  add("lengths", "tokens to feed, per entry", ports.lengths, true, FRT_DTYPE_I32, {batch});
  add("starts", "1: a new request begins with this step, per entry", ports.starts, true,
      FRT_DTYPE_U32, {batch});
  add("sampling", "frt_sampling_params, per entry", ports.sampling, true, FRT_DTYPE_U8,
      {batch, static_cast<std::int64_t>(sizeof(frt_sampling_params))});
  add("mask", "bits of allowed tokens, per row", ports.mask, true, FRT_DTYPE_U32,
      {rows, ports.mask_words});
  add("bias", "frt_logit_bias, bias_capacity per entry", ports.bias, true, FRT_DTYPE_U8,
      {batch, kBiasIds * static_cast<std::int64_t>(sizeof(frt_logit_bias))});
  add("next_tokens", "the sampled token, per row", ports.next_tokens, false, FRT_DTYPE_I32, {rows});
  add("log_probabilities", "of next_tokens, natural logarithm", ports.log_probabilities, false,
      FRT_DTYPE_F32, {rows});
  add("logits", "of the last input token, per entry; in verify of every row", ports.logits, false,
      FRT_DTYPE_F32, {rows, config().vocabulary});

  graph_table_.push_back({"prefill", "feeds tokens of one sequence", parts.prefill});
  graph_table_.push_back({"decode", "feeds one token of each sequence", parts.decode});
  if (has_draft()) {
    add("candidates", "tokens that verify feeds, draft writes them", ports.candidates, true,
        FRT_DTYPE_I32, {kVerifyRows});
    add("stops", "drafts that verify does not accept, per entry; -1: none", ports.stops, true,
        FRT_DTYPE_I32, {batch, kStopIds});
    add("accepted", "drafts that verify accepted, per entry", ports.accepted, false, FRT_DTYPE_I32,
        {batch});
    graph_table_.push_back({"draft", "proposes tokens of each sequence", parts.draft});
    graph_table_.push_back({"verify", "feeds the proposals that are right", parts.verify});
  }

  frt_lm_info& lm = lm_info_;
  lm.struct_size = sizeof(lm);
  lm.vocabulary = static_cast<std::uint32_t>(config().vocabulary);
  lm.max_context = static_cast<std::uint32_t>(parts.max_context);
  lm.slots = static_cast<std::uint32_t>(parts.options.slots);
  lm.prefill_chunk = static_cast<std::uint32_t>(parts.options.prefill_chunk);
  lm.max_batch = static_cast<std::uint32_t>(batch);
  lm.has_draft = has_draft() ? 1 : 0;
  lm.state = parts.state.handle();
  lm.prefill = parts.prefill;
  lm.decode = parts.decode;
  lm.draft = parts.draft;
  if (has_draft()) {
    lm.max_drafts = static_cast<std::uint32_t>(parts.options.max_drafts);
    lm.verify = parts.verify;
    lm.candidates = ports.candidates;
    lm.stops = ports.stops;
    lm.stop_capacity = kStopIds;
    lm.accepted = ports.accepted;
    lm.max_rows = kVerifyRows;
  }
  lm.tokens = ports.tokens;
  lm.slot_ids = ports.slot_ids;
  lm.positions = ports.positions;
  lm.lengths = ports.lengths;
  lm.starts = ports.starts;
  lm.sampling = ports.sampling;
  lm.mask = ports.mask;
  lm.bias = ports.bias;
  lm.bias_capacity = kBiasIds;
  lm.next_tokens = ports.next_tokens;
  lm.log_probabilities = ports.log_probabilities;
  lm.logits = ports.logits;
  lm.mask_words = static_cast<std::uint64_t>(ports.mask_words);
  lm.decode_bytes_weights = totals.decode_bytes;
  lm.experts = static_cast<std::uint32_t>(config().experts);
  lm.experts_per_token = static_cast<std::uint32_t>(config().experts_per_token);
  lm.decode_bytes_expert = totals.expert_bytes;
  lm.decode_bytes_state = parts.layout->step_bytes();
  lm.decode_bytes_position = static_cast<std::uint64_t>(architecture_->attention_layers()) * 2 *
                             bytes_of(parts.precision.cache, config().kv_width());
  lm.prefill_flops_token = totals.token_flops + architecture_->token_flops();
}

const std::vector<std::pair<std::string, std::string>>& Model::fingerprint() {
  if (!fingerprint_.empty()) return fingerprint_;
  const Parts& own = parts();
  std::vector<std::pair<std::string, std::string>> fields = {
      {"state", kStateVersion}, {"config", architecture_->canonical_text()}};
  if (synthetic_) {
    fields.emplace_back("weights", checkpoint_);
  } else {
    for (const auto& [file, digest] : files_->digests()) {
      fields.emplace_back("weights:" + file, digest);
    }
  }
  fields.emplace_back("activations", dtype_name(own.precision.activation));
  fields.emplace_back("residual", dtype_name(own.precision.residual));
  fields.emplace_back("kv", dtype_name(own.precision.cache));
  fields.emplace_back("speculation", own.weights->has_draft() ? "on" : "off");
  fields.emplace_back("chunk", std::to_string(own.options.prefill_chunk));
  fields.emplace_back("layout", own.layout->canonical_text());
  fingerprint_ = std::move(fields);
  return fingerprint_;
}

}  // namespace frt::lm
