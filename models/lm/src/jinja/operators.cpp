// SPDX-License-Identifier: Apache-2.0
#include "operators.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>

#include "evaluator.hpp"
#include "text.hpp"

namespace frt::lm::jinja {
namespace {

[[noreturn]] void not_taken(std::string_view op, const Value& a, const Value& b) {
  if (a.is(Kind::kUndefined)) fail(a.why());
  if (b.is(Kind::kUndefined)) fail(b.why());
  fail("'" + std::string(op) + "' does not take " + type_name(a) + " and " + type_name(b));
}

[[noreturn]] void too_large() {
  fail("an integer exceeds 64 bits", FRT_ERR_UNSUPPORTED);
}

std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == -1 && a == std::numeric_limits<std::int64_t>::min()) too_large();
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

Value calculate_integers(std::string_view op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) too_large();
    return Value::integer(result);
  }
  if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) too_large();
    return Value::integer(result);
  }
  if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) too_large();
    return Value::integer(result);
  }
  if (op == "**") {
    if (b < 0) return Value::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
    result = 1;
    if (a == 0 || a == 1) return Value::integer(b == 0 ? 1 : a);
    if (a == -1) return Value::integer(b % 2 == 0 ? 1 : -1);
    for (; b > 0; --b) {  // at most 63 times
      if (__builtin_mul_overflow(result, a, &result)) too_large();
    }
    return Value::integer(result);
  }
  if (b == 0) fail("division by zero");
  if (op == "/") return Value::real(static_cast<double>(a) / static_cast<double>(b));
  if (op == "//") return Value::integer(floor_divide(a, b));
  if (b == -1) return Value::integer(0);
  const std::int64_t rest = a % b;
  return Value::integer(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value calculate_floats(std::string_view op, double a, double b) {
  if (op == "+") return Value::real(a + b);
  if (op == "-") return Value::real(a - b);
  if (op == "*") return Value::real(a * b);
  if (op == "**") return Value::real(std::pow(a, b));
  if (b == 0) fail("division by zero");
  if (op == "/") return Value::real(a / b);
  if (op == "//") return Value::real(std::floor(a / b));
  const double rest = std::fmod(a, b);
  return Value::real(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

bool outside(const Value& list) {
  return static_cast<const ListObject&>(*list.object()).outside;
}

Value repeat_list(Meter& meter, const Value& list, std::int64_t count) {
  const std::vector<Value>& items = list.items();
  if (count < 0) count = 0;
  if (!items.empty() && count > kMostRange / static_cast<std::int64_t>(items.size())) {
    fail("a list of more than " + std::to_string(kMostRange) + " values", FRT_ERR_UNSUPPORTED);
  }
  std::vector<Value> all;
  for (std::int64_t i = 0; i < count; ++i) all.insert(all.end(), items.begin(), items.end());
  return make_list(meter, std::move(all), list.kind(), outside(list));
}

Value join_lists(Meter& meter, const Value& a, const Value& b) {
  std::vector<Value> all = a.items();
  all.insert(all.end(), b.items().begin(), b.items().end());
  return make_list(meter, std::move(all), a.kind(), outside(a) || outside(b));
}

std::optional<std::int64_t> slice_bound(const Value& value) {
  if (value.is(Kind::kUndefined) || value.is(Kind::kNone)) return std::nullopt;
  if (!value.is_integer()) fail("slice bounds are integers, not " + type_name(value));
  return value.as_integer();
}

// Indices of a slice of `size` items.
std::vector<std::size_t> slice_indices(Meter& meter, std::int64_t size, const Value& begin,
                                       const Value& end, const Value& step) {
  const std::int64_t stride = slice_bound(step).value_or(1);
  if (stride == 0) fail("the step of a slice is 0");
  const bool backward = stride < 0;
  const std::int64_t least = backward ? -1 : 0, most = backward ? size - 1 : size;
  const auto bound = [&](const Value& of, std::int64_t missing) {
    const auto given = slice_bound(of);
    if (!given) return missing;
    return std::clamp(*given < 0 ? std::max(*given, -size - 1) + size : *given, least, most);
  };
  const std::int64_t first = bound(begin, backward ? most : least);
  const std::int64_t last = bound(end, backward ? least : most);
  std::vector<std::size_t> indices;
  const std::int64_t span = backward ? first - last : last - first;
  const std::int64_t width =
      backward ? (stride < -size ? size + 1 : -stride) : std::min(stride, size + 1);
  for (std::int64_t at = 0; at < span; at += width) {
    indices.push_back(static_cast<std::size_t>(backward ? first - at : first + at));
  }
  meter.work(indices.size() / 4);
  return indices;
}

// One "%..." of a format.
class Percent {
 public:
  Percent(Meter& meter, std::string_view& rest) : meter_(meter) {
    std::size_t at = 0;
    while (at < rest.size() && std::string_view("-+ #0").find(rest[at]) != std::string_view::npos) {
      ++at;
    }
    at = number(rest, at, width_);
    if (at < rest.size() && rest[at] == '.') {
      precision_ = 0;
      at = number(rest, at + 1, precision_);
    }
    if (at >= rest.size()) fail("a format ends within '%'");
    flags_ = std::string(rest.substr(0, at));
    type_ = rest[at];
    rest.remove_prefix(at + 1);
  }

  char type() const { return type_; }

  PromptText print(const Value& value) const {
    switch (type_) {
      case 's':
        return padded(to_text(meter_, value));
      case 'r':
        return padded(to_repr(meter_, value));
      case 'd':
      case 'i':
      case 'u':
        return number('d', value);
      case 'x':
      case 'X':
      case 'o':
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        return number(type_, value);
      default:
        fail(std::string("the format '%") + type_ + "' is not supported", FRT_ERR_UNSUPPORTED);
    }
  }

 private:
  static constexpr std::int64_t kWidest = 1000;

  static std::size_t number(std::string_view text, std::size_t at, std::int64_t& value) {
    for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      value = value * 10 + (text[at] - '0');
      if (value > kWidest) fail("a format is wider than " + std::to_string(kWidest));
    }
    return at;
  }

  PromptText padded(PromptText text) const {
    if (precision_ >= 0) fail("a precision of '%s' is not supported", FRT_ERR_UNSUPPORTED);
    const auto size = static_cast<std::int64_t>(count_characters(text.text()));
    if (size >= width_) return text;
    const std::string space(static_cast<std::size_t>(width_ - size), ' ');
    PromptText out;
    if (flags_.find('-') != flags_.npos) return std::move(out.append(text).format(space));
    return std::move(out.format(space).append(text));
  }

  PromptText number(char type, const Value& value) const {
    if (!value.is_number())
      fail(std::string("'%") + type_ + "' takes a number, not " + type_name(value));
    std::array<char, 2 * kWidest + 400> buffer{};
    const bool whole = type == 'd' || type == 'x' || type == 'X' || type == 'o';
    const std::string format = "%" + flags_ + (whole ? "ll" : "") + type;
    int size = 0;
    if (whole) {
      const double real = value.as_float();
      if (!value.is_integer() && (type != 'd' || !(std::abs(real) < 9e18))) {
        fail(std::string("'%") + type_ + "' takes an integer, not " + type_name(value));
      }
      const long long integer =
          value.is_integer() ? value.as_integer() : static_cast<long long>(real);
      if (integer < 0 && type != 'd') fail("a negative number in another base");
      size = std::snprintf(buffer.data(), buffer.size(), format.c_str(), integer);
    } else {
      size = std::snprintf(buffer.data(), buffer.size(), format.c_str(), value.as_float());
    }
    return std::move(PromptText().format(
        std::string_view(buffer.data(), static_cast<std::size_t>(std::max(size, 0)))));
  }

  Meter& meter_;
  std::string flags_;
  std::int64_t width_ = 0, precision_ = -1;
  char type_ = 's';
};

}  // namespace

bool equal(Meter& meter, const Value& a, const Value& b) {
  meter.work(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
    return a.as_float() == b.as_float();
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
    case Kind::kBigInteger:
      meter.copy(std::min(a.bytes().size(), b.bytes().size()));
      return a.bytes() == b.bytes();
    case Kind::kList:
    case Kind::kTuple:
      return a.items().size() == b.items().size() &&
             std::equal(a.items().begin(), a.items().end(), b.items().begin(),
                        [&](const Value& x, const Value& y) { return equal(meter, x, y); });
    case Kind::kDict: {
      const DictObject& left = a.dict();
      const DictObject& right = b.dict();
      if (left.items.size() != right.items.size()) return false;
      return std::all_of(left.items.begin(), left.items.end(), [&](const auto& item) {
        const Value* other = right.find(item.first);
        return other && equal(meter, item.second, *other);
      });
    }
    default:
      return a.object() == b.object();
  }
}

bool less(Meter& meter, const Value& a, const Value& b) {
  meter.work(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_integer() < b.as_integer();
    if (std::isnan(a.as_float()) || std::isnan(b.as_float())) fail("nan has no order");
    return a.as_float() < b.as_float();
  }
  if (a.is(Kind::kText) && b.is(Kind::kText)) {  // UTF-8 sorts as its characters do
    meter.copy(std::min(a.bytes().size(), b.bytes().size()));
    return a.bytes() < b.bytes();
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    return std::lexicographical_compare(
        a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
        [&](const Value& x, const Value& y) { return less(meter, x, y); });
  }
  not_taken("<", a, b);
}

bool contains(Meter& meter, const Value& whole, const Value& part) {
  switch (whole.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      if (!part.is(Kind::kText)) not_taken("in", part, whole);
      meter.search(whole.bytes().size(), part.bytes().size());
      return whole.bytes().find(part.bytes()) != std::string::npos;
    case Kind::kDict:
      return whole.dict().find(part) != nullptr;
    case Kind::kList:
    case Kind::kTuple:
      return std::any_of(whole.items().begin(), whole.items().end(),
                         [&](const Value& item) { return equal(meter, item, part); });
    default:
      not_taken("in", part, whole);
  }
}

bool compare(Meter& meter, std::string_view op, const Value& a, const Value& b) {
  if (op == "==") return equal(meter, a, b);
  if (op == "!=") return !equal(meter, a, b);
  if (op == "in") return contains(meter, b, a);
  if (op == "not in") return !contains(meter, b, a);
  if (op == "<") return less(meter, a, b);
  if (op == ">") return less(meter, b, a);
  if (op == "<=") return !less(meter, b, a);
  return !less(meter, a, b);
}

Value calculate(Meter& meter, std::string_view op, const Value& a, const Value& b) {
  if (a.is_integer() && b.is_integer()) {
    return calculate_integers(op, a.as_integer(), b.as_integer());
  }
  if (a.is_number() && b.is_number()) return calculate_floats(op, a.as_float(), b.as_float());
  if (op == "%" && a.is(Kind::kText)) {
    return format_percent(meter, a.text(), b.is(Kind::kTuple) ? b.items() : std::vector<Value>{b});
  }
  if (op == "+" && a.is(Kind::kText) && b.is(Kind::kText)) return concatenate(meter, a, b);
  if (op == "+" && a.is_sequence() && a.kind() == b.kind()) return join_lists(meter, a, b);
  if (op == "*") {
    const Value& count = a.is_integer() ? a : b;
    const Value& what = a.is_integer() ? b : a;
    if (count.is_integer() && what.is(Kind::kText)) {
      return make_text(meter, repeat(meter, what.text(), count.as_integer()));
    }
    if (count.is_integer() && what.is_sequence()) {
      return repeat_list(meter, what, count.as_integer());
    }
  }
  not_taken(op, a, b);
}

Value concatenate(Meter& meter, const Value& a, const Value& b) {
  PromptText text = to_text(meter, a);
  const PromptText other = to_text(meter, b);
  if (text.text().size() + other.text().size() > kMostOutput) output_too_long();
  meter.copy(other.text().size() + 16 * other.plain().size());
  text.append(other);
  return make_text(meter, std::move(text));
}

Value negate(const Value& value, bool negative) {
  if (!value.is_number()) {
    if (value.is(Kind::kUndefined)) fail(value.why());
    fail("a sign in front of " + type_name(value));
  }
  if (!value.is_integer()) return Value::real(negative ? -value.as_float() : value.as_float());
  if (!negative) return Value::integer(value.as_integer());
  return calculate_integers("-", 0, value.as_integer());
}

Value slice(Meter& meter, const Value& value, const Value& begin, const Value& end,
            const Value& step) {
  if (value.is_sequence()) {
    std::vector<Value> part;
    const auto size = static_cast<std::int64_t>(value.items().size());
    for (const std::size_t i : slice_indices(meter, size, begin, end, step)) {
      part.push_back(value.items()[i]);
    }
    return make_list(meter, std::move(part), value.kind(), outside(value));
  }
  if (!value.is(Kind::kText)) {
    if (value.is(Kind::kUndefined)) fail(value.why());
    fail("a slice of " + type_name(value));
  }
  const PromptText& text = value.text();
  std::vector<std::size_t> starts;
  meter.work(text.text().size() / 8);
  for (std::size_t at = 0; at < text.text().size(); at += character_bytes(text.text()[at])) {
    starts.push_back(at);
  }
  const auto size = static_cast<std::int64_t>(starts.size());
  starts.push_back(text.text().size());
  const std::vector<std::size_t> indices = slice_indices(meter, size, begin, end, step);
  if (slice_bound(step).value_or(1) == 1) {
    if (indices.empty()) return make_text(meter, {});
    return make_text(meter, cut(meter, text, starts[indices.front()], starts[indices.back() + 1]));
  }
  PromptText out;
  for (const std::size_t i : indices) out.append(cut(meter, text, starts[i], starts[i + 1]));
  return make_text(meter, std::move(out));
}

Value format_percent(Meter& meter, const PromptText& format, const std::vector<Value>& values) {
  PromptText out;
  std::size_t next = 0;
  // What a format from outside writes itself is from outside.
  for_runs(format, [&](std::string_view rest, bool from_outside) {
    while (!rest.empty()) {
      const std::size_t at = std::min(rest.find('%'), rest.size());
      put(out, rest.substr(0, at), from_outside);
      rest.remove_prefix(at);
      if (rest.empty()) break;
      rest.remove_prefix(1);
      if (rest.starts_with('%')) {
        put(out, "%", from_outside);
        rest.remove_prefix(1);
        continue;
      }
      const Percent percent(meter, rest);
      if (next >= values.size()) fail("a format has more '%' than there are values");
      meter.work(1);
      out.append(percent.print(values[next++]));
      if (out.text().size() > kMostOutput) output_too_long();
    }
  });
  if (next < values.size()) fail("a format has fewer '%' than there are values");
  return make_text(meter, std::move(out));
}

PromptText repeat(Meter& meter, const PromptText& text, std::int64_t count) {
  if (count <= 0 || text.text().empty()) return {};
  if (static_cast<std::uint64_t>(count) > kMostOutput / text.text().size()) output_too_long();
  const auto times = static_cast<std::size_t>(count);
  meter.work(times);
  meter.copy(times * (text.text().size() + 16 * text.plain().size()));
  PromptText out;
  for (std::size_t i = 0; i < times; ++i) out.append(text);
  return out;
}

}  // namespace frt::lm::jinja
