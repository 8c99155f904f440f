// SPDX-License-Identifier: Apache-2.0
#include "builder/upload.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "builder/pack.h"
#include "builder/quantize.h"
#include "ops/convert_rows.h"
#include "tensor/upload_lane.h"

namespace inflight::builder {
namespace {

using model::WeightSlot;

constexpr int64_t kPieceBytes = UploadLane::kPieceBytes;
constexpr uint64_t kReportBytes = uint64_t{128} << 20;

// A part of a slot that one thread brings over at once.
struct Piece {
  enum class Kind : uint8_t {
    kAsStored,  // bytes of a stored tensor are the slot's
    kConvert,   // whole rows of a stored tensor, which the GPU converts or quantises
    kOnHost,    // whole rows that the host makes: transposed, of columns, vectors
  } kind = Kind::kAsStored;
  const PlacedSlot* placed = nullptr;
  std::span<const std::byte> stored;  // not of kOnHost
  DType stored_dtype = DType::kF32;   // of kConvert
  std::byte* target = nullptr;
  float* scales = nullptr;  // of kConvert into quantised rows
  int64_t row = 0;
  int64_t num_rows = 0;
};

// Cuts slots into pieces.
class Cutter {
 public:
  Cutter(const WeightSource& source, std::span<const PlacedSlot> slots)
      : source_(source), slots_(slots) {}

  std::vector<Piece> Cut() {
    for (const PlacedSlot& placed : slots_)
      if (placed.slot.kind == WeightSlot::Kind::kScales && !placed.slot.form.has_groups())
        scales_.emplace(model::MatrixOfScales(placed.slot), &placed);
    for (const PlacedSlot& placed : slots_) {
      const bool is_matrix = placed.slot.shape.rank() == 2;
      if (is_matrix && !IsMadeInGroups(placed.slot) && AllRowsWhole(placed.slot))
        FromFile(placed);
      else if (placed.slot.kind != WeightSlot::Kind::kScales || !IsMadeWithRows(placed.slot))
        OnHost(placed);
    }
    return std::move(pieces_);
  }

 private:
  const WeightRecipe& RecipeOf(const WeightSlot& slot) const {
    return source_.recipes.at(slot.name);
  }

  // Whether the slot is of a matrix that is quantised in groups, which the host does.
  bool IsMadeInGroups(const WeightSlot& slot) const {
    if (!slot.form.has_groups()) return false;
    const auto recipe = source_.recipes.find(slot.name);
    return recipe == source_.recipes.end() || (slot.is_quantized && !IsQuantized(recipe->second));
  }

  // Whether rows of the slot are rows of stored tensors as they lie there, of dtypes that the GPU
  // reads where it writes the slot's: scales of groups, float32 beside any model, are converted by
  // the host.
  bool AllRowsWhole(const WeightSlot& slot) const {
    const DType dtype = StoredDType(source_.config, slot);
    const bool is_written = slot.is_quantized || dtype == source_.config.dtype;
    const int64_t width = slot.shape[1];
    return std::ranges::all_of(RecipeOf(slot).parts, [&](const WeightPart& part) {
      const DType stored = part.tensor->dtype;
      const bool is_float =
          stored == DType::kF32 || stored == DType::kF16 || stored == DType::kBF16;
      const bool is_read = stored == dtype || (is_written && is_float);
      return is_read && part.tensor->codec == nullptr && part.tensor->reader == nullptr &&
             !part.is_transposed && part.row_step == 1 && part.pair_rows == 0 &&
             part.tensor->shape[1] == width &&
             static_cast<int64_t>(BytesOf(stored, width)) <= kPieceBytes;
    });
  }

  // Whether the GPU quantises the rows of these scales, and makes the scales with them.
  bool IsMadeWithRows(const WeightSlot& scales) const {
    const std::string matrix = model::MatrixOfScales(scales);
    return made_with_rows_.contains(matrix);
  }

  void FromFile(const PlacedSlot& placed) {
    const WeightSlot& slot = placed.slot;
    const DType dtype = StoredDType(source_.config, slot);
    const int64_t width = slot.shape[1];
    const size_t row_bytes = BytesOf(dtype, width);
    float* scales = nullptr;
    if (slot.is_quantized && !IsQuantized(RecipeOf(slot))) {
      made_with_rows_.insert(slot.name);
      scales = reinterpret_cast<float*>(scales_.at(slot.name)->target);
    }
    for (const WeightPart& part : RecipeOf(slot).parts) {
      const DType stored = part.tensor->dtype;
      const size_t stored_row_bytes = BytesOf(stored, width);
      const int64_t step =
          std::max<int64_t>(1, kPieceBytes / static_cast<int64_t>(stored_row_bytes));
      for (int64_t done = 0; done < part.num_rows; done += step) {
        const int64_t row = part.row + done;
        const int64_t num_rows = std::min(step, part.num_rows - done);
        pieces_.push_back({.kind = stored == dtype ? Piece::Kind::kAsStored : Piece::Kind::kConvert,
                           .placed = &placed,
                           .stored = part.tensor->data.subspan(
                               static_cast<size_t>(part.stored_row + done) * stored_row_bytes,
                               static_cast<size_t>(num_rows) * stored_row_bytes),
                           .stored_dtype = stored,
                           .target = placed.target + static_cast<size_t>(row) * row_bytes,
                           .scales = scales == nullptr ? nullptr : scales + row,
                           .row = row,
                           .num_rows = num_rows});
      }
    }
  }

  void OnHost(const PlacedSlot& placed) {
    const int64_t rows = placed.slot.shape[0];
    const auto row_bytes = static_cast<int64_t>(placed.num_bytes) / rows;
    const int64_t step = std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (int64_t row = 0; row < rows; row += step)
      pieces_.push_back({.kind = Piece::Kind::kOnHost,
                         .placed = &placed,
                         .target = placed.target + row * row_bytes,
                         .row = row,
                         .num_rows = std::min(step, rows - row)});
  }

  const WeightSource& source_;
  std::span<const PlacedSlot> slots_;
  std::map<std::string, const PlacedSlot*> scales_;  // by the name of their matrix
  std::set<std::string> made_with_rows_;             // matrices whose scales the GPU makes
  std::vector<Piece> pieces_;
};

Status ReadStored(const WeightSource& source, std::span<const std::byte> part, std::byte* target) {
  for (const artifact::TensorSet& file : source.files) {
    ASSIGN_OR_RETURN(const bool was_read, file.Read(part, target));
    if (was_read) return Status::Ok();
  }
  std::memcpy(target, part.data(), part.size());  // gathered when the file was opened
  return Status::Ok();
}

Status Convert(const WeightSource& source, const Piece& piece, UploadLane& lane) {
  const WeightSlot& slot = piece.placed->slot;
  ASSIGN_OR_RETURN(void* const rows, lane.Scratch());
  RETURN_IF_ERROR(lane.Send(rows, piece.stored.size()));
  return ops::ConvertRowsOnGpu({.x = rows,
                                .x_dtype = piece.stored_dtype,
                                .y = piece.target,
                                .y_dtype = StoredDType(source.config, slot),
                                .dtype = source.config.dtype,
                                .scales = piece.scales,
                                .num_rows = piece.num_rows,
                                .width = slot.shape[1]},
                               lane.stream());
}

// What lies in host memory afterwards, too; what the GPU converts it writes there itself.
Status FillOnHost(const WeightSource& source, const Piece& piece) {
  if (piece.kind == Piece::Kind::kAsStored) return ReadStored(source, piece.stored, piece.target);
  PackRows(source, piece.placed->slot, piece.row, piece.num_rows, piece.target);
  return Status::Ok();
}

Status Upload(const WeightSource& source, const Piece& piece, UploadLane& lane) {
  if (piece.placed->is_on_host && piece.kind != Piece::Kind::kConvert)
    return FillOnHost(source, piece);
  ASSIGN_OR_RETURN(std::byte* const bytes, lane.NextPiece());
  if (piece.kind == Piece::Kind::kOnHost) {
    const PlacedSlot& placed = *piece.placed;
    PackRows(source, placed.slot, piece.row, piece.num_rows, bytes);
    const auto row_bytes = placed.num_bytes / static_cast<uint64_t>(placed.slot.shape[0]);
    return lane.Send(piece.target, static_cast<size_t>(piece.num_rows) * row_bytes);
  }
  RETURN_IF_ERROR(ReadStored(source, piece.stored, bytes));
  if (piece.kind == Piece::Kind::kConvert) return Convert(source, piece, lane);
  return lane.Send(piece.target, piece.stored.size());
}

}  // namespace

Status UploadSlots(const WeightSource& source, std::span<const PlacedSlot> slots, Device& device,
                   const Progress& progress) {
  const std::vector<Piece> pieces = Cutter(source, slots).Cut();
  uint64_t total_bytes = 1;
  for (const PlacedSlot& placed : slots) total_bytes += placed.num_bytes;
  std::mutex mutex;
  uint64_t done_bytes = 0;  // under mutex, as are the next and calls of progress
  uint64_t next_report = 0;
  return UploadAll(device, static_cast<int64_t>(pieces.size()),
                   [&](UploadLane& lane, int64_t i) -> Status {
                     const Piece& piece = pieces[static_cast<size_t>(i)];
                     const PlacedSlot& placed = *piece.placed;
                     RETURN_IF_ERROR(Upload(source, piece, lane));
                     const std::lock_guard lock(mutex);
                     if (progress && done_bytes >= next_report) {
                       progress(static_cast<double>(done_bytes) / static_cast<double>(total_bytes),
                                placed.slot.name);
                       next_report = done_bytes + kReportBytes;
                     }
                     done_bytes += placed.num_bytes * static_cast<uint64_t>(piece.num_rows) /
                                   static_cast<uint64_t>(placed.slot.shape[0]);
                     return Status::Ok();
                   });
}

}  // namespace inflight::builder
