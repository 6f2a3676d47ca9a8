// SPDX-License-Identifier: Apache-2.0
// trial.hpp - the checks of one operator on trial: good arguments pass, and whatever breaks one of
// them is refused in the expected words. Memory of the device is an address and no more, so a check
// that reads it crashes.
#pragma once

#include <doctest/doctest.h>
#include <frt/operator_checks.hpp>
#include <frt/operator_list.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace frt::test {

// One function for each operator, in the file of its family: a new operator does not link without.
#define FRT_TRY(function, Args, name) void try_##function();
FRT_PRIMITIVE_OPERATORS(FRT_TRY)
FRT_FUSED_OPERATORS(FRT_TRY)
#undef FRT_TRY

inline constexpr frt_weight_format kU4 = {FRT_DTYPE_U4, FRT_DTYPE_F16, FRT_DTYPE_U4, 1, 32, 0, 0};
inline constexpr frt_weight_format kFormatList[] = {FRT_WEIGHT_F32, FRT_WEIGHT_BF16,
                                                    FRT_WEIGHT_FP8_TENSOR, FRT_WEIGHT_NVFP4, kU4};
inline constexpr std::span<const frt_weight_format> kFormats = kFormatList;

// The check of an operator with weights, by a backend that takes kFormats.
template <auto check, class Args>
void with_formats(const Checks& checks, const Args& args) {
  check(checks, args, kFormats);
}

// Where an array lies on the device: each conversion gives another address.
class Memory {
 public:
  template <class T>
  operator T*() {
    next_ += 4096;
    return reinterpret_cast<T*>(next_);
  }

 private:
  std::uintptr_t next_ = 1 << 20;
};

inline frt_sequences sequences(Memory& memory, int32_t count, int32_t rows) {
  return {count, rows, memory, memory, memory};
}
inline frt_weight weight(Memory& memory, int32_t rows, int32_t cols) {
  return {kWeightF32, rows, cols, 0, memory, nullptr, nullptr};
}

template <class T>
T& writable(const T& member) {
  return const_cast<T&>(member);
}
// A member of the arguments and its name.
#define AT(path)                     \
  [](auto& arguments) -> auto& {     \
    return writable(arguments.path); \
  }                                  \
  , #path

template <class Args>
class Trial {
 public:
  using Check = void (*)(const Checks&, const Args&);

  // `host`: members that a check follows or counts with, and no hostile number may stand in.
  Trial(const char* name, Check check, const Args& valid,
        std::initializer_list<std::size_t> host = {})
      : name_(name), check_(check), args_(valid), host_(host) {
    CHECK_MESSAGE(answer().empty(), answer());
    hostile(&args_, sizeof(args_), host_);
  }
  Args& args() { return args_; }

  // ---- what is refused -------------------------------------------------------------------------

  template <class Member, class Value>
  void refuse(Member member, const char* path, Value value, const std::string& words) {
    refuse_as(member, path, value, std::string(path) + " " + words);
  }
  // The same where the words name another argument: `said` is all behind the operator.
  template <class Member, class Value>
  void refuse_as(Member member, const char*, Value value, const std::string& said) {
    auto& place = member(args_);
    const auto old = place;
    place = static_cast<std::remove_reference_t<decltype(place)>>(value);
    CHECK(answer() == std::string(name_) + ": " + said);
    place = old;
  }
  template <class Member, class Value>
  void accept(Member member, const char* path, Value value) {
    auto& place = member(args_);
    const auto old = place;
    place = static_cast<std::remove_reference_t<decltype(place)>>(value);
    CHECK_MESSAGE(answer().empty(), path, ": ", answer());
    place = old;
  }

  template <class Member>
  void memory(Member member, const char* path, std::size_t alignment = 0) {
    refuse(member, path, nullptr, "is NULL");
    misaligned(member, path, alignment);
  }
  template <class Member>
  void optional(Member member, const char* path, std::size_t alignment = 0) {
    accept(member, path, nullptr);
    misaligned(member, path, alignment);
  }
  template <class Member>
  void size(Member member, const char* path, int32_t least = 1) {
    const std::string expected =
        least == 1 ? ", expected more than 0" : ", expected at least " + std::to_string(least);
    for (const int32_t value : {least - 1, -1, std::numeric_limits<int32_t>::min()}) {
      refuse(member, path, value, "is " + std::to_string(value) + expected);
    }
  }
  template <class Member>
  void range(Member member, const char* path, int64_t low, int64_t high) {
    for (const int64_t value : {low - 1, high + 1}) {
      using Place = std::remove_reference_t<decltype(member(args_))>;
      refuse(member, path, value,
             "is " + std::to_string(static_cast<Place>(value)) + ", expected " +
                 std::to_string(low) + " to " + std::to_string(high));
    }
  }
  template <class Member>
  void flag(Member member, const char* path, uint32_t last = 1) {
    refuse(member, path, last + 1,
           "is " + std::to_string(last + 1) + ", expected 0 to " + std::to_string(last));
  }
  template <class Member>
  void type(Member member, const char* path, const std::string& expected = "f32, bf16") {
    refuse(member, path, FRT_DTYPE_F64, "is f64, expected " + expected);
    refuse(member, path, 999, "is ?, expected " + expected);
  }
  // In elements, of rows with `least`; `array` is what has these rows.
  template <class Member>
  void stride(Member member, const char* path, int64_t least, const char* array) {
    for (const int64_t value : {least - 1, int64_t{0}, std::numeric_limits<int64_t>::min()}) {
      refuse(member, path, value,
             "is " + std::to_string(value) + ", expected at least " + std::to_string(least));
    }
    refuse_as(member, path, std::numeric_limits<int64_t>::max(),
              std::string(array) + " has 2^61 bytes or more");
  }
  // In bytes, of what has `least`, in elements of `element`.
  template <class Member>
  void slot_stride(Member member, const char* path, int64_t least, int64_t element) {
    for (const int64_t value : {least - element, int64_t{0}, std::numeric_limits<int64_t>::min()}) {
      refuse(member, path, value,
             "is " + std::to_string(value) + ", expected at least " + std::to_string(least));
    }
    refuse(
        member, path, least + 1,
        "is " + std::to_string(least + 1) + ", expected a multiple of " + std::to_string(element));
  }
  template <class Member>
  void equal(Member member, const char* path, int64_t expected) {
    refuse(member, path, expected + 1,
           "is " + std::to_string(expected + 1) + ", expected " + std::to_string(expected));
  }
  template <class Member>
  void sequences(Member member, const char* path) {
    const std::string name = path;
    const auto in = [&](auto inner, const char* inner_path, auto use) {
      const std::string whole = name + "." + inner_path;
      use(
          [=](auto& args) -> auto& { return inner(member(args)); }, whole.c_str());
    };
    const auto size_of = [&](auto place, const char* whole) { size(place, whole); };
    const auto memory_of = [&](auto place, const char* whole) { memory(place, whole); };
    in(AT(count), size_of);
    in(AT(rows), size_of);
    in(AT(slot), memory_of);
    in(AT(position), memory_of);
    in(AT(length), memory_of);
    const auto whole = [=](auto& args) -> auto& {
      return member(args);
    };
    frt_sequences many = whole(args_);
    many.count = many.rows = 1 << 16;
    refuse_as(whole, path, many, name + ".count has 2^31 rows or more");
  }
  // An f32 matrix.
  template <class Member>
  void matrix(Member member, const char* path) {
    const std::string name = path;
    const auto broken = [&](auto change, const std::string& words) {
      frt_weight wrong = member(args_);
      change(wrong);
      refuse_as(member, path, wrong, name + "." + words);
    };
    broken([](frt_weight& w) { w.format = FRT_WEIGHT_MXFP4; },
           "format is 4-bit e2m1 in groups of 32 with f8_e8m0 scales, which this kernel does not "
           "take; convert it at load");
    broken([](frt_weight& w) { w.format.layout = 1; },
           "format is f32, layout 1, which this kernel does not take; convert it at load");
    broken([](frt_weight& w) { w.rows = 0; }, "rows is 0, expected more than 0");
    broken([](frt_weight& w) { w.cols = -1; }, "cols is -1, expected more than 0");
    broken([](frt_weight& w) { w.data = nullptr; }, "data is NULL");
    broken([](frt_weight& w) { w.data = static_cast<const std::byte*>(w.data) + 4; },
           "data is not aligned to 16 bytes");
    broken([](frt_weight& w) { w.rows = w.cols = INT32_MAX; }, "data has 2^61 bytes or more");
    broken(
        [](frt_weight& w) {
          w.format = kU4;
          w.zero = w.data;
        },
        "scale is NULL");
    broken(
        [](frt_weight& w) {
          w.format = kU4;
          w.scale = static_cast<const std::byte*>(w.data) + 1;
          w.zero = w.data;
        },
        "scale is not aligned to 2 bytes");
    broken(
        [](frt_weight& w) {
          w.format = kU4;
          w.scale = w.data;
        },
        "zero is NULL");
    broken(
        [](frt_weight& w) {
          w.format = FRT_WEIGHT_NVFP4;
          w.scale = w.data;
          w.cols = 24;
        },
        "cols is 24, expected a multiple of 16 for NVFP4");
  }
  template <class Member>
  void norm(Member member, const char* path) {
    const std::string name = path;
    const auto broken = [&](auto change, const std::string& words) {
      frt_norm wrong = member(args_);
      change(wrong);
      refuse_as(member, path, wrong, name + "." + words);
    };
    broken([](frt_norm& n) { n.kind = 4; }, "kind is 4, expected 0 to 3");
    broken([](frt_norm& n) { n.weight = nullptr; }, "weight is NULL");
    broken([](frt_norm& n) { n.kind = FRT_NORM_LAYER; }, "bias is NULL");
    broken([](frt_norm& n) { n.kind = FRT_NORM_ADAPTIVE; }, "modulation.rows is NULL");
  }
  // With rows, and with clean ones.
  template <class Member>
  void modulation(Member member, const char* path) {
    const std::string name = path;
    const auto broken = [&](auto change, const std::string& words) {
      frt_modulation wrong = member(args_);
      change(wrong);
      refuse_as(member, path, wrong, name + "." + words);
    };
    broken([](frt_modulation& m) { m.rows = off(m.rows); }, "rows is not aligned to 4 bytes");
    broken([](frt_modulation& m) { m.clean_rows = off(m.clean_rows); },
           "clean_rows is not aligned to 4 bytes");
    broken([](frt_modulation& m) { m.clean = nullptr; }, "clean is NULL");
    broken([](frt_modulation& m) { m.period = 0; }, "period is 0, expected more than 0");
  }

  // Numbers that nobody means, in up to four places of `memory` at a time: refused or taken, and no
  // sum overflows (CMakeLists.txt). `host` are offsets that stay.
  void hostile(void* memory, std::size_t bytes, const std::vector<std::size_t>& host) {
    static constexpr uint32_t kWords[] = {0,        1,          2,          63,        64,
                                          1u << 16, 0x7fffffff, 0x80000000, 0xffffffff};
    std::mt19937 random(1);
    const std::vector<std::byte> old(static_cast<std::byte*>(memory),
                                     static_cast<std::byte*>(memory) + bytes);
    for (int trial = 0; trial < 3000; ++trial) {
      for (uint32_t places = random() % 4 + 1; places > 0; --places) {
        std::size_t at = random() % (bytes / 4) * 4;
        for (const std::size_t kept : host) {
          if (at == kept || at == kept + 4) at = 0;  // struct_size
        }
        std::memcpy(static_cast<std::byte*>(memory) + at, &kWords[random() % std::size(kWords)], 4);
      }
      (void)answer();
      std::memcpy(memory, old.data(), bytes);
    }
  }

 private:
  template <class T>
  static T* off(T* pointer) {
    return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + 1);
  }
  template <class Member>
  void misaligned(Member member, const char* path, std::size_t alignment) {
    auto* const pointer = member(args_);
    using Element = std::remove_pointer_t<decltype(pointer)>;
    if constexpr (!std::is_void_v<Element>) alignment = alignof(Element);
    REQUIRE(alignment > 0);
    if (alignment == 1) return;
    refuse(member, path, off(pointer), "is not aligned to " + std::to_string(alignment) + " bytes");
  }

  // What the check says; "": it takes the arguments.
  std::string answer() const {
    try {
      check_(Checks(name_), args_);
    } catch (const Error& error) {
      CHECK(error.status() == FRT_ERR_INVALID_ARGUMENT);
      return error.what();
    }
    return "";
  }

  const char* name_;
  Check check_;
  Args args_;
  std::vector<std::size_t> host_;
};

}  // namespace frt::test
