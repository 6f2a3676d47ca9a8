// SPDX-License-Identifier: Apache-2.0
// The filters of Jinja2 that chat templates use. tojson is transformers' own: json.dumps with
// ensure_ascii=False, without escapes for HTML. Filters that give a generator in Jinja2 give a
// list.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <frt/lm/chat_options.hpp>
#include <limits>

#include "evaluator.hpp"
#include "operators.hpp"
#include "text.hpp"

namespace frt::lm::jinja {
namespace {

using In = const Value&;
using Args = const Arguments&;

bool given(const Value& value) {
  return !value.is(Kind::kUndefined);
}

bool flag(const Value& value, bool missing = false) {
  return given(value) ? truth(value) : missing;
}

std::int64_t integer(std::string_view what, const Value& value, std::int64_t missing) {
  if (!given(value)) return missing;
  if (!value.is_integer()) fail(std::string(what) + " takes an integer, not " + type_name(value));
  return value.as_integer();
}

void require(const Value& value) {
  if (!given(value)) fail(value.why());
}

PromptText text_of(Evaluator& e, const Value& value) {
  return to_text(e.meter(), value);
}

// What `attribute="a.b.0"` finds; the value itself if there is no attribute.
Value path(Evaluator& e, Value value, const Value& attribute, const Value& missing = Value()) {
  if (!given(attribute) || attribute.is(Kind::kNone)) return value;
  if (attribute.is_integer()) return e.item(value, attribute);
  if (!attribute.is(Kind::kText)) fail("an attribute is a text, not " + type_name(attribute));
  std::string_view rest = attribute.bytes();
  for (bool more = true; more;) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    std::int64_t index = 0;
    const bool number =
        !part.empty() && std::from_chars(part.data(), part.data() + part.size(), index).ptr ==
                             part.data() + part.size();
    value = e.item(value, number ? Value::integer(index) : e.text(part));
    if (!given(value) && given(missing)) value = missing;
    more = dot != rest.npos;
    if (more) rest.remove_prefix(dot + 1);
  }
  return value;
}

// What values are compared by: texts in lower case unless case counts.
Value order_key(Evaluator& e, const Value& value, bool case_counts) {
  if (case_counts || !value.is(Kind::kText)) return value;
  return e.text(change_case(e.meter(), value.text(), Case::kLower));
}

std::vector<Value> sorted(Evaluator& e, std::vector<Value> items, std::vector<Value> keys,
                          bool reverse) {
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? less(e.meter(), keys[b], keys[a]) : less(e.meter(), keys[a], keys[b]);
  });
  std::vector<Value> result;
  for (const std::size_t i : order) result.push_back(items[i]);
  return result;
}

// ---- values --------------------------------------------------------------------------------

Value default_(Evaluator& e, In in, Args args) {
  const auto bound = bind("default", args, {"default_value", "boolean"});
  const bool missing = !given(in) || (flag(bound[1]) && !truth(in));
  if (!missing) return in;
  return given(bound[0]) || !args.positional.empty() ? bound[0] : e.text("");
}

Value length(Evaluator& e, In in, Args args) {
  bind("length", args, {});
  switch (in.kind()) {
    case Kind::kUndefined:
      return Value::integer(0);
    case Kind::kText:
      e.meter().copy(in.bytes().size());
      return Value::integer(static_cast<std::int64_t>(count_characters(in.bytes())));
    case Kind::kList:
    case Kind::kTuple:
      return Value::integer(static_cast<std::int64_t>(in.items().size()));
    case Kind::kDict:
      return Value::integer(static_cast<std::int64_t>(in.dict().items.size()));
    default:
      fail(type_name(in) + " has no length");
  }
}

Value int_(Evaluator& e, In in, Args args) {
  const auto bound = bind("int", args, {"default", "base"});
  const Value missing = given(bound[0]) ? bound[0] : Value::integer(0);
  const auto base = static_cast<int>(std::clamp<std::int64_t>(integer("int", bound[1], 10), 2, 36));
  if (in.is_integer()) return Value::integer(in.as_integer());
  double number = 0;
  if (in.is(Kind::kText)) {
    e.meter().copy(in.bytes().size());
    std::string_view text = strip(in.bytes());
    if (text.starts_with('+')) text.remove_prefix(1);
    std::int64_t whole = 0;
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, whole, base);
    if (read.ec == std::errc() && read.ptr == end) return Value::integer(whole);
    const auto real = std::from_chars(text.data(), end, number);
    if (text.empty() || real.ec != std::errc() || real.ptr != end) return missing;
  } else if (in.is(Kind::kFloat)) {
    number = in.as_float();
  } else {
    return missing;
  }
  if (!(std::abs(number) < 9e18)) return missing;
  return Value::integer(static_cast<std::int64_t>(number));
}

Value float_(Evaluator& e, In in, Args args) {
  const auto bound = bind("float", args, {"default"});
  if (in.is_number()) return Value::real(in.as_float());
  if (in.is(Kind::kText)) {
    e.meter().copy(in.bytes().size());
    const std::string_view text = strip(in.bytes());
    double number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
    if (!text.empty() && read.ec == std::errc() && read.ptr == text.data() + text.size()) {
      return Value::real(number);
    }
  }
  return given(bound[0]) ? bound[0] : Value::real(0);
}

Value abs_(Evaluator&, In in, Args args) {
  bind("abs", args, {});
  if (!in.is_number()) fail("abs takes a number, not " + type_name(in));
  return negate(in, in.as_float() < 0);
}

Value round_(Evaluator&, In in, Args args) {
  const auto bound = bind("round", args, {"precision", "method"});
  if (!in.is_number()) fail("round takes a number, not " + type_name(in));
  const std::int64_t precision = integer("round", bound[0], 0);
  if (precision < 0 || precision > 15) fail("round takes a precision from 0 to 15");
  const std::string method = bound[1].is(Kind::kText) ? bound[1].bytes() : "common";
  if (method != "common") {
    if (method != "ceil" && method != "floor") fail("round takes common, ceil or floor");
    const double scale = std::pow(10.0, static_cast<double>(precision));
    const double scaled = in.as_float() * scale;
    return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
  }
  // Correctly rounded, as Python does: the decimal text of the exact value, read again.
  std::array<char, 400> text{};
  std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), in.as_float());
  return Value::real(std::strtod(text.data(), nullptr));
}

Value string(Evaluator& e, In in, Args args) {
  bind("string", args, {});
  return in.is(Kind::kText) ? in : e.text(text_of(e, in));
}

Value tojson(Evaluator& e, In in, Args args) {
  const auto bound = bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  require(in);
  JsonFormat format;
  format.ascii = flag(bound[0]);
  format.sorted = flag(bound[3]);
  if (given(bound[1]) && !bound[1].is(Kind::kNone)) {
    format.indents = true;
    format.comma = ",";
    if (bound[1].is(Kind::kText)) {
      format.indent = bound[1].text();
    } else {
      const std::int64_t width = integer("tojson", bound[1], 0);
      if (width > 1000) fail("tojson takes an indent of at most 1000");
      format.indent.format(
          std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '));
    }
  }
  if (given(bound[2]) && !bound[2].is(Kind::kNone)) {
    const bool pair = bound[2].is_sequence() && bound[2].items().size() == 2 &&
                      bound[2].items()[0].is(Kind::kText) && bound[2].items()[1].is(Kind::kText);
    if (!pair) fail("tojson takes two separators");
    format.comma = bound[2].items()[0].bytes();
    format.colon = bound[2].items()[1].bytes();
  }
  return e.text(to_json(e.meter(), in, format));
}

// ---- texts ---------------------------------------------------------------------------------

template <Case kCase>
Value change(Evaluator& e, In in, Args args) {
  bind("a filter of case", args, {});
  return e.text(change_case(e.meter(), text_of(e, in), kCase));
}

// Unlike str.title(), words begin behind space, hyphens and opening brackets only.
Value title(Evaluator& e, In in, Args args) {
  bind("title", args, {});
  const PromptText text = change_case(e.meter(), text_of(e, in), Case::kLower);
  PromptText out;
  bool begins = true;
  for_runs(text, [&](std::string_view run, bool outside) {
    while (!run.empty()) {
      const std::string_view one = run.substr(0, character_bytes(run[0]));
      const bool separates = leading_space(one) != 0 ||
                             std::string_view("-({[<").find(one[0]) != std::string_view::npos;
      PromptText character;
      put(character, one, outside);
      out.append(begins && !separates ? change_case(e.meter(), character, Case::kUpper)
                                      : character);
      begins = separates;
      run.remove_prefix(one.size());
    }
  });
  e.meter().work(text.text().size());
  return e.text(std::move(out));
}

Value trim(Evaluator& e, In in, Args args) {
  const auto bound = bind("trim", args, {"chars"});
  const PromptText text = text_of(e, in);
  if (!bound[0].is(Kind::kText)) return e.text(strip_text(e.meter(), text, Side::kBoth));
  const std::string_view set = bound[0].bytes();
  return e.text(strip_text(e.meter(), text, Side::kBoth, &set));
}

Value replace(Evaluator& e, In in, Args args) {
  const auto bound = bind("replace", args, {"old", "new", "count"});
  require(bound[0]);
  require(bound[1]);
  const PromptText from = text_of(e, bound[0]);
  const std::int64_t count = bound[2].is(Kind::kNone) ? -1 : integer("replace", bound[2], -1);
  return e.text(replace_text(e.meter(), text_of(e, in), from.text(), text_of(e, bound[1]), count));
}

Value indent(Evaluator& e, In in, Args args) {
  const auto bound = bind("indent", args, {"width", "first", "blank"});
  PromptText space;
  if (bound[0].is(Kind::kText)) {
    space = bound[0].text();
  } else {
    const std::int64_t width = integer("indent", bound[0], 4);
    if (width > 1000) fail("indent takes a width of at most 1000");
    space.format(std::string(static_cast<std::size_t>(std::max<std::int64_t>(width, 0)), ' '));
  }
  PromptText text = text_of(e, in);
  text.format("\n");
  PromptText out;
  if (flag(bound[1])) out.append(space);
  bool begins = true;
  for (const Value& line : split_lines(e.meter(), text, false)) {
    if (!begins) {
      out.format("\n");
      if (flag(bound[2]) || !line.bytes().empty()) out.append(space);
    }
    begins = false;
    e.meter().copy(64 + line.bytes().size() + space.text().size());
    out.append(line.text());
    if (out.text().size() > kMostOutput) output_too_long();
  }
  return e.text(std::move(out));
}

Value join(Evaluator& e, In in, Args args) {
  const auto bound = bind("join", args, {"d", "attribute"});
  const PromptText between = text_of(e, bound[0]);
  PromptText out;
  bool first = true;
  for (const Value& item : elements(e.meter(), in)) {
    if (!first) out.append(between);
    first = false;
    const PromptText text = text_of(e, path(e, item, bound[1]));
    e.meter().copy(64 + text.text().size() + between.text().size() +
                   16 * (text.plain().size() + between.plain().size()));
    out.append(text);
    if (out.text().size() > kMostOutput) output_too_long();
  }
  return e.text(std::move(out));
}

Value format(Evaluator& e, In in, Args args) {
  if (!args.named.empty()) fail("format with names is not supported", FRT_ERR_UNSUPPORTED);
  return format_percent(e.meter(), text_of(e, in), args.positional);
}

// ---- lists and dicts -----------------------------------------------------------------------

Value list(Evaluator& e, In in, Args args) {
  bind("list", args, {});
  return make_list(e.meter(), elements(e.meter(), in));
}

Value first(Evaluator& e, In in, Args args) {
  bind("first", args, {});
  const std::vector<Value> all = elements(e.meter(), in);
  return all.empty() ? undefined(e.meter(), "first of nothing") : all.front();
}

Value last(Evaluator& e, In in, Args args) {
  bind("last", args, {});
  const std::vector<Value> all = elements(e.meter(), in);
  return all.empty() ? undefined(e.meter(), "last of nothing") : all.back();
}

Value reverse(Evaluator& e, In in, Args args) {
  bind("reverse", args, {});
  std::vector<Value> all = elements(e.meter(), in);
  std::reverse(all.begin(), all.end());
  if (!in.is(Kind::kText)) return make_list(e.meter(), std::move(all));
  PromptText out;
  for (const Value& one : all) out.append(one.text());
  return e.text(std::move(out));
}

Value items(Evaluator& e, In in, Args args) {
  bind("items", args, {});
  if (!given(in)) return make_list(e.meter(), {});
  if (!in.is(Kind::kDict)) fail("items takes a dict, not " + type_name(in));
  return find_method(Kind::kDict, "items")(e, in, {});
}

Value dictsort(Evaluator& e, In in, Args args) {
  const auto bound = bind("dictsort", args, {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1].is(Kind::kText) ? bound[1].bytes() : "key";
  if (by != "key" && by != "value") fail("dictsort sorts by key or value");
  const Value pairs = items(e, in, {});
  std::vector<Value> keys;
  for (const Value& pair : pairs.items()) {
    keys.push_back(order_key(e, pair.items()[by == "key" ? 0 : 1], flag(bound[0])));
  }
  return make_list(e.meter(), sorted(e, pairs.items(), std::move(keys), flag(bound[2])));
}

Value sort(Evaluator& e, In in, Args args) {
  const auto bound = bind("sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> all = elements(e.meter(), in), keys;
  for (const Value& item : all) {
    keys.push_back(order_key(e, path(e, item, bound[2]), flag(bound[1])));
  }
  return make_list(e.meter(), sorted(e, std::move(all), std::move(keys), flag(bound[0])));
}

Value unique(Evaluator& e, In in, Args args) {
  const auto bound = bind("unique", args, {"case_sensitive", "attribute"});
  std::vector<Value> found, keys;
  for (const Value& item : elements(e.meter(), in)) {
    Value key = order_key(e, path(e, item, bound[1]), flag(bound[0]));
    const bool known = std::any_of(
        keys.begin(), keys.end(), [&](const Value& other) { return equal(e.meter(), key, other); });
    if (known) continue;
    keys.push_back(std::move(key));
    found.push_back(item);
  }
  return make_list(e.meter(), std::move(found));
}

template <bool kLargest>
Value extreme(Evaluator& e, In in, Args args) {
  const auto bound = bind("min and max", args, {"case_sensitive", "attribute"});
  Value best = undefined(e.meter(), "the extreme of nothing"), best_key;
  bool any = false;
  for (const Value& item : elements(e.meter(), in)) {
    const Value key = order_key(e, path(e, item, bound[1]), flag(bound[0]));
    if (any && !(kLargest ? less(e.meter(), best_key, key) : less(e.meter(), key, best_key))) {
      continue;
    }
    best = item;
    best_key = key;
    any = true;
  }
  return best;
}

Value sum(Evaluator& e, In in, Args args) {
  const auto bound = bind("sum", args, {"attribute", "start"});
  Value total = given(bound[1]) ? bound[1] : Value::integer(0);
  for (const Value& item : elements(e.meter(), in)) {
    total = calculate(e.meter(), "+", total, path(e, item, bound[0]));
  }
  return total;
}

// map, select and their siblings take anything that is false for nothing.
std::vector<Value> elements_if_any(Evaluator& e, In in) {
  return truth(in) ? elements(e.meter(), in) : std::vector<Value>();
}

Value map(Evaluator& e, In in, Args args) {
  std::vector<Value> mapped;
  if (args.positional.empty()) {
    const auto bound = bind("map", args, {"attribute", "default"});
    if (!given(bound[0])) fail("map takes a filter or an attribute");
    for (const Value& item : elements_if_any(e, in)) {
      mapped.push_back(path(e, item, bound[0], bound[1]));
    }
    return make_list(e.meter(), std::move(mapped));
  }
  const Value& name = args.positional[0];
  if (!name.is(Kind::kText)) fail("map takes the name of a filter");
  e.meter().work(args.positional.size());
  const Arguments rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
  for (const Value& item : elements_if_any(e, in)) {
    mapped.push_back(e.filter(name.bytes(), item, rest));
  }
  return make_list(e.meter(), std::move(mapped));
}

// select, reject, selectattr, rejectattr.
template <bool kWanted, bool kAttribute>
Value choose(Evaluator& e, In in, Args args) {
  std::size_t next = kAttribute ? 1 : 0;
  if (args.positional.size() < next) fail("selectattr and rejectattr take an attribute");
  const Value attribute = kAttribute ? args.positional[0] : Value();
  std::string name;
  if (next < args.positional.size()) {
    if (!args.positional[next].is(Kind::kText)) fail("select and reject take the name of a test");
    name = args.positional[next++].bytes();
  }
  const Arguments rest{
      {args.positional.begin() + static_cast<std::ptrdiff_t>(next), args.positional.end()},
      args.named};
  std::vector<Value> chosen;
  for (const Value& item : elements_if_any(e, in)) {
    const Value value = path(e, item, attribute);
    if ((name.empty() ? truth(value) : e.test(name, value, rest)) == kWanted) {
      chosen.push_back(item);
    }
  }
  return make_list(e.meter(), std::move(chosen));
}

constexpr std::array<std::pair<std::string_view, Method>, 36> kFilters = {{
    {"abs", abs_},
    {"capitalize", change<Case::kCapitalise>},
    {"count", length},
    {"d", default_},
    {"default", default_},
    {"dictsort", dictsort},
    {"first", first},
    {"float", float_},
    {"format", format},
    {"indent", indent},
    {"int", int_},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", list},
    {"lower", change<Case::kLower>},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", choose<false, false>},
    {"rejectattr", choose<false, true>},
    {"replace", replace},
    {"reverse", reverse},
    {"round", round_},
    {"safe", string},
    {"select", choose<true, false>},
    {"selectattr", choose<true, true>},
    {"sort", sort},
    {"string", string},
    {"sum", sum},
    {"title", title},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    {"upper", change<Case::kUpper>},
}};

}  // namespace

Method find_filter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace frt::lm::jinja
