// SPDX-License-Identifier: Apache-2.0
// Containers are written here, all other values by the library.
#include <frt/error.hpp>
#include <frt/io/json_text.hpp>

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
          scalar(member.first);
          out_ += style_.indent < 0 ? style_.colon : ": ";
          write(member.second, depth + 1);
        });
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

  void scalar(const Json& value) {
    const auto handler = style_.bad == BadUtf8::kReplace ? Json::error_handler_t::replace
                                                         : Json::error_handler_t::strict;
    try {
      out_ += value.dump(-1, ' ', false, handler);
    } catch (const Json::type_error&) {
      throw Error(FRT_ERR_INVALID_ARGUMENT,
                  "text that is not valid UTF-8 cannot be written as JSON; send text in UTF-8");
    }
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
