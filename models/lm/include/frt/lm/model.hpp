// SPDX-License-Identifier: Apache-2.0
// frt/lm/model.hpp - one loaded decoder: architecture, text, weights, state, graphs. Everything is
// made by the constructor; afterwards nothing changes but device memory.
#pragma once

#include <frt/model.h>
#include <frt/role/lm.h>

#include <cstdint>
#include <filesystem>
#include <frt/models/safetensors.hpp>
#include <frt/models/tokenizer.hpp>
#include <frt/plugin.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <frt/lm/activations.hpp>
#include <frt/lm/architecture.hpp>
#include <frt/lm/chat_template.hpp>
#include <frt/lm/options.hpp>
#include <frt/lm/recipe.hpp>
#include <frt/lm/state_layout.hpp>
#include <frt/lm/weights.hpp>

namespace frt::lm {

// The kinds of graphs, field 0 of their keys; field 1: sequences, field 2: rows of each (of a
// draft: the candidates that it leaves).
enum class StepKind : std::uint16_t { kPrefill = 1, kDecode = 2, kDraft = 3, kVerify = 4 };
frt_shape_key step_key(StepKind kind, std::int32_t count, std::int32_t rows);

class Model {
 public:
  // Loads everything; reports progress. Throws frt::Error.  [setup]
  Model(const Host& host, std::unique_ptr<const Architecture> architecture,
        const frt_model_params& params);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // ---- always there ----
  const std::string& name() const noexcept { return name_; }
  const std::string& checkpoint() const noexcept { return checkpoint_; }
  const Architecture& architecture() const noexcept { return *architecture_; }
  const Config& config() const { return architecture_->config(); }
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
    std::unique_ptr<Weights> weights;
    Precision precision;
    std::unique_ptr<StateLayout> layout;
    std::int64_t max_context = 0;
    State state;
    std::unique_ptr<StateMap> state_map;
    Ports ports;
    std::unique_ptr<Activations> activations;
    Operators operators;
    std::unique_ptr<Recipe> recipe;
    std::vector<std::int32_t> prefill_sizes, decode_sizes;
    Graph prefill, decode, draft, verify;
    Stream stream;  // for self-tests
  };
  Parts& parts() const;
  bool has_draft() const { return parts().weights->has_draft(); }

  const frt_lm_info& lm_info() const { return parts(), lm_info_; }
  const frt_model_info& info() const noexcept { return info_; }
  const std::vector<frt_port>& ports() const noexcept { return port_table_; }
  const std::vector<frt_model_graph>& graphs() const noexcept { return graph_table_; }

  // Name and value pairs a capsule depends on; computes digests on the first call.
  const std::vector<std::pair<std::string, std::string>>& fingerprint();

 private:
  void load(const Host& host, const frt_model_params& params);
  void load_weights(const Host& host, Parts& parts);
  std::string lacking_for_drafts(const Parts& parts, bool only_f32) const;
  StepSizes step_sizes(const Options& options, bool with_mtp) const;
  std::uint64_t running_bytes(const Options& options, const Precision& precision,
                              std::int64_t context, bool with_mtp) const;
  void check_memory(const Parts& parts, const Precision& precision, bool with_mtp,
                    std::uint64_t weight_bytes) const;
  void make_state(const Host& host, Parts& parts);
  void capture(const Host& host, Parts& parts);
  void describe();

  std::string name_;
  std::string checkpoint_;
  std::unique_ptr<const Architecture> architecture_;
  std::optional<SyntheticWeights> synthetic_;
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

}  // namespace frt::lm
