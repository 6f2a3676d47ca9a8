// SPDX-License-Identifier: Apache-2.0
// selftest_goldens.hpp - golden tensors of a policy, and how computed ones are compared with them.
//
// Gates (those of the goldens' own documentation). f32: v, x and actions 1e-4; everything else
// 1e-4 + 1e-5 of the tensor's largest value. bf16: actions cosine >= 0.9998 and 0.1; every other
// tensor cosine >= 0.999. FP8: actions cosine >= 0.99, with guidance of strength 2.5 0.97; x after
// each step the same, or 0.98 between strength 1 and 2.5; everything else is reported without a
// gate. A cosine is over a whole tensor, in double. No gate passes a value that is not finite, an
// empty tensor, or zeros in place of values.
//
// Guidance of strength b multiplies the errors of two branches by b and b - 1, and 1 - cosine grows
// with their squares: beyond 2.5 the FP8 limit is 1 - 0.03 (b^2 + (b - 1)^2) / 8.5, and never below
// 0.9, which is reached at 4.3: a stronger run that FP8 disturbs more fails.
#pragma once

#include <frt/selftest.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::pi05 {

struct Golden {
  std::vector<std::int64_t> shape;
  std::vector<float> values;        // float tensors
  std::vector<std::int64_t> ids;    // integer tensors but u8
  std::vector<std::uint8_t> bytes;  // u8
};

// The tensors of one file.
class Goldens {
 public:
  explicit Goldens(const std::filesystem::path& file);
  const Golden* find(const std::string& name) const;
  const Golden& get(const std::string& name) const;  // FRT_ERR_FORMAT
  // Whether there is one; does not count as asking for it.
  bool has(const std::string& name) const { return tensors_.contains(name); }
  // In the order of the file.
  const std::vector<std::string>& names() const { return names_; }
  const std::string& file() const { return file_; }
  // Names that find() was never asked for.
  std::vector<std::string> leftovers() const;

 private:
  std::string file_;
  std::vector<std::string> names_;
  std::map<std::string, Golden> tensors_;
  mutable std::map<std::string, bool> asked_;
};

enum class Quantity : std::uint8_t { kActions, kFlow, kStage };
enum class Gates : std::uint8_t { kExact, kBf16, kFp8 };

class Checks {
 public:
  Checks(frt_selftest_report report, void* user, Gates gates)
      : report_(report), user_(user), gates_(gates) {}

  bool exact() const noexcept { return gates_ == Gates::kExact; }
  // `beta`: the strength of guidance, 1: none. Throws FRT_ERR_MISMATCH if the sizes differ.
  void values(const std::string& name, Quantity quantity, std::span<const float> computed,
              std::span<const float> golden, float beta = 1);
  // With a limit per value instead: |computed - golden| <= limit.
  void within(const std::string& name, const std::string& gate, std::span<const double> computed,
              std::span<const double> golden, std::span<const double> limits);
  void bits(const std::string& name, std::span<const float> computed,
            std::span<const float> golden);
  void equal(const std::string& name, bool same, std::uint64_t values);
  void skip(const std::string& name, const std::string& why);

 private:
  void send(const std::string& name, const std::string& gate, bool pass, frt_selftest_row row);
  void send_fp8(const std::string& name, Quantity quantity, bool sound, float beta,
                frt_selftest_row row);

  frt_selftest_report report_;
  void* user_;
  Gates gates_;
};

}  // namespace frt::pi05
