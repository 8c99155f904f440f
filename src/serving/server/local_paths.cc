// SPDX-License-Identifier: Apache-2.0
#include "serving/server/local_paths.h"

#include <algorithm>

namespace inflight::serving {
namespace {

constexpr std::string_view kQuotes = "'\"`";
constexpr std::string_view kBehindPath = "),:;]}>";  // where a blank follows: names have them too
constexpr std::string_view kBlanks = " \t\n";

bool IsOneOf(std::string_view characters, char c) {
  return characters.find(c) != std::string_view::npos;
}

bool IsOfWord(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Not a slash within a name ("org/name"), nor that of an address ("https://host").
bool BeginsPath(std::string_view message, size_t at) {
  if (message[at] != '/') return false;
  if (at == 0) return true;
  const char before = message[at - 1];
  const std::string_view rest = message.substr(at);
  const bool is_address = before == ':' && at > 1 && IsOfWord(message[at - 2]) &&
                          rest.starts_with("//") && !rest.starts_with("///");
  return !is_address && !IsOfWord(before) && !IsOneOf("_-.~/", before);
}

// Of a path in quotes: those at which no word goes on, as it does in "it's".
size_t EndOfQuoted(std::string_view message, size_t begin) {
  const char quote = message[begin - 1];
  size_t end = message.find(quote, begin);
  while (end != std::string_view::npos && end + 1 < message.size() && IsOfWord(message[end + 1]))
    end = message.find(quote, end + 1);
  return std::min(end, message.size());
}

// Blanks are of the path where a slash follows them.
size_t EndOfPath(std::string_view message, size_t begin) {
  if (begin > 0 && IsOneOf(kQuotes, message[begin - 1])) return EndOfQuoted(message, begin);
  size_t most = begin;
  for (; most < message.size(); ++most) {
    const char c = message[most];
    const char next = most + 1 < message.size() ? message[most + 1] : ' ';
    if (c == '\n' || IsOneOf(kQuotes, c)) break;
    if (IsOneOf(kBehindPath, c) && IsOneOf(kBlanks, next)) break;
    if (IsOneOf(kBlanks, c) && next == '/') break;  // another path
  }
  const size_t last_slash = message.substr(0, most).rfind('/');
  return std::min(most, message.find_first_of(kBlanks, last_slash));
}

std::string_view LastPart(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  return path == "/" ? path : path.substr(path.rfind('/') + 1);
}

}  // namespace

std::string WithoutFolders(std::string_view message) {
  std::string told;
  size_t at = 0;
  while (at < message.size()) {
    if (!BeginsPath(message, at)) {
      told += message[at++];
      continue;
    }
    const size_t end = EndOfPath(message, at);
    told += LastPart(message.substr(at, end - at));
    at = end;
  }
  return told;
}

}  // namespace inflight::serving
