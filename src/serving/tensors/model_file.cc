// SPDX-License-Identifier: Apache-2.0
#include "serving/tensors/model_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <system_error>

#include "base/control_bytes.h"
#include "base/file.h"
#include "base/open_beneath.h"
#include "base/status_macros.h"

namespace inflight::serving {

namespace fs = std::filesystem;

namespace {

// `name`, which the error is to show, is opened as `file`.
Result<Descriptor> Open(const fs::path& folder, std::string_view place, const fs::path& file,
                        std::string_view name, std::string_view field, int flags) {
  auto opened = StaysBelow(file) ? OpenBeneath(folder, file, flags)
                                 : Status(StatusCode::kPermissionDenied, "");
  if (opened.status().code() != StatusCode::kPermissionDenied) return opened;
  return InvalidArgument(
      fmt::format("{}: '{}' lies outside of the model's {}", field, name, place));
}

}  // namespace

bool StaysBelow(const fs::path& name) {
  return !name.empty() && name.is_relative() && !HasControlBytes(name.native()) &&
         std::ranges::none_of(name, [](const fs::path& part) { return part == ".."; });
}

Result<std::string> ReadModelFile(const fs::path& folder, std::string_view place,
                                  const std::string& file, std::string_view field,
                                  uint64_t max_bytes) {
  ASSIGN_OR_RETURN(const Descriptor opened, Open(folder, place, file, file, field, O_RDONLY));
  return ReadOpenFile(opened, folder / file, max_bytes);
}

Result<fs::path> FindBeneath(const fs::path& folder, std::string_view place,
                             const std::string& name, std::string_view field) {
  const fs::path file =
      fs::path(name).is_absolute() ? fs::path(name).lexically_relative(folder) : fs::path(name);
  auto opened = Open(folder, place, file, name, field, O_PATH);
  if (opened.status().code() == StatusCode::kNotFound) {
    return NotFound(fmt::format("{}: '{}' does not exist", field, name));
  }
  RETURN_IF_ERROR(opened.status());
  std::error_code error;
  const fs::path real = fs::read_symlink(fmt::format("/proc/self/fd/{}", opened->get()), error);
  return error ? folder / file : real;  // where there is no /proc
}

}  // namespace inflight::serving
