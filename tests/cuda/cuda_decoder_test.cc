// SPDX-License-Identifier: Apache-2.0
// The forward pass, operator by operator, on CPU and GPU: the first that differs is named.
#include <cuda_runtime_api.h>

#include <numeric>
#include <random>

#include "executor/kv_storage.h"
#include "gpu_test.h"
#include "model/decoder.h"
#include "operator_trace.h"
#include "tiny_models.h"

namespace inflight::gpu {
namespace {

constexpr int kBlockSize = 16;
constexpr int kBlocksPerSequence = 8;
constexpr int kNumSequences = 4;
constexpr int kMaxTokens = 256;

// Residual, delta and q are rounded to the model's dtype on the GPU and float32 on the CPU: 2^-9
// for bf16 at each of some ten roundings that follow one another, whose errors add up like random
// ones.
constexpr double kBound = 3e-2;

struct Row {
  int sequence = 0;
  int begin = 0, end = 0;  // positions
};

// A decoder on one device with a cache for kNumSequences, and what its operators wrote.
class TracedModel {
 public:
  TracedModel(const model::ModelConfig& config, Device& device) : device_(device) {
    const auto engine = RandomEngine(config, TinyLimits(), device);
    const ops::ShapeClass shape = model::KernelShape(config);
    stream_ = Must(ops::MakeStream(device, shape, kMaxTokens, kNumSequences));
    table_ = Must(ops::FindOps(device, shape));
    decoder_ = Must(
        model::Decoder::Create(engine, Traced(table_, &trace_), device, kMaxTokens, kNumSequences));
    kv_ = Must(executor::KvStorage::Create(executor::KvShape(config, kBlockSize, device.kind()),
                                           1 + kNumSequences * kBlocksPerSequence, device));
    if (device.kind() == DeviceKind::kCuda) cudaDeviceSynchronize();
  }

  // One step. Decode rows first. Token `p` of sequence `s` is TokenAt(s, p).
  Status Step(const std::vector<Row>& rows, int vocab_size);

  const std::vector<TracedOutput>& trace() const { return trace_; }

 private:
  Device& device_;
  std::vector<TracedOutput> trace_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<model::Decoder> decoder_;
  executor::KvStorage kv_;
  ops::OpTable table_;
};

TokenId TokenAt(int sequence, int position, int vocab_size) {
  return (sequence * 7919 + position * 104729 + 17) % vocab_size;
}

Status TracedModel::Step(const std::vector<Row>& rows, int vocab_size) {
  Traced(table_, &trace_);  // the other model was the last
  trace_.clear();
  std::vector<int32_t> ids, positions, cu_seqlens{0}, seq_lens, tables, logit_rows;
  std::vector<int64_t> slot_mapping;
  int num_decode_rows = 0;
  for (const Row& row : rows) {
    std::vector<int32_t> blocks(kBlocksPerSequence);
    for (int b = 0; b < kBlocksPerSequence; ++b)  // neither adjacent nor ascending
      blocks[static_cast<size_t>(b)] =
          1 + (kBlocksPerSequence - 1 - b) * kNumSequences + row.sequence;
    for (int p = row.begin; p < row.end; ++p) {
      ids.push_back(TokenAt(row.sequence, p, vocab_size));
      positions.push_back(p);
      slot_mapping.push_back(int64_t{blocks[static_cast<size_t>(p / kBlockSize)]} * kBlockSize +
                             p % kBlockSize);
    }
    if (row.begin > 0 && row.end == row.begin + 1) ++num_decode_rows;
    cu_seqlens.push_back(static_cast<int32_t>(ids.size()));
    seq_lens.push_back(row.end);
    tables.insert(tables.end(), blocks.begin(), blocks.end());
    logit_rows.push_back(static_cast<int32_t>(ids.size()) - 1);
  }
  std::vector<Buffer> buffers;
  const auto upload = [&](const auto& values, DType dtype, Shape shape) {
    const size_t num_bytes = values.size() * sizeof(values[0]);
    buffers.push_back(Must(Buffer::Allocate(device_, "input", num_bytes)));
    Must(device_.Copy(buffers.back().data(), values.data(), num_bytes));
    return TensorView{buffers.back().data(), dtype, shape};
  };
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto num_tokens = static_cast<int64_t>(ids.size());
  const model::Batch batch = {
      .ids = upload(ids, DType::kI32, {num_tokens}),
      .paged = {.num_rows = static_cast<int>(num_rows),
                .num_tokens = static_cast<int>(num_tokens),
                .cu_seqlens_q = upload(cu_seqlens, DType::kI32, {num_rows + 1}),
                .seq_lens_kv = upload(seq_lens, DType::kI32, {num_rows}),
                .positions = upload(positions, DType::kI32, {num_tokens}),
                .slot_mapping = upload(slot_mapping, DType::kI64, {num_tokens}),
                .block_tables = upload(tables, DType::kI32, {num_rows, kBlocksPerSequence}),
                .num_decode_rows = num_decode_rows},
      .logit_rows = upload(logit_rows, DType::kI32, {num_rows})};
  if (device_.kind() == DeviceKind::kCuda) cudaDeviceSynchronize();
  return decoder_->Forward(batch, kv_.view(), *stream_).status();
}

struct Case {
  const char* name;
  model::ModelConfig (*config)();
};

class CudaDecoderTest : public GpuTest, public testing::WithParamInterface<Case> {};

TEST_P(CudaDecoderTest, EveryOperatorAgreesWithTheCpu) {
  const model::ModelConfig config = GetParam().config();
  TracedModel expected(config, Cpu());
  TracedModel actual(config, device());
  const std::vector<std::pair<const char*, std::vector<Row>>> steps = {
      {"prompts", {{0, 0, 70}, {1, 0, 33}, {2, 0, 5}}},
      {"decode and a prompt", {{0, 70, 71}, {1, 33, 34}, {2, 5, 6}, {3, 0, 20}}},
      {"decode and a chunk", {{0, 71, 72}, {2, 6, 7}, {3, 20, 50}}},
      {"decode", {{3, 50, 51}, {1, 34, 35}, {0, 72, 73}}},
      {"one row", {{2, 7, 8}}}};
  for (const auto& [name, rows] : steps) {
    SCOPED_TRACE(name);
    Must(expected.Step(rows, config.vocab_size));
    const Status status = actual.Step(rows, config.vocab_size);
    const Comparison comparison = Compare(expected.trace(), actual.trace(), kBound);
    ASSERT_TRUE(status.ok()) << status.ToString() << " after\n" << comparison.report;
    ASSERT_LE(comparison.worst, kBound) << "first: " << comparison.first_bad << "\nall:\n"
                                        << comparison.report;
    std::printf("%s: largest relative difference %.2e\n", name, comparison.worst);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaDecoderTest,
                         testing::Values(Case{"Llama", TinyLlama}, Case{"LlamaF16", TinyLlamaF16},
                                         Case{"Gpt2", TinyGpt2}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace inflight::gpu
