// SPDX-License-Identifier: Apache-2.0
#include "paged_model.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"

namespace inflight::golden {
namespace {

constexpr int kMaxTokens = 512;

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) CHECK_EQ(result.status().ToString(), "OK");
  return *std::move(result);
}

}  // namespace

PagedModel::PagedModel(std::shared_ptr<const model::Engine> engine, const ops::OpTable& ops,
                       Device& device, size_t num_sequences, int block_size,
                       const model::AttentionWindows& windows, model::WeightStream* weight_stream)
    : engine_(std::move(engine)), device_(device), seq_lens_(num_sequences, 0) {
  const model::ModelConfig& config = engine_->config;
  stream_ =
      Must(ops::MakeStream(device, model::KernelShape(config, windows), kMaxTokens, kMaxTokens));
  const size_t blocks_per_seq =
      static_cast<size_t>((engine_->limits.max_seq_len + block_size - 1) / block_size);
  kv_ = {.data = nullptr,
         .dtype = model::KvDType(config),
         .num_layers = config.num_layers,
         .num_blocks = static_cast<int64_t>(num_sequences * blocks_per_seq),
         .num_kv_heads = config.num_kv_heads,
         .block_size = block_size,
         .head_dim = config.head_dim,
         .row_dim = model::KvRowDim(config, device.kind())};
  const size_t kv_bytes =
      static_cast<size_t>(kv_.num_layers) * static_cast<size_t>(kv_.num_blocks) * kv_.block_bytes();
  kv_buffer_ = Must(Buffer::Allocate(device, "kv", kv_bytes));
  const std::vector<std::byte> poison(kv_bytes,
                                      std::byte{0xff});  // NaN: what was not written is seen
  CHECK(device.Copy(kv_buffer_.data(), poison.data(), kv_bytes).ok());
  inputs_ = Must(Buffer::Allocate(
      device, "inputs", kMaxTokens * 64 + num_sequences * (blocks_per_seq + 8) * sizeof(int32_t)));
  kv_.data = kv_buffer_.data();

  std::vector<int32_t> blocks(static_cast<size_t>(kv_.num_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
  for (size_t s = 0; s < num_sequences; ++s)
    block_tables_.emplace_back(blocks.begin() + static_cast<ptrdiff_t>(s * blocks_per_seq),
                               blocks.begin() + static_cast<ptrdiff_t>((s + 1) * blocks_per_seq));
  decoder_ = Must(
      model::Decoder::Create(engine_, ops, device, kMaxTokens, kMaxTokens, windows, weight_stream));
}

std::vector<std::vector<float>> PagedModel::Step(std::span<const Piece> pieces, bool last_only) {
  for (auto* input : {&ids_, &positions_, &seq_lens_kv_, &tables_, &logit_rows_}) input->clear();
  slot_mapping_.clear();
  cu_seqlens_ = {0};
  for (const Piece& piece : pieces) AddRow(piece, last_only);
  return Forward();
}

void PagedModel::AddRow(const Piece& piece, bool last_only) {
  const std::vector<int32_t>& blocks = block_tables_[piece.sequence];
  int32_t& length = seq_lens_[piece.sequence];
  for (size_t i = 0; i < piece.tokens.size(); ++i, ++length) {
    const int64_t block = blocks[static_cast<size_t>(length / kv_.block_size)];
    if (!last_only || i + 1 == piece.tokens.size())
      logit_rows_.push_back(static_cast<int32_t>(ids_.size()));
    ids_.push_back(piece.tokens[i]);
    positions_.push_back(length);
    slot_mapping_.push_back(block * kv_.block_size + length % kv_.block_size);
  }
  cu_seqlens_.push_back(static_cast<int32_t>(ids_.size()));
  seq_lens_kv_.push_back(length);
  tables_.insert(tables_.end(), blocks.begin(), blocks.end());
}

template <typename T>
TensorView PagedModel::Upload(const std::vector<T>& values, DType dtype, Shape shape) {
  CHECK_EQ(shape.num_elements(), static_cast<int64_t>(values.size()));
  const TensorView view = inputs_.View(dtype, shape, inputs_used_);
  CHECK(device_.Copy(view.data, values.data(), view.num_bytes()).ok());
  inputs_used_ += (view.num_bytes() + 63) / 64 * 64;
  return view;
}

std::vector<std::vector<float>> PagedModel::Forward() {
  const auto num_tokens = static_cast<int64_t>(ids_.size());
  const auto num_rows = static_cast<int64_t>(seq_lens_kv_.size());
  const auto num_logits = static_cast<int64_t>(logit_rows_.size());
  const auto max_blocks = static_cast<int64_t>(block_tables_.front().size());
  inputs_used_ = 0;
  int num_decode_rows = 0;
  while (num_decode_rows < num_rows && cu_seqlens_[static_cast<size_t>(num_decode_rows) + 1] ==
                                           cu_seqlens_[static_cast<size_t>(num_decode_rows)] + 1)
    ++num_decode_rows;
  const model::Batch batch = {
      .ids = Upload(ids_, DType::kI32, {num_tokens}),
      .paged = {.num_rows = static_cast<int>(num_rows),
                .num_tokens = static_cast<int>(num_tokens),
                .cu_seqlens_q = Upload(cu_seqlens_, DType::kI32, {num_rows + 1}),
                .seq_lens_kv = Upload(seq_lens_kv_, DType::kI32, {num_rows}),
                .positions = Upload(positions_, DType::kI32, {num_tokens}),
                .slot_mapping = Upload(slot_mapping_, DType::kI64, {num_tokens}),
                .block_tables = Upload(tables_, DType::kI32, {num_rows, max_blocks}),
                .num_decode_rows = num_decode_rows},
      .logit_rows = Upload(logit_rows_, DType::kI32, {num_logits}),
      .kept = kept_};
  const TensorView logits = Must(decoder_->Forward(batch, kv_, *stream_));
  CHECK(logits.shape == (Shape{num_logits, engine_->config.vocab_size}));
  const auto vocab = static_cast<size_t>(engine_->config.vocab_size);
  std::vector<std::vector<float>> rows(logit_rows_.size(), std::vector<float>(vocab));
  CHECK(stream_->Synchronize().ok());
  for (size_t r = 0; r < rows.size(); ++r)
    CHECK(device_.Copy(rows[r].data(), logits.as<float>() + r * vocab, vocab * sizeof(float)).ok());
  return rows;
}

std::vector<std::vector<float>> AllLogits(PagedModel& model, std::span<const TokenId> ids,
                                          std::span<const size_t> chunks) {
  std::vector<std::vector<float>> logits;
  for (size_t i = 0; !ids.empty(); ++i) {
    const size_t n = std::min(chunks[i % chunks.size()], ids.size());
    const Piece piece{0, ids.first(n)};
    for (auto& row : model.Step({&piece, 1}, /*last_only=*/false)) logits.push_back(std::move(row));
    ids = ids.subspan(n);
  }
  return logits;
}

}  // namespace inflight::golden
