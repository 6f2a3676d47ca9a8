// SPDX-License-Identifier: Apache-2.0
// numpy's dtype strings on one side, frt_dtype on the other. Only little-endian types: every client
// that runs on a robot today sends those.
#include "robot/wire/observation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include <frt/error.hpp>

namespace frt::host {
namespace {

using Kind = Message::Kind;
using Node = Message::Node;

struct DtypeName {
  std::string_view name;
  frt_dtype dtype;
};
constexpr DtypeName kDtypes[] = {
    {"|u1", FRT_DTYPE_U8},  {"|i1", FRT_DTYPE_I8},  {"|b1", FRT_DTYPE_BOOL},
    {"<f4", FRT_DTYPE_F32}, {"<f8", FRT_DTYPE_F64}, {"<f2", FRT_DTYPE_F16},
    {"<i8", FRT_DTYPE_I64}, {"<i4", FRT_DTYPE_I32}, {"<i2", FRT_DTYPE_I16},
    {"<u2", FRT_DTYPE_U16}, {"<u4", FRT_DTYPE_U32}, {"<u8", FRT_DTYPE_U64}};

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw Error(FRT_ERR_FORMAT, "'" + name + "' of the observation " + what);
}

std::string shown(std::string_view text) {
  std::string out(text.substr(0, 64));
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return out;
}

// Keys inside an encoded array are binary in the protocol; clients of other languages send text.
WireArray read_array(const Message& message, const Node& map, const std::string& name) {
  WireArray array;
  array.name = name;
  const Node* dtype = message.find(map, "dtype");
  const Node* data = message.find(map, "data");
  const Node* shape = message.find(map, "shape");
  if (!dtype || (dtype->kind != Kind::kText && dtype->kind != Kind::kBinary) || !data ||
      data->kind != Kind::kBinary || !shape || shape->kind != Kind::kArray) {
    refuse(name, "is an encoded array without data, dtype or shape");
  }
  const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const DtypeName& d) { return d.name == dtype->bytes; });
  if (known == std::end(kDtypes)) {
    refuse(name, "has the dtype '" + shown(dtype->bytes) +
                     "'; send little-endian numbers (|u1, <f4, <f8, <i4, <i8 ...)");
  }
  array.dtype = known->dtype;
  array.data = data->bytes;
  uint64_t bytes = dtype_bits(array.dtype) / 8;
  if (shape->count > FRT_ARRAY_MAX_RANK) {
    refuse(name, "has " + std::to_string(shape->count) + " dimensions, at most " +
                     std::to_string(FRT_ARRAY_MAX_RANK) + " are understood");
  }
  array.rank = shape->count;
  uint32_t at = message.index_of(*shape) + 1;
  for (uint32_t i = 0; i < array.rank; ++i) {
    const Node& extent = message.at(at);
    const auto value = count_of(extent, uint64_t{1} << 32);
    if (!value) refuse(name, "has a shape that is no list of sizes");
    array.shape[i] = *value;
    if (*value != 0 && bytes > (uint64_t{1} << 40) / *value) refuse(name, "is too large");
    bytes *= *value;
    at = extent.end;
  }
  if (bytes != array.data.size()) {
    refuse(name, "has " + std::to_string(array.data.size()) +
                     " bytes of data, its shape and dtype " + "make " + std::to_string(bytes));
  }
  return array;
}

std::string child_name(const std::string& parent, std::string_view key) {
  return parent.empty() ? std::string(key) : parent + "/" + std::string(key);
}

std::string text_of(const Node& node, const std::string& name) {
  if (node.kind != Kind::kText && node.kind != Kind::kBinary) refuse(name, "is no text");
  if (node.bytes.find('\0') != std::string_view::npos) refuse(name, "contains a zero byte");
  return std::string(node.bytes);
}

class Reader {
 public:
  Reader(const Message& message, WireRequest& out) : message_(message), out_(out) {}

  // `node` is a map. Depth is bounded by the message's own limit.
  void read_map(const Node& node, const std::string& parent) {
    uint32_t at = message_.index_of(node) + 1;
    for (uint32_t i = 0; i < node.count; ++i) {
      const Node& key = message_.at(at);
      const Node& value = message_.at(key.end);
      read_value(child_name(parent, key.bytes), value);
      at = value.end;
    }
  }

 private:
  void read_value(const std::string& name, const Node& value) {
    if (value.kind == Kind::kMap) {
      if (message_.find(value, "__ndarray__")) {
        out_.arrays.push_back(read_array(message_, value, name));
      } else if (message_.find(value, "__npgeneric__")) {
        const Node* data = message_.find(value, "data");  // a plain number, beside its numpy type
        if (!data || !number_of(*data)) refuse(name, "is an encoded scalar without a number");
        read_value(name, *data);
      } else {
        read_map(value, name);
      }
    } else if (name == "prompt") {
      out_.prompt = text_of(value, name);
    } else if (name == "prompt_token_ids" && value.kind == Kind::kArray) {
      read_ids(name, value);
    } else if (const auto number = number_of(value)) {
      WireArray array;
      array.name = name;
      array.dtype = FRT_DTYPE_F64;
      array.scalar = *number;
      out_.arrays.push_back(std::move(array));
    }
  }

  void read_ids(const std::string& name, const Node& value) {
    uint32_t at = message_.index_of(value) + 1;
    for (uint32_t i = 0; i < value.count; ++i) {
      const Node& id = message_.at(at);
      const auto number = count_of(id, INT32_MAX);
      if (!number) refuse(name, "is no list of token ids");
      out_.prompt_ids.push_back(static_cast<int32_t>(*number));
      at = id.end;
    }
  }

  const Message& message_;
  WireRequest& out_;
};

uint64_t whole(const WireArray& array, uint64_t limit) {
  const double value = array.count() == 1 ? array.value(0) : -1;
  if (!(value >= 0) || value != std::floor(value) || value > static_cast<double>(limit)) {
    refuse(array.name, "is no whole number from 0 to " + std::to_string(limit));
  }
  return static_cast<uint64_t>(value);
}

double finite(const WireArray& array, uint64_t i) {
  const double value = array.value(i);
  if (!std::isfinite(value)) {
    refuse(array.name, "is not finite at index " + std::to_string(i));
  }
  return value;
}

double half_to_double(uint16_t half) {
  const int exponent = half >> 10 & 0x1f;
  const double fraction = half & 0x3ff;
  double value = exponent == 0    ? std::ldexp(fraction, -24)
                 : exponent == 31 ? (fraction != 0 ? NAN : INFINITY)
                                  : std::ldexp(fraction + 1024, exponent - 25);
  return half & 0x8000 ? -value : value;
}

template <class T>
double load(const char* data) {
  T value;
  std::memcpy(&value, data, sizeof(value));
  return static_cast<double>(value);
}

}  // namespace

uint64_t WireArray::count() const noexcept {
  uint64_t count = 1;
  for (uint32_t i = 0; i < rank; ++i) count *= shape[i];
  return count;
}

double WireArray::value(uint64_t i) const noexcept {
  if (data.empty()) return scalar;
  const char* at = data.data() + i * (dtype_bits(dtype) / 8);
  switch (dtype) {
    case FRT_DTYPE_F32:
      return load<float>(at);
    case FRT_DTYPE_F64:
      return load<double>(at);
    case FRT_DTYPE_F16: {
      uint16_t half;
      std::memcpy(&half, at, sizeof(half));
      return half_to_double(half);
    }
    case FRT_DTYPE_I8:
      return load<int8_t>(at);
    case FRT_DTYPE_I16:
      return load<int16_t>(at);
    case FRT_DTYPE_U16:
      return load<uint16_t>(at);
    case FRT_DTYPE_I32:
      return load<int32_t>(at);
    case FRT_DTYPE_U32:
      return load<uint32_t>(at);
    case FRT_DTYPE_I64:
      return load<int64_t>(at);
    case FRT_DTYPE_U64:
      return load<uint64_t>(at);
    default:
      return load<uint8_t>(at);
  }
}

const WireArray* WireRequest::find(std::string_view name) const noexcept {
  for (const WireArray& array : arrays) {
    if (array.name == name) return &array;
  }
  return nullptr;
}

WireRequest read_request(const Message& message) {
  WireRequest request;
  if (message.root().kind != Kind::kMap) {
    throw Error(FRT_ERR_FORMAT, "an observation is a map of names to arrays; the message is none");
  }
  Reader(message, request).read_map(message.root(), "");
  if (const WireArray* seed = request.find("seed")) {
    request.seed = whole(*seed, uint64_t{1} << 53);
  }
  if (const WireArray* steps = request.find("num_steps")) {
    request.steps = static_cast<uint32_t>(whole(*steps, 1000));
  }
  if (const WireArray* beta = request.find("rl/beta")) request.beta = finite(*beta, 0);
  if (const WireArray* positive = request.find("rl/positive")) {
    request.positive = whole(*positive, 1) != 0;
  }
  if (const WireArray* ids = request.find("prompt_token_ids")) {
    for (uint64_t i = 0; i < ids->count(); ++i) {
      const double id = finite(*ids, i);
      if (id < 0 || id > INT32_MAX || id != std::floor(id)) {
        refuse(ids->name, "is no list of token ids");
      }
      request.prompt_ids.push_back(static_cast<int32_t>(id));
    }
  }
  request.has_noise = request.find("noise") != nullptr;
  request.previous = request.find("rtc/prev");
  if (request.previous) {
    for (uint64_t i = 0; i < request.previous->count(); ++i) finite(*request.previous, i);
  }
  if (const WireArray* delay = request.find("rtc/delay")) {
    request.delay = static_cast<uint32_t>(whole(*delay, 65535));
  }
  if (const WireArray* horizon = request.find("rtc/horizon")) {
    request.execution_horizon = static_cast<uint32_t>(whole(*horizon, 65535));
  }
  return request;
}

std::vector<frt_array> to_arrays(const WireRequest& request, std::vector<std::string>& aligned) {
  aligned.clear();
  aligned.reserve(request.arrays.size());  // so that what points into them stays
  std::vector<frt_array> arrays;
  arrays.reserve(request.arrays.size());
  for (const WireArray& wire : request.arrays) {
    frt_array array{};
    array.name = wire.name.c_str();
    array.dtype = wire.dtype;
    array.rank = wire.rank;
    for (uint32_t i = 0; i < wire.rank; ++i) array.shape[i] = static_cast<int64_t>(wire.shape[i]);
    array.data = wire.data.empty() ? static_cast<const void*>(&wire.scalar) : wire.data.data();
    if (reinterpret_cast<uintptr_t>(array.data) % std::max(dtype_bits(wire.dtype) / 8, 1u) != 0) {
      aligned.emplace_back(wire.data);
      array.data = aligned.back().data();
    }
    arrays.push_back(array);
  }
  return arrays;
}

std::string write_reply(std::span<const double> actions, uint64_t width, double infer_ms,
                        double server_ms, double previous_total_ms) {
  const std::string_view data(reinterpret_cast<const char*>(actions.data()), actions.size_bytes());
  MessageWriter out;
  out.map(3);
  out.text("actions");
  out.ndarray("<f8", {actions.size() / width, width}, data);
  out.text("policy_timing");
  out.map(1);
  out.text("infer_ms");
  out.number(infer_ms);
  out.text("server_timing");
  out.map(previous_total_ms < 0 ? 1 : 2);
  out.text("infer_ms");
  out.number(server_ms);
  if (previous_total_ms >= 0) {
    out.text("prev_total_ms");
    out.number(previous_total_ms);
  }
  return out.take();
}

}  // namespace frt::host
