// SPDX-License-Identifier: Apache-2.0
// test.scripted: the language model of script.hpp. A slot keeps the tokens it was fed as rows, so
// that capsules, forks and rewinding work as with a KV cache. One step:
//   the ids of the batch -> rows of their slots -> Script -> logits -> frt.sample
#include <frt/ops/embed.h>
#include <frt/ops/sample.h>
#include <frt/role/lm_buffers.hpp>

#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <frt/model.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "script.hpp"
#include "tables.hpp"

namespace scripted {
namespace {

constexpr const char* kArchitecture = "says what a script gives";
constexpr float kCertain = 1e9f;  // a logit that no penalty makes up for

constexpr frt_config_option kOptions[] = {
    {"script", FRT_CONFIG_STRING, 0, "", nullptr, 0, 0,
     "JSON of what is said, or the path of a file of it; empty: an echo"},
    {"slots", FRT_CONFIG_INT, 0, "4", nullptr, 1, 256, "sequences that live at once"},
    {"max_batch", FRT_CONFIG_INT, 0, "0", nullptr, 0, 256, "of one step; 0: as many as slots"},
    {"max_context", FRT_CONFIG_SIZE, 0, "256k", nullptr, 16, 1 << 24, "tokens per sequence"},
    {"prefill_chunk", FRT_CONFIG_INT, 0, "512", nullptr, 1, 65536, "tokens read per step"},
    {"token_delay_us", FRT_CONFIG_INT, 0, "0", nullptr, 0, 1e7, "microseconds of a decode step"},
    {"prefill_delay_us", FRT_CONFIG_INT, 0, "0", nullptr, 0, 1e7,
     "microseconds to read a token of a prompt"},
    {"create_seconds", FRT_CONFIG_INT, 0, "0", nullptr, 0, 3600, "that making the model takes"},
    {"destroy_seconds", FRT_CONFIG_INT, 0, "0", nullptr, 0, 3600, "that destroying it takes"},
    {"loads_after", FRT_CONFIG_STRING, 0, "", nullptr, 0, 0,
     "a file: the model is not loaded before it is there; empty: at once"},
    {"stall_file", FRT_CONFIG_STRING, 0, "", nullptr, 0, 0,
     "made when a step stalls, or when create_seconds or destroy_seconds begin; empty: none"},
};
constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions, kOptions);

class ScriptedLm {
 public:
  // Without weights there is no device, either: only what needs no object is there.
  ScriptedLm() {
    info_.struct_size = sizeof(info_);
    info_.architecture = kArchitecture;
    info_.formats = "none";
  }

  ScriptedLm(const frt::Context& context, const frt_state_v1* states, const std::string& name,
             const frt::ConfigView& config)
      : ScriptedLm() {
    context_ = context;
    if (std::string_view(context.info().native_kind) != "cpu") {
      throw frt::Error(FRT_ERR_UNSUPPORTED,
                       "test.scripted runs on the CPU alone; set device = \"cpu\"");
    }
    const std::filesystem::path awaited = std::string(config.get_string("loads_after"));
    while (!awaited.empty() && !std::filesystem::exists(awaited)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    script_ = std::make_unique<Script>(std::string(config.get_string("script")),
                                       static_cast<uint64_t>(config.get_int("token_delay_us")));
    prefill_delay_us_ = static_cast<uint64_t>(config.get_int("prefill_delay_us"));
    stall_file_ = std::string(config.get_string("stall_file"));
    stall(std::chrono::seconds(config.get_int("create_seconds")));
    destroy_time_ = std::chrono::seconds(config.get_int("destroy_seconds"));
    slots_ = static_cast<uint32_t>(config.get_int("slots"));
    const auto batch = static_cast<uint32_t>(config.get_int("max_batch"));
    batch_ = batch == 0 ? slots_ : batch;
    chunk_ = static_cast<uint32_t>(config.get_int("prefill_chunk"));
    rows_ = std::max(batch_, chunk_);
    context_rows_ = config.get_size("max_context");
    role_.struct_size = sizeof(role_);
    role_.vocabulary = kVocabulary;
    role_.max_context = static_cast<uint32_t>(context_rows_);
    role_.slots = slots_;
    role_.prefill_chunk = chunk_;
    role_.max_batch = batch_;
    frt::KernelSet()
        .add(select_tokens_, FRT_OP_SELECT_TOKENS)
        .add(count_tokens_, FRT_OP_COUNT_TOKENS)
        .add(sample_, FRT_OP_SAMPLE)
        .resolve(context, frt::KernelTypes(FRT_DTYPE_F32), frt::kWeightF32);
    describe_state(states, name);
    allocate();
    capture();
    describe();
  }

  ~ScriptedLm() { stall(destroy_time_); }
  ScriptedLm(const ScriptedLm&) = delete;
  ScriptedLm& operator=(const ScriptedLm&) = delete;

  const frt_model_info& info() const { return info_; }
  const frt_lm_info& role() const { return role_; }
  const std::vector<frt_port>& ports() const { return ports_; }
  const std::vector<frt_model_graph>& graphs() const { return graphs_; }
  const frt_capsule_layout& capsule_layout() const { return layout_.table(); }
  frt_state capsule_state() const { return state_.handle(); }
  const std::vector<frt_fingerprint_field>& fingerprint() const { return fingerprint_; }
  const void* extension(std::string_view id) const noexcept;

  // A fault that struck fails the step that asks first.
  bool take_fault() const noexcept { return fault_.exchange(false); }

 private:
  void say_that_it_stalls() const {
    if (!stall_file_.empty()) std::ofstream{stall_file_};
  }
  void stall(std::chrono::seconds time) const {
    if (time.count() == 0) return;
    say_that_it_stalls();
    std::this_thread::sleep_for(time);
  }

  void describe_state(const frt_state_v1* states, const std::string& name) {
    layout_.add_fixed("pending", FRT_DTYPE_I32, sizeof(int32_t));
    layout_.add_fixed("prompt", FRT_DTYPE_I32, sizeof(int32_t));
    layout_.add_fixed("counts", FRT_DTYPE_U32, kVocabulary * sizeof(uint32_t));
    layout_.add_rows("ids", FRT_DTYPE_I32, sizeof(int32_t), context_rows_);
    state_ = frt::State(states, context_, layout_.table(), slots_, name + ".state");
    auto* base = static_cast<std::byte*>(state_.info().pointer);
    slot_stride_ = static_cast<int64_t>(state_.info().slot_stride);
    pending_ = base + state_.region("pending");
    prompt_ = base + state_.region("prompt");
    counts_ = base + state_.region("counts");
    history_ = base + state_.region("ids");
  }

  void allocate() {
    const frt::Stream stream = context_.create_stream("zeros");
    buffers_ = frt::LmBuffers(context_, role_, stream);
    ids_ = buffers_.zeros<int32_t>(context_, "ids", rows_, stream);
  }

  void capture() {
    prefill_ = context_.create_graph("prefill", 32);
    decode_ = context_.create_graph("decode", 32);
    frt::capture_buckets(prefill_, chunk_, [this](const frt::Recorder& to, uint32_t rows) {
      step(to, 1, rows, false);
    });
    frt::capture_buckets(decode_, batch_, [this](const frt::Recorder& to, uint32_t batch) {
      step(to, batch, 1, true);
    });
  }

  void step(const frt::Recorder& to, uint32_t count, uint32_t rows, bool generated) const {
    const frt_sequences sequences = buffers_.sequences(count, rows);

    frt_select_tokens_args select{};
    select.sequences = sequences;
    select.ids = buffers_.tokens.pointer<int32_t>();
    select.pending = pending_;
    select.pending_stride = slot_stride_;
    select.ids_out = ids_.pointer<int32_t>();
    select_tokens_(to, select);

    frt_count_tokens_args counting{};
    counting.generated = generated ? 1 : 0;
    counting.sequences = sequences;
    counting.ids = ids_.pointer<int32_t>();
    counting.vocabulary = static_cast<int32_t>(kVocabulary);
    counting.counts = counts_;
    counting.slot_stride = slot_stride_;
    counting.restart = buffers_.starts.pointer<uint32_t>();
    count_tokens_(to, counting);

    context_.call(to.backend_stream(), [this, sequences, generated] { say(sequences, generated); });

    frt_sample_args sample = buffers_.sample_args(role_, sequences);
    sample.counts = counts_;
    sample.counts_stride = slot_stride_;
    sample.pending = pending_;
    sample.pending_stride = slot_stride_;
    sample_(to, sample);
  }

  // On the stream's thread. A batch takes as long as its slowest sequence.
  void say(const frt_sequences& sequences, bool generated) const {
    uint64_t delay_us = 0;
    for (int32_t b = 0; b < sequences.count; ++b) {
      const int32_t length = sequences.length[b];
      if (length <= 0) continue;
      const int64_t slot_at = sequences.slot[b] * slot_stride_;
      auto* history = reinterpret_cast<int32_t*>(history_ + slot_at);
      auto* prompt = reinterpret_cast<int32_t*>(prompt_ + slot_at);
      const int32_t first = sequences.position[b];
      std::copy_n(ids_.pointer<int32_t>() + static_cast<int64_t>(b) * sequences.rows, length,
                  history + first);
      if (!generated) {
        *prompt = first + length;
        delay_us += prefill_delay_us_ * static_cast<uint64_t>(length);
      }
      const Next next = script_->next({history, static_cast<std::size_t>(first + length)},
                                      static_cast<std::size_t>(*prompt), generated);
      if (generated) delay_us = std::max(delay_us, next.delay_us);
      if (next.fails) fault_ = true;
      if (next.stalls) say_that_it_stalls();
      float* logits = buffers_.logits.pointer<float>() + static_cast<int64_t>(b) * kVocabulary;
      std::fill_n(logits, kVocabulary, 0.0f);
      logits[next.token] = kCertain;
    }
    if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
  }

  void describe() {
    info_.state_bytes = state_.info().slot_stride * slots_;
    info_.scratch_bytes = buffers_.bytes;

    role_.state = state_.handle();
    role_.prefill = prefill_;
    role_.decode = decode_;
    role_.decode_bytes_state = sizeof(int32_t);
    role_.decode_bytes_position = sizeof(int32_t);

    const int64_t entries = batch_;
    ports_ = {frt::make_port("tokens", "ids to read; -1: the pending one", buffers_.tokens,
                             FRT_PORT_INPUT, FRT_DTYPE_I32, {rows_}),
              frt::make_port("next_tokens", "ids that were drawn", buffers_.next_tokens,
                             FRT_PORT_OUTPUT, FRT_DTYPE_I32, {entries})};
    graphs_ = {{"prefill", "tokens of one sequence; key: how many fit", prefill_},
               {"decode", "one token each; key: how many sequences fit", decode_}};
    canonical_ = layout_.canonical_text();
    fingerprint_ = {{"layout", canonical_.c_str()}};
  }

  frt::Context context_;
  std::unique_ptr<const Script> script_;
  std::chrono::seconds destroy_time_{0};
  std::filesystem::path stall_file_;
  frt::Kernel<frt_select_tokens_args> select_tokens_;
  frt::Kernel<frt_count_tokens_args> count_tokens_;
  frt::Kernel<frt_sample_args> sample_;
  uint32_t slots_ = 0, batch_ = 0, chunk_ = 0, rows_ = 0;
  uint64_t context_rows_ = 0, prefill_delay_us_ = 0;
  frt::CapsuleLayout layout_;
  frt::State state_;
  std::byte *pending_ = nullptr, *prompt_ = nullptr, *counts_ = nullptr;  // of slot 0
  std::byte* history_ = nullptr;
  int64_t slot_stride_ = 0;  // bytes
  mutable std::atomic<bool> fault_ = false;
  frt::LmBuffers buffers_;
  frt::Buffer ids_;
  frt::Graph prefill_, decode_;
  frt_model_info info_{};
  frt_lm_info role_{};
  std::vector<frt_port> ports_;
  std::vector<frt_model_graph> graphs_;
  std::string canonical_;
  std::vector<frt_fingerprint_field> fingerprint_;
};

// ---- tables --------------------------------------------------------------------------------

const ScriptedLm& self(frt_model model) {
  return *frt::object<ScriptedLm>(model);
}

constexpr frt_role_lm_v1 kFaultless = frt::lm_table<ScriptedLm>();
frt_status prefill_key(frt_model model, uint32_t rows, frt_shape_key* key) {
  return self(model).take_fault() ? FRT_ERR_DEVICE : kFaultless.prefill_key(model, rows, key);
}
frt_status decode_key(frt_model model, uint32_t batch, frt_shape_key* key, uint32_t* entries) {
  return self(model).take_fault() ? FRT_ERR_DEVICE
                                  : kFaultless.decode_key(model, batch, key, entries);
}

constexpr frt_role_lm_v1 kRole = {
    sizeof(frt_role_lm_v1), 0, kFaultless.info, prefill_key, decode_key, nullptr, nullptr};
constexpr frt_capsule_v1 kCapsule = frt::capsule_table<ScriptedLm>();

const void* ScriptedLm::extension(std::string_view id) const noexcept {
  if (id == FRT_EXT_TOKENIZER) return &tokenizer_table();
  if (id == FRT_EXT_CHAT) return &chat_table();
  if (!state_) return nullptr;
  if (id == FRT_EXT_ROLE_LM) return &kRole;
  if (id == FRT_EXT_CAPSULE) return &kCapsule;
  return nullptr;
}

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)),
        states_(host.require<frt_state_v1>(FRT_EXT_STATE)) {}

  std::unique_ptr<ScriptedLm> create(const frt_model_params& params) const {
    if (params.flags & FRT_MODEL_WITHOUT_WEIGHTS) return std::make_unique<ScriptedLm>();
    return std::make_unique<ScriptedLm>(frt::Context(exec_, params.context), states_, params.name,
                                        frt::ConfigView(params.config));
  }

  const void* extension(std::string_view id) noexcept {
    return id == FRT_EXT_MODEL ? &kModel : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  static constexpr frt_model_v1 kModel = frt::model_table<Plugin, ScriptedLm>();
  const frt_exec_v1* exec_;
  const frt_state_v1* states_;
};

}  // namespace
}  // namespace scripted

FRT_PLUGIN(scripted::Plugin, model, "test.scripted", "0.1.0",
           "summary = \"a language model that says what a script gives\"\n");
