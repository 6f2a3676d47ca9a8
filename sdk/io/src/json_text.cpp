// SPDX-License-Identifier: Apache-2.0
// Containers and strings are written here, all other values by the library.
#include <frt/error.hpp>
#include <frt/io/json_lexer.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>

namespace frt::io {

namespace {

constexpr std::size_t kDeepest = 512;

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}

  void write(const Json& value, std::size_t depth) {
    if (depth > kDeepest) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "a JSON value is nested deeper than " +
                                                std::to_string(kDeepest) +
                                                " and cannot be written");
    }
    switch (value.type()) {
      case Json::value_t::array:
        return list("[]", value.get_ref<const Json::array_t&>(), depth,
                    [&](const Json& item) { write(item, depth + 1); });
      case Json::value_t::object:
        return list("{}", value.get_ref<const Json::object_t&>(), depth, [&](const auto& member) {
          string(member.first);
          out_ += style_.indent < 0 ? style_.colon : ": ";
          write(member.second, depth + 1);
        });
      case Json::value_t::string:
        return string(value.get_ref<const std::string&>());
      case Json::value_t::number_float:
        if (style_.number) {
          out_ += style_.number(value.get<double>());
        } else {
          scalar(value);
        }
        return;
      case Json::value_t::binary:
        return digits(value.get_binary());
      default:
        return scalar(value);
    }
  }

  std::string take() { return std::move(out_); }

 private:
  template <class Items, class Write>
  void list(const char (&brackets)[3], const Items& items, std::size_t depth, const Write& write) {
    out_ += brackets[0];
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += style_.indent < 0 ? style_.comma : ",";
      first = false;
      line(depth + 1);
      write(item);
    }
    if (!items.empty()) line(depth);
    out_ += brackets[1];
  }

  void line(std::size_t depth) {
    if (style_.indent < 0) return;
    out_ += '\n';
    out_.append(depth * static_cast<std::size_t>(style_.indent), ' ');
  }

  void scalar(const Json& value) { out_ += value.dump(); }

  void string(std::string_view text) {
    out_ += '"';
    while (!text.empty()) {
      const std::size_t plain = plain_json_bytes(text);
      out_ += text.substr(0, plain);
      text.remove_prefix(plain);
      if (!text.empty()) text.remove_prefix(character(text));
    }
    out_ += '"';
  }

  // Writes the first character of `text`, which does not stand as it is or is not ASCII; returns
  // its bytes.
  std::size_t character(std::string_view text) {
    constexpr std::string_view kMeanings = "\"\\\b\f\n\r\t", kEscapes = "\"\\bfnrt";
    constexpr char kHex[] = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(text[0]);
    if (const std::size_t which = kMeanings.find(text[0]); which != kMeanings.npos) {
      out_ += '\\';
      out_ += kEscapes[which];
      return 1;
    }
    if (byte < 0x20) {
      out_ += "\\u00";
      out_ += kHex[byte >> 4];
      out_ += kHex[byte & 15];
      return 1;
    }
    const Utf8Step step = utf8_step(text);
    if (step.kind == Utf8Step::kValid) {
      out_ += text.substr(0, step.bytes);
    } else if (style_.bad == BadUtf8::kReplace) {
      out_ += "\xEF\xBF\xBD";
    } else {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "text that is not valid UTF-8 cannot be written as JSON; send text in UTF-8");
    }
    return step.bytes;
  }

  void digits(const Json::binary_t& value) {
    if (!value.has_subtype() || value.subtype() != kBigInteger) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "a binary JSON value cannot be written as text");
    }
    out_.append(value.begin(), value.end());
  }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string json_text(const Json& value, const JsonStyle& style) {
  Writer writer(style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace frt::io
