// SPDX-License-Identifier: Apache-2.0
// enlarged.hpp - a struct as another minor version has it. Enlarged: as a later one, longer than
// this one's, with bytes behind the known part that a plugin of today neither believes nor writes.
// Shortened: as an earlier one, which ends in front of the last member.
#pragma once

#include <frt/table.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace frt::conformance {

// A pointer that is read behind the end of what is known is none.
inline constexpr unsigned char kBehind = 0x5A;
inline constexpr uint32_t kLonger = 128;  // bytes that struct_size says more

// The first byte of [from, to) that is not kBehind; `to` if all are.
inline std::size_t first_written(const unsigned char* bytes, std::size_t from, std::size_t to) {
  while (from < to && bytes[from] == kBehind) ++from;
  return from;
}

// A struct that the caller sizes after a call of `function`: `bytes` has `room`, of which the
// caller gave `given` and knows `known`. Throws FRT_ERR_ABI if the struct_size that the plugin left
// is more than it was given, or less than what it wrote: a plugin may know more than this program.
inline void require_sizes(const unsigned char* bytes, std::size_t room, uint32_t given,
                          std::size_t known, const std::string& sender, const char* function) {
  uint32_t left = 0;
  std::memcpy(&left, bytes, sizeof(left));
  const std::string what = sender + ": `" + function + "` ";
  const char* advice =
      "; write at most the smaller of the two sizes, and leave that in struct_size "
      "(frt_fill)";
  if (left > given) {
    throw Error(FRT_ERR_ABI, what + "leaves the struct_size " + std::to_string(left) +
                                 " in a struct of " + std::to_string(given) + " bytes" + advice);
  }
  const std::size_t written = first_written(bytes, std::max<std::size_t>(left, known), room);
  if (written == room) return;
  throw Error(FRT_ERR_ABI, what + "writes byte " + std::to_string(written) +
                               " of a struct of which it knows " + std::to_string(left) + " bytes" +
                               advice);
}

template <class Struct>
class Enlarged {
 public:
  explicit Enlarged(const Struct& known = {}) {
    std::memset(bytes_, kBehind, sizeof(bytes_));
    std::memcpy(bytes_, &known, sizeof(known));
    get()->struct_size = kGiven;
  }
  Struct* get() { return reinterpret_cast<Struct*>(bytes_); }
  // Of a struct that is passed in. Throws FRT_ERR_ABI if a byte behind the known part has changed
  // in a call of `function`.
  void require_untouched(const std::string& sender, const char* function) const {
    const std::size_t written = first_written(bytes_, sizeof(Struct), sizeof(bytes_));
    if (written == sizeof(bytes_)) return;
    throw Error(FRT_ERR_ABI, sender + ": `" + function + "` writes byte " +
                                 std::to_string(written) + " of a struct that it may only read");
  }
  // Of a struct that `function` fills.
  void require_filled(const std::string& sender, const char* function) const {
    require_sizes(bytes_, sizeof(bytes_), kGiven, sizeof(Struct), sender, function);
  }

 private:
  static constexpr uint32_t kGiven = sizeof(Struct) + kLonger;
  // Twice as much as struct_size says: writing behind that is found, too.
  alignas(Struct) unsigned char bytes_[sizeof(Struct) + 2 * std::size_t{kLonger}];
};

// Where the last member of a struct begins. Where a member was added behind it, this does not
// compile, but for one that fits into the padding at the end.
#define FRT_LAST_MEMBER(Struct, member) \
  frt::conformance::last_member<Struct, offsetof(Struct, member), sizeof(Struct::member)>()
template <class Struct, std::size_t kOffset, std::size_t kBytes>
constexpr std::size_t last_member() {
  static_assert(sizeof(Struct) - kOffset - kBytes < alignof(Struct),
                "name the member that is the last one now");
  return kOffset;
}

// `size`: of the part that the earlier version has.
template <class Struct>
class Shortened {
 public:
  explicit Shortened(std::size_t size) : size_(static_cast<uint32_t>(size)) {
    std::memset(bytes_, kBehind, sizeof(bytes_));
    std::memset(bytes_, 0, size);
    get()->struct_size = size_;
  }
  Struct* get() { return reinterpret_cast<Struct*>(bytes_); }
  void require_filled(const std::string& sender, const char* function) const {
    require_sizes(bytes_, sizeof(bytes_), size_, size_, sender, function);
  }

 private:
  uint32_t size_;
  alignas(Struct) unsigned char bytes_[sizeof(Struct) + std::size_t{kLonger}];
};

}  // namespace frt::conformance
