// SPDX-License-Identifier: Apache-2.0
// frt/table.hpp - reading and filling the structs of the ABI that can grow.
//
// Such a struct starts with `uint32_t struct_size`. Its sender was built with an earlier or a later
// minor version than its reader, so it may be shorter or longer than the struct that the reader
// knows, and a broken sender may say anything. `read_table` is the way to take one from a peer:
//
//     const frt_role_lm_v1 role = frt::read_table<frt_role_lm_v1>(given, "plugin acme.fast");
//
// It copies what the sender knew into a local that is zero elsewhere, so that a missing member
// reads as zero and no later line looks at sizes. What every sender promises is in Contract<T>: the
// struct's size in the oldest version that works with this one (frt/version.hpp) and the members
// that are never NULL. `fill` is the way to give one.
//
// The contracts of what plugins give are in frt/contracts.hpp. Header only.
#pragma once

#include <frt/base.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <frt/error.hpp>
#include <frt/version.hpp>
#include <initializer_list>
#include <string>
#include <string_view>

namespace frt {

// A pointer member that a table must have.
struct RequiredMember {
  const char* name;
  std::size_t offset;
};

// What the oldest version promises of `Table`; specialised with FRT_CONTRACT.
template <class Table>
struct Contract;

template <class Table>
concept HasContract = requires {
  Contract<Table>::kBytes;
};

// FRT_CONTRACT(frt_role_lm_v1, "frt.role.lm/1", draft_key, FRT_REQUIRED(frt_role_lm_v1, info));
// At global scope: the struct, its name in errors, the last member that the oldest version has, and
// the pointers that are never NULL.
#define FRT_CONTRACT(Table, name, last_member, ...)                                       \
  template <>                                                                             \
  struct frt::Contract<Table> {                                                           \
    static constexpr const char* kName = name;                                            \
    static constexpr std::size_t kBytes =                                                 \
        offsetof(Table, last_member) + sizeof(static_cast<Table*>(nullptr)->last_member); \
    static constexpr std::initializer_list<RequiredMember> kRequired = {__VA_ARGS__};     \
  }
#define FRT_REQUIRED(Table, member)  \
  frt::RequiredMember {              \
#member, offsetof(Table, member) \
  }

// A copy of the struct that `sender` (for errors: "plugin acme.fast") gave, zero where the sender's
// ends. `room` is how many bytes there can be at most: the stride of an array's entry. Throws
// FRT_ERR_ABI if there is none, if its size is none that a version which works with this one has,
// or if a required member is NULL.  [any]
template <HasContract Table>
Table read_table(const void* given, std::string_view sender, uint32_t room = FRT_STRUCT_MAX) {
  const auto broken = [&](const std::string& what) {
    return Error(FRT_ERR_ABI, std::string(sender) + (sender.empty() ? "" : ": ") + "its " +
                                  Contract<Table>::kName + " " + what);
  };
  if (!given) throw broken("is NULL");
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < Contract<Table>::kBytes || size > room || size > FRT_STRUCT_MAX) {
    const uint32_t most = room < FRT_STRUCT_MAX ? room : FRT_STRUCT_MAX;
    throw broken(
        "says that it has " + std::to_string(size) + " bytes, " +
        (size < Contract<Table>::kBytes
             ? "less than the " + std::to_string(Contract<Table>::kBytes) + " of its first version"
             : "more than the " + std::to_string(most) +
                   (most == room ? " from one entry of its array to the next"
                                 : " that a struct of the ABI may have")) +
        "; set struct_size to sizeof the struct, and rebuild what gives it");
  }
  Table table{};
  const uint32_t known = size < sizeof(Table) ? size : static_cast<uint32_t>(sizeof(Table));
  std::memcpy(static_cast<void*>(&table), given, known);
  table.struct_size = known;
  for (const RequiredMember& member : Contract<Table>::kRequired) {
    const void* pointer = nullptr;
    std::memcpy(&pointer, reinterpret_cast<const char*>(&table) + member.offset, sizeof(pointer));
    if (!pointer) {
      throw broken(std::string("has no ") + member.name + ", which version " + oldest_abi() +
                   " requires; set it, and rebuild what gives it");
    }
  }
  return table;
}

// frt_fill (frt/base.h) of the struct that its caller knows too: an older caller gets what it
// knows, a newer one keeps its zeros behind it.  [any]
template <class Struct>
frt_status fill(Struct* out, const Struct& known) noexcept {
  return frt_fill(out, &known, sizeof(Struct));
}

// Runs `call`, one function of a peer's table. What it throws, which no function of the ABI may,
// becomes FRT_ERR_INTERNAL that names the peer and the function.  [as the call]
template <class Call>
auto contain(std::string_view sender, const char* function, Call&& call) -> decltype(call()) {
  const auto thrown = [&](const std::string& what) {
    return Error(FRT_ERR_INTERNAL, std::string(sender) + ": its `" + function +
                                       "` threw across the ABI: " + what +
                                       "; ask its author for a fix");
  };
  try {
    return call();
  } catch (const std::exception& error) {
    throw thrown(error.what());
  } catch (...) {
    throw thrown("an exception of unknown type");
  }
}

// What `call(&answer)` fills in. Throws what the call reports, and FRT_ERR_ABI if it fills in less
// than the oldest version has.  [as the call]
template <HasContract Struct, class Call>
Struct ask(std::string_view sender, Call&& call) {
  Struct answer{};
  answer.struct_size = sizeof(Struct);
  check(contain(sender, Contract<Struct>::kName, [&] { return call(&answer); }),
        std::string(sender) + ": asking for its " + Contract<Struct>::kName);
  return read_table<Struct>(&answer, sender, sizeof(Struct));
}

}  // namespace frt
