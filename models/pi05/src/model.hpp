// SPDX-License-Identifier: Apache-2.0
// model.hpp - one loaded policy: configuration, interface, weights, engine, graphs. Everything is
// made by the constructor; afterwards nothing changes but device memory.
#pragma once

#include <frt/model.h>
#include <frt/role/policy.h>

#include <cstdint>
#include <frt/models/safetensors.hpp>
#include <frt/models/sentencepiece.hpp>
#include <frt/plugin.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calibrator.hpp"
#include "engine.hpp"
#include "interface.hpp"
#include "observer.hpp"
#include "options.hpp"
#include "synthetic_source.hpp"

namespace frt::pi05 {

// The kinds of graphs, field 0 of their keys; see policy_key().
enum class GraphKind : std::uint16_t {
  kInfer = 1,
  kObserve = 2,
  kAct = 3,
  kVision = 4,
  kPrefix = 5
};

class Model {
 public:
  // Loads everything; reports progress. Throws frt::Error.  [setup]
  Model(const Host& host, const frt_model_params& params, Family family);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const std::string& name() const noexcept { return name_; }
  const Config& config() const noexcept { return config_; }
  const models::SentencePiece* tokenizer() const noexcept {
    return tokenizer_ ? &*tokenizer_ : nullptr;
  }
  bool loaded() const noexcept { return parts_ != nullptr; }  // with weights

  // Declared in the order in which they are made.
  struct Parts {
    Context context;
    const frt_state_v1* states = nullptr;
    Options options;
    Interface face;
    Precision precision;
    std::unique_ptr<WeightSource> source;
    Weights weights;
    std::unique_ptr<Engine> engine;
    std::unique_ptr<Observer> observer;
    std::unique_ptr<Staging> control;  // guidance and continuation on their way
    Graph infer, observe, act, vision, prefix;
    std::unique_ptr<Calibrator> calibrator;
  };
  Parts& parts() const;

  // The smallest variant for `shape`.  [hot]
  frt_status variant(const frt_policy_shape& shape, Variant& variant) const noexcept;
  frt_status key(GraphKind kind, const frt_policy_shape& shape, frt_shape_key& key) const noexcept;
  void set_guidance(std::span<const float> strengths, frt_stream stream);
  void set_continuation(const frt_policy_previous& previous, frt_stream stream);

  // Of frt/model.hpp.
  const void* extension(std::string_view id) noexcept;  // in tables.cpp
  const frt_capsule_layout& capsule_layout() { return parts().engine->state().layout(); }
  frt_state capsule_state() { return parts().engine->state().handle(); }
  // What a capsule depends on; computes digests on the first call.  [setup]
  const std::vector<frt_fingerprint_field>& fingerprint();

  // Of the weights in use; reads all files when it is first asked.
  const FileDigests& file_digests() const;

  const frt_policy_info& policy_info() const { return parts(), policy_info_; }
  const frt_model_info& info() const noexcept { return info_; }
  const std::vector<frt_port>& ports() const noexcept { return port_table_; }
  const std::vector<frt_model_graph>& graphs() const noexcept { return graph_table_; }
  const std::string& names_json() const noexcept { return names_json_; }
  const std::string& metadata_json() const noexcept { return metadata_json_; }

 private:
  void load(const Host& host, const frt_model_params& params);
  void load_tokenizer(const Host& host, const Options& options);
  void load_weights(const Host& host, Parts& parts);
  Setup setup_of(const Parts& parts) const;
  void capture(const Host& host, Parts& parts);
  std::vector<Variant> variants(GraphKind kind, const Parts& parts) const;
  void describe();  // in description.cpp
  void describe_ports();
  void describe_role();
  void describe_observation();

  std::string name_;
  std::string checkpoint_;
  Family family_;
  std::optional<Synthetic> synthetic_;
  Config config_;
  std::optional<models::SentencePiece> tokenizer_;
  std::unique_ptr<Parts> parts_;
  mutable FileDigests file_digests_;
  std::string calibration_digest_;  // empty: no FP8
  std::string architecture_text_, formats_text_, names_json_, metadata_json_;
  std::vector<std::pair<std::string, std::string>> fingerprint_text_;
  std::vector<frt_fingerprint_field> fingerprint_;  // views of it
  frt_model_info info_{};
  frt_policy_info policy_info_{};
  std::vector<frt_port> port_table_;
  std::vector<frt_model_graph> graph_table_;
};

// Weights of rows of a guided continuation (frt/role/policy.h).
std::vector<float> continuation_weights(std::uint32_t schedule, std::int64_t delay,
                                        std::int64_t execution_horizon, std::int64_t rows);

}  // namespace frt::pi05
