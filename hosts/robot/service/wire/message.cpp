// SPDX-License-Identifier: Apache-2.0
// The reader walks the bytes once. `open_` is the stack of containers that still wait for values; a
// node's `end` is set when its last value is complete. A container is refused as soon as it says
// more values than bytes are left, so a message of n bytes never makes more than n nodes.
#include "robot/service/wire/message.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <frt/error.hpp>

#include "robot/service/wire/shown.hpp"

namespace frt::host {
namespace {

class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}

  std::size_t at() const { return at_; }
  std::size_t left() const { return bytes_.size() - at_; }
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(FRT_ERR_FORMAT, "the message is no msgpack of this protocol: " + what +
                                    " at byte " + std::to_string(at_));
  }
  std::string_view take(uint64_t count) {
    if (count > left()) fail("it ends inside a value");
    const std::string_view part = bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  uint64_t big_endian(uint32_t count) {
    uint64_t value = 0;
    for (const char c : take(count)) value = value << 8 | static_cast<uint8_t>(c);
    return value;
  }

 private:
  std::string_view bytes_;
  std::size_t at_ = 0;
};

using Kind = Message::Kind;
using Node = Message::Node;

void set_unsigned(Node& node, uint64_t value) {
  node.kind = Kind::kUint;
  node.unsigned_integer = value;
  node.integer = static_cast<int64_t>(
      std::min<uint64_t>(value, static_cast<uint64_t>(std::numeric_limits<int64_t>::max())));
}

void set_signed(Node& node, uint64_t bits, uint32_t bytes) {
  const int64_t value = static_cast<int64_t>(bits << (64 - 8 * bytes)) >> (64 - 8 * bytes);
  if (value >= 0) return set_unsigned(node, static_cast<uint64_t>(value));
  node.kind = Kind::kInt;
  node.integer = value;
}

// Reads one value's head; what is inside containers follows as values of their own.
Node read(Bytes& in) {
  Node node;
  const auto type = static_cast<uint8_t>(in.take(1)[0]);
  const auto bytes_of = [&](Kind kind, uint64_t count) {
    node.kind = kind;
    node.bytes = in.take(count);
  };
  const auto container = [&](Kind kind, uint64_t count) {
    node.kind = kind;
    if (count > in.left()) in.fail("a container says more values than bytes are left");
    node.count = static_cast<uint32_t>(count);
  };
  if (type < 0x80) {
    set_unsigned(node, type);
  } else if (type < 0x90) {
    container(Kind::kMap, type & 0x0f);
  } else if (type < 0xa0) {
    container(Kind::kArray, type & 0x0f);
  } else if (type < 0xc0) {
    bytes_of(Kind::kText, type & 0x1f);
  } else if (type >= 0xe0) {
    set_signed(node, type, 1);
  } else {
    switch (type) {
      case 0xc0:
        break;
      case 0xc2:
      case 0xc3:
        node.kind = Kind::kBool;
        node.integer = type & 1;
        break;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        bytes_of(Kind::kBinary, in.big_endian(1u << (type - 0xc4)));
        break;
      case 0xca:
        node.kind = Kind::kFloat;
        node.number = std::bit_cast<float>(static_cast<uint32_t>(in.big_endian(4)));
        break;
      case 0xcb:
        node.kind = Kind::kFloat;
        node.number = std::bit_cast<double>(in.big_endian(8));
        break;
      case 0xcc:
      case 0xcd:
      case 0xce:
      case 0xcf:
        set_unsigned(node, in.big_endian(1u << (type - 0xcc)));
        break;
      case 0xd0:
      case 0xd1:
      case 0xd2:
      case 0xd3: {
        const uint32_t bytes = 1u << (type - 0xd0);
        set_signed(node, in.big_endian(bytes), bytes);
        break;
      }
      case 0xd9:
      case 0xda:
      case 0xdb:
        bytes_of(Kind::kText, in.big_endian(1u << (type - 0xd9)));
        break;
      case 0xdc:
      case 0xdd:
        container(Kind::kArray, in.big_endian(type == 0xdc ? 2 : 4));
        break;
      case 0xde:
      case 0xdf:
        container(Kind::kMap, in.big_endian(type == 0xde ? 2 : 4));
        break;
      default:
        in.fail("type byte " + std::to_string(type) + " (an extension type, or none)");
    }
  }
  return node;
}

bool is_key(const Node& node) {
  return node.kind == Kind::kText || node.kind == Kind::kBinary;
}

}  // namespace

void Message::parse(std::string_view bytes) {
  nodes_.clear();
  open_.clear();
  Bytes in(bytes);
  do {
    if (nodes_.size() == kMaxNodes) in.fail("more than " + std::to_string(kMaxNodes) + " values");
    const auto index = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(read(in));
    Node& node = nodes_.back();
    const bool container = node.kind == Kind::kArray || node.kind == Kind::kMap;
    if (container && node.count > 0) {
      if (open_.size() == kMaxDepth) {
        in.fail("more than " + std::to_string(kMaxDepth) + " levels");
      }
      open_.push_back({index, node.kind == Kind::kMap ? 2 * node.count : node.count});
      continue;
    }
    node.end = index + 1;
    while (!open_.empty() && --open_.back().left == 0) {
      Node& complete = nodes_[open_.back().node];
      complete.end = static_cast<uint32_t>(nodes_.size());
      if (complete.kind == Kind::kMap) check_keys(complete);
      open_.pop_back();
    }
  } while (!open_.empty());
  if (in.left() > 0) in.fail(std::to_string(in.left()) + " bytes follow the value");
}

void Message::check_keys(const Node& map) const {
  uint32_t at = index_of(map) + 1;
  std::vector<std::string_view> keys;
  keys.reserve(map.count);
  for (uint32_t i = 0; i < map.count; ++i) {
    const Node& key = nodes_[at];
    if (!is_key(key)) throw Error(FRT_ERR_FORMAT, "a map of the message has a key that is no text");
    if (key.bytes.size() > kMaxKey) {
      throw Error(FRT_ERR_FORMAT, "a map of the message has a key of " +
                                      std::to_string(key.bytes.size()) + " bytes, at most " +
                                      std::to_string(kMaxKey) + ": '" + shown(key.bytes) + "'");
    }
    keys.push_back(key.bytes);
    at = nodes_[key.end].end;
  }
  std::sort(keys.begin(), keys.end());
  const auto repeated = std::adjacent_find(keys.begin(), keys.end());
  if (repeated != keys.end()) {
    throw Error(FRT_ERR_FORMAT,
                "a map of the message has the key '" + shown(*repeated) + "' twice");
  }
}

const Node* Message::find(const Node& map, std::string_view key) const {
  if (map.kind != Kind::kMap) return nullptr;
  uint32_t at = index_of(map) + 1;
  for (uint32_t i = 0; i < map.count; ++i) {
    const Node& name = nodes_[at];
    if (name.bytes == key) return &nodes_[name.end];
    at = nodes_[name.end].end;
  }
  return nullptr;
}

std::optional<double> number_of(const Node& node) noexcept {
  switch (node.kind) {
    case Kind::kBool:
    case Kind::kInt:
      return static_cast<double>(node.integer);
    case Kind::kUint:
      return static_cast<double>(node.unsigned_integer);
    case Kind::kFloat:
      return node.number;
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> count_of(const Node& node, uint64_t limit) noexcept {
  if (node.kind != Kind::kUint || node.unsigned_integer > limit) return std::nullopt;
  return node.unsigned_integer;
}

void MessageWriter::big_endian(uint64_t value, uint32_t bytes) {
  for (uint32_t i = bytes; i-- > 0;) out_ += static_cast<char>(value >> (8 * i));
}

void MessageWriter::sized(uint64_t size, uint8_t fixed, uint64_t fixed_limit, uint8_t one,
                          uint8_t two, uint8_t four) {
  if (size < fixed_limit) {
    out_ += static_cast<char>(fixed | size);
  } else if (one && size <= 0xff) {
    out_ += static_cast<char>(one);
    big_endian(size, 1);
  } else if (size <= 0xffff) {
    out_ += static_cast<char>(two);
    big_endian(size, 2);
  } else if (size <= 0xffffffff) {
    out_ += static_cast<char>(four);
    big_endian(size, 4);
  } else {
    throw Error(FRT_ERR_OUT_OF_RANGE,
                "a value of " + std::to_string(size) + " bytes does not fit into a message");
  }
}

void MessageWriter::integer(int64_t value) {
  if (value >= 0) {
    const auto bits = static_cast<uint64_t>(value);
    if (bits < 0x80) return big_endian(bits, 1);
    const uint32_t log = bits <= 0xff ? 0 : bits <= 0xffff ? 1 : bits <= 0xffffffff ? 2 : 3;
    out_ += static_cast<char>(0xcc + log);
    return big_endian(bits, 1u << log);
  }
  const auto bits = static_cast<uint64_t>(value);
  if (value >= -32) return big_endian(bits & 0xff, 1);
  const uint32_t log = value >= INT8_MIN ? 0 : value >= INT16_MIN ? 1 : value >= INT32_MIN ? 2 : 3;
  out_ += static_cast<char>(0xd0 + log);
  big_endian(bits, 1u << log);
}

void MessageWriter::number(double value) {
  out_ += '\xcb';
  big_endian(std::bit_cast<uint64_t>(value), 8);
}

void MessageWriter::text(std::string_view value) {
  sized(value.size(), 0xa0, 32, 0xd9, 0xda, 0xdb);
  out_ += value;
}

void MessageWriter::binary(std::string_view value) {
  sized(value.size(), 0, 0, 0xc4, 0xc5, 0xc6);
  out_ += value;
}

void MessageWriter::array(uint32_t count) {
  sized(count, 0x90, 16, 0, 0xdc, 0xdd);
}

void MessageWriter::map(uint32_t count) {
  sized(count, 0x80, 16, 0, 0xde, 0xdf);
}

void MessageWriter::ndarray(std::string_view dtype, const std::vector<uint64_t>& shape,
                            std::string_view data) {
  map(4);
  binary("__ndarray__");
  boolean(true);
  binary("data");
  binary(data);
  binary("dtype");
  text(dtype);
  binary("shape");
  array(static_cast<uint32_t>(shape.size()));
  for (const uint64_t extent : shape) integer(static_cast<int64_t>(extent));
}

}  // namespace frt::host
