// SPDX-License-Identifier: Apache-2.0
// Methods of texts, dicts and lists, and global functions. What would change a value (append, pop,
// update ...) is undefined, as in Jinja's immutable sandbox.
#include <algorithm>
#include <array>
#include <ctime>
#include <optional>

#include "evaluator.hpp"
#include "operators.hpp"
#include "text.hpp"

namespace frt::lm::jinja {
namespace {

using Self = const Value&;
using Args = const Arguments&;

std::string_view text_argument(std::string_view what, const Value& value) {
  if (value.is(Kind::kText)) return value.bytes();
  if (value.is(Kind::kUndefined)) fail(std::string(what) + " lacks an argument");
  fail(std::string(what) + " takes a text, not " + type_name(value));
}

std::int64_t integer_argument(std::string_view what, const Value& value, std::int64_t missing) {
  if (value.is(Kind::kUndefined) || value.is(Kind::kNone)) return missing;
  if (!value.is_integer()) fail(std::string(what) + " takes an integer, not " + type_name(value));
  return value.as_integer();
}

// ---- texts ---------------------------------------------------------------------------------

template <Side kSide>
Value strip_method(Evaluator& e, Self self, Args args) {
  const auto bound = bind("strip", args, {"chars"});
  if (!bound[0].is(Kind::kText)) return e.text(strip_text(e.meter(), self.text(), kSide));
  const std::string_view set = bound[0].bytes();
  return e.text(strip_text(e.meter(), self.text(), kSide, &set));
}

template <bool kFromRight>
Value split(Evaluator& e, Self self, Args args) {
  const auto bound = bind("split", args, {"sep", "maxsplit"});
  const std::int64_t most = integer_argument("split", bound[1], -1);
  if (bound[0].is(Kind::kUndefined) || bound[0].is(Kind::kNone)) {
    return make_list(e.meter(), split_text(e.meter(), self.text(), nullptr, most, kFromRight));
  }
  const std::string_view separator = text_argument("split", bound[0]);
  return make_list(e.meter(), split_text(e.meter(), self.text(), &separator, most, kFromRight));
}

Value splitlines(Evaluator& e, Self self, Args args) {
  const auto bound = bind("splitlines", args, {"keepends"});
  return make_list(e.meter(), split_lines(e.meter(), self.text(), truth(bound[0])));
}

// startswith and endswith take a text or a tuple of them.
template <bool kEnd>
Value affix(Evaluator& e, Self self, Args args) {
  const auto bound = bind("startswith and endswith", args, {"prefix"});
  const std::string_view text = self.bytes();
  const auto has = [&](const Value& part) {
    const std::string_view wanted = text_argument("startswith and endswith", part);
    e.meter().copy(wanted.size());
    return kEnd ? text.ends_with(wanted) : text.starts_with(wanted);
  };
  if (!bound[0].is(Kind::kTuple)) return Value::boolean(has(bound[0]));
  e.meter().work(bound[0].items().size());
  return Value::boolean(std::any_of(bound[0].items().begin(), bound[0].items().end(), has));
}

template <bool kSuffix>
Value remove_affix(Evaluator& e, Self self, Args args) {
  const auto bound = bind("removeprefix and removesuffix", args, {"part"});
  const std::string_view part = text_argument("removeprefix and removesuffix", bound[0]);
  std::string_view text = self.bytes();
  if (kSuffix && text.ends_with(part)) text.remove_suffix(part.size());
  if (!kSuffix && text.starts_with(part)) text.remove_prefix(part.size());
  return e.text(cut(e.meter(), self.text(), text));
}

template <Case kCase>
Value change(Evaluator& e, Self self, Args args) {
  bind("a method of case", args, {});
  return e.text(change_case(e.meter(), self.text(), kCase));
}

template <CharacterClass kClass>
Value is_class(Evaluator& e, Self self, Args args) {
  bind("a test of letters", args, {});
  return Value::boolean(is_all(e.meter(), self.bytes(), kClass));
}

Value replace(Evaluator& e, Self self, Args args) {
  const auto bound = bind("replace", args, {"old", "new", "count"});
  const std::string_view from = text_argument("replace", bound[0]);
  text_argument("replace", bound[1]);
  return e.text(replace_text(e.meter(), self.text(), from, bound[1].text(),
                             integer_argument("replace", bound[2], -1)));
}

Value join(Evaluator& e, Self self, Args args) {
  const auto bound = bind("join", args, {"iterable"});
  const std::vector<Value> parts = elements(e.meter(), bound[0]);
  for (const Value& part : parts) text_argument("join", part);
  return find_filter("join")(e, bound[0], {{self}, {}});
}

// Characters in front of the part; -1: it is not there.
template <bool kFromRight, bool kRequired>
Value find(Evaluator& e, Self self, Args args) {
  const auto bound = bind("find", args, {"sub"});
  const std::string_view part = text_argument("find", bound[0]), text = self.bytes();
  e.meter().search(text.size(), part.size());
  const std::size_t at = kFromRight ? text.rfind(part) : text.find(part);
  if (at == text.npos) {
    if (kRequired) fail("index: the text is not there");
    return Value::integer(-1);
  }
  return Value::integer(static_cast<std::int64_t>(count_characters(text.substr(0, at))));
}

Value count(Evaluator& e, Self self, Args args) {
  const auto bound = bind("count", args, {"sub"});
  const std::string_view part = text_argument("count", bound[0]);
  std::string_view rest = self.bytes();
  e.meter().search(rest.size(), part.size());
  if (part.empty()) return Value::integer(static_cast<std::int64_t>(count_characters(rest)) + 1);
  std::int64_t found = 0;
  for (std::size_t at = 0; at = rest.find(part), at != rest.npos; ++found) {
    rest.remove_prefix(at + part.size());
  }
  return Value::integer(found);
}

// str.format with {}, {0} and {name}.
Value format(Evaluator& e, Self self, Args args) {
  PromptText out;
  std::size_t next = 0;
  const auto value_of = [&](std::string_view field) -> const Value& {
    if (field.find_first_of(".[:!") != field.npos) {
      fail("format takes {}, {0} and {name} only", FRT_ERR_UNSUPPORTED);
    }
    std::size_t index = next;
    if (!field.empty() && field.find_first_not_of("0123456789") != field.npos) {
      for (const auto& [name, value] : args.named) {
        if (name == field) return value;
      }
      fail("format lacks a value");
    }
    if (field.empty()) ++next;
    if (!field.empty())
      index = field.size() > 4 ? args.positional.size() : std::stoul(std::string(field));
    if (index >= args.positional.size()) fail("format lacks a value");
    return args.positional[index];
  };
  for_runs(self.text(), [&](std::string_view rest, bool outside) {
    while (!rest.empty()) {
      const std::size_t at = std::min(rest.find_first_of("{}"), rest.size());
      put(out, rest.substr(0, at), outside);
      rest.remove_prefix(at);
      if (rest.empty()) return;
      const char brace = rest[0];
      rest.remove_prefix(1);
      if (rest.starts_with(brace)) {
        put(out, rest.substr(0, 1), outside);
        rest.remove_prefix(1);
        continue;
      }
      const std::size_t end = rest.find('}');
      if (brace == '}' || end == rest.npos) fail("format: a single brace");
      out.append(to_text(e.meter(), value_of(rest.substr(0, end))));
      if (out.text().size() > kMostOutput) output_too_long();
      rest.remove_prefix(end + 1);
    }
  });
  return e.text(std::move(out));
}

constexpr std::array<std::pair<std::string_view, Method>, 28> kTextMethods = {{
    {"capitalize", change<Case::kCapitalise>},
    {"count", count},
    {"endswith", affix<true>},
    {"find", find<false, false>},
    {"format", format},
    {"index", find<false, true>},
    {"isalnum", is_class<CharacterClass::kAlnum>},
    {"isalpha", is_class<CharacterClass::kAlpha>},
    {"isdigit", is_class<CharacterClass::kDigit>},
    {"islower", is_class<CharacterClass::kLower>},
    {"isspace", is_class<CharacterClass::kSpace>},
    {"isupper", is_class<CharacterClass::kUpper>},
    {"join", join},
    {"lower", change<Case::kLower>},
    {"lstrip", strip_method<Side::kLeft>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rsplit", split<true>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", affix<false>},
    {"strip", strip_method<Side::kBoth>},
    {"title", change<Case::kTitle>},
    {"upper", change<Case::kUpper>},
}};

// ---- dicts and lists -----------------------------------------------------------------------

Value get(Evaluator&, Self self, Args args) {
  const auto bound = bind("get", args, {"key", "default"});
  if (const Value* found = self.dict().find(bound[0])) return *found;
  return args.positional.size() + args.named.size() > 1 ? bound[1] : Value::none();
}

Value dict_items(Evaluator& e, Self self, Args args) {
  bind("items", args, {});
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict().items) {
    pairs.push_back(make_list(e.meter(), {key, value}, Kind::kTuple, self.dict().outside));
  }
  return make_list(e.meter(), std::move(pairs), Kind::kList, self.dict().outside);
}

template <bool kKeys>
Value parts(Evaluator& e, Self self, Args args) {
  bind("keys and values", args, {});
  std::vector<Value> all;
  for (const auto& [key, value] : self.dict().items) all.push_back(kKeys ? key : value);
  return make_list(e.meter(), std::move(all), Kind::kList, self.dict().outside);
}

Value copy(Evaluator&, Self self, Args args) {
  bind("copy", args, {});
  return self;
}

constexpr std::array<std::pair<std::string_view, Method>, 5> kDictMethods = {{
    {"copy", copy},
    {"get", get},
    {"items", dict_items},
    {"keys", parts<true>},
    {"values", parts<false>},
}};

Value list_index(Evaluator& e, Self self, Args args) {
  const auto bound = bind("index", args, {"value"});
  const std::vector<Value>& items = self.items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (equal(e.meter(), items[i], bound[0])) return Value::integer(static_cast<std::int64_t>(i));
  }
  fail("index: the value is not in the list");
}

Value list_count(Evaluator& e, Self self, Args args) {
  const auto bound = bind("count", args, {"value"});
  return Value::integer(
      std::count_if(self.items().begin(), self.items().end(),
                    [&](const Value& item) { return equal(e.meter(), item, bound[0]); }));
}

constexpr std::array<std::pair<std::string_view, Method>, 2> kListMethods = {{
    {"count", list_count},
    {"index", list_index},
}};

Value cycle(Evaluator&, Self self, Args args) {
  if (args.positional.empty()) fail("loop.cycle() lacks an argument");
  return args.positional[self.loop().index % args.positional.size()];
}

constexpr std::array<std::pair<std::string_view, Method>, 1> kLoopMethods = {{{"cycle", cycle}}};

// ---- global functions ----------------------------------------------------------------------

Value range(Evaluator& e, Self, Args args) {
  const auto bound = bind("range", args, {"start", "stop", "step"});
  const bool one = args.positional.size() < 2;
  const std::int64_t begin = one ? 0 : integer_argument("range", bound[0], 0);
  const std::int64_t end = integer_argument("range", bound[one ? 0 : 1], 0);
  const std::int64_t step = integer_argument("range", bound[2], 1);
  if (step == 0) fail("the step of range is 0");
  std::vector<Value> numbers;
  for (std::int64_t at = begin; step > 0 ? at < end : at > end;) {
    if (numbers.size() == static_cast<std::size_t>(kMostRange)) {
      fail("range gives more than " + std::to_string(kMostRange) + " numbers", FRT_ERR_UNSUPPORTED);
    }
    numbers.push_back(Value::integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  return make_list(e.meter(), std::move(numbers));
}

// The keys and values that dict() and namespace() are given.
DictObject::Items given_items(Evaluator& e, std::string_view what, Args args) {
  DictObject::Items items;
  if (args.positional.size() > 1) fail(std::string(what) + " takes one value and names");
  if (!args.positional.empty()) {
    if (!args.positional[0].is(Kind::kDict)) fail(std::string(what) + " takes a dict and names");
    items = args.positional[0].dict().items;
    e.meter().work(items.size());
  }
  for (const auto& [name, value] : args.named) items.emplace_back(e.text(name), value);
  return items;
}

Value dict(Evaluator& e, Self, Args args) {
  return make_dict(e.meter(), given_items(e, "dict", args));
}

Value namespace_(Evaluator& e, Self, Args args) {
  const Value made = e.make_namespace();
  for (const auto& [key, value] : given_items(e, "namespace", args)) {
    if (key.is(Kind::kText)) made.name_space().set(key.bytes(), value);
  }
  return made;
}

Value raise_exception(Evaluator& e, Self, Args args) {
  const auto bound = bind("raise_exception", args, {"message"});
  fail("it refuses the conversation: " + to_text(e.meter(), bound[0]).text());
}

Value strftime_now(Evaluator& e, Self, Args args) {
  const auto bound = bind("strftime_now", args, {"format"});
  const std::string format(text_argument("strftime_now", bound[0]));
  if (format.size() > 256) fail("strftime_now takes at most 256 bytes");
  if (format.empty()) return e.text("");
  const auto seconds = static_cast<std::time_t>(e.now());
  std::tm parts{};
  localtime_r(&seconds, &parts);
  std::array<char, 1024> buffer{};
  return e.text(std::string_view(
      buffer.data(), std::strftime(buffer.data(), buffer.size(), format.c_str(), &parts)));
}

template <std::size_t N>
Method find_in(const std::array<std::pair<std::string_view, Method>, N>& methods,
               std::string_view name) {
  for (const auto& [known, method] : methods) {
    if (known == name) return method;
  }
  return nullptr;
}

}  // namespace

Method find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kText:
      return find_in(kTextMethods, name);
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kList:
    case Kind::kTuple:
      return find_in(kListMethods, name);
    case Kind::kLoop:
      return find_in(kLoopMethods, name);
    default:
      return nullptr;
  }
}

std::vector<std::pair<std::string_view, Method>> global_functions() {
  return {{"dict", dict},
          {"namespace", namespace_},
          {"raise_exception", raise_exception},
          {"range", range},
          {"strftime_now", strftime_now}};
}

}  // namespace frt::lm::jinja
