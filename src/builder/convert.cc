// SPDX-License-Identifier: Apache-2.0
// Hugging Face directory -> checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "artifact/checkpoint.h"
#include "artifact/safetensors.h"
#include "builder/builder.h"
#include "builder/hf_config.h"
#include "builder/model_files.h"
#include "builder/quantize.h"
#include "builder/weight_source.h"
#include "model/config_json.h"

namespace inflight::builder {
namespace {

constexpr int64_t kPieceBytes = int64_t{16} << 20;  // written at once; bounds the memory taken

// spec/engine.md 1.2: auto is the model's own 16-bit dtype; float32 and none become float16.
Result<DType> ChooseDType(const std::string& name, std::optional<DType> stored) {
  if (name == "auto") return !stored || *stored == DType::kF32 ? DType::kF16 : *stored;
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) return *dtype;
  return InvalidArgument(
      fmt::format("dtype: got '{}', auto, float32, bfloat16 or float16 is needed", name));
}

Status CheckOptions(const ConvertOptions& options) {
  if (options.tp_size != 1)
    return Unimplemented(fmt::format("tp_size: got {}, only 1 is built for now", options.tp_size));
  if (options.pp_size != 1)
    return Unimplemented(fmt::format("pp_size: got {}, only 1 is built for now", options.pp_size));
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(options.model_dir));
  if (kind != SourceKind::kHuggingFace)
    return InvalidArgument(fmt::format("model_dir: got {}, {}; a Hugging Face directory is needed",
                                       options.model_dir.string(),
                                       kind == SourceKind::kEngine ? "an engine" : "a checkpoint"));
  return CheckDistinct(options.model_dir, options.output_dir);
}

Status WriteTensor(const WeightSource& source, const model::WeightSlot& slot, CpuPool& pool,
                   std::vector<std::byte>& piece, artifact::SafetensorsWriter& writer) {
  const int64_t row_bytes = (slot.shape.rank() == 1 ? 1 : slot.shape[1]) *
                            static_cast<int64_t>(SizeOf(CheckpointDType(source.config, slot)));
  const int64_t rows_per_piece = std::max<int64_t>(1, kPieceBytes / row_bytes);
  for (int64_t row = 0; row < slot.shape[0]; row += rows_per_piece) {
    const int64_t num_rows = std::min(rows_per_piece, slot.shape[0] - row);
    piece.resize(static_cast<size_t>(num_rows * row_bytes));
    const int64_t num_items = std::min<int64_t>(num_rows, 4 * pool.num_threads());
    pool.ParallelFor(num_items, [&](int64_t item) {
      const int64_t begin = num_rows * item / num_items;
      const int64_t end = num_rows * (item + 1) / num_items;
      CopySlotRows(source, slot, row + begin, end - begin, piece.data() + begin * row_bytes);
    });
    RETURN_IF_ERROR(writer.Append(piece));
  }
  return Status::Ok();
}

Status WriteTensors(const WeightSource& source, const std::filesystem::path& path,
                    const Progress& progress) {
  model::DecoderWeights unused;
  const std::vector<model::WeightSlot> slots = model::WeightSlots(source.config, unused);
  std::vector<artifact::TensorSpec> specs;
  for (const model::WeightSlot& slot : slots)
    specs.push_back({slot.name, CheckpointDType(source.config, slot), slot.shape});
  ASSIGN_OR_RETURN(artifact::SafetensorsWriter writer,
                   artifact::SafetensorsWriter::Create(path, specs));
  CpuPool pool;
  std::vector<std::byte> piece;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (progress)
      progress(static_cast<double>(i) / static_cast<double>(slots.size()), slots[i].name);
    RETURN_IF_ERROR(WriteTensor(source, slots[i], pool, piece, writer));
  }
  return writer.Finish();
}

}  // namespace

Status Convert(const ConvertOptions& options, const Progress& progress) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const HfConfig hf, ReadHfConfig(options.model_dir));
  ASSIGN_OR_RETURN(const DType dtype, ChooseDType(options.dtype, hf.dtype));
  ASSIGN_OR_RETURN(const auto source,
                   OpenWeightSource(options.model_dir, dtype, options.quant_algo));
  RETURN_IF_ERROR(artifact::CreateDirectory(options.output_dir));
  RETURN_IF_ERROR(WriteTensors(*source, options.output_dir / artifact::kRankFile, progress));
  RETURN_IF_ERROR(CopyModelFiles(options.model_dir, options.output_dir));
  // Last, because it is what makes the directory a checkpoint.
  RETURN_IF_ERROR(
      artifact::WriteConfig(options.output_dir, model::ConfigToCheckpoint(source->config)));
  if (progress) progress(1.0, "done");
  return Status::Ok();
}

}  // namespace inflight::builder
