// SPDX-License-Identifier: Apache-2.0
#include "isa.hpp"

#include <hwy/targets.h>

#include <array>
#include <frt/error.hpp>
#include <string>

namespace frt::cpu {
namespace {

constexpr std::array<const char*, 4> kNames = {"portable", "avx2", "avx512", "avx512-bf16"};

// Highway's better targets have lower bits, so "this one and everything better" is a low mask.
[[maybe_unused]] constexpr int64_t this_and_better(int64_t target) {
  return (target << 1) - 1;
}

// Highway's own answer, from before the first restriction.
int64_t machine_targets() noexcept {
  static const int64_t targets = hwy::SupportedTargets();
  return targets;
}

}  // namespace

Isa machine_isa() noexcept {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return Isa::kAvx512Bf16;
  if (avx512) return Isa::kAvx512;
  if (avx2) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

const char* isa_name(Isa isa) noexcept {
  return kNames[static_cast<std::size_t>(isa)];
}

Isa isa_from_option(std::string_view word) {
  const Isa machine = machine_isa();
  if (word == "auto") return machine;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (word != kNames[i]) continue;
    const Isa wanted = static_cast<Isa>(i);
    if (wanted > machine) {
      throw Error(FRT_ERR_UNSUPPORTED, "isa = \"" + std::string(word) +
                                           "\": this machine has no more than \"" +
                                           isa_name(machine) + "\"; use that or \"auto\"");
    }
    return wanted;
  }
  throw Error(FRT_ERR_INVALID_ARGUMENT,
              "isa = \"" + std::string(word) +
                  "\" is not known; use auto, portable, avx2, avx512 or avx512-bf16");
}

const char* machine_simd_target() noexcept {
  const int64_t usable = machine_targets() & HWY_TARGETS;
  return hwy::TargetName(usable & -usable);
}

void limit_simd_targets(Isa isa) noexcept {
  machine_targets();
  hwy::SetSupportedTargetsForTest(0);  // back to what the machine has
#if defined(__x86_64__)
  int64_t banned = 0;
  switch (isa) {
    case Isa::kPortable:
      banned = this_and_better(HWY_AVX2);
      break;
    case Isa::kAvx2:
      banned = this_and_better(HWY_AVX3);
      break;
    case Isa::kAvx512:
    case Isa::kAvx512Bf16:
      break;  // this Highway dispatches no target of its own to the bf16 instructions
  }
  if (banned != 0) hwy::SetSupportedTargetsForTest(hwy::SupportedTargets() & ~banned);
#else
  static_cast<void>(isa);
#endif
}

}  // namespace frt::cpu
