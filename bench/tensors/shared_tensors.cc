// SPDX-License-Identifier: Apache-2.0
#include "bench/tensors/shared_tensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/status_macros.h"

namespace inflight::bench {

Result<std::unique_ptr<SharedTensors>> SharedTensors::Create(ServerCalls& calls,
                                                             const ServedModel& model,
                                                             const std::vector<Payload>& payloads,
                                                             int64_t output_bytes) {
  std::unique_ptr<SharedTensors> shared(new SharedTensors(calls));
  Placement& placement = shared->placement_;
  std::string content;
  for (const Payload& payload : payloads) {
    std::vector<int64_t>& offsets = placement.inputs.emplace_back();
    for (const TensorValue& tensor : payload) {
      offsets.push_back(static_cast<int64_t>(content.size()));
      content += tensor.bytes;
    }
  }
  auto size = static_cast<int64_t>(content.size());
  placement.output_bytes = output_bytes;
  for (size_t i = 0; i < model.outputs.size(); ++i, size += output_bytes)
    placement.outputs.push_back(size);

  const std::string name = fmt::format("inflight_bench_{}", getpid());
  const int fd = shm_open(("/" + name).c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) return Internal(fmt::format("shm_open /{}: {}", name, std::strerror(errno)));
  placement.region = name;  // from here on the destructor removes it
  bool is_written = ftruncate(fd, size) == 0;
  for (size_t at = 0; is_written && at < content.size();) {
    const ssize_t part = write(fd, content.data() + at, content.size() - at);
    is_written = part > 0;
    if (is_written) at += static_cast<size_t>(part);
  }
  const int error = errno;
  close(fd);
  if (!is_written)
    return ResourceExhausted(
        fmt::format("shared memory of {} bytes: {}", size, std::strerror(error)));
  RETURN_IF_ERROR(calls.RegisterSharedMemory(name, size).WithPrefix("--shared-memory system"));
  shared->is_registered_ = true;
  return shared;
}

SharedTensors::~SharedTensors() {
  if (is_registered_) (void)calls_.UnregisterSharedMemory(placement_.region);
  if (!placement_.region.empty()) shm_unlink(("/" + placement_.region).c_str());
}

}  // namespace inflight::bench
