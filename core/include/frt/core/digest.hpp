// SPDX-License-Identifier: Apache-2.0
// digest.hpp - SHA-256 of bytes and files, and fingerprints: a digest over named fields that can
// say which field differs.
#pragma once

#include <frt/error.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace frt::core {

// SHA-256 of a stream of bytes. Throws FRT_ERR_INTERNAL if the library refuses.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(const void* data, std::size_t bytes);
  // 64 lower-case hexadecimal digits. Ends the stream.
  std::string finish();
  // The digest itself instead.
  std::array<unsigned char, 32> finish_bytes();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "3f2a...": two digits per byte, lower case.  [any]
std::string hex_text(std::span<const unsigned char> bytes);

// Of one block.  [any]
std::string sha256_hex(std::string_view bytes);
// Of an open file, from its start; the file position is not used. FRT_ERR_IO on failure.  [any]
std::string sha256_file(int descriptor, const std::string& name);

// SHA-256 over length-prefixed fields, in order:
//   "frt-fingerprint/1", count, then per field: length, name, length, value (lengths: u64, little
//   endian). So no two different lists of fields have the same bytes.
class Fingerprint {
 public:
  struct Field {
    std::string name, value;
    bool operator==(const Field&) const = default;
  };

  Fingerprint() = default;
  explicit Fingerprint(std::vector<Field> fields) : fields_(std::move(fields)) {}
  // Throws FRT_ERR_EXISTS if the name is taken.
  void add(std::string name, std::string value);
  const std::vector<Field>& fields() const noexcept { return fields_; }
  std::string hex() const;

  // What a field decides. A name that begins with FRT_FINGERPRINT_BUILD says which build computed a
  // state; every other name says what the state is (frt/capsule.h).
  enum class Part { kIdentity, kBuild };
  static Part part_of(std::string_view name) noexcept;
  // The fields of one part, in their order.  [any]
  Fingerprint only(Part part) const;

  // Empty if both are equal; otherwise one line per field that differs, is missing or is too
  // much, e.g. "config: here 3f2a..., stored 91bc...".  [any]
  static std::string difference(const Fingerprint& here, const Fingerprint& stored);

 private:
  std::vector<Field> fields_;
};

}  // namespace frt::core
