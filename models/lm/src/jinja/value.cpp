// SPDX-License-Identifier: Apache-2.0
#include "value.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "text.hpp"

namespace frt::lm::jinja {

using models::Json;

namespace {

int deepest(const std::vector<Value>& items) {
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  return depth;
}

int deepest(const DictObject::Items& items) {
  int depth = 0;
  for (const auto& [key, value] : items) depth = std::max({depth, key.depth(), value.depth()});
  return depth;
}

struct Reason final : Object {
  Reason(Meter& meter, std::string why_)
      : Object(meter, sizeof(Reason) + why_.size()), why(std::move(why_)) {}
  const std::string why;
};

// Equal keys have equal texts: 1, 1.0 and true are one key in Python, too.
std::string key_text(const Value& key) {
  switch (key.kind()) {
    case Kind::kText:
      return "t" + key.bytes();
    case Kind::kBool:
    case Kind::kInteger:
      return "i" + std::to_string(key.as_integer());
    case Kind::kNone:
      return "n";
    case Kind::kFloat: {
      const double number = key.as_float();
      if (std::trunc(number) == number && std::abs(number) < 9e18) {
        return "i" + std::to_string(static_cast<std::int64_t>(number));
      }
      return "f" + models::python_float(number);
    }
    default:
      fail(type_name(key) + " cannot be the key of a dict");
  }
}

}  // namespace

Object::Object(Meter& meter, std::size_t bytes, int depth)
    : meter_(meter), bytes_(bytes + 32), depth_(depth) {
  if (depth > kMostNesting) {
    fail("values are nested more than " + std::to_string(kMostNesting) + " deep",
         FRT_ERR_UNSUPPORTED);
  }
  meter.take(bytes_);
}

TextObject::TextObject(Meter& meter, PromptText text_)
    : Object(meter, sizeof(TextObject) + text_.text().size() +
                        text_.plain().size() * sizeof(models::TextRange)),
      text(std::move(text_)) {}

ListObject::ListObject(Meter& meter, std::vector<Value> items_, bool outside_)
    : Object(meter, sizeof(ListObject) + items_.size() * sizeof(Value), deepest(items_) + 1),
      items(std::move(items_)),
      outside(outside_) {
  meter.work(items.size() / 4);
}

DictObject::DictObject(Meter& meter, const Items& items_, bool outside_)
    : Object(meter, sizeof(DictObject), deepest(items_) + 1), outside(outside_) {
  meter.work(items_.size());
  for (const auto& [key, value] : items_) {
    std::string text = key_text(key);
    meter.copy(text.size());
    grow(2 * sizeof(Value) + 64 + text.size());
    const auto [at, added] = index_.emplace(std::move(text), items.size());
    if (added) {
      items.emplace_back(key, value);
    } else {
      items[at->second].second = value;
    }
  }
}

const Value* DictObject::find(const Value& key) const {
  if (key.is(Kind::kText)) meter().copy(key.bytes().size());
  const auto found = index_.find(key_text(key));
  return found == index_.end() ? nullptr : &items[found->second].second;
}

void NamespaceObject::set(std::string_view name, Value value) {
  const auto found = values.find(name);
  if (found != values.end()) {
    found->second = std::move(value);
    return;
  }
  grow(96 + name.size());
  values.emplace(std::string(name), std::move(value));
}

const PromptText& Value::text() const {
  return static_cast<const TextObject&>(*object_).text;
}
const std::vector<Value>& Value::items() const {
  return static_cast<const ListObject&>(*object_).items;
}
const DictObject& Value::dict() const {
  return static_cast<const DictObject&>(*object_);
}
NamespaceObject& Value::name_space() const {
  return const_cast<NamespaceObject&>(static_cast<const NamespaceObject&>(*object_));
}
const LoopObject& Value::loop() const {
  return static_cast<const LoopObject&>(*object_);
}
std::string Value::why() const {
  return object_ ? static_cast<const Reason&>(*object_).why : "a value is undefined";
}

Value make_text(Meter& meter, PromptText text) {
  meter.copy(text.text().size() + 16 * text.plain().size());
  return {Kind::kText, std::make_shared<TextObject>(meter, std::move(text))};
}

Value own_text(Meter& meter, std::string_view text) {
  return make_text(meter, std::move(PromptText().format(text)));
}

Value make_list(Meter& meter, std::vector<Value> items, Kind kind, bool outside) {
  return {kind, std::make_shared<ListObject>(meter, std::move(items), outside)};
}

Value make_dict(Meter& meter, const DictObject::Items& items, bool outside) {
  return {Kind::kDict, std::make_shared<DictObject>(meter, items, outside)};
}

Value undefined(Meter& meter, std::string why) {
  return {Kind::kUndefined, std::make_shared<Reason>(meter, std::move(why))};
}

Value from_json(Meter& meter, const Json& json, bool outside) {
  meter.work(1);
  const auto text = [&](const std::string& from) {
    PromptText made;
    put(made, from, outside);
    return made;
  };
  switch (json.type()) {
    case Json::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case Json::value_t::number_integer:
      return Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: {
      const auto number = json.get<std::uint64_t>();
      if (number <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return Value::integer(static_cast<std::int64_t>(number));
      }
      return {Kind::kBigInteger, std::make_shared<TextObject>(meter, text(std::to_string(number)))};
    }
    case Json::value_t::binary: {  // io::kBigInteger
      const auto& digits = json.get_binary();
      return {Kind::kBigInteger,
              std::make_shared<TextObject>(meter, text(std::string(digits.begin(), digits.end())))};
    }
    case Json::value_t::number_float:
      return Value::real(json.get<double>());
    case Json::value_t::string:
      return make_text(meter, text(json.get_ref<const std::string&>()));
    case Json::value_t::array: {
      std::vector<Value> items;
      for (const Json& item : json) items.push_back(from_json(meter, item, outside));
      return make_list(meter, std::move(items), Kind::kList, outside);
    }
    case Json::value_t::object: {
      DictObject::Items items;
      for (const auto& [key, value] : json.items()) {
        items.emplace_back(make_text(meter, text(key)), from_json(meter, value, outside));
      }
      return make_dict(meter, items, outside);
    }
    default:
      return Value::none();
  }
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "an undefined value";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return "bool object";
    case Kind::kInteger:
    case Kind::kBigInteger:
      return "int object";
    case Kind::kFloat:
      return "float object";
    case Kind::kText:
      return "str object";
    case Kind::kList:
      return "list object";
    case Kind::kTuple:
      return "tuple object";
    case Kind::kDict:
      return "dict object";
    case Kind::kNamespace:
      return "namespace object";
    case Kind::kLoop:
      return "loop object";
    default:
      return "function";
  }
}

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInteger:
      return value.as_integer() != 0;
    case Kind::kFloat:
      return value.as_float() != 0;
    case Kind::kText:
      return !value.bytes().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().items.empty();
    default:
      return true;
  }
}

std::vector<Value> elements(Meter& meter, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return {};
    case Kind::kList:
    case Kind::kTuple:
      meter.work(value.items().size() / 4);
      return value.items();
    case Kind::kDict: {
      std::vector<Value> keys;
      meter.work(value.dict().items.size() / 4);
      for (const auto& [key, of] : value.dict().items) keys.push_back(key);
      return keys;
    }
    case Kind::kText:
      return characters(meter, value.text());
    default:
      fail(type_name(value) + " is not iterable");
  }
}

}  // namespace frt::lm::jinja
