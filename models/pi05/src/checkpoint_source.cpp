// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_source.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <frt/error.hpp>
#include <frt/models/formats.hpp>
#include <frt/models/linear_weight.hpp>
#include <utility>

namespace frt::pi05 {
namespace {

constexpr const char* kBody = "paligemma_with_expert.";
constexpr const char* kExpertNorm =
    "paligemma_with_expert.gemma_expert.model.layers.0.input_layernorm.";

// Short begin of a name, what it stands for behind kBody.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kParts = {{
    {"vision.", "paligemma.model.vision_tower.vision_model."},
    {"projector.", "paligemma.model.multi_modal_projector.linear."},
    {"prefix.", "paligemma.model.language_model."},
    {"expert.", "gemma_expert.model."},
}};

}  // namespace

CheckpointSource::CheckpointSource(const Host& host, models::Checkpoint checkpoint)
    : host_(host), checkpoint_(std::move(checkpoint)) {
  const auto has = [&](const std::string& name) { return checkpoint_.contains(root_ + name); };
  if (!has("action_in_proj.weight")) root_ = "model.";
  if (!has("action_in_proj.weight")) {
    throw Error(FRT_ERR_FORMAT, checkpoint_.path() +
                                    ": no tensor action_in_proj.weight, with or without \"model.\" "
                                    "before it; this is no Pi0.5 checkpoint");
  }
  if (has("proprio_history_proj.weight")) {
    throw Error(FRT_ERR_UNSUPPORTED,
                checkpoint_.path() +
                    ": has proprio_history_proj: checkpoints with memory (MEM) cannot be run, use "
                    "one that was trained without");
  }
  if (!has(std::string(kExpertNorm) + "dense.weight")) {
    const bool pi0 = has("state_proj.weight") || has(std::string(kExpertNorm) + "weight");
    throw Error(FRT_ERR_UNSUPPORTED,
                checkpoint_.path() + ": " +
                    (pi0 ? "a pi0 checkpoint: its expert's norms have no time condition; this "
                           "plugin runs Pi0.5, convert or train such a checkpoint"
                         : "the expert's norms have no time condition (tensors " +
                               std::string(kExpertNorm) + "dense.*)"));
  }
  const std::string table = root_ + kBody + "paligemma.model.language_model.embed_tokens.weight";
  embedding_ = checkpoint_.contains(table) ? table : root_ + kBody + "paligemma.lm_head.weight";
  time_ = has("time_mlp_in.weight") ? "time_mlp_" : "action_time_mlp_";
}

std::string CheckpointSource::stored_name(const std::string& name) const {
  if (name == "embedding") return embedding_;
  if (name.starts_with("time_mlp_")) return root_ + time_ + name.substr(9);
  for (const auto& [begin, stands_for] : kParts) {
    if (name.starts_with(begin)) {
      return root_ + kBody + std::string(stands_for) + name.substr(begin.size());
    }
  }
  return root_ + name;
}

const models::TensorView& CheckpointSource::find(const std::string& name,
                                                 const std::vector<std::int64_t>& shape) const {
  const std::vector<std::uint64_t> extents(shape.begin(), shape.end());
  const models::TensorView& tensor =
      checkpoint_.require(stored_name(name), std::span<const std::uint64_t>(extents));
  if (tensor.dtype != FRT_DTYPE_F32 && tensor.dtype != FRT_DTYPE_BF16 &&
      tensor.dtype != FRT_DTYPE_F16) {
    throw Error(FRT_ERR_UNSUPPORTED, std::string(tensor.file) + ": tensor " +
                                         std::string(tensor.name) + " is " +
                                         std::string(models::safetensors_dtype_name(tensor.dtype)) +
                                         ", expected F32, BF16 or F16");
  }
  return tensor;
}

bool CheckpointSource::is_wide(const std::string& name) const {
  const models::TensorView* tensor = checkpoint_.find(stored_name(name));
  return tensor && tensor->dtype != FRT_DTYPE_BF16;
}

std::vector<float> CheckpointSource::values(const std::string& name,
                                            std::vector<std::int64_t> shape) const {
  const models::TensorView& tensor = find(name, shape);
  models::require_finite(tensor);
  return models::to_f32(tensor);
}

float CheckpointSource::largest(const MatrixName& matrix) const {
  const models::TensorView& tensor = find(matrix.name, {matrix.rows, matrix.columns});
  if (tensor.dtype == FRT_DTYPE_BF16) {  // magnitudes are ordered as their bits are
    std::vector<std::uint16_t> bits(tensor.elements());
    tensor.read(0, std::as_writable_bytes(std::span(bits)));
    models::require_finite(tensor, std::as_bytes(std::span(bits)));
    std::uint16_t most = 0;
    for (const std::uint16_t value : bits) {
      most = std::max(most, static_cast<std::uint16_t>(value & 0x7FFFu));
    }
    float largest = 0;
    models::convert_to_f32(FRT_DTYPE_BF16, reinterpret_cast<const std::byte*>(&most), 1, &largest);
    return largest;
  }
  models::require_finite(tensor);
  float largest = 0;
  for (const float value : models::to_f32(tensor)) largest = std::max(largest, std::abs(value));
  return largest;
}

void CheckpointSource::place(const MatrixName& matrix, frt_dtype dtype,
                             models::DeviceMemory& memory, std::byte* target) {
  const models::TensorView& tensor = find(matrix.name, {matrix.rows, matrix.columns});
  if (tensor.dtype == dtype) return memory.stream_to(target, tensor);
  const std::vector<float> wide = models::to_f32(tensor);
  std::vector<std::byte> bytes(bytes_of(dtype, static_cast<std::int64_t>(wide.size())));
  models::convert_from_f32(dtype, wide.data(), wide.size(), bytes.data());
  memory.upload_to(target, bytes);
}

void CheckpointSource::prepare(models::DeviceMemory& memory) {
  models::UploadOptions options;
  options.progress = [this, before = std::uint64_t{0}](std::uint64_t done) mutable {
    done_bytes_ += done - std::exchange(before, done);
    if (done_bytes_ < total_bytes_) {
      host_.progress("weights", FRT_PROGRESS_BYTES, done_bytes_, total_bytes_);
    }
  };
  memory.set_upload_options(std::move(options));
}

void CheckpointSource::begin(std::uint64_t bytes) {
  total_bytes_ = bytes;
  host_.progress("weights", FRT_PROGRESS_BYTES, 0, total_bytes_);
}

void CheckpointSource::end() {
  checkpoint_.require_unchanged();
  host_.progress("weights", FRT_PROGRESS_BYTES, total_bytes_, total_bytes_);
}

}  // namespace frt::pi05
