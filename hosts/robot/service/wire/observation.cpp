// SPDX-License-Identifier: Apache-2.0
// numpy's dtype strings on one side, frt_dtype on the other. Only little-endian types: every client
// that runs on a robot today sends those.
#include "robot/service/wire/observation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include <frt/error.hpp>
#include <frt/io/utf8.hpp>

#include "robot/service/wire/shown.hpp"

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

// How hard real-time chunking may pull to the chunk before: beyond it, actions are noise.
constexpr double kMaxGuidanceCap = 1000;
constexpr uint64_t kMaxStrengths = 4096;  // steps x branches; a model takes far fewer

[[noreturn]] void refuse(const std::string& name, const std::string& what) {
  throw Error(FRT_ERR_FORMAT, "'" + shown(name) + "' of the observation " + what);
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

// Longer than a key can be, as names are joined from keys.
std::string child_name(const std::string& parent, std::string_view key) {
  std::string name = parent.empty() ? std::string(key) : parent + "/" + std::string(key);
  if (name.size() > kMaxName) {
    refuse(name, "is a name of " + std::to_string(name.size()) + " bytes, at most " +
                     std::to_string(kMaxName));
  }
  const bool control =
      std::ranges::any_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (control || !io::is_utf8(name)) refuse(name, "is a name that is no UTF-8 text in one line");
  return name;
}

std::string text_of(const Node& node, const std::string& name) {
  if (node.kind != Kind::kText && node.kind != Kind::kBinary) refuse(name, "is no text");
  if (node.bytes.find('\0') != std::string_view::npos) refuse(name, "contains a zero byte");
  if (const auto at = io::first_invalid_utf8(node.bytes)) {
    refuse(name, "is no UTF-8 text: see byte " + std::to_string(*at));
  }
  return std::string(node.bytes);
}

struct ChoiceName {
  std::string_view name;
  uint32_t value;
};
constexpr ChoiceName kModes[] = {{"guided", FRT_CONTINUE_GUIDED},
                                 {"locked", FRT_CONTINUE_LOCKED},
                                 {"clean", FRT_CONTINUE_CLEAN}};
constexpr ChoiceName kSchedules[] = {{"linear", FRT_SCHEDULE_LINEAR},
                                     {"exp", FRT_SCHEDULE_EXPONENTIAL},
                                     {"ones", FRT_SCHEDULE_ONES},
                                     {"zeros", FRT_SCHEDULE_ZEROS}};

uint32_t choice(const Node& node, const std::string& name, std::span<const ChoiceName> choices) {
  const std::string text = text_of(node, name);
  std::string known;
  for (const ChoiceName& each : choices) {
    if (each.name == text) return each.value;
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  refuse(name, "is '" + shown(text) + "'; expected one of " + known);
}

// Keys of the request's options, which are for this host: a mistake in one is never passed over.
bool is_option(const std::string& name) {
  return name.starts_with("rl/") || name.starts_with("rtc/") || name == "noise" || name == "seed" ||
         name == "num_steps" || name == "prompt_token_ids";
}

// All that 'rl' and 'rtc' may hold. A policy's own keys are not known here.
constexpr std::string_view kOptions[] = {"rl/beta",      "rl/positive",     "rtc/prev",
                                         "rtc/delay",    "rtc/horizon",     "rtc/mode",
                                         "rtc/schedule", "rtc/max_guidance"};

// What a misspelt key asks for would be left out without a word.
void require_known(const std::string& name, const Node& value) {
  if (name == "rl" || name == "rtc") {
    if (value.kind != Kind::kMap && value.kind != Kind::kNil) refuse(name, "is no map");
    return;
  }
  if (!name.starts_with("rl/") && !name.starts_with("rtc/")) return;
  if (std::ranges::find(kOptions, name) != std::end(kOptions)) return;
  std::string known;
  for (const std::string_view each : kOptions) {
    known += (known.empty() ? "" : ", ") + std::string(each);
  }
  refuse(name, "is no key that this server knows; it knows " + known);
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
    require_known(name, value);
    if (name == "rtc" || name.starts_with("rtc/")) {
      if (!out_.continuation) out_.continuation.emplace();
    }
    if (value.kind == Kind::kMap) {
      if (message_.find(value, "__ndarray__")) {
        add(read_array(message_, value, name));
      } else if (message_.find(value, "__npgeneric__")) {
        const Node* data = message_.find(value, "data");  // a plain number, beside its numpy type
        if (!data || !number_of(*data)) refuse(name, "is an encoded scalar without a number");
        read_value(name, *data);
      } else {
        read_map(value, name);
      }
    } else if (value.kind == Kind::kArray) {
      read_list(name, value);
    } else if (name == "prompt") {
      out_.prompt = text_of(value, name);
    } else if (name == "rtc/mode") {
      out_.continuation->mode = choice(value, name, kModes);
    } else if (name == "rtc/schedule") {
      out_.continuation->schedule = choice(value, name, kSchedules);
    } else if (const auto number = number_of(value)) {
      WireArray array;
      array.name = name;
      array.dtype = FRT_DTYPE_F64;
      array.scalar = *number;
      add(std::move(array));
    } else if (is_option(name) && value.kind != Kind::kNil) {
      refuse(name, "is no number");
    }
  }

  // {"a/b": .., "a": {"b": ..}} has one name twice, though no map does.
  void add(WireArray array) {
    if (out_.arrays.size() == kMaxArrays) {
      refuse(array.name,
             "comes after " + std::to_string(kMaxArrays) + " others, the most there may be");
    }
    if (out_.find(array.name)) refuse(array.name, "is there twice");
    out_.arrays.push_back(std::move(array));
  }

  // A list of numbers, or of lists of one shape, is an array.
  void read_list(const std::string& name, const Node& list) {
    WireArray array;
    array.name = name;
    array.dtype = FRT_DTYPE_F64;
    std::vector<double>& values = out_.lists.emplace_back();
    bool numbers = true;
    const Node* level = &list;
    for (; level->kind == Kind::kArray && array.rank < FRT_ARRAY_MAX_RANK; ++array.rank) {
      array.shape[array.rank] = level->count;
      if (level->count == 0) {
        ++array.rank;
        break;
      }
      level = &message_.at(message_.index_of(*level) + 1);
    }
    flatten(list, array, 0, values, numbers);
    if (numbers) {
      array.data = {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
      add(std::move(array));
    } else if (is_option(name)) {
      refuse(name, "is no array of numbers");
    }
  }
  // The depth of recursion is the array's rank.
  void flatten(const Node& node, const WireArray& array, uint32_t depth,
               std::vector<double>& values, bool& numbers) {
    if (depth == array.rank) {
      const auto number = number_of(node);
      numbers = numbers && number.has_value();
      values.push_back(number.value_or(0));
      return;
    }
    numbers = numbers && node.kind == Kind::kArray && node.count == array.shape[depth];
    if (!numbers) return;
    uint32_t at = message_.index_of(node) + 1;
    for (uint32_t i = 0; i < node.count && numbers; ++i) {
      const Node& value = message_.at(at);
      flatten(value, array, depth + 1, values, numbers);
      at = value.end;
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

// Models compute with f32: what is infinite there is not finite here.
double finite(const WireArray& array, uint64_t i) {
  const double value = array.value(i);
  if (!std::isfinite(static_cast<float>(value))) {
    refuse(array.name, "is not finite at index " + std::to_string(i));
  }
  return value;
}

GuidanceStrengths strengths_of(const WireArray& beta) {
  if (beta.rank > 2 || beta.count() == 0 || beta.count() > kMaxStrengths) {
    refuse(beta.name, "is no (steps) or (steps, branches)");
  }
  GuidanceStrengths strengths{{}, 1};
  for (uint64_t i = 0; i < beta.count(); ++i) strengths.values.push_back(finite(beta, i));
  if (beta.rank == 2) strengths.branches = static_cast<uint32_t>(beta.shape[1]);
  return strengths;
}

void read_continuation(const WireRequest& request, WireContinuation& out) {
  out.previous = request.find("rtc/prev");
  if (out.previous) {
    for (uint64_t i = 0; i < out.previous->count(); ++i) finite(*out.previous, i);
  }
  const auto rows = [&](const char* name, uint32_t& value) {
    if (const WireArray* array = request.find(name)) {
      value = static_cast<uint32_t>(whole(*array, 65535));
    }
  };
  rows("rtc/delay", out.delay);
  if (out.delay > 0 && !out.previous) {
    refuse("rtc/delay",
           "counts rows of 'rtc/prev', which is not there; send what is left of the last "
           "reply's 'network_actions'");
  }
  rows("rtc/horizon", out.execution_horizon);
  if (const WireArray* cap = request.find("rtc/max_guidance")) {
    if (cap->count() != 1 || !(finite(*cap, 0) > 0)) refuse(cap->name, "is no number above 0");
    if (cap->value(0) > kMaxGuidanceCap) {
      refuse(cap->name, "is above " + std::to_string(static_cast<int>(kMaxGuidanceCap)));
    }
    out.guidance_cap = cap->value(0);
  }
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
  if (const WireArray* beta = request.find("rl/beta")) request.guidance = strengths_of(*beta);
  if (const WireArray* positive = request.find("rl/positive")) {
    request.positive = whole(*positive, 1) != 0;
  }
  if (const WireArray* ids = request.find("prompt_token_ids")) {
    if (ids->count() > kMaxPromptIds) {
      refuse(ids->name, "has " + std::to_string(ids->count()) + " ids, at most " +
                            std::to_string(kMaxPromptIds));
    }
    for (uint64_t i = 0; i < ids->count(); ++i) {
      const double id = finite(*ids, i);
      if (id < 0 || id > INT32_MAX || id != std::floor(id)) {
        refuse(ids->name, "is no list of token ids");
      }
      request.prompt_ids.push_back(static_cast<int32_t>(id));
    }
  }
  request.has_noise = request.find("noise") != nullptr;
  if (request.has_noise && request.seed) {
    refuse("seed", "is beside 'noise', which leaves nothing to draw; send one of them");
  }
  if (request.prompt && request.find("prompt_token_ids")) {
    refuse("prompt", "is beside 'prompt_token_ids', which take its place; send one of them");
  }
  if (request.continuation) read_continuation(request, *request.continuation);
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

std::string write_reply(const WireReply& reply) {
  const auto array = [](const char* dtype, auto values, uint64_t width, MessageWriter& out) {
    out.ndarray(dtype, {values.size() / width, width},
                {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  };
  const uint64_t rows = reply.actions.size() / reply.width;
  MessageWriter out;
  out.map(reply.network_actions.empty() ? 3 : 4);
  out.text("actions");
  array("<f8", reply.actions, reply.width, out);
  if (!reply.network_actions.empty()) {
    out.text("network_actions");
    array("<f4", reply.network_actions, reply.network_actions.size() / rows, out);
  }
  out.text("policy_timing");
  out.map(1);
  out.text("infer_ms");
  out.number(reply.infer_ms);
  out.text("server_timing");
  out.map(reply.previous_total_ms < 0 ? 1 : 2);
  out.text("infer_ms");
  out.number(reply.server_ms);
  if (reply.previous_total_ms >= 0) {
    out.text("prev_total_ms");
    out.number(reply.previous_total_ms);
  }
  return out.take();
}

}  // namespace frt::host
