// SPDX-License-Identifier: Apache-2.0
// acme.reach: a policy that sees where the named disc is and goes there. One inference:
//   goals (G, 2)   = look (G * 2, side * side * 3) image + bias + correction (G * 2, 2) state
//   goal (2)       = goals[prompt token]
//   actions (H, 2) = to_goal (H * 2, 2) goal + to_state (H * 2, 2) state
// All weights are F32 of one safetensors file; its metadata `goals` has the G words that name them.
// The buffers that a host reads and writes are views of one arena with one slot: that is the state,
// which a capsule saves and restores.
#pragma once

#include <frt/observation.h>
#include <frt/ops/dense.h>
#include <frt/ops/embed.h>
#include <frt/role/policy.h>

#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <frt/model.hpp>
#include <frt/safetensors.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace acme {

inline constexpr uint32_t kAxes = 2;  // x and y, of the state and of an action

class Policy {
 public:
  // Loads the weights, allocates, captures. `params` is borrowed.  [setup]
  Policy(const frt::Context& context, const frt_state_v1* states, const frt_model_params& params);

  // For frt::model_table.
  const frt_model_info& info() const { return info_; }
  const std::vector<frt_port>& ports() const { return ports_; }
  const std::vector<frt_model_graph>& graphs() const { return graphs_; }
  const void* extension(std::string_view id) const noexcept;

  // For frt::capsule_table.
  const frt_capsule_layout& capsule_layout() const { return layout_.table(); }
  frt_state capsule_state() const { return arena_.handle(); }
  const std::vector<frt_fingerprint_field>& fingerprint() const { return fingerprint_; }

  const frt_policy_info& role() const { return role_; }
  const frt_observation_info& observation_info() const { return observation_info_; }

  // Checked values into the buffers, in order on `stream`; what is empty stays as it was. Waits for
  // the upload before this one.  [driver]
  struct Inputs {
    std::vector<float> image;   // (side, side, 3), -1 .. 1
    std::vector<float> state;   // (2)
    std::vector<int32_t> goal;  // (1): the row of goals
  };
  void upload(const Inputs& inputs, frt_stream stream);

  // The goal that an instruction names; throws FRT_ERR_INVALID_ARGUMENT if it names none or two.
  int32_t goal_of(std::string_view instruction) const;
  const std::vector<std::string>& goals() const { return goals_; }

 private:
  frt::Buffer load(const frt::Safetensors& file, const char* name,
                   const std::vector<uint64_t>& shape, const frt::Stream& stream);
  void make_ports(const frt_state_v1* states, const std::string& name);
  void capture();
  void describe();

  frt::Context context_;
  uint32_t side_ = 0, horizon_ = 0;
  std::vector<std::string> goals_;
  uint64_t weight_bytes_ = 0;
  uint64_t digest_ = 0xCBF29CE484222325u;  // FNV-1a of the weights and goals
  frt::CapsuleLayout layout_;
  frt::State arena_;
  frt::Buffer look_, bias_, correction_, to_goal_, to_state_;
  frt::Buffer image_, state_, token_, length_, actions_;  // ports, in the arena
  frt::Buffer seen_, goal_;                               // between operators
  frt::Buffer staging_;                                   // host memory that uploads come from
  frt::Event uploaded_;
  frt::Kernel<frt_dense_args> dense_;
  frt::Kernel<frt_embed_args> embed_;
  frt::Graph infer_;
  frt_model_info info_{};
  frt_policy_info role_{};
  frt_observation_info observation_info_{};
  std::string names_, metadata_, digest_text_, canonical_;
  std::vector<frt_fingerprint_field> fingerprint_;
  std::vector<frt_port> ports_;
  std::vector<frt_model_graph> graphs_;
};

}  // namespace acme
