// SPDX-License-Identifier: Apache-2.0
#include "selftest_goldens.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <frt/error.hpp>
#include <frt/models/linear_weight.hpp>
#include <frt/models/safetensors.hpp>
#include <limits>

namespace frt::pi05 {
namespace {

frt_selftest_row blank_row(std::uint64_t values) {
  frt_selftest_row row{};
  row.struct_size = sizeof(row);
  row.values = values;
  row.max_abs = row.relative = row.cosine_min = row.cosine_mean = row.argmax_agreement =
      std::numeric_limits<double>::quiet_NaN();
  return row;
}

}  // namespace

Goldens::Goldens(const std::filesystem::path& file) : file_(file.string()) {
  const auto opened = models::SafetensorsFile::open(file);
  for (const models::TensorView& tensor : opened->tensors()) {
    Golden golden;
    golden.shape.assign(tensor.shape.begin(), tensor.shape.end());
    if (tensor.dtype == FRT_DTYPE_U8) {
      golden.bytes.resize(tensor.bytes);
      tensor.read(0, std::as_writable_bytes(std::span(golden.bytes)));
    } else if (tensor.dtype == FRT_DTYPE_I32) {
      std::vector<std::int32_t> narrow(tensor.elements());
      tensor.read(0, std::as_writable_bytes(std::span(narrow)));
      golden.ids.assign(narrow.begin(), narrow.end());
    } else if (tensor.dtype == FRT_DTYPE_I64) {
      golden.ids.resize(tensor.elements());
      tensor.read(0, std::as_writable_bytes(std::span(golden.ids)));
    } else {
      golden.values = models::to_f32(tensor);
    }
    asked_[std::string(tensor.name)] = false;
    names_.emplace_back(tensor.name);
    tensors_.emplace(std::string(tensor.name), std::move(golden));
  }
}

const Golden* Goldens::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return nullptr;
  asked_[name] = true;
  return &found->second;
}

const Golden& Goldens::get(const std::string& name) const {
  const Golden* golden = find(name);
  if (!golden) throw Error(FRT_ERR_FORMAT, file_ + ": no golden tensor " + name);
  return *golden;
}

std::vector<std::string> Goldens::leftovers() const {
  std::vector<std::string> names;
  for (const auto& [name, asked] : asked_) {
    if (!asked) names.push_back(name);
  }
  return names;
}

void Checks::send(const std::string& name, const std::string& gate, bool pass,
                  frt_selftest_row row) {
  row.tensor = name.c_str();
  row.gate = gate.c_str();
  row.verdict = pass ? FRT_VERDICT_PASS : FRT_VERDICT_FAIL;
  check(report_(user_, &row), "report of " + name);
}

// With FP8 only what comes out is judged; x follows it step by step.
void Checks::send_fp8(const std::string& name, Quantity quantity, bool sound, float beta,
                      frt_selftest_row row) {
  const std::string tensor = name.substr(name.rfind('.') + 1);
  const bool step = quantity == Quantity::kFlow && tensor.starts_with('x');
  if (quantity != Quantity::kActions && !step) {
    row.tensor = name.c_str();
    row.gate = "reported; FP8 has no gate here";
    row.verdict = sound ? FRT_VERDICT_SKIP : FRT_VERDICT_FAIL;
    return check(report_(user_, &row), "report of " + name);
  }
  const double b = beta;
  constexpr double kFloor = 0.9;  // below it the formula would pass what has nothing in common
  const double limit = b >= 2.5 ? std::max(kFloor, 1 - 0.03 * (b * b + (b - 1) * (b - 1)) / 8.5)
                       : step && b > 1.0 ? 0.98
                                         : 0.99;
  char gate[32];
  std::snprintf(gate, sizeof(gate), "cosine >= %.4g", limit);
  send(name, gate, sound && row.cosine_min >= limit, row);
}

void Checks::values(const std::string& name, Quantity quantity, std::span<const float> computed,
                    std::span<const float> golden, float beta) {
  if (computed.size() != golden.size()) {
    throw Error(FRT_ERR_MISMATCH, "golden tensor " + name + " has " +
                                      std::to_string(golden.size()) + " values, the model makes " +
                                      std::to_string(computed.size()) +
                                      "; these goldens belong to another model");
  }
  double dot = 0, aa = 0, bb = 0, difference = 0, largest = 0, scale = 0;
  bool finite = true;
  for (std::size_t i = 0; i < golden.size(); ++i) {
    const double a = computed[i], b = golden[i], d = a - b;
    finite = finite && std::isfinite(d);
    largest = std::max(largest, std::abs(d));
    scale = std::max(scale, std::abs(b));
    dot += a * b;
    aa += a * a;
    bb += b * b;
    difference += d * d;
  }
  const bool lost = aa == 0 && bb > 0;  // zeros in place of values
  const bool sound = finite && !lost && !golden.empty();
  frt_selftest_row row = blank_row(golden.size());
  row.max_abs = finite ? largest : std::numeric_limits<double>::infinity();
  row.relative = bb > 0 ? std::sqrt(difference / bb) : std::sqrt(difference);
  const double cosine = aa == 0 && bb == 0 ? 1 : aa == 0 || bb == 0 ? 0 : dot / std::sqrt(aa * bb);
  row.cosine_min = row.cosine_mean = cosine;
  if (gates_ == Gates::kFp8) return send_fp8(name, quantity, sound, beta, row);
  std::string gate;
  bool pass = sound;
  if (exact()) {
    const bool stage = quantity == Quantity::kStage;
    gate = stage ? "max abs <= 1e-4 + 1e-5 scale" : "max abs <= 1e-4";
    pass = pass && largest <= (stage ? 1e-4 + 1e-5 * scale : 1e-4);
  } else if (quantity == Quantity::kActions) {
    gate = "cosine >= 0.9998, max abs <= 0.1";
    pass = pass && cosine >= 0.9998 && largest <= 0.1;
  } else {
    gate = "cosine >= 0.999";
    pass = pass && cosine >= 0.999;
  }
  if (!finite) gate += "; a value is not finite";
  if (lost) gate += "; zeros where the golden has none";
  if (golden.empty()) gate += "; nothing was compared";
  send(name, gate, pass, row);
}

void Checks::within(const std::string& name, const std::string& gate,
                    std::span<const double> computed, std::span<const double> golden,
                    std::span<const double> limits) {
  bool pass = computed.size() == golden.size() && !golden.empty() && !limits.empty();
  frt_selftest_row row = blank_row(golden.size());
  row.max_abs = 0;
  for (std::size_t i = 0; pass && i < golden.size(); ++i) {
    const double d = std::abs(computed[i] - golden[i]);
    row.max_abs = std::max(row.max_abs, d);
    pass = d <= limits[i % limits.size()];  // false for NaN
  }
  send(name, gate, pass, row);
}

void Checks::bits(const std::string& name, std::span<const float> computed,
                  std::span<const float> golden) {
  const bool same =
      computed.size() == golden.size() && !golden.empty() &&
      std::memcmp(computed.data(), golden.data(), golden.size_bytes()) == 0 &&
      std::all_of(golden.begin(), golden.end(), [](float value) { return std::isfinite(value); });
  frt_selftest_row row = blank_row(golden.size());
  row.max_abs = 0;
  for (std::size_t i = 0; i < std::min(computed.size(), golden.size()); ++i) {
    row.max_abs = std::max(
        row.max_abs, std::abs(static_cast<double>(computed[i]) - static_cast<double>(golden[i])));
  }
  send(name, "equal bits, finite", same, row);
}

void Checks::equal(const std::string& name, bool same, std::uint64_t values) {
  send(name, "equal", same, blank_row(values));
}

void Checks::skip(const std::string& name, const std::string& why) {
  frt_selftest_row row = blank_row(0);
  row.tensor = name.c_str();
  row.gate = why.c_str();
  row.verdict = FRT_VERDICT_SKIP;
  check(report_(user_, &row), "report of " + name);
}

}  // namespace frt::pi05
