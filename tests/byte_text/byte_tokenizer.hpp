// SPDX-License-Identifier: Apache-2.0
// byte_tokenizer.hpp - the tokenizer of the language models of tests: a token for each byte, ids 0
// to 255, and behind them control tokens.
//
//     struct Rules {
//       static constexpr std::array<std::string_view, 2> kControls = {"<|user|>", "<|end|>"};
//       static constexpr uint32_t kControlFlags = FRT_TOKEN_CONTROL;  // of token_bytes
//       static bool has_defect(std::string_view name);                // see below; false: none
//     };
//     const frt_tokenizer_v1& table = byte_text::ByteTokenizer<Rules>::table();
//
// Defects are for the tests of a checker: encode_loses, encode_trusts, encode_without_limit,
// stream_any_id, stream_splits, and FUNCTION_any_flag.
#pragma once

#include <frt/tokenizer.h>

#include <frt/error.hpp>
#include <frt/io/utf8.hpp>
#include <frt/plugin.hpp>
#include <frt/role/contracts.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace byte_text {

template <class Rules>
void require_flags(uint32_t flags, uint32_t known, const std::string& function) {
  if ((flags & ~known) == 0 || Rules::has_defect(function + "_any_flag")) return;
  throw frt::Error(FRT_ERR_UNSUPPORTED,
                   function + ": unknown flags " + std::to_string(flags & ~known));
}

inline frt_status give(frt_sink sink, void* user, std::string_view text) {
  return text.empty() ? FRT_OK : sink(user, text.data(), text.size());
}

template <class Rules>
class ByteTokenizer {
 public:
  static constexpr int32_t kFirstControl = 256;
  static constexpr auto kVocabulary =
      kFirstControl + static_cast<int32_t>(std::size(Rules::kControls));

  static const frt_tokenizer_v1& table() noexcept {
    static constexpr frt_tokenizer_v1 kTable = {
        sizeof(frt_tokenizer_v1),
        0,
        [](frt_model) { return static_cast<uint32_t>(kVocabulary); },
        encode,
        decode,
        token_id,
        stream_create,
        stream_push,
        stream_flush,
        [](frt_text_stream stream) { delete frt::object<Stream>(stream); },
        token_bytes};
    return kTable;
  }

 private:
  // Bytes of tokens, given out as whole characters.
  struct Stream {
    std::string pending;
    bool skip_control = false;
    bool splits = false;  // characters, by a defect

    void push(int32_t id, std::string& out) {
      const bool known = id >= 0 && id < kVocabulary;
      if (!known && Rules::has_defect("stream_any_id")) return;
      if (!known)
        throw frt::Error(FRT_ERR_OUT_OF_RANGE, "no token has the id " + std::to_string(id));
      if (id < kFirstControl) {
        const char byte = static_cast<char>(id);
        frt::io::append_lossy(pending, {&byte, 1}, out);
        if (splits) flush(out);
        return;
      }
      flush(out);
      if (!skip_control) out += control(id);
    }
    void flush(std::string& out) { frt::io::finish_lossy(pending, out); }
  };

  static std::string_view control(int32_t id) {
    return Rules::kControls[static_cast<std::size_t>(id - kFirstControl)];
  }

  // The control token at the start of `text`, or -1.
  static int32_t control_at(std::string_view text) {
    for (int32_t id = kFirstControl; id < kVocabulary; ++id) {
      if (text.starts_with(control(id))) return id;
    }
    return -1;
  }

  static void require_text(std::string_view text, const frt_encode_params& given) {
    if (const auto bad = frt::io::first_invalid_utf8(text)) {
      throw frt::Error(FRT_ERR_FORMAT, "the text is not UTF-8 at byte " + std::to_string(*bad));
    }
    for (const frt_text_range& part : std::span(given.plain, given.plain_count)) {
      if (part.begin <= part.end && part.end <= text.size()) continue;
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT, "a plain part ends behind the text");
    }
  }

  static std::vector<int32_t> ids_of(std::string_view text, const frt_encode_params& given) {
    const bool trusts = Rules::has_defect("encode_trusts");
    const bool plain_all = (given.flags & FRT_ENCODE_PLAIN) != 0 && !trusts;
    const bool limited = given.max_tokens > 0 && !Rules::has_defect("encode_without_limit");
    const bool loses = Rules::has_defect("encode_loses");
    std::span<const frt_text_range> plain(given.plain, trusts ? 0 : given.plain_count);
    std::vector<int32_t> ids;
    for (std::size_t at = 0; at < text.size();) {
      while (!plain.empty() && plain[0].end <= at) plain = plain.subspan(1);
      int32_t id = plain_all ? -1 : control_at(text.substr(at));
      std::size_t length = id < 0 ? 1 : control(id).size();
      if (id >= 0 && !plain.empty() && plain[0].begin < at + length) id = -1;
      if (id < 0) {
        id = static_cast<unsigned char>(text[at]);
        length = 1;
      }
      if (!(loses && id == 'o')) ids.push_back(id);
      at += length;
      if (limited && ids.size() > given.max_tokens) {
        throw frt::Error(
            FRT_ERR_OUT_OF_RANGE,
            "the text has more than " + std::to_string(given.max_tokens) + " tokens; shorten it");
      }
    }
    return ids;
  }

  static frt_status encode(frt_model, const char* text, uint64_t bytes,
                           const frt_encode_params* params, frt_sink sink, void* user,
                           frt_error* error) {
    return frt::guard(error, [&]() -> frt_status {
      frt_encode_params given{};
      if (params) given = frt::read_table<frt_encode_params>(params, "encode: the host");
      require_flags<Rules>(given.flags, FRT_ENCODE_PLAIN | FRT_ENCODE_CONTINUES, "encode");
      require_text({text, bytes}, given);
      const std::vector<int32_t> ids = ids_of({text, bytes}, given);
      return ids.empty() ? FRT_OK : sink(user, ids.data(), ids.size() * sizeof(ids[0]));
    });
  }

  static frt_status decode(frt_model, const int32_t* ids, uint64_t count, uint32_t flags,
                           frt_sink sink, void* user, frt_error* error) {
    return frt::guard(error, [&] {
      require_flags<Rules>(flags, FRT_DECODE_SKIP_SPECIAL, "decode");
      Stream stream{{}, (flags & FRT_DECODE_SKIP_SPECIAL) != 0, false};
      std::string text;
      for (uint64_t i = 0; i < count; ++i) stream.push(ids[i], text);
      stream.flush(text);
      return give(sink, user, text);
    });
  }

  static int32_t token_id(frt_model, const char* token) {
    const std::string_view text(token);
    const int32_t id = control_at(text);
    if (id >= 0) return control(id) == text ? id : -1;
    return text.size() == 1 ? static_cast<unsigned char>(text[0]) : -1;
  }

  static frt_status stream_create(frt_model, uint32_t flags, frt_text_stream* stream,
                                  frt_error* error) {
    return frt::guard(error, [&] {
      require_flags<Rules>(flags, FRT_DECODE_SKIP_SPECIAL, "stream_create");
      auto* made = new Stream{{}, (flags & FRT_DECODE_SKIP_SPECIAL) != 0, false};
      made->splits = Rules::has_defect("stream_splits");
      *stream = frt::handle<frt_text_stream>(made);
    });
  }

  static frt_status stream_push(frt_text_stream stream, int32_t id, frt_sink sink, void* user,
                                frt_error* error) {
    return frt::guard(error, [&] {
      std::string text;
      frt::object<Stream>(stream)->push(id, text);
      return give(sink, user, text);
    });
  }

  static frt_status stream_flush(frt_text_stream stream, frt_sink sink, void* user,
                                 frt_error* error) {
    return frt::guard(error, [&] {
      std::string text;
      frt::object<Stream>(stream)->flush(text);
      return give(sink, user, text);
    });
  }

  static frt_status token_bytes(frt_model, int32_t id, uint32_t* flags, frt_sink sink, void* user,
                                frt_error* error) {
    return frt::guard(error, [&] {
      if (id < 0 || id >= kVocabulary) {
        throw frt::Error(FRT_ERR_OUT_OF_RANGE, "no token has the id " + std::to_string(id));
      }
      const bool is_control = id >= kFirstControl;
      const char byte = static_cast<char>(id);
      *flags = is_control ? Rules::kControlFlags : 0;
      return give(sink, user, is_control ? control(id) : std::string_view(&byte, 1));
    });
  }
};

}  // namespace byte_text
