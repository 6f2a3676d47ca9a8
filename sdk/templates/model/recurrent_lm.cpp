// SPDX-License-Identifier: Apache-2.0
// acme.recurrent_lm: a language model on bytes with one recurrent layer. Per token:
//   x = table[token];  h = decay * h + x (acme.leaky_sum/1);  logits = head h + bias
// The weights come from a file (weights.hpp). The order here is that of a new model: options,
// weights on the device, state, buffers, recipe, role, tables.
#include "byte_tokenizer.hpp"
#include "leaky_sum.hpp"
#include "leaky_sum_kernel.hpp"
#include "line_chat.hpp"
#include "selftest.hpp"
#include "weights.hpp"

#include <frt/ops/dense.h>
#include <frt/ops/embed.h>
#include <frt/ops/sample.h>
#include <frt/role/lm_buffers.hpp>

#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <frt/model.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace acme {
namespace {

constexpr int32_t kTokens = static_cast<int32_t>(kVocabulary);
constexpr const char* kArchitecture = "one recurrent layer on bytes";

constexpr frt_config_option kOptions[] = {
    {"slots", FRT_CONFIG_INT, 0, "2", nullptr, 1, 64, "sequences that live at once"},
    {"context", FRT_CONFIG_SIZE, 0, "4k", nullptr, 16, 1 << 20, "tokens per sequence"},
    {"prefill_chunk", FRT_CONFIG_INT, 0, "32", nullptr, 1, 4096, "tokens read per replay"},
};
constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions, kOptions);

// ---- the model on a device -----------------------------------------------------------------

class RecurrentLm {
 public:
  // Without weights there is no device, either: only what needs no object is there.
  RecurrentLm() {
    info_.struct_size = sizeof(info_);
    info_.architecture = kArchitecture;
    info_.formats = "not loaded";
  }

  RecurrentLm(const frt::Context& context, const frt_state_v1* states,
              const frt_model_params& params)
      : RecurrentLm() {
    const frt::ConfigView config(params.config);
    context_ = context;
    slots_ = static_cast<uint32_t>(config.get_int("slots"));
    chunk_ = static_cast<uint32_t>(config.get_int("prefill_chunk"));
    rows_ = std::max(slots_, chunk_);
    role_.struct_size = sizeof(role_);
    role_.vocabulary = kVocabulary;
    role_.max_context = static_cast<uint32_t>(config.get_size("context"));
    role_.slots = slots_;
    role_.prefill_chunk = chunk_;
    role_.max_batch = slots_;
    leaky_sum_kernel_.emplace(context);
    frt::KernelSet()
        .add(select_tokens_, FRT_OP_SELECT_TOKENS)
        .add(count_tokens_, FRT_OP_COUNT_TOKENS)
        .add(embed_, FRT_OP_EMBED)
        .add(leaky_sum_, kLeakySum)
        .add(last_rows_, FRT_OP_LAST_ROWS)
        .add(dense_, FRT_OP_DENSE)
        .add(sample_, FRT_OP_SAMPLE)
        .resolve(context, frt::KernelTypes(FRT_DTYPE_F32), frt::kWeightF32,
                 leaky_sum_kernel_->owner());
    load(params.checkpoint);
    describe_state(states, params.name);
    allocate();
    capture();
    describe();
  }

  const frt_model_info& info() const { return info_; }
  const frt_lm_info& role() const { return role_; }
  const std::vector<frt_port>& ports() const { return ports_; }
  const std::vector<frt_model_graph>& graphs() const { return graphs_; }
  const frt_capsule_layout& capsule_layout() const { return layout_.table(); }
  frt_state capsule_state() const { return state_.handle(); }
  const std::vector<frt_fingerprint_field>& fingerprint() const { return fingerprint_; }

  frt_status selftest(const char* path, frt_selftest_report report, void* user) const {
    return run_selftest({context_, state_, buffers_, role_}, path, report, user);
  }

  const void* extension(std::string_view id) const noexcept;

 private:
  void load(const std::string& path) {
    const Weights weights = read_weights(path);
    const frt::Stream stream = context_.create_stream("load");
    const auto put = [&](const std::vector<float>& values, const char* name) {
      frt::Buffer buffer = context_.alloc(FRT_SPACE_DEVICE, values.size() * sizeof(float), name);
      buffer.upload(values, stream);
      weight_bytes_ += buffer.bytes();
      return buffer;
    };
    width_ = weights.width;
    digest_ = weights.digest;
    table_ = put(weights.table, "table");
    head_ = put(weights.head, "head");
    bias_ = put(weights.bias, "bias");
    decay_ = put(weights.decay, "decay");
  }

  // All that a slot knows, so that a capsule continues exactly: the recurrent state, the token that
  // was drawn and not read yet, and what the penalties count.
  void describe_state(const frt_state_v1* states, const std::string& name) {
    layout_.add_fixed("sum", FRT_DTYPE_F32, width() * sizeof(float));
    layout_.add_fixed("pending", FRT_DTYPE_I32, sizeof(int32_t));
    layout_.add_fixed("counts", FRT_DTYPE_U32, kVocabulary * sizeof(uint32_t));
    state_ = frt::State(states, context_, layout_.table(), slots_, name + ".state");
    auto* base = static_cast<std::byte*>(state_.info().pointer);
    slot_stride_ = static_cast<int64_t>(state_.info().slot_stride);
    sum_ = base + state_.region("sum");
    pending_ = base + state_.region("pending");
    counts_ = base + state_.region("counts");
  }

  uint64_t width() const { return static_cast<uint64_t>(width_); }

  // Rows that are padding are computed, too: zeros to begin with.
  void allocate() {
    const frt::Stream stream = context_.create_stream("zeros");
    buffers_ = frt::LmBuffers(context_, role_, stream);
    ids_ = buffers_.zeros<int32_t>(context_, "ids", rows_, stream);
    x_ = buffers_.zeros<float>(context_, "x", rows_ * width(), stream);
    h_ = buffers_.zeros<float>(context_, "h", rows_ * width(), stream);
    last_ = buffers_.zeros<float>(context_, "last", slots_ * width(), stream);
  }

  void capture() {
    prefill_ = context_.create_graph("prefill", 32);
    decode_ = context_.create_graph("decode", 32);
    frt::capture_buckets(prefill_, chunk_,
                         [this](const frt::Recorder& to, uint32_t rows) { step(to, 1, rows, 0); });
    frt::capture_buckets(decode_, slots_, [this](const frt::Recorder& to, uint32_t batch) {
      step(to, batch, 1, 1);
    });
  }

  // Reads `rows` tokens of each of `count` sequences, `generated` ones or a prompt's, and draws one
  // for each.
  void step(const frt::Recorder& to, uint32_t count, uint32_t rows, uint32_t generated) const {
    const frt_sequences sequences = buffers_.sequences(count, rows);

    frt_select_tokens_args select{};
    select.sequences = sequences;
    select.ids = buffers_.tokens.pointer<int32_t>();
    select.pending = pending_;
    select.pending_stride = slot_stride_;
    select.ids_out = ids_.pointer<int32_t>();
    select_tokens_(to, select);

    frt_count_tokens_args counting{};
    counting.generated = generated;
    counting.sequences = sequences;
    counting.ids = ids_.pointer<int32_t>();
    counting.vocabulary = kTokens;
    counting.counts = counts_;
    counting.slot_stride = slot_stride_;
    counting.restart = buffers_.starts.pointer<uint32_t>();
    count_tokens_(to, counting);

    frt_embed_args embed{};
    embed.y_dtype = FRT_DTYPE_F32;
    embed.rows = static_cast<int32_t>(count * rows);
    embed.ids = ids_.pointer<int32_t>();
    embed.table = matrix(table_);
    embed.y = x_.pointer();
    embed.y_stride = width_;
    embed_(to, embed);

    LeakySumArgs sum{};
    sum.width = width_;
    sum.sequences = sequences;
    sum.decay = decay_.pointer<float>();
    sum.x = x_.pointer<float>();
    sum.state = sum_;
    sum.slot_stride = slot_stride_;
    sum.y = h_.pointer<float>();
    leaky_sum_(to, sum);

    frt_last_rows_args last{};
    last.dtype = FRT_DTYPE_F32;
    last.sequences = sequences;
    last.width = width_;
    last.x = h_.pointer();
    last.x_stride = width_;
    last.y = last_.pointer();
    last.y_stride = width_;
    last_rows_(to, last);

    frt_dense_args head{};
    head.x_dtype = head.y_dtype = FRT_DTYPE_F32;
    head.rows = static_cast<int32_t>(count);
    head.x = last_.pointer();
    head.x_stride = width_;
    head.weight = matrix(head_);
    head.bias = bias_.pointer<float>();
    head.y = buffers_.logits.pointer();
    head.y_stride = kTokens;
    dense_(to, head);

    frt_sample_args sample = buffers_.sample_args(role_, sequences);
    sample.counts = counts_;
    sample.counts_stride = slot_stride_;
    sample.pending = pending_;
    sample.pending_stride = slot_stride_;
    sample_(to, sample);
  }

  frt_weight matrix(const frt::Buffer& values) const {
    frt_weight weight{};
    weight.format = frt::kWeightF32;
    weight.rows = kTokens;
    weight.cols = width_;
    weight.data = values.pointer();
    return weight;
  }

  void describe() {
    info_.formats = "f32 100 %";
    info_.parameters = weight_bytes_ / sizeof(float);
    info_.weight_bytes = weight_bytes_;
    info_.state_bytes = state_.info().slot_stride * slots_;
    info_.scratch_bytes = buffers_.bytes;

    role_.state = state_.handle();
    role_.prefill = prefill_;
    role_.decode = decode_;
    role_.decode_bytes_weights = weight_bytes_;
    role_.decode_bytes_state = 2 * width() * sizeof(float);
    role_.prefill_flops_token = 2 * width();

    const int64_t entries = slots_;
    ports_ = {frt::make_port("tokens", "ids to read; -1: the pending one", buffers_.tokens,
                             FRT_PORT_INPUT, FRT_DTYPE_I32, {rows_}),
              frt::make_port("next_tokens", "ids that were drawn", buffers_.next_tokens,
                             FRT_PORT_OUTPUT, FRT_DTYPE_I32, {entries}),
              frt::make_port("logits", "of the last row of each sequence", buffers_.logits,
                             FRT_PORT_OUTPUT, FRT_DTYPE_F32, {entries, kTokens})};
    graphs_ = {{"prefill", "tokens of one sequence; key: how many fit", prefill_},
               {"decode", "one token each; key: how many sequences fit", decode_}};
    canonical_ = layout_.canonical_text();
    // Raise `state` when a region of the same shape begins to mean something else: a rebuild alone
    // refuses no capsule of before.
    fingerprint_ = {{"state", "1"}, {"weights", digest_.c_str()}, {"layout", canonical_.c_str()}};
  }

  frt::Context context_;
  std::optional<LeakySumKernel> leaky_sum_kernel_;  // goes after the graphs
  frt::Kernel<frt_select_tokens_args> select_tokens_;
  frt::Kernel<frt_count_tokens_args> count_tokens_;
  frt::Kernel<frt_embed_args> embed_;
  frt::Kernel<LeakySumArgs> leaky_sum_;
  frt::Kernel<frt_last_rows_args> last_rows_;
  frt::Kernel<frt_dense_args> dense_;
  frt::Kernel<frt_sample_args> sample_;
  int32_t width_ = 0;
  uint32_t slots_ = 0, chunk_ = 0, rows_ = 0;
  uint64_t weight_bytes_ = 0;
  frt::CapsuleLayout layout_;
  frt::State state_;
  void *sum_ = nullptr, *pending_ = nullptr, *counts_ = nullptr;  // of slot 0
  int64_t slot_stride_ = 0;                                       // bytes
  frt::Buffer table_, head_, decay_, bias_;
  frt::LmBuffers buffers_;
  frt::Buffer ids_, x_, h_, last_;
  frt::Graph prefill_, decode_;
  frt_model_info info_{};
  frt_lm_info role_{};
  std::vector<frt_port> ports_;
  std::vector<frt_model_graph> graphs_;
  std::string digest_, canonical_;
  std::vector<frt_fingerprint_field> fingerprint_;
};

// ---- tables --------------------------------------------------------------------------------

constexpr frt_role_lm_v1 kRole = frt::lm_table<RecurrentLm>();
constexpr frt_capsule_v1 kCapsule = frt::capsule_table<RecurrentLm>();
constexpr frt_selftest_v1 kSelftest = {
    sizeof(frt_selftest_v1), 0,
    [](frt_model model, const char* path, frt_selftest_report report, void* user,
       frt_error* error) -> frt_status {
      return frt::guard(
          error, [&] { return frt::object<RecurrentLm>(model)->selftest(path, report, user); });
    }};

const void* RecurrentLm::extension(std::string_view id) const noexcept {
  if (id == FRT_EXT_TOKENIZER) return &kByteTokenizer;
  if (id == FRT_EXT_CHAT) return &kLineChat;
  if (!state_) return nullptr;
  if (id == FRT_EXT_ROLE_LM) return &kRole;
  if (id == FRT_EXT_CAPSULE) return &kCapsule;
  if (id == FRT_EXT_SELFTEST) return &kSelftest;
  return nullptr;
}

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)),
        states_(host.require<frt_state_v1>(FRT_EXT_STATE)) {}

  std::unique_ptr<RecurrentLm> create(const frt_model_params& params) const {
    if (params.flags & FRT_MODEL_WITHOUT_WEIGHTS) return std::make_unique<RecurrentLm>();
    return std::make_unique<RecurrentLm>(frt::Context(exec_, params.context), states_, params);
  }

  const void* extension(std::string_view id) noexcept {
    return id == FRT_EXT_MODEL ? &kModel : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  static constexpr frt_model_v1 kModel = frt::model_table<Plugin, RecurrentLm>();
  const frt_exec_v1* exec_;
  const frt_state_v1* states_;
};

}  // namespace
}  // namespace acme

FRT_PLUGIN(acme::Plugin, model, "acme.recurrent_lm", "0.1.0",
           "summary = \"a recurrent language model with an operator of its own\"\n");
