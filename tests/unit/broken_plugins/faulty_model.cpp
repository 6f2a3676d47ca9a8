// SPDX-License-Identifier: Apache-2.0
// A language model whose graphs do nothing.
#include <frt/chat.h>
#include <frt/role/lm.h>
#include <frt/tokenizer.h>
#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <frt/model.hpp>

#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "faulty.hpp"

namespace {

using faulty::is;

constexpr uint32_t kVocabulary = 64;
constexpr uint32_t kSlots = 2;
constexpr uint32_t kChunk = 8;
constexpr uint32_t kBatch = 2;
constexpr uint32_t kContext = 32;

class Model {
 public:
  Model(const frt::Context& context, const frt_state_v1* states) : context_(context) {
    layout_.add_rows("rows", FRT_DTYPE_U8, 4, kContext);
    state_ = frt::State(states, context, layout_.table(), kSlots, "arena");
    graph_ = context.create_graph("step", 1);
    ports_ = context.alloc(FRT_SPACE_DEVICE, 4096, "ports");
    info_.struct_size = sizeof(info_);
    info_.architecture = is("info_garbage") ? faulty::kGarbage : "nothing";
    info_.formats = is("info_null_text") ? nullptr : "none";
  }
  ~Model() {
    if (is("leaks")) (void)ports_.release();
  }

  const frt_model_info& info() const {
    if (is("info_status")) throw frt::Error(faulty::kUnknownStatus, "");
    return info_;
  }
  const std::vector<frt_port>& ports() const { return port_table_; }
  const std::vector<frt_model_graph>& graphs() const { return graph_table_; }
  const void* extension(std::string_view id) noexcept;

  frt_lm_info lm_info() const {
    frt_lm_info info{};
    info.struct_size = sizeof(info);
    info.vocabulary = kVocabulary;
    info.max_context = kContext;
    info.slots = is("lm_info_slots") ? 1000 : kSlots;
    info.prefill_chunk = kChunk;
    info.max_batch = is("lm_info_batch") ? 1u << 30 : kBatch;
    info.state = state_.handle();
    info.prefill = info.decode = graph_.handle();
    info.tokens = info.slot_ids = info.positions = info.lengths = info.starts = info.sampling =
        info.next_tokens = info.log_probabilities = info.logits = info.mask = ports_.handle();
    info.mask_words = (kVocabulary + 31) / 32;
    if (is("lm_info_zero")) {
      const uint32_t size = info.struct_size;
      info = {};
      info.struct_size = size;
    }
    if (is("lm_info_vocabulary")) info.vocabulary = 0;
    if (is("lm_info_numbers")) {
      info.vocabulary = info.max_context = info.slots = info.max_batch = 0xffffffff;
    }
    if (is("lm_info_mask")) info.mask_words = ~uint64_t{0};
    if (is("lm_info_no_tokens")) info.tokens = nullptr;
    if (is("lm_info_drafts")) info.max_drafts = 3;
    return info;
  }

  const frt_capsule_layout& capsule_layout() { return layout_.table(); }
  frt_state capsule_state() { return is("capsule_no_state") ? nullptr : state_.handle(); }
  const std::vector<frt_fingerprint_field>& fingerprint() {
    if (is("fingerprint_no_value")) fields_[0].value = nullptr;
    if (is("fingerprint_garbage")) fields_[0].value = faulty::kGarbage;
    return fields_;
  }

 private:
  frt::Context context_;
  frt::CapsuleLayout layout_;
  frt::State state_;
  frt::Graph graph_;
  frt::Buffer ports_;
  frt_model_info info_{};
  std::vector<frt_port> port_table_;
  std::vector<frt_model_graph> graph_table_;
  std::vector<frt_fingerprint_field> fields_ = {{"config", "tiny"}};
};

frt_status role_info(frt_model model, frt_lm_info* out) {
  if (is("lm_info_status")) return faulty::kUnknownStatus;
  if (is("lm_info_throws")) throw std::runtime_error("no numbers today");
  const frt_lm_info known = frt::object<Model>(model)->lm_info();
  const frt_status status = frt::fill(out, known);
  if (is("lm_info_size_3")) out->struct_size = 3;
  return status;
}

frt_status key(frt_model, uint32_t, frt_shape_key* out) {
  *out = 0;
  return FRT_OK;
}

frt_status no_key(frt_model, uint32_t, frt_shape_key*) {
  return FRT_ERR_NO_VARIANT;
}

// A tokenizer and a chat format that fail at every call.
constexpr frt_tokenizer_v1 kFailingTokenizer = {
    sizeof(frt_tokenizer_v1),
    0,
    [](frt_model) { return 1u; },
    [](frt_model, const char*, uint64_t, const frt_encode_params*, frt_sink, void*,
       frt_error* error) { return frt::set_error(error, FRT_ERR_FORMAT, "no such letter"); },
    [](frt_model, const int32_t*, uint64_t, uint32_t, frt_sink, void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no such id");
    },
    [](frt_model, const char*) { return int32_t{-1}; },
    [](frt_model, uint32_t, frt_text_stream*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no more streams");
    },
    [](frt_text_stream, int32_t, frt_sink, void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no such id");
    },
    [](frt_text_stream, frt_sink, void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no more text");
    },
    [](frt_text_stream) {}};
constexpr frt_chat_v1 kFailingChat = {
    sizeof(frt_chat_v1),
    0,
    [](frt_model, const char*, const char*, const char*, frt_sink, frt_sink, void*,
       frt_error* error) { return frt::set_error(error, FRT_ERR_FORMAT, "no such role"); },
    [](frt_model, const char*, uint64_t, uint32_t, const char*, const char*, frt_sink, void*,
       frt_error* error) { return frt::set_error(error, FRT_ERR_FORMAT, "no such mark"); },
    [](frt_model, frt_sink, void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no such file");
    },
    nullptr,
    nullptr,
    nullptr,
    nullptr};

frt_status batch_key(frt_model, uint32_t batch, frt_shape_key* out, uint32_t* entries) {
  *out = 0;
  *entries = batch;
  return FRT_OK;
}

// One table of each kind, spoiled as the defect says.
template <class Table, class Spoil>
const void* spoiled(Table table, const std::string& name, Spoil&& spoil) {
  static Table kept;
  kept = table;
  faulty::spoil_size(kept, name);
  spoil(kept);
  return &kept;
}

const void* Model::extension(std::string_view id) noexcept {
  if (id == FRT_EXT_ROLE_LM) {
    // Text where a table should be.
    static const char kThreeBytes[4] = "abc";
    if (is("role_three_bytes")) return kThreeBytes;
    const frt_role_lm_v1 role = {sizeof(role), 0, role_info, key, batch_key, nullptr, nullptr};
    return spoiled(role, "role", [](frt_role_lm_v1& table) {
      if (is("role_no_info")) table.info = nullptr;
      if (is("role_no_prefill_key")) table.prefill_key = nullptr;
      if (is("prefill_key_fails")) table.prefill_key = no_key;
    });
  }
  if (id == FRT_EXT_CAPSULE) {
    return spoiled(frt::capsule_table<Model>(), "capsule", [](frt_capsule_v1& table) {
      if (is("capsule_no_layout")) table.layout = nullptr;
    });
  }
  if (id == FRT_EXT_TOKENIZER && faulty::defect().starts_with("fails_")) return &kFailingTokenizer;
  if (id == FRT_EXT_CHAT && faulty::defect().starts_with("fails_")) return &kFailingChat;
  if (id == FRT_EXT_TOKENIZER && faulty::defect().starts_with("tokenizer")) {
    return spoiled(frt_tokenizer_v1{sizeof(frt_tokenizer_v1), 0, nullptr, nullptr, nullptr, nullptr,
                                    nullptr, nullptr, nullptr, nullptr},
                   "tokenizer", [](frt_tokenizer_v1&) {});
  }
  if (id == FRT_EXT_CHAT && faulty::defect().starts_with("chat")) {
    return spoiled(frt_chat_v1{sizeof(frt_chat_v1), 0, nullptr, nullptr, nullptr, nullptr, nullptr,
                               nullptr, nullptr},
                   "chat", [](frt_chat_v1&) {});
  }
  return nullptr;
}

// Hangs until the host's log says that it does.
void wait_for_notice() {
  for (;;) {
    std::ifstream file(std::getenv("FRT_TEST_LOG"));
    const std::string log{std::istreambuf_iterator<char>(file), {}};
    if (log.find("has not returned") != std::string::npos) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)),
        states_(host.require<frt_state_v1>(FRT_EXT_STATE)) {
    if (is("open_long_text")) throw frt::Error(FRT_ERR_DEVICE, faulty::long_text());
  }

  std::unique_ptr<Model> create(const frt_model_params& params) {
    if (is("create_long_text")) throw frt::Error(FRT_ERR_DEVICE, faulty::long_text());
    return std::make_unique<Model>(frt::Context(exec_, params.context), states_);
  }

  static frt_status open(const frt_host* host, const frt_config* config, frt_plugin* plugin,
                         frt_error* error) {
    if (is("open_throws")) throw std::runtime_error("no key in the lock");
    if (is("open_without_object")) return FRT_OK;
    if (is("open_status")) return faulty::kUnknownStatus;
    if (is("open_endless_text")) {
      std::memset(error->message, 'x', sizeof(error->message));
      return FRT_ERR_DEVICE;
    }
    if (is("open_hangs")) wait_for_notice();
    return frt::detail::PluginTrampolines<Plugin>::open(host, config, plugin, error);
  }
  static const void* any_extension(frt_plugin plugin, const char* id) {
    if (plugin && is("extension_throws")) throw std::runtime_error("ask again later");
    return frt::detail::PluginTrampolines<Plugin>::extension(plugin, id);
  }
  const void* extension(std::string_view id) noexcept {
    if (id != FRT_EXT_MODEL || is("model_missing")) return nullptr;
    return spoiled(frt::model_table<Plugin, Model>(), "model", [](frt_model_v1& table) {
      if (is("model_no_create")) table.create = nullptr;
      if (is("create_throws")) {
        table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                          frt_error*) -> frt_status { throw std::runtime_error("out of paper"); };
      }
      if (is("create_without_object")) {
        table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                          frt_error*) -> frt_status { return FRT_OK; };
      }
      if (is("create_status")) {
        table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                          frt_error* error) -> frt_status {
          return frt::set_error(error, faulty::kUnknownStatus, "half done");
        };
      }
      if (is("destroy_throws")) {
        table.destroy = [](frt_model) { throw std::runtime_error("the door is stuck"); };
      }
      if (is("model_extension_throws")) {
        table.extension = [](frt_model, const char*) -> const void* { throw 7; };
      }
    });
  }
  static const void* static_extension(std::string_view id) noexcept {
    if (id != FRT_EXT_CONFIG_SCHEMA) return nullptr;
    static constexpr frt_config_option kOptions[] = {
        {"width", FRT_CONFIG_INT, 0, "1", nullptr, 1, 8, "a number"}};
    static constexpr frt_config_option kGarbage[] = {
        {"width", FRT_CONFIG_INT, 0, "1", nullptr, 1, 8, "\xff\xfe"}};
    return spoiled(frt::config_schema(frt::kNoOptions, kOptions), "schema",
                   [](frt_config_schema_v1& table) {
                     if (is("schema_null_list")) table.options = nullptr;
                     if (is("schema_count")) table.option_count = ~uint64_t{0};
                     if (is("schema_garbage")) table.options = kGarbage;
                   });
  }

 private:
  const frt_exec_v1* exec_;
  const frt_state_v1* states_;
};

}  // namespace

FAULTY_PLUGIN(Plugin, model, "test.model");
