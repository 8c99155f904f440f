// SPDX-License-Identifier: Apache-2.0
// The files of files/, as bytes of the program (cmake/embed_files.cmake).
#pragma once

#include <span>
#include <string_view>

namespace inflight::page {

struct EmbeddedFile {
  std::string_view name;   // "page.html"
  std::string_view bytes;  // for as long as the program runs
};

std::span<const EmbeddedFile> EmbeddedFiles();

}  // namespace inflight::page
