// SPDX-License-Identifier: Apache-2.0
// model.hpp - one loaded model: configuration, text, weights, state, graphs. Everything is made by
// the constructor; afterwards nothing changes but device memory.
#pragma once

#include <frt/model.h>
#include <frt/role/lm.h>

#include <cstdint>
#include <filesystem>
#include <frt/models/safetensors.hpp>
#include <frt/models/tokenizer.hpp>
#include <frt/plugin.hpp>
#include <frt/qwen36/presets.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "activations.hpp"
#include "chat_template.hpp"
#include "options.hpp"
#include "recipe.hpp"
#include "state_layout.hpp"
#include "weights.hpp"

namespace frt::qwen36 {

// The kinds of graphs, field 0 of their keys; field 1: sequences, field 2: rows of each.
enum class StepKind : std::uint16_t { kPrefill = 1, kDecode = 2, kDraft = 3 };
frt_shape_key step_key(StepKind kind, std::int32_t count, std::int32_t rows);

class Model {
 public:
  // Loads everything; reports progress. Throws frt::Error.  [setup]
  Model(const Host& host, const frt_model_params& params);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // ---- always there ----
  const std::string& name() const noexcept { return name_; }
  const std::string& checkpoint() const noexcept { return checkpoint_; }
  const Config& config() const noexcept { return config_; }
  const models::Tokenizer* tokenizer() const noexcept {
    return tokenizer_ ? &*tokenizer_ : nullptr;
  }
  const ChatTemplate& chat_template() const noexcept { return chat_template_; }
  bool loaded() const noexcept { return parts_ != nullptr; }  // with weights

  // ---- only with weights: FRT_ERR_BAD_STATE otherwise ----
  // All that a step needs. Declared in the order in which it is made.
  struct Parts {
    Context context;
    Options options;
    Weights weights;
    Precision precision;
    std::unique_ptr<StateLayout> layout;
    std::int64_t max_context = 0;
    State state;
    StateMap state_map;
    Ports ports;
    Activations activations;
    Operators operators;
    std::unique_ptr<Recipe> recipe;
    std::vector<std::int32_t> prefill_sizes, decode_sizes;
    Graph prefill, decode, draft;
    Stream stream;  // for self-tests
  };
  Parts& parts() const;
  bool has_draft() const { return parts().weights.mtp.has_value(); }

  const frt_lm_info& lm_info() const { return parts(), lm_info_; }
  const frt_model_info& info() const noexcept { return info_; }
  const std::vector<frt_port>& ports() const noexcept { return port_table_; }
  const std::vector<frt_model_graph>& graphs() const noexcept { return graph_table_; }

  // Name and value pairs a capsule depends on; computes digests on the first call.
  const std::vector<std::pair<std::string, std::string>>& fingerprint();

 private:
  void load(const Host& host, const frt_model_params& params);
  void load_weights(const Host& host, Parts& parts);
  std::uint64_t running_bytes(const Options& options, const Precision& precision,
                              std::int64_t context, bool with_mtp) const;
  void check_memory(const Parts& parts, const Precision& precision, bool with_mtp,
                    std::uint64_t weight_bytes) const;
  void make_state(const Host& host, Parts& parts);
  void capture(const Host& host, Parts& parts);
  void describe();

  std::string name_;
  std::string checkpoint_;
  std::optional<Synthetic> synthetic_;
  Config config_;
  std::optional<models::Tokenizer> tokenizer_;
  ChatTemplate chat_template_;
  std::optional<models::Checkpoint> files_;  // mapped; weights may lie in the mapping
  std::unique_ptr<Parts> parts_;
  std::string architecture_text_;
  std::string formats_text_;
  frt_model_info info_{};
  frt_lm_info lm_info_{};
  std::vector<frt_port> port_table_;
  std::vector<frt_model_graph> graph_table_;
  std::vector<std::pair<std::string, std::string>> fingerprint_;
};

}  // namespace frt::qwen36
