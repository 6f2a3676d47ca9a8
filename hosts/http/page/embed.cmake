# Writes a source file that holds files as bytes, each with the SHA-256 of its content.
#   cmake -DFOLDER=... "-DFILES=a;b" -DOUTPUT=... -P embed.cmake
set(arrays "")
set(entries "")
set(number 0)
foreach(file ${FILES})
  file(READ ${FOLDER}/${file} bytes HEX)
  file(SHA256 ${FOLDER}/${file} digest)
  string(REGEX REPLACE "(................................................................)" "\\1\n" bytes "${bytes}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  string(APPEND arrays "constexpr unsigned char kBytes${number}[] = {\n${bytes}};\n")
  string(APPEND entries "    {\"${file}\", \"\\\"${digest}\\\"\", kBytes${number}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE ${OUTPUT} "// Made by embed.cmake.
#include \"http/page/page_files.hpp\"

namespace frt::host {
namespace {

${arrays}
constexpr PageFile kFiles[] = {
${entries}};

}  // namespace

std::span<const PageFile> page_files() noexcept {
  return kFiles;
}

}  // namespace frt::host
")
