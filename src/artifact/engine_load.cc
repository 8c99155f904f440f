// SPDX-License-Identifier: Apache-2.0
#include "artifact/engine_load.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace inflight::artifact {
namespace {

constexpr int64_t kChunksPerReport = 64;

struct Chunk {
  uint64_t offset_bytes;  // in the file
  size_t num_bytes;
};

// The chunks of all tensors, in the order of the table.
std::vector<Chunk> ChunksOf(const EngineTable& table) {
  std::vector<Chunk> chunks;
  for (const EngineTensor& tensor : table.tensors)
    for (uint64_t at = 0; at < tensor.num_bytes; at += kChecksumChunkBytes)
      chunks.push_back(
          {tensor.offset_bytes + at, std::min(kChecksumChunkBytes, tensor.num_bytes - at)});
  return chunks;
}

Status CompareAll(const EngineTable& table, std::span<const uint64_t> checksums,
                  std::string_view file) {
  for (const EngineTensor& tensor : table.tensors) {
    const size_t n = (tensor.num_bytes + kChecksumChunkBytes - 1) / kChecksumChunkBytes;
    RETURN_IF_ERROR(CompareChecksum(tensor, CombineChecksums(checksums.first(n)), file));
    checksums = checksums.subspan(n);
  }
  return Status::Ok();
}

// 0, or the errno of the read; EIO where the file ends early.
int ReadFully(int fd, Chunk chunk, std::byte* target) {
  while (chunk.num_bytes > 0) {
    const ssize_t n = pread(fd, target, chunk.num_bytes, static_cast<off_t>(chunk.offset_bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : EIO;
    target += n;
    chunk.offset_bytes += static_cast<uint64_t>(n);
    chunk.num_bytes -= static_cast<size_t>(n);
  }
  return 0;
}

}  // namespace

Status VerifyEngineData(std::span<const std::byte> bytes, const EngineTable& table,
                        std::string_view file, CpuPool& pool) {
  const std::vector<Chunk> chunks = ChunksOf(table);
  std::vector<uint64_t> checksums(chunks.size());
  pool.ParallelFor(static_cast<int64_t>(chunks.size()), [&](int64_t i) {
    const Chunk& chunk = chunks[static_cast<size_t>(i)];
    checksums[static_cast<size_t>(i)] =
        ChunkChecksum(bytes.subspan(chunk.offset_bytes, chunk.num_bytes));
  });
  return CompareAll(table, checksums, file);
}

Status LoadEngineData(const std::filesystem::path& path, const EngineTable& table,
                      std::byte* target, CpuPool& pool, const LoadProgress& progress) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return Internal(fmt::format("{}: cannot open: {}", path.string(), std::strerror(errno)));
  const std::vector<Chunk> chunks = ChunksOf(table);
  std::vector<uint64_t> checksums(chunks.size());
  std::atomic<int> error = 0;
  const auto num_chunks = static_cast<int64_t>(chunks.size());
  for (int64_t begin = 0; begin < num_chunks && error == 0; begin += kChunksPerReport) {
    pool.ParallelFor(std::min(kChunksPerReport, num_chunks - begin), [&](int64_t i) {
      const Chunk& chunk = chunks[static_cast<size_t>(begin + i)];
      std::byte* const to = target + (chunk.offset_bytes - table.data_offset);
      if (const int failed = ReadFully(fd, chunk, to); failed != 0) error = failed;
      checksums[static_cast<size_t>(begin + i)] = ChunkChecksum({to, chunk.num_bytes});
    });
    if (progress) progress(static_cast<double>(begin) / static_cast<double>(num_chunks));
  }
  close(fd);
  if (error != 0)
    return Status(StatusCode::kDataLoss,
                  fmt::format("{}: cannot read: {}", path.string(), std::strerror(error)));
  return CompareAll(table, checksums, path.string());
}

}  // namespace inflight::artifact
