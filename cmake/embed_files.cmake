# Writes a C++ source with the bytes of files, for `const std::span<const EmbeddedFile> <function>()`.
#
#   cmake -D OUTPUT=<file.cc> -D HEADER=<include> -D NAMESPACE=<a::b> -D FUNCTION=<name> -D FILES=<a,b>
#         -P embed_files.cmake
string(REPLACE "," ";" files "${FILES}")
set(arrays "")
set(rows "")
set(index 0)
foreach(file IN LISTS files)
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  string(REGEX REPLACE "((0x..,){24})" "\\1\n" bytes "${bytes}")
  cmake_path(GET file FILENAME name)
  string(APPEND arrays "constexpr unsigned char kFile${index}[] = {\n${bytes}};\n")
  string(APPEND rows "    {\"${name}\", {reinterpret_cast<const char*>(kFile${index}), sizeof(kFile${index})}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE "${OUTPUT}" "// Made by cmake/embed_files.cmake.
#include \"${HEADER}\"

namespace ${NAMESPACE} {
namespace {

${arrays}
const EmbeddedFile kFiles[] = {
${rows}};

}  // namespace

std::span<const EmbeddedFile> ${FUNCTION}() { return kFiles; }

}  // namespace ${NAMESPACE}
")
