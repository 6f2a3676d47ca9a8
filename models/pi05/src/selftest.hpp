// SPDX-License-Identifier: Apache-2.0
// selftest.hpp - a policy against golden tensors: every stage of the network, view masks, step
// counts, horizons, samples, guidance (fused and serial) and continuation; whole policies from a
// raw observation to robot actions; the tokenizer. And properties that need no golden: the recorded
// graph gives the bits of the eager run, split and whole inference agree, a larger bucket changes
// nothing, equal branches are equal.
#pragma once

#include <filesystem>

#include "model.hpp"
#include "selftest_goldens.hpp"
#include "selftest_run.hpp"

namespace frt::pi05 {

// A safetensors file of any name. False, and nothing checked, if it holds no goldens of the
// network.
bool check_network(const Model& model, const std::filesystem::path& file, Checks& checks);
// cases.json and its tensors: raw observation to robot actions.
void check_policies(const Model& model, const std::filesystem::path& file, Checks& checks);
// encodings.json of a tokenizer.
void check_tokenizer(const Model& model, const std::filesystem::path& file, Checks& checks);

}  // namespace frt::pi05
