// SPDX-License-Identifier: Apache-2.0
#include "artifact/printable.h"

#include <fmt/format.h>

namespace inflight::artifact {

std::string Printable(std::string_view text) {
  constexpr size_t kMaxChars = 120;
  std::string out = "'";
  for (const char c : text.substr(0, kMaxChars)) {
    if (c >= ' ' && c <= '~')
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out + (text.size() > kMaxChars ? "...'" : "'");
}

}  // namespace inflight::artifact
