// SPDX-License-Identifier: Apache-2.0
// policy_run.hpp - a policy with random inputs: through frt.observation/1, as a robot's host gives
// them, or straight into the buffers of its role.
#pragma once

#include <frt/observation.h>
#include <frt/role/policy.h>
#include <frt/exec.hpp>

#include <cstdint>
#include <cstring>
#include <frt/error.hpp>
#include <random>
#include <string>
#include <vector>

#include "made_model.hpp"
#include "plugin_cases.hpp"
#include "robot/policy_runner.hpp"

namespace frt::conformance {

// Throws Skip for a model that is no policy.
void needs_policy(const Made& made);

// What a policy is told to do: words, ids where `words` is empty, nothing where `ids` is, too.
struct Instruction {
  std::string words;
  std::vector<int32_t> ids;
};
// One that the policy takes: Subject::prompt, else "go left", else ids. Throws what it says of
// Subject::prompt, and Skip where it takes none. Writes observations.
Instruction instruction_of(const host::PolicyModel& policy, const Subject& subject);

// Random arrays of all names that the policy reads, and an instruction.
class Observation {
 public:
  Observation(const host::PolicyModel& policy, uint64_t seed, Instruction instruction);
  frt_observation table() const;
  const std::vector<host::ObservedName>& names() const { return names_; }
  std::vector<frt_array>& arrays() { return arrays_; }

 private:
  Instruction instruction_;
  std::vector<host::ObservedName> names_;
  std::vector<std::vector<std::byte>> bytes_;
  std::vector<frt_array> arrays_;
};

// The network's values and the robot's.
struct Chunk {
  std::vector<float> network;
  std::vector<double> robot;
};
// One inference on the observation that the runner has.
Chunk inferred(host::PolicyRunner& runner, uint64_t seed, uint64_t draw);

// Throws FRT_ERR_MISMATCH for the first value whose bits differ.
template <class T>
void compare(const std::vector<T>& found, const std::vector<T>& expected, const std::string& what) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (i < found.size() && std::memcmp(&found[i], &expected[i], sizeof(T)) == 0) continue;
    throw Error(FRT_ERR_MISMATCH,
                what + ": value " + std::to_string(i) + " of the chunk is " +
                    (i < found.size() ? std::to_string(found[i]) : std::string("missing")) +
                    ", not " + std::to_string(expected[i]));
  }
}

// Whether all bits are equal.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

// The buffers of a policy's role, which it writes itself.
class PolicyRig {
 public:
  explicit PolicyRig(const host::PolicyModel& policy);

  const host::PolicyModel& policy() const { return policy_; }
  const frt_policy_info& info() const { return info_; }
  const Stream& stream() const { return stream_; }
  // Random values in all inputs but strengths and continuation, and the shape that they have, with
  // all branches.
  void write_inputs(uint64_t seed);
  frt_policy_shape& shape() { return shape_; }
  std::vector<float> normals(uint64_t count);
  // Replays `infer` for the shape: (horizon, action_dim) of the first sample.
  std::vector<float> infer() const;
  // All buffers that a host writes, by their names in frt_policy_info.
  struct Port {
    const char* name;
    frt_buffer buffer;
  };
  std::vector<Port> inputs() const;
  std::vector<std::byte> bytes_of(frt_buffer buffer) const;
  template <class T>
  void write(frt_buffer buffer, const std::vector<T>& values, uint64_t offset = 0) const {
    if (buffer) Buffer::retain(policy_.context(), buffer).upload(values, stream_, offset);
  }

 private:
  const host::PolicyModel& policy_;
  const frt_policy_info& info_;
  Stream stream_;
  std::mt19937_64 random_;
  frt_policy_shape shape_{};
};

}  // namespace frt::conformance
