// SPDX-License-Identifier: Apache-2.0
// isa.hpp - which vector instructions the operators may use.
//
// The device option `isa` caps what the machine has, so that one machine can test every code path.
// Code dispatched by Highway obeys a process-wide mask (limit_simd_targets, set when a device is
// opened: the device opened last decides); code with its own dispatch asks Device::isa().
#pragma once

#include <cstdint>
#include <string_view>

namespace frt::cpu {

// Each level includes the ones before it. Machines that are not x86-64 are kPortable: there the
// baseline of the architecture (e.g. NEON) is what Highway uses anyway.
enum class Isa : uint8_t {
  kPortable,    // the compiler's baseline and 128-bit vectors
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // AVX-512 F, BW, CD, DQ, VL
  kAvx512Bf16,  // and AVX512_BF16
};

// What this machine has.  [any]
Isa machine_isa() noexcept;

// The option's word for `isa`: "portable", "avx2", "avx512", "avx512-bf16".  [any]
const char* isa_name(Isa isa) noexcept;

// The level an option value stands for, capped by the machine; "auto" is the machine's.
// FRT_ERR_INVALID_ARGUMENT if the word is unknown, FRT_ERR_UNSUPPORTED if the machine lacks it.
// [setup]
Isa isa_from_option(std::string_view word);

// The best of Highway's targets that this machine has and this plugin has code for, whatever a
// device was restricted to, e.g. "AVX3".  [setup]
const char* machine_simd_target() noexcept;

// Restricts Highway's dispatch in this process to `isa` and below.  [setup]
void limit_simd_targets(Isa isa) noexcept;

}  // namespace frt::cpu
