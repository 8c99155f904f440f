// SPDX-License-Identifier: Apache-2.0
#include "serving/tensors/model_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/file.h"

namespace inflight::serving {

namespace fs = std::filesystem;

bool HasControlBytes(std::string_view name) {
  return std::ranges::any_of(name, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; });
}

bool StaysBelow(const fs::path& name) {
  return !name.empty() && name.is_relative() && !HasControlBytes(name.native()) &&
         std::ranges::none_of(name, [](const fs::path& part) { return part == ".."; });
}

Result<std::string> ReadModelFile(const fs::path& folder, std::string_view place,
                                  const std::string& file, std::string_view field,
                                  uint64_t max_bytes) {
  const auto outside = [&] {
    return InvalidArgument(
        fmt::format("{}: '{}' lies outside of the model's {}", field, file, place));
  };
  if (!StaysBelow(file)) return outside();
  std::error_code error;
  const fs::path real = fs::canonical(folder / file, error);
  if (error) return ReadFile(folder / file, max_bytes);  // which says why it cannot
  const fs::path root = fs::canonical(folder, error);
  if (error || std::ranges::mismatch(root, real).in1 != root.end()) return outside();
  return ReadFile(real, max_bytes);
}

}  // namespace inflight::serving
