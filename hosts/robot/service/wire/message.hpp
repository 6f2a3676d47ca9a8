// SPDX-License-Identifier: Apache-2.0
// message.hpp - the part of msgpack that the openpi protocol uses, for bytes that nobody vouches
// for.
//
// Reading makes a flat table of nodes that point into the message; nothing is copied, nothing
// recurses, and counts in the message are believed only as far as bytes are left. Refused:
// extension types, repeated keys, keys of more than kMaxKey bytes, bytes after the value, more than
// kMaxDepth levels or kMaxNodes values. Writing takes the shortest form of everything, as
// msgpack-python does, so equal values are equal bytes.
//
// A library would bring another object model, and its limits would be ours to check all the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace frt::host {

class Message {
 public:
  static constexpr uint32_t kMaxDepth = 16;
  static constexpr uint32_t kMaxNodes = 65536;
  static constexpr uint32_t kMaxKey = 256;

  enum class Kind : uint8_t { kNil, kBool, kInt, kUint, kFloat, kText, kBinary, kArray, kMap };

  struct Node {
    Kind kind = Kind::kNil;
    uint32_t count = 0;             // kArray: values; kMap: pairs
    uint32_t end = 0;               // index after the last node inside this one
    int64_t integer = 0;            // kBool, kInt (negative), kUint up to INT64_MAX
    uint64_t unsigned_integer = 0;  // kUint
    double number = 0;              // kFloat
    std::string_view bytes;         // kText, kBinary: into the message
  };

  // Parses one value; `bytes` must outlive the object. Throws FRT_ERR_FORMAT with the byte offset.
  // The memory of earlier messages is used again.  [driver]
  void parse(std::string_view bytes);

  const Node& root() const { return nodes_.front(); }
  const Node& at(uint32_t index) const { return nodes_[index]; }
  uint32_t size() const noexcept { return static_cast<uint32_t>(nodes_.size()); }
  // The children of a map or array lie from index_of(node) + 1; each one's `end` is the next one's
  // index. A map has key, value, key, value.
  uint32_t index_of(const Node& node) const { return static_cast<uint32_t>(&node - nodes_.data()); }
  // The value of a text or binary key; null if there is none or `map` is no map.
  const Node* find(const Node& map, std::string_view key) const;

 private:
  struct Open {
    uint32_t node;
    uint32_t left;  // values to come
  };
  std::vector<Node> nodes_;
  std::vector<Open> open_;
  void check_keys(const Node& map) const;
};

// The number in a node of any numeric kind, bool included; nothing otherwise.  [any]
std::optional<double> number_of(const Message::Node& node) noexcept;
// A whole number from 0 to `limit`; nothing otherwise.  [any]
std::optional<uint64_t> count_of(const Message::Node& node, uint64_t limit) noexcept;

class MessageWriter {
 public:
  void nil() { out_ += '\xc0'; }
  void boolean(bool value) { out_ += value ? '\xc3' : '\xc2'; }
  void integer(int64_t value);
  void number(double value);  // float 64
  void text(std::string_view value);
  void binary(std::string_view value);
  void array(uint32_t count);  // `count` values follow
  void map(uint32_t count);    // `count` pairs follow
  // A numpy array in the protocol's form; `dtype` as numpy writes it ("<f8").
  void ndarray(std::string_view dtype, const std::vector<uint64_t>& shape, std::string_view data);

  const std::string& bytes() const noexcept { return out_; }
  std::string take() { return std::move(out_); }

 private:
  void big_endian(uint64_t value, uint32_t bytes);
  // One of the fixed form, or the smallest of the sized ones.
  void sized(uint64_t size, uint8_t fixed, uint64_t fixed_limit, uint8_t one, uint8_t two,
             uint8_t four);
  std::string out_;
};

}  // namespace frt::host
