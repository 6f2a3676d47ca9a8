// SPDX-License-Identifier: Apache-2.0
// value.hpp - the values of a template, as Python has them. Texts, lists and dicts never change
// once they are made (transformers renders in Jinja's immutable sandbox) and are counted
// references, so they form no cycle; namespaces, which do change, belong to the evaluator.
//
// A text knows which of its bytes came from outside (PromptText), through every operation.
#pragma once

#include <cstdint>
#include <frt/models/json.hpp>
#include <frt/models/prompt_text.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "meter.hpp"

namespace frt::lm::jinja {

using models::PromptText;

enum class Kind : std::uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInteger,
  kBigInteger,  // beyond 64 bits: only printed
  kFloat,
  kText,
  kList,
  kTuple,
  kDict,
  kNamespace,
  kLoop,
  kMacro,
  kFunction
};

// What a value refers to. `depth`: 1 + that of the deepest part.
class Object {
 public:
  Object(Meter& meter, std::size_t bytes, int depth = 1);
  virtual ~Object() { meter_.give_back(bytes_); }
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  int depth() const { return depth_; }

 protected:
  Meter& meter() const { return meter_; }
  void grow(std::size_t bytes) {
    meter_.take(bytes);
    bytes_ += bytes;
  }

 private:
  Meter& meter_;
  std::size_t bytes_;
  int depth_;
};

struct TextObject;
struct ListObject;
struct DictObject;
struct NamespaceObject;
struct LoopObject;
struct MacroObject;
struct FunctionObject;

class Value {
 public:
  Value() = default;  // undefined
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value) { return Value(Kind::kBool, value ? 1 : 0); }
  static Value integer(std::int64_t value) { return Value(Kind::kInteger, value); }
  static Value real(double value) {
    Value made(Kind::kFloat);
    made.number_ = value;
    return made;
  }
  Value(Kind kind, std::shared_ptr<const Object> object)
      : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_integer() const { return kind_ == Kind::kInteger || kind_ == Kind::kBool; }
  bool is_number() const { return is_integer() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // Only for the kinds that their names say.
  bool as_bool() const { return integer_ != 0; }
  std::int64_t as_integer() const { return integer_; }  // true is 1
  double as_float() const { return is_integer() ? static_cast<double>(integer_) : number_; }
  const PromptText& text() const;  // also of kBigInteger: its digits
  const std::string& bytes() const { return text().text(); }
  const std::vector<Value>& items() const;
  const DictObject& dict() const;
  NamespaceObject& name_space() const;
  const LoopObject& loop() const;
  const MacroObject& macro() const;
  const FunctionObject& function() const;
  // Of kUndefined: why it is, for an error.
  std::string why() const;

  const Object* object() const { return object_.get(); }
  int depth() const { return object_ ? object_->depth() : 0; }

 private:
  explicit Value(Kind kind, std::int64_t integer = 0) : kind_(kind), integer_(integer) {}

  Kind kind_ = Kind::kUndefined;
  union {
    std::int64_t integer_ = 0;
    double number_;
  };
  std::shared_ptr<const Object> object_;
};

struct TextObject final : Object {
  TextObject(Meter& meter, PromptText text_);
  const PromptText text;
};

// `outside`: it came with the conversation, so what prints it prints text from outside.
struct ListObject final : Object {
  ListObject(Meter& meter, std::vector<Value> items_, bool outside_);
  const std::vector<Value> items;
  const bool outside;
};

struct DictObject final : Object {
  using Items = std::vector<std::pair<Value, Value>>;
  // Later values of a key replace earlier ones.
  DictObject(Meter& meter, const Items& items_, bool outside_);
  const Value* find(const Value& key) const;

  Items items;
  const bool outside;

 private:
  std::unordered_map<std::string, std::size_t> index_;
};

struct NamespaceObject final : Object {
  explicit NamespaceObject(Meter& meter) : Object(meter, sizeof(NamespaceObject)) {}
  void set(std::string_view name, Value value);
  std::map<std::string, Value, std::less<>> values;
};

// `loop` of one iteration.
struct LoopObject final : Object {
  LoopObject(Meter& meter, Value items_, std::size_t index_, int depth0_)
      : Object(meter, sizeof(LoopObject), items_.depth() + 1),
        items(std::move(items_)),
        index(index_),
        depth0(depth0_) {}
  const Value items;
  const std::size_t index;
  const int depth0;
};

Value make_text(Meter& meter, PromptText text);
Value own_text(Meter& meter, std::string_view text);  // of the template
Value make_list(Meter& meter, std::vector<Value> items, Kind kind = Kind::kList,
                bool outside = false);
Value make_dict(Meter& meter, const DictObject::Items& items, bool outside = false);
Value undefined(Meter& meter, std::string why);
// `outside`: its texts are from outside.
Value from_json(Meter& meter, const models::Json& json, bool outside);

// "dict object", "str object" ... as Jinja names it in errors.
std::string type_name(const Value& value);
bool truth(const Value& value);
// What iteration gives: items, characters, keys. FRT_ERR_INVALID_ARGUMENT for anything else.
std::vector<Value> elements(Meter& meter, const Value& value);

// Python's str(), repr() and json.dumps().
PromptText to_text(Meter& meter, const Value& value);
struct JsonFormat {
  bool ascii = false;
  bool sorted = false;
  bool indents = false;
  PromptText indent;  // of one level
  std::string comma = ", ", colon = ": ";
};
PromptText to_json(Meter& meter, const Value& value, const JsonFormat& format);

}  // namespace frt::lm::jinja
