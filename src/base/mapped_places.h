// SPDX-License-Identifier: Apache-2.0
// Which file is mapped where, for a handler of SIGBUS: what reads a mapping of a file that was cut
// short since gets this signal, and there is nothing to go on with.
#pragma once

#include <cstddef>
#include <filesystem>

namespace inflight {

// Threads: any. Beyond some thousand mappings the next ones are not remembered.
void RememberMapping(const std::byte* data, size_t size, const std::filesystem::path& path);
void ForgetMapping(const std::byte* data);

// The file that is mapped at `address`, or null. May be called in a signal handler.
const char* MappedPathAt(const void* address);

}  // namespace inflight
