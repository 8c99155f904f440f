// SPDX-License-Identifier: Apache-2.0
#include "artifact/engine_load.h"

#include <algorithm>
#include <mutex>

#include "base/file.h"
#include "base/status_macros.h"
#include "tensor/upload_lane.h"

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

Status Read(const MappedFile& file, const Chunk& chunk, std::byte* target) {
  return file.Read(file.bytes().subspan(chunk.offset_bytes, chunk.num_bytes), target);
}

Status LoadToHost(const MappedFile& file, const std::vector<Chunk>& chunks, uint64_t data_offset,
                  std::byte* target, CpuPool& pool, const LoadProgress& progress,
                  std::vector<uint64_t>& checksums) {
  const auto num_chunks = static_cast<int64_t>(chunks.size());
  std::mutex mutex;
  Status status;  // under mutex
  for (int64_t begin = 0; begin < num_chunks && status.ok(); begin += kChunksPerReport) {
    pool.ParallelFor(std::min(kChunksPerReport, num_chunks - begin), [&](int64_t i) {
      const auto idx = static_cast<size_t>(begin + i);
      const Chunk& chunk = chunks[idx];
      std::byte* const to = target + (chunk.offset_bytes - data_offset);
      if (Status read = Read(file, chunk, to); !read.ok()) {
        const std::lock_guard lock(mutex);
        status = std::move(read);
      }
      checksums[idx] = ChunkChecksum({to, chunk.num_bytes});
    });
    if (progress) progress(static_cast<double>(begin) / static_cast<double>(num_chunks));
  }
  return status;
}

// Consecutive chunks that are read and copied at once: the bytes of the file from the first to the
// end of the last, padding between tensors included.
struct Piece {
  size_t first = 0;
  size_t num_chunks = 0;
  Chunk bytes;
  const LoadTarget* target = nullptr;
};

std::vector<Piece> PiecesOf(const std::vector<Chunk>& chunks, uint64_t data_offset,
                            std::span<const LoadTarget> targets, size_t max_bytes) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < chunks.size(); ++i) {
    const uint64_t end = chunks[i].offset_bytes + chunks[i].num_bytes;
    while (chunks[i].offset_bytes - data_offset >=
           targets.front().offset_bytes + targets.front().num_bytes)
      targets = targets.subspan(1);
    const LoadTarget* const target = targets.data();
    if (pieces.empty() || pieces.back().target != target ||
        end - pieces.back().bytes.offset_bytes > max_bytes)
      pieces.push_back({i, 0, {chunks[i].offset_bytes, 0}, target});
    Piece& piece = pieces.back();
    ++piece.num_chunks;
    piece.bytes.num_bytes = end - piece.bytes.offset_bytes;
  }
  return pieces;
}

// Where the bytes of a piece are to be read while they are compared with their checksums.
Result<const std::byte*> LoadPiece(const MappedFile& file, const Piece& piece, uint64_t data_offset,
                                   UploadLane& lane) {
  const LoadTarget& target = *piece.target;
  std::byte* const to =
      target.data + (piece.bytes.offset_bytes - data_offset - target.offset_bytes);
  if (target.is_on_host) {
    RETURN_IF_ERROR(Read(file, piece.bytes, to));
    return to;
  }
  ASSIGN_OR_RETURN(std::byte* const bytes, lane.NextPiece());
  RETURN_IF_ERROR(Read(file, piece.bytes, bytes));
  RETURN_IF_ERROR(lane.Send(to, piece.bytes.num_bytes));
  return bytes;
}

Status LoadToGpu(const MappedFile& file, const std::vector<Chunk>& chunks, uint64_t data_offset,
                 std::span<const LoadTarget> targets, Device& device, const LoadProgress& progress,
                 std::vector<uint64_t>& checksums) {
  static_assert(kChecksumChunkBytes <= UploadLane::kPieceBytes);
  const std::vector<Piece> pieces = PiecesOf(chunks, data_offset, targets, UploadLane::kPieceBytes);
  std::mutex mutex;
  size_t num_done = 0;  // under mutex
  return UploadAll(
      device, static_cast<int64_t>(pieces.size()), [&](UploadLane& lane, int64_t i) -> Status {
        const Piece& piece = pieces[static_cast<size_t>(i)];
        ASSIGN_OR_RETURN(const std::byte* const bytes, LoadPiece(file, piece, data_offset, lane));
        for (size_t c = piece.first; c < piece.first + piece.num_chunks; ++c)
          checksums[c] = ChunkChecksum(
              {bytes + (chunks[c].offset_bytes - piece.bytes.offset_bytes), chunks[c].num_bytes});
        const std::lock_guard lock(mutex);
        if (progress && num_done++ % kChunksPerReport == 0)
          progress(static_cast<double>(num_done) / static_cast<double>(pieces.size() + 1));
        return Status::Ok();
      });
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
                      std::byte* target, Device& device, const LoadProgress& progress) {
  const LoadTarget all = {.num_bytes = table.file_bytes - table.data_offset, .data = target};
  return LoadEngineData(path, table, std::span(&all, 1), device, progress);
}

Status LoadEngineData(const std::filesystem::path& path, const EngineTable& table,
                      std::span<const LoadTarget> targets, Device& device,
                      const LoadProgress& progress) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() != table.file_bytes)
    return DataLoss(path.string() + ": changed while it was opened; try again");
  const std::vector<Chunk> chunks = ChunksOf(table);
  std::vector<uint64_t> checksums(chunks.size());
  const uint64_t offset = table.data_offset;
  RETURN_IF_ERROR(device.kind() == DeviceKind::kCuda
                      ? LoadToGpu(file, chunks, offset, targets, device, progress, checksums)
                      : LoadToHost(file, chunks, offset, targets.front().data, device.cpu_pool(),
                                   progress, checksums));
  return CompareAll(table, checksums, path.string());
}

}  // namespace inflight::artifact
