// SPDX-License-Identifier: Apache-2.0
#include "http/page/page_files.hpp"

#include <algorithm>
#include <string>

namespace frt::host {
namespace {

constexpr std::string_view kFolder = "/page/";

// No inline script or style, nothing from elsewhere, no frame around it, no form that is sent.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* content_type(std::string_view name) noexcept {
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/html; charset=utf-8";
}

// An ETag has quotes around it, so it is no part of another one.
bool has_etag(const HttpRequest& request, std::string_view etag) noexcept {
  const std::string* known = request.header("if-none-match");
  return known && (*known == "*" || known->find(etag) != known->npos);
}

}  // namespace

bool is_page_path(std::string_view path) noexcept {
  return path == "/" || path.starts_with(kFolder);
}

std::optional<HttpResponse> page_answer(const HttpRequest& request) {
  const std::string_view path = request.path;
  const std::string_view name = path == "/" ? "index.html" : path.substr(kFolder.size());
  const std::span<const PageFile> files = page_files();
  const auto file = std::ranges::find(files, name, &PageFile::name);
  if (file == files.end()) return std::nullopt;
  HttpResponse answer{.status = has_etag(request, file->etag) ? 304 : 200,
                      .content_type = content_type(name),
                      .body = std::string(file->bytes.begin(), file->bytes.end())};
  answer.headers = {{"ETag", std::string(file->etag)},
                    {"Cache-Control", "no-cache"},
                    {"Content-Security-Policy", kPolicy},
                    {"Referrer-Policy", "no-referrer"},
                    {"Cross-Origin-Opener-Policy", "same-origin"},
                    {"Cross-Origin-Resource-Policy", "same-origin"}};
  return answer;
}

}  // namespace frt::host
