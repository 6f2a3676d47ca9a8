// SPDX-License-Identifier: Apache-2.0
// lm.hpp - a language model with its engine, its sessions and their capsules.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "embed/generation.hpp"
#include "embed/runtime.hpp"
#include "lm/capsules/registry.hpp"
#include "lm/engine/engine.hpp"
#include "lm/lm_model.hpp"

namespace frt::embed {

// Throws FRT_ERR_UNSUPPORTED for a model that is no language model.
host::LmModel language_model_of(const Instance& instance);

class Lm {
 public:
  static constexpr const char* kNoun = "language model";

  Lm(std::shared_ptr<Instance> instance, const frt_lm_options& options);
  Lm(const Lm&) = delete;
  Lm& operator=(const Lm&) = delete;

  const std::shared_ptr<core::Log>& log_owner() const noexcept {
    return lease_.instance()->log_owner();
  }
  const host::LmModel& model() const noexcept { return model_; }
  host::Engine& engine() noexcept { return *engine_; }
  frt_lm_facts facts() const noexcept;
  // What the checkpoint says of sampling, and the tokens that end its texts.
  const nlohmann::ordered_json& defaults() const noexcept { return defaults_; }
  const std::vector<int32_t>& stop_ids() const noexcept { return stop_ids_; }

  std::vector<int32_t> encode(std::string_view text, uint32_t flags) const;
  host::ChatPrompt render(const char* messages, const char* tools, const char* options) const;
  // host::parting_point() of `prompt`, which is the request's messages rendered, and its ids.
  uint64_t parting_point(const frt_generate_request& request, const host::ChatPrompt& prompt,
                         const std::vector<int32_t>& ids) const;
  // What files of capsules need; on the engine's thread.
  void know_fingerprint() const { model_.capsules().fingerprint(); }
  // Writes to the log, unless it is empty; on the engine's thread.
  void warn(std::string notice) const;
  // A name that no other session has.
  std::string new_affinity();

 private:
  EngineLease lease_;
  core::Log& log_;
  host::LmModel model_;
  nlohmann::ordered_json defaults_;
  std::vector<int32_t> stop_ids_;
  std::unique_ptr<host::CapsuleRegistry> registry_;
  std::unique_ptr<host::Engine> engine_;
  std::atomic<uint64_t> sessions_{0};
};

// What a session held at one time. Its state belongs to the engine's thread.
class LmCapsule {
 public:
  static constexpr const char* kNoun = "capsule of a language model";

  LmCapsule(std::shared_ptr<Lm> lm, host::Session::Snapshot snapshot, std::vector<int32_t> tokens,
            const frt_sampling_params& sampling);
  // Verifies the file and reads it.
  static std::shared_ptr<LmCapsule> load(std::shared_ptr<Lm> lm, const std::string& folder,
                                         const std::string& name);
  ~LmCapsule();
  LmCapsule(const LmCapsule&) = delete;
  LmCapsule& operator=(const LmCapsule&) = delete;

  const std::shared_ptr<core::Log>& log_owner() const noexcept { return lm_->log_owner(); }
  const std::shared_ptr<Lm>& lm() const noexcept { return lm_; }
  const host::Session::Snapshot& snapshot() const noexcept { return *snapshot_; }
  const std::vector<int32_t>& tokens() const noexcept { return tokens_; }
  const frt_sampling_params& sampling() const noexcept { return sampling_; }
  frt_capsule_facts facts() const noexcept;
  void save(const std::string& folder, const std::string& name, bool replace) const;

 private:
  std::shared_ptr<Lm> lm_;
  std::optional<host::Session::Snapshot> snapshot_;
  std::vector<int32_t> tokens_;  // of the session
  frt_sampling_params sampling_;
};

// A text that goes on. Its tokens are here, its state is in a slot of the engine, under `affinity`.
class Session {
 public:
  static constexpr const char* kNoun = "session";

  explicit Session(std::shared_ptr<Lm> lm);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const std::shared_ptr<core::Log>& log_owner() const noexcept { return lm_->log_owner(); }
  const std::shared_ptr<Lm>& lm() const noexcept { return lm_; }
  const std::string& affinity() const noexcept { return affinity_; }
  std::vector<int32_t> tokens() const;
  uint64_t held() const;
  std::shared_ptr<Session> fork();
  std::shared_ptr<LmCapsule> snapshot(frt_space space) const;
  void restore(const LmCapsule& capsule);

  // Makes the prompt of a request of what the session holds.
  using SetPrompt = std::function<void(const std::vector<int32_t>& held, host::EngineRequest&)>;
  // Submits an answer and returns its number.
  uint64_t begin(const std::shared_ptr<Answer>& answer, host::EngineRequest request,
                 const SetPrompt& set_prompt);

 private:
  // Takes over what was written. Throws FRT_ERR_BAD_STATE while something is.
  void settle() const;

  std::shared_ptr<Lm> lm_;
  std::string affinity_;
  mutable std::mutex mutex_;  // of what follows; held while a call of this session works
  mutable std::vector<int32_t> tokens_;
  mutable std::shared_ptr<Answer> answer_;  // of the last request
  frt_sampling_params sampling_{};          // of the last request
};

}  // namespace frt::embed
