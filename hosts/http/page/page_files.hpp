// SPDX-License-Identifier: Apache-2.0
// page_files.hpp - the built-in page: files inside the program, and how they are answered.
//
//   GET  /            index.html
//   GET  /page/NAME   any of the files
//
// A browser takes nothing from elsewhere and runs no script but these files: each answer has a
// Content-Security-Policy that says so. The files hold no secret and need no key.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "http/request.hpp"

namespace frt::host {

struct PageFile {
  std::string_view name;  // "index.html"
  std::string_view etag;  // the SHA-256 of its bytes, in quotes
  std::span<const unsigned char> bytes;
};

// All of them; they live as long as the program.  [any]
std::span<const PageFile> page_files() noexcept;

// Whether a path is "/" or below "/page/".  [any]
bool is_page_path(std::string_view path) noexcept;

// The file that `request` asks for: 200, or 304 where If-None-Match has its ETag. Nothing if there
// is no such file.  [any]
std::optional<HttpResponse> page_answer(const HttpRequest& request);

}  // namespace frt::host
