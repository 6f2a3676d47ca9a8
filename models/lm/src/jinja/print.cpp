// SPDX-License-Identifier: Apache-2.0
// Values as text: Python's str() and repr(), and json.dumps() as transformers calls it. What a
// container from outside is printed with (brackets, commas, numbers) is text from outside, too.
#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <frt/models/json.hpp>

#include "evaluator.hpp"
#include "operators.hpp"
#include "text.hpp"
#include "value.hpp"

namespace frt::lm::jinja {
namespace {

std::string hexadecimal(const char* format, char32_t code) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, static_cast<unsigned>(code));
  return buffer.data();
}

std::string python_number(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  return models::python_float(number);
}

bool prints(char32_t code) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return code == ' ';
    default:
      return true;
  }
}

class Printer {
 public:
  explicit Printer(Meter& meter) : meter_(meter) {}

  PromptText done() && { return std::move(out_); }

 protected:
  void add(std::string_view text, bool outside) {
    put(out_, text, outside);
    limit();
  }
  void append(const PromptText& text) {
    meter_.copy(text.text().size() + 16 * text.plain().size());
    out_.append(text);
    limit();
  }
  // A literal between `quote`s: characters through `escape`, which returns what stands for one, or
  // an empty text for itself.
  template <class Escape>
  void quoted(const PromptText& text, char quote, bool outside, Escape&& escape) {
    meter_.copy(text.text().size() * 4);
    add(std::string_view(&quote, 1), outside);
    for_runs(text, [&](std::string_view run, bool of_outside) {
      std::string written;
      while (!run.empty()) {
        const std::string_view one = run.substr(0, character_bytes(run[0]));
        const std::string changed = escape(one);
        written += changed.empty() ? one : std::string_view(changed);
        run.remove_prefix(one.size());
      }
      add(written, of_outside);
    });
    add(std::string_view(&quote, 1), outside);
  }

  Meter& meter_;
  PromptText out_;

 private:
  void limit() const {
    if (out_.text().size() > kMostOutput) output_too_long();
  }
};

class ReprPrinter : public Printer {
 public:
  using Printer::Printer;

  void print(const Value& value, bool outside) {
    meter_.work(1);
    switch (value.kind()) {
      case Kind::kUndefined:
        return add("Undefined", outside);
      case Kind::kNone:
        return add("None", outside);
      case Kind::kBool:
        return add(value.as_bool() ? "True" : "False", outside);
      case Kind::kInteger:
        return add(std::to_string(value.as_integer()), outside);
      case Kind::kFloat:
        return add(python_number(value.as_float()), outside);
      case Kind::kBigInteger:
        return append(value.text());
      case Kind::kText:
        return text(value.text(), outside);
      case Kind::kList:
      case Kind::kTuple:
        return list(value, outside);
      case Kind::kDict:
        return dict(value.dict(), outside);
      default:
        fail(type_name(value) + " cannot be printed");
    }
  }

 private:
  void text(const PromptText& of, bool outside) {
    const std::string_view all = of.text();
    const char quote = all.find('\'') != all.npos && all.find('"') == all.npos ? '"' : '\'';
    quoted(of, quote, outside, [quote](std::string_view one) -> std::string {
      if (one[0] == quote || one[0] == '\\') return std::string("\\").append(one);
      if (one == "\n") return "\\n";
      if (one == "\r") return "\\r";
      if (one == "\t") return "\\t";
      const char32_t code = code_point(one);
      if (prints(code)) return {};
      return hexadecimal(code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
    });
  }

  void list(const Value& value, bool outside) {
    const auto& object = static_cast<const ListObject&>(*value.object());
    outside = outside || object.outside;
    const bool tuple = value.is(Kind::kTuple);
    add(tuple ? "(" : "[", outside);
    for (std::size_t i = 0; i < object.items.size(); ++i) {
      if (i > 0) add(", ", outside);
      print(object.items[i], outside);
    }
    if (tuple && object.items.size() == 1) add(",", outside);
    add(tuple ? ")" : "]", outside);
  }

  void dict(const DictObject& object, bool outside) {
    outside = outside || object.outside;
    add("{", outside);
    for (std::size_t i = 0; i < object.items.size(); ++i) {
      if (i > 0) add(", ", outside);
      print(object.items[i].first, outside);
      add(": ", outside);
      print(object.items[i].second, outside);
    }
    add("}", outside);
  }
};

class JsonPrinter : public Printer {
 public:
  JsonPrinter(Meter& meter, const JsonFormat& format) : Printer(meter), format_(format) {}

  void print(const Value& value, bool outside, int level) {
    meter_.work(1);
    switch (value.kind()) {
      case Kind::kNone:
        return add("null", outside);
      case Kind::kBool:
        return add(value.as_bool() ? "true" : "false", outside);
      case Kind::kInteger:
        return add(std::to_string(value.as_integer()), outside);
      case Kind::kFloat:
        return add(models::python_float(value.as_float()), outside);
      case Kind::kBigInteger:
        return append(value.text());
      case Kind::kText:
        return text(value.text(), outside);
      case Kind::kList:
      case Kind::kTuple:
        return list(static_cast<const ListObject&>(*value.object()), outside, level);
      case Kind::kDict:
        return dict(value.dict(), outside, level);
      default:
        fail("tojson: " + type_name(value) + " is not JSON");
    }
  }

 private:
  void line(bool outside, int level) {
    if (!format_.indents) return;
    add("\n", outside);
    for (int i = 0; i < level; ++i) append(format_.indent);
  }

  void text(const PromptText& of, bool outside) {
    quoted(of, '"', outside, [this](std::string_view one) -> std::string {
      switch (one[0]) {
        case '"':
          return "\\\"";
        case '\\':
          return "\\\\";
        case '\n':
          return "\\n";
        case '\r':
          return "\\r";
        case '\t':
          return "\\t";
        case '\f':
          return "\\f";
        case '\b':
          return "\\b";
        default:
          break;
      }
      if (static_cast<unsigned char>(one[0]) < 0x20) {
        return hexadecimal("\\u%04x", static_cast<unsigned char>(one[0]));
      }
      if (!format_.ascii || one.size() == 1) return {};
      const char32_t code = code_point(one);
      if (code < 0x10000) return hexadecimal("\\u%04x", code);
      return hexadecimal("\\u%04x", 0xd800 + ((code - 0x10000) >> 10)) +
             hexadecimal("\\u%04x", 0xdc00 + ((code - 0x10000) & 0x3ff));
    });
  }

  void list(const ListObject& object, bool outside, int level) {
    outside = outside || object.outside;
    if (object.items.empty()) return add("[]", outside);
    add("[", outside);
    for (std::size_t i = 0; i < object.items.size(); ++i) {
      if (i > 0) add(format_.comma, outside);
      line(outside, level + 1);
      print(object.items[i], outside, level + 1);
    }
    line(outside, level);
    add("]", outside);
  }

  void dict(const DictObject& object, bool outside, int level) {
    outside = outside || object.outside;
    if (object.items.empty()) return add("{}", outside);
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : object.items) items.push_back(&item);
    if (format_.sorted) {
      std::stable_sort(items.begin(), items.end(), [this](const auto* a, const auto* b) {
        meter_.work(1);
        return less(meter_, a->first, b->first);
      });
    }
    add("{", outside);
    bool first = true;
    for (const auto* item : items) {
      if (!first) add(format_.comma, outside);
      first = false;
      line(outside, level + 1);
      key(item->first, outside);
      add(format_.colon, outside);
      print(item->second, outside, level + 1);
    }
    line(outside, level);
    add("}", outside);
  }

  void key(const Value& of, bool outside) {
    if (of.is(Kind::kText)) return text(of.text(), outside);
    add("\"", outside);
    print(of, outside, 0);
    add("\"", outside);
  }

  const JsonFormat& format_;
};

}  // namespace

PromptText to_text(Meter& meter, const Value& value) {
  if (value.is(Kind::kText)) {
    meter.copy(value.bytes().size() + 16 * value.text().plain().size());
    return value.text();
  }
  if (value.is(Kind::kUndefined)) return {};
  ReprPrinter printer(meter);
  printer.print(value, false);
  return std::move(printer).done();
}

PromptText to_repr(Meter& meter, const Value& value) {
  ReprPrinter printer(meter);
  printer.print(value, false);
  return std::move(printer).done();
}

PromptText to_json(Meter& meter, const Value& value, const JsonFormat& format) {
  JsonPrinter printer(meter, format);
  printer.print(value, false, 0);
  return std::move(printer).done();
}

}  // namespace frt::lm::jinja
