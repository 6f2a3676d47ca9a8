// SPDX-License-Identifier: Apache-2.0
// The tests ("x is defined") of Jinja2.
#include <array>

#include "evaluator.hpp"
#include "operators.hpp"
#include "text.hpp"

namespace frt::lm::jinja {
namespace {

using In = const Value&;
using Args = const Arguments&;

const Value& argument(Args args) {
  if (args.positional.size() != 1 || !args.named.empty()) fail("a test takes one argument");
  return args.positional[0];
}

template <Kind... kKinds>
bool is(Evaluator&, In in, Args) {
  return (in.is(kKinds) || ...);
}
bool defined(Evaluator&, In in, Args) {
  return !in.is(Kind::kUndefined);
}
bool iterable(Evaluator&, In in, Args) {
  return in.is(Kind::kUndefined) || in.is(Kind::kText) || in.is(Kind::kDict) || in.is_sequence();
}
template <bool kValue>
bool constant(Evaluator&, In in, Args) {
  return in.is(Kind::kBool) && in.as_bool() == kValue;
}
std::int64_t integer_of(In in) {
  if (!in.is_integer()) fail("a test of an integer is given " + type_name(in));
  return in.as_integer();
}
template <bool kOdd>
bool parity(Evaluator&, In in, Args) {
  return (integer_of(in) % 2 != 0) == kOdd;
}
bool divisible(Evaluator&, In in, Args args) {
  const std::int64_t by = integer_of(argument(args));
  if (by == 0) fail("division by zero");
  return by == -1 || integer_of(in) % by == 0;
}
bool same(Evaluator&, In in, Args args) {
  const Value& other = argument(args);
  if (in.kind() != other.kind()) return false;
  if (in.is_integer()) return in.as_integer() == other.as_integer();
  return in.object() == other.object() && !in.is(Kind::kFloat);
}
bool in_(Evaluator& e, In in, Args args) {
  return contains(e.meter(), argument(args), in);
}
bool eq(Evaluator& e, In in, Args args) {
  return compare(e.meter(), "==", in, argument(args));
}
bool ne(Evaluator& e, In in, Args args) {
  return compare(e.meter(), "!=", in, argument(args));
}
bool lt(Evaluator& e, In in, Args args) {
  return compare(e.meter(), "<", in, argument(args));
}
bool le(Evaluator& e, In in, Args args) {
  return compare(e.meter(), "<=", in, argument(args));
}
bool gt(Evaluator& e, In in, Args args) {
  return compare(e.meter(), ">", in, argument(args));
}
bool ge(Evaluator& e, In in, Args args) {
  return compare(e.meter(), ">=", in, argument(args));
}
template <CharacterClass kClass>
bool letters(Evaluator& e, In in, Args) {
  return is_all(e.meter(), to_text(e.meter(), in).text(), kClass);
}
bool is_filter(Evaluator&, In in, Args) {
  return in.is(Kind::kText) && find_filter(in.bytes());
}
bool is_test(Evaluator&, In in, Args) {
  return in.is(Kind::kText) && find_test(in.bytes());
}

constexpr std::array<std::pair<std::string_view, Test>, 36> kTests = {{
    {"boolean", is<Kind::kBool>},
    {"callable", is<Kind::kFunction, Kind::kMacro>},
    {"defined", defined},
    {"divisibleby", divisible},
    {"eq", eq},
    {"equalto", eq},
    {"even", parity<false>},
    {"false", constant<false>},
    {"filter", is_filter},
    {"float", is<Kind::kFloat>},
    {"ge", ge},
    {"greaterthan", gt},
    {"gt", gt},
    {"in", in_},
    {"integer", is<Kind::kInteger, Kind::kBigInteger>},
    {"iterable", iterable},
    {"le", le},
    {"lessthan", lt},
    {"lower", letters<CharacterClass::kLower>},
    {"lt", lt},
    {"mapping", is<Kind::kDict>},
    {"ne", ne},
    {"none", is<Kind::kNone>},
    {"number", is<Kind::kInteger, Kind::kBigInteger, Kind::kFloat, Kind::kBool>},
    {"odd", parity<true>},
    {"sameas", same},
    {"sequence", is<Kind::kText, Kind::kList, Kind::kTuple, Kind::kDict, Kind::kUndefined>},
    {"string", is<Kind::kText>},
    {"test", is_test},
    {"true", constant<true>},
    {"undefined", is<Kind::kUndefined>},
    {"upper", letters<CharacterClass::kUpper>},
    {"==", eq},
    {"!=", ne},
    {"<", lt},
    {">", gt},
}};

}  // namespace

Test find_test(std::string_view name) {
  for (const auto& [known, test] : kTests) {
    if (known == name) return test;
  }
  return nullptr;
}

}  // namespace frt::lm::jinja
