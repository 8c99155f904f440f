// SPDX-License-Identifier: Apache-2.0
// Any bytes as model.yaml of a model of TensorRT-LLM's LLM API: an error that names the file, or
// what it says within its bounds.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "serving/repository/llm_api_file.h"

namespace {

void Require(bool condition) {
  if (!condition) abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("model.yaml", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  Require(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  const auto read = inflight::serving::ReadLlmApiFile(path);
  if (read.ok()) {
    Require(!read->model.empty() && read->max_batch_size >= 0);
  } else {
    Require(read.status().message().starts_with(path));
  }
  return 0;
}
