// SPDX-License-Identifier: Apache-2.0
// Hugging Face directory -> checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "artifact/checkpoint.h"
#include "artifact/safetensors.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "builder/builder.h"
#include "builder/hf_config.h"
#include "builder/model_files.h"
#include "builder/quantize.h"
#include "builder/rank_source.h"
#include "builder/sharding.h"
#include "builder/upstream_layout.h"
#include "builder/weight_source.h"
#include "gguf/file.h"
#include "model/config_json.h"

namespace inflight::builder {
namespace {

constexpr int64_t kWrittenAtOnce = int64_t{16} << 20;  // bytes; bounds the memory taken

// As upstream has it, auto is the model's own 16-bit dtype; float32 and none become float16. Beside
// FP8 weights they become bfloat16, which has float32's range.
Result<DType> ChooseDType(const std::string& name, std::optional<DType> stored,
                          model::QuantAlgo algo) {
  const bool has_fp8 = algo == model::QuantAlgo::kFp8PerChannelPerToken;
  if (name == "auto" && stored.value_or(DType::kF32) != DType::kF32) return *stored;
  if (name == "auto") return has_fp8 ? DType::kBF16 : DType::kF16;
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) return *dtype;
  return InvalidArgument(
      fmt::format("dtype: got '{}', auto, float32, bfloat16 or float16 is needed", name));
}

// The dtype that the model's configuration says, or that a GGUF file is opened in.
Result<std::optional<DType>> SaidDType(const std::filesystem::path& dir) {
  if (gguf::IsGgufFile(dir)) {
    ASSIGN_OR_RETURN(const auto source, OpenWeightSource(dir, {}));
    return std::optional(source->config.dtype);
  }
  ASSIGN_OR_RETURN(const HfConfig hf, ReadHfConfig(dir));
  return hf.dtype;
}

Status CheckOptions(const ConvertOptions& options) {
  ASSIGN_OR_RETURN(const SourceKind kind, Detect(options.model_dir));
  if (kind != SourceKind::kHuggingFace && kind != SourceKind::kGguf)
    return InvalidArgument(fmt::format(
        "model_dir: got {}, {}; a Hugging Face directory or a GGUF file is needed",
        options.model_dir.string(), kind == SourceKind::kEngine ? "an engine" : "a checkpoint"));
  return CheckDistinct(options.model_dir, options.output_dir);
}

// How the checkpoint will store the model: its sharding, and whether a tied table stands in it
// once.
struct Layout {
  model::ModelConfig config;
  Sharding sharding;
  std::optional<UpstreamLayout> upstream = std::nullopt;  // none: as this project writes it
};

Result<Layout> ChooseLayout(const ConvertOptions& options, const model::ModelConfig& config) {
  ASSIGN_OR_RETURN(const artifact::RankMapping ranks,
                   artifact::MakeMapping({.tp_size = options.tp_size,
                                          .pp_size = options.pp_size,
                                          .moe_tp_size = options.moe_tp_size,
                                          .moe_ep_size = options.moe_ep_size}));
  Layout layout{.config = config,
                .sharding = {.ranks = ranks,
                             .use_parallel_embedding = options.use_parallel_embedding,
                             .embedding_sharding_dim = options.embedding_sharding_dim,
                             .has_shared_apart = options.upstream_layout}};
  if (options.use_embedding_sharing.value_or(false) && !config.tied_embeddings)
    return InvalidArgument(
        "use_embedding_sharing: got true, the model's embedding and head are two tables");
  const Status shared = CheckSharding(layout.config, layout.sharding);
  if (config.tied_embeddings && !options.use_embedding_sharing.value_or(shared.ok()))
    Untie(layout.config);
  RETURN_IF_ERROR(CheckSharding(layout.config, layout.sharding));
  RETURN_IF_ERROR(CheckFiles(layout.config, layout.sharding));
  layout.sharding.num_layers = EvenStages(config.num_layers, options.pp_size);
  if (config.num_layers % options.pp_size != 0)
    logging::Warning("stages are uneven; TensorRT-LLM's own tools want equal ones",
                     {{"num_layers", config.num_layers}, {"pp_size", options.pp_size}});
  return layout;
}

// Rows [first, first + num_rows) of a range, of which those past the end of the tensor are zeros.
std::vector<std::byte> RowsOf(const WeightSource& source, const RankTensor& tensor,
                              const RowRange& range, int64_t first, int64_t num_rows,
                              CpuPool& pool) {
  const Shard& shard = tensor.shard;
  const auto row_bytes =
      static_cast<int64_t>(BytesOf(CheckpointDType(source.config, tensor.slot), shard.num_columns));
  const int64_t row = range.row + first;
  const int64_t num_stored = std::clamp<int64_t>(tensor.slot.shape[0] - row, 0, num_rows);
  std::vector<std::byte> rows(static_cast<size_t>(num_rows * row_bytes));
  const int64_t num_items = std::min<int64_t>(num_stored, 4 * pool.num_threads());
  pool.ParallelFor(num_items, [&](int64_t item) {
    const int64_t begin = num_stored * item / num_items;
    const int64_t end = num_stored * (item + 1) / num_items;
    CopySlotBlock(source, tensor.slot,
                  {.row = row + begin,
                   .num_rows = end - begin,
                   .column = shard.column,
                   .num_columns = shard.num_columns},
                  rows.data() + begin * row_bytes);
  });
  return rows;
}

// Ranges of as many rows, side by side.
Status WriteRows(const WeightSource& source, const RankTensor& tensor,
                 std::span<const RowRange> ranges, CpuPool& pool,
                 artifact::SafetensorsWriter& writer) {
  const int64_t width = tensor.shard.num_columns * std::ssize(ranges);
  const DType dtype = CheckpointDType(source.config, tensor.slot);
  const int64_t rows_per_piece =
      std::max<int64_t>(1, kWrittenAtOnce / static_cast<int64_t>(BytesOf(dtype, width)) / 2) * 2;
  const size_t part_bytes = BytesOf(dtype, tensor.shard.num_columns);
  for (int64_t done = 0; done < ranges.front().num_rows; done += rows_per_piece) {
    const int64_t num_rows = std::min(rows_per_piece, ranges.front().num_rows - done);
    std::vector<std::byte> piece = RowsOf(source, tensor, ranges.front(), done, num_rows, pool);
    if (ranges.size() > 1) {
      std::vector<std::byte> wide(piece.size() * ranges.size());
      for (size_t i = 0; i < ranges.size(); ++i) {
        if (i > 0) piece = RowsOf(source, tensor, ranges[i], done, num_rows, pool);
        for (size_t row = 0; row < static_cast<size_t>(num_rows); ++row)
          std::copy_n(piece.data() + row * part_bytes, part_bytes,
                      wide.data() + (row * ranges.size() + i) * part_bytes);
      }
      piece = std::move(wide);
    }
    if (tensor.kind == RankTensor::Kind::kRowPairs) piece = RowPairsOf(piece, width, pool);
    RETURN_IF_ERROR(writer.Append(piece));
  }
  return Status::Ok();
}

Status WriteShard(const WeightSource& source, const RankTensor& tensor, CpuPool& pool,
                  artifact::SafetensorsWriter& writer) {
  const std::span<const RowRange> ranges = tensor.shard.rows;
  switch (tensor.kind) {
    case RankTensor::Kind::kValues:
      return writer.Append(std::as_bytes(std::span(tensor.values)));
    case RankTensor::Kind::kScales:
    case RankTensor::Kind::kOffsets:
      return writer.Append(GroupBytes(source, tensor));
    case RankTensor::Kind::kRows:
    case RankTensor::Kind::kRowPairs:
      break;
  }
  if (tensor.shard.is_side_by_side) return WriteRows(source, tensor, ranges, pool, writer);
  for (size_t i = 0; i < ranges.size(); ++i)
    RETURN_IF_ERROR(WriteRows(source, tensor, ranges.subspan(i, 1), pool, writer));
  return Status::Ok();
}

Result<std::vector<std::vector<RankTensor>>> TensorsOfRanks(const WeightSource& source,
                                                            const Layout& layout) {
  std::vector<std::vector<RankTensor>> ranks(
      static_cast<size_t>(layout.sharding.ranks.num_ranks()));
  const model::ModelConfig config =
      SlotConfigOf(layout.upstream.value_or(UpstreamLayout()).form, layout.config);
  model::DecoderWeights unused;
  for (const model::WeightSlot& slot : model::WeightSlots(config, unused)) {
    model::WeightSlot from = slot;
    if (source.config.tied_embeddings) from.name = TiedName(slot.name);  // the table once more
    for (Shard& shard : ShardsOf(config, layout.sharding, slot)) {
      std::vector<RankTensor>& tensors = ranks[static_cast<size_t>(shard.rank)];
      tensors.push_back({.shard = std::move(shard), .slot = from});
      // A shared expert's row of the router has the model's dtype.
      if (tensors.back().shard.is_shared) tensors.back().slot.is_router = false;
    }
  }
  if (layout.upstream)
    for (std::vector<RankTensor>& tensors : ranks)
      RETURN_IF_ERROR(SetUpstreamLayout(*layout.upstream, source, tensors));
  return ranks;
}

Status WriteRank(const WeightSource& source, const std::vector<RankTensor>& tensors,
                 const std::filesystem::path& path, CpuPool& pool, const Progress& progress) {
  std::vector<artifact::TensorSpec> specs;
  for (const RankTensor& tensor : tensors) specs.push_back(SpecOf(source, tensor));
  ASSIGN_OR_RETURN(artifact::SafetensorsWriter writer,
                   artifact::SafetensorsWriter::Create(path, specs));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const RankTensor& tensor = tensors[i];
    if (progress)
      progress(static_cast<double>(i) / static_cast<double>(tensors.size()), tensor.shard.name);
    RETURN_IF_ERROR(WriteShard(source, tensor, pool, writer));
  }
  return writer.Finish();
}

Status WriteRanks(const WeightSource& source, const Layout& layout,
                  const std::filesystem::path& dir, const Progress& progress) {
  ASSIGN_OR_RETURN(const auto ranks, TensorsOfRanks(source, layout));
  CpuPool pool;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto report = [&](double fraction, std::string_view what) {
      if (progress)
        progress((static_cast<double>(rank) + fraction) / static_cast<double>(ranks.size()), what);
    };
    const std::string name = artifact::RankFileName(static_cast<int>(rank));
    RETURN_IF_ERROR(WriteRank(source, ranks[rank], dir / name, pool, report));
  }
  return artifact::RemoveFurtherRankFiles(dir, static_cast<int>(ranks.size()));
}

}  // namespace

Status Convert(const ConvertOptions& options, const Progress& progress) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(const std::optional<DType> said, SaidDType(options.model_dir));
  ASSIGN_OR_RETURN(
      const DType dtype,
      ChooseDType(options.dtype, said, options.quant_algo.value_or(model::QuantAlgo::kNone)));
  ASSIGN_OR_RETURN(
      const auto source,
      OpenWeightSource(options.model_dir, {.dtype = dtype,
                                           .quant_algo = options.quant_algo,
                                           .group_size = options.group_size,
                                           .fp8_kv_cache = options.fp8_kv_cache,
                                           .quantize_lm_head = options.quantize_lm_head,
                                           .medusa = options.medusa}));
  ASSIGN_OR_RETURN(Layout layout, ChooseLayout(options, source->config));
  if (options.upstream_layout) {
    ASSIGN_OR_RETURN(layout.upstream, UpstreamLayoutOf(*source, layout.sharding.ranks));
  }
  RETURN_IF_ERROR(artifact::CreateDirectory(options.output_dir));
  if (!options.save_config_only)
    RETURN_IF_ERROR(WriteRanks(*source, layout, options.output_dir, progress));
  RETURN_IF_ERROR(CopyModelFiles(options.model_dir, options.output_dir));
  // Last, because it is what makes the directory a checkpoint.
  nlohmann::json config = layout.upstream ? UpstreamConfig(*layout.upstream, layout.config)
                                          : model::ConfigToCheckpoint(layout.config);
  WriteSharding(layout.sharding, config);
  RETURN_IF_ERROR(artifact::WriteConfig(options.output_dir, config));
  if (progress) progress(1.0, "done");
  return Status::Ok();
}

}  // namespace inflight::builder
