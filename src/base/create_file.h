// SPDX-License-Identifier: Apache-2.0
// How files are made: all that the server and its tools write comes through here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/descriptor.h"
#include "inflight/status.h"

namespace inflight {

enum class Existing : uint8_t {
  kRefuse,    // an error
  kTruncate,  // is written anew, with the permissions that it has
  kAppend,    // is gone on with, with the permissions that it has
};

// Opens a file to write (O_CLOEXEC), a new one for its owner alone (O_EXCL, 0600). A link at `path`
// is refused (O_NOFOLLOW), whatever it leads to, but for links that the system has in /dev
// (/dev/stdout). Errors name the path and the system's reason.
Result<Descriptor> CreateFile(const std::filesystem::path& path, Existing existing);

// A new file beside `path`, of a name of its own, that is to be renamed onto it.
struct TemporaryFile {
  std::filesystem::path path;
  Descriptor file;
};
Result<TemporaryFile> CreateTemporary(const std::filesystem::path& path);

// All of `bytes`; `path` is for errors.
Status WriteAll(const Descriptor& file, const std::filesystem::path& path, std::string_view bytes);

// Gives a finished file its name and the permissions that this process gives files to read (0644
// less the umask). Where that fails the temporary one stays.
Status Publish(const TemporaryFile& file, const std::filesystem::path& path);

}  // namespace inflight
