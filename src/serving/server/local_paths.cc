// SPDX-License-Identifier: Apache-2.0
#include "serving/server/local_paths.h"

namespace inflight::serving {
namespace {

constexpr std::string_view kBeforePath = " \t\n'\"`(=:,;";
constexpr std::string_view kQuotes = "'\"`";
constexpr std::string_view kBehindPath = " \t\n'\"`),:;";

bool BeginsPath(std::string_view message, size_t at) {
  if (message[at] != '/' || message.substr(at).starts_with("//")) return false;
  return at == 0 || kBeforePath.find(message[at - 1]) != std::string_view::npos;
}

size_t EndOfPath(std::string_view message, size_t begin) {
  const char before = begin == 0 ? ' ' : message[begin - 1];
  const size_t end = kQuotes.find(before) != std::string_view::npos
                         ? message.find(before, begin)
                         : message.find_first_of(kBehindPath, begin);
  return end == std::string_view::npos ? message.size() : end;
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
