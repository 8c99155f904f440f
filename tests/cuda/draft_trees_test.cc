// SPDX-License-Identifier: Apache-2.0
// Trees of drafts on a GPU against decoding/draft_tree.h on the host: what a step's rows are
// derived to, which paths are accepted, where keys and values move to; and trees of Medusa's heads
// against their logits on the CPU, which transformers judges (medusa_golden_test).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "executor/cuda/medusa_model.h"
#include "executor/cuda/step_kernels.h"
#include "executor/cuda/step_state.h"
#include "gpu_test.h"
#include "model/medusa_heads.h"
#include "ops/cuda/cuda_stream.h"
#include "tensor/element.h"
#include "tiny_models.h"

namespace inflight::executor::cuda {
namespace {

using decoding::DraftTree;

constexpr int kTreeBlock = 16;
constexpr int kPrefillSlot = 6;

MemoryPlan TreePlan() {
  MemoryPlan plan;
  plan.device = DeviceKind::kCuda;
  plan.block_size = kTreeBlock;
  plan.max_batch_size = 6;
  plan.max_slots = 8;
  plan.max_num_tokens = 128;
  plan.max_seq_len = 100;
  plan.num_blocks = 60;
  plan.drafts = DraftSource::kMedusa;
  plan.draft_tree = DraftTree::Default(/*max_depth=*/3);
  plan.draft_tree->Cut(kTreeBlock - 1);
  plan.max_draft_len = plan.draft_tree->size();
  return plan;
}

// A decode row of the step.
struct TreeRow {
  int slot = 0;
  int num_known = 0;
  int num_nodes = 0;
};

class DraftTreesTest : public gpu::GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    state_ = gpu::Must(StepState::Create(plan_, device()));
    cudaDeviceSynchronize();
    cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  }
  void TearDown() override {
    if (stream_ == nullptr) return;
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    cudaStreamDestroy(stream_);
  }

  const DraftTree& tree() const { return *plan_.draft_tree; }
  int Below(int bound) { return static_cast<int>(random_() % static_cast<unsigned>(bound)); }

  template <typename T>
  std::vector<T> Read(const T* data, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    gpu::Must(device().Copy(values.data(), data, count * sizeof(T)));
    return values;
  }
  template <typename T>
  void Write(T* to, const std::vector<T>& values) {
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    gpu::Must(device().Copy(to, values.data(), values.size() * sizeof(T)));
  }

  // Slots with their tokens and, of few kinds, those of all nodes; the step of `rows`, and a prompt
  // of 5 tokens that yields. Block b of slot s is block 7 s + b of the plan.
  StepShape Begin(const std::vector<TreeRow>& rows) {
    drafts_.clear();
    auto step = std::make_unique<scheduler::StepPlan>();
    const auto add = [&](scheduler::PlanRow row, int num_places) {
      const int num_blocks = (num_places + kTreeBlock - 1) / kTreeBlock;
      step->updates[static_cast<size_t>(step->num_updates++)] = {
          .slot = row.slot,
          .num_blocks = static_cast<int16_t>(num_blocks),
          .first_idx = 0,
          .offset = step->num_block_ids};
      for (int b = 0; b < num_blocks; ++b)
        step->block_ids[static_cast<size_t>(step->num_block_ids++)] = 7 * row.slot + b;
      step->rows[static_cast<size_t>(step->num_rows++)] = row;
      step->num_tokens += row.num_query_tokens;
      step->num_decode_rows += row.is_prefill != 0 ? 0 : 1;
    };
    for (const TreeRow& row : rows) {
      SetUpSlot(row.slot, row.num_known);
      std::vector<int32_t> drafts;
      for (int i = 0; i < row.num_nodes; ++i) drafts.push_back(Below(4));
      Write(state_->slots().tokens + row.slot * state_->slots().max_tokens + row.num_known, drafts);
      drafts_.push_back(drafts);
      add({.slot = row.slot,
           .num_query_tokens = 1 + row.num_nodes,
           .first_position = row.num_known - 1,
           .yields = 1,
           .num_draft_tokens = static_cast<uint8_t>(row.num_nodes)},
          row.num_known + row.num_nodes);
    }
    SetUpSlot(kPrefillSlot, 5);
    add({.slot = kPrefillSlot, .num_query_tokens = 5, .is_prefill = 1, .yields = 1}, 5);
    const StepShape shape = state_->Pack(*step, &state_->arena(num_steps_));
    gpu::Must(state_->Begin(shape, stream_));
    return shape;
  }

  void SetUpSlot(int slot, int known) {
    const auto tokens = state_->host_tokens(slot);
    for (int p = 0; p < known; ++p) tokens[static_cast<size_t>(p)] = 1000 * slot + p;
    gpu::Must(state_->SetUpSlot(slot, known, /*prompt_table=*/nullptr, stream_));
    EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }

  // Of draft `draft` (0: the root) of a row; then its parents' numbers up to the root.
  std::vector<int> Way(int draft) const {
    std::vector<int> way = {draft};
    while (draft > 0) way.push_back(draft = tree()[draft - 1].parent + 1);
    return way;
  }

  int64_t PlaceOf(int slot, int place) const {
    return (7 * slot + place / kTreeBlock + 1) * kTreeBlock + place % kTreeBlock;
  }

  const MemoryPlan plan_ = TreePlan();
  std::unique_ptr<StepState> state_;
  cudaStream_t stream_ = nullptr;
  std::mt19937 random_{5};
  std::vector<std::vector<int32_t>> drafts_;  // of the rows
  uint64_t num_steps_ = 0;
};

TEST_F(DraftTreesTest, RowsAreDerived) {
  const std::vector<TreeRow> rows = {{2, 17, 15}, {5, 40, 4}, {1, 33, 0}};
  const StepShape shape = Begin(rows);
  const StepTensors& t = state_->tensors();
  EXPECT_EQ(shape.num_decode_rows, 16 + 5 + 1);
  EXPECT_EQ(shape.num_logits, 23);
  const auto num = static_cast<size_t>(shape.num_decode_rows);
  const auto ids = Read(t.ids, num);
  const auto positions = Read(t.positions, num);
  const auto seq_lens = Read(t.seq_lens_kv, num);
  const auto slots = Read(t.slot_mapping, num);
  const auto followed = Read(t.logit_positions, num + 1);
  const auto shifts = Read(t.tree_shifts, (num + 1) * ops::kMaxTreeDepth);
  size_t r = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int draft = 0; draft <= rows[i].num_nodes; ++draft, ++r) {
      SCOPED_TRACE("row " + std::to_string(i) + " draft " + std::to_string(draft));
      const std::vector<int> way = Way(draft);
      const int root = rows[i].num_known - 1;
      const int position = root + static_cast<int>(way.size()) - 1;
      EXPECT_EQ(ids[r], draft == 0 ? 1000 * rows[i].slot + root
                                   : drafts_[i][static_cast<size_t>(draft - 1)]);
      EXPECT_EQ(positions[r], position);
      EXPECT_EQ(seq_lens[r], position + 1);
      EXPECT_EQ(followed[r], position + 1);
      EXPECT_EQ(slots[r], PlaceOf(rows[i].slot, root + draft));
      for (int back = 0; back < ops::kMaxTreeDepth; ++back) {
        const int place = static_cast<size_t>(back) < way.size()
                              ? root + way[static_cast<size_t>(back)]
                              : position - back;
        EXPECT_EQ(shifts[r * ops::kMaxTreeDepth + static_cast<size_t>(back)],
                  place - (position - back))
            << back;
      }
    }
  }
  EXPECT_EQ(followed[num], 5) << "of the prompt";
  EXPECT_TRUE(std::all_of(shifts.end() - ops::kMaxTreeDepth, shifts.end(),
                          [](uint8_t shift) { return shift == 0; }));
}

// Tokens of few kinds, so that siblings are alike at times and paths are long.
TEST_F(DraftTreesTest, PathsAreAcceptedAndMove) {
  ops::KvCacheView kv = {.dtype = DType::kBF16,
                         .num_layers = 3,
                         .num_blocks = plan_.num_blocks + 1,
                         .num_kv_heads = 2,
                         .block_size = kTreeBlock,
                         .head_dim = 80};
  const size_t kv_values = static_cast<size_t>(kv.num_layers) * static_cast<size_t>(kv.num_blocks) *
                           kv.block_bytes() / 2;
  const Buffer buffer = gpu::Must(Buffer::Allocate(device(), "kv", 2 * kv_values));
  kv.data = buffer.data();
  auto* const on_device = reinterpret_cast<uint16_t*>(buffer.data());
  const StepTensors& t = state_->tensors();
  const SlotState& s = state_->slots();
  int longest = 0;
  for (; num_steps_ < 40; ++num_steps_) {
    SCOPED_TRACE("step " + std::to_string(num_steps_));
    const std::vector<TreeRow> rows = {
        {2, 14 + Below(60), 15}, {5, 40, 1 + Below(15)}, {1, 33, 0}, {3, 1 + Below(30), 15}};
    const StepShape shape = Begin(rows);
    const auto num_logits = static_cast<size_t>(shape.num_logits);
    std::vector<int32_t> sampled;
    for (size_t j = 0; j < num_logits; ++j) sampled.push_back(Below(4));
    Write(t.sampled_ids, sampled);
    std::vector<uint16_t> values(kv_values);
    for (uint16_t& value : values) value = static_cast<uint16_t>(random_());
    Write(on_device, values);
    gpu::Must(AcceptTrees(s, t, shape.num_logits, stream_));
    gpu::Must(MoveAccepted(kv, /*group=*/0, s, t, shape.num_logits, stream_));
    gpu::Must(state_->End(shape, stream_));
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    const StepOutputs& outputs = state_->outputs(num_steps_);
    const auto accepted = Read(t.accepted, num_logits);

    std::vector<uint16_t> expected = values;
    size_t j = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const TreeRow& row = rows[i];
      std::vector<int> path;
      std::vector<int32_t> yielded = {sampled[j]};
      for (int node = -1;;) {
        node = tree().Child(node, yielded.back(), drafts_[i]);
        if (node < 0) break;
        path.push_back(node);
        yielded.push_back(sampled[j + static_cast<size_t>(node) + 1]);
      }
      longest = std::max(longest, static_cast<int>(path.size()));
      uint64_t bits = 0;
      for (size_t p = 0; p < path.size(); ++p) {
        bits |= uint64_t{1} << path[p];
        // Moves one behind the other, by place of a token in a block's head.
        for (int layer = 0; layer < kv.num_layers; ++layer)
          for (int head = 0; head < 2 * kv.num_kv_heads; ++head) {
            const auto at = [&](int place) {
              const int64_t token = PlaceOf(row.slot, place);
              const auto block = static_cast<size_t>(token / kTreeBlock);
              return (static_cast<size_t>(layer * kv.num_blocks) + block) * kv.block_bytes() / 2 +
                     static_cast<size_t>(head) * kv.head_bytes() / 2 +
                     static_cast<size_t>(token % kTreeBlock * kv.head_dim);
            };
            std::copy_n(&expected[at(row.num_known + path[p])], kv.head_dim,
                        &expected[at(row.num_known + static_cast<int>(p))]);
          }
      }
      EXPECT_EQ(accepted[j], bits);
      EXPECT_EQ(outputs.accepted[j], bits);
      EXPECT_EQ(outputs.num_yielded[j], std::ssize(yielded));
      EXPECT_EQ(outputs.num_drafted[j], row.num_nodes);
      const auto num_known = static_cast<size_t>(row.num_known);
      EXPECT_EQ(Read(s.num_tokens + row.slot, 1)[0], row.num_known + std::ssize(yielded));
      const auto tokens = Read(s.tokens + row.slot * s.max_tokens, num_known + yielded.size());
      EXPECT_EQ(std::vector<int32_t>(tokens.end() - std::ssize(yielded), tokens.end()), yielded);
      j += 1 + static_cast<size_t>(row.num_nodes);
    }
    EXPECT_EQ(outputs.num_yielded[j], 1) << "of the prompt";
    EXPECT_EQ(Read(s.num_tokens + kPrefillSlot, 1)[0], 6);
    EXPECT_EQ(Read(static_cast<const uint16_t*>(on_device), kv_values), expected);
  }
  EXPECT_EQ(longest, 3);
}

// Random blocks and heads. Where logits nearly tie either token is right.
TEST_F(DraftTreesTest, OfMedusasHeadsAreTheirBestTokens) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    model::ModelConfig config = dtype == DType::kF16 ? gpu::TinyLlamaF16() : gpu::TinyLlama();
    config.num_medusa_heads = 3;
    config.num_medusa_layers = 2;
    const auto engine = gpu::RandomEngine(config, gpu::TinyLimits(), device());
    const auto on_cpu = gpu::RandomEngine(config, gpu::TinyLimits(), gpu::Cpu());
    const auto ops = gpu::Must(ops::FindOps(device(), model::KernelShape(config)));
    const auto cpu_ops = gpu::Must(ops::FindOps(gpu::Cpu(), model::KernelShape(config)));
    const auto stream = gpu::Must(ops::MakeStream(device(), model::KernelShape(config),
                                                  plan_.max_num_tokens, plan_.max_logits() + 1));
    cudaDeviceSynchronize();
    auto heads = gpu::Must(MedusaModel::Create(engine, ops, plan_, *stream, *state_, device()));
    cudaDeviceSynchronize();
    auto cpu_heads =
        gpu::Must(model::MedusaHeads::Create(on_cpu, cpu_ops, gpu::Cpu(), /*max_rows=*/1));
    gpu::Must(heads->WarmUp(/*use_graphs=*/dtype == DType::kF16, /*records_all=*/false,
                            logging::Level::kInfo));

    // States of three slots, kept as of a step that drew their newest tokens.
    const std::vector<TreeRow> rows = {{2, 17, 15}, {5, 40, 4}, {1, 33, 1}};
    const StepShape shape = Begin({{2, 17, 0}, {5, 40, 0}, {1, 33, 0}});
    const auto width = static_cast<size_t>(config.hidden_size);
    std::vector<std::byte> states(8 * width * 2);
    for (size_t i = 0; i < 8 * width; ++i)
      StoreFloat(states.data(), dtype, static_cast<int64_t>(i),
                 static_cast<float>(Below(2000)) / 1000 - 1);
    const Buffer of_step = gpu::Must(Buffer::Allocate(device(), "states", states.size()));
    Write(of_step.data(), states);
    // Nothing was accepted, and nothing moves.
    const KvStorage kv = gpu::Must(KvStorage::Create({.dtype = dtype,
                                                      .num_layers = 1,
                                                      .num_kv_heads = 1,
                                                      .block_size = kTreeBlock,
                                                      .head_dim = 64},
                                                     /*num_blocks=*/1, device()));
    Write(state_->tensors().sampled_ids, std::vector<int32_t>(4, 9));
    gpu::Must(heads->Settle(kv, {of_step.data(), dtype, {8, config.hidden_size}}, shape));
    gpu::Must(stream->Synchronize());

    auto step = std::make_unique<scheduler::StepPlan>();
    for (const TreeRow& row : rows)
      step->rows[static_cast<size_t>(step->num_rows++)] = {
          .slot = row.slot,
          .num_query_tokens = 1 + row.num_nodes,
          .yields = 1,
          .num_draft_tokens = static_cast<uint8_t>(row.num_nodes)};
    step->num_decode_rows = step->num_rows;
    gpu::Must(heads->Draft(*step, num_steps_));
    gpu::Must(stream->Synchronize());

    const SlotState& s = state_->slots();
    inflight::Stream cpu_stream(gpu::Cpu());
    for (size_t i = 0; i < rows.size(); ++i) {
      const TreeRow& row = rows[i];
      const auto drafts = Read(s.tokens + row.slot * s.max_tokens + row.num_known + 1,
                               static_cast<size_t>(row.num_nodes));
      const TensorView state = {states.data() + i * width * 2, dtype, {1, config.hidden_size}};
      int32_t first = 0;
      for (int head = 0; head < tree().Depth(row.num_nodes); ++head) {
        const TensorView view =
            gpu::Must(cpu_heads->Logits(head, state, {&first, DType::kI32, {1}}, cpu_stream));
        const float* const logits = view.as<const float>();
        std::vector<float> sorted(logits, logits + config.vocab_size);
        std::sort(sorted.rbegin(), sorted.rend());
        const float bound = 0.02F * (sorted.front() - sorted.back());
        for (int node = 0; node < row.num_nodes; ++node) {
          if (tree()[node].depth != head + 1) continue;
          const int32_t token = drafts[static_cast<size_t>(node)];
          ASSERT_TRUE(token >= 0 && token < config.vocab_size) << "node " << node;
          EXPECT_NEAR(logits[token], sorted[static_cast<size_t>(tree()[node].choice)], bound)
              << "row " << i << " node " << node;
        }
      }
    }
    ++num_steps_;
    gpu::Must(state_->End(shape, stream_));
  }
}

}  // namespace
}  // namespace inflight::executor::cuda
