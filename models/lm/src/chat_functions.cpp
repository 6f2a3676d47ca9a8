// SPDX-License-Identifier: Apache-2.0
#include <frt/lm/chat_functions.hpp>

#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/io/json_text.hpp>
#include <frt/io/utf8.hpp>
#include <frt/plugin.hpp>

namespace frt::lm {
namespace {

struct Stream {
  std::unique_ptr<ChatReader> reader;
};

models::Json parsed(const char* text, const char* what) {
  return text ? io::parse_json(text, what) : models::Json();
}

frt_status give(frt_sink sink, void* user, std::string_view text) {
  return text.empty() ? FRT_OK : sink(user, text.data(), text.size());
}

frt_status give(frt_chat_sink sink, void* user, const ChatEvents& events) {
  for (const ChatEvent& event : events) {
    const frt_chat_event given{sizeof(given), event.kind,        event.call,
                               event.flags,   event.text.data(), event.text.size()};
    if (const frt_status status = sink(user, &given); status != FRT_OK) return status;
  }
  return FRT_OK;
}

}  // namespace

frt_status render_chat(const Chat& chat, const char* messages, const char* tools,
                       const char* options, frt_sink text, frt_sink plain, void* user) {
  const models::PromptText prompt =
      chat.render(parsed(messages, "messages"), parsed(tools, "tools"), parsed(options, "options"));
  if (const frt_status status = give(text, user, prompt.text()); status != FRT_OK) return status;
  std::vector<frt_text_range> ranges;
  for (const models::TextRange& range : prompt.plain()) ranges.push_back({range.begin, range.end});
  return ranges.empty() ? FRT_OK : plain(user, ranges.data(), ranges.size() * sizeof(ranges[0]));
}

frt_status parse_chat(const Chat& chat, const char* text, std::uint64_t bytes, std::uint32_t flags,
                      const char* tools, const char* options, frt_sink sink, void* user) {
  require_flags(flags, FRT_CHAT_FINAL, "parse");
  const models::Json message =
      chat.parse(std::string_view(text, bytes), parsed(tools, "tools"), parsed(options, "options"),
                 (flags & FRT_CHAT_FINAL) != 0);
  return give(sink, user, io::json_text(message, {.bad = io::BadUtf8::kReplace}));
}

frt_status give_answer_form(const Chat& chat, const char* options, frt_sink sink, void* user) {
  return give(sink, user, io::json_text(chat.answer_form(parsed(options, "options"))));
}

frt_chat_stream create_chat_stream(const Chat& chat, const char* tools, const char* options) {
  auto stream = std::make_unique<Stream>();
  stream->reader = chat.reader(parsed(tools, "tools"), parsed(options, "options"));
  return handle<frt_chat_stream>(stream.release());
}

frt_status push_chat_stream(frt_chat_stream stream, const char* text, std::uint64_t bytes,
                            frt_chat_sink sink, void* user, frt_error* error) noexcept {
  return guard(error, [&] {
    const std::string_view piece(text, bytes);
    if (const auto bad = io::first_invalid_utf8(piece)) {
      throw Error(FRT_ERR_INVALID_ARGUMENT, "stream_push: the text is not UTF-8 at byte " +
                                                std::to_string(*bad) + "; push whole characters");
    }
    ChatEvents events;
    object<Stream>(stream)->reader->push(piece, events);
    return give(sink, user, events);
  });
}

frt_status finish_chat_stream(frt_chat_stream stream, frt_chat_sink sink, void* user,
                              std::uint32_t* complete, frt_error* error) noexcept {
  return guard(error, [&] {
    ChatEvents events;
    *complete = object<Stream>(stream)->reader->finish(events) ? 1 : 0;
    return give(sink, user, events);
  });
}

void destroy_chat_stream(frt_chat_stream stream) noexcept {
  delete object<Stream>(stream);
}

}  // namespace frt::lm
