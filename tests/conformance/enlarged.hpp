// SPDX-License-Identifier: Apache-2.0
// enlarged.hpp - a struct as a later minor version has it: longer than this one's, with bytes
// behind the known part that a plugin of today neither believes nor writes.
#pragma once

#include <frt/table.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace frt::conformance {

// A pointer that is read behind the end of what is known is none.
inline constexpr unsigned char kBehind = 0x5A;
inline constexpr uint32_t kLonger = 128;  // bytes that struct_size says more

template <class Struct>
class Enlarged {
 public:
  explicit Enlarged(const Struct& known = {}) {
    std::memset(bytes_, kBehind, sizeof(bytes_));
    std::memcpy(bytes_, &known, sizeof(known));
    get()->struct_size = sizeof(Struct) + kLonger;
  }
  Struct* get() { return reinterpret_cast<Struct*>(bytes_); }
  // Throws FRT_ERR_ABI if a byte behind the known part has changed in a call of `function`.
  void require_untouched(const std::string& sender, const char* function) const {
    for (std::size_t i = sizeof(Struct); i < sizeof(bytes_); ++i) {
      if (bytes_[i] == kBehind) continue;
      throw Error(FRT_ERR_ABI,
                  sender + ": `" + function + "` writes byte " + std::to_string(i) +
                      " of a struct of which it knows " + std::to_string(sizeof(Struct)) +
                      " bytes; write at most the smaller of the two sizes (frt::fill)");
    }
  }

 private:
  // Twice as much as struct_size says: writing behind that is found, too.
  alignas(Struct) unsigned char bytes_[sizeof(Struct) + 2 * std::size_t{kLonger}];
};

}  // namespace frt::conformance
