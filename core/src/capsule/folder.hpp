// SPDX-License-Identifier: Apache-2.0
// folder.hpp - names and folders of capsule files.
#pragma once

#include <frt/io/file.hpp>

#include <string>
#include <string_view>

namespace frt::core {

inline constexpr std::string_view kCapsuleSuffix = ".capsule";
inline constexpr std::string_view kTemporaryPrefix = ".tmp-capsule-";

// FRT_CAPSULE_NAME_RULE.  [any]
bool is_capsule_name(std::string_view name) noexcept;

// One file of a folder, named by a caller who need not be trusted.
class CapsulePath {
 public:
  // Throws FRT_ERR_INVALID_ARGUMENT for null and for names against the rule.
  CapsulePath(const char* folder, const char* name);

  const std::string& folder() const noexcept { return folder_; }
  const std::string& file() const noexcept { return file_; }  // "NAME.capsule"
  std::string text() const;                                   // for messages

 private:
  std::string folder_, file_;
};

// Opens a folder. Throws FRT_ERR_NOT_FOUND, FRT_ERR_IO.  [any]
io::Descriptor open_folder(const std::string& folder);
// Makes it first if it is missing; FRT_ERR_IO if others may write to it.  [any]
io::Descriptor open_folder_for_writing(const std::string& folder);

// Opens the file for reading; a link is no file. Throws FRT_ERR_NOT_FOUND, FRT_ERR_IO.  [any]
io::Descriptor open_capsule_file(const CapsulePath& path);

}  // namespace frt::core
